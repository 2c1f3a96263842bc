//! The frames of HTTP/2.

/// The first bytes of a client.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The head of a frame.
pub const HEAD_LEN: usize = 9;

/// A number of up to four bytes.
pub fn word(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Writes the head of a frame.
pub fn write_head(out: &mut Vec<u8>, len: usize, kind: u8, flags: u8, stream: u32) {
    out.extend_from_slice(&(len as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}
