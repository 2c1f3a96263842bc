//! String literals (RFC 7541 section 5.2): written Huffman-coded where that is shorter.

use super::{huffman, integer};

/// The flag of a Huffman-coded string whose length has a byte to itself.
pub(crate) const HUFFMAN: u8 = 0x80;

/// Appends a value.
pub(crate) fn write_value(text: &[u8], out: &mut Vec<u8>) {
    write(text, |byte| byte, out);
}

/// Appends a name in lower case.
pub(crate) fn write_name(text: &[u8], out: &mut Vec<u8>) {
    write(text, |byte| byte.to_ascii_lowercase(), out);
}

/// Appends a name in lower case whose length has the lower `bits` of its first byte, and the bit
/// above these says that it is Huffman-coded; `flags` are the upper ones.
pub(crate) fn write_prefixed_name(flags: u8, bits: u32, text: &[u8], out: &mut Vec<u8>) {
    write_measured(flags, bits, text, |byte| byte.to_ascii_lowercase(), out);
}

/// Texts up to this length are encoded without being measured first: their length is one byte.
const SHORT_MAX: usize = 126;

#[inline]
fn write(text: &[u8], map: impl Fn(u8) -> u8 + Copy, out: &mut Vec<u8>) {
    if text.len() > SHORT_MAX {
        return write_measured(0, 7, text, map, out);
    }
    let start = out.len();
    out.push(0);
    huffman::encode(text, map, out);
    let len = out.len() - start - 1;
    if len < text.len() {
        out[start] = HUFFMAN | len as u8;
        return;
    }
    out.truncate(start);
    write_plain(0, 7, text, map, out);
}

#[inline]
fn write_measured(
    flags: u8,
    bits: u32,
    text: &[u8],
    map: impl Fn(u8) -> u8 + Copy,
    out: &mut Vec<u8>,
) {
    let len = huffman::encoded_len(text, map);
    if len < text.len() {
        out.reserve(len + 8);
        integer::write(flags | 1 << bits, bits, len, out);
        return huffman::encode(text, map, out);
    }
    write_plain(flags, bits, text, map, out);
}

#[inline]
fn write_plain(flags: u8, bits: u32, text: &[u8], map: impl Fn(u8) -> u8, out: &mut Vec<u8>) {
    integer::write(flags, bits, text.len(), out);
    out.extend(text.iter().map(|byte| map(*byte)));
}
