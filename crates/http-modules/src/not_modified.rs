//! `not_modified`: conditional requests (RFC 9110 section 13) answered with 304 and 412.

use http::core_conf::IfModifiedSince;
use http::module::{LocView, Module, Pipeline, Verdict};
use http::request::Request;
use http_wire::h1::{FieldId, FieldSet};

/// The module's table.
pub static MODULE: Module =
    Module { name: "not_modified", install: Some(install), ..Module::EMPTY };

fn install(_: &LocView, p: &mut Pipeline) -> Result<(), conf::ConfError> {
    p.header_filters.push(Box::new(filter));
    Ok(())
}

/// The fields that make a request conditional. Most requests have none of them.
const CONDITIONS: FieldSet = FieldSet::of(&[
    FieldId::IfMatch,
    FieldId::IfModifiedSince,
    FieldId::IfNoneMatch,
    FieldId::IfUnmodifiedSince,
]);

fn filter(r: &mut Request) -> Verdict {
    let is_conditional = r.head.fields.has_any(&CONDITIONS);
    if !is_conditional || r.status() != 200 || r.out.unconditional {
        return Verdict::Next;
    }
    let dates_count = |tags: FieldId| !r.out.tags_first || r.header(tags).is_none();
    if let Some(since) = r.header(FieldId::IfUnmodifiedSince)
        && dates_count(FieldId::IfMatch)
        && !unmodified(r, since)
    {
        return failed(r);
    }
    if let Some(list) = r.header(FieldId::IfMatch)
        && !matches(r, list, false)
    {
        return failed(r);
    }
    let since = r.header(FieldId::IfModifiedSince).filter(|_| dates_count(FieldId::IfNoneMatch));
    let tags = r.header(FieldId::IfNoneMatch);
    if since.is_none() && tags.is_none()
        || since.is_some_and(|since| modified(r, since))
        || tags.is_some_and(|list| !matches(r, list, true))
    {
        return Verdict::Next;
    }
    r.set_status(304);
    r.out.content_type = None;
    r.out.content_length = None;
    r.out.allow_ranges = false;
    r.out.remove(b"Accept-Ranges");
    r.out.remove(b"Content-Encoding");
    Verdict::Next
}

/// The response is not the one that the client has in mind: nothing of it goes out.
fn failed(r: &mut Request) -> Verdict {
    r.out.headers.clear();
    Verdict::Status(412)
}

fn unmodified(r: &Request, since: &[u8]) -> bool {
    match (r.out.last_modified, base::time::parse_http_date(since)) {
        (Some(modified), Some(since)) => modified <= since,
        _ => false,
    }
}

fn modified(r: &Request, since: &[u8]) -> bool {
    let Some(modified) = r.out.last_modified else { return true };
    let Some(since) = base::time::parse_http_date(since) else { return true };
    match r.loc.core.if_modified_since {
        IfModifiedSince::Off => true,
        IfModifiedSince::Exact => modified != since,
        IfModifiedSince::Before => modified > since,
    }
}

fn matches(r: &Request, list: &[u8], weak: bool) -> bool {
    list == b"*" || r.out.etag.as_ref().is_some_and(|tag| in_list(tag, list, weak))
}

/// Whether a list of tags holds `tag`; `weak` compares without their `W/`.
fn in_list(tag: &[u8], list: &[u8], weak: bool) -> bool {
    let strip = |t: &'_ [u8]| if weak { t.strip_prefix(b"W/").unwrap_or(t).len() } else { t.len() };
    let tag = &tag[tag.len() - strip(tag)..];
    let mut rest = list;
    while !rest.is_empty() {
        rest = &rest[rest.len() - strip(rest)..];
        if let Some(behind) = rest.strip_prefix(tag) {
            let spaces = behind.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
            if matches!(behind.get(spaces), None | Some(b',')) {
                return true;
            }
        }
        let next = memchr::memchr(b',', rest).unwrap_or(rest.len());
        rest = &rest[next..];
        let skip = rest.iter().take_while(|b| matches!(b, b' ' | b'\t' | b',')).count();
        rest = &rest[skip..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::in_list;

    #[test]
    fn tags_in_lists() {
        let tag = b"\"a-1\"";
        for (list, strong, weak) in [
            ("\"a-1\"", true, true),
            ("W/\"a-1\"", false, true),
            ("\"b\", \"a-1\"", true, true),
            ("\"b\",W/\"a-1\" \t,\"c\"", false, true),
            ("\"a-1\"x", false, false),
            ("x\"a-1\"", false, false),
            ("\"a-1", false, false),
            ("", false, false),
            (",,", false, false),
            ("\"a-1\",", true, true),
        ] {
            assert_eq!(in_list(tag, list.as_bytes(), false), strong, "{list}");
            assert_eq!(in_list(tag, list.as_bytes(), true), weak, "{list}");
        }
        assert!(in_list(b"W/\"a\"", b"\"a\"", true));
        assert!(in_list(b"W/\"a\"", b"W/\"a\"", true));
        assert!(!in_list(b"W/\"a\"", b"\"a\"", false));
        assert!(in_list(b"W/\"a\"", b"W/\"a\"", false));
    }
}
