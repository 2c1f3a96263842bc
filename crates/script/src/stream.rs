//! The session object `s` of stream: natives over the host, and what JavaScript makes of them
//! (`js/stream.js`).
//!
//! As with requests, a session is a number that no other one of the process has, so that objects of
//! sessions that have ended throw.

use std::cell::RefCell;

use rquickjs::{Ctx, Function, Object, Persistent, Result, Value};

use crate::host::http::Refusal;
use crate::host::stream::{Form, Sending, SessionId, StreamHost, Way};
use crate::host::{Host, Level};
use crate::http::{bytes, prelude, strings, text, text_or_buffer, variable_name, watch};
use crate::native::{self, Call, Method, to_bool, to_number};
use crate::raw::{self, Bytecode};
use crate::state;
use crate::value::Data;

const SOURCE: &str = include_str!("js/stream.js");

/// Where the state keeps what the module `js/stream.js` returns.
const PARTS: &str = "weir:stream";

thread_local! {
    static COMPILED: RefCell<Option<Bytecode>> = const { RefCell::new(None) };
}

/// Adds what handlers of stream have beside the common objects.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    let natives = Object::new(ctx.clone())?;
    native::methods(&natives, NATIVES)?;
    let parts = prelude(ctx, PARTS, SOURCE, &COMPILED, natives)?;
    let parts = Persistent::save(ctx, parts);
    state::of(ctx).prototypes.borrow_mut().insert(PARTS, parts);
    Ok(())
}

fn part<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Function<'js>> {
    native::prototype_of(ctx, PARTS)?.get(name)
}

/// The `s` object of the session that the host lends; the same object for each call.
pub fn session<'js>(ctx: &Ctx<'js>) -> Result<Value<'js>> {
    let (id, is_periodic) = host(ctx, |h| Ok((h.session(), h.is_periodic())))?;
    part(ctx, "session")?.call((id as f64, is_periodic))
}

/// Calls the callback of a way, if the script has set one. A rejection of its promise is noted as
/// soon as it happens.
pub fn event<'js>(ctx: &Ctx<'js>, way: Way, form: Form, bytes: Vec<u8>, last: bool) -> Result<()> {
    let id = host(ctx, |h| Ok(h.session()))?;
    let data = text_or_buffer(ctx, bytes, form == Form::Buffer)?;
    let way = if way == Way::Up { 0 } else { 1 };
    let result = part(ctx, "event")?.call((id as f64, way, data, last))?;
    watch(ctx, result)
}

/// Calls a function with the host of stream.
fn host<R>(
    ctx: &Ctx<'_>,
    f: impl FnOnce(&mut dyn StreamHost) -> std::result::Result<R, Refusal>,
) -> Result<R> {
    let done = state::host(ctx, |host: &mut dyn Host| {
        host.stream().map_or(Err(Refusal::Internal("there is no session")), f)
    })?;
    done.map_err(|refusal| refusal.throw(ctx))
}

/// Calls a function with the session that the first argument names.
fn of<R>(
    call: &Call<'_, '_>,
    f: impl FnOnce(&mut dyn StreamHost) -> std::result::Result<R, Refusal>,
) -> Result<R> {
    let id = to_number(&call.arg(0))? as SessionId;
    host(call.ctx(), |h| match h.session() == id {
        true => f(h),
        false => Err(Refusal::Internal("the session of this object has ended")),
    })
}

const NATIVES: &[Method] = &[
    ("remoteAddress", 1, |c| {
        let address = of(c, |h| Ok(h.remote_address()))?;
        text(c.ctx(), &address)
    }),
    ("status", 1, |c| {
        let status = of(c, |h| Ok(h.status()))?;
        c.number(status.into())
    }),
    ("variable", 3, |c| {
        let (name, is_raw) = (variable_name(&c.arg(1))?, to_bool(&c.arg(2))?);
        match of(c, |h| Ok(h.variable(&name)))? {
            Some(value) => text_or_buffer(c.ctx(), value, is_raw),
            None => c.undefined(),
        }
    }),
    ("setVariable", 3, |c| {
        let (name, value) = (variable_name(&c.arg(1))?, bytes(&c.arg(2))?);
        of(c, |h| h.set_variable(&name, value))?;
        c.undefined()
    }),
    ("variableNames", 1, |c| {
        let prefix = raw::to_text(&c.arg(0))?;
        let names = host(c.ctx(), |h| Ok(h.variable_names()))?;
        let named = names.into_iter().filter(|name| name.starts_with(&prefix));
        strings(c.ctx(), named.map(String::into_bytes))
    }),
    ("log", 3, |c| {
        let level = match to_number(&c.arg(1))? as u32 {
            0 => Level::Info,
            1 => Level::Warn,
            _ => Level::Error,
        };
        let text = raw::to_text(&c.arg(2))?;
        of(c, |h| {
            h.log(level, &text);
            Ok(())
        })?;
        c.undefined()
    }),
    ("done", 2, |c| {
        let code = to_number(&c.arg(1))? as i64;
        of(c, |h| h.done(code))?;
        c.undefined()
    }),
    ("listen", 3, |c| {
        let way = way(&c.arg(1))?.unwrap_or(Way::Up);
        let form = match to_number(&c.arg(2))? as u32 {
            0 => None,
            1 => Some(Form::Text),
            _ => Some(Form::Buffer),
        };
        of(c, |h| {
            h.listen(way, form);
            Ok(())
        })?;
        c.undefined()
    }),
    ("send", 5, |c| {
        let sending = Sending {
            way: way(&c.arg(1))?,
            bytes: bytes(&c.arg(2))?,
            last: c.arg(3).as_bool(),
            flush: c.arg(4).as_bool(),
        };
        of(c, |h| h.send(sending))?;
        c.undefined()
    }),
    ("setReturnValue", 2, |c| {
        let value = Data::from_js(&c.arg(1))?;
        of(c, |h| {
            h.set_return_value(value);
            Ok(())
        })?;
        c.undefined()
    }),
];

fn way(value: &Value<'_>) -> Result<Option<Way>> {
    if value.is_undefined() {
        return Ok(None);
    }
    Ok(Some(if to_number(value)? == 0.0 { Way::Up } else { Way::Down }))
}
