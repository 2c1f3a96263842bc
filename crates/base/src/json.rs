//! Text within JSON.

/// Appends a text as it stands within the quotes of a JSON string. Bytes that are no UTF-8 stay.
pub fn escape(text: &[u8], out: &mut Vec<u8>) {
    for &b in text {
        match b {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..0x20 => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
            }
            _ => out.push(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn what_json_forbids_is_escaped() {
        let mut out = Vec::new();
        escape(b"a\"\\\n\r\t\x08\x0c\x00\x1f\x7f\xc3\xa9\xff/", &mut out);
        assert_eq!(out, b"a\\\"\\\\\\n\\r\\t\\b\\f\\u0000\\u001F\x7f\xc3\xa9\xff/");
    }
}
