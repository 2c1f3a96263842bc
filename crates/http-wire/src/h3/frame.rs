//! Types of frames (RFC 9114 section 7.2), where frames begin and end, and writing them.

use super::varint;

/// Types of frames (RFC 9114 section 7.2, RFC 9218 section 7.2).
#[allow(missing_docs)]
pub mod kind {
    pub const DATA: u64 = 0;
    pub const HEADERS: u64 = 1;
    pub const CANCEL_PUSH: u64 = 3;
    pub const SETTINGS: u64 = 4;
    pub const PUSH_PROMISE: u64 = 5;
    pub const GOAWAY: u64 = 7;
    pub const MAX_PUSH_ID: u64 = 13;
    pub const PRIORITY_UPDATE: u64 = 0xf_0700;
    pub const PRIORITY_UPDATE_OF_PUSH: u64 = 0xf_0701;
    /// PRIORITY, PING, WINDOW_UPDATE and CONTINUATION of HTTP/2, which HTTP/3 forbids (RFC 9114
    /// section 7.2.8).
    pub const OF_HTTP_2: [u64; 4] = [2, 6, 8, 9];
}

/// Bytes of the longest head.
pub const HEAD_MAX: usize = 2 * varint::LEN_MAX;

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// See [`kind`].
    pub kind: u64,
    /// Bytes of payload.
    pub len: u64,
}

impl FrameHead {
    /// The head at the beginning of `input`, and its bytes, if all of it is there.
    #[inline]
    pub fn parse(input: &[u8]) -> Option<(FrameHead, usize)> {
        let (kind, kind_len) = varint::read(input)?;
        let (len, len_len) = varint::read(input.get(kind_len..)?)?;
        Some((FrameHead { kind, len }, kind_len + len_len))
    }
}

/// The place of a stream between the frames on it: in a head that is not whole, or in a payload.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// The beginning of a head.
    begun: [u8; HEAD_MAX],
    begun_len: u8,
    /// Bytes of the present frame's payload that did not come.
    pub left: u64,
}

impl Place {
    /// Whether a frame has begun and is not whole.
    pub fn is_inside(&self) -> bool {
        self.begun_len > 0 || self.left > 0
    }

    /// Reads the head of the next frame, whose payload follows the bytes that are used. `None`: all
    /// of `input` is.
    #[inline]
    pub fn head(&mut self, input: &[u8]) -> (usize, Option<FrameHead>) {
        if self.begun_len == 0
            && let Some((head, used)) = FrameHead::parse(input)
        {
            self.left = head.len;
            return (used, Some(head));
        }
        self.cut_head(input)
    }

    fn cut_head(&mut self, input: &[u8]) -> (usize, Option<FrameHead>) {
        for (at, byte) in input.iter().enumerate() {
            let len = usize::from(self.begun_len);
            if let Some(place) = self.begun.get_mut(len) {
                *place = *byte;
            }
            self.begun_len += 1;
            let begun = self.begun.get(..=len).unwrap_or(&self.begun);
            if let Some((head, _)) = FrameHead::parse(begun) {
                self.begun_len = 0;
                self.left = head.len;
                return (at + 1, Some(head));
            }
        }
        (input.len(), None)
    }

    /// Takes the part of the payload that lies in `input`: its bytes.
    #[inline]
    pub fn payload(&mut self, input: &[u8]) -> usize {
        let n = usize::try_from(self.left).map_or(input.len(), |left| left.min(input.len()));
        self.left -= n as u64;
        n
    }
}

/// The payload of a frame that is given out whole, gathered where it comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Gathered(Vec<u8>);

impl Gathered {
    /// Forgets the last frame.
    #[inline]
    pub fn begin(&mut self) {
        self.0 = Vec::new();
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.0.capacity()
    }

    /// Takes the next part of the payload: how much of `input` that is, and all of the payload
    /// where this is the end of it.
    #[inline]
    pub fn take<'a>(&'a mut self, place: &mut Place, input: &'a [u8]) -> (usize, Option<&'a [u8]>) {
        let n = place.payload(input);
        let part = input.get(..n).unwrap_or_default();
        let is_whole = place.left == 0;
        if is_whole && self.0.is_empty() {
            return (n, Some(part));
        }
        self.0.extend_from_slice(part);
        (n, is_whole.then_some(&self.0[..]))
    }
}

/// Writes a frame's head.
#[inline]
pub fn write_head(out: &mut Vec<u8>, kind: u64, len: u64) {
    varint::write(kind, out);
    varint::write(len, out);
}

/// Bytes of a HEADERS frame's head, unless its section has more than [`SECTION_SHORT`].
const SECTION_ROOM: usize = 3;

/// The longest section whose length has two bytes.
const SECTION_SHORT: usize = 0x3fff;

/// Begins a HEADERS frame whose section is appended next; [`end_section`] takes the result.
#[inline]
pub fn begin_section(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[kind::HEADERS as u8, 0, 0]);
    at
}

/// Ends a HEADERS frame: `at` is what [`begin_section`] gave. Its section is what was appended
/// since.
#[inline]
pub fn end_section(out: &mut Vec<u8>, at: usize) {
    let start = at + SECTION_ROOM;
    let len = out.len().saturating_sub(start);
    if len > SECTION_SHORT {
        return end_long_section(out, at, len);
    }
    // The shortest form is not asked for.
    let bytes = (0x4000 | len as u16).to_be_bytes();
    if let Some(room) = out.get_mut(at + 1..start) {
        room.copy_from_slice(&bytes);
    }
}

#[cold]
fn end_long_section(out: &mut Vec<u8>, at: usize, len: usize) {
    let mut bytes = Vec::new();
    varint::write(len as u64, &mut bytes);
    out.splice(at + 1..at + SECTION_ROOM, bytes);
}

/// Writes a GOAWAY frame: of a server's, requests on streams from `id` on were not and will not be
/// processed.
pub fn write_goaway(out: &mut Vec<u8>, id: u64) {
    write_head(out, kind::GOAWAY, varint::len(id) as u64);
    varint::write(id, out);
}

/// Writes a PRIORITY_UPDATE frame of a client for a request: `value` is that of a `Priority` field.
pub fn write_priority_update(out: &mut Vec<u8>, stream: u64, value: &[u8]) {
    write_head(out, kind::PRIORITY_UPDATE, (varint::len(stream) + value.len()) as u64);
    varint::write(stream, out);
    out.extend_from_slice(value);
}
