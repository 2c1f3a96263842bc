use super::*;
use crate::h3::control::{Event, FRAME_MAX, Reader};
use crate::h3::frame::kind;

/// The text of all events, or of the fault that ended them, with `wire` cut into pieces of `step`.
fn read(role: Role, wire: &[u8], step: usize) -> (Vec<String>, Option<Fault>) {
    let (mut reader, mut seen) = (Reader::new(role), Vec::new());
    for piece in wire.chunks(step) {
        let mut rest = piece;
        loop {
            match reader.next(rest) {
                Ok((used, event)) => {
                    rest = &rest[used..];
                    if event == Event::More {
                        assert!(rest.is_empty());
                        break;
                    }
                    seen.push(format!("{event:?}"));
                }
                Err(fault) => return (seen, Some(fault)),
            }
        }
    }
    (seen, None)
}

fn whole(role: Role, wire: &[u8]) -> (Vec<String>, Option<Fault>) {
    let whole = read(role, wire, wire.len());
    for step in 1..wire.len().min(100) {
        assert_eq!(read(role, wire, step), whole, "pieces of {step}");
    }
    whole
}

fn settings() -> Vec<u8> {
    frame(kind::SETTINGS, &[7, 16])
}

fn code(role: Role, wire: &[u8]) -> Option<Code> {
    let fault = whole(role, wire).1?;
    assert_eq!(fault.ends, Ends::Connection);
    Some(fault.code)
}

/// The fault of frames behind the settings.
fn behind(role: Role, frames: &[Vec<u8>]) -> Option<Code> {
    code(role, &[settings(), frames.concat()].concat())
}

#[test]
fn frames_come_whole_whatever_the_pieces() {
    let wire = [
        settings(),
        frame(0x21, b"grease"),
        frame(kind::MAX_PUSH_ID, &varint(5)),
        frame(kind::PRIORITY_UPDATE, b"\x08u=1, i"),
        frame(0x40_21, &[0; 5000]),
        frame(99, b""),
        frame(kind::GOAWAY, &varint(0x4000)),
        frame(kind::GOAWAY, &varint(3)),
    ];
    let (seen, fault) = whole(Role::Server, &wire.concat());
    assert_eq!(fault, None);
    let value = b"u=1, i";
    let expected = [
        "Settings(Settings { table_capacity: 0, blocked_streams: 16, section_max: None, \
         connect_protocol: false })",
        "Nothing",
        "Nothing",
        &format!("PriorityUpdate(8, {value:?})"),
        "Nothing",
        "Nothing",
        "GoAway(16384)",
        "GoAway(3)",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn settings_come_first_and_once() {
    for kind in [kind::DATA, kind::GOAWAY, kind::MAX_PUSH_ID, 0x21, 2] {
        assert_eq!(code(Role::Server, &frame(kind, &[0])), Some(Code::MissingSettings));
    }
    assert_eq!(behind(Role::Server, &[settings()]), Some(Code::FrameUnexpected));
    assert_eq!(code(Role::Client, &frame(kind::SETTINGS, &[1])), Some(Code::FrameError));
    assert_eq!(code(Role::Client, &frame(kind::SETTINGS, &[4, 1])), Some(Code::SettingsError));
    assert_eq!(code(Role::Client, &frame(kind::SETTINGS, &[])), None);
}

#[test]
fn frames_of_requests_and_of_http_2_do_not_come() {
    let unexpected =
        [kind::DATA, kind::HEADERS, kind::PUSH_PROMISE].into_iter().chain(kind::OF_HTTP_2);
    for kind in unexpected {
        for role in [Role::Server, Role::Client] {
            assert_eq!(behind(role, &[frame(kind, &[0])]), Some(Code::FrameUnexpected), "{kind}");
        }
    }
    let of_client = [kind::MAX_PUSH_ID, kind::PRIORITY_UPDATE, kind::PRIORITY_UPDATE_OF_PUSH];
    for kind in of_client {
        assert_eq!(behind(Role::Client, &[frame(kind, &[0])]), Some(Code::FrameUnexpected));
    }
}

#[test]
fn identifiers_have_rules() {
    let id = |role, frames: &[(u64, u64)]| {
        let frames: Vec<_> = frames.iter().map(|(kind, id)| frame(*kind, &varint(*id))).collect();
        behind(role, &frames)
    };
    let wrong = Some(Code::IdError);
    for role in [Role::Server, Role::Client] {
        assert_eq!(id(role, &[(kind::CANCEL_PUSH, 0)]), wrong);
        assert_eq!(id(role, &[(kind::GOAWAY, 4), (kind::GOAWAY, 8)]), wrong);
        assert_eq!(id(role, &[(kind::GOAWAY, 8), (kind::GOAWAY, 8), (kind::GOAWAY, 0)]), None);
    }
    assert_eq!(id(Role::Client, &[(kind::GOAWAY, 6)]), wrong);
    assert_eq!(id(Role::Server, &[(kind::GOAWAY, 6)]), None);
    assert_eq!(id(Role::Server, &[(kind::MAX_PUSH_ID, 6), (kind::MAX_PUSH_ID, 5)]), wrong);
    assert_eq!(id(Role::Server, &[(kind::MAX_PUSH_ID, 6), (kind::MAX_PUSH_ID, 6)]), None);
    assert_eq!(id(Role::Server, &[(kind::PRIORITY_UPDATE, 6)]), wrong);
    assert_eq!(id(Role::Server, &[(kind::PRIORITY_UPDATE_OF_PUSH, 0)]), wrong);
}

#[test]
fn frames_have_their_lengths() {
    let with_id = [kind::GOAWAY, kind::MAX_PUSH_ID, kind::CANCEL_PUSH];
    for kind in with_id {
        for payload in [&[][..], &[0x40], &[0, 0], &[0x40, 0, 0]] {
            let code = behind(Role::Server, &[frame(kind, payload)]);
            assert_eq!(code, Some(Code::FrameError), "{kind}: {payload:?}");
        }
    }
    assert_eq!(behind(Role::Server, &[frame(kind::PRIORITY_UPDATE, &[])]), Some(Code::FrameError));
    let mut head = settings();
    frame::write_head(&mut head, kind::PRIORITY_UPDATE, FRAME_MAX + 1);
    assert_eq!(code(Role::Server, &head), Some(Code::ExcessiveLoad));
    assert_eq!(Reader::new(Role::Server).end().code, Code::ClosedCriticalStream);
}

#[test]
fn what_is_written_is_read() {
    let mut wire = settings();
    frame::write_goaway(&mut wire, 1 << 40);
    assert_eq!(whole(Role::Client, &wire).0[1], format!("GoAway({})", 1u64 << 40));
    let mut wire = settings();
    frame::write_priority_update(&mut wire, 400, b"u=7");
    let value = b"u=7";
    assert_eq!(whole(Role::Server, &wire).0[1], format!("PriorityUpdate(400, {value:?})"));
}
