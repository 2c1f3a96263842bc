//! Datagrams of many clients that are received together, and answers that leave together.

use std::net::{SocketAddr, UdpSocket};

use crate::stream_site::{self, passing_udp};
use testkit::udp::{Echo, client, port, receive, socket};
use testkit::{Driver, PATIENCE, Weir, on_all_drivers};

/// With a server over TCP too: the site is up when that one is.
fn start(driver: Driver, stream: &str) -> Weir {
    let up = "server { listen 127.0.0.1:%PORT9%; return up; }";
    stream_site::start(driver, &format!("{stream} {up}"))
}

/// Stops the worker while something comes for it: it finds all of that together.
fn at_once(weir: &Weir, send: impl FnOnce()) {
    let worker = weir.workers()[0];
    weir.signal_to(worker, "STOP");
    send();
    weir.signal_to(worker, "CONT");
}

fn clients(n: usize, port: u16) -> Vec<UdpSocket> {
    (0..n).map(|_| client(port)).collect()
}

/// The question `k` of client `i`: some are empty, and many follow each other with one length.
fn question(i: usize, k: usize) -> Vec<u8> {
    match k {
        2 | 3 => Vec::new(),
        5.. => vec![i as u8, k as u8, 0],
        _ => vec![i as u8, k as u8],
    }
}

#[test]
fn many_clients_at_once_get_their_answers_in_order() {
    on_all_drivers(|driver| {
        let echo = Echo::start("", 1);
        let (to, tight) = (echo.port, "proxy_responses 1; proxy_requests 3;");
        let servers = [
            passing_udp(0, to, ""),
            format!("server {{ listen %PORT1% udp; proxy_pass 127.0.0.1:{to}; }}"),
            passing_udp(2, to, tight),
        ];
        let weir = start(driver, &servers.concat());
        for at in 0..3 {
            let clients = clients(10, weir.port(at));
            for _ in 0..3 {
                at_once(&weir, || {
                    for k in 0..8 {
                        for (i, c) in clients.iter().enumerate() {
                            c.send(&question(i, k)).unwrap();
                        }
                    }
                });
                for (i, c) in clients.iter().enumerate() {
                    let mut got: Vec<_> = (0..8).map(|_| receive(c).0).collect();
                    let mut wanted: Vec<_> = (0..8).map(|k| question(i, k)).collect();
                    if at == 2 {
                        // Sessions beside each other are of no order.
                        got.sort();
                        wanted.sort();
                    }
                    assert_eq!(got, wanted, "client {i} of server {at} on {}", driver.name());
                }
            }
        }
        let mut peers = echo.peers();
        assert_eq!(peers.len(), 3 * 10 * 8 * 3);
        peers.truncate(2 * 10 * 8 * 3);
        peers.sort_unstable();
        peers.dedup();
        assert_eq!(peers.len(), 2 * 10, "a session for each client");
        // The last datagrams of a client may be fewer than a session takes.
        let text = weir.wait_for_lines("access.log", 10 * 8);
        assert!(text.lines().all(|line| line.contains(":200:UDP:")), "{text}");
    });
}

/// The server gets a client's questions in their order, whatever the number of sessions that they
/// make.
#[test]
fn sessions_of_one_client_ask_one_after_the_other() {
    on_all_drivers(|driver| {
        let server = socket();
        let tight = "proxy_requests 2; proxy_responses 2;";
        let weir = start(driver, &passing_udp(0, port(&server), tight));
        let c = client(weir.port(0));
        at_once(&weir, || (0..9).for_each(|k| assert_eq!(c.send(&[k]).unwrap(), 1)));
        let (asked, sessions): (Vec<_>, Vec<_>) = (0..9).map(|_| receive(&server)).unzip();
        assert_eq!(asked, (0..9).map(|k| [k]).collect::<Vec<_>>(), "on {}", driver.name());
        let pairs: Vec<_> = sessions.chunks(2).collect();
        assert!(pairs[..4].iter().all(|pair| pair[0] == pair[1]), "{sessions:?}");
        let mut firsts: Vec<_> = pairs.iter().map(|pair| pair[0]).collect();
        firsts.sort();
        firsts.dedup();
        assert_eq!(firsts.len(), 5, "{sessions:?}");
    });
}

/// A session for each of the datagrams, which are there together: each ends with its answer, and
/// logs it.
#[test]
fn sessions_that_end_together_are_answered_first() {
    on_all_drivers(|driver| {
        let server = socket();
        let weir = start(driver, &passing_udp(0, port(&server), "proxy_responses 1;"));
        let clients = clients(40, weir.port(0));
        clients.iter().for_each(|c| assert_eq!(c.send(b"question").unwrap(), 8));
        let asked: Vec<_> = (0..40).map(|_| receive(&server).1).collect();
        at_once(&weir, || {
            asked.iter().for_each(|session| assert_eq!(server.send_to(b"yes", session).unwrap(), 3))
        });
        clients.iter().for_each(|c| assert_eq!(receive(c).0, b"yes"));
        let text = weir.wait_for_lines("access.log", 40);
        assert_eq!(text.matches(":200:UDP:8:3:").count(), 40, "{text}");
    });
}

/// Answers of several sessions leave in one call. One is too long for its client, and the clients
/// of others are gone: that costs nobody else an answer.
#[test]
fn an_answer_that_cannot_be_sent_hurts_no_other() {
    on_all_drivers(|driver| {
        let Ok(server) = UdpSocket::bind("[::1]:0") else { return };
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = format!("[::1]:{}", port(&server));
        let weir = start(
            driver,
            &format!(
                "server {{ listen 127.0.0.1:%PORT0% udp; proxy_pass {to}; proxy_timeout 1s; }}"
            ),
        );
        let mut clients: Vec<Option<UdpSocket>> =
            clients(9, weir.port(0)).into_iter().map(Some).collect();
        let mut sessions: Vec<SocketAddr> = Vec::new();
        for c in clients.iter().flatten() {
            c.send(b"question").unwrap();
            sessions.push(receive(&server).1);
        }
        for gone in [1, 5] {
            clients[gone] = None;
        }
        // More than a datagram of IPv4 holds.
        let long = vec![0; 65_520];
        let answers: [&[u8]; 3] = [b"one", b"two", b"and three"];
        at_once(&weir, || {
            for (k, answer) in answers.iter().enumerate() {
                for (i, session) in sessions.iter().enumerate() {
                    let answer = if (i, k) == (3, 1) { &long } else { *answer };
                    server.send_to(answer, session).unwrap();
                }
            }
        });
        for (i, c) in clients.iter().enumerate() {
            let Some(c) = c else { continue };
            for (k, answer) in answers.iter().enumerate() {
                if (i, k) != (3, 1) {
                    assert_eq!(receive(c).0, *answer, "client {i} on {}", driver.name());
                }
            }
        }
        weir.wait_for_log("error.log", "sendmsg() failed (90: Message too long) while proxying");
        let text = weir.wait_for_lines("access.log", 9);
        assert_eq!(text.matches(":200:UDP:8:15:").count(), 8, "{text}");
        // All of it came from the server; what did not leave is not counted.
        assert!(text.contains(&format!(":200:UDP:8:12:{to}:8:65532")), "{text}");
    });
}
