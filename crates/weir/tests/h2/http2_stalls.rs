//! Clients over HTTP/2 that stand still: what they lose, and what the log tells.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use testkit::h2::{Client, Ended, Frame, Options, Response, code, scan, setting};
use testkit::{Driver, Site, Weir, built_binary, each_site, wait_for};

/// Responses that wait for the client: the cap of lines about an address is less than half of it.
const STREAMS: usize = 40;

fn site(driver: Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/a.txt", "hello")
        .file("html/large.bin", "0123456789abcdef".repeat(400_000))
        .config(
            "worker_processes 1; events {}
             error_log logs/error.log info;
             http {
                 log_format h '$request|$status';
                 access_log off;
                 http2 on;
                 send_timeout 400ms;
                 client_body_timeout 400ms;
                 server {
                     listen 127.0.0.1:%PORT0%;
                     access_log logs/access.log h;
                     root html;
                     location /passed/ { proxy_pass http://127.0.0.1:%PORT1%/; }
                     location /echo { proxy_pass http://127.0.0.1:%PORT1%/; }
                 }
                 server {
                     listen 127.0.0.1:%PORT2%;
                     reset_timedout_connection on;
                     root html;
                 }
                 server {
                     listen 127.0.0.1:%PORT1%;
                     send_timeout 60s;
                     root html;
                 }
             }",
        )
        .start()
}

/// Lines of the error log that say that a client did nothing in time.
fn timeouts(weir: &Weir) -> usize {
    weir.error_log().matches("client timed out").count()
}

/// A client with forty responses that wait for windows.
fn all_held_up(weir: &Weir, path: &str) -> Client {
    let options = Options::default().withholding().set(setting::INITIAL_WINDOW_SIZE, 10);
    let mut c = Client::with(weir.port(0), options);
    let streams: Vec<u32> = (0..STREAMS).map(|_| c.start("GET", path, &[], b"")).collect();
    streams.iter().for_each(|stream| c.wait_for_length(*stream, 10));
    c
}

#[test]
fn a_client_that_lets_all_of_its_responses_wait_is_sent_away_with_one_line() {
    each_site(site, |weir| {
        for (n, path) in ["/large.bin", "/passed/large.bin"].into_iter().enumerate() {
            let mut c = all_held_up(&weir, path);
            assert_eq!(c.goaway().code, code::NO_ERROR);
            c.wait_for_close();
            weir.wait_for_lines("access.log", (n + 1) * STREAMS);
            assert_eq!(timeouts(&weir), n + 1);
        }
        // Those that were passed on.
        let files = weir.error_log().matches("is buffered to a temporary file").count();
        assert!((1..=16).contains(&files), "{files} lines");
    });
}

/// A client with forty responses on their way that reads nothing.
fn reads_nothing(port: u16, path: &str) -> TcpStream {
    let mut stream = scan::connect(port).expect("a connection to the server");
    let head = scan::head("GET", path);
    let mut frames = scan::start(&[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)]);
    for i in 0..STREAMS as u32 {
        frames.extend(Frame::headers(2 * i + 1, &head, true).encode());
    }
    stream.write_all(&frames).unwrap();
    stream
}

#[test]
fn a_client_that_reads_nothing_is_sent_away_with_one_line() {
    each_site(site, |weir| {
        for (n, path) in ["/large.bin", "/passed/large.bin"].into_iter().enumerate() {
            let _client = reads_nothing(weir.port(0), path);
            weir.wait_for_lines("access.log", (n + 1) * STREAMS);
            weir.wait_for_log("error.log", "client timed out");
            assert_eq!(timeouts(&weir), n + 1);
            let log = weir.error_log();
            assert!(!log.contains("prematurely closed"), "the client closed nothing: {log}");
        }
    });
}

#[test]
fn a_connection_that_timed_out_is_reset_where_that_is_asked_for() {
    each_site(site, |weir| {
        let client = reads_nothing(weir.port(2), "/large.bin");
        // Nothing else than a reset reaches a client whose buffer is full.
        let e = wait_for("the reset", || client.take_error().unwrap());
        assert_eq!(e.kind(), ErrorKind::ConnectionReset);
        assert_eq!(timeouts(&weir), 1);
    });
}

#[test]
fn a_response_that_waits_is_given_up_alone_where_others_go_on() {
    each_site(site, |weir| {
        let options = Options::default().withholding().set(setting::INITIAL_WINDOW_SIZE, 10);
        let mut c = Client::with(weir.port(0), options);
        let other = c.start("GET", "/large.bin", &[], b"");
        c.wait_for_length(other, 10);
        let stalled = c.start("GET", "/large.bin", &[], b"");
        c.wait_for_length(stalled, 10);
        let mut len = 10;
        // The other stream's window grows all the while: it never waits for as long.
        while !c.so_far(stalled).is_some_and(Response::is_over) {
            c.grant(other, 1_000);
            len += 1_000;
            c.wait_for_length(other, len);
            c.read_for(Duration::from_millis(50));
        }
        assert_eq!(timeouts(&weir), 1);
        assert!(c.goaways().is_empty());
        c.grant(other, 1_000);
        c.wait_for_length(other, len + 1_000);
        // That the other one went on shows that the client is alive.
        c.reset(other, code::CANCEL);
        c.ping();
        let small = c.start("GET", "/a.txt", &[], b"");
        assert_eq!(c.response(small).body, b"hello");
        c.ping();
        assert!(c.goaways().is_empty());
    });
}

#[test]
fn uploads_that_stand_still_take_one_line() {
    each_site(site, |weir| {
        let mut c = Client::tcp(weir.port(0));
        c.settings();
        let streams: Vec<u32> = (0..STREAMS).map(|_| c.open("POST", "/echo", &[], false)).collect();
        for stream in streams {
            assert_eq!(c.response(stream).reset, Some(code::PROTOCOL_ERROR));
        }
        assert_eq!(c.wait_for_close(), Ended::Closed);
        assert_eq!(timeouts(&weir), 1);
    });
}
