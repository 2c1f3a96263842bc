//! String literals (section 5.2): written Huffman-coded where that is shorter.

use super::{huffman, integer};

/// The flag of a Huffman-coded string.
pub(super) const HUFFMAN: u8 = 0x80;

/// Appends a value.
pub(super) fn write_value(text: &[u8], out: &mut Vec<u8>) {
    write(text, |byte| byte, out);
}

/// Appends a name in lower case.
pub(super) fn write_name(text: &[u8], out: &mut Vec<u8>) {
    write(text, |byte| byte.to_ascii_lowercase(), out);
}

/// Texts up to this length are encoded without being measured first: their length is one byte.
const SHORT_MAX: usize = 126;

#[inline]
fn write(text: &[u8], map: impl Fn(u8) -> u8 + Copy, out: &mut Vec<u8>) {
    if text.len() <= SHORT_MAX {
        let start = out.len();
        out.push(0);
        huffman::encode(text, map, out);
        let len = out.len() - start - 1;
        if len < text.len() {
            out[start] = HUFFMAN | len as u8;
            return;
        }
        out.truncate(start);
    } else {
        let len = huffman::encoded_len(text, map);
        if len < text.len() {
            out.reserve(len + 8);
            integer::write(HUFFMAN, 7, len, out);
            return huffman::encode(text, map, out);
        }
    }
    integer::write(0, 7, text.len(), out);
    out.extend(text.iter().map(|byte| map(*byte)));
}
