//! `ngx.shared`: dictionaries that all workers see. Their methods are in `js/shared.js`.

use std::cell::RefCell;

use rquickjs::{Array, Ctx, Object, Result, Value};

use crate::globals;
use crate::host::Host;
use crate::host::shared::{SharedHost, Store};
use crate::http;
use crate::native::{self, Call, Method, to_number};
use crate::raw::{self, Bytecode};
use crate::state;

const SOURCE: &str = include_str!("js/shared.js");

thread_local! {
    static COMPILED: RefCell<Option<Bytecode>> = const { RefCell::new(None) };
}

/// Adds `ngx.shared`.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    let natives = Object::new(ctx.clone())?;
    native::methods(&natives, NATIVES)?;
    natives.set("ngx", globals::ngx_of(ctx)?)?;
    http::prelude(ctx, "weir:shared", SOURCE, &COMPILED, natives).map(drop)
}

/// Calls a function with the dictionaries; without a server there are none.
fn host<R: Default>(ctx: &Ctx<'_>, f: impl FnOnce(&mut dyn SharedHost) -> R) -> Result<R> {
    state::host(ctx, |host: &mut dyn Host| host.shared().map(f)).map(Option::unwrap_or_default)
}

fn dict(c: &Call<'_, '_>) -> Result<usize> {
    Ok(to_number(&c.arg(0))? as usize)
}

fn key(c: &Call<'_, '_>, at: usize) -> Result<String> {
    raw::to_text(&c.arg(at))
}

fn lifetime(c: &Call<'_, '_>, at: usize) -> Result<Option<u64>> {
    Ok(Some(to_number(&c.arg(at))? as u64).filter(|ms| *ms > 0))
}

/// A value as the dictionary's type has it.
fn value<'js>(c: &Call<'_, 'js>, dict: usize, text: &str) -> Result<Value<'js>> {
    let is_number = host(c.ctx(), |h| h.is_number(dict))?;
    if is_number { c.number(text.parse().unwrap_or(f64::NAN)) } else { c.text(text) }
}

const NATIVES: &[Method] = &[
    ("names", 0, |c| {
        let array = Array::new(c.ctx().clone())?;
        for (i, name) in host(c.ctx(), |h| h.names())?.into_iter().enumerate() {
            array.set(i, name)?;
        }
        Ok(array.into_value())
    }),
    ("name", 1, |c| {
        let dict = dict(c)?;
        let name = host(c.ctx(), |h| h.names().into_iter().nth(dict).unwrap_or_default())?;
        c.text(&name)
    }),
    ("capacity", 1, |c| {
        let dict = dict(c)?;
        let bytes = host(c.ctx(), |h| h.capacity(dict))?;
        c.number(bytes as f64)
    }),
    ("freeSpace", 1, |c| {
        let dict = dict(c)?;
        let bytes = host(c.ctx(), |h| h.free(dict))?;
        c.number(bytes as f64)
    }),
    ("isNumber", 1, |c| {
        let dict = dict(c)?;
        let is = host(c.ctx(), |h| h.is_number(dict))?;
        c.bool(is)
    }),
    ("hasTimeout", 1, |c| {
        let dict = dict(c)?;
        let has = host(c.ctx(), |h| h.has_timeout(dict))?;
        c.bool(has)
    }),
    ("get", 2, |c| {
        let (dict, key) = (dict(c)?, key(c, 1)?);
        match host(c.ctx(), |h| h.get(dict, &key))? {
            Some((text, _)) => value(c, dict, &text),
            None => c.undefined(),
        }
    }),
    ("ttl", 2, |c| {
        let (dict, key) = (dict(c)?, key(c, 1)?);
        match host(c.ctx(), |h| h.get(dict, &key))? {
            Some((_, Some(ms))) => c.number(ms as f64),
            _ => c.undefined(),
        }
    }),
    ("take", 2, |c| {
        let (dict, key) = (dict(c)?, key(c, 1)?);
        match host(c.ctx(), |h| h.take(dict, &key))? {
            Some(text) => value(c, dict, &text),
            None => c.undefined(),
        }
    }),
    ("store", 5, store),
    ("increment", 5, |c| {
        let (dict, key, lifetime) = (dict(c)?, key(c, 1)?, lifetime(c, 4)?);
        let numbers = (to_number(&c.arg(2))?, to_number(&c.arg(3))?);
        match host(c.ctx(), |h| h.increment(dict, &key, numbers, lifetime).ok())? {
            Some(sum) => c.number(sum),
            None => c.undefined(),
        }
    }),
    ("clear", 1, |c| {
        let dict = dict(c)?;
        host(c.ctx(), |h| h.clear(dict))?;
        c.undefined()
    }),
    ("size", 1, |c| {
        let dict = dict(c)?;
        let count = host(c.ctx(), |h| h.count(dict))?;
        raw::worked(count.saturating_mul(ENTRY_BYTES));
        c.number(count as f64)
    }),
    ("keys", 2, |c| {
        let (dict, max) = (dict(c)?, to_number(&c.arg(1))? as usize);
        let bytes_max = state::of(c.ctx()).memory_max();
        let keys = host(c.ctx(), |h| h.keys(dict, max, bytes_max))?;
        let keys = keys.ok_or_else(|| state::out_of_memory(c.ctx()))?;
        let array = Array::new(c.ctx().clone())?;
        for (i, key) in keys.into_iter().enumerate() {
            c.go_on()?;
            array.set(i, key)?;
        }
        Ok(array.into_value())
    }),
    ("items", 2, |c| {
        let (dict, max) = (dict(c)?, to_number(&c.arg(1))? as usize);
        let bytes_max = state::of(c.ctx()).memory_max();
        let entries = host(c.ctx(), |h| h.entries(dict, max, bytes_max))?;
        let entries = entries.ok_or_else(|| state::out_of_memory(c.ctx()))?;
        let array = Array::new(c.ctx().clone())?;
        for (i, (key, text)) in entries.into_iter().enumerate() {
            raw::worked(key.len() + text.len());
            c.go_on()?;
            let item = Array::new(c.ctx().clone())?;
            item.set(0, key)?;
            item.set(1, value(c, dict, &text)?)?;
            array.set(i, item)?;
        }
        Ok(array.into_value())
    }),
];

/// The work for an entry beside its bytes.
const ENTRY_BYTES: usize = 64;

/// `n.store(dict, how, key, value, lifetime)`: a boolean, or undefined where there is no room.
fn store<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    let (dict, key, text) = (dict(c)?, key(c, 2)?, key(c, 3)?);
    let how = match to_number(&c.arg(1))? as u32 {
        0 => Store::Set,
        1 => Store::Add,
        _ => Store::Replace,
    };
    let lifetime = lifetime(c, 4)?;
    match host(c.ctx(), |h| h.store(dict, how, &key, &text, lifetime).ok())? {
        Some(is_stored) => c.bool(is_stored),
        None => c.undefined(),
    }
}
