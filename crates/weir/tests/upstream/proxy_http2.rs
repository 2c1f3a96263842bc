//! `proxy_http_version 2`: requests passed on over HTTP/2, many of them over a connection.

use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::tls::Pair;
use testkit::certificates::KeyKind;
use testkit::h2::{
    Came, Frame, Peer, Reply, Request, block, code, flag, kind, origin, scripted, setting,
};
use testkit::{
    Conn, Driver, Scripted, Site, Weir, built_binary, each_driver, pattern, wait_for, wait_until,
};

/// A server in front of an origin, which it speaks HTTP/2 to.
fn site(driver: Driver, port: u16, upstream: &str, server: &str) -> Weir {
    let text = format!(
        "upstream u {{ server 127.0.0.1:{port}; {upstream} }}
         proxy_cache_path cache keys_zone=one:1m use_temp_path=off;
         server {{
             listen 127.0.0.1:%PORT0%;
             proxy_http_version 2;
             location / {{ proxy_pass http://u; }}
             location /alone {{ proxy_pass http://127.0.0.1:{port}; }}
             {server}
         }}"
    );
    Site::new(built_binary(), driver).http(&text).start()
}

fn ask(weir: &Weir, method: &str, path: &str, fields: &str, body: &[u8]) -> Conn {
    let mut conn = weir.connect();
    let len =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    conn.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{len}{fields}\r\n"));
    conn.send(body);
    conn
}

#[test]
fn requests_share_a_connection() {
    each_driver(|driver| {
        let most = Arc::new(AtomicUsize::new(0));
        let seen = most.clone();
        let origin = Scripted::start(move |stream, number| {
            let mut peer = Peer::accept(stream, &[]);
            // Until the parameters are known, a connection has one request.
            let Some(first) = peer.request() else { return };
            peer.reply(first.stream, &Reply::of(format!("{} {number}", first.path())));
            // Then they come together, and are answered in another order.
            loop {
                let mut all = Vec::new();
                while all.len() < 4 {
                    let Some(request) = peer.request() else { return };
                    all.push(request);
                }
                seen.fetch_max(all.len(), Ordering::Relaxed);
                for request in all.iter().rev() {
                    peer.reply(request.stream, &Reply::of(format!("{} {number}", request.path())));
                }
            }
        });
        let weir = site(driver, origin.port, "", "");
        assert_eq!(weir.get("/first").text(), "/first 1");
        for round in 0..3 {
            let mut conns: Vec<_> =
                (0..4).map(|n| (n, ask(&weir, "GET", &format!("/{round}/{n}"), "", b""))).collect();
            for (n, conn) in &mut conns {
                assert_eq!(conn.response().text(), format!("/{round}/{n} 1"));
            }
        }
        assert_eq!(origin.connections(), 1);
        assert_eq!(most.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn requests_wait_for_a_connection_that_is_being_made() {
    each_driver(|driver| {
        let origin = origin(|request, number| Reply::of(format!("{} {number}", request.path())));
        let weir = site(driver, origin.port, "", "");
        let mut conns: Vec<_> =
            (0..20).map(|n| (n, ask(&weir, "GET", &format!("/{n}"), "", b""))).collect();
        for (n, conn) in &mut conns {
            assert_eq!(conn.response().text(), format!("/{n} 1"));
        }
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn requests_that_waited_for_a_connection_in_vain_fail_together() {
    each_driver(|driver| {
        // Says nothing of HTTP/2, and closes.
        let origin = Scripted::start(|stream, _| drop(stream));
        let weir = site(driver, origin.port, "", "");
        let mut conns: Vec<_> = (0..8).map(|_| ask(&weir, "GET", "/", "", b"")).collect();
        for conn in &mut conns {
            assert_eq!(conn.response().status, 502);
        }
    });
}

/// The client that a connection is made for goes: one of the others makes the next.
#[test]
fn a_connection_that_is_given_up_is_made_by_one_of_those_that_wait() {
    each_driver(|driver| {
        let server = Arc::new(OnceLock::new());
        let to = server.clone();
        let origin = Scripted::start(move |mut stream, number| {
            if number == 1 {
                // No handshake.
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
                return;
            }
            let port: u16 = *to.wait();
            let mut ahead = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut there, mut back) = (ahead.try_clone().unwrap(), stream.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut there, &mut back));
            let _ = std::io::copy(&mut stream, &mut ahead);
        });
        let text = format!(
            "upstream u {{ server 127.0.0.1:{}; }}
             server {{ listen 127.0.0.1:%PORT0%; proxy_http_version 2;
                 location / {{ proxy_pass https://u; }}
                 location = /here {{ return 200 here; }} }}
             server {{ listen 127.0.0.1:%PORT1% ssl; http2 on;
                 ssl_certificate own.pem; ssl_certificate_key own.key;
                 location / {{ return 200 $http2; }} }}",
            origin.port
        );
        let own = Pair::own(KeyKind::P256, "own.example");
        let weir = own.on(Site::new(built_binary(), driver), "own").http(&text).start();
        server.set(weir.port(1)).unwrap();
        let first = ask(&weir, "GET", "/", "", b"");
        wait_until("a connection", || origin.connections() == 1);
        let mut others: Vec<_> = (0..4).map(|_| ask(&weir, "GET", "/", "", b"")).collect();
        // The server has looked at all that came before this request.
        assert_eq!(weir.get("/here").text(), "here");
        drop(first);
        for conn in &mut others {
            assert_eq!(conn.response().text(), "h2");
        }
        assert_eq!(origin.connections(), 2);
    });
}

#[test]
fn a_connection_has_so_many_requests_as_both_sides_allow() {
    each_driver(|driver| {
        let held = Arc::new(Mutex::new(Vec::<usize>::new()));
        let count = held.clone();
        let origin = Scripted::start(move |stream, number| {
            let most = [(setting::MAX_CONCURRENT_STREAMS, 2)];
            let mut peer = Peer::accept(stream, if number == 1 { &most } else { &[] });
            let Some(first) = peer.request() else { return };
            peer.reply(first.stream, &Reply::of("first"));
            let mut open: Vec<Request> = Vec::new();
            while let Some(request) = peer.request() {
                open.push(request);
                count.lock().unwrap().push(number);
                if open.last().is_some_and(|last| last.path() == "/last") {
                    for request in open.drain(..) {
                        peer.reply(request.stream, &Reply::of("x"));
                    }
                }
            }
        });
        let weir = site(driver, origin.port, "keepalive_streams 3;", "");
        assert_eq!(weir.get("/").text(), "first");
        let arrived = |n: usize| {
            wait_for("requests", || (held.lock().unwrap().len() == n).then_some(()));
        };
        // Two over the first connection, as it says, and three over others, as we say; those are
        // single until the parameters came.
        let waiting: Vec<_> = (1..=2)
            .map(|n| {
                let conn = ask(&weir, "GET", "/held", "", b"");
                arrived(n);
                conn
            })
            .collect();
        assert_eq!(*held.lock().unwrap(), [1, 1]);
        assert_eq!(weir.get("/").text(), "first");
        assert_eq!(origin.connections(), 2);
        drop(waiting);
    });
}

#[test]
fn requests_are_those_of_http_1() {
    each_driver(|driver| {
        let origin = origin(|request, _| {
            let fields: Vec<_> = request.fields.iter().map(|(n, v)| format!("{n}={v}")).collect();
            let text = format!("{}|{}", fields.join("|"), String::from_utf8_lossy(&request.body));
            let reply = Reply::of(if request.field(":method") == Some("HEAD") {
                String::new()
            } else {
                text
            });
            reply.with("x-reply", "yes").with("content-type", "text/plain")
        });
        let server = "
            location /set/ {
                proxy_pass http://u/with/;
                proxy_set_header Host $http_x_name;
                proxy_set_header Connection upgrade;
                proxy_set_header X-Empty '';
                proxy_set_header X-Own $request_method;
            }
            location /body { proxy_pass http://u; proxy_set_body 'ours $request_uri'; }
            location /method { proxy_pass http://u; proxy_method PATCH; }";
        let weir = site(driver, origin.port, "", server);
        let fields = "Connection: keep-alive, te\r\nKeep-Alive: 5\r\nTE: trailers\r\n\
                      Upgrade: x\r\nExpect: \r\nCookie: a=1\r\nCookie: b=2\r\nX-Client: Yes\r\n";
        let got = ask(&weir, "GET", "/a%20b?c=d", fields, b"").response();
        assert_eq!(
            got.text(),
            ":method=GET|:scheme=http|:path=/a%20b?c=d|:authority=u|cookie=a=1|cookie=b=2|\
             x-client=Yes|"
        );
        assert_eq!(got.header("x-reply"), Some("yes"));
        let got = ask(&weir, "POST", "/set/x", "X-Name: named\r\nX-Empty: y\r\n", b"body");
        let mut got = got;
        assert_eq!(
            got.response().text(),
            ":method=POST|:scheme=http|:path=/with/x|:authority=named|x-own=POST|content-length=4|\
             x-name=named|body"
        );
        let text = ask(&weir, "POST", "/body", "", b"theirs").response().text();
        assert!(text.ends_with("|content-length=10|ours /body"), "{text}");
        assert!(weir.get("/method").text().starts_with(":method=PATCH|"));
        let mut conn = ask(&weir, "HEAD", "/head", "", b"");
        let head = conn.response_to("HEAD");
        assert_eq!((head.status, head.header("x-reply")), (200, Some("yes")));
        // Chunked by the client: a body without a length.
        let mut conn = weir.connect();
        conn.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        conn.send("3\r\nabc\r\n0\r\n\r\n");
        assert!(conn.response().text().ends_with("|content-length=3|abc"));
    });
}

/// A server that gives windows for bodies of any length, and echoes these.
fn echo() -> Scripted {
    Scripted::start(|stream, _| {
        let mut peer = Peer::accept(stream, &[(setting::INITIAL_WINDOW_SIZE, 20_000)]);
        peer.send(&[Frame::window_update(0, 1 << 30)]);
        loop {
            match peer.came() {
                Came::Frame(frame) if frame.kind == kind::DATA => {
                    let len = frame.payload.len() as u32;
                    if len > 0 {
                        peer.send(&[Frame::window_update(frame.stream, len)]);
                    }
                }
                Came::Whole(request) => {
                    // As one does that keeps to the window of the client.
                    let half = Reply::of(request.body.clone());
                    peer.reply(request.stream, &half);
                }
                Came::End => return,
                _ => {}
            }
        }
    })
}

#[test]
fn bodies_of_all_lengths_go_through_windows() {
    each_driver(|driver| {
        let origin = echo();
        let server = "
            client_max_body_size 0; client_body_buffer_size 16k;
            location /streamed { proxy_pass http://u; proxy_request_buffering off;
                                 proxy_buffering off; }";
        let weir = site(driver, origin.port, "", server);
        for path in ["/", "/alone", "/streamed"] {
            for len in [1, 16_384, 20_000, 65_535, 200_000] {
                let body = pattern(len, len);
                let mut conn = ask(&weir, "POST", path, "", &body);
                let got = conn.response();
                assert_eq!((got.status, got.body.len()), (200, len), "{path} {len}");
                assert!(got.body == body, "{path} {len}");
            }
        }
    });
}

#[test]
fn a_client_that_does_not_read_stalls_its_own_stream() {
    each_driver(|driver| {
        // The server keeps to the windows of the streams, and answers small requests meanwhile.
        let origin = Scripted::start(|stream, _| {
            let mut peer = Peer::accept(stream, &[]);
            let (mut window, mut left, mut large) = (262_144_u32, 3_000_000_u32, 0);
            loop {
                match peer.came() {
                    Came::Whole(request) if request.path() == "/large" => {
                        large = request.stream;
                        let length = left.to_string();
                        let fields = [(":status", "200"), ("content-length", &*length)];
                        peer.send(&[Frame::headers(large, block(&fields), false)]);
                    }
                    Came::Whole(request) => peer.reply(request.stream, &Reply::of("small")),
                    Came::Frame(frame) if frame.kind == kind::WINDOW_UPDATE && large != 0 => {
                        window += if frame.stream == large { frame.number(0) } else { 0 };
                    }
                    Came::End => return,
                    _ => {}
                }
                while large != 0 && window > 0 && left > 0 {
                    let n = window.min(left).min(16_384);
                    (window, left) = (window - n, left - n);
                    peer.send(&[Frame::data(large, vec![b'x'; n as usize], left == 0)]);
                }
            }
        });
        let weir = site(
            driver,
            origin.port,
            "keepalive 32;",
            "location /large { proxy_pass http://u; proxy_buffering off; }",
        );
        assert_eq!(weir.get("/warm").text(), "small");
        let mut slow = ask(&weir, "GET", "/large", "", b"");
        let begun = slow.read_until(b"\r\n\r\n");
        assert!(begun.starts_with(b"HTTP/1.1 200"));
        for _ in 0..50 {
            assert_eq!(weir.get("/small").text(), "small");
        }
        assert_eq!(origin.connections(), 1);
        assert_eq!(slow.read_exact(3_000_000), vec![b'x'; 3_000_000]);
    });
}

#[test]
fn fields_behind_a_body_are_passed_on() {
    each_driver(|driver| {
        let origin = origin(|_, _| Reply::of("body").trailer("x-sum", "12"));
        let weir = site(
            driver,
            origin.port,
            "",
            "location /passed { proxy_pass http://u; proxy_pass_trailers on; }",
        );
        for (path, expected) in [("/passed", true), ("/", false)] {
            let fields = "Connection: close, te\r\nTE: trailers\r\n";
            let got = ask(&weir, "GET", path, fields, b"").read_to_end();
            let text = String::from_utf8_lossy(&got);
            assert_eq!(text.contains("x-sum: 12"), expected, "{text}");
        }
    });
}

/// The frames of a server that answers a request wrongly.
type Wrong = fn(u32) -> Vec<Frame>;

#[test]
fn wrong_responses_are_bad_gateways() {
    let cases: &[(&str, Wrong, &str)] = &[
        (
            "reset",
            |s| vec![Frame::reset(s, code::INTERNAL_ERROR)],
            "upstream rejected request with error 2",
        ),
        ("data", |s| vec![Frame::data(s, "x", true)], "upstream sent unexpected http2 frame: 0"),
        (
            "no-status",
            |s| vec![Frame::headers(s, block(&[("a", "b")]), true)],
            "upstream sent no :status header",
        ),
        (
            "upper",
            |s| vec![Frame::headers(s, block(&[(":status", "200"), ("A", "b")]), true)],
            "upstream sent invalid header: \"A: b\"",
        ),
        ("hpack", |s| vec![Frame::headers(s, [0x80], true)], "upstream sent"),
        (
            "unknown",
            |s| vec![Frame::headers(s + 2, block(&[(":status", "200")]), true)],
            "upstream sent frame for unknown stream",
        ),
        (
            "push",
            |s| vec![Frame::new(kind::PUSH_PROMISE, flag::END_HEADERS, s, [0, 0, 0, 2])],
            "upstream sent PUSH_PROMISE frame",
        ),
        (
            "continuation",
            |s| vec![Frame::new(kind::CONTINUATION, 0, s, [])],
            "upstream sent unexpected CONTINUATION frame",
        ),
        (
            "too-long",
            |_| vec![Frame::new(kind::DATA, 0, 1, vec![0; 20_000])],
            "upstream sent frame with too large length",
        ),
        (
            "settings",
            |_| vec![Frame::settings(&[(setting::INITIAL_WINDOW_SIZE, u32::MAX)])],
            "upstream sent SETTINGS frame with incorrect INITIAL_WINDOW_SIZE value",
        ),
        ("window", |_| vec![Frame::window_update(0, 0)], "upstream sent zero window update"),
        (
            "interim-end",
            |s| vec![Frame::headers(s, block(&[(":status", "103")]), true)],
            "upstream prematurely closed stream",
        ),
    ];
    each_driver(|driver| {
        let origin = Scripted::start(move |stream, _| {
            let mut peer = Peer::accept(stream, &[]);
            while let Some(request) = peer.request() {
                let name = request.path().trim_start_matches('/').to_owned();
                match cases.iter().find(|(case, ..)| *case == name) {
                    Some((_, frames, _)) => peer.send(&frames(request.stream)),
                    None if name == "closed" => return,
                    None => peer.reply(request.stream, &Reply::of("fine")),
                }
            }
        });
        let weir = site(driver, origin.port, "", "");
        for (name, _, message) in cases {
            assert_eq!(weir.get(&format!("/{name}")).status, 502, "{name}");
            weir.wait_for_log("error.log", message);
            assert_eq!(weir.get("/next").text(), "fine", "behind {name}");
        }
        assert_eq!(weir.get("/closed").status, 502);
        weir.wait_for_log("error.log", "upstream prematurely closed connection");
    });
}

#[test]
fn responses_that_break_off_are_cut() {
    each_driver(|driver| {
        let origin = Scripted::start(|stream, _| {
            let mut peer = Peer::accept(stream, &[]);
            while let Some(Request { stream, fields, .. }) = peer.request() {
                let path = fields.iter().find(|(n, _)| n == ":path").map(|(_, p)| p.clone());
                let head = block(&[(":status", "200"), ("content-length", "8")]);
                let mut frames = vec![Frame::headers(stream, head, false)];
                match path.as_deref().unwrap_or_default() {
                    "/less" => frames.push(Frame::data(stream, "half", true)),
                    "/more" => frames.push(Frame::data(stream, "more than it", true)),
                    "/reset" => {
                        frames.push(Frame::data(stream, "half", false));
                        frames.push(Frame::reset(stream, code::CANCEL));
                    }
                    _ => {
                        frames.push(Frame::data(stream, "half", false));
                        peer.send(&frames);
                        return;
                    }
                }
                peer.send(&frames);
            }
        });
        let server = "location /cached { proxy_pass http://u/less; proxy_cache one;
                                         proxy_cache_valid any 1h;
                                         add_header X-Cache $upstream_cache_status always; }";
        let weir = site(driver, origin.port, "", server);
        for path in ["/less", "/more", "/reset", "/closed"] {
            let got = ask(&weir, "GET", path, "", b"").read_to_end();
            assert!(!got.ends_with(b"more th"), "{path}");
            let body = got.windows(4).position(|w| w == b"\r\n\r\n").map(|at| got.len() - at - 4);
            assert!(
                got.is_empty() || body.is_some_and(|len| len < 8),
                "{path} {:?}",
                String::from_utf8_lossy(&got)
            );
        }
        for _ in 0..2 {
            let got = ask(&weir, "GET", "/cached", "", b"").read_to_end();
            assert!(String::from_utf8_lossy(&got).contains("X-Cache: MISS"));
        }
    });
}

#[test]
fn refused_requests_are_sent_again_whatever_they_do() {
    each_driver(|driver| {
        let origin = Scripted::start(|stream, number| {
            let mut peer = Peer::accept(stream, &[]);
            let mut count = 0;
            while let Some(request) = peer.request() {
                count += 1;
                let body = String::from_utf8_lossy(&request.body).into_owned();
                match (request.path(), number, count) {
                    // Not processed, and the connection stands.
                    ("/refused", 1, 1) => {
                        peer.send(&[Frame::reset(request.stream, code::REFUSED_STREAM)]);
                    }
                    // Not processed, and no other will be.
                    ("/leaving", 1, 3) => {
                        peer.send(&[Frame::goaway(request.stream - 2, code::NO_ERROR)]);
                    }
                    _ => peer.reply(request.stream, &Reply::of(format!("{body} {number}"))),
                }
            }
        });
        let weir = site(driver, origin.port, "", "");
        assert_eq!(ask(&weir, "POST", "/refused", "", b"a").response().text(), "a 1");
        assert_eq!(ask(&weir, "POST", "/leaving", "", b"b").response().text(), "b 2");
        assert_eq!(weir.get("/").text(), " 2");
    });
}

#[test]
fn processed_requests_are_not_sent_twice() {
    each_driver(|driver| {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = sent.clone();
        let origin = Scripted::start(move |stream, _| {
            let mut peer = Peer::accept(stream, &[]);
            while let Some(request) = peer.request() {
                if request.path() == "/work" {
                    count.fetch_add(1, Ordering::Relaxed);
                    // It may have been processed.
                    peer.send(&[Frame::goaway(request.stream, code::NO_ERROR)]);
                    return;
                }
                peer.reply(request.stream, &Reply::of("fine"));
            }
        });
        let weir = site(driver, origin.port, "", "");
        assert_eq!(weir.get("/").text(), "fine");
        assert_eq!(ask(&weir, "POST", "/work", "", b"x").response().status, 502);
        assert_eq!(sent.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_client_that_goes_cancels_its_stream() {
    each_driver(|driver| {
        let codes = Arc::new(Mutex::new(Vec::new()));
        let seen = codes.clone();
        let origin = scripted(&[], move |peer, came, _| match came {
            Came::Whole(request) if request.path() == "/held" => {}
            Came::Whole(request) => peer.reply(request.stream, &Reply::of("fine")),
            Came::Frame(frame) if frame.kind == kind::RST_STREAM => {
                seen.lock().unwrap().push(frame.number(0));
            }
            _ => {}
        });
        let weir = site(driver, origin.port, "", "");
        assert_eq!(weir.get("/").text(), "fine");
        let mut conn = weir.connect();
        conn.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(weir.get("/").text(), "fine");
        drop(conn);
        wait_for("the reset", || (*codes.lock().unwrap() == [code::CANCEL]).then_some(()));
        assert_eq!(weir.get("/").text(), "fine");
        assert_eq!(origin.connections(), 1);
    });
}

#[test]
fn idle_connections_end_in_time() {
    each_driver(|driver| {
        let ends = Arc::new(AtomicUsize::new(0));
        let count = ends.clone();
        let origin = Scripted::start(move |stream, number| {
            let mut peer = Peer::accept(stream, &[]);
            while let Some(request) = peer.request() {
                peer.reply(request.stream, &Reply::of(number.to_string()));
            }
            count.fetch_add(1, Ordering::Relaxed);
        });
        let weir = site(driver, origin.port, "keepalive_requests 3; keepalive_timeout 300ms;", "");
        // A connection has three requests.
        let numbers: Vec<_> = (0..4).map(|_| weir.get("/").text()).collect();
        assert_eq!(numbers, ["1", "1", "1", "2"]);
        wait_for("the timeout", || (ends.load(Ordering::Relaxed) == 2).then_some(()));
        assert_eq!(weir.get("/").text(), "3");
        // Without a group there is nobody to share with.
        assert_eq!(weir.get("/alone").text(), "4");
        assert_eq!(weir.get("/alone").text(), "5");
    });
}

#[test]
fn early_hints_and_the_cache() {
    each_driver(|driver| {
        let origin = Scripted::start(|stream, _| {
            let mut peer = Peer::accept(stream, &[]);
            let mut count = 0;
            while let Some(request) = peer.request() {
                count += 1;
                let hints = block(&[(":status", "103"), ("link", "</a.css>")]);
                peer.send(&[Frame::headers(request.stream, hints, false)]);
                peer.reply(request.stream, &Reply::of(format!("body {count}")));
            }
        });
        let server = "
            location /hints { proxy_pass http://u; early_hints 1; }
            location /kept { proxy_pass http://u; proxy_cache one; proxy_cache_valid 1h; }";
        let weir = site(driver, origin.port, "", server);
        let got = ask(&weir, "GET", "/hints", "Connection: close\r\n", b"").read_to_end();
        let text = String::from_utf8_lossy(&got);
        assert!(
            text.starts_with("HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\nHTTP/1.1 200"),
            "{text}"
        );
        let first = weir.get("/kept").text();
        assert!(first.starts_with("body"), "{first}");
        assert_eq!(weir.get("/kept").text(), first);
    });
}

#[test]
fn tls_to_servers_offers_http_2() {
    each_driver(|driver| {
        let text = "
            upstream u { server 127.0.0.1:%PORT1%; }
            server {
                listen 127.0.0.1:%PORT0%; http2 on;
                location / { proxy_pass https://u; proxy_http_version 2; }
                location /large { proxy_pass https://u; proxy_http_version 2; }
                location /grpc { grpc_pass grpcs://u; }
                location /old { proxy_pass https://u; }
            }
            server {
                listen 127.0.0.1:%PORT1% ssl; http2 on; client_max_body_size 0;
                ssl_certificate own.pem; ssl_certificate_key own.key;
                root html;
                location / { return 200 '$http2 $ssl_alpn_protocol $scheme $host'; }
                location /large { }
            }";
        let own = Pair::own(KeyKind::P256, "own.example");
        let site = own.on(Site::new(built_binary(), driver), "own");
        let weir = site.file("html/large", pattern(2_000_000, 1)).http(text).start();
        for _ in 0..2 {
            assert_eq!(weir.get("/").text(), "h2 h2 https u");
            assert_eq!(weir.get("/grpc").text(), "h2 h2 https u");
        }
        assert_eq!(weir.get("/old").text(), "  https u");
        assert!(weir.get("/large").body == pattern(2_000_000, 1));
    });
}

/// Such a server leaves bytes of ours unread, our acknowledgement of its SETTINGS for example, so
/// that its kernel sends a reset behind the response.
#[test]
fn a_server_that_answers_and_closes_at_once_is_heard() {
    each_driver(|driver| {
        let origin = Scripted::start(|stream, _| {
            let socket = stream.try_clone().unwrap();
            let mut peer = Peer::accept(stream, &[]);
            let Some(request) = peer.request() else { return };
            peer.send(&[Frame::new(kind::PING, 0, 0, b"12345678")]);
            peer.reply(request.stream, &Reply::of(pattern(10_000, 1)));
            // Else its kernel may throw away what has not left yet.
            wait_until("the response to be taken", || testkit::is_acknowledged(&socket));
        });
        let weir = site(driver, origin.port, "", "");
        for n in 0..50 {
            let response = weir.get(&format!("/alone/{n}"));
            assert_eq!((response.status, response.body.len()), (200, 10_000), "request {n}");
            assert!(response.body == pattern(10_000, 1));
        }
    });
}

#[test]
fn a_server_that_floods_its_connection_is_given_up() {
    each_driver(|driver| {
        let origin = Scripted::start(|stream, _| {
            let mut peer = Peer::accept(stream, &[]);
            while let Some(request) = peer.request() {
                let (kind, count) = request.path()[1..].split_once('/').unwrap();
                let frame = match kind {
                    "ping" => Frame::ping([1; 8]),
                    "settings" => Frame::settings(&[]),
                    _ => Frame::new(0x42, 0, 0, b""),
                };
                let frames = vec![frame; count.parse().unwrap()];
                peer.send(&frames);
                peer.reply(request.stream, &Reply::of("ok"));
            }
        });
        let weir = site(driver, origin.port, "", "");
        for (n, kind) in ["ping", "settings", "unknown"].iter().enumerate() {
            assert_eq!(weir.get(&format!("/{kind}/500")).text(), "ok");
            assert_eq!(weir.get(&format!("/{kind}/40000")).status, 502, "{kind}");
            weir.wait_for_count("error.log", "upstream sent too many frames without data", n + 1);
        }
        assert_eq!(weir.get("/ping/1").text(), "ok");
    });
}
