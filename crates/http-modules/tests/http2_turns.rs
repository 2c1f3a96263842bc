//! Clients over HTTP/2 with many requests, and the turns of others.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
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
                 server {{
                     listen 127.0.0.1:%PORT0%;
                     location / {{ proxy_pass http://127.0.0.1:{port}; }}
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

/// Answers so many requests, and gives their paths in the order of their connections.
fn answer(origin: &TcpListener, count: usize) -> Vec<String> {
    let mut paths = Vec::new();
    for _ in 0..count {
        let (stream, _) = origin.accept().unwrap();
        let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
        let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_string();
        assert!(lines.any(|line| line.is_empty()), "no whole head");
        (&stream).write_all(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
        paths.push(path);
    }
    paths
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
            let paths = answer(&origin, STREAMS + 1);
            let before = paths.iter().position(|path| path == "/other").unwrap();
            assert!(before < 8, "{method}: {before} requests before that of the other client");
        }
    });
}
