//! `client_body_min_rate` and `send_min_rate`: clients that let bytes drip are ended, slow ones are
//! served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testkit::h2::{Client, Options};
use testkit::{Driver, Site, Weir, built_binary, listener, pattern, refused, site_on_all_drivers};

/// Longer than the kernel keeps for a client that does not read.
const BIG: usize = 6 << 20;

/// The limit of a drip, with an allowance for a busy machine: the grace is 2 s.
const ENDED: Duration = Duration::from_secs(20);

const TOO_SLOW: &str = "client is slower than the minimum rate while ";

fn site(driver: Driver) -> Weir {
    let http = "client_body_min_rate 1k 2s; send_min_rate 4k 2s; client_max_body_size 0;
        server { listen 127.0.0.1:%PORT0% sndbuf=32k; http2 on; root html;
            location /memory { sendfile off; alias html; }
            location /body { proxy_pass http://127.0.0.1:%PORT1%; }
            location /talk { proxy_pass http://127.0.0.1:%LISTENER%; proxy_http_version 1.1;
                proxy_request_buffering off; }
            location /lax { client_body_min_rate off; proxy_pass http://127.0.0.1:%PORT1%; } }
        server { listen 127.0.0.1:%PORT1%; location / { return 200 ok; } }";
    let http = http.replace("%LISTENER%", &sink().to_string());
    Site::new(built_binary(), driver).file("html/big", pattern(BIG, 1)).http(&http).start()
}

/// The port of a server that reads, and never answers.
fn sink() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| {
        let (listener, port) = listener();
        std::thread::spawn(move || {
            for mut conn in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || std::io::copy(&mut conn, &mut std::io::sink()));
            }
        });
        port
    })
}

fn head(path: &str, field: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{field}\r\n\r\n")
}

/// Sends a byte at a time until the server has ended the connection; whether it did.
fn drips(weir: &Weir, path: &str, field: &str, bytes: &[u8]) -> bool {
    let mut conn = TcpStream::connect(("127.0.0.1", weir.port(0))).unwrap();
    conn.write_all(head(path, field).as_bytes()).unwrap();
    conn.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let began = Instant::now();
    for byte in bytes.iter().cycle() {
        let sent = conn.write_all(&[*byte]);
        let read = conn.read(&mut [0; 64]);
        let silent = read.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
        if sent.is_err() || !silent {
            return true;
        }
        if began.elapsed() > Duration::from_secs(6) {
            break;
        }
    }
    false
}

#[test]
fn dripping_bodies_are_ended() {
    site_on_all_drivers(site, |weir| {
        let chunked = "Transfer-Encoding: chunked";
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(drips(&weir, "/body", "Content-Length: 100000", b"x")));
            scope.spawn(|| assert!(drips(&weir, "/body", chunked, b"1\r\nx\r\n")));
            // A chunk's extension that never ends.
            scope.spawn(|| assert!(drips(&weir, "/body", chunked, b"1;a=bbbbbbbb")));
            scope.spawn(|| assert!(drips(&weir, "/talk", "Content-Length: 100000", b"x")));
            // A conversation may rest, and a location may allow it.
            scope.spawn(|| assert!(!drips(&weir, "/talk", chunked, b"1\r\nx\r\n")));
            scope.spawn(|| assert!(!drips(&weir, "/lax", "Content-Length: 100000", b"x")));
        });
        let line = weir.wait_for_log("error.log", TOO_SLOW);
        assert!(line.contains("[info]") && line.contains("reading client request body"), "{line}");
    });
}

#[test]
fn slow_bodies_are_taken() {
    site_on_all_drivers(site, |weir| {
        let mut conn = weir.connect();
        conn.send(head("/body", "Content-Length: 120000"));
        // 30 kB/s, with pauses.
        for _ in 0..4 {
            conn.send([b'x'; 30_000]);
            std::thread::sleep(Duration::from_millis(1_200));
        }
        assert_eq!(conn.response().status, 200);
        assert!(!weir.stop_and_read("error.log").contains(TOO_SLOW));
    });
}

#[test]
fn dripping_bodies_of_streams_are_ended() {
    site_on_all_drivers(site, |weir| {
        let mut client = Client::tcp(weir.port(0));
        let stream = client.open("POST", "/body", &[("content-length", "100000")], false);
        let began = Instant::now();
        while !weir.log("error.log").contains(TOO_SLOW) {
            assert!(began.elapsed() < ENDED);
            client.data(stream, b"x", false);
            std::thread::sleep(Duration::from_millis(100));
        }
        client.wait_for("the stream's end", |c| c.so_far(stream)?.reset);
        assert_eq!(client.request("POST", "/body", &[], b"whole").status, 200);
    });
}

/// Reads `step` bytes after each pause, until all is read, it ends, or `over` is set. How much came
/// of the answer, and whether that is what was asked for.
fn read_slowly(weir: &Weir, path: &str, step: usize, pause: u64, over: &AtomicBool) -> usize {
    let conn = TcpStream::connect(("127.0.0.1", weir.port(0))).unwrap();
    os::socket::set_rcvbuf(&conn, 16 << 10).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    (&conn).write_all(request.as_bytes()).unwrap();
    let mut all = Vec::new();
    while !over.load(Ordering::Relaxed) {
        match (&conn).take(step as u64).read_to_end(&mut all) {
            Ok(0) | Err(_) => break,
            Ok(_) => std::thread::sleep(Duration::from_millis(pause)),
        }
    }
    let body = all.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
    assert!(pattern(BIG, 1).starts_with(&all[body..]));
    all.len() - body
}

#[test]
fn dripping_readers_are_ended() {
    site_on_all_drivers(site, |weir| {
        for path in ["/big", "/memory/big"] {
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                // 1,500 B/s, and the same in bursts.
                scope.spawn(|| read_slowly(&weir, path, 150, 100, &over));
                scope.spawn(|| read_slowly(&weir, path, 1_500, 1_000, &over));
                let line = format!("\"GET {path} HTTP/1.1\"");
                weir.wait_for_count("access.log", &line, 2);
                over.store(true, Ordering::Relaxed);
            });
        }
        let line = weir.wait_for_log("error.log", TOO_SLOW);
        // One line tells of all connections of a client.
        assert_eq!(weir.stop_and_read("error.log").matches(TOO_SLOW).count(), 1);
        assert!(
            line.ends_with("request: \"GET /big HTTP/1.1\", host: \"localhost\"")
                && line.contains("sending response to client"),
            "{line}"
        );
    });
}

#[test]
fn slow_readers_are_served() {
    site_on_all_drivers(site, |weir| {
        let never = AtomicBool::new(false);
        for path in ["/big", "/memory/big"] {
            assert_eq!(read_slowly(&weir, path, 2 << 20, 1_300, &never), BIG, "{path}");
        }
        assert!(!weir.stop_and_read("error.log").contains(TOO_SLOW));
    });
}

#[test]
fn dripping_windows_are_ended() {
    site_on_all_drivers(site, |weir| {
        let mut client = Client::with(weir.port(0), Options::default().withholding());
        let stream = client.open("GET", "/big", &[], true);
        client.grant(0, 1 << 30);
        let began = Instant::now();
        while !weir.log("error.log").contains(TOO_SLOW) {
            assert!(began.elapsed() < ENDED);
            client.grant(stream, 100);
            std::thread::sleep(Duration::from_millis(100));
        }
        client.wait_for("the stream's end", |c| c.so_far(stream)?.reset);
    });
}

#[test]
fn slow_windows_are_served() {
    site_on_all_drivers(site, |weir| {
        let mut client = Client::with(weir.port(0), Options::default().withholding());
        let stream = client.open("GET", "/big", &[], true);
        client.grant(0, 1 << 30);
        for quarter in 1..=4 {
            std::thread::sleep(Duration::from_millis(1_300));
            client.grant(stream, (BIG / 4) as u32);
            let due = quarter * BIG / 4;
            client.wait_for("a quarter", |c| (c.so_far(stream)?.body.len() >= due).then_some(()));
        }
        assert_eq!(client.response(stream).body, pattern(BIG, 1));
    });
}

#[test]
fn values() {
    let http = "server { listen 127.0.0.1:%PORT0%; * }";
    refused(
        http,
        &[
            ("client_body_min_rate fast;", "\"client_body_min_rate\" directive invalid value"),
            ("send_min_rate 1k 0;", "the time that a client may rest must not be 0"),
            ("send_min_rate off 5s;", "invalid parameter \"5s\""),
            ("send_min_rate 1k; send_min_rate 2k;", "\"send_min_rate\" directive is duplicate"),
        ],
    );
}
