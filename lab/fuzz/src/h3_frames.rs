//! The streams of HTTP/3 as they arrive: a slow reader of the whole says the same, whatever the
//! pieces.

use http_wire::h3::frame::{self, kind};
use http_wire::h3::settings::Settings;
use http_wire::h3::{Code, Ends, Fault, Role, control, message, stream};

const SECTION_MAX: usize = 500;

/// What a stream has said.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// The text of an event.
    Event(String),
    /// Data that came without another event between, and whether it is known whole.
    Data(Vec<u8>),
    /// The end by a fault.
    Fault(Ends, Code),
}

/// The first byte says who we are, what stream it is, and whether frames or plain bytes follow; the
/// second one chooses the pieces, and what the caller says of heads.
pub fn run(data: &[u8]) {
    let [mode, pieces, rest @ ..] = data else { return };
    let role = if mode & 1 == 0 { Role::Server } else { Role::Client };
    let wire = if mode & 2 == 0 { rest.to_vec() } else { frames(rest) };
    let way = Way { role, interim: pieces & 0x40 != 0, tunnel: pieces & 0x80 != 0 };
    let piece = usize::from(pieces & 0x3f) + 1;
    let read = |piece| match mode >> 2 & 3 {
        0 => read_kind(&way, &wire, piece),
        1 => read_control(&way, &wire, piece),
        _ => read_message(&way, &wire, piece),
    };
    let expected = match mode >> 2 & 3 {
        0 => slow_kind(&way, &wire),
        1 => slow_control(&way, &wire),
        _ => slow_message(&way, &wire),
    };
    assert_eq!(read(wire.len().max(1)), expected, "in one piece");
    assert_eq!(read(1), expected, "byte by byte");
    assert_eq!(read(piece), expected, "in pieces");
}

/// How a stream is read.
struct Way {
    role: Role,
    /// The first head is that of an interim response, or of a tunnel.
    interim: bool,
    tunnel: bool,
}

/// Types of frames that the records of an input name.
const KINDS: [u64; 16] = [
    kind::DATA,
    kind::HEADERS,
    kind::SETTINGS,
    kind::GOAWAY,
    kind::MAX_PUSH_ID,
    kind::CANCEL_PUSH,
    kind::PUSH_PROMISE,
    kind::PRIORITY_UPDATE,
    kind::PRIORITY_UPDATE_OF_PUSH,
    0x21,
    0x1f * 100_000_000 + 0x21,
    2,
    6,
    8,
    9,
    99,
];

/// Frames of records: type, length, payload. One in eight is longer than its payload, or repeats
/// it.
fn frames(mut rest: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    while let [what, len, payload @ ..] = rest {
        let (payload, behind) = payload.split_at(usize::from(*len).min(payload.len()));
        let times = if what & 0xf0 == 0xe0 { 9 } else { 1 };
        let more = if what & 0xf0 == 0xf0 { 3 } else { 0 };
        let kind = KINDS[usize::from(what & 15)];
        frame::write_head(&mut wire, kind, (payload.len() * times + more) as u64);
        wire.extend(payload.repeat(times));
        rest = behind;
    }
    wire
}

fn text(seen: &mut Vec<Seen>, event: impl std::fmt::Debug) {
    seen.push(Seen::Event(format!("{event:?}")));
}

fn data(seen: &mut Vec<Seen>, more: &[u8]) {
    match seen.last_mut() {
        Some(Seen::Data(before)) => before.extend_from_slice(more),
        _ => seen.push(Seen::Data(more.to_vec())),
    }
}

fn fault(seen: &mut Vec<Seen>, fault: Fault) {
    assert!(!fault.what.is_empty());
    seen.push(Seen::Fault(fault.ends, fault.code));
}

fn read_kind(way: &Way, wire: &[u8], piece: usize) -> Vec<Seen> {
    let (mut reader, mut opened) = (stream::Reader::default(), stream::Opened::new(way.role));
    let mut seen = Vec::new();
    for mut piece in wire.chunks(piece) {
        // As if one stream began behind the other.
        while !piece.is_empty() {
            let (used, number) = reader.next(piece);
            piece = &piece[used..];
            match number.map(|number| opened.open(number)) {
                None => assert!(piece.is_empty()),
                Some(Ok(kind)) => text(&mut seen, kind),
                Some(Err(e)) => fault(&mut seen, e),
            }
        }
    }
    seen
}

fn read_control(way: &Way, wire: &[u8], piece: usize) -> Vec<Seen> {
    let (mut reader, mut seen) = (control::Reader::new(way.role), Vec::new());
    for mut piece in wire.chunks(piece) {
        loop {
            match reader.next(piece) {
                Ok((used, control::Event::More)) => {
                    assert_eq!(used, piece.len());
                    break;
                }
                Ok((used, event)) => {
                    text(&mut seen, event);
                    piece = &piece[used..];
                }
                Err(e) => {
                    fault(&mut seen, e);
                    return seen;
                }
            }
        }
    }
    seen
}

fn read_message(way: &Way, wire: &[u8], piece: usize) -> Vec<Seen> {
    let (mut reader, mut seen) = (message::Reader::new(way.role, SECTION_MAX), Vec::new());
    let mut heads = 0;
    for mut piece in wire.chunks(piece) {
        loop {
            let (used, event) = match reader.next(piece) {
                Ok(read) => read,
                Err(e) => {
                    fault(&mut seen, e);
                    return seen;
                }
            };
            piece = &piece[used..];
            match event {
                message::Event::More => {
                    assert!(piece.is_empty());
                    break;
                }
                message::Event::Data(len) => {
                    assert!(len > 0);
                    data(&mut seen, &piece[..len]);
                    piece = &piece[len..];
                    continue;
                }
                _ => text(&mut seen, event),
            }
            if let message::Event::Head(_) = event {
                heads += 1;
                if heads == 1 && way.interim {
                    reader.interim();
                } else if way.tunnel {
                    reader.tunnel();
                }
            }
        }
    }
    if let Err(e) = reader.end() {
        fault(&mut seen, e);
    }
    seen
}

/// An integer, by RFC 9000 section 16.
fn integer(input: &mut &[u8]) -> Option<u64> {
    let len = 1usize << (input.first()? >> 6);
    let bytes = input.get(..len)?;
    *input = &input[len..];
    let all = bytes.iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    Some(all & (u64::MAX >> (64 - 8 * len + 2)))
}

fn slow_kind(way: &Way, wire: &[u8]) -> Vec<Seen> {
    let (mut rest, mut seen, mut before) = (wire, Vec::new(), Vec::new());
    while let Some(number) = integer(&mut rest) {
        let creation = Seen::Fault(Ends::Connection, Code::StreamCreationError);
        match number {
            1 if way.role == Role::Server => seen.push(creation),
            1 => seen.push(Seen::Fault(Ends::Connection, Code::IdError)),
            0 | 2 | 3 if before.contains(&number) => seen.push(creation),
            0 => text(&mut seen, stream::Kind::Control),
            2 => text(&mut seen, stream::Kind::Encoder),
            3 => text(&mut seen, stream::Kind::Decoder),
            _ => text(&mut seen, stream::Kind::Unknown),
        }
        before.push(number);
    }
    seen
}

const OF_HTTP_2: [u64; 4] = [2, 6, 8, 9];

/// A frame of a whole stream: its type, the length that it says, and what is there of it.
fn next<'a>(rest: &mut &'a [u8]) -> Option<(u64, u64, &'a [u8])> {
    let mut input = *rest;
    let (kind, len) = (integer(&mut input)?, integer(&mut input)?);
    let there = usize::try_from(len).map_or(input.len(), |len| len.min(input.len()));
    let (payload, behind) = input.split_at(there);
    *rest = behind;
    Some((kind, len, payload))
}

fn slow_control(way: &Way, wire: &[u8]) -> Vec<Seen> {
    let (mut rest, mut seen) = (wire, Vec::new());
    let (mut first, mut goaway, mut push) = (true, u64::MAX, 0);
    while let Some((kind, len, payload)) = next(&mut rest) {
        let is_known = [3, 4, 7, 13, 0xf0700, 0xf0701].contains(&kind);
        let is_server = way.role == Role::Server;
        let refused = if first != (kind == 4) {
            Some(if first { Code::MissingSettings } else { Code::FrameUnexpected })
        } else if [0, 1, 5].contains(&kind) || OF_HTTP_2.contains(&kind) {
            Some(Code::FrameUnexpected)
        } else if [13, 0xf0700, 0xf0701].contains(&kind) && !is_server {
            Some(Code::FrameUnexpected)
        } else {
            (is_known && len > 4096).then_some(Code::ExcessiveLoad)
        };
        first = false;
        if let Some(code) = refused {
            seen.push(Seen::Fault(Ends::Connection, code));
            break;
        }
        if !is_known {
            text(&mut seen, control::Event::Nothing);
            continue;
        }
        if (payload.len() as u64) < len {
            break;
        }
        let read = if kind == 4 {
            settings(payload)
        } else {
            ids(kind, payload, is_server, &mut goaway, &mut push)
        };
        match read {
            Ok(event) => seen.push(Seen::Event(event)),
            Err(code) => {
                seen.push(Seen::Fault(Ends::Connection, code));
                break;
            }
        }
    }
    seen
}

/// The parameters, each of which may come once.
fn settings(payload: &[u8]) -> Result<String, Code> {
    let (mut rest, mut pairs) = (payload, Vec::new());
    while !rest.is_empty() {
        let id = integer(&mut rest).ok_or(Code::FrameError)?;
        let value = integer(&mut rest).ok_or(Code::FrameError)?;
        let twice = id < 32 && pairs.iter().any(|(other, _)| *other == id);
        if [0, 2, 3, 4, 5].contains(&id) || twice || id == 8 && value > 1 {
            return Err(Code::SettingsError);
        }
        pairs.push((id, value));
    }
    let of = |id| pairs.iter().find(|(other, _)| *other == id).map(|(_, value)| *value);
    let settings = Settings {
        table_capacity: of(1).unwrap_or(0),
        blocked_streams: of(7).unwrap_or(0),
        section_max: of(6),
        connect_protocol: of(8) == Some(1),
    };
    let mut wire = Vec::new();
    settings.write_preface(&mut wire);
    let mut reader = control::Reader::new(Role::Server);
    let again = reader.next(&wire[1..]);
    assert_eq!(again, Ok((wire.len() - 1, control::Event::Settings(settings))));
    Ok(format!("{:?}", control::Event::Settings(settings)))
}

fn ids(
    kind: u64,
    payload: &[u8],
    is_server: bool,
    goaway: &mut u64,
    push: &mut u64,
) -> Result<String, Code> {
    let mut rest = payload;
    let id = integer(&mut rest).ok_or(Code::FrameError)?;
    if kind < 0xf0700 && !rest.is_empty() {
        return Err(Code::FrameError);
    }
    let event = match kind {
        7 if id <= *goaway && (is_server || id % 4 == 0) => {
            *goaway = id;
            control::Event::GoAway(id)
        }
        13 if id >= *push => {
            *push = id;
            control::Event::Nothing
        }
        0xf0700 if id % 4 == 0 => control::Event::PriorityUpdate(id, rest),
        _ => return Err(Code::IdError),
    };
    Ok(format!("{event:?}"))
}

fn slow_message(way: &Way, wire: &[u8]) -> Vec<Seen> {
    let (mut rest, mut seen) = (wire, Vec::new());
    // Sections that came, without those of interim heads, and whether data alone may come.
    let (mut heads, mut sections, mut tunnel) = (0, 0, false);
    loop {
        let before = rest;
        let Some((kind, len, payload)) = next(&mut rest) else {
            if !before.is_empty() {
                seen.push(Seen::Fault(Ends::Connection, Code::FrameError));
            } else if sections == 0 {
                let is_server = way.role == Role::Server;
                let code = if is_server { Code::RequestIncomplete } else { Code::MessageError };
                seen.push(Seen::Fault(Ends::Stream, code));
            }
            return seen;
        };
        // The head of a request is passed over, and answered.
        let is_excess = kind == 1
            && len > SECTION_MAX as u64
            && (sections, tunnel, way.role) == (0, false, Role::Server);
        let refused = match kind {
            _ if is_excess => None,
            0 if sections != 1 => Some((Ends::Connection, Code::FrameUnexpected)),
            1 if sections > 1 || tunnel => Some((Ends::Connection, Code::FrameUnexpected)),
            1 if len == 0 => Some((Ends::Connection, Code::FrameError)),
            1 if len > SECTION_MAX as u64 => Some((Ends::Stream, Code::ExcessiveLoad)),
            5 if way.role == Role::Client => Some((Ends::Connection, Code::IdError)),
            2..=9 | 13 | 0xf0700 | 0xf0701 => Some((Ends::Connection, Code::FrameUnexpected)),
            _ => None,
        };
        if let Some((ends, code)) = refused {
            seen.push(Seen::Fault(ends, code));
            return seen;
        }
        let is_whole = payload.len() as u64 == len;
        match kind {
            0 if len > 0 => {
                if !payload.is_empty() {
                    data(&mut seen, payload);
                }
            }
            1 if is_excess => {
                sections += 1;
                text(&mut seen, message::Event::Excess);
            }
            1 if is_whole => {
                sections += 1;
                if sections == 2 {
                    text(&mut seen, message::Event::Trailers(payload));
                } else {
                    text(&mut seen, message::Event::Head(payload));
                    heads += 1;
                    if heads == 1 && way.interim {
                        sections = 0;
                    } else {
                        tunnel = way.tunnel;
                    }
                }
            }
            1 => {}
            _ => text(&mut seen, message::Event::Nothing),
        }
        if !is_whole {
            seen.push(Seen::Fault(Ends::Connection, Code::FrameError));
            return seen;
        }
    }
}
