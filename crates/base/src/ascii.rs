//! Byte-string helpers: numbers, case, hexadecimal.
//!
//! Configuration and protocol text is bytes, not UTF-8; these never look at it as `str`.

/// Compares two byte strings without regard to the case of ASCII letters.
#[inline]
pub fn eq_ignore_case(a: &[u8], b: &[u8]) -> bool {
    a.eq_ignore_ascii_case(b)
}

/// Says whether `text` begins with `prefix`, without regard to the case of ASCII letters.
#[inline]
pub fn starts_with_ignore_case(text: &[u8], prefix: &[u8]) -> bool {
    text.len() >= prefix.len() && text[..prefix.len()].eq_ignore_ascii_case(prefix)
}

/// Parses a non-empty string of decimal digits; no sign, no blank, nothing that overflows.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Parses decimal digits into a value no greater than `i64::MAX`, the range of nginx's integers.
#[inline]
pub fn parse_i63(text: &[u8]) -> Option<i64> {
    parse_u64(text).and_then(|value| i64::try_from(value).ok())
}

/// Parses a non-empty string of hexadecimal digits of either case.
pub fn parse_hex_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for &byte in text {
        if value >> 60 != 0 {
            return None;
        }
        value = value << 4 | u64::from(hex_digit(byte)?);
    }
    Some(value)
}

/// The value of one hexadecimal digit.
#[inline]
pub const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut n = 0;
    while n < 100 {
        pairs[n * 2] = b'0' + (n / 10) as u8;
        pairs[n * 2 + 1] = b'0' + (n % 10) as u8;
        n += 1;
    }
    pairs
};

/// The decimal text of a number, on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    buf: [u8; 20],
    start: u8,
}

impl Decimal {
    /// Formats `value`.
    #[inline]
    pub fn new(mut value: u64) -> Decimal {
        let mut buf = [0u8; 20];
        let mut at = buf.len();
        while value >= 100 {
            let pair = (value % 100) as usize * 2;
            value /= 100;
            at -= 2;
            buf[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
        }
        if value >= 10 {
            let pair = value as usize * 2;
            at -= 2;
            buf[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
        } else {
            at -= 1;
            buf[at] = b'0' + value as u8;
        }
        Decimal { buf, start: at as u8 }
    }

    /// The digits.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buf[usize::from(self.start)..]
    }
}

/// Appends the decimal text of `value`.
#[inline]
pub fn write_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(Decimal::new(value).as_bytes());
}

const LOWER_HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends milliseconds as seconds with three decimals: `1.250`.
pub fn write_millis(out: &mut Vec<u8>, ms: u64) {
    write_u64(out, ms / 1000);
    let digit = |unit: u64| b'0' + (ms / unit % 10) as u8;
    out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
}

/// Whether a variable's name stands for a field: `x_one` for `X-One` and `X_One`.
///
/// Inlined, because the lengths of most pairs differ.
#[inline]
pub fn is_name_of_field(variable: &[u8], field: &[u8]) -> bool {
    variable.len() == field.len() && is_same_name(variable, field)
}

fn is_same_name(variable: &[u8], field: &[u8]) -> bool {
    let same = |(v, f): (&u8, &u8)| v.to_ascii_lowercase() == AS_VARIABLE[usize::from(*f)];
    variable.iter().zip(field).all(same)
}

/// The bytes of a field's name as a variable's name has them, in lower case.
static AS_VARIABLE: [u8; 256] = {
    let mut table = [0; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = if b == b'-' as usize { b'_' } else { (b as u8).to_ascii_lowercase() };
        b += 1;
    }
    table
};

/// Appends each byte of `bytes` as two lower-case hexadecimal digits.
pub fn write_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() * 2);
    for &byte in bytes {
        out.push(LOWER_HEX[usize::from(byte >> 4)]);
        out.push(LOWER_HEX[usize::from(byte & 15)]);
    }
}

/// Appends `value` in lower-case hexadecimal without leading zeros (`0` for zero).
pub fn write_hex_u64(out: &mut Vec<u8>, value: u64) {
    let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(LOWER_HEX[(value >> (place * 4) & 15) as usize]);
    }
}

/// Decodes pairs of hexadecimal digits; `None` when a digit is wrong or one is left over.
pub fn parse_hex(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(hex_digit(*high)? << 4 | hex_digit(*low)?)).collect()
}

/// Cuts blanks (space, tab) off both ends, which is what HTTP calls optional white space.
#[inline]
pub fn trim(text: &[u8]) -> &[u8] {
    let mut text = text;
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Appends the two upper-case hexadecimal digits of a byte.
pub fn push_upper_hex(out: &mut Vec<u8>, b: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_numbers_round_trip_at_every_length() {
        let mut out = Vec::new();
        for value in [0, 1, 9, 10, 11, 99, 100, 101, 999, 1000, 12345, u64::MAX - 1, u64::MAX] {
            out.clear();
            write_u64(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
            assert_eq!(parse_u64(&out), Some(value));
        }
    }

    #[test]
    fn numbers_refuse_signs_blanks_and_overflow() {
        for bad in [&b""[..], b"-1", b"+1", b" 1", b"1 ", b"1a", b"18446744073709551616"] {
            assert_eq!(parse_u64(bad), None, "{bad:?}");
        }
        assert_eq!(parse_i63(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i63(b"9223372036854775808"), None);
    }

    #[test]
    fn milliseconds_have_three_decimals() {
        for (ms, text) in
            [(0, "0.000"), (7, "0.007"), (1_250, "1.250"), (1_763_632_800_999, "1763632800.999")]
        {
            let mut out = Vec::new();
            write_millis(&mut out, ms);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn variables_stand_for_fields() {
        for field in ["X-One", "x_one", "X-ONE"] {
            assert!(is_name_of_field(b"x_one", field.as_bytes()), "{field}");
        }
        for field in ["X-On", "X-One-", "XXOne", "X-Two"] {
            assert!(!is_name_of_field(b"x_one", field.as_bytes()), "{field}");
        }
        assert!(!is_name_of_field(b"x-one", b"x_one"));
    }

    #[test]
    fn hexadecimal() {
        let mut out = Vec::new();
        write_hex(&mut out, &[0, 0x7f, 0xff]);
        assert_eq!(out, b"007fff");
        assert_eq!(parse_hex(b"007FfF"), Some(vec![0, 0x7f, 0xff]));
        assert_eq!(parse_hex(b"0"), None);
        assert_eq!(parse_hex(b"0g"), None);
        for value in [0, 1, 15, 16, 0xdead_beef, u64::MAX] {
            out.clear();
            write_hex_u64(&mut out, value);
            assert_eq!(out, format!("{value:x}").as_bytes());
            assert_eq!(parse_hex_u64(&out), Some(value));
        }
        assert_eq!(parse_hex_u64(b"10000000000000000"), None);
    }

    #[test]
    fn case_and_blanks() {
        assert!(starts_with_ignore_case(b"Unix:/x", b"unix:"));
        assert!(!starts_with_ignore_case(b"uni", b"unix:"));
        assert_eq!(trim(b" \t a b \t"), b"a b");
        assert_eq!(trim(b" \t"), b"");
    }
}
