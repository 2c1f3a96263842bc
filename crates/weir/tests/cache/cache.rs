//! Responses that are kept.

use std::fs::{File, FileTimes};
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use crate::origin::{Answer, Asked, Origin, ask, body_of, pair};
use testkit::{Driver, Site, Weir, built_binary, each_driver, wait_for, wait_until};

/// A server with a cache in front of an origin.
fn site(driver: Driver, origin: &Origin, main: &str, path: &str, locations: &str) -> Site {
    let text = format!(
        "proxy_cache_path cache levels=1:2 keys_zone=one:1m {path};
         proxy_cache_key $uri;
         add_header X-Cache $upstream_cache_status;
         server {{ listen 127.0.0.1:%PORT0%; proxy_cache one; {locations}
             location = /counters {{ stub_status json; }}
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

/// Responses that all caches have kept so far. Each is counted when its file has its place, as the
/// last step of its fetch.
fn fills(weir: &Weir) -> usize {
    let status = weir.get("/counters").text();
    let counts = status.split("\"fills\":").skip(1);
    counts.map(|rest| rest.split(',').next().unwrap().parse::<usize>().unwrap()).sum()
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
             location /off { proxy_pass http://%UP%; proxy_cache off; }
             location = /status { stub_status json; }",
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
        let status = weir.get("/status").text();
        assert!(status.contains("\"zone\":\"one\",\"entries\":"), "{status}");
        assert!(status.contains("\"bypass\":1,") && status.contains("\"faults\":0,"), "{status}");
    });
}

#[test]
fn large_bodies_slow_clients_and_clients_that_go() {
    each_driver(|driver| {
        let body = body_of(3_000_000);
        let origin = Origin::of_body(&body, |asked, answer| {
            answer.pieces = 20;
            answer.pause = Duration::from_millis(5);
            answer.chunked = asked.target.ends_with("chunked");
            answer.short = if asked.target.ends_with("short") { 1000 } else { 0 };
        });
        let weir = start(driver, &origin, "use_temp_path=off", "");
        for path in ["/a", "/chunked"] {
            let first = weir.get(path);
            assert!(first.body == body, "{path}");
            // The client has all of it a moment before the cache has.
            wait_for("the response to be kept", || {
                let next = weir.get(path);
                assert!(next.body == body, "{path}");
                (next.header("X-Cache") == Some("HIT")).then_some(())
            });
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
        // A response that breaks off is not kept.
        let short = weir.raw("GET /short HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(short.len() < body.len());
        weir.raw("GET /short HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(origin.count("/short"), 2);
        wait_for("temporary files to go", || {
            let files = weir.cached_files("cache");
            (files.len() == 3).then_some(())
        });
    });
}

/// With fields of `proxy_set_header` that pass a client's own condition or range on, as
/// configurations do that know nothing of caches.
#[test]
fn answers_to_a_client_s_own_condition_are_not_stored() {
    each_driver(|driver| {
        let origin = Origin::start(|asked| {
            let mut answer = numbered(asked);
            answer.fields = "ETag: \"new\"\r\nX-Accel-Expires: 60\r\n".to_owned();
            if asked.target == "/renewed" && asked.count == 1 {
                answer.fields = "ETag: \"old\"\r\nCache-Control: max-age=1\r\n".to_owned();
            }
            if asked.field("If-None-Match") == Some("\"new\"") {
                answer.status = 304;
            } else if asked.field("If-Match").is_some() {
                answer.status = 412;
            } else if let Some(range) = asked.field("Range") {
                (answer.status, answer.body) = match range {
                    "bytes=1-2" => (206, b"ET".to_vec()),
                    _ => (416, Vec::new()),
                };
                answer.fields += "Content-Range: bytes 1-2/5\r\n";
            }
            answer
        });
        let passes = "proxy_cache_valid any 1h; proxy_cache_revalidate on;
            proxy_set_header If-None-Match $http_if_none_match;
            proxy_set_header If-Match $http_if_match;
            proxy_set_header Range $http_range;
            location /named { proxy_pass http://%UP%; proxy_cache_key $uri$http_range; }
            location /caught { proxy_pass http://%UP%; proxy_intercept_errors on;
                               error_page 416 /416.html; }
            location /416.html { internal; return 416; }";
        let weir = start(driver, &origin, "", passes);
        for (path, field, status) in [
            ("/tag", "If-None-Match: \"new\"", 304),
            ("/match", "If-Match: \"x\"", 412),
            ("/range", "Range: bytes=1-2", 206),
            ("/beyond", "Range: bytes=7-", 416),
            ("/caught", "Range: bytes=7-", 416),
        ] {
            let field = format!("{field}\r\n");
            assert_eq!(weir.request("GET", path, &field).status, status, "{path}");
            assert_eq!(ask(&weir, path), pair("MISS", "GET 2"), "{path}");
            assert_eq!(ask(&weir, path), pair("HIT", "GET 2"), "{path}");
        }
        // A part that is stored by its own name.
        for cached in ["MISS", "HIT"] {
            let r = weir.request("GET", "/named", "Range: bytes=1-2\r\n");
            assert_eq!((r.status, r.header("X-Cache")), (206, Some(cached)));
        }
        // It confirms the client's version, which is another one than that in the cache.
        assert_eq!(ask(&weir, "/renewed"), pair("MISS", "GET 1"));
        kept(&weir, "cache", 7);
        wait_for("the other version", || {
            let r = weir.request("GET", "/renewed", "If-None-Match: \"new\"\r\n");
            if r.status == 200 {
                assert_eq!((r.header("X-Cache"), r.text().as_str()), (Some("HIT"), "GET 1"));
            }
            (r.status == 304).then_some(())
        });
        let (_, body) = ask(&weir, "/renewed");
        assert_ne!(body, "GET 1");
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
        // Longer than the test's clients wait: a request that is not woken fails.
        let lock = "proxy_cache_lock on; proxy_cache_lock_timeout 60s; proxy_cache_lock_age 60s;";
        let main = "worker_processes 3;";
        let weir = site(driver, &origin, main, "", lock).start();
        for path in ["/a", "/b", "/c"] {
            std::thread::scope(|scope| {
                let asks: Vec<_> = (0..40).map(|_| scope.spawn(|| ask(&weir, path))).collect();
                for one in asks {
                    assert_eq!(one.join().unwrap().1, "GET 1");
                }
            });
            assert_eq!(origin.count(path), 1, "{path}");
        }
    });
}

#[test]
fn a_crowd_is_answered_by_one_fetch() {
    each_driver(|driver| {
        // Many more than are woken at once, in each of the workers.
        const CROWD: usize = 200;
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let origin = Origin::start(move |asked| {
            let mut answer = numbered(asked);
            answer.chunked = asked.target == "/chunked";
            let _ = gate.lock().unwrap().recv();
            answer
        });
        let locations = "proxy_cache_lock on; proxy_cache_lock_timeout 60s;
                         proxy_cache_lock_age 60s; location = /json { stub_status json; }";
        let weir = site(driver, &origin, "worker_processes 2;", "", locations).start();
        for (path, waits) in [("/whole", CROWD - 1), ("/chunked", 2 * (CROWD - 1))] {
            let mut crowd: Vec<_> = (0..CROWD).map(|_| weir.connect()).collect();
            for conn in &mut crowd {
                conn.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            }
            let text = format!("\"waits\":{waits},");
            wait_for("the crowd", || weir.get("/json").text().contains(&text).then_some(()));
            // Some go, one of them maybe the one for whom it is fetched.
            let mut place = 0;
            crowd.retain(|_| {
                place += 1;
                place % 7 != 1
            });
            go.send(()).unwrap();
            for conn in &mut crowd {
                assert_eq!(conn.response().text(), "GET 1");
            }
            assert_eq!(origin.count(path), 1, "{path}");
        }
    });
}

#[test]
fn faults_fail_no_request() {
    let origin = Origin::start(|asked| Answer::of(format!("{} {}", asked.target, asked.count)));
    let locations = "location /small/ { proxy_pass http://%UP%; proxy_cache small; }";
    let text = "proxy_cache_path small keys_zone=small:8k use_temp_path=off";
    let locations = locations.replace("%UP%", &format!("127.0.0.1:{}", origin.port));
    let weir =
        site(Driver::usual(), &origin, "", &format!("use_temp_path=off; {text}"), &locations)
            .start();
    // A zone of a hundred entries, and three times as many keys.
    for i in 0..300 {
        assert_eq!(weir.get(&format!("/small/{i}")).text(), format!("/small/{i} 1"));
    }
    wait_for("files of evicted entries to go", || {
        (weir.cached_files("small").len() < 150).then_some(())
    });
    // It is stored behind its answer, or not at all while the zone is full.
    wait_until("a response to be kept", || ask(&weir, "/small/299").0 == "HIT");
    // A file that was cut, one that is another's, and one that was changed.
    let damages: [fn(&mut Vec<u8>); 4] = [
        |file| file.truncate(file.len() - 1),
        |file| file.truncate(20),
        |file| *file = b"something else altogether".repeat(20),
        |file| file[120] ^= 1,
    ];
    for (i, damage) in damages.iter().enumerate() {
        let (path, before) = (format!("/torn/{i}"), fills(&weir));
        assert_eq!(ask(&weir, &path), pair("MISS", &format!("{path} 1")));
        let file = wait_for("the file", || {
            let mut files = weir.cached_files("cache");
            // Not one that is still to get its name.
            files.retain(|f| f.rsplit('/').next().is_some_and(|name| name.len() == 32));
            files.into_iter().find(|f| {
                std::fs::read(f).is_ok_and(|b| String::from_utf8_lossy(&b).contains(&path))
            })
        });
        wait_until("the end of the fetch that made it", || fills(&weir) > before);
        let mut bytes = std::fs::read(&file).unwrap();
        damage(&mut bytes);
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(ask(&weir, &path).1, format!("{path} 2"), "damage {i}");
        assert_eq!(ask(&weir, &path), pair("HIT", &format!("{path} 2")), "damage {i}");
    }
    weir.wait_for_log("error.log", "discarded");
    // The file is gone with its folder, then all of the cache is, for good.
    ask(&weir, "/gone");
    let in_its_place = || {
        wait_for("the file", || {
            let mut files = weir.files_below("cache");
            files.retain(|f| f.rsplit('/').next().is_some_and(|name| name.len() == 32));
            let of_gone = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).contains("/gone");
            files.iter().any(|f| std::fs::read(f).is_ok_and(of_gone)).then_some(())
        });
    };
    in_its_place();
    for folder in std::fs::read_dir(weir.prefix().join("cache")).unwrap() {
        std::fs::remove_dir_all(folder.unwrap().path()).unwrap();
    }
    assert_eq!(ask(&weir, "/gone"), pair("MISS", "/gone 2"));
    assert_eq!(ask(&weir, "/gone"), pair("HIT", "/gone 2"));
    in_its_place();
    std::fs::remove_dir_all(weir.prefix().join("cache")).unwrap();
    std::fs::write(weir.prefix().join("cache"), b"no folder").unwrap();
    // The file system is asked once a millisecond for a file.
    std::thread::sleep(Duration::from_millis(5));
    for _ in 3..6 {
        let response = weir.get("/gone");
        assert_eq!((response.status, &response.text()[..6]), (200, "/gone "));
    }
    // The index has a line of its own.
    let of_files = |l: &&str| l.contains("Not a directory") && !l.contains("the index");
    wait_for("word of it", || weir.log("error.log").lines().find(of_files).is_some().then_some(()));
    let log = weir.stop_and_read("error.log");
    assert_eq!(log.lines().filter(of_files).count(), 1, "{log}");
}

/// The test's clients wait for less than `proxy_read_timeout`.
#[test]
fn one_asks_an_upstream_that_fails() {
    each_driver(|driver| {
        let (answer_again, gate) = std::sync::mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let origin = Origin::start(move |asked| {
            let mut answer = Answer::of(format!("{} {}", asked.target, asked.count));
            match asked.target.as_str() {
                "/short" if asked.count > 1 => answer.status = 503,
                "/long" => gate.lock().unwrap().recv().unwrap_or_default(),
                _ => answer.fields = "Cache-Control: max-age=1\r\n".to_owned(),
            }
            answer
        });
        let locations = "proxy_cache_key same; proxy_cache_use_stale error http_503;
                         proxy_read_timeout 90s;
                         location /never { proxy_pass http://%UP%; proxy_cache_use_stale off; }";
        let locations = locations.replace("%UP%", &format!("127.0.0.1:{}", origin.port));
        let weir = site(driver, &origin, "worker_processes 2;", "", &locations).start();
        assert_eq!(ask(&weir, "/short"), pair("MISS", "/short 1"));
        kept(&weir, "cache", 1);
        let stale = pair("STALE", "/short 1");
        wait_for("a failure", || (ask(&weir, "/short") == stale).then_some(()));
        let mut one = weir.connect();
        one.send("GET /long HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_for("a request that waits", || (origin.count("/long") == 1).then_some(()));
        for _ in 0..10 {
            assert_eq!(ask(&weir, "/long"), stale);
        }
        assert_eq!(origin.count("/long"), 1);
        assert_eq!(weir.get("/never").text(), "/never 1");
        answer_again.send(()).unwrap();
        assert_eq!(one.response().text(), "/long 1");
        wait_for("the response", || (ask(&weir, "/short") == pair("HIT", "/long 1")).then_some(()));
    });
}

#[test]
fn stale_ones_are_served_and_fetched_anew() {
    each_driver(|driver| {
        let origin = Origin::start(|asked| {
            let mut answer = numbered(asked);
            let known = asked.field("If-None-Match") == Some("\"e\"");
            answer.fields = "Cache-Control: max-age=1\r\nETag: \"e\"\r\n".to_owned();
            match asked.target.as_str() {
                "/again" if known => answer.status = 304,
                "/down" if asked.count > 1 => answer.status = 503,
                "/dead" if asked.count > 1 => answer.short = answer.body.len(),
                "/behind" if asked.count > 1 => answer.delay = Duration::from_millis(200),
                _ => {}
            }
            answer
        });
        let weir = start(
            driver,
            &origin,
            "",
            "proxy_cache_use_stale error timeout http_503;
             location /again { proxy_pass http://%UP%; proxy_cache_revalidate on; }
             location /behind { proxy_pass http://%UP%; proxy_cache_use_stale updating;
                                proxy_cache_background_update on; }",
        );
        for path in ["/again", "/down", "/behind", "/plain"] {
            assert_eq!(ask(&weir, path), pair("MISS", "GET 1"), "{path}");
        }
        std::thread::sleep(Duration::from_millis(2100));
        assert_eq!(ask(&weir, "/again"), pair("REVALIDATED", "GET 1"));
        assert_eq!(ask(&weir, "/again"), pair("HIT", "GET 1"));
        assert_eq!(ask(&weir, "/down"), pair("STALE", "GET 1"));
        assert_eq!(ask(&weir, "/plain"), pair("EXPIRED", "GET 2"));
        assert_eq!(ask(&weir, "/behind"), pair("STALE", "GET 1"));
        assert_eq!(ask(&weir, "/behind"), pair("UPDATING", "GET 1"));
        wait_for("the update", || (ask(&weir, "/behind") == pair("HIT", "GET 2")).then_some(()));
        assert_eq!(origin.count("/behind"), 2);
    });
}

#[test]
fn variants_by_vary() {
    let origin = Origin::start(|asked| {
        let language = asked.field("Accept-Language").unwrap_or("none");
        let mut answer = Answer::of(format!("{language} {}", asked.count));
        answer.fields += "Vary: Accept-Language\r\n";
        answer
    });
    let weir = start(Driver::usual(), &origin, "", "");
    let ask = |language: &str| {
        let response = weir.request("GET", "/", &format!("Accept-Language: {language}\r\n"));
        (response.header("X-Cache").unwrap().to_owned(), response.text())
    };
    for _ in 0..2 {
        let status = if origin.count("/") == 0 { "MISS" } else { "HIT" };
        assert_eq!(ask("de"), pair(status, "de 1"));
        assert_eq!(ask("en"), pair(status, "en 2"));
        assert_eq!(ask("fr"), pair(status, "fr 3"));
    }
}

#[test]
fn a_restart_finds_what_was_kept() {
    let origin = Origin::start(numbered);
    let mut weir = start(Driver::usual(), &origin, "inactive=10m", "");
    for i in 0..50 {
        ask(&weir, &format!("/{i}"));
    }
    kept(&weir, "cache", 50);
    // Left by a process that was killed, and by somebody else.
    weir.write("cache/note.txt", "mine");
    weir.reload();
    weir.restart();
    for i in 0..50 {
        assert_eq!(ask(&weir, &format!("/{i}")), pair("HIT", "GET 1"));
    }
    weir.wait_for_log("error.log", "left alone");
    assert!(weir.prefix().join("cache/note.txt").exists());
}

#[test]
fn limits_are_kept() {
    let origin = Origin::start(|_| Answer::of(vec![b'x'; 100_000]));
    let weir = start(Driver::usual(), &origin, "max_size=1m manager_sleep=10ms", "");
    let size = || {
        let files = weir.cached_files("cache");
        files.iter().filter_map(|f| std::fs::metadata(f).ok()).map(|m| m.len()).sum::<u64>()
    };
    let mut most = 0;
    for i in 0..100 {
        assert_eq!(weir.get(&format!("/{i}")).body.len(), 100_000);
        most = most.max(size());
    }
    // Above the limit by what is left to the manager, and by what is being deleted.
    assert!(most < 3 << 20, "{most}");
}

/// Waits until `n` responses are in files, and answers come from these and from nothing else.
fn kept(weir: &Weir, folder: &str, n: usize) {
    wait_for("the files", || {
        let mut files = weir.cached_files(folder);
        files.retain(|f| f.rsplit('/').next().is_some_and(|name| name.len() == 32));
        (files.len() == n).then_some(())
    });
    wait_until("the ends of the fetches that made them", || fills(weir) >= n);
}

/// The access time would be written to the disk, and reading a file that is in memory would have to
/// wait for that.
#[test]
fn hits_leave_the_access_time_alone() {
    each_driver(|driver| {
        let origin = Origin::start(|asked| match asked.target.as_str() {
            "/large" => Answer::of(vec![b'x'; 300_000]),
            _ => Answer::of("small"),
        });
        let weir = start(driver, &origin, "", "");
        ask(&weir, "/small");
        ask(&weir, "/large");
        kept(&weir, "cache", 2);
        let long_ago = UNIX_EPOCH + Duration::from_secs(1000);
        let files = weir.cached_files("cache");
        for file in &files {
            let file = File::options().write(true).open(file).unwrap();
            file.set_times(FileTimes::new().set_accessed(long_ago)).unwrap();
        }
        assert_eq!(ask(&weir, "/small"), pair("HIT", "small"));
        assert_eq!(ask(&weir, "/large").0, "HIT");
        for file in &files {
            assert_eq!(std::fs::metadata(file).unwrap().accessed().unwrap(), long_ago);
        }
    });
}

#[test]
fn a_worker_s_memory() {
    let origin = Origin::start(numbered);
    let weir = start(
        Driver::usual(),
        &origin,
        "memory=1m; proxy_cache_path asked keys_zone=asked:1m",
        "location /asked { proxy_pass http://%UP%; proxy_cache asked; }",
    );
    for (path, folder) in [("/asked", "asked"), ("/held", "cache")] {
        assert_eq!(ask(&weir, path), pair("MISS", "GET 1"));
        kept(&weir, folder, 1);
        assert_eq!(ask(&weir, path), pair("HIT", "GET 1"));
    }
    for file in weir.cached_files("cache").iter().chain(&weir.cached_files("asked")) {
        std::fs::remove_file(file).unwrap();
    }
    assert_eq!(ask(&weir, "/held"), pair("HIT", "GET 1"));
    assert_eq!(ask(&weir, "/asked"), pair("MISS", "GET 2"));
}

#[test]
fn one_cache_over_three_disks() {
    let origin = Origin::start(|asked| Answer::of(format!("{} {}", asked.target, asked.count)));
    let text = "
        upstream backend { server 127.0.0.1:%UP%; }
        proxy_cache_path disk1 levels=1:2 keys_zone=cache_1:256m max_size=1024G
                         use_temp_path=off;
        proxy_cache_path disk2 levels=1:2 keys_zone=cache_2:256m max_size=1024G
                         use_temp_path=off;
        proxy_cache_path disk3 levels=1:2 keys_zone=cache_3:256m max_size=1024G
                         use_temp_path=off;
        split_clients $request_uri $disk { 33.3% 1; 33.3% 2; * 3; }
        server {
            listen 127.0.0.1:%PORT0%;
            location / {
                proxy_pass http://backend;
                proxy_cache_key $request_uri;
                proxy_cache cache_$disk;
                aio threads=pool_$disk;
                sendfile on;
                add_header X-Cache $upstream_cache_status;
            }
        }";
    let pools: String = (1..=3).map(|n| format!("thread_pool pool_{n} threads=16; ")).collect();
    let text = text.replace("%UP%", &origin.port.to_string());
    let weir = Site::new(built_binary(), Driver::usual())
        .config(&format!("{pools} worker_processes 2; events {{}} http {{ {text} }}"))
        .start();
    for round in ["MISS", "HIT"] {
        for i in 0..60 {
            let path = format!("/{i}");
            assert_eq!(ask(&weir, &path).1, format!("{path} 1"), "{round}");
        }
        // A response may be whole before its file is.
        let shares = wait_for("all files", || {
            let shares = [1, 2, 3].map(|disk| weir.cached_files(&format!("disk{disk}")).len());
            (shares.iter().sum::<usize>() == 60).then_some(shares)
        });
        assert!(shares.iter().all(|files| (8..=35).contains(files)), "{shares:?}");
    }
    assert_eq!(ask(&weir, "/59").0, "HIT");
}
