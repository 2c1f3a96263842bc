//! Writing a response's head: framing, the status line, and fields in nginx's order.

use base::ascii::write_u64;
use base::time;
use proto::h1::{self, Version};

use super::stream;
use crate::channel::head::{made_absolute, settle_body, write_location};
use crate::request::Request;
use crate::status_line::{reason, server_token};

/// Begins the response: settles the framing, and writes the head. Says whether a body follows.
pub(crate) fn start(r: &mut Request) -> bool {
    if r.main.life.is_leaving() {
        r.close_connection();
    }
    r.c().set_nodelay(r.loc.core.tcp_nodelay);
    let has_body = settle_body(r);
    let chunked = has_body && is_chunked(r);
    if r.head.version >= Version::HTTP_10 {
        write(r, chunked);
    } else {
        r.close_connection();
    }
    stream(r).chunked = chunked;
    r.flags.header_sent = true;
    has_body
}

/// Whether the body has the chunked coding; without it and a length, it ends with the connection.
fn is_chunked(r: &mut Request) -> bool {
    let can = r.head.version > Version::HTTP_10 && r.loc.core.chunked_transfer_encoding;
    if can && (r.out.expect_trailers || r.out.content_length.is_none()) {
        r.out.content_length = None;
        return true;
    }
    if r.out.content_length.is_none() {
        r.close_connection();
    }
    false
}

/// Writes the head to the output.
fn write(r: &mut Request, chunked: bool) {
    let mut output = std::mem::take(&mut stream(r).output);
    let w = output.writer_for(1024);
    let before = w.len();
    lines(r, chunked, w);
    r.header_bytes = (w.len() - before) as u64;
    r.bytes_sent += r.header_bytes;
    stream(r).output = output;
}

/// Writes an interim response of these fields; nothing where there are none.
pub(crate) fn interim<'a>(
    r: &mut Request,
    status: u16,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) {
    let mut text = Vec::new();
    for (name, value) in fields {
        h1::write_field(&mut text, name, value);
    }
    if text.is_empty() {
        return;
    }
    let w = stream(r).output.writer_for(text.len() + 64);
    w.extend_from_slice(b"HTTP/1.1 ");
    write_status(w, status, interim_reason(status));
    w.extend_from_slice(b"\r\n");
    w.extend_from_slice(&text);
    w.extend_from_slice(b"\r\n");
}

/// The usual text of an interim response's status.
fn interim_reason(status: u16) -> &'static str {
    match status {
        103 => "Early Hints",
        _ => "",
    }
}

fn lines(r: &mut Request, chunked: bool, out: &mut Vec<u8>) {
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
    if chunked {
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

/// A field whose value is made here, and needs no check.
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
        _ => write_status(out, status, reason(status)),
    }
    out.extend_from_slice(b"\r\n");
}

fn write_status(out: &mut Vec<u8>, status: u16, text: &str) {
    let digits = [
        b'0' + (status / 100 % 10) as u8,
        b'0' + (status / 10 % 10) as u8,
        b'0' + (status % 10) as u8,
    ];
    out.extend_from_slice(&digits);
    out.push(b' ');
    out.extend_from_slice(text.as_bytes());
}

fn connection(r: &Request, status: u16, out: &mut Vec<u8>) {
    if status == 101 {
        out.extend_from_slice(b"Connection: upgrade\r\n");
    } else if r.keeps_connection() {
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
