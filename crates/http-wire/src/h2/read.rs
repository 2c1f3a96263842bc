//! Bytes to frames (RFC 9113 sections 4 to 6).
//!
//! A DATA frame is given out in parts, as its bytes come; all others when they are whole. The
//! fragments of a header block are gathered here, so that no other frame comes between them.

use super::frame::{ErrorCode, FRAME_MAX, FrameHead, HEAD_LEN, flag, kind};

/// CONTINUATION frames that a header block may have, empty ones included.
const CONTINUATIONS_MAX: u32 = 64;

/// A frame that may not be received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The stream that ends by it; `None`: the connection does.
    pub stream: Option<u32>,
    /// The code for the peer.
    pub code: ErrorCode,
    /// The fault in words, for the log, behind `client sent `.
    pub what: &'static str,
}

impl Fault {
    /// A fault that ends the connection.
    #[cold]
    pub const fn connection(code: ErrorCode, what: &'static str) -> Fault {
        Fault { stream: None, code, what }
    }

    /// A fault that ends a stream.
    #[cold]
    pub const fn stream(stream: u32, code: ErrorCode, what: &'static str) -> Fault {
        Fault { stream: Some(stream), code, what }
    }
}

/// The priority of a stream after RFC 7540 section 5.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dependency {
    /// The stream that it depends on.
    pub on: u32,
    /// It takes the place of that stream's other dependents, which then depend on it.
    pub exclusive: bool,
    /// 1 to 256.
    pub weight: u16,
}

impl Dependency {
    fn parse(bytes: &[u8; 5]) -> Dependency {
        let [a, b, c, d, weight] = *bytes;
        let word = u32::from_be_bytes([a, b, c, d]);
        Dependency {
            on: word & 0x7fff_ffff,
            exclusive: word >> 31 == 1,
            weight: u16::from(weight) + 1,
        }
    }
}

/// A frame, or a part of one.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole header block.
    Headers {
        /// The stream.
        stream: u32,
        /// Nothing follows on the stream.
        end_stream: bool,
        /// The priority in it.
        dependency: Option<Dependency>,
        /// The compressed fields.
        block: &'a [u8],
    },
    /// A part of a DATA frame.
    Data {
        /// The stream.
        stream: u32,
        /// Its bytes.
        data: &'a [u8],
        /// Bytes for flow control: with those of the padding.
        flow: usize,
        /// The frame is over.
        whole: bool,
        /// Nothing follows on the stream.
        end_stream: bool,
    },
    /// PRIORITY.
    Priority(u32, Dependency),
    /// PRIORITY_UPDATE: the stream, and the value of its `Priority` field.
    PriorityUpdate(u32, &'a [u8]),
    /// RST_STREAM.
    Reset(u32, ErrorCode),
    /// SETTINGS, not acknowledged yet: see [`super::settings::Settings::take`].
    Settings(&'a [u8]),
    /// The peer knows our settings.
    SettingsAck,
    /// PING.
    Ping([u8; 8]),
    /// The answer to a PING.
    PingAck([u8; 8]),
    /// GOAWAY: the last stream that the peer processes, and the reason.
    GoAway(u32, ErrorCode),
    /// WINDOW_UPDATE; stream 0 is the connection.
    WindowUpdate(u32, u32),
    /// A frame of a type that is unknown, and ignored.
    Unknown,
}

/// The rest of a DATA frame.
#[derive(Clone, Copy, Debug)]
struct DataLeft {
    stream: u32,
    data: usize,
    padding: usize,
    end_stream: bool,
}

/// A header block of which fragments are missing.
#[derive(Debug)]
struct Begun {
    stream: u32,
    end_stream: bool,
    dependency: Option<Dependency>,
    continuations: u32,
}

/// Reads the frames of a connection.
#[derive(Debug)]
pub struct Reader {
    /// The longest payload; of frames that are given out whole, [`Reader::whole_max`].
    frame_max: usize,
    whole_max: usize,
    block_max: usize,
    data: Option<DataLeft>,
    begun: Option<Begun>,
    block: Vec<u8>,
}

type Read<'a> = Result<Option<(usize, Event<'a>)>, Fault>;

impl Reader {
    /// A reader behind the preface. Frames of more than `frame_max` bytes are refused, which is
    /// [`FRAME_MAX`] at least, and header blocks of more than `block_max`.
    pub fn new(frame_max: usize, block_max: usize) -> Reader {
        let frame_max = frame_max.max(FRAME_MAX);
        Reader {
            frame_max,
            whole_max: frame_max,
            block_max,
            data: None,
            begun: None,
            block: Vec::new(),
        }
    }

    /// Takes DATA frames of up to `max` bytes; they need no memory.
    pub fn with_data_max(mut self, max: usize) -> Reader {
        self.frame_max = self.frame_max.max(max);
        self
    }

    /// Whether a frame has begun and is not whole, as far as the reader knows by itself.
    pub fn is_inside(&self) -> bool {
        self.data.is_some() || self.begun.is_some()
    }

    /// Whether fragments of a header block are missing.
    pub fn awaits_continuation(&self) -> bool {
        self.begun.is_some()
    }

    /// The stream whose header block has begun, in `buf` or before, and is not whole.
    pub fn awaited(&self, buf: &[u8]) -> Option<u32> {
        if let Some(begun) = &self.begun {
            return Some(begun.stream);
        }
        let head = FrameHead::parse(buf).filter(|head| head.kind == kind::HEADERS)?;
        (self.data.is_none() && buf.len() < HEAD_LEN + head.len as usize).then_some(head.stream)
    }

    /// The longest payload of a frame that is taken: what we announce.
    pub fn frame_max(&self) -> usize {
        self.frame_max
    }

    /// The longest payload of a frame that is not DATA.
    pub fn whole_max(&self) -> usize {
        self.whole_max
    }

    /// The part that came of the header block in the frame at the start of `buf`.
    pub fn begun_block<'a>(&self, buf: &'a [u8]) -> Option<&'a [u8]> {
        self.awaited(buf).filter(|_| self.begun.is_none())?;
        let flags = FrameHead::parse(buf)?.flags & (flag::PADDED | flag::PRIORITY);
        buf.get(HEAD_LEN..).filter(|_| flags == 0)
    }

    /// The next frame, or part of one, at the start of `buf`, and the number of bytes that it
    /// takes. `None`: more bytes are needed, [`HEAD_LEN`] and [`Reader::whole_max`] in one piece at
    /// most.
    ///
    /// # Errors
    /// The frame may not be received. After a fault of a stream the reader must not be used on:
    /// only a connection's faults come from here.
    pub fn next<'a>(&'a mut self, buf: &'a [u8]) -> Read<'a> {
        if self.data.is_some() {
            return Ok(self.data(buf, 0, 0));
        }
        let Some(head) = FrameHead::parse(buf) else { return Ok(None) };
        let len = head.len as usize;
        if len > self.frame_max {
            return size("frame with too large length");
        }
        if len > self.whole_max && head.kind != kind::DATA {
            return calm("frame that is too large for its type");
        }
        if let Some(begun) = &self.begun
            && (head.kind != kind::CONTINUATION || head.stream != begun.stream)
        {
            return protocol("inappropriate frame while CONTINUATION was expected");
        }
        if head.kind == kind::DATA {
            return self.data_frame(&head, buf);
        }
        match head.kind {
            kind::PUSH_PROMISE => return protocol("PUSH_PROMISE frame"),
            kind::CONTINUATION if self.begun.is_none() => {
                return protocol("unexpected CONTINUATION frame");
            }
            _ => {}
        }
        let Some(payload) = buf.get(HEAD_LEN..HEAD_LEN + len) else { return Ok(None) };
        let used = HEAD_LEN + len;
        let event = match head.kind {
            kind::HEADERS => return self.headers(&head, payload, used),
            kind::CONTINUATION => return self.continuation(&head, payload, used),
            kind::WINDOW_UPDATE => window_update(&head, payload)?,
            kind::RST_STREAM => reset(&head, payload)?,
            kind::SETTINGS => settings(&head, payload)?,
            kind::PING => ping(&head, payload)?,
            kind::PRIORITY => priority(&head, payload)?,
            kind::PRIORITY_UPDATE => priority_update(&head, payload)?,
            kind::GOAWAY => goaway(&head, payload)?,
            _ => Event::Unknown,
        };
        Ok(Some((used, event)))
    }

    fn data_frame<'a>(&'a mut self, head: &FrameHead, buf: &'a [u8]) -> Read<'a> {
        if head.stream == 0 {
            return protocol("DATA frame with incorrect identifier");
        }
        let end_stream = head.flags & flag::END_STREAM != 0;
        let mut left =
            DataLeft { stream: head.stream, data: head.len as usize, padding: 0, end_stream };
        let mut used = HEAD_LEN;
        if head.flags & flag::PADDED != 0 {
            if left.data == 0 {
                return size("padded DATA frame with incorrect length 0");
            }
            let Some(padding) = buf.get(HEAD_LEN) else { return Ok(None) };
            left.padding = usize::from(*padding);
            if left.padding >= left.data {
                return protocol("padded DATA frame with incorrect length");
            }
            left.data -= 1 + left.padding;
            used += 1;
        }
        self.data = Some(left);
        Ok(self.data(buf, used, used - HEAD_LEN))
    }

    /// The part of a DATA frame's payload at `at`; `flow` bytes before it count, too.
    fn data<'a>(&mut self, buf: &'a [u8], at: usize, flow: usize) -> Option<(usize, Event<'a>)> {
        let left = self.data.as_mut()?;
        let there = buf.get(at..).unwrap_or_default();
        let n = left.data.min(there.len());
        let padding = left.padding.min(there.len() - n);
        left.data -= n;
        left.padding -= padding;
        let whole = left.data == 0 && left.padding == 0;
        if !whole && n + padding + at == 0 {
            return None;
        }
        let event = Event::Data {
            stream: left.stream,
            data: there.get(..n).unwrap_or_default(),
            flow: flow + n + padding,
            whole,
            end_stream: whole && left.end_stream,
        };
        if whole {
            self.data = None;
        }
        Some((at + n + padding, event))
    }

    fn headers<'a>(&'a mut self, head: &FrameHead, payload: &'a [u8], used: usize) -> Read<'a> {
        if head.stream == 0 {
            return protocol("HEADERS frame with incorrect identifier 0");
        }
        let Some(mut payload) = unpadded(head, payload) else {
            return protocol("HEADERS frame with incorrect padding");
        };
        let mut dependency = None;
        if head.flags & flag::PRIORITY != 0 {
            let Some((bytes, rest)) = payload.split_first_chunk::<5>() else {
                return size("HEADERS frame with incorrect length");
            };
            dependency = Some(Dependency::parse(bytes));
            payload = rest;
        }
        let end_stream = head.flags & flag::END_STREAM != 0;
        if head.flags & flag::END_HEADERS != 0 {
            let event =
                Event::Headers { stream: head.stream, end_stream, dependency, block: payload };
            return Ok(Some((used, event)));
        }
        self.block.clear();
        self.gather(payload)?;
        self.begun = Some(Begun { stream: head.stream, end_stream, dependency, continuations: 0 });
        Ok(Some((used, Event::Unknown)))
    }

    fn continuation<'a>(
        &'a mut self,
        head: &FrameHead,
        payload: &'a [u8],
        used: usize,
    ) -> Read<'a> {
        let Some(begun) = &mut self.begun else { return Ok(None) };
        begun.continuations += 1;
        if begun.continuations > CONTINUATIONS_MAX {
            return calm("too many CONTINUATION frames");
        }
        self.gather(payload)?;
        if head.flags & flag::END_HEADERS == 0 {
            return Ok(Some((used, Event::Unknown)));
        }
        let Some(begun) = self.begun.take() else { return Ok(None) };
        let event = Event::Headers {
            stream: begun.stream,
            end_stream: begun.end_stream,
            dependency: begun.dependency,
            block: &self.block,
        };
        Ok(Some((used, event)))
    }

    fn gather(&mut self, fragment: &[u8]) -> Result<(), Fault> {
        if self.block.len() + fragment.len() > self.block_max {
            return Err(Fault::connection(ErrorCode::ENHANCE_YOUR_CALM, "too large header block"));
        }
        self.block.extend_from_slice(fragment);
        Ok(())
    }

    /// Gives back the memory of header blocks that came in several frames.
    pub fn shrink(&mut self) {
        if self.begun.is_none() {
            self.block = Vec::new();
        }
    }
}

#[cold]
fn protocol<T>(what: &'static str) -> Result<T, Fault> {
    Err(Fault::connection(ErrorCode::PROTOCOL_ERROR, what))
}

#[cold]
fn size<T>(what: &'static str) -> Result<T, Fault> {
    Err(Fault::connection(ErrorCode::FRAME_SIZE_ERROR, what))
}

#[cold]
fn calm<T>(what: &'static str) -> Result<T, Fault> {
    Err(Fault::connection(ErrorCode::ENHANCE_YOUR_CALM, what))
}

/// The payload without its padding; `None` where that is longer than the payload.
fn unpadded<'a>(head: &FrameHead, payload: &'a [u8]) -> Option<&'a [u8]> {
    if head.flags & flag::PADDED == 0 {
        return Some(payload);
    }
    let (padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}

fn word(payload: &[u8]) -> Option<u32> {
    payload.try_into().ok().map(u32::from_be_bytes)
}

fn window_update<'a>(head: &FrameHead, payload: &'a [u8]) -> Result<Event<'a>, Fault> {
    match word(payload) {
        Some(n) => Ok(Event::WindowUpdate(head.stream, n & 0x7fff_ffff)),
        None => size("WINDOW_UPDATE frame with incorrect length"),
    }
}

fn reset<'a>(head: &FrameHead, payload: &'a [u8]) -> Result<Event<'a>, Fault> {
    match word(payload) {
        None => size("RST_STREAM frame with incorrect length"),
        Some(_) if head.stream == 0 => protocol("RST_STREAM frame with incorrect identifier"),
        Some(code) => Ok(Event::Reset(head.stream, ErrorCode(code))),
    }
}

fn settings<'a>(head: &FrameHead, payload: &'a [u8]) -> Result<Event<'a>, Fault> {
    if head.stream != 0 {
        return protocol("SETTINGS frame with incorrect identifier");
    }
    if head.flags & flag::ACK != 0 {
        return match payload.is_empty() {
            true => Ok(Event::SettingsAck),
            false => size("SETTINGS frame with the ACK flag and nonzero length"),
        };
    }
    if !payload.len().is_multiple_of(6) {
        return size("SETTINGS frame with incorrect length");
    }
    Ok(Event::Settings(payload))
}

fn ping<'a>(head: &FrameHead, payload: &'a [u8]) -> Result<Event<'a>, Fault> {
    let Ok(data) = payload.try_into() else {
        return size("PING frame with incorrect length");
    };
    if head.stream != 0 {
        return protocol("PING frame with incorrect identifier");
    }
    Ok(if head.flags & flag::ACK != 0 { Event::PingAck(data) } else { Event::Ping(data) })
}

fn priority<'a>(head: &FrameHead, payload: &'a [u8]) -> Result<Event<'a>, Fault> {
    let Ok(bytes) = payload.try_into() else {
        return size("PRIORITY frame with incorrect length");
    };
    if head.stream == 0 {
        return protocol("PRIORITY frame with incorrect identifier");
    }
    Ok(Event::Priority(head.stream, Dependency::parse(bytes)))
}

fn priority_update<'a>(head: &FrameHead, payload: &'a [u8]) -> Result<Event<'a>, Fault> {
    let Some((stream, value)) = payload.split_first_chunk::<4>() else {
        return size("PRIORITY_UPDATE frame with incorrect length");
    };
    let stream = u32::from_be_bytes(*stream) & 0x7fff_ffff;
    if head.stream != 0 || stream == 0 {
        return protocol("PRIORITY_UPDATE frame with incorrect identifier");
    }
    Ok(Event::PriorityUpdate(stream, value))
}

fn goaway<'a>(head: &FrameHead, payload: &'a [u8]) -> Result<Event<'a>, Fault> {
    let Some((parts, _)) = payload.split_first_chunk::<8>() else {
        return size("GOAWAY frame with incorrect length");
    };
    if head.stream != 0 {
        return protocol("GOAWAY frame with incorrect identifier");
    }
    let [a, b, c, d, e, f, g, h] = *parts;
    let last = u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff;
    Ok(Event::GoAway(last, ErrorCode(u32::from_be_bytes([e, f, g, h]))))
}
