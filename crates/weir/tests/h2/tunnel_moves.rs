//! Connections whose streams are tunnels move to the new workers at a reload, together with the
//! tunnels.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::h2::{Client, Frame, Options, block, code, setting};
use testkit::{
    Conn, Driver, Json, Pair, Site, Weir, built_binary, certificates::KeyKind, each_driver,
    pattern, wait_until,
};

/// A server that opens a tunnel with each connection, be it by an upgrade or by itself, and sends
/// back what it gets.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

fn serve(mut stream: TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let text = String::from_utf8(head).unwrap();
    if text.starts_with("GET /slow ") {
        // A usual response, whose end never comes.
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nslow");
        let _ = stream.read(&mut byte);
        return;
    }
    let key = text.lines().find_map(|line| line.strip_prefix("sec-websocket-key: "));
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
         Connection: upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
        testkit::websocket_accept(key.unwrap_or_default())
    );
    let mut buf = vec![0; 16 << 10];
    let _ = stream.write_all(answer.as_bytes());
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        if stream.write_all(&buf[..n]).is_err() {
            return;
        }
    }
}

/// Ports: 0 in clear, 1 over TLS, 2 tells the status.
fn config(backend: u16, in_server: &str) -> String {
    format!(
        "worker_processes 2;\nerror_log logs/error.log info;\nevents {{}}\n\
         http {{ http2 on; ssl_certificate a.pem; ssl_certificate_key a.key;\n\
         log_format facts '$request $status $body_bytes_sent $request_length $connection_requests \
         $upstream_bytes_sent $upstream_bytes_received $http_x_mark $server_protocol';\n\
         access_log logs/access.log facts;\n\
         limit_conn_zone $server_port zone=c:64k;\n\
         server {{ listen 127.0.0.1:%PORT0%; listen 127.0.0.1:%PORT1% ssl; {in_server}\n\
         location / {{ limit_conn c 3; proxy_pass http://127.0.0.1:{backend};\n\
         proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $http_connection; }}\n\
         location = /plain {{ return 200 plain; access_log off; }} }}\n\
         server {{ listen 127.0.0.1:%PORT0%; server_name connect; tunnel_pass 127.0.0.1:{backend}; }}\n\
         server {{ listen 127.0.0.1:%PORT2%; http2 off; access_log off;\n\
         location / {{ stub_status json; }} }} }}\n"
    )
}

fn start(driver: Driver, text: &str) -> Weir {
    let pair = Pair::own(KeyKind::P256, "localhost");
    pair.on(Site::new(built_binary(), driver), "a").config(text).start()
}

fn status(weir: &Weir) -> Json {
    let mut conn = Conn::tcp(weir.port(2));
    conn.send("GET / HTTP/1.0\r\n\r\n");
    Json::parse(&conn.response().text())
}

fn reload(weir: &Weir) {
    let old = weir.workers();
    weir.reload();
    weir.wait_until_left(&old);
}

fn open(c: &mut Client, path: &str) -> u32 {
    let stream = c.websocket(path);
    assert_eq!(c.response_head(stream).status, 200);
    stream
}

/// Sends bytes through a tunnel, and waits until all that was sent so far has come back.
fn says(c: &mut Client, stream: u32, sent: &mut Vec<u8>, bytes: &[u8]) {
    c.data(stream, bytes, false);
    sent.extend_from_slice(bytes);
    c.wait_for_body(stream, sent);
}

#[test]
fn websockets_outlive_their_workers() {
    each_driver(|driver| {
        let weir = start(driver, &config(echo(), ""));
        let mut all = [Client::tcp(weir.port(0)), Client::tls(weir.port(1))];
        let mut streams = Vec::new();
        for c in &mut all {
            assert_eq!(c.get("/plain").text(), "plain");
            let opened = [open(c, "/one"), open(c, "/two")];
            streams.push(opened.map(|stream| (stream, Vec::new())));
        }
        for round in 0..4 {
            for (c, streams) in all.iter_mut().zip(&mut streams) {
                for (i, (stream, sent)) in streams.iter_mut().enumerate() {
                    says(c, *stream, sent, &pattern(1 + 30_000 * i, round));
                }
            }
            reload(&weir);
            // Other requests and further tunnels are welcome.
            for c in &mut all {
                assert_eq!(c.get("/plain").text(), "plain");
            }
        }
        for (c, streams) in all.iter_mut().zip(&mut streams) {
            for (stream, sent) in streams {
                says(c, *stream, sent, b"last");
                c.data(*stream, b"", true);
                let response = c.response(*stream);
                assert!(response.body == *sent && response.is_over());
            }
            assert!(c.goaways().is_empty(), "{:?}", c.goaways());
        }
        wait_until("the last receiver", || {
            let now = status(&weir);
            let of = |what: &str| now.number(&format!("handover.http2.{what}"));
            of("moved") == 2 && of("sent") >= 2 * 4 && of("sent") == of("received")
        });
        assert_eq!(status(&weir).number("handover.tunnels.sent"), 0);
        // Each has one line, with the bytes of its whole life.
        let lines = weir.wait_for_lines("access.log", 4);
        let log = weir.stop_and_read("access.log");
        assert_eq!(log.lines().count(), 4, "{lines:?} {log}");
        for (path, length) in [("one", 8), ("two", 120_008)] {
            let of_path = format!("CONNECT /{path} HTTP/2.0 101 {length} ");
            let lines: Vec<&str> = log.lines().filter(|line| line.starts_with(&of_path)).collect();
            assert_eq!(lines.len(), 2, "{of_path} in {log}");
            for line in lines {
                let rest: Vec<&str> = line[of_path.len()..].split(' ').collect();
                assert!(rest[0].parse::<u64>().unwrap() > 20, "{line}");
                assert_eq!((rest[1], rest[4], rest[5]), ("3", "-", "HTTP/2.0"), "{line}");
                for upstream in &rest[2..4] {
                    let bytes: u64 = upstream.parse().unwrap();
                    assert!(bytes > length && bytes < length + 300, "{line}");
                }
            }
        }
    });
}

/// What the client has not granted waits, what it has sent is not lost, and windows are counted on.
#[test]
fn bytes_and_windows_of_both_directions_move_along() {
    each_driver(|driver| {
        let weir = start(driver, &config(echo(), "http2_body_preread_size 70000;"));
        let options = Options::default().withholding().set(setting::INITIAL_WINDOW_SIZE, 1_000);
        let mut c = Client::with(weir.port(0), options);
        let (one, two) = (open(&mut c, "/one"), open(&mut c, "/two"));
        let sent = pattern(50_000, 3);
        c.data(one, &sent, false);
        c.wait_for_length(one, 1_000);
        c.ping();
        for round in 1..=3u32 {
            reload(&weir);
            c.ping();
            let granted = 1_000 * round as usize;
            assert_eq!(c.so_far(one).unwrap().body.len(), granted, "the client's window");
            c.grant(one, 1_000);
            c.wait_for_length(one, granted + 1_000);
        }
        // A smaller first window leaves less than none to a stream.
        c.change_settings(&[(setting::INITIAL_WINDOW_SIZE, 400)]);
        c.ping();
        reload(&weir);
        c.grant(one, 700);
        c.wait_for_length(one, 4_100);
        c.ping();
        assert_eq!(c.so_far(one).unwrap().body.len(), 4_100);
        c.grant(0, 400_000);
        c.grant(one, 100_000);
        c.wait_for_body(one, &sent);
        let mut sent = Vec::new();
        says(&mut c, two, &mut sent, b"a little");
        reload(&weir);
        c.grant(two, 200_000);
        says(&mut c, two, &mut sent, &pattern(150_000, 5));
    });
}

#[test]
fn connect_moves_too() {
    each_driver(|driver| {
        let weir = start(driver, &config(echo(), ""));
        let mut c = Client::tcp(weir.port(0));
        let stream = c.next_stream();
        c.expect(stream);
        let fields = [(":method", "CONNECT"), (":authority", "connect:1"), ("x-mark", "m")];
        c.send_frame(&Frame::headers(stream, block(&fields), false));
        assert_eq!(c.response_head(stream).status, 200);
        let greeting = b"GET / HTTP/1.1\r\n\r\n";
        c.data(stream, greeting, false);
        c.wait_for("the answer", |c| {
            c.so_far(stream).filter(|r| r.body.ends_with(b"\r\n\r\n")).map(|_| ())
        });
        let mut so_far = c.so_far(stream).unwrap().body.clone();
        for round in 0..3 {
            reload(&weir);
            says(&mut c, stream, &mut so_far, &pattern(9_000, round));
        }
        c.data(stream, b"", true);
        assert!(c.response(stream).is_over());
        assert!(c.goaways().is_empty(), "{:?}", c.goaways());
        let log = weir.stop_and_read("access.log");
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.starts_with("CONNECT connect:1 HTTP/2.0 200 ") && log.contains(" m HTTP/2.0"));
    });
}

/// The sockets of all tunnels go with one message.
#[test]
fn many_tunnels_of_a_connection_move_together() {
    each_driver(|driver| {
        let text = config(echo(), "").replace("limit_conn c 3", "limit_conn c 99");
        let weir = start(driver, &text);
        let mut c = Client::tcp(weir.port(0));
        let mut tunnels: Vec<(u32, Vec<u8>)> =
            (0..40).map(|n| (open(&mut c, &format!("/{n}")), Vec::new())).collect();
        for round in 0..3 {
            for (stream, sent) in &mut tunnels {
                says(&mut c, *stream, sent, &pattern(5_000, round));
            }
            reload(&weir);
        }
        for (stream, sent) in &mut tunnels {
            says(&mut c, *stream, sent, b"end");
        }
        assert!(c.goaways().is_empty() && status(&weir).number("handover.http2.sent") > 0);
    });
}

/// `limit_conn` counts a tunnel once, and its end frees it.
#[test]
fn limits_count_them_once() {
    each_driver(|driver| {
        let weir = start(driver, &config(echo(), ""));
        let mut c = Client::tcp(weir.port(0));
        let streams = ["/1", "/2", "/3"].map(|path| open(&mut c, path));
        reload(&weir);
        reload(&weir);
        assert!(c.goaways().is_empty() && status(&weir).number("handover.http2.sent") > 0);
        let full = |c: &mut Client| {
            let stream = c.websocket("/full");
            c.response_head(stream).status
        };
        assert_eq!(full(&mut c), 503);
        c.reset(streams[0], code::CANCEL);
        wait_until("room", || full(&mut c) == 200);
    });
}

#[test]
fn a_response_in_flight_or_handover_off_keeps_them_where_they_are() {
    for (path, in_server, why) in [
        (Some("/slow"), "", ""),
        (None, "handover off;", "off"),
        (None, "http2_max_concurrent_streams 9;", "configuration"),
    ] {
        let backend = echo();
        let mut weir = start(Driver::usual(), &config(backend, ""));
        let mut c = Client::tcp(weir.port(0));
        let stream = open(&mut c, "/one");
        let mut sent = Vec::new();
        says(&mut c, stream, &mut sent, b"before");
        let slow = path.map(|path| {
            let slow = c.start("GET", path, &[], b"");
            c.wait_for_length(slow, 4);
            slow
        });
        let old = weir.workers();
        weir.set_config(&config(backend, in_server));
        weir.reload();
        c.wait_for("GOAWAY", |c| c.goaways().first().map(|_| ()));
        assert_eq!(c.goaways()[0].code, code::NO_ERROR);
        says(&mut c, stream, &mut sent, b"behind");
        if !why.is_empty() {
            let of = format!("handover.http2.stayed.{why}");
            wait_until("the count", || status(&weir).number(&of) == 1);
        }
        assert_eq!(status(&weir).number("handover.http2.sent"), 0);
        slow.into_iter().for_each(|slow| c.reset(slow, code::CANCEL));
        c.data(stream, b"", true);
        c.response(stream);
        weir.wait_until_left(&old);
    }
}

/// Few connections rest at a time. One that cannot use its turn gives it back, and is counted when
/// it stays.
#[test]
fn turns_that_cannot_be_used_are_given_back() {
    let text = config(echo(), "").replace("limit_conn c 3", "limit_conn c 999");
    let weir = start(Driver::usual(), &text.replace("worker_processes 2", "worker_processes 1"));
    let begin = |_| {
        let mut c = Client::tcp(weir.port(0));
        let stream = open(&mut c, "/one");
        (c, stream)
    };
    let mut all: Vec<_> = (0..72).map(begin).collect();
    let mut probe = weir.connect();
    let mut is_last = || {
        probe.send("GET /plain HTTP/1.1\r\nHost: a\r\n\r\n");
        probe.response().header("connection") == Some("close")
    };
    assert!(!is_last());
    let old = weir.workers();
    let signal = |pids: &[u32], name: &str| pids.iter().for_each(|&pid| weir.signal_to(pid, name));
    // The new worker hangs until all connections stand in line.
    signal(&old, "STOP");
    weir.reload();
    let new: Vec<u32> = weir.workers().into_iter().filter(|pid| !old.contains(pid)).collect();
    signal(&new, "STOP");
    signal(&old, "CONT");
    wait_until("the leave", &mut is_last);
    // More than rest at a time get half a frame while they wait.
    let (halves, _whole) = all.split_at_mut(66);
    let frame = |stream| Frame::data(stream, b"whole", false).encode();
    halves.iter_mut().for_each(|(c, stream)| c.send(&frame(*stream)[..4]));
    signal(&new, "CONT");
    wait_until("the others", || {
        let now = status(&weir);
        // The turns were not held until their time was over.
        assert_eq!(now.number("handover.http2.stayed.state"), 0);
        now.number("handover.http2.sent") == 6
    });
    wait_until("the count", || status(&weir).number("handover.http2.stayed.state") == 66);
    for (c, stream) in halves {
        c.send(&frame(*stream)[4..]);
        c.wait_for_body(*stream, b"whole");
    }
    assert_eq!(status(&weir).number("handover.http2.sent"), 6);
    drop(all);
    weir.wait_until_left(&old);
}

/// Connections whose clients have left a frame unfinished when the worker leaves do not stand in
/// line in front of others.
#[test]
fn clients_with_half_a_frame_do_not_hold_up_others() {
    each_driver(|driver| {
        let text = config(echo(), "").replace("limit_conn c 3", "limit_conn c 999");
        let weir = start(driver, &text.replace("worker_processes 2", "worker_processes 1"));
        let begin = |i: usize| {
            let mut c = Client::tcp(weir.port(0));
            let stream = open(&mut c, "/one");
            let frame = Frame::data(stream, b"whole", false).encode();
            // A part of the frame's header, or of its content.
            let (now, later) = frame.split_at(4 + 7 * (i % 2));
            c.send(now);
            (c, stream, later.to_vec())
        };
        let mut halves: Vec<_> = (0..80).map(begin).collect();
        let mut idle: Vec<Conn> = (0..8).map(|_| weir.connect()).collect();
        let plain = |conn: &mut Conn| {
            conn.send("GET /plain HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(conn.response().text(), "plain");
        };
        idle.iter_mut().for_each(plain);
        let old = weir.workers();
        weir.reload();
        wait_until("the idle ones", || {
            let now = status(&weir);
            // The turns were not held until their time was over.
            assert_eq!(now.number("handover.http2.stayed.state"), 0);
            now.number("handover.idle.sent") == 8
        });
        idle.iter_mut().for_each(plain);
        for (c, stream, later) in &mut halves {
            c.send(later);
            c.wait_for_body(*stream, b"whole");
            c.data(*stream, b"", true);
            assert!(c.response(*stream).is_over());
        }
        drop(halves);
        weir.wait_until_left(&old);
    });
}

/// Messages of all sizes are under way in both directions while the connections move.
#[test]
fn no_byte_is_lost_while_workers_change() {
    each_driver(|driver| {
        let weir = start(driver, &config(echo(), ""));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|i| {
                    let (weir, stop) = (&weir, &stop);
                    scope.spawn(move || {
                        let mut c = match i % 2 {
                            0 => Client::tcp(weir.port(0)),
                            _ => Client::tls(weir.port(1)),
                        };
                        let stream = open(&mut c, &format!("/{i}"));
                        let (mut sent, mut n) = (Vec::new(), 0);
                        while !stop.load(Ordering::Relaxed) {
                            let piece = pattern(1 + n * 7919 % 40_000, n);
                            c.data(stream, &piece, false);
                            sent.extend_from_slice(&piece);
                            if n % 3 == 0 {
                                c.wait_for_body(stream, &sent);
                                assert_eq!(c.get("/plain").text(), "plain");
                            }
                            n += 1;
                        }
                        c.wait_for_body(stream, &sent);
                        n
                    })
                })
                .collect();
            for _ in 0..5 {
                reload(&weir);
            }
            stop.store(true, Ordering::Relaxed);
            for client in clients {
                assert!(client.join().expect("every byte") > 0);
            }
        });
    });
}
