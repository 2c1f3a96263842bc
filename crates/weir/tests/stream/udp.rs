//! Sessions over UDP.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::stream_site::{self, passing_udp};
use testkit::udp::{Echo, ask, client, receive, socket};
use testkit::wait_until;
use testkit::{
    Driver, PATIENCE, Site, Weir, built_binary, on_all_drivers, pattern, site_on_all_drivers,
};

/// With a server over TCP too: the site is up when that one is.
fn start(driver: Driver, stream: &str) -> Weir {
    let up = "server { listen 127.0.0.1:%PORT9%; return up; }";
    stream_site::start(driver, &format!("{stream} {up}"))
}

fn answer(socket: &UdpSocket) -> Vec<u8> {
    receive(socket).0
}

#[test]
fn datagrams_go_both_ways_in_one_session() {
    on_all_drivers(|driver| {
        let server = Echo::start(">", 1);
        let port = server.port;
        let weir = start(driver, &passing_udp(0, port, "proxy_timeout 300ms;"));
        let (one, two) = (client(weir.port(0)), client(weir.port(0)));
        assert_eq!(ask(&one, b"a"), b">a");
        assert_eq!(ask(&two, b"b"), b">b");
        assert_eq!(ask(&one, b""), b">", "an empty datagram is one");
        let large = pattern(60_000, 1);
        assert_eq!(ask(&one, &large)[1..], large[..]);
        let peers = server.peers();
        assert!(peers[0] == peers[2] && peers[2] == peers[3] && peers[0] != peers[1], "{peers:?}");
        weir.wait_for_log("access.log", &format!("127.0.0.1:200:UDP:1:2:127.0.0.1:{port}:1:2"));
        let all = format!("127.0.0.1:200:UDP:60001:60004:127.0.0.1:{port}:60001:60004");
        weir.wait_for_log("access.log", &all);
        weir.wait_for_log("error.log", "udp timed out, packets from/to client:3/3");
    });
}

#[test]
fn sessions_end_with_their_answers() {
    on_all_drivers(|driver| {
        let server = Echo::start(">", 2);
        let port = server.port;
        let servers = [
            passing_udp(0, port, "proxy_responses 2;"),
            passing_udp(1, port, "proxy_requests 2; proxy_responses 2;"),
            passing_udp(2, port, "proxy_responses 0;"),
        ];
        let weir = start(driver, &servers.concat());
        let c = client(weir.port(0));
        for _ in 0..2 {
            assert_eq!((ask(&c, b"x"), answer(&c)), (b">x".to_vec(), b">x".to_vec()));
        }
        weir.wait_for_lines("access.log", 2);
        let c = client(weir.port(1));
        for _ in 0..4 {
            assert_eq!((ask(&c, b"y"), answer(&c)), (b">y".to_vec(), b">y".to_vec()));
        }
        weir.wait_for_lines("access.log", 4);
        let peers = server.peers();
        assert!(peers[2] == peers[3] && peers[3] != peers[4] && peers[4] == peers[5], "{peers:?}");
        client(weir.port(2)).send(b"no answer").unwrap();
        weir.wait_for_log("access.log", &format!("200:UDP:9:0:127.0.0.1:{port}:9:0"));
    });
}

#[test]
fn a_burst_is_divided_into_sessions() {
    on_all_drivers(|driver| {
        let server = Echo::start(">", 1);
        let more = "proxy_requests 2; proxy_responses 1; proxy_timeout 300ms;";
        let weir = start(driver, &passing_udp(0, server.port, more));
        let c = client(weir.port(0));
        (0..5).for_each(|_| assert_eq!(c.send(b"x").unwrap(), 1));
        (0..5).for_each(|_| assert_eq!(answer(&c), b">x"));
        let mut of_peers: Vec<usize> = Vec::new();
        let peers = server.peers();
        for peer in &peers {
            of_peers.push(peers.iter().filter(|p| *p == peer).count());
        }
        assert_eq!(of_peers.iter().filter(|n| **n == 2).count(), 4, "{peers:?}");
        assert!(!weir.wait_for_lines("access.log", 3).contains(":502:"));
    });
}

#[test]
fn a_server_that_is_away_leaves_the_question_to_the_next() {
    on_all_drivers(|driver| {
        let server = Echo::start(">", 1);
        let live = server.port;
        let weir = start(
            driver,
            &format!(
                "upstream u {{ server 127.0.0.1:1 fail_timeout=1h; server 127.0.0.1:{live}; }}
                 server {{ listen 127.0.0.1:%PORT0% udp; proxy_pass u; proxy_responses 1; }}
                 server {{ listen 127.0.0.1:%PORT1% udp; proxy_pass 127.0.0.1:1;
                 proxy_responses 1; }}
                 server {{ listen 127.0.0.1:%PORT2% udp; proxy_pass 127.0.0.1:%PORT3%;
                 proxy_responses 1; proxy_timeout 100ms; }}"
            ),
        );
        for _ in 0..3 {
            assert_eq!(ask(&client(weir.port(0)), b"q"), b">q");
        }
        weir.wait_for_log("access.log", &format!("200:UDP:1:2:127.0.0.1:1, 127.0.0.1:{live}:1, 1"));
        client(weir.port(1)).send(b"q").unwrap();
        weir.wait_for_log("access.log", "502:UDP:1:0:127.0.0.1:1:1:0");
        let silent = testkit::bind_datagrams(weir.port(3));
        client(weir.port(2)).send(b"q").unwrap();
        weir.wait_for_log("error.log", "upstream timed out (110: Connection timed out)");
        drop(silent);
    });
}

#[test]
fn answers_come_from_the_address_that_was_asked() {
    on_all_drivers(|driver| {
        let server = Echo::start(">", 1);
        let port = server.port;
        let weir = start(
            driver,
            &format!(
                "server {{ listen %PORT0% udp; proxy_pass 127.0.0.1:{port}; }}
                 server {{ listen %PORT1% udp; return '$server_addr:$server_port:$protocol'; }}"
            ),
        );
        for local in ["127.0.0.1", "127.0.0.5"] {
            let socket = socket();
            for (at, told) in [(0, ">x".to_owned()), (1, format!("{local}:{}:UDP", weir.port(1)))] {
                socket.send_to(b"x", (local, weir.port(at))).unwrap();
                let (bytes, from) = receive(&socket);
                assert_eq!(
                    from,
                    (local.parse::<std::net::IpAddr>().unwrap(), weir.port(at)).into()
                );
                assert_eq!(String::from_utf8_lossy(&bytes), told);
            }
        }
    });
}

#[test]
fn limits_and_rules_hold() {
    site_on_all_drivers(
        |driver| {
            start(
                driver,
                "limit_conn_zone $binary_remote_addr zone=z:64k;
                 server { listen 127.0.0.1:%PORT0% udp; deny all; return no; }
                 server { listen 127.0.0.1:%PORT1% udp; limit_conn z 1;
                 proxy_pass 127.0.0.1:%PORT2%; }",
            )
        },
        |weir| {
            client(weir.port(0)).send(b"x").unwrap();
            weir.wait_for_log("access.log", "127.0.0.1:403:UDP:1:0");
            let server = testkit::bind_datagrams(weir.port(2));
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            client(weir.port(1)).send(b"x").unwrap();
            server.recv_from(&mut [0; 9]).unwrap();
            client(weir.port(1)).send(b"y").unwrap();
            weir.wait_for_log("access.log", "127.0.0.1:503:UDP:1:0");
        },
    );
}

/// Many reloads under load: each client keeps its session, with the same socket to the server, and
/// each question is answered.
#[test]
fn sessions_outlive_reloads() {
    on_all_drivers(|driver| {
        for address in ["127.0.0.1", "0.0.0.0"] {
            let server = Echo::start("", 1);
            let to = server.port;
            let text =
                format!("server {{ listen {address}:%PORT0% udp; proxy_pass 127.0.0.1:{to}; }}");
            let weir = start(driver, &text);
            let clients: Vec<_> = (0..20).map(|_| client(weir.port(0))).collect();
            let asked = AtomicUsize::new(0);
            let ends = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for half in clients.chunks(10) {
                    let (asked, ends) = (&asked, &ends);
                    scope.spawn(move || {
                        while !ends.load(Ordering::Relaxed) {
                            for (i, c) in half.iter().enumerate() {
                                assert_eq!(ask(c, &[i as u8]), [i as u8]);
                                asked.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                }
                for i in 1..=5 {
                    weir.reload();
                    wait_until("questions", || asked.load(Ordering::Relaxed) >= i * 100);
                }
                ends.store(true, Ordering::Relaxed);
            });
            let mut peers = server.peers();
            assert_eq!(peers.len(), asked.load(Ordering::Relaxed), "each was asked once");
            peers.sort_unstable();
            peers.dedup();
            assert_eq!(peers.len(), 20, "a socket for each client");
            weir.wait_for_log("error.log", " sessions over UDP at ");
            assert!(weir.workers().len() >= 2, "a worker is there as long as its sessions");
            assert_eq!(ask(&client(weir.port(0)), b"new"), b"new");
        }
    });
}

/// Sessions keep their workers over reloads to fewer and to more, and those of new clients begin
/// while they do.
#[test]
fn workers_become_fewer_and_more() {
    on_all_drivers(|driver| {
        let server = Echo::start("", 1);
        let text = |workers: usize| {
            format!(
                "worker_processes {workers}; events {{ }}
                 stream {{ server {{ listen 127.0.0.1:%PORT0% udp;
                     proxy_pass 127.0.0.1:{}; }}
                 server {{ listen 127.0.0.1:%PORT9%; return up; }} }}",
                server.port
            )
        };
        let mut weir = Site::new(built_binary(), driver).config(&text(4)).start();
        let mut clients = Vec::new();
        for workers in [4, 1, 3, 2, 5, 1] {
            weir.set_config(&text(workers));
            weir.reload();
            clients.extend((0..20).map(|_| client(weir.port(0))));
            for (i, c) in clients.iter().enumerate() {
                assert_eq!(ask(c, &[i as u8]), [i as u8], "{i} of {workers} workers");
            }
        }
        let mut peers = server.peers();
        peers.sort_unstable();
        peers.dedup();
        assert_eq!(peers.len(), clients.len(), "a socket for each client");
    });
}

/// A session that ends with its time does not keep a worker from leaving.
#[test]
fn a_reload_passes_clients_to_the_new_worker() {
    on_all_drivers(|driver| {
        let server = Echo::start(">", 1);
        let port = server.port;
        let weir = start(driver, &passing_udp(0, port, "proxy_timeout 500ms;"));
        let c = client(weir.port(0));
        assert_eq!(ask(&c, b"a"), b">a");
        let before = weir.workers();
        weir.reload();
        weir.wait_until_left(&before);
        assert_eq!(ask(&c, b"b"), b">b");
        let line = format!("127.0.0.1:200:UDP:1:2:127.0.0.1:{port}:1:2");
        weir.wait_for_log("access.log", &line);
    });
}

/// The leaving worker's time is over: its sessions end, and are logged.
#[test]
fn sessions_end_with_the_time_of_a_leaving_worker() {
    on_all_drivers(|driver| {
        let server = Echo::start(">", 1);
        let text = passing_udp(0, server.port, "");
        let weir = Site::new(built_binary(), driver)
            .config(&format!(
                "worker_processes 1; worker_shutdown_timeout 100ms; events {{ }}
                 stream {{ log_format brief '$status:$protocol:$bytes_sent';
                 access_log logs/access.log brief; {text}
                 server {{ listen 127.0.0.1:%PORT9%; return up; }} }}"
            ))
            .start();
        let c = client(weir.port(0));
        assert_eq!(ask(&c, b"a"), b">a");
        let before = weir.workers();
        weir.reload();
        weir.wait_until_left(&before);
        weir.wait_for_log("error.log", "shutdown timeout, udp client: 127.0.0.1");
        weir.wait_for_log("access.log", "200:UDP:2");
        assert_eq!(ask(&c, b"b"), b">b");
    });
}

/// Answers that nobody asks for any more, one behind the other, and those of a session whose rate
/// held them up: none is left in the socket.
#[test]
fn answers_that_follow_each_other_are_all_passed_on() {
    on_all_drivers(|driver| {
        let server = socket();
        let port = testkit::udp::port(&server);
        let servers = [passing_udp(0, port, ""), passing_udp(1, port, "proxy_download_rate 2000;")];
        let weir = start(driver, &servers.concat());
        for at in [0, 1] {
            let c = client(weir.port(at));
            c.send(b"more").unwrap();
            let (_, session) = receive(&server);
            // A burst of different lengths, which the kernel does not join, and single ones.
            for round in 0..5u8 {
                for i in 1..=20 {
                    server.send_to(&vec![round; i], session).unwrap();
                }
                for i in 1..=20 {
                    assert_eq!(answer(&c), vec![round; i], "on {}", driver.name());
                }
                server.send_to(b"one", session).unwrap();
                assert_eq!(answer(&c), b"one");
            }
        }
    });
}

#[test]
fn what_udp_cannot_have_is_refused() {
    for (word, message) in [
        ("ssl", "\"ssl\" parameter is incompatible with \"udp\""),
        ("proxy_protocol", "\"proxy_protocol\" parameter is incompatible with \"udp\""),
        ("backlog=5", "\"backlog\" parameter is incompatible with \"udp\""),
        ("so_keepalive=on", "\"so_keepalive\" parameter is incompatible with \"udp\""),
        ("fastopen=5", "\"fastopen\" parameter is incompatible with \"udp\""),
    ] {
        let site = Site::new(built_binary(), Driver::usual());
        let text = format!(
            "events {{ }} stream {{ server {{ listen 127.0.0.1:%PORT0% udp {word}; return x; }} }}"
        );
        site.config(&text).is_refused(message);
    }
}
