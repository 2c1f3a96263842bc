//! Connections of silent clients: the kernel keeps them for a second.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::site;
use testkit::{Weir, wait_for};

/// The kernel's name for the state of our end of a client's connection, from `/proc/net/tcp`.
fn state(client: &TcpStream) -> Option<String> {
    let port = |addr: std::net::SocketAddr| format!("0100007F:{:04X}", addr.port());
    let ours = port(client.peer_addr().expect("connected"));
    let theirs = port(client.local_addr().expect("connected"));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? == ours && words.next()? == theirs).then(|| words.next())?.map(str::to_owned)
    })
}

const REQUEST: &[u8] = b"GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Asks on a connection, and gives the answer.
fn ask(mut client: TcpStream) -> String {
    client.write_all(REQUEST).expect("written");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("answered");
    answer
}

fn connect(weir: &Weir) -> TcpStream {
    TcpStream::connect(("127.0.0.1", weir.port(0))).expect("connected")
}

/// A client that has said nothing, and that the kernel keeps (`03`) or a worker may accept (`01`).
fn silent(weir: &Weir, wanted: &str) -> Option<TcpStream> {
    // On a machine that stands still for a second the first look may come too late.
    (0..10).map(|_| connect(weir)).find(|client| state(client).as_deref() == Some(wanted))
}

fn start(options: &str) -> Weir {
    let http = format!("server {{ listen 127.0.0.1:%PORT0% {options}; root html; }}");
    site(2, "", &http).start()
}

#[test]
fn a_client_that_says_nothing_is_accepted_later_where_that_is_asked_for() {
    for (options, early) in
        [("deferred", "03"), ("deferred reuseport", "03"), ("", "01"), ("deferred=off", "01")]
    {
        let weir = start(options);
        let client = silent(&weir, early);
        let client = client.unwrap_or_else(|| panic!("{options:?}: never in state {early}"));
        assert!(ask(connect(&weir)).ends_with("hello"));
        wait_for("the connection", || (state(&client).as_deref() == Some("01")).then_some(()));
        assert!(ask(client).ends_with("hello"));
    }
}

/// Makes many connections at once.
fn storm(weir: &Weir) {
    drop((0..400).map(|_| connect(weir)).collect::<Vec<_>>());
}

#[test]
fn it_is_accepted_later_while_many_come() {
    for (options, defers) in [("", true), ("reuseport", true), ("deferred=off", false)] {
        let weir = start(options);
        if !defers {
            storm(&weir);
            assert!(silent(&weir, "01").is_some());
            continue;
        }
        // With a socket for each worker, that of one or the other.
        let client = wait_for("deferral", || {
            storm(&weir);
            silent(&weir, "03")
        });
        assert!(ask(client).ends_with("hello"));
        // Few come now: as soon as one of them is accepted, that is seen.
        wait_for("its end", || {
            assert!(ask(connect(&weir)).ends_with("hello"));
            silent(&weir, "01")
        });
    }
}
