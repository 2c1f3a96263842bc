use super::*;
use crate::h3::settings::{Settings, id};
use crate::h3::stream::{Kind, Opened};

fn parse(pairs: &[(u64, u64)]) -> Result<Settings, Fault> {
    let pairs = pairs.iter().flat_map(|(id, value)| [varint(*id), varint(*value)]);
    Settings::parse(&pairs.flatten().collect::<Vec<u8>>())
}

#[test]
fn settings_are_read_as_they_were_written() {
    let ours = Settings {
        table_capacity: 4096,
        blocked_streams: 16,
        section_max: Some(32_768),
        connect_protocol: true,
    };
    for settings in [ours, Settings::default()] {
        let mut wire = Vec::new();
        settings.write_preface(&mut wire);
        assert_eq!(wire[0], 0, "a control stream");
        let mut reader = crate::h3::control::Reader::new(Role::Client);
        let read = reader.next(&wire[1..]);
        assert_eq!(read, Ok((wire.len() - 1, crate::h3::control::Event::Settings(settings))));
    }
}

#[test]
fn settings_have_rules() {
    let is = |pairs: &[(u64, u64)], code| {
        let fault = parse(pairs).unwrap_err();
        assert_eq!((fault.ends, fault.code), (Ends::Connection, code), "{pairs:?}");
    };
    for of_http_2 in [0, 2, 3, 4, 5] {
        is(&[(1, 100), (of_http_2, 0)], Code::SettingsError);
    }
    for known in [1, 6, 7, 8] {
        is(&[(known, 1), (known, 1)], Code::SettingsError);
    }
    is(&[(id::ENABLE_CONNECT_PROTOCOL, 2)], Code::SettingsError);
    // Unknown ones are ignored, whatever they say.
    let unknown = [(0x21, 1), (0x33, 9), (0x21, 2), (u64::MAX >> 2, 3), (40, 1), (8, 0)];
    assert_eq!(parse(&unknown), Ok(Settings::default()));
    for cut in [&[1][..], &[1, 0x40], &[0x40], &[1, 1, 7]] {
        assert_eq!(Settings::parse(cut).unwrap_err().code, Code::FrameError);
    }
}

#[test]
fn a_peer_has_one_stream_of_a_type() {
    for role in [Role::Server, Role::Client] {
        let mut opened = Opened::new(role);
        for (number, kind) in [(0, Kind::Control), (2, Kind::Encoder), (3, Kind::Decoder)] {
            assert_eq!(opened.open(number), Ok(kind));
            assert_eq!(opened.open(number).unwrap_err().code, Code::StreamCreationError);
        }
        for number in [0x21, 4, 0x54, 1 << 61] {
            assert_eq!(opened.open(number), Ok(Kind::Unknown));
        }
        let push = opened.open(1).unwrap_err();
        let code = if role == Role::Server { Code::StreamCreationError } else { Code::IdError };
        assert_eq!((push.ends, push.code), (Ends::Connection, code));
    }
    assert_eq!(stream::CLOSED.code, Code::ClosedCriticalStream);
}

#[test]
fn the_type_of_a_stream_comes_in_pieces() {
    for number in [0, 2, 0x3f, 0x40, 0x1234_5678, u64::MAX >> 2] {
        let wire = [varint(number), vec![7; 3]].concat();
        let len = wire.len() - 3;
        assert_eq!(stream::Reader::default().next(&wire), (len, Some(number)));
        let mut reader = stream::Reader::default();
        for at in 0..len - 1 {
            assert_eq!(reader.next(&wire[at..=at]), (1, None));
        }
        assert_eq!(reader.next(&wire[len - 1..]), (1, Some(number)));
    }
    let mut out = Vec::new();
    for kind in [Kind::Control, Kind::Encoder, Kind::Decoder, Kind::Unknown] {
        out.clear();
        stream::write_kind(&mut out, kind);
        let (_, number) = stream::Reader::default().next(&out);
        assert_eq!(Opened::new(Role::Server).open(number.unwrap()), Ok(kind));
    }
}
