//! Variables of the request.

use std::os::unix::ffi::OsStrExt;

use base::ascii::{write_millis, write_u64};
use base::log::Level;
use bytes::Bytes;
use http_wire::h1::FieldId;

use super::{write_fields, write_port, write_some};
use crate::request::Request;

/// `$arg_NAME`: the first argument of that name, in any case, as it was sent.
pub(super) fn arg(r: &mut Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    write_some(out, r.arg(name))
}

impl Request {
    /// The first argument of a name, in any case, as it was sent.
    pub fn arg(&self, name: &[u8]) -> Option<&[u8]> {
        find_arg(&self.target.args, name)
    }
}

fn find_arg<'a>(args: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    if name.is_empty() {
        return None;
    }
    args.split(|b| *b == b'&').find_map(|pair| {
        let (key, rest) = pair.split_at_checked(name.len())?;
        if base::ascii::eq_ignore_case(key, name) { rest.strip_prefix(b"=") } else { None }
    })
}

pub(super) fn args(r: &mut Request, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(&r.target.args);
    !r.target.args.is_empty()
}

pub(super) fn set_args(r: &mut Request, value: Bytes) {
    r.target.args.clear();
    r.target.args.extend_from_slice(&value);
    r.flags.valid_unparsed_uri = false;
}

pub(super) fn is_args(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if !r.target.args.is_empty() {
        out.push(b'?');
    }
    true
}

pub(super) fn uri(r: &mut Request, out: &mut Vec<u8>) -> bool {
    // A request refused before it had a path is answered as if for "/"; its own path is unknown.
    if r.flags.without_uri && r.target.uri == b"/" {
        return !r.head.method_name.is_empty();
    }
    out.extend_from_slice(&r.target.uri);
    true
}

pub(super) fn request_uri(r: &mut Request, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(r.unparsed_uri());
    !r.head.target.is_empty()
}

pub(super) fn line(r: &mut Request, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(r.request_line());
    true
}

pub(super) fn method(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_some(out, Some(r.method_name()).filter(|name| !name.is_empty()))
}

pub(super) fn protocol(r: &mut Request, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(r.head.protocol.of(r.head_bytes()));
    !r.head.protocol.is_empty()
}

pub(super) fn header(r: &mut Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    write_fields(r.headers(), name, b", ", out)
}

pub(super) fn cookies(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_fields(r.headers(), b"cookie", b"; ", out)
}

/// `$cookie_NAME`: the first cookie of that name, in any case.
pub(super) fn cookie(r: &mut Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    write_some(out, r.cookie(name).map(|(value, _)| value))
}

impl Request {
    /// The value of the first cookie of a name, in any case, and the field that it stands in.
    pub fn cookie(&self, name: &[u8]) -> Option<(&[u8], &[u8])> {
        let buf = self.head_bytes();
        let mut lines = self.head.fields.all(FieldId::Cookie).map(|f| f.value.of(buf));
        lines.find_map(|line| Some((find_cookie(line, name)?, line)))
    }
}

fn find_cookie<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let spaces = |text: &'a [u8]| {
        let from = text.iter().position(|b| *b != b' ').unwrap_or(text.len());
        &text[from..]
    };
    line.split(|b| *b == b';').find_map(|pair| {
        let (key, rest) = spaces(pair).split_at_checked(name.len())?;
        if !base::ascii::eq_ignore_case(key, name) {
            return None;
        }
        spaces(rest).strip_prefix(b"=").map(spaces)
    })
}

/// As sent; for a chunked body its length once all of it came.
pub(super) fn content_length(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if let Some(v) = r.header(FieldId::ContentLength) {
        out.extend_from_slice(v);
        return true;
    }
    let known = r.head.chunked && r.body.was_read();
    if known {
        write_u64(out, r.body.len());
    }
    known
}

pub(super) fn host(r: &mut Request, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(if r.target.host.is_empty() { &r.server.name } else { &r.target.host });
    true
}

pub(super) fn port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_port(out, r.target.host_port)
}

pub(super) fn is_port(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if r.target.host_port > 0 {
        out.push(b':');
    }
    true
}

pub(super) fn remote_user(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let sent = r.basic_credentials();
    write_some(out, sent.as_ref().map(|c| c.user()))
}

pub(super) fn server_name(r: &mut Request, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(&r.server.name);
    true
}

pub(super) fn document_root(r: &mut Request, out: &mut Vec<u8>) -> bool {
    r.root_into(out);
    true
}

pub(super) fn realpath_root(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let mut root = Vec::new();
    r.root_into(&mut root);
    match crate::files::real_root(r, &root) {
        Ok(real) => {
            out.extend_from_slice(real.as_os_str().as_bytes());
            true
        }
        Err(e) => {
            let root = base::log::lossy(&root);
            r.log_os(Level::Crit, format_args!("realpath() \"{root}\""), &e);
            false
        }
    }
}

pub(super) fn filename(r: &mut Request, out: &mut Vec<u8>) -> bool {
    r.map_path_into(out);
    true
}

pub(super) fn body(r: &mut Request, out: &mut Vec<u8>) -> bool {
    r.write_body(out)
}

pub(super) fn body_file(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_some(out, r.body.file_path().map(|p| p.as_os_str().as_bytes()))
}

/// Head and body as they came over the wire.
pub(super) fn length(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_u64(out, r.length());
    true
}

pub(super) fn time(r: &mut Request, out: &mut Vec<u8>) -> bool {
    write_millis(out, r.account.elapsed_ms());
    true
}

pub(super) fn pipe(r: &mut Request, out: &mut Vec<u8>) -> bool {
    out.push(if r.client.channel.is_pipelined() { b'p' } else { b'.' });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_by_name() {
        let args = b"a=1&Bb=2&bb=3&c&d=&ee=x=y";
        let found =
            |name: &str| find_arg(args, name.as_bytes()).map(|v| std::str::from_utf8(v).unwrap());
        assert_eq!(found("a"), Some("1"));
        assert_eq!(found("bb"), Some("2"));
        assert_eq!(found("b"), None);
        assert_eq!(found("c"), None);
        assert_eq!(found("d"), Some(""));
        assert_eq!(found("e"), None);
        assert_eq!(found("ee"), Some("x=y"));
        assert_eq!(found(""), None);
    }

    #[test]
    fn cookies_by_name() {
        let line = b"a=1; B = two words ;sess=\"q\"; bad; ab=3; a=9";
        let found = |name: &str| {
            find_cookie(line, name.as_bytes()).map(|v| std::str::from_utf8(v).unwrap())
        };
        assert_eq!(found("a"), Some("1"));
        assert_eq!(found("b"), Some("two words "));
        assert_eq!(found("sess"), Some("\"q\""));
        assert_eq!(found("bad"), None);
        assert_eq!(found("ab"), Some("3"));
        assert_eq!(found("es"), None);
    }
}
