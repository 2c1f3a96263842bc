//! Caches that keep to RFC 9111.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::origin::{Answer, Asked, Origin, body_of};
use testkit::{Driver, Response, Site, Weir, built_binary, each_driver, listener, wait_for};

fn start(driver: Driver, origin: &Origin, locations: &str) -> Weir {
    let text = format!(
        "proxy_cache_path cache levels=1:2 keys_zone=one:1m;
         add_header X-Cache $upstream_cache_status; add_header X-Age $upstream_cache_age;
         server {{ listen 127.0.0.1:%PORT0%;
             proxy_cache one; proxy_cache_rfc9111 on; {locations}
             location / {{ proxy_pass http://127.0.0.1:{}; }} }}",
        origin.port
    );
    let text = text.replace("%UP%", &format!("127.0.0.1:{}", origin.port));
    Site::new(built_binary(), driver).http(&text).start()
}

fn seen(response: &Response) -> (&str, String) {
    (response.header("X-Cache").unwrap_or("-"), response.text())
}

fn ask(weir: &Weir, path: &str, fields: &str) -> Response {
    weir.request("GET", path, fields)
}

/// Repeats a request until it is a hit: the file is in place a moment after the response.
fn hit(weir: &Weir, path: &str) -> Response {
    wait_for(path, || Some(ask(weir, path, "")).filter(|r| r.header("X-Cache") == Some("HIT")))
}

fn answer(asked: &Asked, fields: &str) -> Answer {
    let fields = fields.replace('|', "\r\n") + "\r\n";
    Answer { fields, body: format!("{} {}", asked.method, asked.count).into(), ..Answer::default() }
}

fn age(response: &Response) -> Option<u64> {
    response.header("Age").map(|age| age.parse().unwrap())
}

/// The fields of each target's response.
fn fields_of(target: &str) -> &'static str {
    match target {
        "/aged" => "Cache-Control: max-age=60|Age: 7|Connection: X-Hop|X-Hop: 1|X-Own: 2",
        "/fields" => {
            "Cache-Control: max-age=60, no-cache=\"Set-Cookie\", private=\"X-P\"|\
                      Set-Cookie: a=b|X-P: 1|X-Own: 2"
        }
        "/tagged" => {
            "Cache-Control: max-age=60|ETag: \"t\"|Last-Modified: Fri, 02 Jan 1970 00:00:00 GMT"
        }
        "/dated" => "Cache-Control: max-age=60|Date: Thu, 01 Jan 2099 00:00:00 GMT",
        "/cdn" => "CDN-Cache-Control: max-age=60|Cache-Control: no-store",
        "/understood" => "Cache-Control: must-understand, no-store, max-age=60",
        "/supposed" => "Last-Modified: Thu, 01 Jan 2015 00:00:00 GMT",
        "/open" => "Cache-Control: max-age=60, public",
        "/vary" => "Cache-Control: max-age=60|Vary: Accept|Vary: X-A",
        "/star" => "Cache-Control: max-age=60|Vary: X-A, *",
        "/part" => "Cache-Control: max-age=60|Content-Range: bytes 0-4/9",
        _ => "Cache-Control: max-age=60",
    }
}

#[test]
fn what_is_kept_and_with_which_fields() {
    each_driver(|driver| {
        let origin = Origin::start(|asked| {
            let mut answer = answer(asked, fields_of(&asked.target));
            if asked.target == "/part" {
                answer.status = 206;
            }
            answer
        });
        let weir = start(driver, &origin, "");
        let first = ask(&weir, "/aged", "");
        assert_eq!(seen(&first), ("MISS", "GET 1".to_owned()));
        assert_eq!((first.header("X-Hop"), first.header("X-Own")), (None, Some("2")));
        let date = first.header("Date").map(str::to_owned);
        let second = hit(&weir, "/aged");
        assert!(age(&second).is_some_and(|age| (7..12).contains(&age)), "{:?}", age(&second));
        assert_eq!((second.header("X-Hop"), second.header("X-Own")), (None, Some("2")));
        assert!(date.is_some() && second.header("Date").is_some());
        // Of conditions, tags go before dates.
        let since = "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
        ask(&weir, "/tagged", "");
        let asked = format!("If-None-Match: \"t\"\r\n{since}");
        assert_eq!(ask(&weir, "/tagged", &asked).status, 304);
        let asked = format!("If-None-Match: \"u\"\r\n{since}");
        assert_eq!(ask(&weir, "/tagged", &asked).status, 200);
        // The date stays the origin's.
        ask(&weir, "/dated", "");
        let dated = hit(&weir, "/dated");
        assert_eq!(dated.header("Date"), Some("Thu, 01 Jan 2099 00:00:00 GMT"));
        // The whole is kept, and parts are taken from it.
        let part = ask(&weir, "/aged", "Range: bytes=0-2\r\n");
        assert_eq!((part.status, part.text()), (206, "GET".to_owned()));
        ask(&weir, "/fields", "");
        let second = hit(&weir, "/fields");
        assert_eq!((second.header("Set-Cookie"), second.header("X-P")), (None, None));
        assert_eq!(second.header("X-Own"), Some("2"));
        for path in ["/cdn", "/understood", "/supposed"] {
            ask(&weir, path, "");
            hit(&weir, path);
            assert_eq!(origin.count(path), 1, "{path}");
        }
        for path in ["/star", "/part"] {
            assert_eq!(seen(&ask(&weir, path, "")).0, "MISS");
            assert_eq!(seen(&ask(&weir, path, "")), ("MISS", "GET 2".to_owned()), "{path}");
        }
        let key = "Authorization: Basic eDp5\r\n";
        for n in 1..3 {
            assert_eq!(seen(&ask(&weir, "/closed", key)), ("MISS", format!("GET {n}")));
        }
        ask(&weir, "/open", key);
        hit(&weir, "/open");
        for n in 1..3 {
            let response = ask(&weir, "/unkept", "Cache-Control: no-store\r\n");
            assert_eq!(seen(&response), ("MISS", format!("GET {n}")));
        }
        // Variants: fields of equal meaning select the same one.
        let vary = |accept: &str, a: &str| {
            ask(&weir, "/vary", &format!("Accept: {accept}\r\nX-A: {a}\r\n")).text()
        };
        assert_eq!(vary("a/b, c/d", "1"), "GET 1");
        assert_eq!(vary("a/b, c/d", "2"), "GET 2");
        wait_for("both", || (vary("A/B,c/d", "1") == "GET 1").then_some(()));
        wait_for("both", || (vary("a/b ,C/D", "2") == "GET 2").then_some(()));
    });
}

#[test]
fn wishes_of_clients() {
    each_driver(|driver| {
        let origin = Origin::start(|asked| {
            let mut answer = answer(asked, "Cache-Control: max-age=60|Age: 30|ETag: \"e\"");
            if asked.target == "/old" {
                answer.fields = "Cache-Control: max-age=30\r\nAge: 40\r\nETag: \"e\"\r\n".into();
            }
            if asked.target == "/same" && asked.field("If-None-Match") == Some("\"e\"") {
                answer.status = 304;
            }
            answer
        });
        let weir = start(driver, &origin, "");
        let asks = |path: &str, wish: &str| {
            let response = ask(&weir, path, &format!("Cache-Control: {wish}\r\n"));
            (response.status, response.header("X-Cache").unwrap_or("-").to_owned())
        };
        assert_eq!(asks("/none", "only-if-cached").0, 504);
        assert_eq!(origin.count("/none"), 0);
        ask(&weir, "/a", "");
        hit(&weir, "/a");
        for (wish, status) in [
            ("max-age=50", "HIT"),
            ("min-fresh=10", "HIT"),
            ("only-if-cached", "HIT"),
            ("max-age=20", "EXPIRED"),
            ("min-fresh=40", "EXPIRED"),
            ("no-cache", "EXPIRED"),
        ] {
            assert_eq!(asks("/a", wish), (200, status.to_owned()), "{wish}");
        }
        assert_eq!(asks("/a", "max-age=1, only-if-cached").0, 504);
        let response = ask(&weir, "/a", "Pragma: no-cache\r\n");
        assert_eq!(response.header("X-Cache"), Some("EXPIRED"));
        ask(&weir, "/old", "");
        wait_for("the file", || (asks("/old", "max-stale").1 == "STALE").then_some(()));
        assert_eq!(asks("/old", "max-stale=60").1, "STALE");
        assert_eq!(asks("/old", "max-stale=1").1, "EXPIRED");
        ask(&weir, "/same", "");
        hit(&weir, "/same");
        assert_eq!(asks("/same", "no-cache"), (200, "REVALIDATED".to_owned()));
        assert_eq!(origin.count("/same"), 2);
    });
}

#[test]
fn a_304_updates_what_is_kept() {
    each_driver(|driver| {
        let body = body_of(300_000);
        let origin = Origin::of_body(&body, |asked, answer| {
            let known = asked.field("If-None-Match") == Some("\"e\"");
            // The second head fits into the place of the first, the third does not.
            let more = "y".repeat(if asked.count > 2 { 3000 } else { asked.count });
            answer.fields = format!(
                "Cache-Control: max-age={}\r\nETag: \"e\"\r\nX-Count: {}\r\nX-More: {more}\r\n",
                if asked.count < 3 { 0 } else { 60 },
                asked.count
            );
            answer.status = if known { 304 } else { 200 };
        });
        let weir = start(driver, &origin, "");
        assert_eq!(ask(&weir, "/", "").header("X-Cache"), Some("MISS"));
        wait_for("the file", || (weir.cached_files("cache").len() == 1).then_some(()));
        wait_for("the first update", || {
            let response = ask(&weir, "/", "");
            assert!(response.body == body);
            let count = response.header("X-Count").map(str::to_owned);
            (response.header("X-Cache") == Some("REVALIDATED")).then_some(count)
        });
        wait_for("a long life", || {
            let response = ask(&weir, "/", "");
            assert!(response.body == body);
            (response.header("X-Cache") == Some("HIT")).then_some(())
        });
        let response = hit(&weir, "/");
        let count = origin.count("/");
        assert!(count >= 3);
        assert_eq!(response.header("X-Count").map(str::to_owned), Some(count.to_string()));
        assert_eq!(response.header("X-More").map(str::len), Some(3000));
        assert_eq!(response.header("Content-Length"), Some("300000"));
        // As it stands in the file.
        let weir = {
            let mut weir = weir;
            weir.restart();
            weir
        };
        let response = hit(&weir, "/");
        assert!(response.body == body && response.header("X-More").map(str::len) == Some(3000));
        assert_eq!(origin.count("/"), count);
    });
}

#[test]
fn unsafe_methods_invalidate() {
    each_driver(|driver| {
        let origin = Origin::start(|asked| {
            let mut answer = answer(asked, "Cache-Control: max-age=60|Vary: X-A");
            if asked.method == "POST" {
                answer.fields = "Location: /made?x=1\r\nContent-Location: changed\r\n".to_owned();
                answer.status = if asked.target.contains("fails") { 403 } else { 201 };
            }
            answer
        });
        let named = "location /named/ { proxy_cache_key $request_method$request_uri;
                                        proxy_pass http://%UP%; }";
        let weir = start(driver, &origin, named);
        let count = |path: &str| origin.count(path);
        for path in ["/fails", "/made?x=1", "/changed", "/x", "/named/a"] {
            ask(&weir, path, "");
            hit(&weir, path);
        }
        // Another variant of one of them.
        let other = || ask(&weir, "/x", "X-A: 1\r\n");
        other();
        wait_for("the variant", || (seen(&other()).0 == "HIT").then_some(()));
        assert_eq!(weir.request("POST", "/fails", "").status, 403);
        assert_eq!(seen(&ask(&weir, "/fails", "")), ("HIT", "GET 1".to_owned()));
        assert_eq!(weir.request("OPTIONS", "/x", "").status, 200);
        assert_eq!(seen(&ask(&weir, "/x", "")).0, "HIT");
        assert_eq!(weir.request("POST", "/x", "").status, 201);
        for path in ["/made?x=1", "/changed", "/x"] {
            let asked = count(path);
            assert_eq!(seen(&ask(&weir, path, "")), ("MISS", format!("GET {}", asked + 1)));
        }
        let asked = count("/x");
        assert_eq!(seen(&other()), ("MISS", format!("GET {}", asked + 1)));
        assert_eq!(weir.request("DELETE", "/named/a", "").status, 200);
        assert_eq!(seen(&ask(&weir, "/named/a", "")).0, "MISS");
        // A missing entry is no reason to fail.
        assert_eq!(weir.request("PUT", "/nothing", "").status, 200);
    });
}

#[test]
fn stale_ones_by_rfc_5861() {
    each_driver(|driver| {
        let down = Arc::new(AtomicBool::new(false));
        let fails = down.clone();
        let origin = Origin::start(move |asked| {
            let mut answer = answer(
                asked,
                match asked.target.as_str() {
                    "/while" => "Cache-Control: max-age=1, stale-while-revalidate=60",
                    "/error" => "Cache-Control: max-age=1, stale-if-error=60",
                    "/strict" => "Cache-Control: max-age=1, must-revalidate, stale-if-error=60",
                    _ => "Cache-Control: max-age=1",
                },
            );
            if fails.load(Ordering::Relaxed) {
                answer.status = 503;
                answer.fields.clear();
            } else if asked.target == "/while" && asked.count > 1 {
                answer.delay = Duration::from_millis(300);
                answer.fields = "Cache-Control: max-age=60\r\n".to_owned();
            }
            answer
        });
        let locations = "location /strict { proxy_cache_use_stale http_503 error;
                                            proxy_pass http://%UP%; }";
        let weir = start(driver, &origin, locations);
        let paths = ["/while", "/error", "/strict", "/plain"];
        for path in paths {
            assert_eq!(seen(&ask(&weir, path, "")).1, "GET 1");
        }
        wait_for("the files", || (weir.cached_files("cache").len() == 4).then_some(()));
        std::thread::sleep(Duration::from_millis(2100));
        // Fetched behind the client's back, though that is not configured.
        assert_eq!(seen(&ask(&weir, "/while", "")), ("STALE", "GET 1".to_owned()));
        assert_eq!(seen(&hit(&weir, "/while")).1, "GET 2");
        down.store(true, Ordering::Relaxed);
        let old = ask(&weir, "/error", "");
        assert_eq!((old.status, seen(&old)), (200, ("STALE", "GET 1".to_owned())));
        assert!(age(&old).is_some_and(|age| age >= 2));
        assert_eq!(ask(&weir, "/strict", "").status, 503);
        assert_eq!(ask(&weir, "/plain", "").status, 503);
        let wish = "Cache-Control: stale-if-error=60\r\n";
        assert_eq!(ask(&weir, "/plain", wish).status, 200);
        assert_eq!(ask(&weir, "/strict", wish).status, 503);
    });
}

#[test]
fn a_head_updates_or_ends_what_is_kept() {
    each_driver(|driver| {
        let origin = Origin::start(|asked| {
            let mut answer = answer(asked, "Cache-Control: max-age=1|ETag: \"e\"");
            if asked.method == "HEAD" {
                let changed = asked.target == "/changed";
                answer.fields = "Cache-Control: max-age=60\r\n".to_owned();
                answer.fields += if changed { "ETag: \"f\"\r\n" } else { "ETag: \"e\"\r\n" };
                answer.body = b"GET 1".to_vec();
            }
            answer
        });
        let weir = start(
            driver,
            &origin,
            "proxy_cache_convert_head off;
                                           proxy_cache_revalidate off;",
        );
        for path in ["/same", "/changed"] {
            assert_eq!(seen(&ask(&weir, path, "")).1, "GET 1");
        }
        wait_for("the files", || (weir.cached_files("cache").len() == 2).then_some(()));
        // A HEAD is answered from the entry of a GET.
        assert_eq!(weir.request("HEAD", "/none", "").header("X-Cache"), Some("MISS"));
        assert_eq!(weir.request("HEAD", "/none", "").header("X-Cache"), Some("MISS"));
        std::thread::sleep(Duration::from_millis(2100));
        for path in ["/same", "/changed"] {
            assert_eq!(weir.request("HEAD", path, "").header("X-Cache"), Some("EXPIRED"));
        }
        // It is up to date a moment after the HEAD was answered.
        let kept = wait_for("the update", || {
            let response = ask(&weir, "/same", "Cache-Control: only-if-cached\r\n");
            (response.status == 200).then(|| response.text())
        });
        assert_eq!(kept, "GET 1");
        assert_eq!(weir.request("HEAD", "/same", "").header("X-Cache"), Some("HIT"));
        wait_for("its file to go", || (weir.cached_files("cache").len() == 1).then_some(()));
        assert_eq!(seen(&ask(&weir, "/changed", "")).0, "MISS");
    });
}

#[test]
fn what_was_kept_by_other_rules_is_asked_for_again() {
    let origin = Origin::start(|asked| answer(asked, "Cache-Control: max-age=60|Age: 50"));
    let weir = start(
        Driver::usual(),
        &origin,
        "proxy_cache_key same;
         location /plain { proxy_cache_rfc9111 off; proxy_pass http://%UP%; }",
    );
    assert_eq!(seen(&ask(&weir, "/plain", "")).0, "MISS");
    let plain = hit(&weir, "/plain");
    assert_eq!(age(&plain), Some(50), "as it came");
    let shown = plain.header("X-Age").map(|age| age.parse::<u64>().unwrap());
    assert!(shown.is_some_and(|age| age >= 50), "{shown:?}");
    assert_eq!(seen(&ask(&weir, "/rfc", "")), ("EXPIRED", "GET 1".to_owned()));
    let kept = hit(&weir, "/rfc");
    assert!(age(&kept).is_some_and(|age| age >= 50));
    assert_eq!(weir.request("POST", "/plain", "").status, 200);
    assert_eq!(seen(&ask(&weir, "/plain", "")).0, "HIT");
}

/// A FastCGI responder, uwsgi and SCGI server in one: each answer is of a connection of its own.
fn gateway() -> u16 {
    use std::io::{Read, Write};
    let (listener, port) = listener();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut asked) = (stream.unwrap(), [0; 65536]);
            let len = stream.read(&mut asked).unwrap();
            let text = b"Status: 200\r\nCache-Control: max-age=60\r\nAge: 9\r\n\r\nbody";
            let out = match asked[0] {
                _ if len == 0 => continue,
                1 => {
                    let head = [1, 6, 0, 1, 0, text.len() as u8, 0, 0];
                    [&head[..], text, &[1, 3, 0, 1, 0, 8, 0, 0], &[0; 8]].concat()
                }
                _ => text.to_vec(),
            };
            let _ = stream.write_all(&out);
        }
    });
    port
}

#[test]
fn gateways_as_well() {
    let up = gateway();
    let of = |name: &str| {
        format!(
            "location /{name} {{ {name}_pass 127.0.0.1:{up}; {name}_param A b; {name}_cache {name};
                 {name}_cache_key $request_uri; {name}_cache_rfc9111 on; }}"
        )
    };
    let names = ["fastcgi", "uwsgi", "scgi"];
    let paths: String =
        names.iter().map(|name| format!("{name}_cache_path {name} keys_zone={name}:1m;")).collect();
    let text = format!(
        "{paths} add_header X-Cache $upstream_cache_status;
         server {{ listen 127.0.0.1:%PORT0%; {} }}",
        names.map(of).concat()
    );
    let weir = Site::new(built_binary(), Driver::usual()).http(&text).start();
    for name in names {
        let path = format!("/{name}");
        assert_eq!(seen(&ask(&weir, &path, "")), ("MISS", "body".to_owned()), "{name}");
        assert!(age(&hit(&weir, &path)).is_some_and(|age| age >= 9), "{name}");
        assert_eq!(weir.request("PUT", &path, "").status, 200, "{name}");
        assert_eq!(seen(&ask(&weir, &path, "")).0, "MISS", "{name}");
    }
}

#[test]
fn slices_are_parts_that_are_kept() {
    let body: Vec<u8> = (0..5000_u32).map(|i| (i / 3 % 251) as u8).collect();
    let of_origin = body.clone();
    let origin = Origin::start(move |asked| {
        let range = asked.field("Range").and_then(|r| r.strip_prefix("bytes=")).unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let (from, len) = (from.parse::<usize>().unwrap(), of_origin.len());
        let to = to.parse::<usize>().unwrap().min(len - 1);
        let fields = format!(
            "Cache-Control: max-age=60\r\nETag: \"e\"\r\nContent-Range: bytes {from}-{to}/{len}\r\n"
        );
        Answer { status: 206, fields, body: of_origin[from..=to].to_vec(), ..Answer::default() }
    });
    let weir = start(
        Driver::usual(),
        &origin,
        "location /s { slice 1k; proxy_cache_key $uri$slice_range; proxy_pass http://%UP%;
                       proxy_set_header Range $slice_range; }",
    );
    for _ in 0..3 {
        let response = ask(&weir, "/s", "");
        assert!(response.status == 200 && response.body == body, "{}", response.status);
    }
    assert_eq!(origin.count("/s"), 5);
    let part = ask(&weir, "/s", "Range: bytes=1000-2999\r\n");
    assert!(part.status == 206 && part.body == body[1000..3000]);
    assert_eq!(origin.count("/s"), 5);
}
