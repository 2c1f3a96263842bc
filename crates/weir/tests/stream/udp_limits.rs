//! Limits of rates and of sessions over UDP, servers that stay silent, and PROXY protocol headers
//! with each datagram.

use std::net::UdpSocket;
use std::time::Duration;

use crate::stream_site::passing_udp;
use testkit::udp::{Echo, client, port, receive, socket};
use testkit::{Conn, Driver, Site, Weir, built_binary, each_driver, wait_until};

fn start(driver: Driver, connections: usize, stream: &str) -> Weir {
    Site::new(built_binary(), driver)
        .allow("worker_connections are not enough for sessions over UDP")
        .config(&format!(
            "worker_processes 1; events {{ worker_connections {connections}; }}
             stream {{ log_format all '$status:$limit_req_status:$bytes_received:$upstream_addr';
             access_log logs/access.log all; {stream}
             server {{ listen 127.0.0.1:%PORT9%; return up; }} }}"
        ))
        .start()
}

/// Asks until there is the answer: the flood may still fill the kernel's queue.
fn ask_again(socket: &UdpSocket, question: &[u8]) {
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    wait_until("an answer", || {
        socket.send(question).unwrap();
        let mut page = [0; 64];
        socket.recv(&mut page).is_ok_and(|n| &page[..n] == question)
    });
}

#[test]
fn rates_hold_for_connections_and_for_each_datagram() {
    each_driver(|driver| {
        let server = socket();
        let limited = "limit_req zone=slow burst=2 nodelay; limit_req_log_level notice;";
        let limited = passing_udp(0, port(&server), limited);
        let weir = start(
            driver,
            512,
            &format!(
                "limit_req_zone $server_port zone=slow:64k rate=1r/m;
                 limit_req_zone $server_port zone=fast:64k rate=10r/s;
                 {limited}
                 server {{ listen 127.0.0.1:%PORT1%; limit_req zone=slow; return ok; }}
                 server {{ listen 127.0.0.1:%PORT2%; limit_req zone=fast burst=5; return ok; }}
                 server {{ listen 127.0.0.1:%PORT3%; limit_req zone=slow; limit_req_dry_run on;
                     return ok; }}"
            ),
        );
        let c = client(weir.port(0));
        for i in 0..9u8 {
            c.send(&[i]).unwrap();
        }
        // The first and two more; the others are dropped, and the session goes on.
        assert_eq!([0, 1, 2].map(|_| receive(&server).0), [[0], [1], [2]]);
        weir.wait_for_log("error.log", "limiting datagrams, excess: 3.000 by zone \"slow\"");
        server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(server.recv(&mut [0; 9]).is_err());
        let ask = |at| Conn::tcp(weir.port(at)).read_to_end();
        assert_eq!([ask(1), ask(1)], [&b"ok"[..], b""]);
        weir.wait_for_log("access.log", "503:REJECTED:0:");
        for _ in 0..3 {
            assert_eq!(ask(2), b"ok");
        }
        weir.wait_for_log("access.log", "200:DELAYED:0:");
        assert_eq!([ask(3), ask(3)], [b"ok", b"ok"]);
        weir.wait_for_log("access.log", "200:REJECTED_DRY_RUN:0:");
    });
}

#[test]
fn a_question_without_an_answer_goes_to_the_next_server() {
    each_driver(|driver| {
        let (silent, echo) = (socket(), Echo::start("", 1));
        let (first, second) = (port(&silent), echo.port);
        let alone = passing_udp(1, first, "proxy_responses 1; proxy_timeout 200ms;");
        let weir = start(
            driver,
            512,
            &format!(
                "upstream u {{ server 127.0.0.1:{first}; server 127.0.0.1:{second} backup; }}
                 server {{ listen 127.0.0.1:%PORT0% udp; proxy_pass u; proxy_responses 1;
                     proxy_timeout 200ms; }}
                 {alone}"
            ),
        );
        let c = client(weir.port(0));
        c.send(b"who").unwrap();
        assert_eq!(receive(&silent).0, b"who");
        assert_eq!(receive(&c).0, b"who");
        let tried = format!("200:-:3:127.0.0.1:{first}, 127.0.0.1:{second}");
        weir.wait_for_log("access.log", &tried);
        weir.wait_for_log("error.log", "upstream timed out (110: Connection timed out)");
        client(weir.port(1)).send(b"who").unwrap();
        weir.wait_for_log("access.log", &format!("502:-:3:127.0.0.1:{first}"));
    });
}

#[test]
fn headers_go_with_the_first_datagram_or_with_each() {
    each_driver(|driver| {
        let server = socket();
        let servers = [
            passing_udp(0, port(&server), "proxy_protocol on every_datagram;"),
            passing_udp(1, port(&server), "proxy_protocol on;"),
        ];
        let weir = start(driver, 512, &servers.concat());
        for (at, every) in [(0, true), (1, false)] {
            let c = client(weir.port(at));
            let own = c.local_addr().unwrap().port();
            let header = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {own} {}\r\n", weir.port(at));
            for (i, word) in ["one", "two"].into_iter().enumerate() {
                c.send(word.as_bytes()).unwrap();
                let header = if i == 0 || every { &header } else { "" };
                let (bytes, _) = receive(&server);
                assert_eq!(String::from_utf8(bytes).unwrap(), format!("{header}{word}"));
            }
        }
    });
    let text = "events { } stream { server { listen 127.0.0.1:%PORT0%; proxy_pass 127.0.0.1:1;
         proxy_protocol on each; } }";
    let site = Site::new(built_binary(), Driver::usual()).config(text);
    site.is_refused("invalid value \"each\" in ");
}

/// A flood of clients that never come back takes nothing from one that does.
#[test]
fn sessions_of_clients_that_never_return_make_room() {
    each_driver(|driver| {
        let echo = Echo::start("", 1);
        let weir = start(driver, 64, &passing_udp(0, echo.port, ""));
        let own = client(weir.port(0));
        for word in ["a", "b"] {
            own.send(word.as_bytes()).unwrap();
            assert_eq!(receive(&own).0, word.as_bytes());
        }
        let lines = |text: &str| weir.log("access.log").matches(text).count();
        wait_until("an end for each of many", || {
            let some: Vec<_> = (0..20).map(|_| client(weir.port(0))).collect();
            for one in &some {
                one.send(b"flood").unwrap();
            }
            lines("503:-:5:") >= 300
        });
        weir.wait_for_log("error.log", "64 worker_connections are not enough for sessions over");
        ask_again(&own, b"c");
        assert_eq!(lines(":2:"), 0, "its session goes on");
        ask_again(&client(weir.port(0)), b"late");
        let worker = weir.workers()[0];
        assert!(weir.open_descriptors(worker) < 64 + 8 + 40, "what ended is closed");
    });
}

#[test]
fn rates_of_datagrams_are_kept() {
    each_driver(|driver| {
        let server = Echo::start("", 1);
        let port = server.port;
        let weir = start(
            driver,
            512,
            &format!(
                "server {{ listen 127.0.0.1:%PORT0% udp; proxy_pass 127.0.0.1:{port};
                     proxy_download_rate 1000; }}
                 server {{ listen 127.0.0.1:%PORT1% udp; proxy_pass 127.0.0.1:{port};
                     proxy_upload_rate 1000; }}"
            ),
        );
        for at in [0, 1] {
            let c = client(weir.port(at));
            let began = std::time::Instant::now();
            (0..3).for_each(|_| assert_eq!(c.send(&[b'x'; 500]).unwrap(), 500));
            (0..3).for_each(|_| assert_eq!(receive(&c).0.len(), 500));
            // One at once, and another with each half of a second.
            assert!(began.elapsed().as_millis() >= 900, "{:?}", began.elapsed());
        }
    });
}
