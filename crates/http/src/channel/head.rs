//! Rules on response heads that all protocols share.

use base::ascii::write_u64;
use base::time;
use http_wire::h1::{self, Method};

use crate::request::Request;
use crate::status_line::server_token;

/// The name of a field that the server makes, as protocols write it.
pub(crate) struct Name {
    /// The beginning of a line of text.
    pub line: &'static [u8],
    /// The name in lower case.
    pub lower: &'static [u8],
}

macro_rules! names {
    ($($id:ident = $line:literal, $lower:literal;)*) => {
        $(static $id: Name = Name { line: $line, lower: $lower };)*
    };
}

names! {
    SERVER = b"Server: ", b"server";
    DATE = b"Date: ", b"date";
    CONTENT_TYPE = b"Content-Type: ", b"content-type";
    CONTENT_LENGTH = b"Content-Length: ", b"content-length";
    LAST_MODIFIED = b"Last-Modified: ", b"last-modified";
    LOCATION = b"Location: ", b"location";
    VARY = b"Vary: ", b"vary";
}

/// Takes the fields of a response's head in the protocol's form.
pub(crate) trait FieldSink {
    /// A field whose value is made here, and needs no check.
    fn made(&mut self, name: &'static Name, write: impl FnOnce(&mut Vec<u8>));

    /// A field from elsewhere.
    fn given(&mut self, name: &[u8], value: &[u8]);

    /// The place of the fields that only this protocol has.
    fn framing(&mut self, r: &Request);
}

/// Gives the fields of the response's head to the protocol, in nginx's order.
pub(crate) fn fields(r: &mut Request, to: &mut impl FieldSink) {
    match &r.out.server {
        Some(s) if s.is_empty() => {}
        Some(s) => to.made(&SERVER, |v| v.extend_from_slice(s)),
        None => {
            let token = server_token(r.loc.core.server_tokens).as_bytes();
            to.made(&SERVER, |v| v.extend_from_slice(token));
        }
    }
    match &r.out.date {
        Some(d) if d.is_empty() => {}
        Some(d) => to.made(&DATE, |v| v.extend_from_slice(d)),
        None => to.made(&DATE, |v| v.extend_from_slice(&time::http_date())),
    }
    if let Some(t) = &r.out.content_type {
        to.made(&CONTENT_TYPE, |v| r.out.write_content_type(t, v));
    }
    if let Some(n) = r.out.content_length {
        to.made(&CONTENT_LENGTH, |v| write_u64(v, n));
    }
    // Of a page about an error, the time at which its file was changed says nothing.
    if let Some(t) = r.out.last_modified
        && (matches!(r.status(), 200 | 206 | 304) || r.out.last_modified_given)
    {
        match &r.out.last_modified_written {
            Some(text) => to.given(b"Last-Modified", text),
            None => to.made(&LAST_MODIFIED, |v| v.extend_from_slice(&time::format_http_date(t))),
        }
    }
    let absolute = made_absolute(r, r.out.location.as_deref());
    if absolute {
        location(r, to);
    }
    to.framing(r);
    if r.out.vary_encoding {
        to.made(&VARY, |v| v.extend_from_slice(b"Accept-Encoding"));
    }
    if !absolute {
        location(r, to);
    }
    if let Some(e) = &r.out.etag {
        to.given(b"ETag", e);
    }
    for (name, value) in &r.out.headers {
        to.given(name, value);
    }
}

fn location(r: &mut Request, to: &mut impl FieldSink) {
    if let Some(target) = r.out.location.take() {
        to.made(&LOCATION, |v| write_location(r, &target, v));
        r.out.location = Some(target);
    }
}

/// Decides whether a body follows the head, and clears the fields that would be wrong without one.
pub(crate) fn settle_body(r: &mut Request) -> bool {
    let status = r.status();
    if r.target.method == Method::Head || r.head.method == Method::Head {
        r.flags.header_only = true;
    }
    if status < 200 || status == 204 || status == 304 {
        r.flags.header_only = true;
        if status != 304 || r.out.content_length == Some(0) {
            r.out.content_length = None;
        }
        if status == 204 && r.out.status_text.is_none() {
            r.out.content_type = None;
            r.out.last_modified = None;
        }
        return false;
    }
    if r.flags.header_only {
        return false;
    }
    // The bytes that follow belong to a tunnel (RFC 9110 section 9.3.6).
    if r.target.method == Method::Connect && (200..300).contains(&status) {
        r.out.content_length = None;
        r.close_connection();
        return false;
    }
    true
}

/// Whether a `Location` is a path that is sent as a whole address. nginx has such a one before
/// `Connection`, and others behind it.
fn made_absolute(r: &Request, to: Option<&[u8]>) -> bool {
    to.is_some_and(|to| to.first() == Some(&b'/')) && r.loc.core.absolute_redirect
}

/// The value of `Location`, made absolute where it is a path and `absolute_redirect` asks for it.
pub(crate) fn write_location(r: &Request, to: &[u8], out: &mut Vec<u8>) {
    let core = &r.loc.core;
    if made_absolute(r, Some(to)) {
        let is_secured = r.is_secured();
        out.extend_from_slice(if is_secured { b"https://" } else { b"http://" });
        let named = core.server_name_in_redirect && !r.server.name.is_empty();
        if named {
            out.extend_from_slice(&r.server.name);
        } else if !r.target.host.is_empty() {
            out.extend_from_slice(&r.target.host);
        } else {
            host_of(r, out);
        }
        let port = r.c().local_port();
        let usual = if is_secured { 443 } else { 80 };
        if core.port_in_redirect && port != usual && port != 0 {
            out.push(b':');
            write_u64(out, port.into());
        }
    }
    h1::write_location(out, to);
}

/// The local address's host, for requests that name none.
fn host_of(r: &Request, out: &mut Vec<u8>) {
    if let Some(local) = r.c().local() {
        out.extend_from_slice(local.host().to_string().as_bytes());
    }
}
