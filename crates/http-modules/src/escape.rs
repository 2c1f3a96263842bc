//! Escaping that several modules share.

/// Appends the two digits of a byte.
pub(crate) fn upper_hex(out: &mut Vec<u8>, b: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
}

/// Appends a text as it stands within the quotes of a JSON string. Bytes that are no UTF-8 stay.
pub(crate) fn json(text: &[u8], out: &mut Vec<u8>) {
    for &b in text {
        match b {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..0x20 => {
                out.extend_from_slice(b"\\u00");
                upper_hex(out, b);
            }
            _ => out.push(b),
        }
    }
}
