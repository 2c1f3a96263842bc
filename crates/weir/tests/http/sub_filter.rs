//! `sub_filter`: texts replaced in responses, wherever their buffers end.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use testkit::{Driver, Site, Weir, built_binary, each_site, refused};

const HTTP: &str = "
    gzip_types *;
    server {
        listen 127.0.0.1:%PORT0%;
        root html;
        types { text/html html; text/plain txt; }
        sub_filter one 1;
        location /once/ { alias html/; sub_filter two '[$arg_x]'; sub_filter ONE 1; }
        location /all/ {
            alias html/;
            sub_filter_once off;
            sub_filter one 1;
            sub_filter Two 2;
            sub_filter three '';
            sub_filter_last_modified on;
        }
        location /variables/ {
            alias html/;
            sub_filter_once off;
            sub_filter $arg_text $arg_by;
            sub_filter \"$arg_text$arg_text\" never;
            sub_filter two two+;
        }
        location /types/ { alias html/; sub_filter_types text/plain; }
        location /undated { default_type text/plain; add_header Last-Modified once; return 200 one; }
        location /dated { proxy_pass http://127.0.0.1:%PORT0%/undated; sub_filter_types text/plain; }
        location /page/ {
            alias html/;
            ssi on;
            gzip on;
            gzip_min_length 0;
            sub_filter_once off;
            sub_filter one 1;
        }
        location /grows/ {
            alias html/;
            sub_filter_once off;
            sub_filter a $request_uri$request_uri$request_uri$request_uri$request_uri;
        }
        location /live/ {
            proxy_pass http://127.0.0.1:%PORT1%;
            proxy_buffering off;
            proxy_read_timeout 10s;
            sub_filter_once off;
            sub_filter pattern-of-some-length P;
            sub_filter pattern-of-some-size S;
        }
        location /slow/ { alias html/; limit_rate 20; limit_rate_after 1k; sub_filter a b; }
    }";

fn site(driver: Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/a.html", "one two three One TWO thRee one")
        .file("html/a.txt", "one one")
        .file("html/empty.html", "")
        .file("html/nine.html", vec![b'x'; 900])
        .file("html/aaa.html", vec![b'a'; 2_000])
        .file("html/long.html", "Lone Two".repeat(20_000))
        .file("html/part.html", "[one two]")
        .file("html/page.html", "one <!--# include virtual=\"/all/part.html\" --> one")
        .http(HTTP)
        .start()
}

#[test]
fn what_is_replaced() {
    each_site(site, |weir| {
        weir.gives(&[
            ("/a.html", "1 two three One TWO thRee one"),
            ("/once/a.html?x=y", "1 [y] three One TWO thRee one"),
            ("/all/a.html", "1 2  1 2  1"),
            ("/a.txt", "one one"),
            ("/types/a.txt", "1 one"),
            ("/types/a.html", "1 two three One TWO thRee one"),
            ("/variables/a.html?text=One&by=x", "x two+ three x two+ thRee x"),
            ("/variables/a.html?text=two&by=(two)", "one (two) three One (two) thRee one"),
            ("/variables/a.html", "one two+ three One two+ thRee one"),
            ("/page/page.html", "1 [1 2] 1"),
            ("/all/empty.html", ""),
        ]);
        let r = weir.get("/all/long.html");
        assert!(r.text() == "L1 2".repeat(20_000), "{}", r.body.len());
        // Two kilobytes become 120; nothing of that is a limit.
        let long = format!("/grows/aaa.html?{}", "x".repeat(3_000));
        assert_eq!(weir.get(&long).body.len(), long.len() * 5 * 2_000);
    });
}

#[test]
fn what_the_head_says() {
    each_site(site, |weir| {
        let r = weir.get("/a.html");
        assert_eq!((r.header("Last-Modified"), r.header("ETag")), (None, None));
        assert_eq!((r.header("Content-Length"), r.header("Accept-Ranges")), (None, None));
        let r = weir.get("/all/a.html");
        assert!(r.header("Last-Modified").is_some());
        assert!(r.header("ETag").is_some_and(|tag| tag.starts_with("W/")));
        // A date that is none goes as well.
        assert_eq!(weir.get("/undated").header("Last-Modified"), Some("once"));
        let r = weir.get("/dated");
        assert_eq!((r.text().as_str(), r.header("Last-Modified")), ("1", None));
        let r = weir.get("/a.txt");
        assert!(r.header("ETag").is_some_and(|tag| !tag.starts_with("W/")));
        let r = weir.request("GET", "/all/a.html", "Range: bytes=0-3\r\n");
        assert_eq!((r.status, r.text().as_str()), (200, "1 2  1 2  1"));
        assert_eq!(weir.get("/all/empty.html").header("Content-Length"), Some("0"));
        let r = weir.request("GET", "/page/page.html", "Accept-Encoding: gzip\r\n");
        let mut text = String::new();
        let mut z = flate2::read::GzDecoder::new(&r.body[..]);
        z.read_to_string(&mut text).expect("a gzip stream");
        assert_eq!(text, "1 [1 2] 1");
    });
}

#[test]
fn a_text_in_a_thousand_buffers_of_one_byte() {
    each_site(site, |weir| {
        let upstream = testkit::listen(weir.port(1));
        let text = "x pattern-of-some-length, PATTERN-OF-some-size, pattern-of-some, ".repeat(16);
        let mut conn = weir.connect();
        conn.send("GET /live/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let (mut stream, _) = upstream.accept().expect("the proxy connects");
        stream.set_nodelay(true).expect("no delay");
        let mut head = [0; 1024];
        assert!(stream.read(&mut head).expect("a request") > 0);
        let length = format!("Content-Length: {}\r\n\r\n", text.len());
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{length}");
        stream.write_all(head.as_bytes()).expect("send");
        for byte in text.bytes() {
            stream.write_all(&[byte]).expect("send");
            // So that most of them come by themselves.
            std::thread::sleep(Duration::from_micros(50));
        }
        let whole = conn.response();
        assert_eq!(whole.text(), "x P, S, pattern-of-some, ".repeat(16));
    });
}

#[test]
fn what_limit_rate_after_lets_through_takes_no_time() {
    each_site(site, |weir| {
        let start = Instant::now();
        assert_eq!(weir.get("/slow/nine.html").body.len(), 900);
        let took = start.elapsed();
        assert!(took > Duration::from_millis(900) && took < Duration::from_secs(9), "{took:?}");
    });
}

#[test]
fn what_is_refused_at_load() {
    let many = "sub_filter a b;".repeat(256);
    refused(
        "*",
        &[
            ("sub_filter \"\" x;", "empty search pattern"),
            (&many, "number of search patterns exceeds 255"),
            ("sub_filter a;", "invalid number of arguments in \"sub_filter\" directive"),
            ("sub_filter $nothing_of_that_name x;", "unknown \"nothing_of_that_name\" variable"),
        ],
    );
    let out = Site::new(built_binary(), Driver::ALL[0]).http(&many[15..]).run(&["-t"]);
    assert!(out.status.success(), "255 are not too many");
}
