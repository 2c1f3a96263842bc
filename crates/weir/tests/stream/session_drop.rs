//! `proxy_session_drop` and `proxy_bind_dynamic`: sessions and the servers chosen for them.

use std::io::{Read, Write};
use std::net::UdpSocket;

use testkit::{Conn, Driver, Scripted, Site, Weir, built_binary, each_driver, wait_until};

/// A server that gives back what it gets.
fn echo() -> Scripted {
    Scripted::start(|mut stream, _| {
        let mut page = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut page) {
            if stream.write_all(&page[..n]).is_err() {
                return;
            }
        }
    })
}

/// A site with the API at port 0 and sessions at port 1.
fn site(driver: Driver, server: u16, more: &str) -> Weir {
    Site::new(built_binary(), driver)
        .config(&format!(
            "worker_processes 1; error_log logs/error.log info; events {{ }}
             http {{ server {{ listen 127.0.0.1:%PORT0%; location /api {{ api write=on; }} }} }}
             stream {{ upstream u {{ zone u 64k; server 127.0.0.1:{server}; }}
                 server {{ listen 127.0.0.1:%PORT1%; listen 127.0.0.1:%PORT1% udp; proxy_pass u;
                     {more} }} }}"
        ))
        .start()
}

fn servers(weir: &Weir) -> String {
    weir.get("/api/9/stream/upstreams/u/servers").text()
}

fn change(weir: &Weir, method: &str, body: &str) {
    let (mut c, all, len) = (weir.connect(), servers(weir), body.len());
    let id: String = all.split("\"id\":").nth(1).unwrap_or_default().chars().take(1).collect();
    c.send(format!(
        "{method} /api/9/stream/upstreams/u/servers/{id} HTTP/1.1\r\nHost: localhost\r\n\
         Content-Length: {len}\r\n\r\n{body}"
    ));
    let response = c.response();
    assert_eq!(response.status, 200, "{}", response.text());
}

fn session(weir: &Weir) -> Conn {
    let mut c = Conn::tcp(weir.port(1));
    c.send("one");
    assert_eq!(c.read_exact(3), b"one");
    c
}

#[test]
fn sessions_end_with_their_server() {
    each_driver(|driver| {
        for (method, body) in [("PATCH", "{\"down\":true}"), ("DELETE", "")] {
            let server = echo();
            let weir = site(driver, server.port, "proxy_session_drop on;");
            let mut idle = session(&weir);
            change(&weir, method, body);
            assert_eq!(idle.read_to_end(), b"", "{method}: {}", servers(&weir));
            weir.wait_for_log("error.log", "upstream server was removed or is down");
        }
    });
}

#[test]
fn sessions_outlive_their_server_by_default() {
    each_driver(|driver| {
        let server = echo();
        let weir = site(driver, server.port, "");
        let mut idle = session(&weir);
        change(&weir, "DELETE", "");
        idle.send("two");
        assert_eq!(idle.read_exact(3), b"two");
    });
}

#[test]
fn sessions_of_datagrams_end_with_their_server() {
    each_driver(|driver| {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let weir = site(driver, server.local_addr().unwrap().port(), "proxy_session_drop on;");
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"one", ("127.0.0.1", weir.port(1))).unwrap();
        let mut page = [0; 16];
        let (n, from) = server.recv_from(&mut page).unwrap();
        server.send_to(&page[..n], from).unwrap();
        assert_eq!(client.recv(&mut page).unwrap(), 3);
        change(&weir, "PATCH", "{\"down\":true}");
        weir.wait_for_log("error.log", "upstream server was removed or is down");
    });
}

#[test]
fn our_own_address_can_depend_on_the_server() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .stream(
                "map $upstream_addr $from { volatile; ~127.0.0.1: 127.0.0.8; '' ''; }
                 server { listen 127.0.0.1:%PORT2%; return $remote_addr; }
                 server { listen 127.0.0.1:%PORT0%; proxy_bind $from; proxy_pass 127.0.0.1:%PORT2%; }
                 server { listen 127.0.0.1:%PORT1%; proxy_bind $from; proxy_bind_dynamic on;
                     proxy_pass 127.0.0.1:%PORT2%; }",
            )
            .start();
        let from = |n| String::from_utf8(Conn::tcp(weir.port(n)).read_to_end()).unwrap();
        assert_eq!(from(0), "127.0.0.1");
        wait_until("the other address", || from(1) == "127.0.0.8");
    });
}
