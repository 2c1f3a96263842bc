//! The two ways of escaping that values of mail are sent in.

/// Appends a byte as two capital hex digits behind `prefix`.
pub(crate) fn push_hex(prefix: u8, byte: u8, out: &mut Vec<u8>) {
    let digit = |n: u8| if n < 10 { b'0' + n } else { b'A' + n - 10 };
    out.extend_from_slice(&[prefix, digit(byte >> 4), digit(byte & 15)]);
}

/// Appends a value of the authentication protocol: control characters, space and `%` as `%20`.
/// nginx leaves DEL, which no field may hold (RFC 9110 section 5.5).
pub(crate) fn escape_percent(value: &[u8], out: &mut Vec<u8>) {
    for byte in value {
        match byte {
            0..=b' ' | 0x7f | b'%' => push_hex(b'%', *byte, out),
            byte => out.push(*byte),
        }
    }
}

/// Appends a value in xtext (RFC 3461 section 4): `+`, `=` and all but printable ASCII as `+20`.
pub(crate) fn escape_xtext(value: &[u8], out: &mut Vec<u8>) {
    for byte in value {
        match byte {
            b'+' | b'=' => push_hex(b'+', *byte, out),
            b'!'..=b'~' => out.push(*byte),
            byte => push_hex(b'+', *byte, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{escape_percent, escape_xtext};

    #[test]
    fn what_is_escaped() {
        for byte in 0..=255u8 {
            let (mut percent, mut xtext) = (Vec::new(), Vec::new());
            escape_percent(&[byte], &mut percent);
            escape_xtext(&[byte], &mut xtext);
            let hex = format!("{byte:02X}");
            let plain = byte > b' ' && byte != 0x7f && byte != b'%';
            let want = if plain { vec![byte] } else { [b"%", hex.as_bytes()].concat() };
            assert_eq!(percent, want, "{byte}");
            let plain = byte.is_ascii_graphic() && byte != b'+' && byte != b'=';
            let want = if plain { vec![byte] } else { [b"+", hex.as_bytes()].concat() };
            assert_eq!(xtext, want, "{byte}");
        }
    }
}
