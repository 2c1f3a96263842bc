//! The request object `r`: natives over the host (`request.rs`), and what JavaScript makes of some
//! of them (`js/http.js`).
//!
//! A request is a number that no other request of the process has. Objects of requests that have
//! ended keep their numbers, which the host of a later request does not know, so that every use of
//! them throws.

mod request;

use std::cell::RefCell;

use rquickjs::{
    Array, ArrayBuffer, Ctx, Error, Exception, Function, Module, Object, Persistent, Result, Value,
};

use crate::form;
use crate::host::Host;
use crate::host::http::{Ask, HttpHost, Refusal, RequestBody, RequestId, Side, Text};
use crate::native::{self, Call, Method, to_bool, to_number};
use crate::query;
use crate::raw::{self, Bytecode};
use crate::state;
use crate::value::{Answer, Data};

const SOURCE: &str = include_str!("../js/http.js");

/// Where the state keeps what the module `js/http.js` returns.
const PARTS: &str = "weir:http";

thread_local! {
    static COMPILED: RefCell<Option<Bytecode>> = const { RefCell::new(None) };
}

/// Adds what HTTP handlers have beside the common objects.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    let natives = Object::new(ctx.clone())?;
    native::methods(&natives, NATIVES)?;
    natives.set("prototype", request::install(ctx)?)?;
    let parts = prelude(ctx, PARTS, SOURCE, &COMPILED, natives)?;
    request::set_handlers(ctx, parts.get("handlers")?)?;
    let parts = Persistent::save(ctx, parts);
    state::of(ctx).prototypes.borrow_mut().insert(PARTS, parts);
    Ok(())
}

/// Runs a module of this crate: its default export gets the natives, and returns an object.
pub(crate) fn prelude<'js>(
    ctx: &Ctx<'js>,
    name: &'static str,
    source: &str,
    compiled: &'static std::thread::LocalKey<RefCell<Option<Bytecode>>>,
    natives: Object<'js>,
) -> Result<Object<'js>> {
    let known = compiled.with(|c| c.borrow().clone());
    let module = match known {
        Some(bytecode) => bytecode.load(ctx)?,
        None => {
            let module = Module::declare(ctx.clone(), name, source)?;
            let bytecode = Bytecode::of(&module)?;
            compiled.with(|c| *c.borrow_mut() = Some(bytecode));
            module
        }
    };
    let (module, promise) = module.eval()?;
    while promise.state() == rquickjs::promise::PromiseState::Pending && ctx.execute_pending_job() {
    }
    if let Some(result) = promise.result::<Value<'_>>() {
        result?;
    }
    let start: Function<'js> = module.namespace()?.get("default")?;
    start.call((natives,))
}

fn part<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Function<'js>> {
    native::prototype_of(ctx, PARTS)?.get(name)
}

/// The `r` object of the request that the host lends; the same object for each call.
pub fn request<'js>(ctx: &Ctx<'js>) -> Result<Value<'js>> {
    let (id, is_periodic) = host(ctx, |h| Ok((h.main(), h.is_periodic())))?;
    match is_periodic {
        true => part(ctx, "periodic")?.call((request::target(ctx, id)?,)),
        false => request::main(ctx, id),
    }
}

/// The flags of a piece of a response.
pub(crate) fn flags<'js>(ctx: &Ctx<'js>, last: bool) -> Result<Value<'js>> {
    let flags = Object::new(ctx.clone())?.into_value();
    let last = Value::new_bool(ctx.clone(), last);
    state::of(ctx).name(ctx, "last")?.define(&flags, &last)?;
    Ok(flags)
}

/// Has the rejection of a promise noted as soon as it happens; other values are nothing to watch.
pub(crate) fn watch<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> Result<()> {
    if value.is_promise() { part(ctx, "watch")?.call((value,)) } else { Ok(()) }
}

/// Adds a global constant that is frozen with all that is in it.
pub(crate) fn constant(ctx: &Ctx<'_>, name: &str, json: &str) -> Result<()> {
    let value = ctx.json_parse(json)?;
    let value: Value<'_> = part(ctx, "freeze")?.call((value,))?;
    ctx.globals().prop(name, rquickjs::object::Property::from(value).enumerable())
}

/// Calls a function with the host of HTTP.
fn host<R>(
    ctx: &Ctx<'_>,
    f: impl FnOnce(&mut dyn HttpHost) -> std::result::Result<R, Refusal>,
) -> Result<R> {
    let done = state::host(ctx, |host: &mut dyn Host| {
        host.http().map_or(Err(Refusal::Internal("there is no request")), f)
    })?;
    done.map_err(|refusal| refusal.throw(ctx))
}

/// Calls a function with the host of HTTP, if it knows a request.
fn with<R>(
    ctx: &Ctx<'_>,
    id: RequestId,
    f: impl FnOnce(&mut dyn HttpHost) -> std::result::Result<R, Refusal>,
) -> Result<R> {
    host(ctx, |h| match h.is_alive(id) {
        true => f(h),
        false => Err(Refusal::Internal("the request of this object has ended")),
    })
}

/// Calls a function with the request that the first argument is, or a target of its proxies.
fn of<R>(
    call: &Call<'_, '_>,
    f: impl FnOnce(&mut dyn HttpHost, RequestId) -> std::result::Result<R, Refusal>,
) -> Result<R> {
    let id = id_of(call)?;
    with(call.ctx(), id, |h| f(h, id))
}

fn id_of(call: &Call<'_, '_>) -> Result<RequestId> {
    request::number(call.ctx(), &call.arg(0))
}

/// The bytes of a view, or of a string.
pub(crate) fn bytes(value: &Value<'_>) -> Result<Vec<u8>> {
    match raw::bytes(value) {
        Some(bytes) => Ok(bytes),
        None => raw::to_text(value).map(String::into_bytes),
    }
}

/// Bytes as a string, with U+FFFD for what is no UTF-8.
pub(crate) fn text<'js>(ctx: &Ctx<'js>, bytes: &[u8]) -> Result<Value<'js>> {
    let text = String::from_utf8_lossy(bytes);
    Ok(rquickjs::String::from_str(ctx.clone(), &text)?.into_value())
}

/// Bytes as a string or as a `Buffer`.
pub(crate) fn text_or_buffer<'js>(
    ctx: &Ctx<'js>,
    bytes: Vec<u8>,
    is_raw: bool,
) -> Result<Value<'js>> {
    if is_raw { Data::Bytes(bytes).to_js(ctx) } else { text(ctx, &bytes) }
}

fn side(call: &Call<'_, '_>) -> Result<Side> {
    Ok(if to_bool(&call.arg(1))? { Side::Out } else { Side::In })
}

const NATIVES: &[Method] = &[
    ("broken", 1, |c| {
        state::of(c.ctx()).note_broken(Persistent::save(c.ctx(), c.arg(0)));
        c.undefined()
    }),
    ("target", 1, |c| request::target(c.ctx(), id_of(c)?)),
    ("args", 1, get_args),
    ("form", 1, |c| match request::known(c.ctx(), id_of(c)?, request::FORM)? {
        Some(form) => Ok(form),
        None => c.undefined(),
    }),
    ("keepForm", 2, |c| {
        request::keep(c.ctx(), (id_of(c)?, request::FORM), &c.arg(1))?;
        c.undefined()
    }),
    ("keys", 2, get_names),
    ("fieldIn", 2, |c| get_field(c, Side::In)),
    ("fieldOut", 2, |c| get_field(c, Side::Out)),
    ("setField", 3, |c| {
        let value = c.arg(2);
        if !value.is_array() {
            return set_field(c, [Ok(value)]);
        }
        // In JavaScript the engine looks at clock and memory: an array may have any length.
        let all: Array<'_> = part(c.ctx(), "values")?.call((value,))?;
        set_field(c, native::elements(&all))
    }),
    ("deleteField", 2, |c| set_field(c, [])),
    ("variable", 2, |c| get_variable(c, false)),
    ("rawVariable", 2, |c| get_variable(c, true)),
    ("setVariable", 3, |c| {
        let (name, value) = (variable_name(&c.arg(1))?, request::bytes(&c.arg(2))?);
        of(c, |h, id| h.set_variable(id, &name, value))?;
        c.bool(true)
    }),
    ("readBody", 1, |c| read_body(c.ctx(), id_of(c)?, 3)),
    ("parseForm", 3, parse_form),
    ("mayAsk", 1, |c| {
        let m = "subrequest can only be created for the primary request";
        of(c, |h, id| if h.may_ask(id) { Ok(()) } else { Err(Refusal::Type(m)) })?;
        c.undefined()
    }),
    ("subrequest", 7, subrequest),
];

pub(crate) fn strings<'js>(
    ctx: &Ctx<'js>,
    all: impl IntoIterator<Item = Vec<u8>>,
) -> Result<Value<'js>> {
    let array = Array::new(ctx.clone())?;
    for (i, bytes) in all.into_iter().enumerate() {
        array.set(i, text(ctx, &bytes)?)?;
    }
    Ok(array.into_value())
}

fn get_args<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    let args = of(c, |h, id| Ok(h.text(id, Text::Args)))?;
    let pairs = query::pairs(&args);
    strings(c.ctx(), pairs.into_iter().flat_map(|(k, v)| [k.into_bytes(), v.into_bytes()]))
}

fn get_names<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    let side = side(c)?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    for name in of(c, |h, id| Ok(h.names(id, side)))? {
        c.go_on()?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    strings(c.ctx(), names)
}

/// Fields as an array of names and values.
fn fields<'js>(ctx: &Ctx<'js>, all: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Value<'js>> {
    let array = Array::new(ctx.clone())?;
    for (i, (name, value)) in all.into_iter().enumerate() {
        array.set(i, strings(ctx, [name, value])?)?;
    }
    Ok(array.into_value())
}

/// How the values of one field become one value of the script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Joined {
    /// The first counts.
    Single,
    /// They are joined by this.
    By(&'static str),
    Array,
}

fn joined(side: Side, name: &[u8]) -> Joined {
    let is = |list: &[&str]| list.iter().any(|n| n.as_bytes().eq_ignore_ascii_case(name));
    match side {
        Side::In if is(IN_SINGLE) => Joined::Single,
        Side::In if is(&["Cookie"]) => Joined::By("; "),
        Side::Out if is(OUT_SINGLE) => Joined::Single,
        Side::Out if is(&["Set-Cookie"]) => Joined::Array,
        Side::In | Side::Out => Joined::By(", "),
    }
}

const IN_SINGLE: &[&str] = &[
    "Content-Type",
    "ETag",
    "From",
    "Max-Forwards",
    "Referer",
    "Proxy-Authorization",
    "User-Agent",
];

const OUT_SINGLE: &[&str] = &[
    "Age",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "Date",
    "ETag",
    "Expires",
    "Last-Modified",
    "Location",
    "Retry-After",
    "Server",
];

/// The value of a field by its name; symbols name none.
fn get_field<'js>(c: &Call<'_, 'js>, side: Side) -> Result<Value<'js>> {
    let name = c.arg(1);
    if !name.is_string() {
        return c.undefined();
    }
    let name = raw::to_text(&name)?;
    let values = of(c, |h, id| Ok(h.field(id, side, name.as_bytes())))?;
    let Some(first) = values.first() else { return c.undefined() };
    match joined(side, name.as_bytes()) {
        Joined::Single => text(c.ctx(), first),
        Joined::By(separator) => text(c.ctx(), &values.join(separator.as_bytes())),
        Joined::Array => strings(c.ctx(), values),
    }
}

/// Whether a byte may stand in a field's name (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a value may stand in a field: no control character but the tab.
pub(crate) fn is_field_value(value: &[u8]) -> bool {
    !value.iter().any(|b| (*b < 0x20 && *b != b'\t') || *b == 0x7f)
}

/// Whether a name may be that of a field.
pub(crate) fn is_field_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|b| is_token(*b))
}

fn set_field<'js>(
    c: &Call<'_, 'js>,
    to: impl IntoIterator<Item = Result<Value<'js>>>,
) -> Result<Value<'js>> {
    let name = raw::to_text(&c.arg(1))?.into_bytes();
    if !is_field_name(&name) {
        return Err(c.type_error("invalid header name"));
    }
    let (mut values, mut bytes) = (Vec::new(), 0);
    for value in to {
        let value = request::bytes(&value?)?;
        if !is_field_value(&value) {
            return Err(c.type_error("invalid header value"));
        }
        // All may have one long text, which the engine holds once.
        bytes += value.len();
        if bytes > state::of(c.ctx()).memory_max() {
            return Err(state::out_of_memory(c.ctx()));
        }
        values.push(value);
    }
    // A field that takes one value takes the last one.
    let is_set = joined(Side::Out, &name) == Joined::Single;
    let is_special = !matches!(name.to_ascii_lowercase().as_slice(), b"age" | b"etag" | b"expires")
        && !name.eq_ignore_ascii_case(b"Retry-After");
    if is_set && is_special && values.len() > 1 {
        values.drain(..values.len() - 1);
    }
    values.retain(|value| !value.is_empty());
    of(c, |h, id| h.set_field(id, &name, values))?;
    c.bool(true)
}

pub(crate) fn variable_name(value: &Value<'_>) -> Result<Vec<u8>> {
    let mut name = raw::to_text(value)?.into_bytes();
    name.make_ascii_lowercase();
    Ok(name)
}

/// The value of a variable by its name; symbols name none.
fn get_variable<'js>(c: &Call<'_, 'js>, is_raw: bool) -> Result<Value<'js>> {
    let name = c.arg(1);
    if !name.is_string() {
        return c.undefined();
    }
    let name = variable_name(&name)?;
    match of(c, |h, id| Ok(h.variable(id, &name)))? {
        Some(value) => text_or_buffer(c.ctx(), value, is_raw),
        None => c.undefined(),
    }
}

/// The body of a request, or a promise of it, in one of four kinds.
fn read_body<'js>(ctx: &Ctx<'js>, id: RequestId, kind: u32) -> Result<Value<'js>> {
    let finish: state::Finish = match kind {
        0 => |ctx, answer| {
            let buffer = ArrayBuffer::new_copy(ctx.clone(), of_answer(ctx, answer)?)?;
            Ok(buffer.into_value())
        },
        1 => |ctx, answer| {
            let body = of_answer(ctx, answer)?;
            ctx.json_parse(String::from_utf8_lossy(&body).into_owned())
        },
        2 => |ctx, answer| text(ctx, &of_answer(ctx, answer)?),
        _ => |ctx, answer| Data::Bytes(of_answer(ctx, answer)?).to_js(ctx),
    };
    match with(ctx, id, |h| Ok(h.request_body(id)))? {
        RequestBody::Bytes(body) => finish(ctx, Answer::Data(Data::Bytes(body))),
        RequestBody::Lost => Err(lost(ctx)),
        RequestBody::Unread => {
            if with(ctx, id, |h| Ok(h.is_reading_body()))? {
                let m = "request body is already being read";
                return Err(Exception::throw_type(ctx, m));
            }
            let (ticket, promise) = state::promise(ctx, finish)?;
            with(ctx, id, |h| {
                h.read_body(ticket);
                Ok(())
            })?;
            Ok(promise.into_value())
        }
    }
}

/// Throws the error of a body that was read, and is nowhere.
fn lost(ctx: &Ctx<'_>) -> Error {
    Exception::throw_internal(ctx, "failed to read request body")
}

/// The bytes that the host answers with.
fn of_answer(ctx: &Ctx<'_>, answer: Answer) -> Result<Vec<u8>> {
    match answer {
        Answer::Data(Data::Bytes(bytes)) => Ok(bytes),
        Answer::Data(_) => Ok(Vec::new()),
        Answer::Failed(message) => Err(Exception::throw_type(ctx, &message)),
    }
}

/// `n.parseForm(request, body, maxKeys)`: entries with `name` and `value` or `file`.
fn parse_form<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    let body = bytes(&c.arg(1))?;
    let max = to_number(&c.arg(2))? as usize;
    let media = of(c, |h, id| Ok(h.field(id, Side::In, b"Content-Type").into_iter().next()))?;
    let entries = form::parse(media.as_deref(), &body, max);
    let entries = entries.map_err(|message| c.type_error(message))?;
    let array = Array::new(c.ctx().clone())?;
    for (i, entry) in entries.into_iter().enumerate() {
        let object = Object::new(c.ctx().clone())?;
        object.set("name", entry.name)?;
        match entry.value {
            form::Value::Text(value) => object.set("value", value)?,
            form::Value::File(name) => object.set("file", name)?,
        }
        array.set(i, object)?;
    }
    Ok(array.into_value())
}

/// `n.subrequest(request, uri, args, method, body, detached, callback)`
fn subrequest<'js>(c: &Call<'_, 'js>) -> Result<Value<'js>> {
    let body = match c.arg(4) {
        value if value.is_undefined() => None,
        value => Some(bytes(&value)?),
    };
    let mut ask = Ask {
        uri: bytes(&c.arg(1))?,
        args: bytes(&c.arg(2))?,
        method: bytes(&c.arg(3))?,
        body,
        ticket: None,
    };
    let mut result = Value::new_undefined(c.ctx().clone());
    if !to_bool(&c.arg(5))? {
        let ticket = match c.arg(6).into_function() {
            Some(callback) => state::callback(c.ctx(), callback, reply),
            None => {
                let (ticket, promise) = state::promise(c.ctx(), reply)?;
                result = promise.into_value();
                ticket
            }
        };
        ask.ticket = Some(ticket);
    }
    let ticket = ask.ticket;
    let asked = of(c, |h, _| h.subrequest(ask));
    if let (Err(_), Some(ticket)) = (&asked, ticket) {
        state::of(c.ctx()).take_waiter(ticket);
    }
    asked.map(|()| result)
}

/// The object of a reply, whose number the host answers with.
fn reply<'js>(ctx: &Ctx<'js>, answer: Answer) -> Result<Value<'js>> {
    match answer {
        Answer::Data(Data::Number(id)) => request::object(ctx, id as RequestId),
        Answer::Data(_) => Err(Error::Unknown),
        Answer::Failed(message) => Err(Exception::throw_message(ctx, &message)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Joined, Side, is_field_name, is_field_value, joined};

    #[test]
    fn fields_are_joined_as_njs_joins_them() {
        assert_eq!(joined(Side::In, b"content-type"), Joined::Single);
        assert_eq!(joined(Side::In, b"COOKIE"), Joined::By("; "));
        assert_eq!(joined(Side::In, b"Location"), Joined::By(", "));
        assert_eq!(joined(Side::Out, b"Cookie"), Joined::By(", "));
        assert_eq!(joined(Side::Out, b"location"), Joined::Single);
        assert_eq!(joined(Side::Out, b"set-cookie"), Joined::Array);
    }

    #[test]
    fn names_and_values_cannot_split_a_response() {
        for name in ["", "a b", "a:", "X\r\nY", "\u{e9}"] {
            assert!(!is_field_name(name.as_bytes()), "{name:?}");
        }
        assert!(is_field_name(b"X-Foo_1"));
        assert!(is_field_value(b"a\tb\xc3\xa9") && is_field_value(b""));
        for value in ["a\r", "a\nb", "\0", "\x7f"] {
            assert!(!is_field_value(value.as_bytes()), "{value:?}");
        }
    }
}
