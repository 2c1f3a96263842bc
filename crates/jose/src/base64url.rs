//! Base64url as JOSE has it (RFC 7515 section 2): no padding, no whitespace, and the bits of the
//! last character that encode nothing are zero. Otherwise one token would have several spellings.

/// The bytes; `None` for anything but the one encoding of them.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for &byte in group {
            bits = bits << 6 | value_of(byte)?;
        }
        bits <<= 6 * (4 - group.len());
        let [_, bytes @ ..] = bits.to_be_bytes();
        let (kept, spare) = bytes.split_at(group.len() - 1);
        if spare.iter().any(|byte| *byte != 0) {
            return None;
        }
        out.extend_from_slice(kept);
    }
    Some(out)
}

fn value_of(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn only_the_one_encoding_is_accepted() {
        assert_eq!(decode(b"").unwrap(), b"");
        assert_eq!(decode(b"Zg").unwrap(), b"f");
        assert_eq!(decode(b"Zm8").unwrap(), b"fo");
        assert_eq!(decode(b"Zm9v").unwrap(), b"foo");
        assert_eq!(decode(b"-_-_").unwrap(), [0xfb, 0xff, 0xbf]);
        let bad: [&[u8]; 9] =
            [b"Zg==", b"Zh", b"Zm9", b"Z", b"Zm9vZ", b"+/+/", b"Zm 8", b"Zm8\n", b"Zg\0\0"];
        for text in bad {
            assert_eq!(decode(text), None, "{}", String::from_utf8_lossy(text));
        }
    }
}
