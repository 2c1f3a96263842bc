//! The fields of requests and responses, as scripts read and write them.
//!
//! Weir keeps some fields of a response apart, for its filters: the type, the length, dates, the
//! tag and the location. Scripts see one list.

use bytes::Bytes;
use http::output::Response;
use http::request::Request;

use ::script::host::http::{Refusal, Side};

type Field = (Vec<u8>, Vec<u8>);

/// The fields of the request, as sent.
pub(crate) fn of_request(r: &Request) -> Vec<Field> {
    r.headers().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// The fields of the response, but for its type and length.
pub(crate) fn of_response(r: &Request) -> Vec<Field> {
    let mut all = Vec::new();
    each_of_response(r, |name, value| all.push((name.to_vec(), value.to_vec())));
    all
}

fn each_of_response(r: &Request, mut f: impl FnMut(&[u8], &[u8])) {
    let out = &r.out;
    let last_modified = last_modified(out);
    for (name, value) in [
        ("Server", &out.server),
        ("Date", &out.date),
        ("Location", &out.location),
        ("ETag", &out.etag),
        ("Last-Modified", &last_modified),
    ] {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            f(name.as_bytes(), value);
        }
    }
    for (name, value) in out.headers.iter() {
        f(name, value);
    }
}

fn last_modified(out: &Response) -> Option<Bytes> {
    let written = out.last_modified_written.clone();
    written.or_else(|| {
        out.last_modified.map(|t| Bytes::copy_from_slice(&base::time::format_http_date(t)))
    })
}

/// The names of all fields.
pub(crate) fn names(r: &Request, side: Side) -> Vec<Vec<u8>> {
    let named = |fields: Vec<Field>| fields.into_iter().map(|(name, _)| name);
    if side == Side::In {
        return named(of_request(r)).collect();
    }
    let mut names = Vec::new();
    if r.out.content_type.is_some() {
        names.push(b"Content-Type".to_vec());
    }
    if r.out.content_length.is_some() {
        names.push(b"Content-Length".to_vec());
    }
    names.extend(named(of_response(r)));
    names
}

/// The values of a field.
pub(crate) fn values(r: &Request, side: Side, name: &[u8]) -> Vec<Vec<u8>> {
    let is = |field: &[u8]| field.eq_ignore_ascii_case(name);
    if side == Side::Out {
        if is(b"Content-Type") {
            let written = r.out.content_type_written.as_ref().or(r.out.content_type.as_ref());
            return written.iter().map(|value| value.to_vec()).collect();
        }
        if is(b"Content-Length") {
            return r.out.content_length.iter().map(|n| n.to_string().into_bytes()).collect();
        }
    }
    let mut values = Vec::new();
    let mut add = |field: &[u8], value: &[u8]| {
        if is(field) {
            values.push(value.to_vec());
        }
    };
    match side {
        Side::In => r.headers().for_each(|(field, value)| add(field, value)),
        Side::Out => each_of_response(r, add),
    }
    values
}

/// Replaces a field of the response; without a value it goes.
pub(crate) fn set(r: &mut Request, name: &[u8], values: Vec<Vec<u8>>) -> Result<(), Refusal> {
    let out = &mut r.out;
    let last = || values.last().cloned().map(Bytes::from);
    match name.to_ascii_lowercase().as_slice() {
        b"content-type" => set_type(out, last()),
        b"content-length" => {
            out.content_length = match values.last() {
                None => None,
                Some(text) => Some(
                    length(text)
                        .ok_or(Refusal::Type("failed converting argument to positive integer"))?,
                ),
            };
        }
        // They describe this connection, which is the server's: those of another response do not.
        b"transfer-encoding" | b"connection" | b"keep-alive" | b"upgrade" => {}
        b"server" => out.server = last(),
        b"date" => out.date = last(),
        b"location" => out.location = last(),
        b"last-modified" => {
            out.last_modified_given = !values.is_empty();
            out.last_modified = values.last().and_then(|v| base::time::parse_http_date(v));
            out.last_modified_written = last();
        }
        b"etag" => {
            // One tag counts for conditions; more than one are only sent.
            out.remove(name);
            out.etag = None;
            match values.len() {
                1 => out.etag = last(),
                _ => add(out, name, values),
            }
        }
        _ => {
            out.remove(name);
            add(out, name, values);
        }
    }
    Ok(())
}

/// Sets the type; a `charset=` in it is the response's charset, for filters, and the client gets
/// the text as it is.
fn set_type(out: &mut Response, value: Option<Bytes>) {
    out.charset = None;
    out.content_type_written = None;
    match value.as_ref().and_then(|value| split_charset(value)) {
        Some((media, charset)) => {
            out.content_type = Some(Bytes::copy_from_slice(media));
            out.charset = (!charset.is_empty()).then(|| Bytes::copy_from_slice(charset));
            out.content_type_written = value;
        }
        None => out.content_type = value,
    }
}

/// The media type, and the value of the parameter `charset` without quotes, if there is one.
fn split_charset(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let media_end = value.iter().position(|b| *b == b';')?;
    let charset = value[media_end..].split(|b| *b == b';').find_map(|parameter| {
        let parameter = parameter.trim_ascii();
        let (name, charset) = parameter.split_at_checked(b"charset=".len())?;
        name.eq_ignore_ascii_case(b"charset=").then_some(charset)
    })?;
    let charset = charset.strip_prefix(b"\"").unwrap_or(charset);
    Some((&value[..media_end], charset.strip_suffix(b"\"").unwrap_or(charset)))
}

fn add(out: &mut Response, name: &[u8], values: Vec<Vec<u8>>) {
    let name = Bytes::copy_from_slice(name);
    out.headers.extend(values.into_iter().map(|value| (name.clone(), Bytes::from(value))));
}

/// A length in decimal digits.
fn length(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_digit) && !text.is_empty();
    let text = std::str::from_utf8(text).ok().filter(|_| digits)?;
    text.parse().ok().filter(|n| *n <= i64::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::{length, split_charset};

    #[test]
    fn charsets_are_found_in_types() {
        let split = |text: &'static str| {
            let (media, charset) = split_charset(text.as_bytes())?;
            Some(format!("{} {}", media.escape_ascii(), charset.escape_ascii()))
        };
        assert_eq!(split("text/html; charset=utf-8").unwrap(), "text/html utf-8");
        assert_eq!(split("text/xml;a=b; Charset=\"x\"").unwrap(), "text/xml x");
        assert_eq!(split("text/xml; charset=").unwrap(), "text/xml ");
        assert_eq!(split("text/html"), None);
        assert_eq!(split("text/html; xcharset=y"), None);
    }

    #[test]
    fn lengths_are_whole_numbers() {
        assert_eq!(length(b"15"), Some(15));
        for text in ["", "x", "-1", "1.5", "+3", " 1", "9223372036854775808"] {
            assert_eq!(length(text.as_bytes()), None, "{text}");
        }
    }
}
