//! `https_redirect`: plain requests are sent to the same place under TLS.

use crate::tls::{Client, Pair};
use testkit::certificates::KeyKind;
use testkit::{Conn, Site, built_binary, each_driver, refused};

/// The status and the `Location` of a plain request.
fn ask(port: u16, head: &str) -> (u16, String) {
    let mut conn = Conn::tcp(port);
    conn.send(format!("{head}\r\n\r\n"));
    let method = head.split(' ').next().unwrap();
    let response = conn.response_to(method);
    (response.status, response.header("Location").unwrap_or_default().to_owned())
}

#[test]
fn plain_requests_go_to_tls() {
    each_driver(|driver| {
        let site = Pair::own(KeyKind::P256, "a.test").on(Site::new(built_binary(), driver), "a");
        let weir = site
            .http(
                "ssl_certificate a.pem; ssl_certificate_key a.key; https_redirect on;
                 server { listen 127.0.0.1:%PORT0%; listen 127.0.0.1:%PORT1% ssl;
                          server_name a.test; return 200 served; }
                 server { listen 127.0.0.1:%PORT0%; server_name off.test; https_redirect off;
                          return 200 plain; }
                 server { listen 127.0.0.1:%PORT2%; server_name \"\"; https_redirect 8443; }",
            )
            .start();
        let to = |status: u16, location: &str| (status, location.to_owned());
        let port = weir.port(0);
        let ask = |port, line: &str, host: &str| {
            ask(port, &format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close"))
        };
        // The path as it was sent, before rewriting; the port of the plain address is not kept.
        assert_eq!(ask(port, "GET /x%20y?q=1", "a.test:80"), to(301, "https://a.test/x%20y?q=1"));
        assert_eq!(ask(port, "HEAD //a/../b", "a.test"), to(301, "https://a.test//a/../b"));
        assert_eq!(ask(port, "DELETE /x", "a.test"), to(308, "https://a.test/x"));
        assert_eq!(ask(port, "GET /", "off.test"), to(200, ""));
        assert_eq!(ask(weir.port(2), "GET /x", "b.test"), to(301, "https://b.test:8443/x"));
        // There is no name to send it to.
        let mut conn = Conn::tcp(weir.port(2));
        conn.send("GET / HTTP/1.0\r\n\r\n");
        assert_eq!(conn.response().status, 400);
        assert_eq!(Client::of("a.test").get(weir.port(1), "/x").body, b"served");
    });
}

#[test]
fn values_that_are_refused() {
    let of = |value: &str| {
        let text = format!("https_redirect {value};");
        let shown = value.trim_matches('"');
        (text, format!("invalid value \"{shown}\", it is none of on, off and a port"))
    };
    let mut cases: Vec<_> = ["maybe", "0", "65536", "-1", "\"\""].map(of).into();
    let twice =
        ("https_redirect on; https_redirect on;", "\"https_redirect\" directive is duplicate");
    cases.push((twice.0.to_owned(), twice.1.to_owned()));
    let cases: Vec<_> = cases.iter().map(|(text, message)| (&**text, &**message)).collect();
    refused("server { listen 127.0.0.1:%PORT0%; * }", &cases);
}
