//! Clients over HTTP/2 with many requests, and the turns of others.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use testkit::h2::Client;
use testkit::{Driver, Site, Weir, built_binary, each_driver};

/// Requests of a busy client.
const STREAMS: usize = 60;

fn site(driver: Driver, port: u16) -> Weir {
    Site::new(built_binary(), driver)
        .config(&format!(
            "worker_processes 1; events {{}}
             http {{
                 http2 on;
                 log_format path $uri;
                 access_log logs/access.log path;
                 server {{
                     listen 127.0.0.1:%PORT0%;
                     location / {{ proxy_pass http://127.0.0.1:{port}; }}
                     location = /here {{ return 200 here; }}
                 }}
             }}"
        ))
        .start()
}

/// Lets the worker see what was sent to it meanwhile at once.
fn at_once(weir: &Weir, send: impl FnOnce()) {
    let workers = weir.workers();
    workers.iter().for_each(|pid| weir.signal_to(*pid, "STOP"));
    send();
    std::thread::sleep(Duration::from_millis(50));
    workers.iter().for_each(|pid| weir.signal_to(*pid, "CONT"));
}

/// The next request that reaches the origin: its connection and its path.
fn asked(origin: &TcpListener) -> (TcpStream, String) {
    let (stream, _) = origin.accept().unwrap();
    let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_string();
    assert!(lines.any(|line| line.is_empty()), "no whole head");
    (stream, path)
}

fn answer(mut stream: &TcpStream) {
    stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
}

/// Each request costs a connection to the origin: a few are a slice of the loop's time.
#[test]
fn a_client_does_not_wait_for_many_requests_of_another_that_are_passed_on() {
    each_driver(|driver| {
        let origin = TcpListener::bind("127.0.0.1:0").unwrap();
        let weir = site(driver, origin.local_addr().unwrap().port());
        for body in [&b""[..], b"body"] {
            let method = if body.is_empty() { "GET" } else { "POST" };
            let (mut busy, mut other) = (Client::tcp(weir.port(0)), Client::tcp(weir.port(0)));
            busy.settings();
            other.settings();
            at_once(&weir, || {
                for _ in 0..STREAMS {
                    busy.start(method, "/busy", &[], body);
                }
                other.start("GET", "/other", &[], b"");
            });
            let all = (0..=STREAMS).map(|_| {
                let (stream, path) = asked(&origin);
                answer(&stream);
                path
            });
            let all: Vec<String> = all.collect();
            let before = all.iter().position(|path| path == "/other").unwrap();
            assert!(before < 8, "{method}: {before} requests before that of the other client");
        }
    });
}

/// Each has a connection to the origin, for which something comes.
#[test]
fn a_client_does_not_wait_for_many_responses_to_another() {
    each_driver(|driver| {
        let origin = TcpListener::bind("127.0.0.1:0").unwrap();
        let weir = site(driver, origin.local_addr().unwrap().port());
        let (mut busy, mut other) = (Client::tcp(weir.port(0)), Client::tcp(weir.port(0)));
        busy.settings();
        other.settings();
        for _ in 0..STREAMS {
            busy.start("GET", "/busy", &[], b"");
        }
        let waiting: Vec<TcpStream> = (0..STREAMS).map(|_| asked(&origin).0).collect();
        at_once(&weir, || {
            waiting.iter().for_each(answer);
            drop(waiting);
            other.start("GET", "/here", &[], b"");
        });
        let log = weir.wait_for_lines("access.log", STREAMS + 1);
        let before = log.lines().position(|path| path == "/here").unwrap();
        assert!(before < STREAMS / 2, "{before} responses before that to the other client");
    });
}
