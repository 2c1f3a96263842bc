//! Request bodies as the whole server treats them, those that nobody reads above all. (How they are
//! read is tested with the engine alone, on simulated sockets, too.)

use std::time::Duration;

use testkit::{Driver, Site, Weir, built_binary, each_driver, each_site};

fn site(driver: Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/a.txt", "hello")
        .config(
            "worker_processes 1; events {}
             http {
                 log_format b '$status $request_length $content_length $request_body_file';
                 access_log logs/access.log b;
                 server {
                     listen 127.0.0.1:%PORT0%;
                     location /small/ { alias html/; client_max_body_size 5; }
                     location /moved { error_page 403 http://elsewhere/; deny all; }
                     location /hasty/ { alias html/; lingering_time 200ms; lingering_timeout 100ms; }
                 }
             }",
        )
        .start()
}

const GET: &str = "GET /a.txt HTTP/1.1\r\nHost: x\r\n";

#[test]
fn unread_bodies_do_not_hide_the_next_request() {
    each_site(site, |weir| {
        let large = "x".repeat(300_000);
        let mut c = weir.connect();
        for body in ["", "hello", &large] {
            let (len, chunk) = (body.len(), format!("{:x}\r\n{body}\r\n", body.len()));
            c.send(format!("{GET}Content-Length: {len}\r\n\r\n{body}"));
            let chunks = if len == 0 { String::new() } else { chunk.repeat(3) };
            c.send(format!("{GET}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"));
        }
        c.send(format!("{GET}\r\n"));
        assert!(c.responses(7).iter().all(|r| r.status == 200 && r.body == b"hello"));
        c.send(format!(
            "POST /moved HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello{GET}\r\n"
        ));
        assert_eq!([c.response().status, c.response().status], [302, 200]);
        // A body that comes after the answer.
        c.send(format!("{GET}Content-Length: 10\r\n\r\n"));
        assert_eq!(c.response().status, 200);
        c.send(format!("0123456789{GET}\r\n"));
        assert_eq!(c.response().status, 200);
    });
}

#[test]
fn an_unread_body_is_not_waited_for_for_ever() {
    each_site(site, |weir| {
        let mut c = weir.connect();
        c.send("GET /hasty/a.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234");
        let r = c.response();
        assert_eq!((r.status, r.header("connection")), (200, Some("keep-alive")));
        c.set_patience(Duration::from_secs(3));
        assert!(c.is_closed());
    });
}

#[test]
fn limits_and_lengths() {
    each_site(site, |weir| {
        let ask = |fields: &str, body: &str| {
            let mut c = weir.connect();
            c.send(format!("GET /small/a.txt HTTP/1.1\r\nHost: x\r\n{fields}\r\n{body}"));
            c.response()
        };
        assert_eq!(ask("Content-Length: 5\r\n", "01234").status, 200);
        weir.wait_for_log("access.log", "200 57 5 -");
        let r = ask("Content-Length: 6\r\n", "");
        assert_eq!((r.status, r.header("connection")), (413, Some("close")));
        weir.wait_for_log("error.log", "client intended to send too large body: 6 bytes");
        // Limits hold for handlers that read the body: an unwanted chunked body is just dropped.
        assert_eq!(ask("Transfer-Encoding: chunked\r\n", "6\r\n012345\r\n0\r\n\r\n").status, 200);
        let r = ask("Transfer-Encoding: chunked\r\n", "4\r\nSEE-THIS\r\n0\r\n\r\n");
        assert_eq!((r.status, r.header("connection")), (400, Some("close")));
        weir.wait_for_log("error.log", "client sent invalid chunked body");
    });
}

#[test]
fn a_client_that_waits_for_100_is_closed_on_when_nobody_wants_its_body() {
    each_site(site, |weir| {
        let mut c = weir.connect();
        c.send(format!("{GET}Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"));
        let r = c.response();
        assert_eq!((r.status, r.header("connection")), (200, Some("close")));
        assert!(c.is_closed());
        // It did not wait.
        let mut c = weir.connect();
        c.send(format!("{GET}Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello{GET}\r\n"));
        assert!(c.responses(2).iter().all(|r| r.header("connection") == Some("keep-alive")));
    });
}

#[test]
fn a_body_that_is_read_early_is_there_in_every_phase() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .http(
                "client_max_body_size 20;
                 server {
                     listen 127.0.0.1:%PORT0%;
                     client_body_early_read $http_x_none $http_x_early;
                     location / { if ($request_body = hello) { return 202; } return 200; }
                     location /small { client_max_body_size 5; return 200; }
                 }",
            )
            .start();
        let mut c = weir.connect();
        let mut status = |path: &str, early: &str, body: &str| {
            let (early, len) = (format!("X-Early: {early}"), body.len());
            c.send(format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\n{early}\r\nContent-Length: {len}\r\n\r\n"
            ));
            std::thread::sleep(Duration::from_millis(10));
            c.send(body);
            c.response().status
        };
        assert_eq!(status("/", "1", "hello"), 202);
        assert_eq!(status("/", "1", "hullo"), 200);
        assert_eq!(status("/", "1", ""), 200);
        assert_eq!(status("/", "", "hello"), 200);
        assert_eq!(status("/", "0", "hello"), 200);
        assert_eq!(status("/small", "1", "hello"), 200);
        let chunked =
            "POST / HTTP/1.1\r\nHost: x\r\nX-Early: y\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut c = weir.connect();
        c.send(format!("{chunked}2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n{chunked}ff\r\n"));
        assert_eq!([c.response().status, c.response().status], [202, 413]);
        // The location lets less through than the server, the server less than was sent.
        for (path, length) in [("/small", 6), ("/", 21)] {
            let mut c = weir.connect();
            let body = "x".repeat(length);
            c.send(format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nX-Early: 1\r\nContent-Length: {length}\r\n\r\n{body}"
            ));
            let refused = c.response();
            let got = (refused.status, refused.header("connection"));
            assert_eq!(got, (413, Some("close")), "{path}");
        }
    });
}
