//! `slice`: a response fetched in ranges goes out as one, or as the range that was asked for.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::origin::{Answer, Asked, Origin};
use testkit::{Driver, Site, Weir, built_binary, each_driver, each_site, wait_for};

const HTTP: &str = "
    server {
        listen 127.0.0.1:%PORT0%;
        location / {
            slice 10;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%PORT1%;
        }
        location /added/ {
            slice 10;
            add_header X-Added yes;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
        location /plain/ { slice 10; proxy_pass http://127.0.0.1:%PORT1%/; }
        location /page { ssi on; root html; }
        location /sub/ {
            slice 10;
            sub_filter_once off;
            sub_filter_types *;
            sub_filter b X;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
        location /none/ {
            slice 10;
            max_ranges 0;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
        location /ssi/ {
            slice 10;
            ssi on;
            ssi_types *;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
        location /more/ {
            slice 10;
            add_after_body /even;
            addition_types *;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
        location /zip/ {
            slice 10;
            gzip on;
            gzip_min_length 1;
            gzip_types *;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
        location /wrong/ {
            slice 10;
            proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%PORT2%;
        }
    }
    server {
        listen 127.0.0.1:%PORT1%;
        root html;
        location /whole { max_ranges 0; alias html/t; }
    }";

fn text(len: usize) -> String {
    (0..len).map(|n| char::from(b'a' + (n % 26) as u8)).collect()
}

fn site(driver: Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/t", text(45))
        .file("html/even", text(40))
        .file("html/long", text(20_003))
        .file("html/longer", text(303))
        .file("html/empty", "")
        .file("html/page.html", "[<!--# include virtual=\"/t\" -->]")
        .http(&format!("types {{ text/html html; }} {HTTP}"))
        .start()
}

#[test]
fn whole_responses_and_ranges() {
    each_site(site, |weir| {
        for (path, range, status, want) in [
            ("/t", "", 200, 0..45),
            ("/even", "", 200, 0..40),
            ("/long", "", 200, 0..20_003),
            ("/t", "bytes=0-0", 206, 0..1),
            ("/t", "bytes=5-14", 206, 5..15),
            ("/t", "bytes=12-13", 206, 12..14),
            ("/t", "bytes=25-", 206, 25..45),
            ("/t", "bytes=25-1000", 206, 25..45),
            ("/t", "bytes=9-10", 206, 9..11),
            ("/t", "bytes=-3", 206, 42..45),
            ("/t", "bytes=-12", 206, 33..45),
            ("/t", "bytes=-30", 206, 15..45),
            ("/t", "bytes=-1000", 206, 0..45),
            ("/t", "bytes=0-1,3-4", 200, 0..45),
            ("/long", "bytes=10005-10007", 206, 10_005..10_008),
            ("/plain/t", "bytes=5-14", 206, 5..15),
            ("/whole", "bytes=25-", 200, 0..45),
        ] {
            let header =
                if range.is_empty() { String::new() } else { format!("Range: {range}\r\n") };
            let r = weir.request("GET", path, &header);
            let all = text(20_003);
            assert_eq!(
                (r.status, r.text().as_str()),
                (status, &all[want.clone()]),
                "{path} {range}"
            );
            assert_eq!(r.header("Content-Length"), Some(want.len().to_string().as_str()));
            let length = if path == "/long" { 20_003 } else { 45 };
            let content_range = format!("bytes {}-{}/{length}", want.start, want.end - 1);
            let told = (status == 206).then_some(content_range.as_str());
            assert_eq!(r.header("Content-Range"), told, "{path} {range}");
        }
        let r = weir.request("GET", "/t", "Range: bytes=100-\r\n");
        assert_eq!(r.status, 416);
        // No number: the first slice is asked for, and of the whole there is no such part.
        for path in ["/t", "/added/t"] {
            let r = weir.request("GET", path, "Range: bytes=a-b\r\n");
            assert_eq!((r.status, r.header("Content-Range")), (416, Some("bytes */45")), "{path}");
            assert_eq!((r.header("X-Added"), r.header("ETag")), (None, None), "{path}");
        }
        assert_eq!(weir.get("/added/t").header("X-Added"), Some("yes"));
        let tag = weir.get("/t").header("ETag").map(str::to_owned).expect("a tag");
        let headers = format!("Range: bytes=25-26\r\nIf-Range: {tag}\r\n");
        let r = weir.request("GET", "/t", &headers);
        assert_eq!((r.status, r.text().as_str()), (206, "za"));
        let r = weir.request("GET", "/t", "Range: bytes=25-26\r\nIf-Range: \"x\"\r\n");
        assert_eq!((r.status, r.text()), (200, text(45)));
        let r = weir.request("HEAD", "/t", "");
        assert_eq!((r.status, r.header("Content-Length")), (200, Some("45")));
    });
}

#[test]
fn with_other_filters() {
    each_site(site, |weir| {
        assert_eq!(weir.get("/sub/t").text(), text(45).replace('b', "X"));
        let r = weir.request("GET", "/sub/t", "Range: bytes=5-6\r\n");
        assert_eq!((r.status, r.text()), (200, text(45).replace('b', "X")));
        // Ranges are of no use to them: the response is the whole, from its first slice on.
        for (path, len) in [("t", 45), ("longer", 303)] {
            for range in ["25-", "35-36", "-3", "25-26,30-31"] {
                let fields = format!("Range: bytes={range}\r\nAccept-Encoding: gzip\r\n");
                let get = |prefix: &str| weir.request("GET", &format!("/{prefix}/{path}"), &fields);
                let whole = text(len);
                let changed = whole.replace('b', "X");
                let and_more = whole.clone() + &text(40);
                let cases =
                    [("sub", &changed), ("none", &whole), ("ssi", &whole), ("more", &and_more)];
                for (prefix, want) in cases {
                    let r = get(prefix);
                    assert_eq!((r.status, &r.text()), (200, want), "{prefix} {path} {range}");
                }
                let r = get("zip");
                assert_eq!((r.status, r.header("Content-Encoding")), (200, Some("gzip")));
                let mut plain = String::new();
                let mut unpacked = flate2::read::GzDecoder::new(&r.body[..]);
                unpacked.read_to_string(&mut plain).expect("gzip");
                assert!(plain == whole, "{path} {range}");
            }
        }
        // In a part of a page there are no slices: nothing says which range is wanted.
        assert_eq!(weir.get("/page.html").text(), format!("[{}]", text(45)));
    });
}

/// Starts an upstream with an answer to the first request for a slice, and one to later requests.
fn answers(first: &'static str, then: &'static str, port: u16) -> Arc<Mutex<Vec<String>>> {
    let listener = testkit::listen(port);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().take(2).enumerate() {
            let mut stream = stream.expect("a connection");
            let mut head = [0; 2048];
            let len = stream.read(&mut head).expect("a request");
            let head = String::from_utf8_lossy(&head[..len]).into_owned();
            let range = head.lines().find_map(|l| l.strip_prefix("Range: ").map(str::to_owned));
            seen.lock().expect("not poisoned").push(range.unwrap_or_default());
            let answer = if n == 0 { first } else { then };
            stream.write_all(answer.as_bytes()).expect("send");
        }
    });
    asked
}

#[test]
fn what_does_not_fit_is_not_sent() {
    const FIRST: &str = "HTTP/1.0 206 Partial Content\r\nETag: \"a\"\r\n\
        Content-Range: bytes 0-9/20\r\nContent-Length: 10\r\n\r\n0123456789";
    for (then, message) in [
        ("HTTP/1.0 200 OK\r\n\r\nwhole", "unexpected status code 200 in slice response"),
        (
            "HTTP/1.0 206 P\r\nETag: \"b\"\r\nContent-Range: bytes 10-19/20\r\n\r\n0123456789",
            "etag mismatch in slice response",
        ),
        (
            "HTTP/1.0 206 P\r\nETag: \"a\"\r\nContent-Range: bytes 0-9/20\r\n\r\n0123456789",
            "unexpected range in slice response: 0-10, expected: 10-20",
        ),
        (
            "HTTP/1.0 206 P\r\nETag: \"a\"\r\nContent-Range: bytes 10-19/30\r\n\r\n0123456789",
            "length 30 in slice response, 20 before",
        ),
        (
            "HTTP/1.0 206 P\r\nETag: \"a\"\r\nContent-Range: bytes 10-19/*\r\n\r\n0123456789",
            "no complete length in slice response",
        ),
        ("HTTP/1.0 206 P\r\nETag: \"a\"\r\n\r\n0123456789", "invalid range in slice response"),
        (
            "HTTP/1.0 206 P\r\nETag: \"a\"\r\nContent-Range: bytes 10-19/20\r\n\
             Content-Length: 10\r\n\r\n0123",
            "upstream prematurely closed connection",
        ),
    ] {
        let weir = site(Driver::ALL[0]);
        let asked = answers(FIRST, then, weir.port(2));
        let mut conn = weir.connect();
        conn.send("GET /wrong/ HTTP/1.1\r\nHost: a\r\n\r\n");
        let got = String::from_utf8_lossy(&conn.read_to_end()).into_owned();
        assert!(got.starts_with("HTTP/1.1 200") && got.contains("0123456789"), "{got}");
        assert!(!got.ends_with("01234567890123456789"), "{got}");
        let log = weir.wait_for_log("error.log", message);
        assert!(log.contains(message), "{log}");
        assert_eq!(*asked.lock().expect("not poisoned"), ["bytes=0-9", "bytes=10-19"]);
    }
}

#[test]
fn a_first_slice_that_does_not_fit_is_a_bad_gateway() {
    let weir = site(Driver::ALL[0]);
    answers("HTTP/1.0 206 P\r\nContent-Range: bytes 3-5/20\r\n\r\n345", "", weir.port(2));
    let r = weir.get("/wrong/");
    assert_eq!((r.status, r.header("Content-Range")), (502, None));
    let m = "unexpected range in slice response: 3-6, expected: 0-10";
    weir.wait_for_log("error.log", m);
}

/// The part of a text that a request asks for, as an origin answers.
fn part(asked: &Asked, text: &str, tag: &str, max_age: u32) -> Answer {
    let range = asked.field("Range").and_then(|range| range.strip_prefix("bytes="));
    let range = range.and_then(|range| range.split_once('-')).expect("a range");
    let number = |digits: &str| digits.parse::<usize>().expect("a number");
    let (start, end) = (number(range.0), (number(range.1) + 1).min(text.len()));
    let len = text.len();
    let fields = format!(
        "ETag: \"{tag}\"\r\nCache-Control: max-age={max_age}\r\n\
         Content-Range: bytes {start}-{}/{len}\r\n",
        end - 1
    );
    Answer { status: 206, fields, body: text[start..end].into(), ..Answer::default() }
}

fn cached(driver: Driver, origin: &Origin, more: &str) -> Weir {
    let http = format!(
        "proxy_cache_path cache keys_zone=one:1m;
         server {{
             listen 127.0.0.1:%PORT0%;
             slice 10;
             proxy_cache one;
             proxy_cache_key $uri$slice_range;
             proxy_set_header Range $slice_range;
             {more}
             add_header X-Cache $upstream_cache_status;
             location / {{ proxy_pass http://127.0.0.1:{}; }}
         }}",
        origin.port
    );
    Site::new(built_binary(), driver).http(&http).start()
}

#[test]
fn stale_slices_are_updated_behind_a_client_s_back() {
    each_driver(|driver| {
        let ranges: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
        let seen = ranges.clone();
        let origin = Origin::start(move |asked| {
            seen.lock().expect("not poisoned").push(asked.field("Range").map(str::to_owned));
            part(asked, &text(25), "a", 1)
        });
        let updates = "proxy_cache_use_stale updating; proxy_cache_background_update on;";
        let weir = cached(driver, &origin, updates);
        wait_for("updates of all slices", || {
            assert_eq!(weir.get("/").text(), text(25));
            let ranges = ranges.lock().expect("not poisoned");
            let all = ["bytes=0-9", "bytes=10-19", "bytes=20-29"];
            let count = |range| ranges.iter().filter(|r| r.as_deref() == Some(range)).count();
            assert!(ranges.iter().all(|r| r.as_deref().is_some_and(|r| all.contains(&r))));
            all.iter().all(|range| count(range) >= 2).then_some(())
        });
        wait_for("a new slice", || (weir.get("/").header("X-Cache") == Some("HIT")).then_some(()));
    });
}

#[test]
fn a_changed_file_costs_one_download() {
    each_driver(|driver| {
        let (old, new) = (text(35), text(35).to_uppercase());
        let has_changed = Arc::new(AtomicBool::new(false));
        let (changed, before, after) = (has_changed.clone(), old.clone(), new.clone());
        let origin = Origin::start(move |asked| match changed.load(Ordering::Relaxed) {
            false => part(asked, &before, "a", 60),
            true => part(asked, &after, "b", 60),
        });
        let weir = cached(driver, &origin, "");
        let first = weir.request("GET", "/", "Range: bytes=0-19\r\n");
        assert_eq!(first.text(), old[..20]);
        wait_for("the files", || (weir.cached_files("cache").len() == 2).then_some(()));
        has_changed.store(true, Ordering::Relaxed);
        let cut = weir.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let cut = String::from_utf8_lossy(&cut).into_owned();
        assert!(cut.starts_with("HTTP/1.1 200") && !cut.ends_with(&new) && !cut.ends_with(&old));
        weir.wait_for_log("error.log", "etag mismatch in slice response");
        // The second slice is the old one still, and is fetched again.
        wait_for("the new file", || {
            let got = weir.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            String::from_utf8_lossy(&got).ends_with(&new).then_some(())
        });
        assert_eq!(weir.get("/").text(), new);
    });
}
