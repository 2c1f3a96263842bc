//! Escaping that several modules share.

pub(crate) use base::json::escape as json;

/// Appends the two digits of a byte.
pub(crate) fn upper_hex(out: &mut Vec<u8>, b: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
}
