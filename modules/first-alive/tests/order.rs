//! The method in the engine, over real sockets.

use std::io::{Read, Write};
use std::net::TcpListener;

use weir_first_alive::MODULE;
use weir_module::testing::serve_http;

/// A backend that answers with its name.
fn backend(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for conn in listener.incoming() {
            let mut conn = conn.unwrap();
            let _ = conn.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length:";
            let _ = write!(conn, "{head} {}\r\n\r\n{name}", name.len());
        }
    });
    port
}

/// A port that nobody listens on.
fn dead() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn texts(servers: &str) -> Vec<String> {
    let http = format!(
        "upstream sites {{ first_alive; {servers} }} \
         server {{ location / {{ proxy_pass http://sites; }} }}"
    );
    serve_http(&MODULE, &http, &["/"; 3]).answers.iter().map(|a| a.text()).collect()
}

#[test]
fn the_first_that_lives_gets_all() {
    let (one, two) = (backend("one"), backend("two"));
    let of = |a: u16, b: u16| texts(&format!("server 127.0.0.1:{a}; server 127.0.0.1:{b};"));
    assert_eq!(of(one, two), ["one"; 3]);
    assert_eq!(of(two, one), ["two"; 3]);
    assert_eq!(of(dead(), two), ["two"; 3]);
}

#[test]
fn backups_come_last() {
    let (one, two) = (backend("one"), backend("two"));
    let of = |a: u16, b: u16| texts(&format!("server 127.0.0.1:{a} backup; server 127.0.0.1:{b};"));
    assert_eq!(of(one, two), ["two"; 3]);
    assert_eq!(of(one, dead()), ["one"; 3]);
}
