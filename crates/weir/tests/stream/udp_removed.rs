//! Addresses of datagrams that a reload removes, and that come back while a worker of before has
//! sessions.

use std::io::ErrorKind;
use std::net::UdpSocket;

use testkit::udp::{Echo, ask, client};
use testkit::{Driver, Site, Weir, built_binary, on_all_drivers, wait_for};

/// Two workers with these servers and one over TCP, which is there in each configuration.
fn config(servers: &str) -> String {
    format!(
        "worker_processes 2; events {{ }}
         stream {{ {servers} server {{ listen 127.0.0.1:%PORT9%; return up; }} }}"
    )
}

fn passing(address: &str, to: u16) -> String {
    config(&format!("server {{ listen {address}:%PORT0% udp; proxy_pass 127.0.0.1:{to}; }}"))
}

fn start(driver: Driver, text: &str) -> Weir {
    Site::new(built_binary(), driver).config(text).start()
}

/// Reloads with another configuration, and waits until the workers of before have left the sockets.
fn reload(weir: &mut Weir, text: &str) {
    reload_and(weir, text, |_| {});
}

/// The same, and does something as soon as the server says that it is ready.
fn reload_and(weir: &mut Weir, text: &str, mut at_once: impl FnMut(&Weir)) {
    let left = |weir: &Weir| weir.log("error.log").matches("gracefully shutting down").count();
    weir.set_config(text);
    let before = left(weir);
    weir.reload();
    at_once(weir);
    wait_for("leaving workers", || (left(weir) == before + 2).then_some(()));
    // A worker says so before it does so, and takes the next signal when it has done so.
    weir.error_log();
}

/// Waits until the kernel refuses the datagrams of a new client.
fn wait_until_refused(port: u16) {
    wait_for("a refusal", || {
        let c = client(port);
        c.set_nonblocking(true).unwrap();
        c.send(b"new").unwrap();
        matches!(c.recv(&mut [0; 9]), Err(e) if e.kind() == ErrorKind::ConnectionRefused)
            .then_some(())
    });
}

/// A new client, whose first datagram is answered: the server is ready.
fn heard(port: u16) -> UdpSocket {
    let c = client(port);
    assert_eq!(ask(&c, b"new"), b"new");
    c
}

/// Each has its session, with the same socket to the server as before.
fn go_on(clients: &[UdpSocket], server: &Echo) {
    for (i, c) in clients.iter().enumerate() {
        assert_eq!(ask(c, &[i as u8]), [i as u8]);
    }
    let mut peers = server.peers();
    peers.sort_unstable();
    peers.dedup();
    assert_eq!(peers.len(), clients.len(), "a socket for each client");
}

#[test]
fn a_removed_address_has_no_new_clients_and_comes_back_whole() {
    on_all_drivers(|driver| {
        for address in ["127.0.0.1", "0.0.0.0"] {
            let server = Echo::start("", 1);
            let with = passing(address, server.port);
            let mut weir = start(driver, &with);
            let port = weir.port(0);
            let mut clients: Vec<_> = (0..10).map(|_| client(port)).collect();
            go_on(&clients, &server);
            for round in 0..3 {
                reload(&mut weir, &config(""));
                wait_until_refused(port);
                go_on(&clients, &server);
                // The kernel refuses none of those who come when the server is ready.
                reload_and(&mut weir, &with, |_| clients.push(heard(port)));
                // Of a socket that is still a leaving worker's, some of them would have no answer.
                clients.extend((1..20).map(|_| client(port)));
                go_on(&clients, &server);
                assert!(weir.workers().len() >= 2 + round, "workers of before have sessions");
            }
        }
    });
}

/// Sockets of one address go before those of all: new clients are of the address that there is.
#[test]
fn an_address_becomes_all_and_one_again() {
    on_all_drivers(|driver| {
        let server = Echo::start("", 1);
        let [one, all] = ["127.0.0.1", "0.0.0.0"].map(|address| passing(address, server.port));
        let mut weir = start(driver, &one);
        let mut clients = Vec::new();
        for text in [&all, &one, &all] {
            clients.extend((0..10).map(|_| client(weir.port(0))));
            go_on(&clients, &server);
            reload_and(&mut weir, text, |weir| clients.push(heard(weir.port(0))));
        }
        clients.push(heard(weir.port(0)));
        clients.extend((1..10).map(|_| client(weir.port(0))));
        go_on(&clients, &server);
    });
}

/// The sockets of a removed address close with the last worker that has sessions of it.
#[test]
fn a_removed_address_is_free_when_its_sessions_have_ended() {
    on_all_drivers(|driver| {
        let server = Echo::start("", 1);
        let mut weir = start(driver, &passing("127.0.0.1", server.port));
        let (port, before) = (weir.port(0), weir.workers());
        let c = client(port);
        assert_eq!(ask(&c, b"a"), b"a");
        reload(&mut weir, &config(""));
        assert_eq!(ask(&c, b"b"), b"b");
        assert!(UdpSocket::bind(("127.0.0.1", port)).is_err());
        let left = wait_for("one worker of before", || {
            let left = |pid: &u32| before.contains(pid);
            match weir.workers().into_iter().filter(left).collect::<Vec<_>>()[..] {
                [pid] => Some(pid),
                _ => None,
            }
        });
        weir.signal_to(left, "TERM");
        wait_for("a free address", || UdpSocket::bind(("127.0.0.1", port)).ok());
    });
}
