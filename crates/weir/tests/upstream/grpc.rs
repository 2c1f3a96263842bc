//! `grpc`: calls passed on to servers over HTTP/2, in both directions at once.

use std::sync::{Arc, Mutex};

use testkit::h2::{Came, Client, Frame, Peer, Reply, block, code, kind, origin, scripted};
use testkit::{Driver, Scripted, Site, Weir, built_binary, each_driver, refused, wait_for};

fn site(driver: Driver, port: u16, server: &str) -> Weir {
    let text = format!(
        "upstream u {{ server 127.0.0.1:{port}; keepalive 8; }}
         server {{
             listen 127.0.0.1:%PORT0%;
             http2 on;
             location / {{ grpc_pass grpc://u; }}
             {server}
         }}"
    );
    Site::new(built_binary(), driver).http(&text).start()
}

const CALL: &[(&str, &str)] = &[("content-type", "application/grpc"), ("te", "trailers")];

#[test]
fn calls_come_with_their_trailers() {
    each_driver(|driver| {
        let origin = origin(|request, number| match request.path() {
            "/none" => Reply {
                fields: block_fields(&[(":status", "200"), ("grpc-status", "12")]),
                ..Reply::default()
            },
            path => Reply::of(format!("{path} {number} {}", request.body.len()))
                .with("content-type", "application/grpc")
                .trailer("grpc-status", "0")
                .trailer("grpc-message", ""),
        });
        let weir = site(driver, origin.port, "location /alone { grpc_pass 127.0.0.1:%PORT1%; }");
        let mut client = Client::tcp(weir.port(0));
        for n in 0..3 {
            let got = client.request("POST", &format!("/s/{n}"), CALL, b"hello");
            assert_eq!((got.status, got.text()), (200, format!("/s/{n} 1 5")));
            assert_eq!(got.trailer("grpc-status"), Some("0"));
            assert_eq!(got.trailer("grpc-message"), Some(""));
        }
        // A call that fails at once has its status in the head alone.
        let got = client.request("POST", "/none", CALL, b"hello");
        assert_eq!((got.header("grpc-status"), got.body.len()), (Some("12"), 0));
    });
}

fn block_fields(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn both_directions_go_on_for_as_long_as_they_like() {
    each_driver(|driver| {
        // Answers each message at once; the call's end ends it.
        let origin = scripted(&[], |peer, came, _| match came {
            Came::Head(request) => {
                let head = block(&[(":status", "200")]);
                peer.send(&[Frame::headers(request.stream, head, false)]);
            }
            Came::Frame(frame) if frame.kind == kind::DATA => {
                peer.send(&[Frame::data(frame.stream, frame.payload, false)]);
            }
            Came::Whole(request) => {
                let trailers = block(&[("grpc-status", "0")]);
                peer.send(&[Frame::headers(request.stream, trailers, true)]);
            }
            _ => {}
        });
        let weir = site(driver, origin.port, "");
        let mut client = Client::tcp(weir.port(0));
        let calls: Vec<u32> = (0..3).map(|_| client.open("POST", "/chat", CALL, false)).collect();
        for round in 1..=20 {
            for call in &calls {
                client.data(*call, format!("message {round:02};"), false);
            }
            for call in &calls {
                client.wait_for("the echo", |c| {
                    let body = &c.so_far(*call)?.body;
                    body.ends_with(format!("message {round:02};").as_bytes()).then_some(())
                });
            }
        }
        for call in calls {
            client.data(call, "", true);
            let got = client.response(call);
            assert_eq!((got.body.len(), got.trailer("grpc-status")), (220, Some("0")));
        }
        // A call that stays open has its connection for itself.
        assert_eq!(origin.connections(), 3);
    });
}

#[test]
fn calls_whose_messages_come_with_their_heads_share_a_connection() {
    each_driver(|driver| {
        let origin = origin(|request, number| {
            Reply::of(format!("{number} {}", request.body.len())).trailer("grpc-status", "0")
        });
        let weir = site(driver, origin.port, "");
        let mut client = Client::tcp(weir.port(0));
        for round in 0..3 {
            // All at once, even where there is no connection yet: some make one, and wait for it.
            let first = client.next_stream();
            let ids: Vec<u32> = (0..30).map(|n| first + 2 * n).collect();
            let mut frames = Vec::new();
            for id in &ids {
                let head = client.head("POST", &format!("/s/{round}"), CALL);
                frames.push(Frame::headers(*id, head, false));
                frames.push(Frame::data(*id, "message", true));
                client.expect(*id);
            }
            client.send_frames(&frames);
            for id in ids {
                let got = client.response(id);
                assert_eq!((got.text(), got.trailer("grpc-status")), ("1 7".into(), Some("0")));
            }
        }
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn a_call_without_messages_ends_by_a_frame_of_data() {
    // Some servers take no other end for one.
    each_driver(|driver| {
        let origin = origin(|request, _| Reply::of(format!("{} frames", request.frames)));
        let weir = site(driver, origin.port, "");
        let mut client = Client::tcp(weir.port(0));
        for _ in 0..3 {
            let id = client.next_stream();
            let head = client.head("POST", "/none", CALL);
            client.expect(id);
            client.send_frames(&[Frame::headers(id, head, false), Frame::data(id, "", true)]);
            assert_eq!(client.response(id).text(), "1 frames");
        }
        // Where the client's head ends it, ours does.
        assert_eq!(client.get("/none").text(), "0 frames");
    });
}

#[test]
fn heads_are_the_client_s_but_for_what_is_set() {
    each_driver(|driver| {
        let origin = origin(|request, _| {
            let fields: Vec<_> = request.fields.iter().map(|(n, v)| format!("{n}={v}")).collect();
            Reply::of(fields.join("|"))
        });
        let server = "
            location /host { grpc_pass u; grpc_set_header Host custom; }
            location /set { grpc_pass u; grpc_set_header X-Own $request_method;
                            grpc_set_header TE ''; grpc_set_header X-Secret ''; }
            location /rewritten { rewrite ^ /new?x=1 break; grpc_pass u; }";
        let weir = site(driver, origin.port, server);
        let mut client = Client::tcp(weir.port(0));
        let fields = [CALL, &[("grpc-timeout", "5S"), ("x-secret", "s")]].concat();
        let mut ask = |path: &str| client.request("POST", path, &fields, b"").text();
        let rest = "content-type=application/grpc|grpc-timeout=5S";
        assert_eq!(
            ask("/a/b?c"),
            format!(
                ":method=POST|:scheme=http|:path=/a/b?c|:authority=u|te=trailers|{rest}|x-secret=s"
            )
        );
        assert_eq!(
            ask("/host"),
            format!(
                ":method=POST|:scheme=http|:path=/host|host=custom|te=trailers|{rest}|x-secret=s"
            )
        );
        assert_eq!(
            ask("/set"),
            format!(":method=POST|:scheme=http|:path=/set|:authority=u|x-own=POST|{rest}")
        );
        assert!(ask("/rewritten").contains(":path=/new?x=1|"));
    });
}

#[test]
fn errors_can_be_those_of_grpc() {
    each_driver(|driver| {
        let origin = Scripted::start(|stream, _| {
            let mut peer = Peer::accept(stream, &[]);
            while let Some(request) = peer.request() {
                peer.send(&[Frame::reset(request.stream, code::INTERNAL_ERROR)]);
            }
        });
        let server = "
            location /mapped { grpc_pass u; error_page 502 = @unavailable; }
            location @unavailable {
                default_type application/grpc; add_header grpc-status 14 always;
                add_header grpc-message unavailable always; return 204;
            }";
        let weir = site(driver, origin.port, server);
        let mut client = Client::tcp(weir.port(0));
        assert_eq!(client.request("POST", "/", CALL, b"x").status, 502);
        let got = client.request("POST", "/mapped", CALL, b"x");
        assert_eq!((got.status, got.header("grpc-status")), (204, Some("14")));
    });
}

/// A server whose calls never end, and the resets that it gets. It does not answer at all where the
/// path begins with `/silent`.
fn endless() -> (Scripted, Arc<Mutex<Vec<u32>>>) {
    let codes = Arc::new(Mutex::new(Vec::new()));
    let seen = codes.clone();
    let origin = scripted(&[], move |peer, came, _| match came {
        Came::Head(request) if !request.path().starts_with("/silent") => {
            let head = block(&[(":status", "200"), ("content-type", "application/grpc")]);
            peer.send(&[
                Frame::headers(request.stream, head, false),
                Frame::data(request.stream, "message", false),
            ]);
        }
        Came::Frame(frame) if frame.kind == kind::RST_STREAM => {
            seen.lock().unwrap().push(frame.number(0));
        }
        _ => {}
    });
    (origin, codes)
}

#[test]
fn the_time_of_a_call_ends_it() {
    each_driver(|driver| {
        let (origin, codes) = endless();
        let weir = site(driver, origin.port, "");
        let mut client = Client::tcp(weir.port(0));
        let with = |value: &'static str| [CALL, &[("grpc-timeout", value)]].concat();
        // No answer, with a whole request and with one that goes on.
        let got = client.request("POST", "/silent", &with("200m"), b"x");
        let status = |got: &testkit::h2::Response| got.header("grpc-status").map(str::to_owned);
        assert_eq!((got.status, status(&got).as_deref(), got.body.len()), (200, Some("4"), 0));
        assert_eq!(got.header("content-type"), Some("application/grpc"));
        let call = client.open("POST", "/silent", &with("200000u"), false);
        client.data(call, "more", false);
        let got = client.response(call);
        assert_eq!((got.status, status(&got).as_deref()), (200, Some("4")));
        // An answer that does not end.
        let got = client.request("POST", "/chat", &with("200m"), b"x");
        assert_eq!((got.status, got.text().as_str()), (200, "message"));
        assert_eq!(got.trailer("grpc-status"), Some("4"));
        let cancelled = [code::CANCEL; 3];
        wait_for("the resets", || (*codes.lock().unwrap() == cancelled).then_some(()));
        // A long time, and none: the call goes on until its client ends it.
        for value in ["99999999H", "1", "m", "-1m", "200x", "123456789m"] {
            let call = client.open("POST", "/chat", &with(value), false);
            client.wait_for_body(call, b"message");
            client.reset(call, code::CANCEL);
        }
    });
}

/// A server that is too slow for one call is not to blame: the next call goes to it.
#[test]
fn a_call_without_time_is_not_its_server_s_failure() {
    let (origin, _) = endless();
    let server = "location /next { grpc_pass u; grpc_next_upstream error timeout; }";
    let weir = site(Driver::usual(), origin.port, server);
    let mut client = Client::tcp(weir.port(0));
    for _ in 0..3 {
        let fields = [CALL, &[("grpc-timeout", "50m")]].concat();
        let got = client.request("POST", "/silent", &fields, b"x");
        assert_eq!(got.header("grpc-status"), Some("4"));
    }
    let call = client.open("POST", "/next", CALL, false);
    client.wait_for_body(call, b"message");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_call_that_the_client_ends_ends_at_the_server() {
    each_driver(|driver| {
        let (origin, codes) = endless();
        let weir = site(driver, origin.port, "");
        let mut client = Client::tcp(weir.port(0));
        let call = client.open("POST", "/chat", CALL, false);
        client.response_head(call);
        client.reset(call, code::CANCEL);
        wait_for("the reset", || (*codes.lock().unwrap() == [code::CANCEL]).then_some(()));
    });
}

#[test]
fn what_is_refused_at_load() {
    refused(
        "server { location / { * } }",
        &[
            ("grpc_pass http://a:1;", "invalid host in upstream"),
            ("grpc_pass grpc://127.0.0.1;", "no port in upstream"),
            ("grpc_pass 127.0.0.1:1; grpc_pass 127.0.0.1:2;", "is duplicate"),
            ("grpc_buffering on;", "unknown directive"),
            (
                "grpc_pass grpcs://127.0.0.1:1; grpc_ssl_verify on;",
                "no grpc_ssl_trusted_certificate for grpc_ssl_verify",
            ),
        ],
    );
}
