//! Writing a response's head: framing, the status line, and fields in nginx's order.

use base::ascii::write_u64;
use http_wire::h1::{self, Version};

use super::requests::is_last;
use super::stream;
use crate::channel::head::{FieldSink, Name, fields, settle_body};
use crate::request::Request;
use crate::status_line::reason;

/// Begins the response: settles the framing, and writes the head. Says whether a body follows.
pub(crate) fn start(r: &mut Request) -> bool {
    if is_last(r.c(), r) {
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
    r.account.head_sent((w.len() - before) as u64);
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
    fields(r, &mut Lines { out, chunked, status });
    out.extend_from_slice(b"\r\n");
}

/// Fields as lines of text.
struct Lines<'a> {
    out: &'a mut Vec<u8>,
    chunked: bool,
    status: u16,
}

impl FieldSink for Lines<'_> {
    #[inline]
    fn made(&mut self, name: &'static Name, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.extend_from_slice(name.line);
        write(self.out);
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn given(&mut self, name: &[u8], value: &[u8]) {
        h1::write_field(self.out, name, value);
    }

    fn framing(&mut self, r: &Request) {
        if self.chunked {
            self.out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        connection(r, self.status, self.out);
    }
}

fn status_line(r: &Request, status: u16, out: &mut Vec<u8>) {
    if status == 200 && r.out.status_text.is_none() {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    match &r.out.status_text {
        Some(t) if r.flags.err_status == 0 => out.extend_from_slice(t),
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
