use super::*;
use crate::h3::frame::kind;
use crate::h3::message::{Event, Reader};

const SECTION_MAX: usize = 20_000;

/// What was read: sections, with `H` or `T` before them, and data that came one behind the other.
#[derive(Debug, PartialEq, Default)]
struct Seen {
    parts: Vec<(char, Vec<u8>)>,
    nothing: usize,
    fault: Option<Fault>,
}

fn read(role: Role, wire: &[u8], step: usize) -> Seen {
    let (mut reader, mut seen) = (Reader::new(role, SECTION_MAX), Seen::default());
    for piece in wire.chunks(step) {
        let mut rest = piece;
        loop {
            let (used, event) = match reader.next(rest) {
                Ok(read) => read,
                Err(fault) => {
                    seen.fault = Some(fault);
                    return seen;
                }
            };
            rest = &rest[used..];
            match event {
                Event::More => break assert!(rest.is_empty()),
                Event::Head(section) => seen.parts.push(('H', section.to_vec())),
                Event::Trailers(section) => seen.parts.push(('T', section.to_vec())),
                Event::Nothing => seen.nothing += 1,
                Event::Excess => seen.parts.push(('E', Vec::new())),
                Event::Data(n) => {
                    assert!(n > 0);
                    let (data, behind) = rest.split_at(n);
                    rest = behind;
                    match seen.parts.last_mut() {
                        Some(('D', before)) => before.extend_from_slice(data),
                        _ => seen.parts.push(('D', data.to_vec())),
                    }
                }
            }
        }
    }
    seen.fault = reader.end().err();
    seen
}

fn whole(role: Role, wire: &[u8]) -> Seen {
    let whole = read(role, wire, wire.len().max(1));
    for step in 1..wire.len().min(100) {
        assert_eq!(read(role, wire, step), whole, "pieces of {step}");
    }
    whole
}

fn code(wire: &[Vec<u8>]) -> Option<(Ends, Code)> {
    whole(Role::Server, &wire.concat()).fault.map(|fault| (fault.ends, fault.code))
}

fn connection(code: Code) -> Option<(Ends, Code)> {
    Some((Ends::Connection, code))
}

fn head() -> Vec<u8> {
    frame(kind::HEADERS, b"head")
}

fn data() -> Vec<u8> {
    frame(kind::DATA, b"some data")
}

#[test]
fn a_message_has_a_head_data_and_trailers() {
    let grease = || frame(0x21 + 0x1f * 1_000_000, b"whatever");
    let wire = [
        grease(),
        head(),
        grease(),
        data(),
        frame(kind::DATA, b""),
        frame(0x21, b""),
        data(),
        frame(kind::HEADERS, &[7; 300]),
        grease(),
    ];
    for role in [Role::Server, Role::Client] {
        let seen = whole(role, &wire.concat());
        assert_eq!((seen.nothing, seen.fault), (5, None));
        let expected = [
            ('H', b"head".to_vec()),
            ('D', b"some datasome data".to_vec()),
            ('T', [7; 300].to_vec()),
        ];
        assert_eq!(seen.parts, expected);
    }
}

#[test]
fn frames_come_in_their_order() {
    let unexpected = connection(Code::FrameUnexpected);
    assert_eq!(code(&[data()]), unexpected);
    assert_eq!(code(&[frame(kind::DATA, b"")]), unexpected);
    assert_eq!(code(&[head(), head(), data()]), unexpected);
    assert_eq!(code(&[head(), head(), head()]), unexpected);
    assert_eq!(code(&[head(), data(), head(), data()]), unexpected);
    assert_eq!(code(&[head(), data(), head()]), None);
    assert_eq!(code(&[head(), head()]), None);
    assert_eq!(code(&[head()]), None);
}

#[test]
fn frames_of_the_connection_and_of_http_2_do_not_come() {
    let of_connection = [
        kind::CANCEL_PUSH,
        kind::SETTINGS,
        kind::GOAWAY,
        kind::MAX_PUSH_ID,
        kind::PRIORITY_UPDATE,
        kind::PRIORITY_UPDATE_OF_PUSH,
        kind::PUSH_PROMISE,
    ];
    for kind in of_connection.into_iter().chain(kind::OF_HTTP_2) {
        for before in [vec![], head(), [head(), data(), head()].concat()] {
            let wire = [before, frame(kind, b"\0")];
            assert_eq!(code(&wire), connection(Code::FrameUnexpected), "{kind}");
            let at_client = whole(Role::Client, &wire.concat()).fault.unwrap();
            let is_push = kind == kind::PUSH_PROMISE;
            let expected = if is_push { Code::IdError } else { Code::FrameUnexpected };
            assert_eq!((at_client.ends, at_client.code), (Ends::Connection, expected));
        }
    }
}

#[test]
fn a_stream_ends_between_frames() {
    let wire = [head(), data(), frame(0x21, b"abc")].concat();
    let ends = [head().len(), head().len() + data().len(), wire.len()];
    for len in 0..=wire.len() {
        let fault = whole(Role::Server, &wire[..len]).fault;
        let expected = match len {
            0 => Some((Ends::Stream, Code::RequestIncomplete)),
            _ if ends.contains(&len) => None,
            _ => connection(Code::FrameError),
        };
        assert_eq!(fault.map(|fault| (fault.ends, fault.code)), expected, "{len}");
    }
    let fault = whole(Role::Client, &[]).fault.unwrap();
    assert_eq!((fault.ends, fault.code), (Ends::Stream, Code::MessageError));
    let fault = whole(Role::Server, &frame(0x21, b"abc")).fault.unwrap();
    assert_eq!(fault.code, Code::RequestIncomplete);
}

#[test]
fn sections_have_limits() {
    let fits = frame(kind::HEADERS, &[1; SECTION_MAX]);
    assert_eq!(code(&[fits]), None);
    // A request is answered, and what follows its head is read.
    let large = frame(kind::HEADERS, &[1; SECTION_MAX + 1]);
    let seen = whole(Role::Server, &[large.clone(), data()].concat());
    assert_eq!((seen.nothing, seen.fault), (0, None));
    assert_eq!(seen.parts, [('E', vec![]), ('D', b"some data".to_vec())]);
    let excessive = Some((Ends::Stream, Code::ExcessiveLoad));
    assert_eq!(code(&[head(), large.clone()]), excessive, "trailers");
    let fault = whole(Role::Client, &large).fault.unwrap();
    assert_eq!(Some((fault.ends, fault.code)), excessive, "a response");
    assert_eq!(code(&[frame(kind::HEADERS, b"")]), connection(Code::FrameError));
}

#[test]
fn a_response_may_have_interim_heads() {
    let mut reader = Reader::new(Role::Client, 100);
    assert!(!reader.has_begun());
    let (n, event) = reader.next(&[1, 2, 0, 1, 1]).unwrap();
    assert_eq!((n, event), (4, Event::Head(&[0, 1])));
    reader.interim();
    assert!(!reader.has_begun());
    assert_eq!(reader.next(&[1, 2, 0, 2]), Ok((4, Event::Head(&[0, 2]))));
    assert!(reader.has_begun());
    assert_eq!(reader.next(&[1, 2, 0, 3]), Ok((4, Event::Trailers(&[0, 3]))));
    reader.interim();
    assert_eq!(reader.next(&[0, 1, 0]).unwrap_err().code, Code::FrameUnexpected);
    let mut reader = Reader::new(Role::Client, 100);
    reader.next(&[1, 2, 0, 1]).unwrap();
    reader.interim();
    assert_eq!(reader.end().unwrap_err().code, Code::MessageError);
    assert_eq!(reader.next(&[0, 1, 0]).unwrap_err().code, Code::FrameUnexpected);
}

#[test]
fn a_tunnel_has_data_alone() {
    let mut reader = Reader::new(Role::Server, 100);
    reader.next(&[1, 2, 0, 1]).unwrap();
    reader.tunnel();
    assert_eq!(reader.next(&[0, 2, 0, 1]), Ok((2, Event::Data(2))));
    assert_eq!(reader.next(&[0x21, 0]), Ok((2, Event::Nothing)));
    assert_eq!(reader.next(&[1, 2, 0, 1]).unwrap_err().code, Code::FrameUnexpected);
}

#[test]
fn a_section_is_framed_whatever_its_length() {
    for len in [0, 1, 63, 64, 100, 0x3fff, 0x4000, 19_000] {
        let section: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let mut out = b"before".to_vec();
        let at = frame::begin_section(&mut out);
        out.extend_from_slice(&section);
        frame::end_section(&mut out, at);
        let (head, used) = frame::FrameHead::parse(&out[6..]).unwrap();
        assert_eq!(head, frame::FrameHead { kind: kind::HEADERS, len: len as u64 });
        assert_eq!(&out[6 + used..], &section);
    }
}

#[test]
fn data_of_any_length_is_left_to_the_caller() {
    let mut reader = Reader::new(Role::Server, 100);
    reader.next(&[1, 2, 0, 1]).unwrap();
    let mut wire = Vec::new();
    frame::write_head(&mut wire, kind::DATA, varint::MAX);
    let used = wire.len();
    wire.push(1);
    assert_eq!(reader.next(&wire), Ok((used, Event::Data(1))));
    assert_eq!(reader.next(&[1, 2, 3]), Ok((0, Event::Data(3))));
    assert_eq!(reader.next(&[]), Ok((0, Event::More)));
}
