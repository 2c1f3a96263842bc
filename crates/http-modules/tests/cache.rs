//! Responses that are kept.

#![allow(clippy::unwrap_used)]

mod origin;

use std::time::{Duration, Instant};

use origin::{Answer, Asked, Origin};
use testkit::{Driver, Site, Weir, built_binary, each_driver, wait_for};

/// A server with a cache in front of an origin.
fn site(driver: Driver, origin: &Origin, main: &str, path: &str, locations: &str) -> Site {
    let text = format!(
        "proxy_cache_path cache levels=1:2 keys_zone=one:1m {path};
         proxy_cache_key $uri;
         add_header X-Cache $upstream_cache_status;
         server {{ listen 127.0.0.1:%PORT0%; proxy_cache one; {locations}
             location / {{ proxy_pass http://127.0.0.1:{}; }} }}",
        origin.port
    );
    let site = Site::new(built_binary(), driver);
    match main {
        "" => site.http(&text),
        main => site.config(&format!("{main} events {{}} http {{ {text} }}")),
    }
}

fn start(driver: Driver, origin: &Origin, path: &str, locations: &str) -> Weir {
    let locations = locations.replace("%UP%", &format!("127.0.0.1:{}", origin.port));
    site(driver, origin, "", path, &locations).start()
}

/// Asks, and gives what the cache said and the body.
fn ask(weir: &Weir, path: &str) -> (String, String) {
    let response = weir.get(path);
    (response.header("X-Cache").unwrap_or("-").to_owned(), response.text())
}

fn pair(status: &str, body: &str) -> (String, String) {
    (status.to_owned(), body.to_owned())
}

fn numbered(asked: &Asked) -> Answer {
    Answer::of(format!("{} {}", asked.method, asked.count))
}

#[test]
fn kept_and_served() {
    each_driver(|driver| {
        let origin = Origin::start(|asked| {
            let mut answer = numbered(asked);
            answer.fields += "ETag: \"tag\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
                              Accept-Ranges: bytes\r\nX-Own: yes\r\n";
            match asked.target.as_str() {
                "/no" => answer.fields = "Cache-Control: no-store\r\n".to_owned(),
                "/cookie" => answer.fields += "Set-Cookie: a=b\r\n",
                "/chunked" => answer.chunked = true,
                "/missing" => answer.status = 404,
                _ => {}
            }
            answer
        });
        let weir = start(
            driver,
            &origin,
            "",
            "location /bypass { proxy_pass http://%UP%; proxy_cache_bypass $arg_by;
                                proxy_no_cache $arg_no; }
             location /twice { proxy_pass http://%UP%; proxy_cache_min_uses 2; }
             location /method { proxy_pass http://%UP%; proxy_cache_convert_head off;
                                proxy_cache_key $request_method$uri; }
             location /off { proxy_pass http://%UP%; proxy_cache off; }",
        );
        assert_eq!(ask(&weir, "/a"), pair("MISS", "GET 1"));
        assert_eq!(ask(&weir, "/a"), pair("HIT", "GET 1"));
        let head = weir.request("HEAD", "/a", "");
        assert_eq!(
            (head.header("X-Cache"), head.header("Content-Length")),
            (Some("HIT"), Some("5"))
        );
        // A HEAD brings the whole.
        assert_eq!(weir.request("HEAD", "/b", "").header("X-Cache"), Some("MISS"));
        assert_eq!(ask(&weir, "/b"), pair("HIT", "GET 1"));
        assert_eq!(ask(&weir, "/chunked"), pair("MISS", "GET 1"));
        assert_eq!(ask(&weir, "/chunked"), pair("HIT", "GET 1"));
        for path in ["/no", "/cookie"] {
            assert_eq!(ask(&weir, path), pair("MISS", "GET 1"), "{path}");
            assert_eq!(ask(&weir, path), pair("MISS", "GET 2"), "{path}");
        }
        assert_eq!(weir.get("/missing").status, 404);
        assert_eq!(weir.get("/missing").header("X-Cache"), None);
        assert_eq!(origin.count("/missing"), 1);
        // Conditions and ranges are ours to answer.
        let response = weir.request("GET", "/a", "If-None-Match: \"tag\"\r\n");
        assert_eq!((response.status, response.header("X-Own")), (304, Some("yes")));
        let response = weir.request("GET", "/a", "Range: bytes=1-2\r\n");
        assert_eq!((response.status, response.text()), (206, "ET".to_owned()));
        let response = weir.request("GET", "/c", "Range: bytes=4-\r\n");
        assert_eq!((response.status, response.text()), (206, "1".to_owned()));
        assert_eq!(ask(&weir, "/c"), pair("HIT", "GET 1"));
        assert_eq!(ask(&weir, "/bypass"), pair("MISS", "GET 1"));
        assert_eq!(ask(&weir, "/bypass?by=1"), pair("BYPASS", "GET 1"));
        assert_eq!(ask(&weir, "/bypass?by=0"), pair("HIT", "GET 1"));
        assert_eq!(ask(&weir, "/bypass/no?no=1"), pair("MISS", "GET 1"));
        assert_eq!(ask(&weir, "/bypass/no"), pair("MISS", "GET 1"));
        for (status, body) in [("MISS", "GET 1"), ("MISS", "GET 2"), ("HIT", "GET 2")] {
            assert_eq!(ask(&weir, "/twice"), pair(status, body));
        }
        assert_eq!(weir.request("HEAD", "/method", "").header("X-Cache"), Some("MISS"));
        assert_eq!(weir.request("HEAD", "/method", "").header("X-Cache"), Some("HIT"));
        assert_eq!(ask(&weir, "/method"), pair("MISS", "GET 2"));
        assert_eq!(ask(&weir, "/off"), pair("-", "GET 1"));
        assert_eq!(weir.request("POST", "/a", "").header("X-Cache"), None);
    });
}

#[test]
fn large_bodies_slow_clients_and_clients_that_go() {
    each_driver(|driver| {
        let body: Vec<u8> = (0..3_000_000_u32).map(|i| (i / 7 % 251) as u8).collect();
        let of_origin = body.clone();
        let origin = Origin::start(move |asked| {
            let mut answer = Answer::of(of_origin.clone());
            answer.pieces = 20;
            answer.pause = Duration::from_millis(5);
            answer.chunked = asked.target.ends_with("chunked");
            answer.short = if asked.target.ends_with("short") { 1000 } else { 0 };
            answer
        });
        let weir = start(driver, &origin, "use_temp_path=off", "");
        for path in ["/a", "/chunked"] {
            let first = weir.get(path);
            assert!(first.body == body, "{path}");
            let second = weir.get(path);
            assert!(second.body == body && second.header("X-Cache") == Some("HIT"), "{path}");
            assert_eq!(origin.count(path), 1);
        }
        // The client goes, and the response is kept all the same.
        let mut gone = weir.connect();
        gone.send(b"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_for("the first request", || (origin.count("/gone") == 1).then_some(()));
        drop(gone);
        wait_for("the whole response", || {
            let response = weir.get("/gone");
            (response.body == body && response.header("X-Cache") == Some("HIT")).then_some(())
        });
        // What breaks off is not kept.
        let short = weir.raw("GET /short HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(short.len() < body.len());
        weir.raw("GET /short HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(origin.count("/short"), 2);
        wait_for("temporary files to go", || (weir.files_below("cache").len() == 3).then_some(()));
    });
}

#[test]
fn one_fetches_and_the_others_wait() {
    each_driver(|driver| {
        let origin = Origin::start(|asked| {
            let mut answer = numbered(asked);
            answer.delay = Duration::from_millis(300);
            answer
        });
        let lock = "proxy_cache_lock on;";
        let main = "worker_processes 3;";
        let weir = site(driver, &origin, main, "", lock).start();
        for path in ["/a", "/b", "/c"] {
            let began = Instant::now();
            std::thread::scope(|scope| {
                let asks: Vec<_> =
                    (0..40).map(|_| scope.spawn(|| (ask(&weir, path), began.elapsed()))).collect();
                for one in asks {
                    let ((_, body), took) = one.join().unwrap();
                    assert_eq!(body, "GET 1");
                    assert!(took < Duration::from_millis(1500), "{took:?}");
                }
            });
            assert_eq!(origin.count(path), 1, "{path}");
        }
    });
}
