//! Base64url as JOSE has it (RFC 7515 section 2): no padding, no whitespace, and the bits of the
//! last character that encode nothing are zero. Otherwise one token would have several spellings.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The bytes; `None` for anything but the one encoding of them.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
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
