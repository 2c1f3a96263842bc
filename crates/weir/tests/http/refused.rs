//! Requests that are refused in their head: which virtual server answers and logs them. All of it
//! was compared with nginx 1.22.

use testkit::{Site, Weir, built_binary, each_driver};

const HTTP: &str = r#"
log_format f '$server_name $status $request_method "$request_uri" $uri $args $host $request_length';
access_log logs/seen.log f;
client_header_timeout 300ms;
server {
    listen 127.0.0.1:%PORT0%;
    server_name default;
    add_header X-Server default always;
    error_log logs/error.log info;
    location / { return 200 "$uri|$http_x_y|$http_a_b"; }
}
server {
    listen 127.0.0.1:%PORT0%;
    server_name a.test;
    add_header X-Server a always;
    underscores_in_headers on;
    merge_slashes off;
    error_page 400 =418 @refused;
    error_page 494 501 /page;
    error_log logs/a.log info;
    access_log logs/a_seen.log f;
    location @refused { return 418 "$request_method $uri?$args"; }
    location = /page { return 200 "page of a"; }
    location / { return 200 "$uri|$http_x_y|$http_a_b"; }
}
server {
    listen 127.0.0.1:%PORT0%;
    server_name ~^r(?<number>\d+)\.test$;
    add_header X-Server r$number always;
    client_header_buffer_size 512;
    large_client_header_buffers 2 1k;
}
server {
    listen 127.0.0.1:%PORT0%;
    server_name "";
    add_header X-Server nameless always;
}
server {
    listen 127.0.0.1:%PORT1%;
    server_name lines;
    error_page 400 405 414 505 /page;
    error_log logs/error.log info;
    if ($request_method !~ ^(GET|HEAD)$) { return 405; }
    location = /page { return 200 "page for $request_method"; }
}
server {
    listen 127.0.0.1:%PORT2%;
    error_page 400 405 = @named;
    error_log logs/error.log info;
    location @named { return 200 named; }
}"#;

fn served(driver: testkit::Driver) -> Weir {
    Site::new(built_binary(), driver).http(HTTP).start()
}

/// Status, server and body of the answer to a head that begins with this line.
fn answer(weir: &Weir, port: usize, head: &str) -> (u16, String, String) {
    let mut conn = testkit::Conn::tcp(weir.port(port));
    conn.send(format!("{head}\r\n"));
    let method = if head.starts_with("HEAD") { "HEAD" } else { "GET" };
    let response = conn.response_to(method);
    let server = response.header("x-server").unwrap_or_default().to_owned();
    if response.header("connection") == Some("close") {
        assert!(conn.read_to_end().is_empty());
    }
    (response.status, server, response.text())
}

#[test]
fn the_server_of_the_host_answers_what_is_refused_behind_it() {
    each_driver(|driver| {
        let weir = served(driver);
        let long = format!("X: {}\r\n", "x".repeat(9000));
        let longer = format!("X: {}\r\n", "x".repeat(1500));
        let many = "X: y\r\n".repeat(70_000);
        for (status, fields) in [
            (400, "Bad Name: x\r\n"),
            (400, "Host: a.test\r\n"),
            (400, "Content-Length: 1\r\nContent-Length: 1\r\n"),
            (400, "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
            (400, "Content-Length: x\r\n"),
            (400, "X: a\0b\r\n"),
            (400, ": x\r\n"),
            (501, "Transfer-Encoding: other\r\n"),
            (494, &long),
            (494, &many),
        ] {
            let told = &fields[..fields.len().min(40)];
            for (host, of_a) in [("a.test", true), ("A.Test.:80", true), ("none", false)] {
                let head = format!("POST /p//q?x HTTP/1.1\r\nHost: {host}\r\n{fields}");
                let (got, server, text) = answer(&weir, 0, &head);
                let sent = if status == 494 { 400 } else { status };
                match (of_a, status) {
                    (false, _) => assert_eq!((got, &*server), (sent, "default"), "{told}"),
                    (true, 400) => {
                        assert_eq!((got, &*server, &*text), (418, "a", "POST /p/q?x"), "{told}");
                    }
                    (true, _) => {
                        assert_eq!((got, &*server, &*text), (sent, "a", "page of a"), "{told}");
                    }
                }
            }
        }
        // Before the host was read, there is none; without any, that is known at the end.
        let bad = |fields: &str| answer(&weir, 0, &format!("GET / HTTP/1.1\r\n{fields}")).1;
        assert_eq!(bad("Bad Name: x\r\nHost: a.test\r\n"), "default");
        assert_eq!(bad("Bad Name: x\r\n"), "default");
        assert_eq!(bad("Host: a/b\r\n"), "default");
        assert_eq!(bad("Content-Length: x\r\nHost: a.test\r\n"), "a");
        assert_eq!(bad(""), "nameless");
        assert_eq!(bad("Content-Length: x\r\n"), "nameless");
        // The host of the request line comes first; the version and the path before it.
        let line = |line: &str| answer(&weir, 0, &format!("{line}\r\nHost: b\r\nB d: x\r\n")).1;
        assert_eq!(line("GET http://a.test/ HTTP/1.1"), "a");
        assert_eq!(line("GET http://a.test/%zz HTTP/1.1"), "default");
        assert_eq!(line("GET http://a.test/ HTTP/3.1"), "default");
        // Names that are regular expressions choose as well, and so do limits of their servers.
        assert_eq!(bad("Host: r7.test\r\nB d: x\r\n"), "r7");
        let head = format!("GET / HTTP/1.1\r\nHost: r7.test\r\n{longer}");
        let (status, server, _) = answer(&weir, 0, &head);
        assert_eq!((status, &*server), (400, "r7"));
        let head = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{longer}");
        assert_eq!(answer(&weir, 0, &head).0, 200);
    });
}

#[test]
fn the_server_of_the_host_logs_what_is_refused_or_cut_short() {
    each_driver(|driver| {
        let weir = served(driver);
        let head = "GET /p//q?x HTTP/1.1\r\nHost: a.test\r\n";
        let about = "server: a.test, request: \"GET /p//q?x HTTP/1.1\", host: \"a.test\"";
        answer(&weir, 0, &format!("{head}B d: x\r\n"));
        let line = weir.wait_for_log("a.log", "invalid header line: \"B\\x20...\"");
        assert!(line.contains(about), "{line}");
        // The lines before the bad one are counted.
        let seen = |what: &str| weir.wait_for_log("a_seen.log", what);
        assert_eq!(seen(" 418 "), "a.test 418 GET \"/p//q?x\" /p/q x a.test 36",);
        let mut conn = weir.connect();
        conn.send(format!("{head}Half"));
        conn.finish_sending();
        assert!(conn.read_to_end().is_empty());
        assert_eq!(seen(" 400 "), "a.test 400 GET \"/p//q?x\" /p/q x a.test 36");
        let m = "client prematurely closed connection while reading client request headers";
        assert!(weir.wait_for_log("a.log", m).contains(about));
        let mut conn = weir.connect();
        conn.send(format!("{head}Half"));
        assert!(conn.read_to_end().is_empty());
        assert_eq!(seen(" 408 "), "a.test 408 GET \"/p//q?x\" /p/q x a.test 36");
        let m = "client timed out (110: Connection timed out) while reading client request headers";
        assert!(weir.wait_for_log("a.log", m).contains(about));
        // Of a line that was not understood only the text is known.
        let mut conn = weir.connect();
        conn.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\nget /p HTTP/1.1\r\n\r\n");
        conn.read_to_end();
        let m = "client sent invalid method while reading client pipelined request line";
        weir.wait_for_log("error.log", m);
        let line = weir.wait_for_log("seen.log", " 400 ");
        assert_eq!(line, "default 400 - \"-\" - - default 0");
    });
}

#[test]
fn fields_are_dropped_as_the_server_has_it_that_was_known_when_they_came() {
    each_driver(|driver| {
        let weir = served(driver);
        let get = |fields: &str| answer(&weir, 0, &format!("GET /p//q HTTP/1.1\r\n{fields}")).2;
        // The path is made before any host is known.
        assert_eq!(get("Host: a.test\r\nx_y: 1\r\na_b: 2\r\n"), "/p/q|1|2");
        assert_eq!(get("x_y: 1\r\nHost: a.test\r\na_b: 2\r\n"), "/p/q||2");
        assert_eq!(get("Host: default\r\nx_y: 1\r\na_b: 2\r\n"), "/p/q||");
        let m = "client sent invalid header line: \"x_y: 1\" while reading client request headers";
        assert!(weir.wait_for_log("error.log", m).contains("server: default"));
    });
}

#[test]
fn a_line_that_is_refused_meets_error_pages_with_a_method_of_theirs() {
    // `if` of the server read the method that was refused, and answered 405.
    each_driver(|driver| {
        let weir = served(driver);
        let uri = "u".repeat(9000);
        for (status, line) in [
            (400, "get / HTTP/1.1"),
            (400, "G3T / HTTP/1.1"),
            (400, "GET / HTPT/1.1"),
            (400, "OPTIONS * HTTP/1.1"),
            (505, "POST / HTTP/2.0"),
            (414, &format!("POST /{uri} HTTP/1.1")),
        ] {
            let (got, _, text) = answer(&weir, 1, &format!("{line}\r\n"));
            assert_eq!((got, &*text), (status, "page for GET"), "{line:.20}");
        }
        // One that can be read is refused by the rule.
        assert_eq!(answer(&weir, 1, "FOO / HTTP/1.1\r\nHost: x\r\n").0, 405);
        // Without a path there is nothing that a named location could answer.
        assert_eq!(answer(&weir, 2, "get / HTTP/1.1\r\n").0, 500);
        weir.wait_for_log("error.log", "empty URI in redirect to named location \"@named\"");
        assert_eq!(answer(&weir, 2, "GET / HTTP/1.1\r\nB d: x\r\n").2, "named");
    });
}

/// Here nginx is more lenient: it takes lines without a colon, and any text between brackets.
#[test]
fn lines_without_a_colon_and_literals_that_are_no_addresses_are_refused() {
    each_driver(|driver| {
        let weir = served(driver);
        let status = |head: &str| {
            let got = weir.raw(format!("{head}\r\nConnection:\tclose\t\r\n\r\n"));
            String::from_utf8_lossy(&got).split(' ').nth(1).unwrap_or_default().to_owned()
        };
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: x\r\nX-Y", "400"),
            ("GET / HTTP/1.0\r\nX-Y", "400"),
            ("GET / HTTP/1.1\r\nHost", "400"),
            ("GET / HTTP/1.1\r\nHost: []", "400"),
            ("GET / HTTP/1.1\r\nHost: []:80", "400"),
            ("GET / HTTP/1.1\r\nHost: [12345]", "400"),
            ("GET http://[12345]/ HTTP/1.1\r\nHost: x", "400"),
            ("GET / HTTP/1.1\r\nHost: [::1]:80", "200"),
            ("GET / HTTP/1.1\r\nHost:\ta.test\t", "200"),
        ] {
            assert_eq!(status(head), expected, "{head:?}");
        }
        let got = weir
            .raw("GET / HTTP/1.1\r\nHost:\ta.test \t\r\nX-Y: \tz \t\r\nConnection: close\r\n\r\n");
        let got = String::from_utf8_lossy(&got).into_owned();
        assert!(got.contains("X-Server: a\r\n") && got.ends_with("/|z|"), "{got}");
        let trailers = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
                        Connection: close\r\n\r\n0\r\nX\r\n\r\n";
        let got = String::from_utf8_lossy(&weir.raw(trailers)).into_owned();
        assert!(got.starts_with("HTTP/1.1 400 "), "{got}");
    });
}
