//! The layout of frames (RFC 9113 sections 4.1 and 6).

/// Bytes that every client sends first (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether the first bytes of a connection may be those of HTTP/2: all of the preface, or a part.
pub fn is_preface(first: &[u8]) -> Option<bool> {
    let n = first.len().min(PREFACE.len());
    (first[..n] == PREFACE[..n]).then_some(n == PREFACE.len())
}

/// Bytes of a frame before its payload.
pub const HEAD_LEN: usize = 9;

/// The longest payload that every peer takes, and the one that we announce.
pub const FRAME_MAX: usize = 16_384;

/// Types of frames (RFC 9113 section 6; RFC 9218 section 7.1).
#[allow(missing_docs)]
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
    pub const PRIORITY_UPDATE: u8 = 16;
}

/// Flags of frames.
#[allow(missing_docs)]
pub mod flag {
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// The reason for the end of a stream or a connection (RFC 9113 section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorCode(pub u32);

#[allow(missing_docs)]
impl ErrorCode {
    pub const NO_ERROR: ErrorCode = ErrorCode(0);
    pub const PROTOCOL_ERROR: ErrorCode = ErrorCode(1);
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(2);
    pub const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode(3);
    pub const SETTINGS_TIMEOUT: ErrorCode = ErrorCode(4);
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(5);
    pub const FRAME_SIZE_ERROR: ErrorCode = ErrorCode(6);
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(7);
    pub const CANCEL: ErrorCode = ErrorCode(8);
    pub const COMPRESSION_ERROR: ErrorCode = ErrorCode(9);
    pub const CONNECT_ERROR: ErrorCode = ErrorCode(10);
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(11);
    pub const INADEQUATE_SECURITY: ErrorCode = ErrorCode(12);
    pub const HTTP_1_1_REQUIRED: ErrorCode = ErrorCode(13);
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// Bytes of payload, below 2^24.
    pub len: u32,
    /// See [`kind`].
    pub kind: u8,
    /// See [`flag`].
    pub flags: u8,
    /// The stream, below 2^31; 0 is the connection.
    pub stream: u32,
}

impl FrameHead {
    /// The head at the start of `buf`, if all of it is there.
    #[inline]
    pub fn parse(buf: &[u8]) -> Option<FrameHead> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *buf.first_chunk::<HEAD_LEN>()?;
        Some(FrameHead {
            len: u32::from_be_bytes([0, l0, l1, l2]),
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
        })
    }

    /// The head as it is sent.
    #[inline]
    pub fn bytes(&self) -> [u8; HEAD_LEN] {
        let [_, l0, l1, l2] = self.len.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [l0, l1, l2, self.kind, self.flags, s0, s1, s2, s3]
    }
}

/// Writes a frame's head.
#[inline]
pub fn write_head(out: &mut Vec<u8>, len: usize, kind: u8, flags: u8, stream: u32) {
    let head = FrameHead { len: len as u32, kind, flags, stream };
    out.extend_from_slice(&head.bytes());
}

/// Writes a SETTINGS frame of pairs of identifier and value.
pub fn write_settings(out: &mut Vec<u8>, pairs: &[(u16, u32)]) {
    write_head(out, pairs.len() * 6, kind::SETTINGS, 0, 0);
    for (id, value) in pairs {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Writes the acknowledgement of a SETTINGS frame.
pub fn write_settings_ack(out: &mut Vec<u8>) {
    write_head(out, 0, kind::SETTINGS, flag::ACK, 0);
}

/// Writes a PING frame, or the answer to one.
pub fn write_ping(out: &mut Vec<u8>, data: &[u8; 8], ack: bool) {
    write_head(out, data.len(), kind::PING, if ack { flag::ACK } else { 0 }, 0);
    out.extend_from_slice(data);
}

/// Writes a RST_STREAM frame.
pub fn write_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    write_head(out, 4, kind::RST_STREAM, 0, stream);
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Writes a GOAWAY frame without debug data. Streams above `last` were not and will not be
/// processed.
pub fn write_goaway(out: &mut Vec<u8>, last: u32, code: ErrorCode) {
    write_head(out, 8, kind::GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Writes a WINDOW_UPDATE frame.
pub fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write_head(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Frames a header block, the last `len` bytes of `out`, whose first frame's head stands before it
/// with room of [`HEAD_LEN`] bytes at `at`: a HEADERS frame, and CONTINUATION frames where it is
/// longer than a frame of `max` bytes. Returns the number of bytes that frames' heads take.
pub fn frame_block(out: &mut Vec<u8>, at: usize, stream: u32, flags: u8, max: usize) -> usize {
    let start = at + HEAD_LEN;
    let len = out.len().saturating_sub(start);
    let first = len.min(max);
    let end = if len <= max { flag::END_HEADERS } else { 0 };
    let head = FrameHead { len: first as u32, kind: kind::HEADERS, flags: flags | end, stream };
    if let Some(room) = out.get_mut(at..start) {
        room.copy_from_slice(&head.bytes());
    }
    if len <= max {
        return HEAD_LEN;
    }
    let rest = out.split_off(start + first);
    let mut heads = HEAD_LEN;
    let mut parts = rest.chunks(max).peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_none() { flag::END_HEADERS } else { 0 };
        write_head(out, part.len(), kind::CONTINUATION, flags, stream);
        out.extend_from_slice(part);
        heads += HEAD_LEN;
    }
    heads
}
