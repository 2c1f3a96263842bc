//! What a request remembers of its exchanges with upstreams, for logs and variables.

use std::rc::Rc;

use ::upstream::peer::Peer;
use base::ascii::{eq_ignore_case, write_u64};
use bytes::Bytes;
use proto::h1::{FieldId, Method, ResponseHead};

use crate::cache::{Header, Status, Ticket};
use crate::request::Request;
use crate::vars::VarDef;

/// One exchange, or the attempt at it.
#[derive(Default, Clone)]
pub struct Attempt {
    /// The server's address as text, the upstream's name where none was live; `None` separates the
    /// exchanges of an internal redirect from those before it.
    pub peer: Option<Bytes>,
    /// The status that came, or that stands for the failure; 0 before either.
    pub status: u16,
    /// When it began, on the monotonic clock.
    pub start_ms: u64,
    /// Milliseconds until the connection stood.
    pub connect_ms: Option<u64>,
    /// Milliseconds until the response's head was there.
    pub header_ms: Option<u64>,
    /// Milliseconds until the end.
    pub response_ms: Option<u64>,
    /// Bytes of the response's body as it came, framing included.
    pub response_length: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
}

/// What a request knows about its upstreams; recycled with it.
#[derive(Default)]
pub struct State {
    /// All attempts so far, separators between redirects included.
    pub attempts: Vec<Attempt>,
    /// `http://` and the like, for logs.
    pub scheme: &'static str,
    /// The URI that the upstream is asked for.
    pub uri: Vec<u8>,
    /// A server is being asked: logs name it.
    pub asking: bool,
    /// The server asked last.
    pub(crate) last: Option<Rc<Peer>>,
    /// The head of the last response: spans into `text`.
    pub head: ResponseHead,
    /// The bytes of the last response's head.
    pub text: Bytes,
    /// The trailers of the last response.
    pub trailers: Vec<(Bytes, Bytes)>,
    /// The response ended too early after its head had been accepted.
    pub cut_short: bool,
    /// What `Content-Length` the request to the upstream has.
    pub body_length: Option<u64>,
    /// The request's body goes to the upstream in the chunked coding.
    pub body_chunked: bool,
    /// What `$proxy_host` and `$proxy_port` show: set by the module that passes the request on.
    pub host: Bytes,
    /// See `host`.
    pub port: Bytes,
    /// The method of the request to the upstream, where that is not the client's.
    pub method: Option<Method>,
    /// What a cache had to say.
    pub(crate) cache_status: Status,
    /// What the request has to do with a cache, while that is not settled.
    pub(crate) cache: Option<Box<Ticket>>,
    /// When what is served from a cache was made, as far as is known, seconds since 1970.
    pub(crate) cached_since: Option<i64>,
    /// What of a cache is invalid if the upstream does what is asked.
    pub(crate) invalidates: Option<Box<Ticket>>,
}

impl State {
    pub(crate) fn clear(&mut self) {
        self.attempts.clear();
        self.begin();
        self.forget_cache();
        self.scheme = "";
        self.host = Bytes::new();
        self.port = Bytes::new();
        self.last = None;
    }

    /// Before an exchange: what an earlier one left goes, its attempts stay.
    pub(crate) fn begin(&mut self) {
        self.uri.clear();
        self.asking = false;
        self.forget_response();
        self.cut_short = false;
        self.body_length = None;
        self.body_chunked = false;
    }

    pub(crate) fn forget_cache(&mut self) {
        self.cache_status = Status::None;
        self.cache = None;
        self.invalidates = None;
        self.cached_since = None;
        self.method = None;
    }

    /// Whether the response may be kept: then what makes it another one than the whole is not asked
    /// for.
    pub fn is_cacheable(&self) -> bool {
        self.cache.as_ref().is_some_and(|t| t.cacheable)
    }

    pub(crate) fn forget_response(&mut self) {
        self.head.clear();
        self.text = Bytes::new();
        self.trailers.clear();
    }

    /// The server being asked, as logs name it.
    pub(crate) fn asked(&self) -> Option<&Bytes> {
        self.attempts.last().filter(|_| self.asking)?.peer.as_ref()
    }

    /// No server was asked yet in this exchange.
    pub(crate) fn is_first(&self) -> bool {
        self.attempts.last().is_none_or(|a| a.peer.is_none())
    }

    /// The attempt under way.
    pub(crate) fn now(&mut self) -> &mut Attempt {
        if self.attempts.is_empty() {
            self.attempts.push(Attempt::default());
        }
        let last = self.attempts.len() - 1;
        &mut self.attempts[last]
    }
}

impl Request {
    /// The upstream state, made now if the request has none yet.
    pub fn upstream_mut(&mut self) -> &mut State {
        self.upstream.get_or_insert_default()
    }

    /// The upstream state of a request that was passed on, or was about to be.
    pub fn upstream(&self) -> Option<&State> {
        self.upstream.as_deref().filter(|u| !u.scheme.is_empty())
    }
}

impl Request {
    /// What the upstream is asked with whether a response that a cache keeps is still good: when it
    /// was changed last, and its `ETag`; nothing where that is not to be asked.
    pub fn cached_validators(&self) -> (Option<i64>, Option<&Bytes>) {
        let Some(header) = revalidated(self) else { return (None, None) };
        let changed = Some(header.last_modified).filter(|t| *t != -1);
        (changed, Some(&header.etag).filter(|etag| !etag.is_empty()))
    }
}

/// Writes one value an attempt, separated as nginx does.
fn each(r: &Request, out: &mut Vec<u8>, write: fn(&Attempt, &mut Vec<u8>)) -> bool {
    let Some(u) = r.upstream() else { return false };
    let list = &u.attempts;
    if list.is_empty() {
        return false;
    }
    let mut i = 0;
    loop {
        write(&list[i], out);
        i += 1;
        match list.get(i) {
            None => return true,
            Some(a) if a.peer.is_some() => out.extend_from_slice(b", "),
            Some(_) => {
                out.extend_from_slice(b" : ");
                i += 1;
                if i == list.len() {
                    return true;
                }
            }
        }
    }
}

fn millis(ms: Option<u64>, out: &mut Vec<u8>) {
    match ms {
        None => out.push(b'-'),
        Some(ms) => {
            write_u64(out, ms / 1000);
            out.push(b'.');
            let rest = ms % 1000;
            out.extend_from_slice(&[
                b'0' + (rest / 100) as u8,
                b'0' + (rest / 10 % 10) as u8,
                b'0' + (rest % 10) as u8,
            ]);
        }
    }
}

fn named(fields: &State, name: &[u8], out: &mut Vec<u8>) -> bool {
    let text = &fields.text;
    let mut found = false;
    for f in fields.head.fields.iter().filter(|f| !f.ignored) {
        if same_name(f.name.of(text), name) {
            join(&mut found, f.value.of(text), out);
        }
    }
    found
}

fn join(found: &mut bool, value: &[u8], out: &mut Vec<u8>) {
    if *found {
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(value);
    *found = true;
}

/// Whether a field's name is the one that a variable's name stands for: `-` is `_` there.
fn same_name(field: &[u8], variable: &[u8]) -> bool {
    field.len() == variable.len()
        && field.iter().zip(variable).all(|(f, v)| match f {
            b'-' => *v == b'_',
            f => f.eq_ignore_ascii_case(v),
        })
}

fn trailer(r: &mut Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(u) = r.upstream() else { return false };
    let mut found = false;
    for (n, v) in &u.trailers {
        if same_name(n, name) {
            join(&mut found, v, out);
        }
    }
    found
}

fn cookie(r: &mut Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(u) = r.upstream() else { return false };
    for f in u.head.all(FieldId::SetCookie) {
        let value = f.value.of(&u.text);
        let Some((n, rest)) = value.split_at_checked(name.len()) else { continue };
        if !eq_ignore_case(n, name) {
            continue;
        }
        let Some(rest) = behind_spaces(rest).strip_prefix(b"=") else { continue };
        let rest = behind_spaces(rest);
        let end = memchr::memchr(b';', rest).unwrap_or(rest.len());
        out.extend_from_slice(&rest[..end]);
        return true;
    }
    false
}

fn behind_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|byte| **byte == b' ').count();
    &text[spaces..]
}

/// The host of a server's name, without its port.
fn host_of(server: &[u8]) -> &[u8] {
    let is_port = |p: &[u8]| !p.is_empty() && p.iter().all(u8::is_ascii_digit);
    match memchr::memrchr(b':', server) {
        Some(i) if is_port(&server[i + 1..]) && !server.starts_with(b"unix:") => &server[..i],
        _ => server,
    }
}

/// What is kept and not fresh any more, while the upstream is asked whether it is still good.
fn revalidated(r: &Request) -> Option<&Header> {
    let u = r.upstream.as_ref().filter(|u| u.cache_status == Status::Expired)?;
    let t = u.cache.as_ref().filter(|t| t.conf.revalidate)?;
    t.stale.as_ref().map(|stored| &stored.header)
}

/// `$upstream_…`
pub(super) static VARIABLES: &[VarDef] = &[
    VarDef::new("upstream_addr", |r, out| {
        each(r, out, |a, out| out.extend_from_slice(a.peer.as_deref().unwrap_or_default()))
    }),
    VarDef::new("upstream_status", |r, out| {
        each(r, out, |a, out| match a.status {
            0 => out.push(b'-'),
            s => write_u64(out, s.into()),
        })
    }),
    VarDef::new("upstream_connect_time", |r, out| each(r, out, |a, out| millis(a.connect_ms, out))),
    VarDef::new("upstream_header_time", |r, out| each(r, out, |a, out| millis(a.header_ms, out))),
    VarDef::new("upstream_response_time", |r, out| {
        each(r, out, |a, out| millis(a.response_ms, out))
    }),
    VarDef::new("upstream_response_length", |r, out| {
        each(r, out, |a, out| write_u64(out, a.response_length))
    }),
    VarDef::new("upstream_bytes_received", |r, out| {
        each(r, out, |a, out| write_u64(out, a.received))
    }),
    VarDef::new("upstream_bytes_sent", |r, out| each(r, out, |a, out| write_u64(out, a.sent))),
    VarDef::new("upstream_last_server_name", |r, out| {
        let last = r.upstream().and_then(|u| u.last.as_ref());
        let Some(peer) = last.filter(|peer| !peer.spec.server.is_empty()) else { return false };
        out.extend_from_slice(host_of(&peer.spec.server));
        true
    }),
    VarDef::new("upstream_cache_status", |r, out| {
        let text = r.upstream.as_ref().and_then(|u| u.cache_status.text());
        text.map(|text| out.extend_from_slice(text.as_bytes())).is_some()
    }),
    VarDef::new("upstream_cache_age", |r, out| {
        let since = r.upstream.as_ref().and_then(|u| u.cached_since);
        let age = since.map(|since| (base::time::unix_secs() as i64).saturating_sub(since));
        age.map(|age| write_u64(out, u64::try_from(age).unwrap_or(0))).is_some()
    }),
    VarDef::new("upstream_cache_last_modified", |r, out| {
        let changed = r.cached_validators().0;
        changed.map(|t| out.extend_from_slice(&base::time::format_http_date(t))).is_some()
    }),
    VarDef::new("upstream_cache_etag", |r, out| {
        r.cached_validators().1.map(|etag| out.extend_from_slice(etag)).is_some()
    }),
    VarDef::prefix("upstream_http_", |r, name, out| {
        r.upstream().is_some_and(|u| named(u, name, out))
    }),
    VarDef::prefix("upstream_trailer_", trailer),
    VarDef::prefix("upstream_cookie_", cookie),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let text = |ms| {
            let mut out = Vec::new();
            millis(ms, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(None), "-");
        assert_eq!(text(Some(0)), "0.000");
        assert_eq!(text(Some(61_045)), "61.045");
    }

    #[test]
    fn servers_without_their_ports() {
        for (server, host) in [
            ("a.example:80", "a.example"),
            ("a.example", "a.example"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("unix:/tmp/a:1", "unix:/tmp/a:1"),
        ] {
            assert_eq!(host_of(server.as_bytes()), host.as_bytes());
        }
    }

    #[test]
    fn names_of_variables_stand_for_names_of_fields() {
        assert!(same_name(b"X-Accel-Redirect", b"x_accel_redirect"));
        assert!(!same_name(b"X-Accel-Redirect", b"x-accel-redirect"));
        assert!(!same_name(b"X-A", b"x_b"));
    }
}
