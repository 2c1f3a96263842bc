//! Rules on response heads that all protocols share.

use base::ascii::write_u64;
use proto::h1::{self, Method};

use crate::request::Request;

/// Decides whether a body follows the head, and clears the fields that would be wrong without one.
pub(crate) fn settle_body(r: &mut Request) -> bool {
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
        return false;
    }
    if r.flags.header_only {
        return false;
    }
    // The bytes that follow belong to a tunnel (RFC 9110 section 9.3.6).
    if r.method == Method::Connect && (200..300).contains(&status) {
        r.out.content_length = None;
        r.close_connection();
        return false;
    }
    true
}

/// Whether a `Location` is a path that is sent as a whole address. nginx has such a one before
/// `Connection`, and others behind it.
pub(crate) fn made_absolute(r: &Request, to: Option<&[u8]>) -> bool {
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
        } else if !r.host.is_empty() {
            out.extend_from_slice(&r.host);
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
