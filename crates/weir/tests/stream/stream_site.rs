//! Sites with a `stream` block alone, and servers of it that pass their sessions on.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fmt::Display;

use testkit::{Conn, Driver, Site, Weir, built_binary};

/// A site that logs each session with the bytes that it moved.
pub fn site(driver: Driver, stream: &str) -> Site {
    Site::new(built_binary(), driver).stream(&format!(
        "log_format all '$remote_addr:$status:$protocol:$bytes_received:$bytes_sent:\
         $upstream_addr:$upstream_bytes_sent:$upstream_bytes_received';
         access_log logs/access.log all; {stream}"
    ))
}

pub fn start(driver: Driver, stream: &str) -> Weir {
    site(driver, stream).start()
}

/// A server at `%PORTn%` that passes its sessions to a port; `more` are further directives.
pub fn passing(n: usize, to: impl Display, more: &str) -> String {
    format!("server {{ listen 127.0.0.1:%PORT{n}%; proxy_pass 127.0.0.1:{to}; {more} }}\n")
}

/// The same for datagrams.
pub fn passing_udp(n: usize, to: impl Display, more: &str) -> String {
    format!("server {{ listen 127.0.0.1:%PORT{n}% udp; proxy_pass 127.0.0.1:{to}; {more} }}\n")
}

/// A server at `%PORTn%` whose plain bytes go to `%PORTto%` under TLS, by the name `NAME.example`.
pub fn securing(n: usize, to: usize, name: &str, more: &str) -> String {
    let tls = format!("proxy_ssl on; proxy_ssl_server_name on; proxy_ssl_name {name}.example;");
    passing(n, format_args!("%PORT{to}%"), &(tls + more))
}

/// Sends bytes and checks what comes back.
#[track_caller]
pub fn exchange(c: &mut Conn, bytes: &str, answer: &str) {
    c.send(bytes);
    assert_eq!(String::from_utf8_lossy(&c.read_exact(answer.len())), answer);
}
