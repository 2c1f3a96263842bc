//! Writing a response's head: the status line and fields in nginx's order.

use base::ascii::write_u64;
use base::time;
use proto::h1::{self, Method, Version};

use crate::core_pages::{reason, server_token};
use crate::request::Request;

/// How the end of the body is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    /// Nothing follows the head.
    None,
    /// By `Content-Length`.
    Length,
    /// By the chunked coding.
    Chunked,
    /// By the end of the connection.
    Close,
}

/// Decides the framing; may give up keeping the connection.
pub(crate) fn framing(r: &mut Request) -> Framing {
    let status = r.status();
    if r.method == Method::Head || r.head.method == Method::Head {
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
        return Framing::None;
    }
    if r.flags.header_only {
        return if r.out.content_length.is_some() { Framing::Length } else { Framing::None };
    }
    // What follows belongs to a tunnel (RFC 9110 section 9.3.6).
    if r.method == Method::Connect && (200..300).contains(&status) {
        r.out.content_length = None;
        r.flags.keepalive = false;
        return Framing::None;
    }
    let chunks = r.head.version > Version::HTTP_10 && r.loc.core.chunked_transfer_encoding;
    if chunks && (r.out.expect_trailers || r.out.content_length.is_none()) {
        r.out.content_length = None;
        return Framing::Chunked;
    }
    if r.out.content_length.is_some() {
        return Framing::Length;
    }
    r.flags.keepalive = false;
    Framing::Close
}

/// Writes the head to the wire chain.
pub(crate) fn write(r: &mut Request, framing: Framing) {
    let mut wire = std::mem::take(&mut r.wire);
    let out = wire.writer_for(1024);
    let before = out.len();
    lines(r, framing, out);
    r.header_bytes = (out.len() - before) as u64;
    r.wire = wire;
    r.flags.chunked = framing == Framing::Chunked;
    r.bytes_sent += r.header_bytes;
    r.flags.header_sent = true;
}

fn lines(r: &mut Request, framing: Framing, out: &mut Vec<u8>) {
    let status = r.status();
    status_line(r, status, out);
    match &r.out.server {
        Some(s) if s.is_empty() => {}
        Some(s) => field(out, b"Server: ", s),
        None => field(out, b"Server: ", server_token(r.loc.core.server_tokens).as_bytes()),
    }
    match &r.out.date {
        Some(d) if d.is_empty() => {}
        Some(d) => field(out, b"Date: ", d),
        None => field(out, b"Date: ", &time::http_date()),
    }
    if let Some(t) = &r.out.content_type {
        out.extend_from_slice(b"Content-Type: ");
        r.out.write_content_type(t, out);
        out.extend_from_slice(b"\r\n");
    }
    if let Some(n) = r.out.content_length {
        out.extend_from_slice(b"Content-Length: ");
        write_u64(out, n);
        out.extend_from_slice(b"\r\n");
    }
    // Of a page about an error, the time at which its file was changed says nothing.
    if let Some(t) = r.out.last_modified
        && (matches!(status, 200 | 206 | 304) || r.out.last_modified_given)
    {
        match &r.out.last_modified_written {
            Some(text) => h1::write_field(out, b"Last-Modified", text),
            None => field(out, b"Last-Modified: ", &time::format_http_date(t)),
        }
    }
    let absolute = made_absolute(r, r.out.location.as_deref());
    if absolute {
        location(r, out);
    }
    if framing == Framing::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    connection(r, status, out);
    if r.out.vary_encoding {
        out.extend_from_slice(b"Vary: Accept-Encoding\r\n");
    }
    if !absolute {
        location(r, out);
    }
    if let Some(e) = &r.out.etag {
        h1::write_field(out, b"ETag", e);
    }
    for (name, value) in &r.out.headers {
        h1::write_field(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
}

/// A field of ours, whose value is none of anybody else's.
#[inline]
fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn status_line(r: &Request, status: u16, out: &mut Vec<u8>) {
    if status == 200 && r.out.status_text.is_none() {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    match &r.out.status_text {
        Some(t) if r.err_status == 0 => out.extend_from_slice(t),
        _ => {
            let digits = [
                b'0' + (status / 100 % 10) as u8,
                b'0' + (status / 10 % 10) as u8,
                b'0' + (status % 10) as u8,
            ];
            out.extend_from_slice(&digits);
            out.push(b' ');
            out.extend_from_slice(reason(status).as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn connection(r: &Request, status: u16, out: &mut Vec<u8>) {
    if status == 101 {
        out.extend_from_slice(b"Connection: upgrade\r\n");
    } else if r.flags.keepalive {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
        let secs = r.loc.core.keepalive_header;
        if secs > 0 {
            out.extend_from_slice(b"Keep-Alive: timeout=");
            write_u64(out, secs);
            out.extend_from_slice(b"\r\n");
        }
    } else {
        out.extend_from_slice(b"Connection: close\r\n");
    }
}

fn location(r: &mut Request, out: &mut Vec<u8>) {
    let Some(to) = r.out.location.take() else { return };
    out.extend_from_slice(b"Location: ");
    write_location(r, &to, out);
    out.extend_from_slice(b"\r\n");
    r.out.location = Some(to);
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
        out.extend_from_slice(b"http://");
        let named = core.server_name_in_redirect && !r.server.name.is_empty();
        if named {
            out.extend_from_slice(&r.server.name);
        } else if !r.host.is_empty() {
            out.extend_from_slice(&r.host);
        } else {
            host_of(r, out);
        }
        let port = r.c().local_port();
        if core.port_in_redirect && port != 80 && port != 0 {
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
