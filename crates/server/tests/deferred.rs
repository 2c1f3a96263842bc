//! Connections whose clients say nothing: the kernel keeps them for a second.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::site;
use testkit::wait_for;

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

#[test]
fn a_client_that_says_nothing_is_accepted_later() {
    for (options, early) in [("", "03"), ("reuseport", "03"), ("deferred=off", "01")] {
        let http = format!("server {{ listen 127.0.0.1:%PORT0% {options}; root html; }}");
        let weir = site(2, "", &http).start();
        let connect = || TcpStream::connect(("127.0.0.1", weir.port(0))).expect("connected");
        // On a machine that stands still for a second the first look may come too late.
        let client = (0..10).map(|_| connect()).find(|c| state(c).as_deref() == Some(early));
        let client = client.unwrap_or_else(|| panic!("{options:?}: never in state {early}"));
        assert!(ask(connect()).ends_with("hello"));
        wait_for("the connection", || (state(&client).as_deref() == Some("01")).then_some(()));
        assert!(ask(client).ends_with("hello"));
    }
}
