//! Fairness by the client's address: whoever holds most connections makes way for the others when
//! there is no room, whatever the connections are busy with.

#![allow(clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};

use common::BINARY;
use testkit::certificates::KeyKind;
use testkit::{Conn, Driver, Pair, Scripted, Site, Weir, listener, on_all_drivers, wait_until};

const CONNECTIONS: usize = 128;
/// The client that wants all of them.
const MANY: &str = "10.0.0.3";

/// The work of a client's connections.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Busy {
    /// A long response, which is not taken.
    Reading,
    /// A long response, which the server sends slowly.
    Limited,
    /// A body that does not come.
    Sending,
    /// An upstream that does not answer.
    Waiting,
    /// A tunnel without traffic.
    Tunnel,
    /// A session without traffic.
    Session,
}

const ALL: [Busy; 6] =
    [Busy::Reading, Busy::Limited, Busy::Sending, Busy::Waiting, Busy::Tunnel, Busy::Session];

/// A server that takes each connection, answers an upgrade, and is silent then.
fn upstream() -> Scripted {
    Scripted::start(|mut stream, _| {
        let mut head = [0; 1024];
        let n = stream.read(&mut head).unwrap_or(0);
        if head[..n].windows(9).any(|w| w == b"websocket") {
            let _ = stream.write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            );
        }
        let _ = stream.read_to_end(&mut Vec::new());
    })
}

fn site(driver: Driver, overload: &str, upstream: u16) -> Weir {
    let text = format!(
        "worker_processes 1; worker_overload {overload}; error_log logs/error.log info;
         events {{ worker_connections {CONNECTIONS}; }}
         stream {{ server {{ listen 127.0.0.1:%PORT1% proxy_protocol;
             proxy_pass 127.0.0.1:{upstream}; }} }}
         http {{ server {{ listen 127.0.0.1:%PORT0% proxy_protocol sndbuf=32k; root html;
             location /limited {{ limit_rate 1k; alias html/long; }}
             location /up {{ proxy_pass http://127.0.0.1:{upstream}; proxy_http_version 1.1;
                 proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}
             location /metrics {{ prometheus; }} }} }}"
    );
    Site::new(BINARY, driver)
        .file("html/a.txt", b"hello")
        .file("html/long", vec![b'x'; 8 << 20])
        .config(&text)
        .start()
}

/// A connection in the name of a client.
fn connect(weir: &Weir, port: usize, client: &str) -> Conn {
    let mut conn = Conn::tcp(weir.port(port));
    conn.send(format!("PROXY TCP4 {client} 10.9.9.9 1 2\r\n"));
    conn
}

/// A busy connection of a client.
fn busy(weir: &Weir, kind: Busy, client: &str) -> Conn {
    let port = usize::from(kind == Busy::Session);
    let mut conn = connect(weir, port, client);
    // A connection that was refused may be gone already.
    let _ = conn.try_send(match kind {
        Busy::Reading => "GET /long HTTP/1.1\r\nHost: a\r\n\r\n",
        Busy::Limited => "GET /limited HTTP/1.1\r\nHost: a\r\n\r\n",
        Busy::Sending => "POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1",
        Busy::Waiting => "GET /up HTTP/1.1\r\nHost: a\r\n\r\n",
        Busy::Tunnel => "GET /up HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
        Busy::Session => "hello",
    });
    conn
}

/// Opens connections until the worker refuses some.
fn fill(weir: &Weir, mut open: impl FnMut(usize) -> Conn) -> Vec<Conn> {
    let mut all = Vec::new();
    wait_until("refusals", || {
        for _ in 0..8 {
            all.push(open(all.len()));
        }
        counter(weir, "weir_overload_step ") == 3
            && counter(weir, "weir_overload_refused_total ") > 0
    });
    all
}

/// The status of a request on a new connection.
fn ask(weir: &Weir, client: &str) -> u16 {
    let mut conn = connect(weir, 0, client);
    conn.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    conn.response().status
}

/// A counter of the overload's.
fn counter(weir: &Weir, name: &str) -> u64 {
    let mut conn = connect(weir, 0, "10.9.0.1");
    conn.send("GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let text = conn.response().text();
    let of = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    text.lines().find_map(of).unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn the_client_with_the_most_connections_makes_way() {
    on_all_drivers(|driver| {
        for kind in ALL {
            let upstream = upstream();
            let weir = site(driver, "client=25%", upstream.port);
            let many = fill(&weir, |_| busy(&weir, kind, MANY));
            // Each of them stays, too.
            let others: Vec<_> = (0..30)
                .map(|n| {
                    let client = format!("10.0.1.{n}");
                    assert_eq!(ask(&weir, &client), 200, "{kind:?}, client {n}");
                    busy(&weir, Busy::Limited, &client)
                })
                .collect();
            for (n, mut conn) in others.into_iter().enumerate() {
                let head = conn.read_some().unwrap_or_default();
                assert!(head.starts_with(b"HTTP/1.1 200 "), "{kind:?}, client {n}");
            }
            let displaced = counter(&weir, "weir_overload_displaced_total ");
            assert!(displaced > 5, "{kind:?}: {displaced}");
            assert!(counter(&weir, "weir_overload_preferred_total ") >= displaced);
            let log = weir.error_log();
            let line = format!("client {MANY} has ");
            assert_eq!(log.matches(&line).count(), 1, "{kind:?}: {log}");
            assert_eq!(log.matches("to make room for others").count(), 1, "{kind:?}: {log}");
            drop(many);
        }
    });
}

#[test]
fn with_the_share_off_all_are_refused() {
    on_all_drivers(|driver| {
        let upstream = upstream();
        let weir = site(driver, "client=off", upstream.port);
        let many = fill(&weir, |_| busy(&weir, Busy::Limited, MANY));
        assert_eq!(ask(&weir, "10.0.1.1"), 503);
        assert_eq!(counter(&weir, "weir_overload_preferred_total "), 0);
        drop(many);
    });
}

#[test]
fn nobody_makes_way_where_all_have_few_connections() {
    on_all_drivers(|driver| {
        let upstream = upstream();
        let weir = site(driver, "client=10%", upstream.port);
        let all = fill(&weir, |n| busy(&weir, Busy::Limited, &format!("10.0.0.{}", n % 25)));
        assert_eq!(ask(&weir, "10.0.1.1"), 503);
        drop(all);
        assert_eq!(counter(&weir, "weir_overload_displaced_total "), 0);
    });
}

#[test]
fn a_single_client_has_all_connections() {
    on_all_drivers(|driver| {
        let (_silent, port): (TcpListener, u16) = listener();
        let weir = site(driver, "client=10%", port);
        // A balancer that names nobody, say.
        let all: Vec<_> = (0..100).map(|_| busy(&weir, Busy::Limited, MANY)).collect();
        for (n, mut conn) in all.into_iter().enumerate() {
            let head = conn.read_some().unwrap_or_default();
            assert!(head.starts_with(b"HTTP/1.1 200 "), "connection {n}");
        }
        assert!(!weir.error_log().contains("makes way"));
    });
}

/// Beginnings of connections behind which nothing comes: by the port of [`silent_site`].
const BEGINNINGS: &[(&str, usize, &[u8])] = &[
    ("nothing to TLS", 1, b""),
    ("a part of a hello", 1, b"\x16\x03\x01\x02\x00\x01"),
    ("no header of a balancer", 2, b""),
    ("a part of one", 2, b"PROXY TC"),
    ("a part of HTTP/2's preface", 0, b"PRI * HT"),
    // Bytes behind an answer are still read for a while.
    ("a body behind an answer", 0, b"POST /gone HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1"),
];

fn silent_site(driver: Driver) -> Weir {
    let site = Site::new(BINARY, driver).file("html/a.txt", b"hello");
    Pair::own(KeyKind::P256, "a")
        .on(site, "a")
        .config(
            "worker_processes 1; error_log logs/error.log info;
             events { worker_connections 64; }
             http { server { root html; http2 on; lingering_timeout 60s; lingering_time 60s;
                 ssl_certificate a.pem; ssl_certificate_key a.key;
                 listen 127.0.0.1:%PORT0%; listen 127.0.0.1:%PORT1% ssl;
                 listen 127.0.0.1:%PORT2% proxy_protocol; location /gone { return 404; } } }",
        )
        .start()
}

#[test]
fn whatever_has_begun_makes_room() {
    on_all_drivers(|driver| {
        let weir = silent_site(driver);
        for (what, port, bytes) in BEGINNINGS {
            let open = || {
                let mut conn = Conn::tcp(weir.port(*port));
                let _ = conn.try_send(bytes);
                conn
            };
            let all: Vec<_> = (0..200).map(|_| open()).collect();
            for _ in 0..10 {
                let mut conn = Conn::tcp_from(Ipv4Addr::new(127, 0, 0, 2), weir.port(0));
                conn.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                assert_eq!(conn.response().text(), "hello", "{what}");
            }
            drop(all);
        }
        let line = "worker_connections are not enough, reusing connections";
        weir.wait_for_log("error.log", line);
    });
}
