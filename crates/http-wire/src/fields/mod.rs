//! Heads of HTTP/2 and HTTP/3: fields, whose compression ([`crate::h2::hpack`], [`crate::qpack`])
//! is the protocols' own.
//!
//! | file | concern |
//! | --- | --- |
//! | [`carried`] | the head of a request, for another process that continues with it |
//! | [`request`] | the fields of a request that came to its head |
//! | [`response`] | the fields of a response that came to its head |
//! | [`websocket`] | WebSocket as HTTP/1 asks for it, for servers that have it on a stream |
//!
//! A request to a server is a list of its fields before they are compressed: written where the
//! request is made, and read where the connection's compression, which has a state, encodes them.
//! A field of the list is the lengths of its name and its value, four bytes each, and their text.

pub mod carried;
pub mod request;
pub mod response;
pub mod websocket;

use crate::h1::{FieldId, sanitize_value, show};

/// Returns why a field has no place in a message of HTTP/2 or HTTP/3: receivers treat the whole
/// message as malformed (RFC 9113 section 8.2.1), and clients discard a response because of one
/// such field.
#[inline]
pub fn defect(name: &[u8], value: &[u8]) -> Option<&'static str> {
    let is_named = FieldId::lookup(name) != FieldId::Other || is_token(name);
    match () {
        () if !is_named => Some("invalid name"),
        () if has_control(value) => Some("control character"),
        () => None,
    }
}

/// Whether a name is a token (RFC 9110 section 5.6.2).
fn is_token(name: &[u8]) -> bool {
    let is_of_token = |byte: &u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.')
            || matches!(byte, b'^'..=b'`' | b'|' | b'~')
    };
    !name.is_empty() && name.iter().all(is_of_token)
}

/// Whether a value has a control character, of which a tab alone is legal (RFC 9110 section 5.5).
#[inline]
pub fn has_control(value: &[u8]) -> bool {
    let is_control = |byte: u8| (byte < b' ') & (byte != b'\t') | (byte == 0x7f);
    // Without an early end, so that many bytes are compared at a time.
    value.iter().fold(false, |any, byte| any | is_control(*byte))
}

/// The fields that a response does not have because clients would discard all of it for them: their
/// names and their defects.
#[derive(Default)]
pub struct LeftOut(Vec<(Vec<u8>, &'static str)>);

impl LeftOut {
    /// Whether a field may be written; one that may not is noted. A TE of `trailers` would be legal
    /// in requests alone, and clients check it in responses too.
    #[inline]
    pub fn checks(&mut self, name: &[u8], value: &[u8]) -> bool {
        let defect = match name {
            [b't' | b'T', b'e' | b'E'] => Some("field of requests"),
            _ => defect(name, value),
        };
        if let Some(defect) = defect {
            self.0.push((name.to_vec(), defect));
        }
        defect.is_none()
    }

    /// The same for a value whose ends of lines become spaces when it is written.
    pub fn checks_raw(&mut self, name: &[u8], value: &[u8]) -> bool {
        let mut written = value.to_vec();
        sanitize_value(&mut written);
        self.checks(name, &written)
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A text for each, for the log.
    #[inline]
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, defect)| {
            let mut line = String::from("\"");
            show(name, &mut line);
            line.push_str("\" is not sent: ");
            line.push_str(defect);
            line
        })
    }
}

/// Bytes of a field's two lengths.
pub const LENGTHS: usize = 8;

/// Appends a field to a list. Names are written in lower case (RFC 9113 section 8.2).
pub fn write(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let at = begin(out, name);
    out.extend_from_slice(value);
    end(out, at);
}

/// Begins a field whose value is appended next; [`end`] takes the result.
pub fn begin(out: &mut Vec<u8>, name: &[u8]) -> usize {
    out.extend_from_slice(&(name.len() as u32).to_be_bytes());
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let from = out.len();
    out.extend_from_slice(name);
    out[from..].make_ascii_lowercase();
    at
}

/// Ends a field: `at` is what [`begin`] gave. Its value is what was appended since.
pub fn end(out: &mut [u8], at: usize) {
    let len = out.len().saturating_sub(value_start(out, at)) as u32;
    if let Some(room) = out.get_mut(at..at + 4) {
        room.copy_from_slice(&len.to_be_bytes());
    }
}

/// The place of the value of a field that was begun.
fn value_start(out: &[u8], at: usize) -> usize {
    let name = at.checked_sub(4).and_then(|from| word(out.get(from..)?));
    at + 4 + name.unwrap_or(0) as usize
}

/// The name of a field that was begun and whose value is not written yet.
pub fn name_of(out: &[u8], at: usize) -> &[u8] {
    out.get(at + 4..).unwrap_or_default()
}

/// Takes back a field that was begun.
pub fn cancel(out: &mut Vec<u8>, at: usize) {
    out.truncate(at.saturating_sub(4));
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk::<4>().map(|four| u32::from_be_bytes(*four))
}

/// The fields of a list.
pub fn iter(list: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let (name_len, value_len) = (word(rest)? as usize, word(rest.get(4..)?)? as usize);
        let value = 8 + name_len;
        let field = (rest.get(8..value)?, rest.get(value..value + value_len)?);
        rest = rest.get(value + value_len..)?;
        Some(field)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let mut list = Vec::new();
        write(&mut list, b":path", b"/a b");
        let at = begin(&mut list, b"X-Long");
        list.extend_from_slice(b"one");
        assert_eq!(&list[value_start(&list, at)..], b"one");
        end(&mut list, at);
        let gone = begin(&mut list, b"Gone");
        cancel(&mut list, gone);
        write(&mut list, b"empty", b"");
        let read: Vec<_> = iter(&list).collect();
        let expected: [(&[u8], &[u8]); 3] =
            [(b":path", b"/a b"), (b"x-long", b"one"), (b"empty", b"")];
        assert_eq!(read, expected);
    }

    #[test]
    fn defects_are_names_that_are_no_tokens_and_control_characters() {
        let sound: [(&[u8], &[u8]); 4] = [
            (b"Server", b""),
            (b"x_y.z~1", b"a\tb"),
            (b"!#$%&'*+-.^_`|~0aZ", b"\xff"),
            (b"content-type", b" ~"),
        ];
        assert!(sound.iter().all(|(name, value)| defect(name, value).is_none()));
        let names: [&[u8]; 7] = [b"", b"X()", b":status", b"a b", b"a\x01", b"a\x80", b"a/b"];
        assert!(names.iter().all(|name| defect(name, b"v") == Some("invalid name")));
        for byte in 0..=255_u8 {
            let is_bad = byte != b'\t' && byte.is_ascii_control();
            for at in 0..20 {
                let mut value = [b'v'; 20];
                value[at] = byte;
                assert_eq!(defect(b"x", &value).is_some(), is_bad, "{byte} at {at}");
            }
        }
    }

    #[test]
    fn a_list_that_is_cut_ends_before_the_cut() {
        let mut list = Vec::new();
        write(&mut list, b"a", b"1");
        write(&mut list, b"b", b"22");
        for cut in 0..list.len() {
            assert!(iter(&list[..cut]).count() <= 1);
        }
        assert_eq!(iter(&list).count(), 2);
    }
}
