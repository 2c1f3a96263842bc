//! Fields of responses.

use bytes::Bytes;
use http::request::Request;

use super::line::{Field, Line};
use crate::headers::WithoutExpires;

/// Performs a directive on the response, if it has the status and the type.
pub fn apply(r: &mut Request, line: &Line) {
    if !line.statuses.is_empty() && !line.statuses.contains(&r.status()) {
        return;
    }
    if !line.types.is_empty() && !r.out.content_type.as_ref().is_some_and(|of| line.has_type(of)) {
        return;
    }
    for field in &line.fields {
        let value = r.eval(&field.value);
        if field.is_prefix {
            clear_prefix(r, &field.name);
        } else if !set_own(r, field, &value) {
            set(r, field, value, line.append);
        }
    }
}

/// Clears the fields whose names begin so. Those that the server writes itself have to be named in
/// full, but for the ones that tell of the content.
fn clear_prefix(r: &mut Request, prefix: &[u8]) {
    let begins = |name: &[u8]| base::ascii::starts_with_ignore_case(name, prefix);
    r.out.remove_if(|_, name| begins(name));
    if begins(b"Last-Modified") {
        r.out.last_modified = None;
        r.out.last_modified_written = None;
    }
    if begins(b"ETag") {
        r.out.etag = None;
    }
    if begins(b"Location") {
        r.out.location = None;
    }
}

/// Sets or clears a field that is no plain line of the response. False if it is one.
fn set_own(r: &mut Request, field: &Field, value: &Bytes) -> bool {
    let given = || Some(value.clone()).filter(|value| !value.is_empty());
    match field.name.to_ascii_lowercase().as_slice() {
        // Empty, they are left out.
        b"server" => r.out.server = Some(value.clone()),
        b"date" => r.out.date = Some(value.clone()),
        b"content-type" => set_type(r, value),
        b"content-length" => set_length(r, value),
        b"etag" => {
            r.out.remove(b"ETag");
            r.out.etag = given();
        }
        b"location" => {
            r.out.remove(b"Location");
            r.out.location = given();
        }
        b"last-modified" => {
            r.out.remove(b"Last-Modified");
            r.out.last_modified_given = true;
            r.out.last_modified = base::time::parse_http_date(value);
            r.out.last_modified_written = None;
            if r.out.last_modified.is_some() {
                r.out.last_modified_written = given();
            } else if !value.is_empty() {
                r.out.headers.push((field.name.clone(), value.clone()));
            }
        }
        _ => return false,
    }
    true
}

/// The value goes out as it is written; lists of types know the part before its parameters.
fn set_type(r: &mut Request, value: &Bytes) {
    r.out.charset = None;
    r.out.content_type_written = None;
    if value.is_empty() {
        r.out.content_type = None;
        return;
    }
    let media = value.split(|&b| b == b';').next().unwrap_or_default().trim_ascii_end();
    r.out.content_type = Some(value.slice_ref(media));
    if media.len() < value.len() {
        r.out.content_type_written = Some(value.clone());
    }
}

/// The length of a body that follows is the body's own: another number would put the next response
/// of the connection out of step. It can be cleared, and set where no body follows.
fn set_length(r: &mut Request, value: &[u8]) {
    if value.is_empty() {
        r.out.content_length = None;
        return;
    }
    let without_body = r.method_is(&[http_wire::h1::Method::Head]) || r.status() == 304;
    if let Some(length) = base::ascii::parse_u64(value).filter(|_| without_body) {
        r.out.content_length = Some(length);
    }
}

/// The first field of the name gets the value, and others go; without one it is added.
fn set(r: &mut Request, field: &Field, value: Bytes, append: bool) {
    let is = |name: &[u8]| base::ascii::eq_ignore_case(name, &field.name);
    if append {
        if !value.is_empty() {
            r.out.headers.push((field.name.clone(), value));
        }
        return;
    }
    if is(b"Expires") {
        r.ctx_mut::<WithoutExpires>().0 = value.is_empty();
    }
    let first = r.out.headers.iter().position(|(name, _)| is(name));
    match first {
        _ if value.is_empty() => r.out.remove_if(|_, name| is(name)),
        None => r.out.headers.push((field.name.clone(), value)),
        Some(first) => {
            r.out.headers[first].1 = value;
            r.out.remove_if(|at, name| at > first && is(name));
        }
    }
}
