//! The class of the object `r`. Its methods and getters are natives, so that a script that calls
//! one runs no JavaScript of ours; `js/http.js` adds those that are long and rarely called.

use std::cell::Cell;

use rquickjs::{Array, Ctx, Object, Persistent, Result, Value};

use super::{fields, host, is_field_value, part, read_body, strings, text, text_or_buffer, with};
use crate::host::Level;
use crate::host::http::{Act, HttpHost, RequestBody, RequestId, Side, Text};
use crate::native::{self, Call, Method, Native, to_bool, to_number};
use crate::raw::{self, NumberedClass};
use crate::state;
use crate::value::Data;

/// Makes the classes. Returns the prototype of requests.
pub(super) fn install<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let prototype = Object::new(ctx.clone())?;
    native::methods(&prototype, METHODS)?;
    native::getters(&prototype, GETTERS)?;
    native::accessor(&prototype, "status", get_status, set_status)?;
    native::tag(&prototype, "Request")?;
    let state = state::of(ctx);
    let requests = NumberedClass::new(ctx, c"Request", prototype.as_value())?;
    state.request_class.set(Some(requests));
    let targets = NumberedClass::new(ctx, c"Object", &Value::new_null(ctx.clone()))?;
    state.target_class.set(Some(targets));
    for class in [requests, targets] {
        state.keep(ctx, class.object(ctx, 0)?);
    }
    Ok(prototype)
}

const METHODS: &[Method] = &[
    ("done", 0, |c| act(c, Act::Done)),
    ("finish", 0, |c| act(c, Act::Finish)),
    ("sendHeader", 0, |c| act(c, Act::SendHeader)),
    ("decline", 0, |c| act(c, Act::Decline)),
    ("error", 0, |c| log(c, Level::Error)),
    ("log", 0, |c| log(c, Level::Info)),
    ("warn", 0, |c| log(c, Level::Warn)),
    ("internalRedirect", 1, |c| {
        let id = id_of(c)?;
        let uri = bytes(&c.arg(0))?;
        with(c.ctx(), id, |h| h.redirect(id, uri))?;
        c.undefined()
    }),
    ("return", 2, answer),
    ("send", 0, send),
    ("sendBuffer", 2, send_buffer),
    ("setReturnValue", 1, |c| {
        let (id, value) = (id_of(c)?, Data::from_js(&c.arg(0))?);
        with(c.ctx(), id, |h| {
            h.set_return_value(id, value);
            Ok(())
        })?;
        c.undefined()
    }),
    ("jsVarNames", 1, variable_names),
    ("readRequestArrayBuffer", 0, |c| read_body(c.ctx(), id_of(c)?, 0)),
    ("readRequestJSON", 0, |c| read_body(c.ctx(), id_of(c)?, 1)),
    ("readRequestText", 0, |c| read_body(c.ctx(), id_of(c)?, 2)),
];

const GETTERS: &[(&str, Native)] = &[
    ("headersIn", |c| made(c, 0)),
    ("headersOut", |c| made(c, 1)),
    ("variables", |c| made(c, 2)),
    ("rawVariables", |c| made(c, 3)),
    ("args", |c| made(c, ARGS)),
    ("httpVersion", |c| text_of(c, Text::HttpVersion)),
    ("method", |c| text_of(c, Text::Method)),
    ("remoteAddress", |c| text_of(c, Text::RemoteAddress)),
    ("requestLine", |c| text_of(c, Text::RequestLine)),
    ("uri", |c| text_of(c, Text::Uri)),
    ("internal", |c| {
        let is_internal = own(c, |h, id| h.is_internal(id))?;
        c.bool(is_internal)
    }),
    ("rawHeadersIn", |c| raw_fields(c, Side::In)),
    ("rawHeadersOut", |c| raw_fields(c, Side::Out)),
    ("requestBuffer", |c| request_body(c, true)),
    ("requestText", |c| request_body(c, false)),
    ("responseBuffer", |c| response_body(c, true)),
    ("responseText", |c| response_body(c, false)),
    ("parent", |c| match own(c, |h, id| h.parent(id))? {
        Some(id) => object(c.ctx(), id),
        None => c.undefined(),
    }),
];

/// What is no proxy among what getters make.
const ARGS: u32 = 4;

/// Sets the handlers of proxies, in the order of their getters.
pub(super) fn set_handlers<'js>(ctx: &Ctx<'js>, handlers: Array<'js>) -> Result<()> {
    for handler in native::elements(&handlers) {
        state::of(ctx).handlers.borrow_mut().push(Persistent::save(ctx, handler?));
    }
    Ok(())
}

/// The request's form.
pub(super) const FORM: u32 = 5;

/// What a getter makes of a request: the same object for each call, until the request that is being
/// served ends.
fn made<'js>(c: &Call<'_, 'js>, what: u32) -> Result<Value<'js>> {
    let (ctx, id) = (c.ctx(), id_of(c)?);
    if let Some(known) = known(ctx, id, what)? {
        return Ok(known);
    }
    let target = target(ctx, id)?;
    let handler = state::of(ctx).handlers.borrow().get(what as usize).cloned();
    let made = match handler {
        Some(handler) => raw::proxy(&target, &handler.restore(ctx)?)?,
        None => part(ctx, "args")?.call((target,))?,
    };
    keep(ctx, (id, what), &made)?;
    Ok(made)
}

/// What was made of a request before.
pub(super) fn known<'js>(ctx: &Ctx<'js>, id: RequestId, what: u32) -> Result<Option<Value<'js>>> {
    let state = state::of(ctx);
    let known = state.made.borrow().iter().find(|(of, _)| *of == (id, what)).map(|m| m.1.clone());
    known.map(|known| known.restore(ctx)).transpose()
}

/// Keeps an object that was made of a request, for [`known`]. Nothing is kept of a request that has
/// ended, because every use of its objects throws.
pub(super) fn keep<'js>(ctx: &Ctx<'js>, of: (RequestId, u32), made: &Value<'js>) -> Result<()> {
    if host(ctx, |h| Ok(h.is_alive(of.0)))? {
        state::of(ctx).made.borrow_mut().push((of, Persistent::save(ctx, made.clone())));
    }
    Ok(())
}

/// The object of the request that the host lends; the same one for each call.
pub(super) fn main<'js>(ctx: &Ctx<'js>, id: RequestId) -> Result<Value<'js>> {
    let made = object(ctx, id)?;
    let state = state::of(ctx);
    let is_new = state.request.borrow().as_ref().is_none_or(|(known, _)| *known != id);
    if is_new {
        state.request.replace(Some((id, Persistent::save(ctx, made.clone()))));
    }
    Ok(made)
}

/// The object of a request: the one that there is, or a new one for a reply.
pub(super) fn object<'js>(ctx: &Ctx<'js>, id: RequestId) -> Result<Value<'js>> {
    let state = state::of(ctx);
    let known = match &*state.request.borrow() {
        Some((known, object)) if *known == id => Some(object.clone()),
        _ => None,
    };
    match (known, state.request_class.get()) {
        (Some(known), _) => known.restore(ctx),
        (None, Some(class)) => class.object(ctx, id),
        (None, None) => Err(rquickjs::Error::Unknown),
    }
}

/// A new target of proxies, for a request's number.
pub(super) fn target<'js>(ctx: &Ctx<'js>, id: RequestId) -> Result<Value<'js>> {
    state::of(ctx).target_class.get().ok_or(rquickjs::Error::Unknown)?.object(ctx, id)
}

/// The number of a request's object, or of a target.
pub(super) fn number<'js>(ctx: &Ctx<'js>, object: &Value<'js>) -> Result<RequestId> {
    let state = state::of(ctx);
    let number_as = |class: &Cell<Option<NumberedClass>>| class.get()?.number(object);
    number_as(&state.request_class)
        .or_else(|| number_as(&state.target_class))
        .ok_or_else(|| rquickjs::Exception::throw_type(ctx, "\"this\" is not a request object"))
}

fn id_of(c: &Call<'_, '_>) -> Result<RequestId> {
    number(c.ctx(), &c.this())
}

/// Calls a function with the request of the receiver.
fn own<R>(c: &Call<'_, '_>, f: impl FnOnce(&mut dyn HttpHost, RequestId) -> R) -> Result<R> {
    let id = id_of(c)?;
    with(c.ctx(), id, |h| Ok(f(h, id)))
}

/// What a script gives as bytes: those of a typed array, nothing for `undefined` and `null`, or
/// `String(value)`.
pub(super) fn bytes(value: &Value<'_>) -> Result<Vec<u8>> {
    if value.is_undefined() || value.is_null() {
        return Ok(Vec::new());
    }
    match raw::is_typed_array(value) {
        true => Ok(raw::bytes(value).unwrap_or_default()),
        false => raw::to_text(value).map(String::into_bytes),
    }
}

/// A number as an integer, which a double holds exactly.
fn integer(c: &Call<'_, '_>, value: &Value<'_>) -> Result<i64> {
    const MAX: f64 = 9_007_199_254_740_991.0;
    let number = to_number(value)?;
    if !number.is_finite() {
        return Err(c.type_error("invalid number"));
    }
    if !(-MAX..=MAX).contains(&number) {
        return Err(c.range_error("number is out of range"));
    }
    Ok(number as i64)
}

fn text_of<'js>(c: &Call<'_, 'js>, what: Text) -> Result<Value<'js>> {
    let bytes = own(c, |h, id| h.text(id, what))?;
    text(c.ctx(), &bytes)
}

fn get_status<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    let status = own(c, |h, id| h.status(id))?;
    c.number(status.into())
}

fn set_status<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    let id = id_of(c)?;
    let status = integer(c, &c.arg(0))?;
    with(c.ctx(), id, |h| {
        h.set_status(id, status);
        Ok(())
    })?;
    c.undefined()
}

fn raw_fields<'js>(c: &Call<'_, 'js>, side: Side) -> Result<Value<'js>> {
    let all = own(c, |h, id| h.fields(id, side))?;
    fields(c.ctx(), all)
}

fn request_body<'js>(c: &Call<'_, 'js>, is_raw: bool) -> Result<Value<'js>> {
    match own(c, |h, id| h.request_body(id))? {
        RequestBody::Bytes(body) => text_or_buffer(c.ctx(), body, is_raw),
        RequestBody::Unread => c.undefined(),
        RequestBody::Lost => Err(super::lost(c.ctx())),
    }
}

fn response_body<'js>(c: &Call<'_, 'js>, is_raw: bool) -> Result<Value<'js>> {
    match own(c, |h, id| h.response_body(id))? {
        Some(body) => text_or_buffer(c.ctx(), body, is_raw),
        None => c.undefined(),
    }
}

fn act<'js>(c: &Call<'_, 'js>, act: Act) -> Result<Value<'js>> {
    let id = id_of(c)?;
    with(c.ctx(), id, |h| h.act(id, act))?;
    c.undefined()
}

fn log<'js>(c: &Call<'_, 'js>, level: Level) -> Result<Value<'js>> {
    let id = id_of(c)?;
    for i in 0..c.len() {
        let text = raw::to_text(&c.arg(i))?;
        with(c.ctx(), id, |h| {
            h.log(id, level, &text);
            Ok(())
        })?;
        c.go_on()?;
    }
    c.undefined()
}

/// `r.return(status, body)`
fn answer<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    let id = id_of(c)?;
    let status = integer(c, &c.arg(0))?;
    let Some(status) = u16::try_from(status).ok().filter(|status| *status <= 999) else {
        return Err(c.range_error("code is out of range"));
    };
    let body = c.arg(1);
    let is_plain = status >= 400 && (body.is_undefined() || body.is_null());
    let body = if is_plain { None } else { Some(bytes(&body)?) };
    if matches!(status, 301 | 302 | 303 | 307 | 308)
        && body.as_ref().is_some_and(|body| !is_field_value(body))
    {
        return Err(c.type_error("invalid header value"));
    }
    with(c.ctx(), id, |h| h.answer(id, status, body))?;
    c.undefined()
}

/// `r.send(...pieces)`
fn send<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    let id = id_of(c)?;
    let mut all = Vec::new();
    for i in 0..c.len() {
        let piece = bytes(&c.arg(i)).map_err(|e| {
            // The time of the script is up: nothing else is thrown then.
            if state::of(c.ctx()).meter.ended().is_some() {
                return e;
            }
            c.ctx().catch();
            c.type_error("failed to convert arg")
        })?;
        match all.is_empty() {
            true => all = piece,
            false => all.extend_from_slice(&piece),
        }
        c.go_on()?;
        if all.len() > state::of(c.ctx()).memory_max() {
            // The host refuses it.
            break;
        }
    }
    with(c.ctx(), id, |h| h.send(id, all))?;
    c.undefined()
}

/// `r.sendBuffer(data, flags)`
fn send_buffer<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    let id = id_of(c)?;
    let piece = bytes(&c.arg(0))?;
    let flags = c.arg(1);
    let flush = match flags.is_object() && !flags.is_function() {
        true => Some(to_bool(&state::of(c.ctx()).name(c.ctx(), "flush")?.of(&flags)?)?),
        false => None,
    };
    with(c.ctx(), id, |h| h.send_buffer(id, piece, flush))?;
    c.undefined()
}

/// `r.jsVarNames(prefix)`
fn variable_names<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    id_of(c)?;
    let prefix = match c.arg(0) {
        value if value.is_undefined() => String::new(),
        value if value.is_string() => raw::to_text(&value)?,
        _ => return Err(c.type_error("\"prefix\" must be a string")),
    };
    let names = host(c.ctx(), |h| Ok(h.variable_names()))?;
    let named = names.into_iter().filter(|name| name.starts_with(&prefix));
    strings(c.ctx(), named.map(String::into_bytes))
}
