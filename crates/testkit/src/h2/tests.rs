//! The client beside a scripted server, and the judge beside wrong frames.

use std::io::Write;
use std::net::TcpStream;

use super::judge::Judge;
use super::{
    Client, Ended, Frame, Options, PREFACE, block, code, flag, indexed, kind, literal, setting,
};
use crate::certificates::{Draft, Key, KeyKind, der};
use crate::{Peer, Port, Scripted, read_until, wait_for};

/// The next frame of a client's; none once it has closed.
fn next(stream: &mut TcpStream, pending: &mut Vec<u8>) -> Option<Frame> {
    loop {
        if let Some(frame) = Frame::take(pending) {
            return Some(frame);
        }
        pending.extend(read_until(stream, |bytes| !bytes.is_empty())?);
    }
}

/// A server that has read the preface, answers each frame with frames, and closes with an empty
/// list.
fn served(answer: impl Fn(&Frame) -> Option<Vec<Frame>> + Send + Sync + 'static) -> Scripted {
    Scripted::start(move |mut stream, _| {
        let Some(mut pending) = read_until(&mut stream, |bytes| bytes.len() >= PREFACE.len())
        else {
            return;
        };
        assert_eq!(pending.drain(..PREFACE.len()).collect::<Vec<u8>>(), PREFACE);
        stream.write_all(&Frame::settings(&[]).encode()).unwrap();
        while let Some(frame) = next(&mut stream, &mut pending) {
            let Some(frames) = answer(&frame) else { return };
            let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    })
}

fn ok(stream: u32, more: &[(&str, &str)], end: bool) -> Frame {
    Frame::headers(stream, [indexed(8), block(more)].concat(), end)
}

#[test]
fn responses_are_told_apart_whatever_their_frames() {
    // Streams 1 and 3 are answered together, the later one first.
    let server = served(|frame| match (frame.kind, frame.stream) {
        (kind::HEADERS, 3) => {
            let head = [indexed(8), literal("x", "1"), literal("x", "2")].concat();
            let mut frames = vec![
                Frame::headers(3, block(&[(":status", "103"), ("link", "</a>")]), false),
                Frame::ping(*b"12345678"),
            ];
            frames.extend(Frame::headers_in_parts(3, &[&head[..2], b"", &head[2..]], false));
            frames.push(Frame::new(200, 0xff, 3, b"unknown"));
            frames.push(Frame::data(3, b"ab", false).padded(200));
            frames.push(ok(1, &[("content-length", "3")], false).padded(1));
            frames.push(Frame::data(3, b"c", false));
            frames.push(Frame::headers(3, block(&[("t", "v")]), true));
            frames.push(Frame::data(1, b"def", true));
            Some(frames)
        }
        (kind::HEADERS, 5) => Some(vec![Frame::reset(5, code::REFUSED_STREAM)]),
        _ => Some(vec![]),
    });
    let mut client = Client::tcp(server.port);
    let both = client.get_all(&["/1", "/3"]);
    assert_eq!((both[0].status, both[0].text().as_str()), (200, "def"));
    assert_eq!(both[1].text(), "abc");
    assert_eq!(both[1].all("x").collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(both[1].trailer("t"), Some("v"));
    assert_eq!(both[1].interim[0].0, 103);
    let refused = client.get("/5");
    assert_eq!((refused.status, refused.reset), (0, Some(code::REFUSED_STREAM)));
}

#[test]
fn bodies_wait_for_windows_and_windows_are_given_back() {
    let server = served(|frame| match frame.kind {
        // Less than the body, so that the client has to wait.
        kind::DATA if frame.has(flag::END_STREAM) => {
            let part = |_| Frame::data(frame.stream, [b'x'; 16_384], false);
            let mut frames = vec![ok(frame.stream, &[], false)];
            frames.extend((0..3).map(part));
            Some(frames)
        }
        kind::DATA => {
            let length = frame.payload.len() as u32;
            Some(vec![Frame::window_update(0, length), Frame::window_update(frame.stream, length)])
        }
        // Both windows are given back once half of them is used.
        kind::WINDOW_UPDATE if frame.stream != 0 => {
            assert_eq!(frame.number(0), 2 * 16_384);
            Some(vec![Frame::data(frame.stream, b"end", true)])
        }
        _ => Some(vec![]),
    });
    let mut client = Client::tcp(server.port);
    let response = client.request("POST", "/", &[("content-type", "x/y")], &[0; 200_000]);
    assert_eq!(response.body.len(), 3 * 16_384 + 3);
    assert!(client.given(1) > 100_000);
    assert_eq!(client.given(1), client.given(0));
}

#[test]
fn a_client_can_keep_its_windows_to_itself() {
    let server = served(|frame| match frame.kind {
        kind::HEADERS => Some(vec![ok(1, &[], false), Frame::data(1, [0; 10], false)]),
        kind::WINDOW_UPDATE => Some(vec![Frame::data(1, [0; 5], true)]),
        _ => Some(vec![]),
    });
    let habits = Options::default().set(setting::INITIAL_WINDOW_SIZE, 10).withholding();
    let mut client = Client::with(server.port, habits);
    let stream = client.open("GET", "/", &[], true);
    assert!(!client.response_head(stream).is_over());
    client.grant(stream, 5);
    assert_eq!(client.response(stream).body.len(), 15);
}

#[test]
fn the_end_of_a_connection_is_seen() {
    let server = served(|frame| match frame.kind {
        kind::PING => Some(vec![Frame::new(kind::PING, flag::ACK, 0, &frame.payload)]),
        kind::HEADERS => Some(vec![Frame::goaway(0, code::ENHANCE_YOUR_CALM)]),
        kind::RST_STREAM => None,
        _ => Some(vec![]),
    });
    let mut client = Client::tcp(server.port);
    client.ping();
    assert!(client.settings().is_empty());
    let stream = client.start("GET", "/", &[], b"");
    assert_eq!(client.goaway().code, code::ENHANCE_YOUR_CALM);
    client.reset(stream, code::CANCEL);
    assert_eq!(client.wait_for_close(), Ended::Closed);
}

#[test]
#[should_panic(expected = "before the response on stream 1")]
fn a_response_that_breaks_off_fails() {
    let server = served(|frame| (frame.kind != kind::HEADERS).then(Vec::new));
    Client::tcp(server.port).get("/");
}

#[test]
#[should_panic(expected = "the server breaks a rule: DATA on stream 1: outside of a response")]
fn a_fault_of_the_server_fails() {
    let server = served(|frame| match frame.kind {
        kind::HEADERS => Some(vec![ok(1, &[], true), Frame::data(1, b"x", true)]),
        _ => Some(vec![]),
    });
    let mut client = Client::tcp(server.port);
    client.get("/");
    client.frame();
}

/// The verdict on the last of the frames behind the server's SETTINGS; the ones before are right.
/// Streams 1 and 3 are open, by GET and HEAD.
fn verdict(settings: &[(u16, u32)], frames: &[Frame]) -> String {
    let mut judge = Judge::new(settings);
    judge.take(&Frame::settings(&[])).unwrap();
    judge.open(1, "GET");
    judge.open(3, "HEAD");
    let (last, before) = frames.split_last().unwrap();
    before.iter().for_each(|frame| judge.take(frame).unwrap());
    judge.take(last).err().unwrap_or_default()
}

#[track_caller]
fn wrong(frames: &[Frame], fault: &str) {
    let verdict = verdict(&[], frames);
    assert!(!verdict.is_empty() && verdict.contains(fault), "{verdict:?}, not {fault:?}");
}

#[test]
fn wrong_sequences_are_faults() {
    let open = || ok(1, &[], false);
    let part = || Frame::new(kind::HEADERS, 0, 1, indexed(8));
    wrong(&[Frame::data(1, b"", false)], "outside of a response");
    wrong(&[open(), Frame::data(5, b"", false)], "did not open");
    wrong(&[part(), Frame::ping([0; 8])], "within a header block");
    wrong(&[part(), Frame::new(kind::CONTINUATION, 4, 3, b"")], "within a header block");
    wrong(&[Frame::new(kind::CONTINUATION, 4, 1, b"")], "stray");
    wrong(&[ok(1, &[], true), open()], "behind the end");
    wrong(&[Frame::reset(1, 0), Frame::reset(1, 0)], "a second time");
    wrong(&[Frame::reset(7, 0)], "did not open");
    wrong(&[Frame::reset(7, 5)], "did not open");
    wrong(&[Frame::goaway(1, 0), Frame::goaway(3, 0)], "greater last stream");
    wrong(&[Frame::settings_ack(), Frame::settings_ack()], "no SETTINGS");
    wrong(&[Frame::new(kind::PUSH_PROMISE, 4, 1, [0, 0, 0, 2])], "pushes");
    let mut judge = Judge::new(&[]);
    assert!(judge.take(&Frame::ping([0; 8])).unwrap_err().contains("before the server's SETTINGS"));
}

#[test]
fn streams_that_were_passed_over_are_closed() {
    let mut judge = Judge::new(&[]);
    judge.take(&Frame::settings(&[])).unwrap();
    judge.open(5, "GET");
    assert!(judge.take(&Frame::reset(3, 1)).unwrap_err().contains("passed over"));
    judge.take(&Frame::reset(3, 5)).unwrap();
    assert!(judge.take(&Frame::reset(3, 5)).unwrap_err().contains("a second time"));
    assert!(judge.take(&Frame::reset(2, 5)).unwrap_err().contains("did not open"));
    assert!(judge.take(&Frame::data(1, b"", false)).unwrap_err().contains("did not open"));
}

#[test]
fn wrong_frames_are_faults() {
    wrong(&[Frame::new(kind::PING, 0, 0, b"1234567")], "wrong length");
    wrong(&[Frame::new(kind::PING, 0, 1, b"12345678")], "not on stream 0");
    wrong(&[Frame::new(kind::SETTINGS, 0, 0, b"1234567")], "wrong length");
    wrong(&[Frame::new(kind::SETTINGS, 1, 0, b"123456")], "wrong length");
    wrong(&[Frame::settings(&[(setting::MAX_FRAME_SIZE, 16_383)])], "5 = 16383");
    wrong(&[Frame::settings(&[(setting::ENABLE_PUSH, 1)])], "2 = 1");
    wrong(&[Frame::new(kind::GOAWAY, 0, 0, b"1234567")], "too short");
    wrong(&[Frame::window_update(1, 0)], "by 0");
    wrong(&[Frame::window_update(0, (1 << 31) - 1)], "by 2147483647");
    wrong(&[Frame::window_update(5, 1)], "idle");
    wrong(&[ok(1, &[], false), Frame::new(kind::DATA, flag::PADDED, 1, [2, 0])], "too short");
    wrong(&[Frame::new(kind::HEADERS, 4 | flag::PRIORITY, 1, [0; 4])], "too short");
    wrong(&[Frame::new(99, 0, 0, [0; 16_385])], "MAX_FRAME_SIZE");
}

#[test]
fn wrong_messages_are_faults() {
    let head = |fields: &[(&str, &str)], end| Frame::headers(1, block(fields), end);
    wrong(&[head(&[("a", "b")], true)], "not a response");
    wrong(&[head(&[(":status", "20")], true)], "not a response");
    wrong(&[head(&[(":status", "200"), (":status", "200")], true)], "not a response");
    wrong(&[head(&[(":status", "101")], false)], "101");
    wrong(&[head(&[(":status", "100")], true)], "END_STREAM");
    wrong(&[head(&[("a", "b"), (":status", "200")], true)], "field \":status\"");
    for name in ["Date", "connection", "transfer-encoding", "", "a b"] {
        wrong(&[ok(1, &[(name, "x")], true)], &format!("field {name:?}"));
    }
    wrong(&[ok(1, &[("a", "b\n")], true)], "value");
    wrong(&[ok(1, &[], false), head(&[("a", "b")], false)], "without END_STREAM");
    wrong(&[ok(1, &[], false), ok(1, &[], true)], "pseudo-header");
    wrong(&[ok(1, &[("content-length", "1")], true)], "0 bytes");
    let short = ok(1, &[("content-length", "3")], false);
    wrong(&[short, Frame::data(1, b"ab", true)], "2 bytes");
    wrong(&[ok(3, &[], false), Frame::data(3, b"ab", true)], "a body behind HEAD");
    let unasked = [ok(3, &[("content-length", "3")], true)];
    assert_eq!(verdict(&[], &unasked), "");
}

#[test]
fn windows_are_limits() {
    let data = |length| Frame::data(1, vec![0; length], false);
    let open = || ok(1, &[], false);
    let narrow = [(setting::INITIAL_WINDOW_SIZE, 10)];
    // Until the server acknowledges them, the settings may be unknown to it.
    assert_eq!(verdict(&narrow, &[open(), data(11)]), "");
    assert_eq!(verdict(&narrow, &[Frame::settings_ack(), open(), data(10)]), "");
    let fault = verdict(&narrow, &[Frame::settings_ack(), open(), data(11)]);
    assert!(fault.contains("the stream's window"), "{fault}");
    let wide = [(setting::INITIAL_WINDOW_SIZE, 1 << 20), (setting::MAX_FRAME_SIZE, 1 << 20)];
    assert_eq!(verdict(&wide, &[open(), data(65_535)]), "");
    assert!(verdict(&wide, &[open(), data(65_536)]).contains("the connection's window"));
}

/// The client beside a server of other hands, in clear and over TLS.
#[test]
fn nginx_is_understood() {
    let key = Key::generate(KeyKind::P256);
    let certificate = Draft::new("CN=localhost", "CN=localhost", &key).sign(&key);
    let tls = Port::reserve();
    let conf = "daemon off; master_process off; pid %DIR%/pid; error_log %DIR%/error.log;
        events {}
        http {
            access_log off; root %DIR%; client_body_temp_path %DIR%/body;
            ssl_certificate %DIR%/pem; ssl_certificate_key %DIR%/key;
            server {
                listen 127.0.0.1:%PORT% http2;
                listen 127.0.0.1:%TLS% http2 ssl;
                location /scheme { return 200 $scheme,$host,$server_protocol; }
                location /body { proxy_pass http://127.0.0.1:%PORT%; client_max_body_size 1k; }
            }
        }";
    let files = [
        ("conf", &*conf.replace("%TLS%", &tls.number().to_string())),
        ("pem", &der::pem("CERTIFICATE", &certificate)),
        ("key", &key.pem()),
        ("big", &"0123456789".repeat(100_000)),
    ];
    let arguments = ["-p", "%DIR%", "-c", "%DIR%/conf", "-e", "%DIR%/error.log"];
    let peer = Peer::start("nginx", "nginx-light", &files, &arguments);
    // Its second socket is opened behind the first.
    wait_for("the other port", || TcpStream::connect(("127.0.0.1", tls.number())).ok());
    for (mut client, scheme) in
        [(Client::tcp(peer.port()), "http"), (Client::tls(tls.number()), "https")]
    {
        let said = format!("{scheme},localhost,HTTP/2.0");
        let all = client.get_all(&["/scheme", "/big", "/none", "/big"]);
        assert_eq!((all[0].status, all[0].text()), (200, said));
        assert_eq!(all[2].status, 404);
        // Their dates may differ.
        assert!(all[1].body.len() == 1_000_000 && all[1].body == all[3].body);
        assert_eq!(
            client.request("HEAD", "/big", &[], b"").header("content-length"),
            Some("1000000")
        );
        assert_eq!(client.request("POST", "/body", &[], &[b'x'; 2000]).status, 413);
        client.ping();
        assert_eq!(client.streams_max(), Some(128));
        client.change_settings(&[(setting::HEADER_TABLE_SIZE, 0)]);
        assert_eq!(client.get("/scheme").status, 200);
        client.send_frame(&Frame::window_update(0, 0));
        assert_eq!(client.goaway().code, code::PROTOCOL_ERROR);
        client.wait_for_close();
    }
}
