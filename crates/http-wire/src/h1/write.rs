//! Writing fields and request targets whose text comes from variables.
//!
//! A variable may hold any byte: `$uri` and captures are decoded, `$remote_user` comes from base64.
//! A value must not end a line, or a client could write fields of its own into responses, and
//! fields or whole requests into the messages to an upstream.

/// Whether a byte ends a line, or a string, for one that reads a head (RFC 9110 section 5.5).
#[inline]
fn is_dangerous(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | 0)
}

/// Whether one of these bytes is in a text. Values are short, and nearly all have none: words are
/// looked at for bytes below 14, which a tab is, too, and only a text with one of those is read
/// byte by byte.
#[inline]
fn has_dangerous(text: &[u8]) -> bool {
    let looks_so = match text.last_chunk() {
        // The last word may overlap the one before it.
        Some(last) => {
            let words = text.as_chunks().0.iter().chain([last]);
            words.fold(0, |low, word| low | low_bytes(u64::from_ne_bytes(*word))) != 0
        }
        None => text.iter().any(|byte| *byte < LOW),
    };
    looks_so && text.iter().any(|byte| is_dangerous(*byte))
}

/// The first byte above those of [`is_dangerous`].
const LOW: u8 = b'\r' + 1;

/// A number that is not 0 where a byte of a word is below [`LOW`].
#[inline]
fn low_bytes(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    word.wrapping_sub(EACH * LOW as u64) & !word & (EACH << 7)
}

/// Replaces each CR, LF and NUL of a field's value by a space, as in RFC 9110 section 5.5. Other
/// bytes stay: tabs and bytes above 0x7f are legal, and recipients accept the rest.
#[inline]
pub fn sanitize_value(value: &mut [u8]) {
    if has_dangerous(value) {
        replace(value);
    }
}

#[cold]
fn replace(value: &mut [u8]) {
    value.iter_mut().filter(|b| is_dangerous(**b)).for_each(|b| *b = b' ');
}

/// Appends a value without the bytes that would end its line.
#[inline]
pub fn write_value(out: &mut Vec<u8>, value: &[u8]) {
    let from = out.len();
    out.extend_from_slice(value);
    sanitize_value(&mut out[from..]);
}

/// Appends a field and the end of its line.
#[inline]
pub fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    write_value(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a URI for `Location`. Control characters are percent-encoded, so that the URI is what it
/// was before they were decoded.
#[inline]
pub fn write_location(out: &mut Vec<u8>, uri: &[u8]) {
    let from = out.len();
    out.extend_from_slice(uri);
    // Without an early end, so that many bytes are compared at a time.
    if uri.iter().fold(false, |any, byte| any | byte.is_ascii_control()) {
        encode(out, from, |byte| byte.is_ascii_control());
    }
}

/// Percent-encodes the bytes that the target of a request line must not have (RFC 9112 section
/// 3.2): control characters, which might end the line, and spaces, which end the target.
#[inline]
pub fn encode_target(out: &mut Vec<u8>, from: usize) {
    let not_in_targets = |byte: u8| byte <= b' ' || byte == 0x7f;
    let target = out.get(from..).unwrap_or_default();
    // Without an early end, so that many bytes are compared at a time.
    if target.iter().fold(false, |any, byte| any | not_in_targets(*byte)) {
        encode(out, from, not_in_targets);
    }
}

/// Whether a text can stand as the method in a request line: visible ASCII, which is a superset of
/// the tokens of RFC 9110 section 5.6.2.
pub fn is_method(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

#[cold]
fn encode(out: &mut Vec<u8>, from: usize, is_encoded: impl Fn(u8) -> bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let text = out.split_off(from);
    for byte in text {
        if is_encoded(byte) {
            let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
            out.extend_from_slice(&[b'%', high, low]);
        } else {
            out.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_ends_its_line() {
        let mut out = b"A: b\r\n".to_vec();
        write_field(&mut out, b"X", b"a\tb\xc3\xa9\x01 c\r\nSet-Cookie: x\0\n");
        assert_eq!(out, b"A: b\r\nX: a\tb\xc3\xa9\x01 c  Set-Cookie: x  \r\n");
        for byte in 0..=255_u8 {
            let mut out = Vec::new();
            write_value(&mut out, &[b'a', byte, b'b']);
            let stays = !matches!(byte, 0 | b'\r' | b'\n');
            assert_eq!(out, [b'a', if stays { byte } else { b' ' }, b'b']);
        }
    }

    #[test]
    fn a_dangerous_byte_is_seen_at_any_place_of_any_length() {
        for len in 1..40 {
            for at in 0..len {
                for byte in 0..=255_u8 {
                    for around in [0x0e, b'a', 0x7f, 0x80, 0xff] {
                        let mut text = vec![around; len];
                        text[at] = byte;
                        let is = matches!(byte, 0 | b'\r' | b'\n');
                        assert_eq!(has_dangerous(&text), is, "{byte} at {at} of {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn locations_lead_to_the_same_place() {
        let mut out = b"http://h".to_vec();
        write_location(&mut out, b"/a b\r\nX: y\0\x01\x7f?\xc3\xa9%20");
        assert_eq!(out, b"http://h/a b%0D%0AX: y%00%01%7F?\xc3\xa9%20");
    }

    #[test]
    fn targets_have_neither_spaces_nor_control_characters() {
        let mut out = b"GET ".to_vec();
        out.extend_from_slice(b"/a b\r\n\t\x7f?\xc3\xa9%20");
        encode_target(&mut out, 4);
        assert_eq!(out, b"GET /a%20b%0D%0A%09%7F?\xc3\xa9%20");
        let before = out.clone();
        encode_target(&mut out, 4);
        assert_eq!(out, before);
    }

    #[test]
    fn methods() {
        for (text, is) in [
            (&b"GET"[..], true),
            (b"M-SEARCH", true),
            (b"", false),
            (b"GET /", false),
            (b"GET\r\n", false),
            (b"G\xc3T", false),
        ] {
            assert_eq!(is_method(text), is, "{text:?}");
        }
    }
}
