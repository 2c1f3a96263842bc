//! `ngx.fetch`, `Headers`, `Request` and `Response`, which are in `js/fetch.js`.

use std::cell::RefCell;

use rquickjs::{Array, ArrayBuffer, Ctx, Error, Exception, Object, Result, Value};

use crate::host::Host;
use crate::http::{self, bytes, is_field_name, is_field_value};
use crate::native::{self, Call, Method, to_number};
use crate::raw::{self, Bytecode};
use crate::state::{self, Ticket};
use crate::value::{Answer, Data};

/// A request of a script.
#[derive(Debug)]
pub struct FetchRequest {
    /// `http://host:port/path?args` or `https://…`, which [`parse_url`] takes.
    pub url: Url,
    /// The method.
    pub method: String,
    /// Fields, in order.
    pub fields: Vec<(String, String)>,
    /// The body; empty: there is none.
    pub body: Vec<u8>,
    /// The longest body of a response, if the script says.
    pub max_response: Option<usize>,
    /// Whether the server's certificate is verified, if the script says.
    pub verify: Option<bool>,
}

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The scheme is `https`.
    pub is_secured: bool,
    /// Host and, if the URL has one, port.
    pub authority: String,
    /// Path and arguments; begins with a slash.
    pub target: String,
    /// All of it.
    pub text: String,
}

/// A response.
#[derive(Debug)]
pub struct FetchReply {
    /// Its status.
    pub status: u16,
    /// The text behind it.
    pub status_text: Vec<u8>,
    /// Fields, in order.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
    /// The URL of the request.
    pub url: String,
}

/// Sends requests of scripts.
pub trait FetchHost {
    /// Sends a request; [`reply`] makes the answer of its ticket.
    ///
    /// # Errors
    /// A message why it cannot be sent at all.
    fn fetch(&mut self, ticket: Ticket, request: FetchRequest) -> std::result::Result<(), String>;
}

/// The answer for a ticket of [`FetchHost::fetch`].
pub fn reply(result: std::result::Result<FetchReply, String>) -> Answer {
    let reply = match result {
        Ok(reply) => reply,
        Err(message) => return Answer::Failed(message),
    };
    let text = |bytes: &[u8]| Data::Text(String::from_utf8_lossy(bytes).into_owned());
    let fields = reply.fields.iter().map(|(name, value)| Data::List(vec![text(name), text(value)]));
    let entries = [
        ("status", Data::Number(reply.status.into())),
        ("statusText", text(&reply.status_text)),
        ("fields", Data::List(fields.collect())),
        ("url", Data::Text(reply.url)),
        ("body", Data::Bytes(reply.body)),
    ];
    let entries = entries.into_iter().map(|(name, value)| (name.to_owned(), value));
    Answer::Data(Data::Object(entries.collect()))
}

/// The longest host, bytes, as in njs.
const HOST_MAX: usize = 256;

/// Takes a URL apart.
///
/// # Errors
/// What is wrong with it, in njs's words.
pub fn parse_url(text: &str) -> std::result::Result<Url, &'static str> {
    let scheme = |scheme: &str| {
        let (head, rest) = text.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let (is_secured, rest) = match (scheme("https://"), scheme("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err("unsupported URL schema (only http or https are supported)"),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let target = target.split('#').next().unwrap_or_default();
    if authority.is_empty() || authority.starts_with(':') || !is_target(authority) {
        return Err("invalid url");
    }
    if authority.len() >= HOST_MAX {
        return Err("Host name too long");
    }
    let slash = if target.starts_with('/') { "" } else { "/" };
    Ok(Url {
        is_secured,
        authority: authority.to_owned(),
        target: format!("{slash}{target}"),
        text: text.to_owned(),
    })
}

/// Whether a text may stand in a request line.
fn is_target(text: &str) -> bool {
    !text.bytes().any(|b| b <= b' ' || b == 0x7f)
}

const SOURCE: &str = include_str!("js/fetch.js");

thread_local! {
    static COMPILED: RefCell<Option<Bytecode>> = const { RefCell::new(None) };
}

/// Adds `ngx.fetch` and its classes.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    let natives = Object::new(ctx.clone())?;
    native::methods(&natives, NATIVES)?;
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
        fields: fields(&c.arg(2))?,
        body: bytes(&c.arg(3))?,
        max_response,
        verify: c.arg(5).as_bool(),
    };
    let (ticket, promise) = state::promise(c.ctx(), state::plain)?;
    let sent = state::host(c.ctx(), |host: &mut dyn Host| match host.fetch() {
        Some(host) => host.fetch(ticket, request),
        None => Err("ngx.fetch() needs a running server".to_owned()),
    })?;
    if let Err(message) = sent {
        state::of(c.ctx()).take_waiter(ticket);
        return Err(Exception::throw_internal(c.ctx(), &message));
    }
    Ok(promise.into_value())
}

/// The fields that `js/fetch.js` has: arrays of a name and a value.
fn fields(value: &Value<'_>) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for field in value.as_array().into_iter().flat_map(Array::iter::<Array<'_>>) {
        let field = field?;
        let part = |at| -> std::result::Result<String, Error> {
            raw::to_text(&field.get::<Value<'_>>(at)?)
        };
        all.push((part(0)?, part(1)?));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::parse_url;

    #[test]
    fn urls_are_taken_apart() {
        for (text, is_secured, authority, target) in [
            ("http://nginx.org", false, "nginx.org", "/"),
            ("HTTPS://a:8443/b?c=d#e", true, "a:8443", "/b?c=d"),
            ("http://[::1]:80?x", false, "[::1]:80", "/?x"),
        ] {
            let url = parse_url(text).unwrap();
            assert_eq!(url.is_secured, is_secured, "{text}");
            assert_eq!((url.authority.as_str(), url.target.as_str()), (authority, target));
        }
        let schema = "unsupported URL schema (only http or https are supported)";
        let long = format!("http://{}/", "a".repeat(300));
        for (text, problem) in [
            ("", schema),
            ("ftp://a", schema),
            ("nginx.org", schema),
            ("http://", "invalid url"),
            ("http:///a", "invalid url"),
            ("http://a b/", "invalid url"),
            (long.as_str(), "Host name too long"),
        ] {
            assert_eq!(parse_url(text), Err(problem), "{text}");
        }
    }
}
