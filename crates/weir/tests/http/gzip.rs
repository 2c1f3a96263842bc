//! `gzip`: the choice of responses, and the integrity of their bodies.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::{Driver, Response, Site, Weir, built_binary, each_site, refused};

/// Text of which every part is somewhat like others.
fn text(len: usize) -> Vec<u8> {
    let line = |n: usize| format!("line {n} of a text, {}\n", n * n % 1009);
    (0..).flat_map(|n| line(n).into_bytes()).take(len).collect()
}

const HTTP: &str = "
    gzip on;
    log_format ratio '$uri $gzip_ratio';
    server {
        listen 127.0.0.1:%PORT0%;
        root html;
        types { text/html html; text/plain txt; application/json json; }
        location /types/ { alias html/; gzip_types text/plain APPLICATION/JSON; gzip_vary on; }
        location /all/ { alias html/; gzip_types *; gzip_comp_level 9; gzip_buffers 2 4k; }
        location /off/ { alias html/; gzip off; }
        location /min/ { alias html/; gzip_min_length 100; }
        location /zero/ { alias html/; gzip_min_length 0; }
        location /old/ { alias html/; gzip_http_version 1.0; }
        location /window/ { alias html/; gzip_window 1k; gzip_hash 512; }
        location /late/ { alias html/; postpone_gzipping 1460; gzip_no_buffer on; }
        location /noie/ { alias html/; gzip_disable msie6 \"^evil\"; }
        location /proxied/ { alias html/; gzip_proxied expired no-cache auth; expires -1; }
        location /anyproxy/ { alias html/; gzip_proxied any; }
        location /lm/ { alias html/; gzip_proxied no_last_modified; }
        location /ratio/ { alias html/; access_log logs/ratio.log ratio; }
        location /live/ { proxy_pass http://127.0.0.1:%PORT1%; proxy_buffering off; }
        location /through/ {
            gzip_types *;
            proxy_pass http://127.0.0.1:%PORT0%/off/;
        }
    }";

fn site(driver: Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/a.html", text(5000))
        .file("html/big.html", text(1_000_000))
        .file("html/big.txt", text(1_000_000))
        .file("html/short.html", b"12345678901234567890")
        .file("html/tiny.html", b"1234567890123456789")
        .file("html/empty.html", b"")
        .file("html/a.json", text(500))
        .file("html/a.txt", text(500))
        .http(HTTP)
        .start()
}

fn gzipped(weir: &Weir, path: &str) -> Response {
    weir.request("GET", path, "Accept-Encoding: gzip, br\r\n")
}

fn coding(response: &Response) -> Option<&str> {
    response.header("Content-Encoding")
}

fn unzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).expect("a whole gzip stream");
    out
}

#[test]
fn what_arrives_is_what_was_sent() {
    each_site(site, |weir| {
        for (path, len) in [
            ("/a.html", 5000),
            ("/big.html", 1_000_000),
            ("/all/big.txt", 1_000_000),
            ("/window/big.html", 1_000_000),
            ("/late/a.html", 5000),
            ("/late/big.html", 1_000_000),
            ("/through/big.html", 1_000_000),
            ("/through/a.txt", 500),
        ] {
            let r = gzipped(&weir, path);
            assert_eq!((r.status, coding(&r)), (200, Some("gzip")), "{path}");
            assert_eq!(r.header("Content-Length"), None);
            assert_eq!(r.header("Accept-Ranges"), None);
            assert!(r.header("ETag").is_some_and(|tag| tag.starts_with("W/\"")), "{path}");
            assert!(r.body.len() < len, "{path}");
            assert!(unzip(&r.body) == text(len), "{path}");
        }
        let empty = gzipped(&weir, "/zero/empty.html");
        assert_eq!(unzip(&empty.body), b"");
        // HTTP/1.0 has no chunks: the end of the connection is the end of the body.
        let raw = weir.raw("GET /old/a.html HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
        let at = raw.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        assert_eq!(unzip(&raw[at + 4..]), text(5000));
    });
}

#[test]
fn heads_conditions_and_ranges() {
    each_site(site, |weir| {
        let head = weir.request("HEAD", "/a.html", "Accept-Encoding: gzip\r\n");
        assert_eq!((coding(&head), head.header("Content-Length")), (Some("gzip"), None));
        let ranged =
            weir.request("GET", "/a.html", "Accept-Encoding: gzip\r\nRange: bytes=0-9\r\n");
        assert_eq!((ranged.status, coding(&ranged)), (200, Some("gzip")));
        let tag = head.header("ETag").unwrap().to_owned();
        let same = weir.request(
            "GET",
            "/a.html",
            &format!("Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n"),
        );
        assert_eq!((same.status, coding(&same)), (304, None));
        // Requests behind one another on a connection.
        let mut conn = weir.connect();
        let get = "GET /a.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
        conn.send(get.repeat(3));
        for r in conn.responses(3) {
            assert_eq!(unzip(&r.body), text(5000));
        }
    });
}

#[test]
fn who_gets_it() {
    each_site(site, |weir| {
        for (path, headers, want) in [
            ("/a.html", "", false),
            ("/a.html", "Accept-Encoding: gzip\r\n", true),
            ("/a.html", "Accept-Encoding: br, gzip;q=0.5\r\n", true),
            ("/a.html", "Accept-Encoding: gzip;q=0\r\n", false),
            ("/off/a.html", "Accept-Encoding: gzip\r\n", false),
            ("/a.txt", "Accept-Encoding: gzip\r\n", false),
            ("/types/a.txt", "Accept-Encoding: gzip\r\n", true),
            ("/types/a.json", "Accept-Encoding: gzip\r\n", true),
            ("/types/a.html", "Accept-Encoding: gzip\r\n", true),
            ("/tiny.html", "Accept-Encoding: gzip\r\n", false),
            ("/short.html", "Accept-Encoding: gzip\r\n", true),
            ("/min/short.html", "Accept-Encoding: gzip\r\n", false),
            ("/missing", "Accept-Encoding: gzip\r\n", true),
            ("/a.html", "Accept-Encoding: gzip\r\nVia: 1.1 x\r\n", false),
            ("/proxied/a.html", "Accept-Encoding: gzip\r\nVia: 1.1 x\r\n", true),
            ("/anyproxy/a.html", "Accept-Encoding: gzip\r\nVia: 1.1 x\r\n", true),
            ("/lm/a.html", "Accept-Encoding: gzip\r\nVia: 1.1 x\r\n", false),
            ("/noie/a.html", "Accept-Encoding: gzip\r\nUser-Agent: Evil\r\n", false),
            ("/noie/a.html", "Accept-Encoding: gzip\r\nUser-Agent: good\r\n", true),
            ("/noie/a.html", "Accept-Encoding: gzip\r\nUser-Agent: (MSIE 6.0;)\r\n", false),
            ("/noie/a.html", "Accept-Encoding: gzip\r\nUser-Agent: (MSIE 6.0; SV1)\r\n", true),
            ("/a.html", "Accept-Encoding: gzip\r\nUser-Agent: (MSIE 6.0;)\r\n", true),
        ] {
            let r = weir.request("GET", path, headers);
            assert_eq!(coding(&r).is_some(), want, "{path} {headers:?}");
            let varies = path.starts_with("/types/");
            assert_eq!(r.header("Vary").is_some(), varies, "{path} {headers:?}");
            if want {
                assert!(!unzip(&r.body).is_empty());
            }
        }
        // Clients that do not get gzip still get `Vary`.
        let plain = weir.get("/types/a.txt");
        assert_eq!((coding(&plain), plain.header("Vary")), (None, Some("Accept-Encoding")));
        assert!(weir.get("/a.html").header("ETag").is_some_and(|tag| !tag.starts_with("W/")));
        let old = weir.raw("GET /a.html HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
        assert!(!String::from_utf8_lossy(&old).contains("gzip"));
    });
}

#[test]
fn the_ratio_is_known_at_the_end() {
    each_site(site, |weir| {
        let zipped = gzipped(&weir, "/ratio/a.html").body.len();
        weir.get("/ratio/a.txt");
        weir.wait_for_log("ratio.log", "/ratio/a.txt");
        let log = weir.log("ratio.log");
        let mut lines = log.lines();
        let ratio = lines.next().and_then(|line| line.strip_prefix("/ratio/a.html "));
        let ratio: f64 =
            ratio.unwrap_or_else(|| panic!("not the first line: {log}")).parse().expect("a number");
        assert!((ratio - 5000.0 / zipped as f64).abs() < 0.01, "{ratio}");
        assert_eq!(lines.next(), Some("/ratio/a.txt -"));
    });
}

/// Decompresses as much of an unfinished stream as possible.
fn unzip_so_far(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // The missing end is an error, which follows the data.
    let _ = flate2::read::GzDecoder::new(bytes).read_to_end(&mut out);
    out
}

#[test]
fn what_an_upstream_sends_bit_by_bit_arrives_so() {
    each_site(site, |weir| {
        let upstream = testkit::listen(weir.port(1));
        let mut conn = weir.connect();
        conn.send("GET /live/ HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
        let (mut stream, _) = upstream.accept().expect("the proxy connects");
        let mut head = [0; 1024];
        assert!(stream.read(&mut head).expect("a request") > 0);
        let send = |stream: &mut TcpStream, text: &str| {
            stream.write_all(text.as_bytes()).expect("send");
        };
        send(&mut stream, "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n");
        conn.read_until(b"\r\n\r\n");
        let mut zipped = Vec::new();
        let mut all = String::new();
        for n in 0..5 {
            let piece = format!("piece {n}, ");
            send(&mut stream, &piece);
            all += &piece;
            while unzip_so_far(&zipped) != all.as_bytes() {
                zipped.extend(conn.read_chunk());
            }
        }
        drop(stream);
        loop {
            let chunk = conn.read_chunk();
            if chunk.is_empty() {
                break;
            }
            zipped.extend(chunk);
        }
        assert_eq!(unzip(&zipped), all.as_bytes());
    });
}

#[test]
fn what_is_refused_at_load() {
    refused(
        "*",
        &[
            ("gzip_comp_level 10;", "value must be between 1 and 9"),
            (
                "gzip_window 3k;",
                "\"gzip_window\" directive must be 512, 1k, 2k, 4k, 8k, 16k, or 32k",
            ),
            (
                "gzip_hash 256;",
                "\"gzip_hash\" directive must be 512, 1k, 2k, 4k, 8k, 16k, 32k, 64k, or 128k",
            ),
            ("gzip_http_version 2.0;", "invalid value \"2.0\""),
            ("gzip_proxied some;", "invalid value \"some\""),
            ("gzip_disable \"(\";", "missing closing parenthesis"),
            ("gzip on; gzip off;", "\"gzip\" directive is duplicate"),
            ("gzip_buffers 0 4k;", "\"gzip_buffers\" directive invalid value"),
        ],
    );
}
