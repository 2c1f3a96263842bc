//! Frames of HTTP/2 as they arrive: a slow reader of the whole says the same, whatever the pieces.

use http_wire::h2::frame::{ErrorCode, FrameHead, HEAD_LEN, flag, kind};
use http_wire::h2::read::{Dependency, Event, Reader};

/// The longest payload, which is the protocol's least, that of DATA, and the longest header block.
const FRAME_MAX: usize = 16_384;
const DATA_MAX: usize = 17_000;
const BLOCK_MAX: usize = 300;

/// CONTINUATION frames of a block.
const CONTINUATIONS_MAX: usize = 64;

/// The frames of a connection.
#[derive(Debug, PartialEq)]
enum Seen {
    /// The text of an event.
    Event(String),
    /// The parts of a DATA frame that came, together.
    Data { stream: u32, data: Vec<u8>, flow: usize, whole: bool, end: bool },
    /// The end.
    Fault(u32),
}

/// The first byte says whether frames or plain bytes follow, the second one chooses the pieces.
pub fn run(data: &[u8]) {
    let [mode, pieces, rest @ ..] = data else { return };
    let wire = if mode & 1 == 0 { rest.to_vec() } else { frames(rest) };
    let expected = slow(&wire);
    assert_eq!(read(&wire, wire.len().max(1), 0), expected, "in one piece");
    assert_eq!(read(&wire, 1, 0), expected, "byte by byte");
    assert_eq!(read(&wire, usize::from(*pieces) + 1, usize::from(*mode)), expected, "in pieces");
}

/// Frames of records: type, flags, stream, length, payload. The length may lie.
fn frames(mut rest: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    while let [what, flags, stream, len, payload @ ..] = rest {
        let times = if what & 0x80 == 0 { 1 } else { 80 };
        let (payload, behind) = payload.split_at(usize::from(*len).min(payload.len()));
        // One in 16 says another length than it has.
        let len = if what & 0x70 == 0x70 { usize::from(*len) * 70 } else { payload.len() };
        let kind = if what & 0xf == 15 { kind::PRIORITY_UPDATE } else { what & 0xf };
        let head = FrameHead { len: len as u32, kind, flags: *flags, stream: (*stream).into() };
        for _ in 0..times {
            wire.extend_from_slice(&head.bytes());
            wire.extend_from_slice(payload);
        }
        rest = behind;
    }
    wire
}

/// Reads in pieces, the first of which is longer by some bytes.
fn read(wire: &[u8], piece: usize, more: usize) -> Vec<Seen> {
    let mut reader = Reader::new(FRAME_MAX, BLOCK_MAX).with_data_max(DATA_MAX);
    let (first, others) = wire.split_at(more.min(wire.len()));
    let (mut held, mut seen) = (Vec::new(), Vec::new());
    for piece in std::iter::once(first).chain(others.chunks(piece)) {
        held.extend_from_slice(piece);
        loop {
            match reader.next(&held) {
                Ok(Some((used, event))) => {
                    assert!(used > 0, "an event of no bytes");
                    note(&mut seen, &event);
                    held.drain(..used);
                }
                Ok(None) => {
                    assert!(held.len() < HEAD_LEN + reader.whole_max(), "more than a frame");
                    break;
                }
                Err(fault) => {
                    assert_eq!(fault.stream, None);
                    seen.push(Seen::Fault(fault.code.0));
                    return seen;
                }
            }
        }
        let data = matches!(seen.last(), Some(Seen::Data { whole: false, .. }));
        assert_eq!(reader.is_inside(), data || reader.awaits_continuation());
        assert!(!reader.awaits_continuation() || reader.awaited(&held).is_some());
        if let Some(block) = reader.begun_block(&held) {
            assert_eq!(block, &held[HEAD_LEN..]);
        }
    }
    seen
}

fn note(seen: &mut Vec<Seen>, event: &Event<'_>) {
    let Event::Data { stream, data, flow, whole, end_stream } = event else {
        return seen.push(Seen::Event(format!("{event:?}")));
    };
    assert!(*whole || !end_stream, "the end of a stream before that of its frame");
    if let Some(Seen::Data { stream: of, data: before, flow: sum, whole: over, end }) =
        seen.last_mut().filter(|last| matches!(last, Seen::Data { whole: false, .. }))
    {
        assert_eq!(of, stream);
        before.extend_from_slice(data);
        *sum += flow;
        (*over, *end) = (*whole, *end_stream);
        return;
    }
    let (data, flow) = (data.to_vec(), *flow);
    seen.push(Seen::Data { stream: *stream, data, flow, whole: *whole, end: *end_stream });
}

/// A block that has begun: its stream, whether that ends, its priority, bytes, and CONTINUATIONs.
type Block = (u32, bool, Option<Dependency>, Vec<u8>, usize);

/// The frames of the whole, by RFC 9113 section 6.
fn slow(wire: &[u8]) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut rest = wire;
    let mut block: Option<Block> = None;
    while rest.len() >= HEAD_LEN {
        let len = usize::from(rest[0]) << 16 | usize::from(rest[1]) << 8 | usize::from(rest[2]);
        let (kind, flags) = (rest[3], rest[4]);
        let stream = u32::from_be_bytes([rest[5] & 0x7f, rest[6], rest[7], rest[8]]);
        let there = &rest[HEAD_LEN..rest.len().min(HEAD_LEN + len)];
        let whole = there.len() == len;
        if let Some(code) = refused((len, kind, stream), block.as_ref()) {
            seen.push(Seen::Fault(code.0));
            break;
        }
        let is_data = kind == kind::DATA;
        if !whole && !is_data {
            break;
        }
        let taken = match kind {
            kind::DATA => data((stream, flags, len), there),
            kind::HEADERS => headers((stream, flags), there, &mut block),
            kind::CONTINUATION => continuation(flags, there, &mut block),
            _ => other((kind, flags, stream), there).map(|event| Some(text(&event))),
        };
        match taken {
            Ok(None) => break,
            Ok(Some(event)) => seen.push(event),
            Err(code) => {
                seen.push(Seen::Fault(code.0));
                break;
            }
        }
        if !whole {
            break;
        }
        rest = &rest[HEAD_LEN + len..];
    }
    seen
}

fn text(event: &Event<'_>) -> Seen {
    Seen::Event(format!("{event:?}"))
}

/// The fault that a frame's head shows by itself.
fn refused((len, kind, stream): (usize, u8, u32), block: Option<&Block>) -> Option<ErrorCode> {
    if len > DATA_MAX {
        return Some(ErrorCode::FRAME_SIZE_ERROR);
    }
    if len > FRAME_MAX && kind != kind::DATA {
        return Some(ErrorCode::ENHANCE_YOUR_CALM);
    }
    let fits = match block {
        Some(block) => kind == kind::CONTINUATION && stream == block.0,
        None => kind != kind::CONTINUATION && kind != kind::PUSH_PROMISE,
    };
    (!fits || kind == kind::DATA && stream == 0).then_some(ErrorCode::PROTOCOL_ERROR)
}

type Taken = Result<Option<Seen>, ErrorCode>;

fn data((stream, flags, len): (u32, u8, usize), there: &[u8]) -> Taken {
    let (mut data, mut padding) = (len, 0);
    let mut bytes = there;
    if flags & flag::PADDED != 0 {
        if len == 0 {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        let Some((first, behind)) = there.split_first() else { return Ok(None) };
        padding = usize::from(*first);
        data = (len - 1).checked_sub(padding).ok_or(ErrorCode::PROTOCOL_ERROR)?;
        bytes = behind;
    }
    assert_eq!(data + padding + (there.len() - bytes.len()), len);
    let whole = there.len() == len;
    let end = whole && flags & flag::END_STREAM != 0;
    let data = bytes[..data.min(bytes.len())].to_vec();
    Ok(Some(Seen::Data { stream, data, flow: there.len(), whole, end }))
}

fn headers((stream, flags): (u32, u8), payload: &[u8], block: &mut Option<Block>) -> Taken {
    if stream == 0 {
        return Err(ErrorCode::PROTOCOL_ERROR);
    }
    let mut fields = payload;
    if flags & flag::PADDED != 0 {
        let (padding, rest) = fields.split_first().ok_or(ErrorCode::PROTOCOL_ERROR)?;
        let len = rest.len().checked_sub((*padding).into()).ok_or(ErrorCode::PROTOCOL_ERROR)?;
        fields = &rest[..len];
    }
    let mut dependency = None;
    if flags & flag::PRIORITY != 0 {
        dependency = Some(priority(fields.get(..5).ok_or(ErrorCode::FRAME_SIZE_ERROR)?));
        fields = &fields[5..];
    }
    let end_stream = flags & flag::END_STREAM != 0;
    if flags & flag::END_HEADERS != 0 {
        let event = Event::Headers { stream, end_stream, dependency, block: fields };
        return Ok(Some(text(&event)));
    }
    if fields.len() > BLOCK_MAX {
        return Err(ErrorCode::ENHANCE_YOUR_CALM);
    }
    *block = Some((stream, end_stream, dependency, fields.to_vec(), 0));
    Ok(Some(text(&Event::Unknown)))
}

fn continuation(flags: u8, payload: &[u8], block: &mut Option<Block>) -> Taken {
    let Some((stream, end_stream, dependency, mut fields, count)) = block.take() else {
        return Err(ErrorCode::PROTOCOL_ERROR);
    };
    fields.extend_from_slice(payload);
    if count == CONTINUATIONS_MAX || fields.len() > BLOCK_MAX {
        return Err(ErrorCode::ENHANCE_YOUR_CALM);
    }
    if flags & flag::END_HEADERS == 0 {
        *block = Some((stream, end_stream, dependency, fields, count + 1));
        return Ok(Some(text(&Event::Unknown)));
    }
    Ok(Some(text(&Event::Headers { stream, end_stream, dependency, block: &fields })))
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

fn priority(bytes: &[u8]) -> Dependency {
    let on = number(&bytes[..4]);
    Dependency {
        on: on & 0x7fff_ffff,
        exclusive: on & 0x8000_0000 != 0,
        weight: u16::from(bytes[4]) + 1,
    }
}

fn other((kind, flags, stream): (u8, u8, u32), payload: &[u8]) -> Result<Event<'_>, ErrorCode> {
    let (len, ack) = (payload.len(), flags & flag::ACK != 0);
    let has_length = match kind {
        kind::WINDOW_UPDATE | kind::RST_STREAM => len == 4,
        kind::SETTINGS => stream != 0 || if ack { len == 0 } else { len % 6 == 0 },
        kind::PING => len == 8,
        kind::PRIORITY => len == 5,
        kind::PRIORITY_UPDATE => len >= 4,
        kind::GOAWAY => len >= 8,
        _ => true,
    };
    if !has_length {
        return Err(ErrorCode::FRAME_SIZE_ERROR);
    }
    let is_placed = match kind {
        kind::RST_STREAM | kind::PRIORITY => stream != 0,
        kind::SETTINGS | kind::PING | kind::GOAWAY => stream == 0,
        kind::PRIORITY_UPDATE => stream == 0 && number(&payload[..4]) & 0x7fff_ffff != 0,
        _ => true,
    };
    if !is_placed {
        return Err(ErrorCode::PROTOCOL_ERROR);
    }
    Ok(match kind {
        kind::WINDOW_UPDATE => Event::WindowUpdate(stream, number(payload) & 0x7fff_ffff),
        kind::RST_STREAM => Event::Reset(stream, ErrorCode(number(payload))),
        kind::SETTINGS if ack => Event::SettingsAck,
        kind::SETTINGS => Event::Settings(payload),
        kind::PING => {
            let data: [u8; 8] = payload.try_into().expect("eight bytes");
            if ack { Event::PingAck(data) } else { Event::Ping(data) }
        }
        kind::PRIORITY => Event::Priority(stream, priority(payload)),
        kind::PRIORITY_UPDATE => {
            Event::PriorityUpdate(number(&payload[..4]) & 0x7fff_ffff, &payload[4..])
        }
        kind::GOAWAY => {
            let code = ErrorCode(number(&payload[4..8]));
            Event::GoAway(number(&payload[..4]) & 0x7fff_ffff, code)
        }
        _ => Event::Unknown,
    })
}
