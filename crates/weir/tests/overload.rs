//! Overload: a worker without room refuses new clients in good order, tells how it is, and recovers
//! by itself; among clients the one with the most connections makes room.

mod common;

use common::BINARY;
use testkit::h2::Client;
use testkit::{Conn, Site, Weir, on_all_drivers, wait_until};

const CONNECTIONS: usize = 128;

fn site(driver: testkit::Driver) -> Weir {
    Site::new(BINARY, driver)
        .file("html/a.txt", b"hello")
        .file("html/slow", [b'x'; 200_000])
        .config(
            "worker_processes 1; worker_overload retry=7s;
             events { worker_connections 128; }
             stream { server { listen 127.0.0.1:%PORT1%; return hi; } }
             http { server { listen 127.0.0.1:%PORT0%; root html; http2 on;
                 location /slow { limit_rate 1k; }
                 location /status { stub_status; }
                 location /metrics { prometheus; }
                 location /ready { ready; }
                 location /spared/ { overload_refuse off; alias html/; } } }",
        )
        .start()
}

/// A connection with a response that goes on for long: its head, and the connection.
fn slow(weir: &Weir) -> (String, Conn) {
    let mut conn = weir.connect();
    conn.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = conn.read_some().expect("a head");
    (String::from_utf8_lossy(&head).into_owned(), conn)
}

fn ask(conn: &mut Conn) -> testkit::Response {
    conn.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    conn.response()
}

#[test]
fn new_connections_are_refused_while_there_is_no_room() {
    on_all_drivers(|driver| {
        let weir = site(driver);
        let mut kept = weir.connect();
        assert_eq!(ask(&mut kept).status, 200);
        // 85 percent are busy: a connection is not kept for longer than a second.
        let mut busy: Vec<_> = (0..112).map(|_| slow(&weir)).collect();
        wait_until("the kept connection's end", || {
            let answer = ask(&mut kept);
            assert_eq!(answer.status, 200);
            answer.header("Connection") == Some("close")
        });
        // 95 percent.
        let refused = loop {
            let (head, conn) = slow(&weir);
            if head.starts_with("HTTP/1.1 503 ") {
                break head;
            }
            busy.push((head, conn));
            assert!(busy.len() < CONNECTIONS, "nothing is refused");
        };
        assert!(refused.contains("\r\nRetry-After: 7\r\n"), "{refused}");
        assert!(refused.contains("\r\nConnection: close\r\n"), "{refused}");
        assert_eq!(busy.len(), 121);
        assert_eq!(weir.get("/a.txt").status, 503);
        let answer = Client::tcp(weir.port(0)).request("GET", "/a.txt", &[], b"");
        assert_eq!(answer.status, 503);
        assert!(Conn::tcp(weir.port(1)).read_to_end().is_empty(), "a session had room");
        for path in ["/status", "/ready", "/metrics", "/spared/a.txt"] {
            assert_eq!(weir.get(path).status, 200, "{path}");
        }
        drop(busy);
        wait_until("room", || weir.get("/a.txt").status == 200);
        assert_eq!(Conn::tcp(weir.port(1)).read_to_end(), b"hi");
        let line = weir.wait_for_log("error.log", "overload is over after ");
        assert!(line.contains("0 connections were closed"), "{line}");
        let log = weir.error_log();
        for step in ["a second at most", "closing slow clients", "refusing new connections"] {
            assert_eq!(log.matches(step).count(), 1, "{step}: {log}");
        }
        let metrics = weir.get("/metrics").text();
        for line in ["weir_overload_step 0\n", "weir_overload_refusals_total 1\n"] {
            assert!(metrics.contains(line), "{metrics}");
        }
        assert!(!metrics.contains("weir_overload_refused_total 0\n"), "{metrics}");
    });
}

#[test]
fn without_overload_all_connections_are_used() {
    on_all_drivers(|driver| {
        let weir = Site::new(BINARY, driver)
            .file("html/slow", [b'x'; 200_000])
            .config(
                "worker_processes 1; worker_overload off; events { worker_connections 128; }
                 http { server { listen 127.0.0.1:%PORT0%; root html; limit_rate 1k; } }",
            )
            .start();
        let busy: Vec<_> = (0..CONNECTIONS).map(|_| slow(&weir)).collect();
        for (number, (head, _)) in busy.iter().enumerate() {
            assert!(head.starts_with("HTTP/1.1 200 "), "{number}: {head}");
        }
        let log = weir.error_log();
        assert!(!log.contains("are in use"), "{log}");
    });
}

/// The header of a balancer, in the name of a client, and a part of a head.
fn begun(weir: &Weir, client: &str) -> Conn {
    let mut conn = weir.connect();
    conn.send(format!("PROXY TCP4 {client} 10.9.9.9 1 2\r\nGET /a.txt HTTP/1.1\r\nHo"));
    conn
}

#[test]
fn the_client_with_the_most_half_heads_makes_room() {
    on_all_drivers(|driver| {
        let weir = Site::new(BINARY, driver)
            .file("html/a.txt", b"hello")
            .config(
                "worker_processes 1; events { worker_connections 64; }
                 http { server { listen 127.0.0.1:%PORT0% proxy_protocol; root html; } }",
            )
            .start();
        // The clients that wait longest are not the ones to go.
        let few: Vec<_> = (0..5).map(|_| begun(&weir, "10.0.0.1")).collect();
        let other = begun(&weir, "10.0.0.2");
        let many: Vec<_> = (0..200).map(|_| begun(&weir, "10.0.0.3")).collect();
        // Accepted behind all of them.
        let last = begun(&weir, "10.0.0.4");
        for mut conn in [last, other].into_iter().chain(few) {
            conn.send("st: a\r\nConnection: close\r\n\r\n");
            assert_eq!(conn.response().text(), "hello");
        }
        weir.wait_for_log("error.log", "worker_connections are not enough, reusing connections");
        drop(many);
    });
}
