//! Pipelined requests do not leak state into one another.

use std::io::{Read, Write};

use testkit::{Driver, Site, Weir, built_binary, each_driver};

const HTTP: &str = r#"
server {
    listen 127.0.0.1:%PORT0%;
    root html;
    error_page 404 /404.html;
    location /first { add_header X-First first always; charset utf-8; return 200 "first\n"; }
    location /closed { return 444; }
    location /said { return 202 "$status\n"; }
    location /broken { proxy_pass http://127.0.0.1:%PORT1%; }
}
"#;

/// A server whose answers break off behind their heads.
fn breaking(port: u16, answer: &'static str) {
    let listener = testkit::listen(port);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).and_then(|_| stream.write_all(answer.as_bytes()));
        }
    });
}

fn site(driver: Driver) -> (Weir, u16) {
    let mut site =
        Site::new(built_binary(), driver).file("html/404.html", b"not here\n").http(HTTP);
    let port = site.port(1);
    (site.start(), port)
}

fn text(weir: &Weir, requests: &str) -> String {
    String::from_utf8(weir.raw(requests)).expect("ASCII")
}

const FIRST: &str = "GET /first HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn answers_before_a_connection_that_is_closed_are_sent() {
    each_driver(|driver| {
        let (weir, _) = site(driver);
        let both = format!("{FIRST}{FIRST}GET /closed HTTP/1.1\r\nHost: a\r\n\r\n");
        let answers = text(&weir, &both);
        assert_eq!(answers.matches("first\n").count(), 2, "{answers}");
        assert_eq!(answers.matches("HTTP/1.1").count(), 2, "{answers}");
    });
}

#[test]
fn a_head_without_a_body_that_should_follow_is_not_sent() {
    each_driver(|driver| {
        let (weir, port) = site(driver);
        let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n";
        breaking(port, answer);
        // Of HTTP/1.0 it would pass for a whole answer.
        assert_eq!(text(&weir, "GET /broken HTTP/1.0\r\n\r\n"), "");
        let answers = text(&weir, &format!("{FIRST}GET /broken HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(answers.ends_with("first\n") && answers.matches("HTTP/").count() == 1, "{answers}");
        weir.wait_for_log("error.log", "upstream sent invalid chunked response");
    });
}

#[test]
fn a_head_that_cannot_be_read_is_for_no_location() {
    each_driver(|driver| {
        let (weir, _) = site(driver);
        let answers = text(&weir, &format!("{FIRST}GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n"));
        let (first, bad) = answers.split_once("first\n").expect("the first answer");
        assert!(first.contains("X-First") && first.contains("charset=utf-8"), "{first}");
        assert!(bad.starts_with("HTTP/1.1 400 "), "{bad}");
        assert!(!bad.contains("X-First") && !bad.contains("charset"), "{bad}");
    });
}

#[test]
fn fields_of_files_that_stand_for_errors() {
    each_driver(|driver| {
        let (weir, _) = site(driver);
        let page = weir.get("/404.html");
        assert!(page.header("Last-Modified").is_some() && page.status == 200);
        let page = weir.get("/nothing");
        assert!(page.header("Last-Modified").is_none() && page.status == 404, "{page:?}");
        assert_eq!(page.text(), "not here\n");
        assert_eq!(weir.get("/said").text(), "202\n");
    });
}
