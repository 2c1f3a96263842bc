//! `ngx.fetch`, `Headers`, `Request` and `Response`, which are in `js/fetch.js`.

use std::cell::RefCell;

use rquickjs::{Array, ArrayBuffer, Ctx, Exception, Object, Result, Value};

use crate::globals;
use crate::host::Host;
use crate::host::fetch::{FetchRequest, Unsent, is_target, parse_url};
use crate::http::{self, bytes, is_field_name, is_field_value};
use crate::native::{self, Call, Method, to_number};
use crate::raw::{self, Bytecode};
use crate::state;

const SOURCE: &str = include_str!("js/fetch.js");

thread_local! {
    static COMPILED: RefCell<Option<Bytecode>> = const { RefCell::new(None) };
}

/// Adds `ngx.fetch` and its classes.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    let natives = Object::new(ctx.clone())?;
    native::methods(&natives, NATIVES)?;
    natives.set("ngx", globals::ngx_of(ctx)?)?;
    http::prelude(ctx, "weir:fetch", SOURCE, &COMPILED, natives).map(drop)
}

const NATIVES: &[Method] = &[
    ("isName", 1, |c| {
        let name = raw::to_text(&c.arg(0))?;
        c.bool(is_field_name(name.as_bytes()))
    }),
    ("isValue", 1, |c| {
        let value = raw::to_text(&c.arg(0))?;
        c.bool(is_field_value(value.as_bytes()))
    }),
    ("isTarget", 1, |c| {
        let text = raw::to_text(&c.arg(0))?;
        c.bool(is_target(&text))
    }),
    ("isStatusText", 1, |c| {
        let text = raw::to_text(&c.arg(0))?;
        c.bool(!text.bytes().any(|b| b < b' ' && b != b'\t'))
    }),
    ("problem", 1, |c| {
        let url = raw::to_text(&c.arg(0))?;
        match parse_url(&url) {
            Ok(_) => c.undefined(),
            Err(problem) => c.text(problem),
        }
    }),
    ("convert", 2, convert),
    ("fetch", 6, fetch),
];

/// `n.convert(bytes, kind)`: an `ArrayBuffer`, the value of JSON, or text.
fn convert<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    let body = bytes(&c.arg(0))?;
    match to_number(&c.arg(1))? as u32 {
        0 => Ok(ArrayBuffer::new_copy(c.ctx().clone(), body)?.into_value()),
        1 => c.ctx().json_parse(String::from_utf8_lossy(&body).into_owned()),
        _ => http::text(c.ctx(), &body),
    }
}

/// `n.fetch(url, method, fields, body, max, verify)`: a promise of the reply.
fn fetch<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    let url = raw::to_text(&c.arg(0))?;
    let url = parse_url(&url).map_err(|problem| c.type_error(problem))?;
    if !is_target(&url.target) {
        return Err(c.type_error("invalid url"));
    }
    let max_response = match c.arg(4) {
        value if value.is_undefined() => None,
        value => Some(to_number(&value)? as usize),
    };
    let request = FetchRequest {
        url,
        method: raw::to_text(&c.arg(1))?,
        fields: fields(c, &c.arg(2))?,
        body: bytes(&c.arg(3))?,
        max_response,
        verify: c.arg(5).as_bool(),
    };
    let (ticket, promise) = state::promise(c.ctx(), state::plain)?;
    let sent = state::host(c.ctx(), |host: &mut dyn Host| match host.fetch() {
        Some(host) => host.fetch(ticket, request),
        None => Err(Unsent::Impossible("ngx.fetch() needs a running server".to_owned())),
    })?;
    let Err(why) = sent else { return Ok(promise.into_value()) };
    state::of(c.ctx()).take_waiter(ticket);
    Err(match why {
        Unsent::TooMany => Exception::throw_message(c.ctx(), "too many fetches"),
        Unsent::Impossible(message) => Exception::throw_internal(c.ctx(), &message),
    })
}

/// The fields that `js/fetch.js` has: arrays of a name and a value. All may have one long text,
/// which the engine holds once.
fn fields(c: &Call<'_, '_>, value: &Value<'_>) -> Result<Vec<(String, String)>> {
    let (mut all, mut bytes) = (Vec::new(), 0);
    for field in value.as_array().into_iter().flat_map(native::elements) {
        let field: Array<'_> = field?.get()?;
        let part = |at| -> Result<String> { raw::to_text(&field.get::<Value<'_>>(at)?) };
        let (name, value) = (part(0)?, part(1)?);
        bytes += name.len() + value.len();
        if bytes > state::of(c.ctx()).memory_max() {
            return Err(state::out_of_memory(c.ctx()));
        }
        all.push((name, value));
    }
    Ok(all)
}
