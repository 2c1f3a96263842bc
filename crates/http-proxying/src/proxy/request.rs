//! The head of requests to servers.

use std::rc::Rc;

use base::ascii::{eq_ignore_case, write_u64};
use base::log::Level;
use bytes::Bytes;
use conf::template::Template;
use conf::{ConfError, Node};
use http::cx::Cx;
use http::exchanges::Exchanges;
use http::request::Request;
use http_upstream::conf::Conf as UpConf;
use http_wire::fields::{self as list, websocket};
use http_wire::h1::{self, FieldId, FieldSet};

use super::ProxyConf;
use super::cookie::CookieFlags;
use super::form::{Form, List, Text};
use super::redirect::Rewrite;
use super::uri::Uri;

/// The version of HTTP spoken to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    Http10,
    Http11,
    Http2,
}

impl Version {
    /// As `proxy_http_version` names them.
    pub const WORDS: &[(&str, Version)] =
        &[("1.0", Version::Http10), ("1.1", Version::Http11), ("2", Version::Http2)];
}

/// A field that requests to the server have whatever the client sent.
enum Value {
    /// The length of the body, if it is known.
    BodyLength,
    /// `chunked`, if the length is not known.
    Chunked,
    /// The time at which the cached response was changed.
    CachedSince,
    /// The entity tag of the cached response.
    CachedTag,
    /// `trailers`, if the client takes them.
    Trailers,
    Template(Template),
}

struct Field {
    /// The name with colon and space.
    name: Bytes,
    value: Value,
}

/// The fields of requests to servers that are not the client's.
#[derive(Default)]
struct Own {
    fields: Vec<Field>,
    /// Fields of the client's that are not passed on: by id, and others by name.
    ids: FieldSet,
    names: Vec<Bytes>,
}

/// The making of request heads, compiled from a location's settings.
pub(crate) struct Head {
    own: Own,
    /// The same for requests whose responses may be kept.
    kept: Option<Own>,
    /// `proxy_set_header Host`
    host: Option<Template>,
    /// Such a value goes as a field, and not as `:authority`.
    host_is_field: bool,
    pass_fields: bool,
    pub version: Version,
    /// A response may have no head.
    pub http09: bool,
    method: Option<Template>,
    /// `proxy_set_header Upgrade`, which HTTP/2 has no field for.
    upgrade: Option<Template>,
    body: Option<Template>,
    pub redirects: Vec<Rewrite>,
    pub cookie_domains: Option<Rc<Vec<Rewrite>>>,
    pub cookie_paths: Option<Rc<Vec<Rewrite>>>,
    pub cookie_flags: Option<Rc<Vec<CookieFlags>>>,
}

/// Fields that are about the client's connection, not the server's.
const DEFAULT: &[(&str, Option<bool>)] = &[
    ("Host", None),
    ("Connection", None),
    ("Proxy-Connection", None),
    ("Content-Length", Some(false)),
    ("Transfer-Encoding", Some(true)),
    ("TE", None),
    ("Keep-Alive", None),
    ("Expect", None),
    ("Upgrade", None),
];

/// Fields that HTTP/2 does not have, whatever the configuration says (RFC 9113 section 8.2.2).
const OF_CONNECTION: &[&str] =
    &["Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade"];

/// Fields that make a response another one than the whole, which is what a cache keeps.
const OF_PARTS: &[(&str, Option<Value>)] = &[
    ("If-Modified-Since", Some(Value::CachedSince)),
    ("If-Unmodified-Since", None),
    ("If-None-Match", Some(Value::CachedTag)),
    ("If-Match", None),
    ("Range", None),
    ("If-Range", None),
];

impl Own {
    fn new(set: &[(Bytes, Template)], version: Version, kept: bool) -> Own {
        let mut own = Own::default();
        let is_left_out = |name: &[u8]| {
            let names = if version == Version::Http2 { OF_CONNECTION } else { &[] };
            names.iter().chain(&["Host"]).any(|n| eq_ignore_case(n.as_bytes(), name))
        };
        for (name, value) in set {
            own.add(name);
            if !is_left_out(name) && value.as_const().is_none_or(|v| !v.is_empty()) {
                own.push(name, Value::Template(value.clone()));
            }
        }
        let given = |name: &str| set.iter().any(|(n, _)| eq_ignore_case(n, name.as_bytes()));
        for (name, chunked) in DEFAULT {
            own.add(name.as_bytes());
            match chunked {
                Some(false) if !given(name) => own.push(name.as_bytes(), Value::BodyLength),
                Some(true) if !given(name) && version != Version::Http2 => {
                    own.push(name.as_bytes(), Value::Chunked);
                }
                _ => {}
            }
        }
        for (name, value) in OF_PARTS.iter().filter(|_| kept) {
            own.add(name.as_bytes());
            match value {
                Some(Value::CachedSince) if !given(name) => {
                    own.push(name.as_bytes(), Value::CachedSince);
                }
                Some(_) if !given(name) => own.push(name.as_bytes(), Value::CachedTag),
                _ => {}
            }
        }
        own
    }

    fn add(&mut self, name: &[u8]) {
        match FieldId::lookup(name) {
            FieldId::Other => self.names.push(Bytes::copy_from_slice(name)),
            id => self.ids.insert(id),
        }
    }

    fn push(&mut self, name: &[u8], value: Value) {
        let mut text = name.to_vec();
        text.extend_from_slice(b": ");
        self.fields.push(Field { name: Bytes::from(text), value });
    }

    fn has(&self, id: FieldId, name: &[u8]) -> bool {
        match id {
            FieldId::Other => {
                !self.names.is_empty() && self.names.iter().any(|o| eq_ignore_case(o, name))
            }
            id => self.ids.has(id),
        }
    }
}

impl Head {
    pub fn new(proxy: &ProxyConf, conf: &UpConf, redirects: Vec<Rewrite>) -> Head {
        let set: &[(Bytes, Template)] = proxy.headers.as_deref().map_or(&[], Vec::as_slice);
        let version = proxy.version.unwrap_or(Version::Http11);
        Head {
            own: Own::new(set, version, false),
            kept: conf.cache.is_some().then(|| Own::new(set, version, true)),
            host: value(set, b"host"),
            host_is_field: false,
            pass_fields: conf.pass_request_headers,
            version,
            http09: proxy.http09.unwrap_or(false),
            method: proxy.method.clone(),
            upgrade: value(set, b"upgrade"),
            body: proxy.body.clone(),
            redirects,
            cookie_domains: proxy.cookie_domains.clone(),
            cookie_paths: proxy.cookie_paths.clone(),
            cookie_flags: proxy.cookie_flags.clone(),
        }
    }

    /// The head of gRPC's requests: nothing in it is changed but the fields in `set`.
    pub(crate) fn of_grpc(set: &[(Bytes, Template)]) -> Head {
        let mut own = Own::new(set, Version::Http2, false);
        if !set.iter().any(|(name, _)| eq_ignore_case(name, b"te")) {
            own.push(b"TE", Value::Trailers);
        }
        Head {
            own,
            kept: None,
            host: value(set, b"host"),
            host_is_field: true,
            pass_fields: true,
            version: Version::Http2,
            http09: false,
            method: None,
            upgrade: None,
            body: None,
            redirects: Vec::new(),
            cookie_domains: None,
            cookie_paths: None,
            cookie_flags: None,
        }
    }

    /// Whether the client's body is replaced.
    pub fn has_body(&self) -> bool {
        self.body.is_some()
    }

    /// The protocols that the server is asked to switch to.
    pub fn upgrade(&self, r: &mut Request) -> Option<Bytes> {
        self.upgrade.as_ref().map(|upgrade| upgrade.eval(r))
    }

    /// Whether the request is one for WebSocket, as HTTP/1 has it: a GET without a body.
    pub(crate) fn asks_for_websocket(&self, r: &mut Request) -> bool {
        let Some(upgrade) = &self.upgrade else { return false };
        if r.method_name() != b"GET" || !upgrade.eval(r).eq_ignore_ascii_case(websocket::NAME) {
            return false;
        }
        let u = r.upstream_mut();
        u.body_length.unwrap_or(0) == 0 && !u.body_chunked
    }

    /// Appends the head, and a body of our own. Gives whether the method is HEAD.
    ///
    /// # Errors
    /// 500 where there is no URI.
    pub fn write(
        &self,
        r: &mut Request,
        uri: &Uri,
        host: &Bytes,
        out: &mut Vec<u8>,
    ) -> Result<bool, u16> {
        let is_head = self.put_method(r, out)?;
        out.push(b' ');
        self.put_target(r, uri, out)?;
        let version: &[u8] = match self.version {
            Version::Http10 => b" HTTP/1.0\r\n",
            Version::Http11 | Version::Http2 => b" HTTP/1.1\r\n",
        };
        out.extend_from_slice(version);
        let body = self.own_body(r);
        let field = Text::begin(b"Host: ", out);
        if let Some(t) = &self.host {
            t.eval_into(r, out);
        }
        if out.len() == field.value && (self.host.is_none() || self.version != Version::Http10) {
            out.extend_from_slice(host);
        }
        Text::end(&field, out);
        self.fields::<Text>(r, out);
        out.extend_from_slice(b"\r\n");
        if let Some(body) = body {
            out.extend_from_slice(&body);
        }
        Ok(is_head)
    }

    /// Appends the list of fields of a request over HTTP/2. Gives whether the method is HEAD, and a
    /// body of our own.
    ///
    /// # Errors
    /// As [`Head::write`].
    pub(crate) fn write_list(
        &self,
        r: &mut Request,
        uri: &Uri,
        place: &Place<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(bool, Option<Bytes>), u16> {
        let method = List::begin(b":method: ", out);
        let is_head = self.put_method(r, out)?;
        List::end(&method, out);
        list::write(out, b":scheme", if place.tls { b"https" } else { b"http" });
        let path = List::begin(b":path: ", out);
        self.put_target(r, uri, out)?;
        List::end(&path, out);
        let body = self.own_body(r);
        let name: &[u8] = match self.host_is_field && self.host.is_some() {
            true => b"Host: ",
            false => b":authority: ",
        };
        let field = List::begin(name, out);
        if let Some(t) = &self.host {
            t.eval_into(r, out);
        }
        if out.len() == field.value {
            out.extend_from_slice(place.authority);
        }
        List::end(&field, out);
        self.fields::<List>(r, out);
        Ok((is_head, body))
    }

    /// Appends the method; says whether it is HEAD.
    fn put_method(&self, r: &mut Request, out: &mut Vec<u8>) -> Result<bool, u16> {
        let start = out.len();
        match &self.method {
            Some(t) => {
                t.eval_into(r, out);
                if !h1::is_method(&out[start..]) {
                    let method = base::log::lossy(&out[start..]);
                    r.log(Level::Error, format_args!("invalid method \"{method}\" to proxy"));
                    return Err(500);
                }
            }
            None => match r.upstream().and_then(|u| u.method) {
                Some(method) => out.extend_from_slice(method.name().as_bytes()),
                None => out.extend_from_slice(r.method_name()),
            },
        }
        Ok(out[start..].eq_ignore_ascii_case(b"HEAD"))
    }

    /// Appends the target, and notes it as the upstream's URI.
    fn put_target(&self, r: &mut Request, uri: &Uri, out: &mut Vec<u8>) -> Result<(), u16> {
        let from = out.len();
        if !uri.write(r, out) {
            r.log(Level::Error, format_args!("zero length URI to proxy"));
            return Err(500);
        }
        h1::encode_target(out, from);
        let u = r.upstream_mut();
        u.uri.clear();
        u.uri.extend_from_slice(&out[from..]);
        Ok(())
    }

    /// The body that replaces the client's.
    fn own_body(&self, r: &mut Request) -> Option<Bytes> {
        let body = self.body.as_ref()?.eval(r);
        let u = r.upstream_mut();
        u.body_length = Some(body.len() as u64);
        u.body_chunked = false;
        Some(body)
    }

    /// Appends all fields but the host.
    fn fields<F: Form>(&self, r: &mut Request, out: &mut Vec<u8>) {
        let own = match &self.kept {
            Some(kept) if r.upstream().is_some_and(Exchanges::is_cacheable) => kept,
            _ => &self.own,
        };
        for f in &own.fields {
            self.field::<F>(r, f, out);
        }
        if self.pass_fields {
            self.clients::<F>(r, own, out);
        }
    }

    fn field<F: Form>(&self, r: &mut Request, f: &Field, out: &mut Vec<u8>) {
        // Most requests have no body: the fields about one are not even begun.
        let u = r.upstream_mut();
        match f.value {
            Value::BodyLength if u.body_length.is_none() => return,
            Value::Chunked if !u.body_chunked => return,
            _ => {}
        }
        let begun = F::begin(&f.name, out);
        match &f.value {
            Value::Trailers => {
                if wants_trailers(r) {
                    out.extend_from_slice(b"trailers");
                }
            }
            Value::Template(t) => t.eval_into(r, out),
            Value::BodyLength => {
                if let Some(n) = r.upstream_mut().body_length {
                    write_u64(out, n);
                }
            }
            Value::Chunked => {
                if r.upstream_mut().body_chunked {
                    out.extend_from_slice(b"chunked");
                }
            }
            Value::CachedSince => {
                if let Some(t) = r.cached_validators().0 {
                    out.extend_from_slice(&base::time::format_http_date(t));
                }
            }
            Value::CachedTag => {
                if let Some(tag) = r.cached_validators().1 {
                    out.extend_from_slice(tag);
                }
            }
        }
        if let Some(defect) = F::end(&begun, out) {
            let name = f.name.strip_suffix(b": ").unwrap_or_default();
            log_defect(r, Level::Error, name, defect);
        }
    }

    /// The client's own fields, but for those that are ours to say.
    fn clients<F: Form>(&self, r: &Request, own: &Own, out: &mut Vec<u8>) {
        let bytes = r.head_bytes();
        for f in &r.head.fields {
            let name = f.name.of(bytes);
            if f.dropped || own.has(f.id, name) {
                continue;
            }
            if let Some(defect) = F::whole(name, f.value.of(bytes), out) {
                log_defect(r, Level::Info, name, defect);
            }
        }
    }
}

#[cold]
fn log_defect(r: &Request, level: Level, name: &[u8], defect: &str) {
    let mut shown = String::new();
    h1::show(name, &mut shown);
    r.log(level, format_args!("request header \"{shown}\" is not sent to upstream: {defect}"));
}

/// The value that `proxy_set_header` gives a field.
fn value(set: &[(Bytes, Template)], name: &[u8]) -> Option<Template> {
    let field = set.iter().rev().find(|(other, _)| eq_ignore_case(other, name));
    field.map(|(_, value)| value.clone())
}

/// Adds a field that requests to servers get: `proxy_set_header` and its like.
pub(crate) fn add_field(
    cx: &mut Cx,
    n: &Node,
    list: impl FnOnce(&mut Cx) -> &mut Option<Rc<Vec<(Bytes, Template)>>>,
) -> Result<(), ConfError> {
    let name = n.arg(0)?.text.clone();
    let value = cx.template_for_servers(n.arg(1)?)?;
    Rc::make_mut(list(cx).get_or_insert_default()).push((name, value));
    Ok(())
}

/// Whether the client takes trailers.
pub(crate) fn wants_trailers(r: &Request) -> bool {
    let bytes = r.head_bytes();
    r.head.fields.all(FieldId::Te).any(|f| names_trailers(f.value.of(bytes)))
}

/// Whether a value of `TE` names trailers.
fn names_trailers(value: &[u8]) -> bool {
    let name = |part: &[u8]| part.split(|b| *b == b';').next().unwrap_or_default().to_vec();
    value
        .split(|b| *b == b',')
        .any(|part| name(part).trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// The server of a request over HTTP/2.
pub(crate) struct Place<'a> {
    /// Its name, with the port unless that is the scheme's.
    pub authority: &'a [u8],
    /// It is spoken to under TLS.
    pub tls: bool,
}
