//! Tags of responses: words in their `Cache-Tag` and `Surrogate-Key` fields, by which they can be
//! purged together.

use crate::index_format::TAGS_MAX;
use base::ascii::eq_ignore_case;

use crate::file_header::Header;

/// The fields that hold tags, of responses and of requests that purge.
pub const FIELDS: [&[u8]; 2] = [b"cache-tag", b"surrogate-key"];

/// Appends the tags in the value of a field: commas and white space stand between them.
pub fn add(value: &[u8], out: &mut Vec<u8>) {
    let between = |b: &u8| matches!(b, b' ' | b'\t' | b',');
    for tag in value.split(between).filter(|tag| !tag.is_empty()) {
        if !out.is_empty() {
            out.push(b' ');
        }
        out.extend_from_slice(tag);
    }
}

/// The tags of a response with that head, with a space between two.
pub fn of_head(head: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in head.split(|b| *b == b'\n').skip(1) {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if FIELDS.iter().any(|field| eq_ignore_case(name, field)) {
            add(value.strip_suffix(b"\r").unwrap_or(value), &mut out);
        }
    }
    out
}

/// The tags of a kept response with that header.
pub fn of_header(header: &Header) -> Vec<u8> {
    header.head.as_deref().map(of_head).unwrap_or_default()
}

/// Whether an index can tell of that many tags.
pub fn fit(tags: &[u8]) -> bool {
    tags.len() <= TAGS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_both_fields() {
        let head = b"HTTP/1.1 200 OK\r\nCache-Tag: red, green\r\nX: no\r\n\
                     surrogate-key:  blue\tnavy ,\r\nX-Cache-Tag: no\r\n\r\n";
        assert_eq!(of_head(head), b"red green blue navy");
        assert_eq!(of_head(b"HTTP/1.1 200 OK\r\n\r\n"), b"");
        assert_eq!(of_head(b""), b"");
    }
}
