//! Base64 (RFC 4648 section 4), read as nginx reads it in credentials.

/// Decodes `text` and appends the bytes to `out`. Padding is optional, and everything behind it is
/// ignored. False, with nothing appended, for other characters and impossible lengths.
pub fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    decode_with(text, out, value_of)
}

/// [`decode`] for the alphabet of RFC 4648 section 5, which has `-` and `_` in the place of `+` and
/// `/`.
pub fn decode_url(text: &[u8], out: &mut Vec<u8>) -> bool {
    decode_with(text, out, |byte| match byte {
        b'-' => Some(62),
        b'_' => Some(63),
        b'+' | b'/' => None,
        byte => value_of(byte),
    })
}

#[inline]
fn decode_with(text: &[u8], out: &mut Vec<u8>, value_of: impl Fn(u8) -> Option<u32>) -> bool {
    let text = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    if text.len() % 4 == 1 {
        return false;
    }
    let start = out.len();
    out.reserve(text.len().div_ceil(4) * 3);
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for &byte in group {
            let Some(value) = value_of(byte) else {
                out.truncate(start);
                return false;
            };
            bits = bits << 6 | value;
        }
        bits <<= 6 * (4 - group.len());
        let [_, bytes @ ..] = bits.to_be_bytes();
        out.extend_from_slice(&bytes[..group.len() - 1]);
    }
    true
}

#[inline]
fn value_of(byte: u8) -> Option<u32> {
    Some(match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// Appends the base64 text of `bytes` (RFC 4648 section 4), padded.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for chunk in bytes.chunks(3) {
        let mut three = [0u8; 4];
        three[1..=chunk.len()].copy_from_slice(chunk);
        let n = u32::from_be_bytes(three);
        for i in 0..4 {
            let digit = DIGITS[(n >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() { digit } else { b'=' });
        }
    }
}

/// Appends the base64 text of `bytes` in the alphabet of RFC 4648 section 5, without padding.
pub fn encode_url(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    encode(bytes, out);
    let padding = out[start..].iter().rev().take_while(|byte| **byte == b'=').count();
    out.truncate(out.len() - padding);
    for byte in &mut out[start..] {
        match byte {
            b'+' => *byte = b'-',
            b'/' => *byte = b'_',
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    fn decoded(text: &str) -> Option<Vec<u8>> {
        let mut out = b"before".to_vec();
        let ok = decode(text.as_bytes(), &mut out);
        assert!(ok || out == b"before", "a refused text leaves nothing behind");
        ok.then(|| out.split_off(6))
    }

    #[test]
    fn the_examples_of_the_standard() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
            ("Zm9vYg", "foob"),
            ("Zg=ignored", "f"),
        ] {
            assert_eq!(decoded(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(decoded("+/+/").as_deref(), Some(&[0xfb, 0xff, 0xbf][..]));
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Z", "Zm9vY", "Zm9v Zm9v", "Zm-_", "Zm9\n", "Zm9vYmF\0"] {
            assert_eq!(decoded(text), None, "{text:?}");
        }
    }

    #[test]
    fn encoding_is_the_inverse() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let (mut out, mut back) = (Vec::new(), Vec::new());
            super::encode(bytes.as_bytes(), &mut out);
            assert_eq!(out, text.as_bytes());
            assert!(super::decode(&out, &mut back));
            assert_eq!(back, bytes.as_bytes());
        }
    }

    #[test]
    fn texts_for_urls_have_no_padding() {
        for bytes in [&b""[..], b"f", b"fo", b"foo", &[0xfb, 0xff, 0xbf], &[0xff; 5]] {
            let (mut out, mut back) = (b"=".to_vec(), Vec::new());
            super::encode_url(bytes, &mut out);
            assert!(!out[1..].iter().any(|b| b"+/=".contains(b)), "{out:?}");
            assert!(super::decode_url(&out[1..], &mut back));
            assert_eq!((back, out[0]), (bytes.to_vec(), b'='));
        }
    }
}
