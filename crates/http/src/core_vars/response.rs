//! Variables of the response: first as prepared so far, then as sent.

use base::ascii::write_u64;
use base::log::Level;
use bytes::Bytes;
use http_wire::h1::Version;

use super::{write_fields, write_some};
use crate::request::Request;

/// Three digits; `009` is a response of HTTP/0.9, which has no status, `000` none at all.
pub(super) fn status(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let status = match r.status() {
        0 if r.version() == Version::HTTP_09 => 9,
        s => s,
    };
    let digit = |unit: u16| b'0' + (status / unit % 10) as u8;
    out.extend_from_slice(&[digit(100), digit(10), digit(1)]);
    true
}

pub(super) fn bytes_sent(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_u64(out, r.account.bytes_sent);
    true
}

pub(super) fn body_bytes_sent(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_u64(out, r.account.body_bytes_sent());
    true
}

pub(super) fn completion(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if r.flags.complete {
        out.extend_from_slice(b"OK");
    }
    true
}

pub(super) fn limit_rate(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_u64(out, r.client.rates.limit.unwrap_or(0));
    true
}

pub(super) fn set_limit_rate(r: &mut Request, value: Bytes) {
    match conf::value::parse_size(&value) {
        Some(rate) => r.client.rates.limit = Some(rate as u64),
        None => {
            let value = base::log::lossy(&value);
            r.log(Level::Error, format_args!("invalid $limit_rate \"{value}\""));
        }
    }
}

pub(super) fn header(r: &mut Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    write_fields(r.out.headers.iter().map(|(n, v)| (&n[..], &v[..])), name, b", ", out)
}

pub(super) fn trailer(r: &mut Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    write_fields(r.out.trailers.iter().map(|(n, v)| (&n[..], &v[..])), name, b", ", out)
}

pub(super) fn content_type(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(t) = &r.out.content_type else { return false };
    // A charset of ours joins the type when the head is written.
    if r.flags.header_sent || r.out.content_type_written.is_some() {
        r.out.write_content_type(t, out);
    } else {
        out.extend_from_slice(t);
    }
    true
}

pub(super) fn content_length(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if let Some(n) = r.out.content_length {
        write_u64(out, n);
    }
    r.out.content_length.is_some()
}

pub(super) fn last_modified(r: &mut Request, out: &mut Vec<u8>) -> bool {
    match r.out.last_modified {
        Some(t) => {
            match &r.out.last_modified_written {
                Some(text) => out.extend_from_slice(text),
                None => out.extend_from_slice(&base::time::format_http_date(t)),
            }
            true
        }
        None => header(r, b"last_modified", out),
    }
}

pub(super) fn etag(r: &mut Request, out: &mut Vec<u8>) -> bool {
    match &r.out.etag {
        Some(tag) => write_some(out, Some(tag)),
        None => header(r, b"etag", out),
    }
}

/// As prepared; once the head is written, as it was sent.
pub(super) fn location(r: &mut Request, out: &mut Vec<u8>) -> bool {
    match r.out.location.clone() {
        Some(to) if r.flags.header_sent => {
            crate::channel::head::write_location(r, &to, out);
            true
        }
        Some(to) => write_some(out, Some(&to)),
        None => header(r, b"location", out),
    }
}

pub(super) fn connection(r: &mut Request, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(match (r.status(), r.keeps_connection()) {
        (101, _) => b"upgrade",
        (_, true) => b"keep-alive",
        (_, false) => b"close",
    });
    true
}

pub(super) fn keep_alive(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let secs = r.loc.core.keepalive_header;
    let sent = r.keeps_connection() && secs > 0;
    if sent {
        out.extend_from_slice(b"timeout=");
        write_u64(out, secs);
    }
    sent
}

pub(super) fn transfer_encoding(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_some(out, r.client.channel.is_chunked().then_some(b"chunked"))
}
