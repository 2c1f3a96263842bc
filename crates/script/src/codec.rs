//! The encodings of `Buffer`: UTF-8, base64 in two alphabets, hexadecimal.

use rquickjs::{Exception, Result, Value};

/// An encoding by its name in `Buffer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `utf8`, `utf-8`
    Utf8,
    Base64,
    Base64Url,
    Hex,
}

impl Encoding {
    /// The encoding of that name.
    pub fn named(name: &str) -> Option<Encoding> {
        Some(match name {
            "utf8" | "utf-8" => Encoding::Utf8,
            "base64" => Encoding::Base64,
            "base64url" => Encoding::Base64Url,
            "hex" => Encoding::Hex,
            _ => return None,
        })
    }

    /// The encoding that an argument names; UTF-8 if it is `undefined`.
    pub fn of(value: &Value<'_>) -> Result<Encoding> {
        if value.is_undefined() {
            return Ok(Encoding::Utf8);
        }
        let ctx = value.ctx();
        if !value.is_string() {
            return Err(Exception::throw_type(ctx, "encoding must be a string"));
        }
        let name = crate::value::text(value)?;
        Encoding::named(&name).ok_or_else(|| {
            Exception::throw_type(ctx, &format!("\"{name}\" encoding is not supported"))
        })
    }

    /// The bytes of a text. Reading stops at the first character that does not belong to the
    /// encoding; incomplete groups at the end are dropped.
    pub fn decode(self, text: &str) -> Vec<u8> {
        match self {
            Encoding::Utf8 => text.as_bytes().to_vec(),
            Encoding::Hex => decode_hex(text.as_bytes()),
            Encoding::Base64 => decode_base64(text.as_bytes(), b'+', b'/'),
            Encoding::Base64Url => decode_base64(text.as_bytes(), b'-', b'_'),
        }
    }

    /// The text of bytes.
    pub fn encode(self, bytes: &[u8]) -> String {
        let mut out = Vec::new();
        match self {
            Encoding::Utf8 => return String::from_utf8_lossy(bytes).into_owned(),
            Encoding::Hex => {
                for byte in bytes {
                    let digit = |n: u8| if n < 10 { b'0' + n } else { b'a' + n - 10 };
                    out.extend([digit(byte >> 4), digit(byte & 15)]);
                }
            }
            Encoding::Base64 => base::base64::encode(bytes, &mut out),
            Encoding::Base64Url => base::base64::encode_url(bytes, &mut out),
        }
        String::from_utf8(out).unwrap_or_default()
    }
}

fn decode_hex(text: &[u8]) -> Vec<u8> {
    let digits = text.iter().map_while(|c| (*c as char).to_digit(16));
    let digits: Vec<u32> = digits.collect();
    digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

fn decode_base64(text: &[u8], sixty_two: u8, sixty_three: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0u32, 0);
    for &c in text {
        let Some(value) = sextet(c, sixty_two, sixty_three) else { break };
        bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

fn sextet(c: u8, sixty_two: u8, sixty_three: u8) -> Option<u8> {
    Some(match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        _ if c == sixty_two => 62,
        _ if c == sixty_three => 63,
        _ => return None,
    })
}

/// `atob`: bytes of base64 as the Infra standard reads it ("forgiving-base64 decode"): white space
/// is skipped, padding is optional but right. `None` for anything else.
pub(crate) fn forgiving_base64(text: &str) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut padding, mut total) = (0u32, 0, 0, 0);
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for &c in text.as_bytes() {
        match c {
            b' ' | b'\t' | b'\n' | 0x0c | b'\r' => {}
            b'=' => padding += 1,
            _ if padding > 0 => return None,
            _ => {
                bits = (bits << 6 | u32::from(sextet(c, b'+', b'/')?)) & 0xff_ffff;
                count += 6;
                total += 1;
                if count >= 8 {
                    count -= 8;
                    out.push((bits >> count) as u8);
                }
            }
        }
    }
    let whole = (total + padding) % 4 == 0;
    let right = padding <= 2 && total % 4 != 1 && (padding == 0 || whole);
    right.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::{Encoding, forgiving_base64};

    #[test]
    fn decoding_stops_at_foreign_characters() {
        assert_eq!(Encoding::Hex.decode("0aFFx1"), [0x0a, 0xff]);
        assert_eq!(Encoding::Hex.decode("0aF"), [0x0a]);
        assert_eq!(Encoding::Base64.decode("aGVsbG8="), b"hello");
        assert_eq!(Encoding::Base64.decode("aGVsb"), b"hel");
        assert_eq!(Encoding::Base64Url.decode("-_8"), [0xfb, 0xff]);
        assert_eq!(Encoding::Base64.decode("-_8"), []);
    }

    #[test]
    fn encodings_are_known_by_nginx_names() {
        assert_eq!(Encoding::named("utf-8"), Some(Encoding::Utf8));
        assert_eq!(Encoding::named("latin1"), None);
        assert_eq!(Encoding::Base64Url.encode(&[0xfb, 0xff]), "-_8");
        assert_eq!(Encoding::Hex.encode(&[0, 0xab]), "00ab");
    }

    #[test]
    fn atob_forgives_space_and_missing_padding() {
        assert_eq!(forgiving_base64(" TQ = = ").as_deref(), Some(&b"M"[..]));
        assert_eq!(forgiving_base64("TQ").as_deref(), Some(&b"M"[..]));
        for wrong in ["T", "TQ=", "TQ==A", "TQ===", "T-Q="] {
            assert_eq!(forgiving_base64(wrong), None, "{wrong}");
        }
    }
}
