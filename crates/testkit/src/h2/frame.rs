//! Frames (RFC 9113, section 4), well-formed and otherwise.

/// Types of frames.
pub mod kind {
    #![allow(missing_docs, reason = "the RFC's names")]
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
pub mod flag {
    #![allow(missing_docs, reason = "the RFC's names")]
    pub const ACK: u8 = 0x1;
    pub const END_STREAM: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// Error codes of RST_STREAM and GOAWAY.
pub mod code {
    #![allow(missing_docs, reason = "the RFC's names")]
    pub const NO_ERROR: u32 = 0;
    pub const PROTOCOL_ERROR: u32 = 1;
    pub const INTERNAL_ERROR: u32 = 2;
    pub const FLOW_CONTROL_ERROR: u32 = 3;
    pub const SETTINGS_TIMEOUT: u32 = 4;
    pub const STREAM_CLOSED: u32 = 5;
    pub const FRAME_SIZE_ERROR: u32 = 6;
    pub const REFUSED_STREAM: u32 = 7;
    pub const CANCEL: u32 = 8;
    pub const COMPRESSION_ERROR: u32 = 9;
    pub const CONNECT_ERROR: u32 = 10;
    pub const ENHANCE_YOUR_CALM: u32 = 11;
    pub const INADEQUATE_SECURITY: u32 = 12;
    pub const HTTP_1_1_REQUIRED: u32 = 13;
}

/// Identifiers of settings.
pub mod setting {
    #![allow(missing_docs, reason = "the RFC's names")]
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// The first bytes of a client.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame; nothing about it is checked, so that tests can send wrong ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// One of [`kind`], or any other.
    pub kind: u8,
    /// Of [`flag`], or any other.
    pub flags: u8,
    /// The stream, or 0 for the connection.
    pub stream: u32,
    /// The bytes behind the head.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Any frame.
    pub fn new(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Self {
        Self { kind, flags, stream, payload: payload.as_ref().to_vec() }
    }

    /// DATA.
    pub fn data(stream: u32, bytes: impl AsRef<[u8]>, end: bool) -> Self {
        Self::new(kind::DATA, if end { flag::END_STREAM } else { 0 }, stream, bytes)
    }

    /// HEADERS with the whole of an encoded block.
    pub fn headers(stream: u32, block: impl AsRef<[u8]>, end: bool) -> Self {
        let end = if end { flag::END_STREAM } else { 0 };
        Self::new(kind::HEADERS, flag::END_HEADERS | end, stream, block)
    }

    /// HEADERS and CONTINUATION frames: one for each part of an encoded block.
    pub fn headers_in_parts(stream: u32, parts: &[&[u8]], end: bool) -> Vec<Self> {
        let last = parts.len().saturating_sub(1);
        let frame = |(n, part): (usize, &&[u8])| {
            let end_headers = if n == last { flag::END_HEADERS } else { 0 };
            let end = if end { flag::END_STREAM } else { 0 };
            match n {
                0 => Self::new(kind::HEADERS, end_headers | end, stream, part),
                _ => Self::new(kind::CONTINUATION, end_headers, stream, part),
            }
        };
        parts.iter().enumerate().map(frame).collect()
    }

    /// PRIORITY.
    pub fn priority(stream: u32, depends_on: u32, exclusive: bool, weight: u8) -> Self {
        let depends_on = depends_on | if exclusive { 1 << 31 } else { 0 };
        let payload = [&depends_on.to_be_bytes()[..], &[weight]].concat();
        Self::new(kind::PRIORITY, 0, stream, payload)
    }

    /// PRIORITY_UPDATE: the value of a `Priority` field for a stream.
    pub fn priority_update(stream: u32, value: &str) -> Self {
        let payload = [&stream.to_be_bytes()[..], value.as_bytes()].concat();
        Self::new(kind::PRIORITY_UPDATE, 0, 0, payload)
    }

    /// RST_STREAM.
    pub fn reset(stream: u32, code: u32) -> Self {
        Self::new(kind::RST_STREAM, 0, stream, code.to_be_bytes())
    }

    /// SETTINGS.
    pub fn settings(settings: &[(u16, u32)]) -> Self {
        let entry =
            |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()[..]].concat();
        let payload: Vec<u8> = settings.iter().flat_map(entry).collect();
        Self::new(kind::SETTINGS, 0, 0, payload)
    }

    /// The acknowledgement of SETTINGS.
    pub fn settings_ack() -> Self {
        Self::new(kind::SETTINGS, flag::ACK, 0, [])
    }

    /// PING.
    pub fn ping(payload: [u8; 8]) -> Self {
        Self::new(kind::PING, 0, 0, payload)
    }

    /// GOAWAY.
    pub fn goaway(last_stream: u32, code: u32) -> Self {
        let payload = [last_stream.to_be_bytes(), code.to_be_bytes()].concat();
        Self::new(kind::GOAWAY, 0, 0, payload)
    }

    /// WINDOW_UPDATE.
    pub fn window_update(stream: u32, increment: u32) -> Self {
        Self::new(kind::WINDOW_UPDATE, 0, stream, increment.to_be_bytes())
    }

    /// Padded with so many zeros; for DATA and HEADERS.
    pub fn padded(mut self, padding: u8) -> Self {
        self.flags |= flag::PADDED;
        self.payload.insert(0, padding);
        self.payload.resize(self.payload.len() + usize::from(padding), 0);
        self
    }

    /// With other flags in addition.
    pub fn with(mut self, flags: u8) -> Self {
        self.flags |= flags;
        self
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// As on the wire.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_with_length(self.payload.len() as u32)
    }

    /// As on the wire, but for a length of its own in the head.
    fn encode_with_length(&self, length: u32) -> Vec<u8> {
        let mut bytes = length.to_be_bytes()[1..].to_vec();
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// Takes the first frame of the bytes, once it is whole.
    pub fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let head = bytes.first_chunk::<9>()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        let (kind, flags) = (head[3], head[4]);
        let payload = bytes.get(9..9 + length)?.to_vec();
        bytes.drain(..9 + length);
        Some(Self { kind, flags, stream, payload })
    }

    /// The settings of a SETTINGS frame.
    pub(crate) fn settings_of(&self) -> Vec<(u16, u32)> {
        let entry = |e: &[u8]| {
            (u16::from_be_bytes([e[0], e[1]]), u32::from_be_bytes([e[2], e[3], e[4], e[5]]))
        };
        self.payload.chunks_exact(6).map(entry).collect()
    }

    /// Four bytes of the payload as a number; 0 where it is too short.
    pub fn number(&self, at: usize) -> u32 {
        let bytes = self.payload.get(at..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map_or(0, |b| u32::from_be_bytes(*b))
    }

    /// The payload without padding and a HEADERS frame's priority; an error where it is too short.
    pub(super) fn content(&self) -> Result<&[u8], String> {
        let mut content = &self.payload[..];
        let short = || format!("{} of stream {} is too short", self.name(), self.stream);
        if self.has(flag::PADDED) {
            let (&padding, rest) = content.split_first().ok_or_else(short)?;
            let length = rest.len().checked_sub(usize::from(padding)).ok_or_else(short)?;
            content = &rest[..length];
        }
        if self.kind == kind::HEADERS && self.has(flag::PRIORITY) {
            content = content.get(5..).ok_or_else(short)?;
        }
        Ok(content)
    }

    /// Its type's name.
    pub fn name(&self) -> String {
        let names = [
            "DATA",
            "HEADERS",
            "PRIORITY",
            "RST_STREAM",
            "SETTINGS",
            "PUSH_PROMISE",
            "PING",
            "GOAWAY",
            "WINDOW_UPDATE",
            "CONTINUATION",
        ];
        let name = names.get(usize::from(self.kind));
        name.map_or_else(|| format!("frame of type {}", self.kind), ToString::to_string)
    }
}
