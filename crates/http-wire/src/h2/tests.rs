use super::frame::{self, ErrorCode, FrameHead, HEAD_LEN, flag, kind};
use super::read::{Event, Fault, Reader};
use super::settings::{Settings, id};
use super::window::{MAX, Overflow, Window};
use crate::fields::request::{Asked, HeadBuilder, NoHead};
use crate::h1::{FieldId, Head, Limits, Method, Span, Version};

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write_head(&mut out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
    out
}

/// The text of all events, or of the fault that ended them, with `buf` cut into pieces of `step`.
fn read(buf: &[u8], step: usize) -> Vec<String> {
    let mut reader = Reader::new(0, 100_000);
    let mut held = Vec::new();
    let mut seen = Vec::new();
    for piece in buf.chunks(step) {
        held.extend_from_slice(piece);
        loop {
            match reader.next(&held) {
                Ok(Some((used, event))) => {
                    seen.push(format!("{event:?}"));
                    held.drain(..used);
                }
                Ok(None) => break,
                Err(fault) => {
                    seen.push(format!("{fault:?}"));
                    return seen;
                }
            }
        }
    }
    seen
}

fn fault(buf: &[u8]) -> Fault {
    let mut reader = Reader::new(0, 20_000);
    let mut at = 0;
    loop {
        match reader.next(&buf[at..]) {
            Ok(Some((used, _))) => at += used,
            Ok(None) => panic!("no fault"),
            Err(fault) => return fault,
        }
    }
}

#[test]
fn heads_round_trip() {
    let head = FrameHead { len: 0x12_3456, kind: 7, flags: 0x2d, stream: 0x7654_3210 };
    assert_eq!(FrameHead::parse(&head.bytes()), Some(head));
    assert_eq!(FrameHead::parse(&head.bytes()[..8]), None);
}

#[test]
fn frames_come_whole_whatever_the_pieces() {
    let mut wire =
        frame(kind::HEADERS, flag::PADDED | flag::PRIORITY, 1, b"\x02\0\0\0\x05\x0fab..");
    wire.extend(frame(kind::CONTINUATION, flag::END_HEADERS, 1, b"cd"));
    wire.extend(frame(kind::PING, 0, 0, b"12345678"));
    wire.extend(frame(kind::WINDOW_UPDATE, 0, 0, &[0x80, 0, 0, 9]));
    wire.extend(frame(99, 0xff, 7, b"whatever"));
    wire.extend(frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x05u=1"));
    wire.extend(frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    let whole = read(&wire, wire.len());
    assert_eq!(whole.len(), 7);
    assert!(whole[1].contains("block: [97, 98, 99, 100]"), "{}", whole[1]);
    assert!(whole[1].contains("on: 5, exclusive: false, weight: 16"), "{}", whole[1]);
    for step in 1..wire.len() {
        assert_eq!(read(&wire, step), whole, "pieces of {step}");
    }
}

#[test]
fn data_is_given_out_as_it_comes() {
    let wire = frame(kind::DATA, flag::PADDED | flag::END_STREAM, 3, b"\x04hello....");
    for step in 1..=wire.len() {
        let mut reader = Reader::new(0, 100);
        let (mut held, mut data, mut flow, mut ended) = (Vec::new(), Vec::new(), 0, false);
        for piece in wire.chunks(step) {
            held.extend_from_slice(piece);
            while let Some((used, event)) = reader.next(&held).unwrap() {
                let Event::Data { data: part, flow: n, end_stream, .. } = event else { panic!() };
                data.extend_from_slice(part);
                flow += n;
                assert!(!ended, "nothing follows the end");
                ended = end_stream;
                held.drain(..used);
            }
        }
        assert_eq!((&data[..], flow, ended), (&b"hello"[..], 10, true), "pieces of {step}");
    }
    let empty = frame(kind::DATA, flag::END_STREAM, 3, b"");
    assert_eq!(read(&empty, 9).len(), 1);
}

#[test]
fn frames_that_may_not_come() {
    let is = |wire: Vec<u8>, code| assert_eq!(fault(&wire).code, code, "{wire:?}");
    let protocol = |wire| is(wire, ErrorCode::PROTOCOL_ERROR);
    let size = |wire| is(wire, ErrorCode::FRAME_SIZE_ERROR);
    protocol(frame(kind::DATA, 0, 0, b"x"));
    protocol(frame(kind::DATA, flag::PADDED, 1, b"\x01"));
    size(frame(kind::DATA, flag::PADDED, 1, b""));
    protocol(frame(kind::HEADERS, 0, 0, b"x"));
    protocol(frame(kind::HEADERS, flag::PADDED, 1, b"\x05abcd"));
    size(frame(kind::HEADERS, flag::PRIORITY, 1, b"abcd"));
    size(frame(kind::PRIORITY, 0, 1, b"abcd"));
    protocol(frame(kind::PRIORITY, 0, 0, b"abcde"));
    size(frame(kind::RST_STREAM, 0, 1, b"abc"));
    protocol(frame(kind::RST_STREAM, 0, 0, b"abcd"));
    protocol(frame(kind::SETTINGS, 0, 1, b""));
    size(frame(kind::SETTINGS, 0, 0, b"abcde"));
    size(frame(kind::SETTINGS, flag::ACK, 0, b"abcdef"));
    protocol(frame(kind::PUSH_PROMISE, 0, 1, b"abcd"));
    size(frame(kind::PING, 0, 0, b"1234567"));
    protocol(frame(kind::PING, 0, 1, b"12345678"));
    size(frame(kind::GOAWAY, 0, 0, b"1234567"));
    protocol(frame(kind::GOAWAY, 0, 1, b"12345678"));
    size(frame(kind::WINDOW_UPDATE, 0, 0, b"123"));
    protocol(frame(kind::CONTINUATION, 0, 1, b"x"));
    size(frame(kind::PRIORITY_UPDATE, 0, 0, b"123"));
    protocol(frame(kind::PRIORITY_UPDATE, 0, 1, b"\0\0\0\x01"));
    size(vec![0, 0x40, 1, 99, 0, 0, 0, 0, 0]);
}

#[test]
fn nothing_comes_between_the_fragments_of_a_block() {
    let begun = frame(kind::HEADERS, 0, 1, b"ab");
    for next in [frame(kind::PING, 0, 0, b"12345678"), frame(kind::CONTINUATION, 0, 3, b"")] {
        assert_eq!(fault(&[begun.clone(), next].concat()).code, ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn header_blocks_have_limits() {
    let begun = frame(kind::HEADERS, 0, 1, b"ab");
    let empty = frame(kind::CONTINUATION, 0, 1, b"");
    let many = [begun.clone(), empty.repeat(65)].concat();
    assert_eq!(fault(&many).code, ErrorCode::ENHANCE_YOUR_CALM);
    let long = frame(kind::CONTINUATION, 0, 1, &[0; 15_000]);
    let wire = [begun, long.repeat(2)].concat();
    assert_eq!(fault(&wire).code, ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn blocks_are_framed_in_pieces_of_the_peers_size() {
    for len in [0, 1, 99, 100, 101, 250] {
        let block: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut out = b"before".to_vec();
        let at = out.len();
        out.extend_from_slice(&[0; HEAD_LEN]);
        out.extend_from_slice(&block);
        let heads = frame::frame_block(&mut out, at, 5, flag::END_STREAM, 100);
        assert_eq!(out.len(), at + heads + len);
        let mut reader = Reader::new(0, 1000);
        let mut wire = &out[at..];
        loop {
            let (used, event) = reader.next(wire).unwrap().expect("a whole block");
            wire = &wire[used..];
            if let Event::Headers { stream, end_stream, block: got, .. } = event {
                assert_eq!((stream, end_stream, got), (5, true, &block[..]));
                break;
            }
        }
        assert!(wire.is_empty());
    }
}

#[test]
fn settings_have_ranges() {
    let taken = |id: u16, value: u32| {
        let mut settings = Settings::default();
        let payload = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        settings.take(&payload).map(|()| settings).map_err(|fault| fault.code)
    };
    assert_eq!(taken(id::INITIAL_WINDOW_SIZE, MAX).unwrap().window, MAX);
    assert_eq!(taken(id::INITIAL_WINDOW_SIZE, MAX + 1), Err(ErrorCode::FLOW_CONTROL_ERROR));
    assert_eq!(taken(id::MAX_FRAME_SIZE, 16_383), Err(ErrorCode::PROTOCOL_ERROR));
    assert_eq!(taken(id::MAX_FRAME_SIZE, 1 << 24), Err(ErrorCode::PROTOCOL_ERROR));
    assert_eq!(taken(id::MAX_FRAME_SIZE, 16_384).unwrap().frame_max, 16_384);
    assert_eq!(taken(id::ENABLE_PUSH, 2), Err(ErrorCode::PROTOCOL_ERROR));
    assert!(taken(id::ENABLE_PUSH, 1).is_ok());
    assert!(taken(0x4a4a, 77).is_ok());
}

#[test]
fn windows_stay_in_their_range() {
    let mut window = Window::new(10);
    assert!(window.take(10) && !window.take(1) && window.take(0));
    window.resize(10, 4).unwrap();
    assert_eq!(window.left(), 0);
    assert!(!window.take(1));
    window.add(7).unwrap();
    assert_eq!(window.left(), 1);
    assert_eq!(window.add(MAX), Err(Overflow));
    assert_eq!(window.left(), 1, "an overflow changes nothing");
    window.add(MAX - 1).unwrap();
    assert_eq!(window.left(), MAX as usize);
}

/// The head of these fields and its text, or the reason for none.
fn head(fields: &[(&str, &str)], end: bool) -> Result<(Head, Vec<u8>, Asked), NoHead> {
    head_of(fields, end, Version::HTTP_20)
}

fn head_of(
    fields: &[(&str, &str)],
    end: bool,
    version: Version,
) -> Result<(Head, Vec<u8>, Asked), NoHead> {
    let (mut head, mut text) = (Head::new(), Vec::new());
    let limits = Limits { large_size: 100, large_number: 3, max_headers: 5, ..Limits::DEFAULT };
    let mut builder = HeadBuilder::new(&mut head, &mut text, &limits, version);
    for (name, value) in fields {
        builder.field(name.as_bytes(), value.as_bytes());
    }
    let asked = builder.finish(end)?;
    Ok((head, text, asked))
}

const USUAL: [(&str, &str); 4] =
    [(":method", "GET"), (":path", "/a/b.c?x=y"), (":scheme", "https"), (":authority", "Ab.c:81")];

fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    [&USUAL, more].concat()
}

fn refused(fields: &[(&str, &str)]) -> String {
    match head(fields, true) {
        Err(NoHead::Refused(refusal)) => format!("{} {}", refusal.status, refusal.text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn fields_make_a_head() {
    let fields = with(&[("cookie", "a=1"), ("accept", "*/*"), ("x", "y"), ("cookie", "b=2")]);
    let (head, text, asked) = head(&fields, true).unwrap();
    let of = |span: Span| std::str::from_utf8(span.of(&text)).unwrap().to_owned();
    assert_eq!(of(head.line), "GET /a/b.c?x=y HTTP/2.0");
    assert_eq!((of(head.path), of(head.args)), ("/a/b.c".into(), "x=y".into()));
    assert_eq!((of(head.target), of(head.protocol)), ("/a/b.c?x=y".into(), "HTTP/2.0".into()));
    assert!(head.plain_path && !head.chunked && head.content_length.is_none());
    let host = head.host.unwrap();
    assert_eq!((of(host.name), host.port, host.has_upper), ("Ab.c".into(), 81, true));
    let all: Vec<_> = head.fields.iter().map(|f| (of(f.name), of(f.value))).collect();
    let want = [("host", "Ab.c:81"), ("cookie", "a=1; b=2"), ("accept", "*/*"), ("x", "y")];
    assert_eq!(all, want.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(head.value(FieldId::Accept, &text), Some(&b"*/*"[..]));
    assert_eq!(head.value(FieldId::Cookie, &text), Some(&b"a=1; b=2"[..]));
    assert_eq!(asked, Asked::Nothing);
}

#[test]
fn a_head_of_http_3_differs_in_its_version_alone() {
    let connect = [(":method", "CONNECT"), (":authority", "a.b:443")];
    for fields in [&USUAL[..], &connect] {
        let (two, of_two, _) = head(fields, true).unwrap();
        let (three, of_three, _) = head_of(fields, true, Version::HTTP_30).unwrap();
        assert_eq!((two.version, three.version), (Version::HTTP_20, Version::HTTP_30));
        assert_eq!(three.protocol.of(&of_three), b"HTTP/3.0");
        let line = String::from_utf8(three.line.of(&of_three).to_vec()).unwrap();
        assert_eq!(line.replace("/3.0", "/2.0").as_bytes(), two.line.of(&of_two));
        let spans = |h: &Head| [h.line, h.target, h.path, h.args, h.authority, h.method_name];
        assert_eq!(spans(&three), spans(&two));
    }
}

#[test]
fn a_body_has_a_length_or_none() {
    let (sized, ..) = head(&with(&[("content-length", "7")]), false).unwrap();
    assert_eq!((sized.content_length, sized.chunked), (Some(7), false));
    let (open, ..) = head(&with(&[]), false).unwrap();
    assert_eq!((open.content_length, open.chunked), (None, true));
    let text = refused(&with(&[("content-length", "7")]));
    assert_eq!(text, "400 client prematurely closed stream");
}

#[test]
fn connect_has_no_path() {
    let fields = [(":method", "CONNECT"), (":authority", "a.b:443")];
    let (head, text, _) = head(&fields, false).unwrap();
    assert_eq!(head.line.of(&text), b"CONNECT a.b:443 HTTP/2.0");
    assert_eq!(head.target.of(&text), b"/");
    assert_eq!(head.authority.of(&text), b"a.b:443");
    let mut fields = with(&[]);
    fields[0].1 = "CONNECT";
    fields.push((":protocol", "websocket"));
    let (head, _, asked) = self::head(&fields, false).unwrap();
    assert_eq!((head.method, asked), (Method::Connect, Asked::WebSocket));
}

#[test]
fn malformed_requests_are_refused() {
    let without = |n: usize| {
        let mut fields = USUAL.to_vec();
        fields.remove(n);
        refused(&fields)
    };
    assert_eq!(without(0), "400 client sent no :method header");
    assert_eq!(without(1), "400 client sent no :path header");
    assert_eq!(without(2), "400 client sent no :scheme header");
    assert_eq!(without(3), "400 client sent neither \":authority\" nor \"Host\" header");
    for (more, text) in [
        ((":path", "/"), "client sent duplicate :path header"),
        ((":status", "1"), "client sent unknown pseudo-header \":status\""),
        (("Accept", "x"), "client sent invalid header name: \"Accept\""),
        (("x\0", "x"), "client sent invalid header name: \"x\\x00\""),
        (("x", "a\nb"), "client sent header \"x\" with invalid value: \"a\\x0Ab\""),
        (("x", "a\x7f"), "client sent header \"x\" with invalid value: \"a\\x7F\""),
        (("connection", "close"), "client sent \"Connection\" header"),
        (("proxy-connection", "close"), "client sent \"Proxy-Connection\" header"),
        (("transfer-encoding", "chunked"), "client sent \"Transfer-Encoding\" header"),
        (("te", "gzip"), "client sent invalid \"TE\" header"),
        (("content-length", "x"), "client sent invalid \"Content-Length\" header"),
        (("host", "x"), "client sent \":authority\" and \"Host\" headers with different values"),
    ] {
        assert_eq!(refused(&with(&[more])), format!("400 {text}"));
    }
    let late = with(&[("x", "y"), (":path", "/")]);
    assert_eq!(refused(&late), "400 client sent out of order pseudo-headers");
    for path in ["x", "/a b", "/\u{1}", "/%zz"] {
        let mut fields = USUAL;
        fields[1].1 = path;
        assert!(refused(&fields).contains("invalid :path header"), "{path}");
    }
    let many = with(&[("a", "b"); 6]);
    assert_eq!(refused(&many), "494 client sent too many header lines");
    assert!(head(&with(&[("te", "trailers"), ("host", "Ab.c:81")]), true).is_ok());
}

#[test]
fn what_exceeds_every_limit_ends_the_connection() {
    let long = "x".repeat(101);
    let fields = [&USUAL[..], &[("a", &long)]].concat();
    assert_eq!(head(&fields, true).unwrap_err(), NoHead::Excess("too large header field"));
    let part = "x".repeat(100);
    let fields = [&USUAL[..], &[("a", &part), ("b", &part), ("c", &part)]].concat();
    assert_eq!(head(&fields, true).unwrap_err(), NoHead::Excess("too large header"));
}

#[test]
fn data_frames_may_be_longer_than_others() {
    let mut reader = Reader::new(0, 1000).with_data_max(100_000);
    assert_eq!(reader.frame_max(), 100_000);
    let mut head = Vec::new();
    frame::write_head(&mut head, 100_000, kind::DATA, flag::END_STREAM, 1);
    let mut left = 100_000;
    let mut bytes = [&head[..], &[7; 5000]].concat();
    while left > 0 {
        let Ok(Some((_, Event::Data { data, end_stream, .. }))) = reader.next(&bytes) else {
            panic!("no data with {left} bytes left");
        };
        left -= data.len();
        assert_eq!(end_stream, left == 0);
        bytes = vec![7; 5000];
    }
    for (kind, len, code) in [
        (kind::DATA, 100_001, ErrorCode::FRAME_SIZE_ERROR),
        (kind::HEADERS, 100_001, ErrorCode::FRAME_SIZE_ERROR),
        (kind::HEADERS, 16_385, ErrorCode::ENHANCE_YOUR_CALM),
    ] {
        let mut head = Vec::new();
        frame::write_head(&mut head, len, kind, 0, 3);
        assert_eq!(reader.next(&head).unwrap_err().code, code);
    }
}
