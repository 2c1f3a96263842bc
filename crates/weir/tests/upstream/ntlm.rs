//! `ntlm`: whoever authenticates a connection has a connection to the server of its own.

use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{Conn, Driver, Scripted, Site, Weir, built_binary, each_driver};

/// A server that takes the user of the last `Authorization: NTLM NAME` for that of its connection,
/// and answers with the connection's number and its user.
fn intranet() -> Scripted {
    let connections = Arc::new(AtomicUsize::new(0));
    Scripted::start(move |stream, _| {
        let number = connections.fetch_add(1, Ordering::Relaxed);
        let (mut user, mut lines) = (String::from("nobody"), BufReader::new(&stream));
        loop {
            let mut line = String::new();
            match lines.read_line(&mut line) {
                Ok(1..) => {}
                _ => return,
            }
            if let Some(name) = line.trim().strip_prefix("Authorization: NTLM ") {
                name.clone_into(&mut user);
            }
            if line == "\r\n" {
                let text = format!("{number} {user}");
                let len = text.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
                if (&stream).write_all((head + &text).as_bytes()).is_err() {
                    return;
                }
            }
        }
    })
}

fn site(driver: Driver, servers: &[&Scripted], ntlm: &str) -> Weir {
    let servers: String =
        servers.iter().map(|server| format!("server 127.0.0.1:{};", server.port)).collect();
    Site::new(built_binary(), driver)
        .http(&format!(
            "upstream u {{ {servers} keepalive 8; {ntlm} }}
             server {{ listen 127.0.0.1:%PORT0%; add_header X-To $upstream_addr;
                 location / {{ proxy_pass http://u; proxy_http_version 1.1;
                     proxy_set_header Connection ''; }} }}"
        ))
        .start()
}

/// What the server says to a request on a connection, and which server it was.
fn ask(c: &mut Conn, credentials: &str) -> (String, String) {
    c.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{credentials}\r\n"));
    let response = c.response();
    (response.text(), response.header("X-To").unwrap_or_default().to_owned())
}

#[test]
fn a_connection_that_signed_in_serves_its_client_alone() {
    each_driver(|driver| {
        let server = intranet();
        let weir = site(driver, &[&server], "ntlm;");
        let (mut one, mut two, mut other) = (weir.connect(), weir.connect(), weir.connect());
        let said = |c: &mut Conn, credentials: &str| ask(c, credentials).0;
        assert_eq!(said(&mut other, ""), "0 nobody");
        // An idle connection of everybody is not signed in on.
        assert_eq!(said(&mut one, "Authorization: NTLM anna\r\n"), "1 anna");
        assert_eq!(said(&mut two, "Authorization: NTLM bert\r\n"), "2 bert");
        for _ in 0..3 {
            assert_eq!(said(&mut one, ""), "1 anna");
            assert_eq!(said(&mut two, ""), "2 bert");
            assert_eq!(said(&mut other, ""), "0 nobody");
        }
        // With the client goes its connection, or nobody gets it.
        drop(one);
        let mut new = weir.connect();
        assert_eq!(said(&mut new, ""), "0 nobody");
        assert_eq!(said(&mut new, "Authorization: Negotiate abc\r\n"), "3 nobody");
    });
}

#[test]
fn a_client_that_signed_in_stays_with_its_server() {
    each_driver(|driver| {
        let (first, second) = (intranet(), intranet());
        let weir = site(driver, &[&first, &second], "ntlm;");
        for _ in 0..2 {
            let mut c = weir.connect();
            let (said, to) = ask(&mut c, "Authorization: NTLM anna\r\n");
            for _ in 0..3 {
                assert_eq!(ask(&mut c, ""), (said.clone(), to.clone()));
            }
        }
    });
}

#[test]
fn without_ntlm_connections_are_everybody_s() {
    let server = intranet();
    let weir = site(Driver::usual(), &[&server], "");
    let (mut one, mut other) = (weir.connect(), weir.connect());
    assert_eq!(ask(&mut one, "Authorization: NTLM anna\r\n").0, "0 anna");
    assert_eq!(ask(&mut other, "").0, "0 anna");
}
