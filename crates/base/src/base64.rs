//! Base64 (RFC 4648 section 4), read as nginx reads it in credentials.

/// Decodes `text` and appends the bytes to `out`. Padding may be missing, and what follows it is
/// not looked at. False, with nothing appended, for other characters and impossible lengths.
pub fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
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
}
