//! Answers that claim to switch to another protocol: only one that was asked for, and that follows,
//! reaches a client.

use std::io::{Read, Write};

use testkit::certificates::KeyKind;
use testkit::h2::Client;
use testkit::h3;
use testkit::{Driver, Pair, Scripted, Site, Weir, built_binary, each_driver, read_until};

/// A field of a request's text.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of = |line: &'a str| line.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name));
    text.lines().find_map(of).map(|(_, value)| value)
}

/// A server of HTTP/1 and SCGI. The path names its answer.
fn backend() -> Scripted {
    Scripted::start(|mut s, _| {
        let is_whole = |bytes: &[u8]| match bytes.first() {
            Some(b'G') => bytes.ends_with(b"\r\n\r\n"),
            first => first.is_some(),
        };
        let Some(asked) = read_until(&mut s, is_whole) else { return };
        let text = String::from_utf8_lossy(&asked);
        let accept = testkit::websocket_accept(field(&text, "sec-websocket-key").unwrap_or(""));
        let usual = format!("Upgrade: WebSocket\r\nSec-WebSocket-Accept: {accept}\r\n");
        let switch = "101 Switching Protocols\r\nConnection: upgrade";
        let (status, fields) = match () {
            () if text.contains("/plain") => ("200 OK", "Content-Length: 2\r\n"),
            () if text.contains("/refused") => ("403 Forbidden", "Content-Length: 2\r\n"),
            () if text.contains("/other") => (switch, "Upgrade: chat\r\n"),
            () if text.contains("/unnamed") => (switch, ""),
            () if text.contains("/wrong") => {
                (switch, "Upgrade: websocket\r\nSec-WebSocket-Accept: x\r\n")
            }
            () => (switch, &usual[..]),
        };
        let start = if asked[0] == b'G' { "HTTP/1.1" } else { "Status:" };
        let answer = format!("{start} {status}\r\n{fields}\r\nhi");
        // The client may be gone.
        let _ = s.write_all(answer.as_bytes());
        let mut said = [0; 4];
        while status == switch && s.read_exact(&mut said).is_ok() {
            let _ = s.write_all(&said);
        }
    })
}

fn site(driver: Driver, behind: u16) -> Weir {
    let text = "root html;
        location / { proxy_pass http://127.0.0.1:%BACK%; proxy_http_version 1.1;
                     proxy_set_header Upgrade $http_upgrade;
                     proxy_set_header Connection upgrade; }
        location /forced/ { proxy_pass http://127.0.0.1:%BACK%; proxy_http_version 1.1;
                            proxy_set_header Upgrade websocket; }
        location /unasked/ { proxy_pass http://127.0.0.1:%BACK%; }
        location /scgi/ { scgi_pass 127.0.0.1:%BACK%; scgi_param URI $uri; }
        location /file { }
        location /ok { return 200 ok; }
        location /switch { return 101; }
        location /page { error_page 502 =200 /ok; return 200 ok; }";
    let text = text.replace("%BACK%", &behind.to_string());
    let site = Site::new(built_binary(), driver);
    Pair::own(KeyKind::P256, "localhost")
        .on(site.file("html/file", "hello"), "a")
        .http(&format!(
            "server {{ listen 127.0.0.1:%PORT0%; http2 on; {text} }}
             server {{ listen 127.0.0.1:%PORT1% quic; {text}
                       ssl_certificate a.pem; ssl_certificate_key a.key; }}"
        ))
        .start()
}

/// The statuses of WebSocket over HTTP/2 and HTTP/3; 0 for a stream that was reset.
fn statuses(weir: &Weir, path: &str) -> [u16; 2] {
    let mut two = Client::tcp(weir.port(0));
    let stream = two.websocket(path);
    let two = two.response_head(stream).status;
    let mut three = h3::Client::connect(weir.port(1), "localhost");
    let id = three.begin(&[
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", path),
        (":authority", "localhost"),
        ("sec-websocket-version", "13"),
    ]);
    three.response_until(id, |r| r.status >= 200 || r.is_over());
    [two, three.so_far(id).map_or(0, |r| r.status)]
}

#[test]
fn a_websocket_over_a_stream_is_open_only_where_somebody_serves_it() {
    each_driver(|driver| {
        let back = backend();
        let weir = site(driver, back.port);
        for (path, status) in [
            ("/chat", 200),
            ("/scgi/chat", 502),
            ("/refused", 403),
            ("/plain", 502),
            ("/other", 502),
            ("/unnamed", 502),
            ("/wrong", 502),
            ("/file", 502),
            ("/none/../file/x", 404),
            ("/ok", 502),
            ("/switch", 502),
            ("/unasked/chat", 502),
            // An error page can open no tunnel either.
            ("/page", 0),
        ] {
            assert_eq!(statuses(&weir, path), [status; 2], "{path}");
        }
        // Requests that ask for no tunnel get what they got before.
        let mut usual = Client::tcp(weir.port(0));
        assert_eq!(usual.get("/file").text(), "hello");
        assert_eq!(usual.get("/plain").text(), "hi");
        weir.wait_for_log("error.log", "response with status 200 opens no tunnel");
        weir.wait_for_log("error.log", "upstream sent invalid \"Sec-WebSocket-Accept\"");
    });
}

#[test]
fn a_switch_that_was_not_asked_for_is_no_response() {
    each_driver(|driver| {
        let back = backend();
        let weir = site(driver, back.port);
        let asks = "Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        for (path, fields, status) in [
            ("/chat", "", 502),
            ("/forced/chat", "", 502),
            ("/unasked/chat", "", 502),
            ("/unasked/chat", asks, 502),
            ("/other", asks, 502),
            ("/scgi/chat", "", 502),
            ("/switch", "", 502),
            ("/switch", asks, 502),
            ("/plain", asks, 200),
        ] {
            assert_eq!(weir.request("GET", path, fields).status, status, "{path} {fields}");
        }
        assert_eq!(Client::tcp(weir.port(0)).get("/chat").status, 502);
        let mut three = h3::Client::connect(weir.port(1), "localhost");
        assert_eq!(three.get("/chat").status, 502);
        weir.wait_for_log("error.log", "a switch to a protocol that was not asked for");
        // A client may ask for one of several, and judges the answer itself.
        for (path, asks) in
            [("/chat", "h2c, websocket"), ("/unnamed", "chat"), ("/wrong", "websocket")]
        {
            let mut conn = weir.connect();
            conn.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nUpgrade: {asks}\r\n\r\n"));
            let head = conn.read_until(b"\r\n\r\n");
            assert!(head.starts_with(b"HTTP/1.1 101"), "{path}");
            assert_eq!(conn.read_exact(2), b"hi");
            conn.send("ping");
            assert_eq!(conn.read_exact(4), b"ping");
        }
    });
}
