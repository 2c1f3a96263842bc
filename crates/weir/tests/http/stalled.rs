//! Files on a stalled disk: only the requests for them wait.
//!
//! The disk is a file system of the test's own (FUSE). Mounting it needs root and `/dev/fuse`;
//! where that is not to be had, the tests say so and pass.

use std::time::Instant;

use crate::disk::{BIG, LARGE, ask, backend, others_are_served, site, told};
use testkit::{on_all_drivers, pattern, wait_until};

/// Locations whose work of every kind is on the disk.
const WORK: &str = "
    client_body_temp_path html/disk/body; proxy_temp_path html/disk/proxy;
    location /dav/ { alias html/disk/; dav_methods PUT DELETE MKCOL COPY MOVE; }
    location /echo { client_body_buffer_size 1k; proxy_pass http://127.0.0.1:%BACK%; }
    location /big { proxy_buffers 2 4k; proxy_buffer_size 4k; proxy_busy_buffers_size 4k;
                    proxy_pass http://127.0.0.1:%BACK%; }
    location /listed/ { alias html/disk/; autoindex on; }
    location /random/ { alias html/disk/; random_index on; }
    location /index/ { alias html/disk/; index nothing.html small2.txt; }
    location /secret { auth_basic x; auth_basic_user_file html/disk/users; return 200 in; }
    location /secrets { auth_basic x; auth_basic_user_file html/disk/many; return 200 in; }
    location /real/ { root html/disk; add_header X-Real $realpath_root; return 200; }
    location /logged { access_log html/disk/access.log; error_log html/disk/errors.log info; }
    location /path { access_log html/disk/by$uri.log; return 200; }
    location /held/ { alias html/disk/; open_file_cache max=9; open_file_cache_errors on; }
    location /links/ { alias html/disk/; disable_symlinks on; }";

#[test]
fn work_of_every_kind_waits_for_its_disk_elsewhere() {
    on_all_drivers(|driver| {
        let http = WORK.replace("%BACK%", &backend().to_string());
        let Some((disk, weir)) = site(driver, FEW, &http) else { return };
        let basic = "Authorization: Basic dTpw\r\n";
        for path in ["/disk/small0.txt", "/secret", "/listed/"] {
            assert!(weir.request("GET", path, basic).status == 200, "{path}");
        }
        let worker = weir.workers()[0];
        let before = weir.open_descriptors(worker);
        disk.stall();
        let to = |name: &str| format!("Destination: /dav/{name}\r\n");
        let body = pattern(50_000, 2);
        let work = [
            ("GET", "/disk/small1.txt", String::new(), "small 1"),
            ("GET", "/held/small3.txt", String::new(), "small 3"),
            ("GET", "/held/none.txt", String::new(), "404"),
            ("GET", "/links/small4.txt", String::new(), "small 4"),
            ("GET", "/index/", String::new(), "small 2"),
            ("GET", "/listed/", String::new(), "large5.bin"),
            // It may choose one that is gone by then.
            ("GET", "/random/", String::new(), "HTTP/1.1 "),
            ("GET", "/secret", basic.to_owned(), "in"),
            ("GET", "/secrets", basic.to_owned(), "in"),
            ("GET", "/real/", String::new(), "html/disk"),
            ("GET", "/logged", String::new(), "404"),
            ("GET", "/path", String::new(), "200"),
            ("PUT", "/dav/new.txt", String::new(), "201"),
            ("DELETE", "/dav/gone.txt", String::new(), "204"),
            ("MKCOL", "/dav/made/", String::new(), "201"),
            ("COPY", "/dav/small5.txt", to("copied.txt"), "204"),
            ("MOVE", "/dav/moving.txt", to("moved.txt"), "204"),
            ("POST", "/echo", String::new(), "got 50000"),
        ];
        let begin = |(method, path, headers, want)| {
            let mut conn = weir.connect();
            let with_body = matches!(method, "PUT" | "POST");
            let len = if with_body { body.len() } else { 0 };
            let length =
                if with_body { format!("Content-Length: {len}\r\n") } else { String::new() };
            conn.send(format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}{length}\r\n"));
            conn.send(&body[..len]);
            (conn, format!("{method} {path}"), want)
        };
        let mut waiting: Vec<_> = work.into_iter().map(begin).collect();
        let mut big = ask(&weir, "/big");
        assert!(big.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 200"));
        wait_until("nothing reached the disk", || disk.waiting() >= 10);
        // The stall lasts until these are answered.
        let begun = Instant::now();
        others_are_served(&weir);
        assert!(told(&weir, &["pools", "default", "running"]) >= 10);
        let stalled_ms = begun.elapsed().as_millis() as u64;
        let longest_ms = told(&weir, &["loop", "longest_turn_ms"]);
        eprintln!("{driver:?}: longest turn {longest_ms} ms, stalled for {stalled_ms} ms");
        // A few milliseconds on a quiet machine; here others may have the processor.
        assert!(longest_ms < stalled_ms, "{longest_ms} ms of {stalled_ms} ms");
        disk.go_on();
        for (conn, what, want) in &mut waiting {
            let answer = conn.response();
            let text = format!("{} {:?} {}", answer.status, answer.header("x-real"), answer.text());
            let text = format!("HTTP/1.1 {text}");
            assert!(text.contains(*want), "{what}: {text}");
        }
        assert!(big.read_exact(BIG) == pattern(BIG, 1));
        wait_until("the log by path", || disk.has("by/path.log") || disk.has("access.log"));
        wait_until("the log", || disk.content("access.log").is_some_and(|text| !text.is_empty()));
        assert_eq!(disk.content("new.txt"), Some(body.clone()));
        assert_eq!(disk.content("copied.txt").unwrap(), b"small 5");
        assert_eq!(disk.content("moved.txt").unwrap(), b"moving");
        assert!(disk.has("made") && !disk.has("gone.txt") && !disk.has("moving.txt"));
        drop((waiting, big));
        wait_until("descriptors are left", || weir.open_descriptors(worker) <= before + 3);
    });
}

const FEW: &str = "thread_pool few threads=2;";

const MODES: &str = "
    location /threads/ { alias html/disk/; aio threads; }
    location /copied/ { alias html/disk/; aio threads=few; sendfile off; }
    location /held/ { alias html/disk/; open_file_cache max=9; }
    location /direct/ { alias html/disk/; directio 1m; }
    location /listed/ { alias html/disk/; autoindex on; }
    location /tried/ { root html/disk; try_files /none.x /none.y /fast.txt; }
    location = /fallback { root html/disk; try_files /small1.txt =404; }";

#[test]
fn a_disk_that_stands_still_holds_up_nobody_else() {
    on_all_drivers(|driver| {
        let Some((disk, weir)) = site(driver, FEW, MODES) else { return };
        for place in ["disk", "threads", "copied", "held", "direct"] {
            assert_eq!(weir.get(&format!("/{place}/small0.txt")).body, b"small 0", "{place}");
            let large = weir.get(&format!("/{place}/large0.bin"));
            assert!(large.body == pattern(LARGE, 0), "{place}");
        }
        let worker = weir.workers()[0];
        let before = weir.open_descriptors(worker);

        disk.stall();
        let mut waiting = Vec::new();
        for place in ["disk", "threads", "copied", "held", "direct"] {
            // Some that were read before, and some that were not.
            for name in ["small0.txt", "large0.bin", "small1.txt", "large1.bin"] {
                waiting.push((ask(&weir, &format!("/{place}/{name}")), name));
            }
        }
        let list = ask(&weir, "/listed/");
        let tried = ask(&weir, "/tried/x");
        let fallback = ask(&weir, "/fallback");
        wait_until("nothing reached the disk", || disk.waiting() >= 5);
        others_are_served(&weir);
        // Some lose patience.
        let gone: Vec<_> = waiting.drain(..5).collect();
        drop(gone);
        others_are_served(&weir);

        disk.go_on();
        for (mut conn, name) in waiting {
            let response = conn.response();
            assert_eq!(response.status, 200, "{name}");
            let n = name.as_bytes()[5] - b'0';
            match name.starts_with("large") {
                true => assert!(response.body == pattern(LARGE, n.into()), "{name}"),
                false => assert_eq!(response.body, format!("small {n}").into_bytes()),
            }
        }
        for (mut conn, text) in [(list, "large5.bin"), (tried, "fast"), (fallback, "small 1")] {
            let response = conn.response();
            assert!(response.text().contains(text), "{}", response.text());
        }
        wait_until("descriptors are left", || weir.open_descriptors(worker) <= before + 2);
    });
}

#[test]
fn a_stall_in_the_middle_of_a_body_is_waited_for() {
    on_all_drivers(|driver| {
        let Some((disk, weir)) = site(driver, FEW, MODES) else { return };
        for path in ["/disk/large2.bin", "/copied/large2.bin", "/direct/large3.bin"] {
            if path.starts_with("/copied") && driver != testkit::Driver::Epoll {
                continue;
            }
            let mut conn = ask(&weir, path);
            let head = conn.read_until(b"\r\n\r\n");
            assert!(head.starts_with(b"HTTP/1.1 200 "));
            let first = conn.read_exact(1000);
            disk.stall();
            others_are_served(&weir);
            disk.go_on();
            let rest = conn.read_exact(LARGE - 1000);
            let seed = usize::from(path.as_bytes()[path.len() - 5] - b'0');
            assert!([first, rest].concat() == pattern(LARGE, seed), "{path}");
        }
    });
}

#[test]
fn a_full_queue_refuses_and_says_so() {
    on_all_drivers(|driver| {
        let pools = "thread_pool tiny threads=1 max_queue=0;\nthread_pool small threads=1;";
        let http = "location /tiny/ { alias html/disk/; aio threads=tiny; }
                    location /small/ { alias html/disk/; aio threads=small; }";
        let Some((disk, weir)) = site(driver, pools, http) else { return };
        disk.stall();
        let mut first = ask(&weir, "/tiny/small1.txt");
        wait_until("nothing reached the disk", || disk.waiting() == 1);
        let refused = weir.get("/tiny/small2.txt");
        assert_eq!(refused.status, 500);
        weir.wait_for_log("error.log", "thread pool \"tiny\" queue overflow: 0 tasks waiting");
        let mut queued: Vec<_> =
            (0..6).map(|i| ask(&weir, &format!("/small/small{i}.txt"))).collect();
        wait_until("the other pool has no thread", || disk.waiting() == 2);
        others_are_served(&weir);
        wait_until("the tasks are counted", || {
            told(&weir, &["pools", "small", "queued"]) == 5
                && told(&weir, &["pools", "small", "running"]) == 1
        });
        assert_eq!(told(&weir, &["pools", "tiny", "refused"]), 1);
        assert_eq!(told(&weir, &["pools", "tiny", "running"]), 1);
        disk.go_on();
        assert_eq!(first.response().body, b"small 1");
        for (i, conn) in queued.iter_mut().enumerate() {
            assert_eq!(conn.response().body, format!("small {i}").into_bytes());
        }
        assert_eq!(weir.get("/tiny/small2.txt").body, b"small 2");
    });
}

#[test]
fn a_disk_that_fails_ends_the_response_and_nothing_else() {
    on_all_drivers(|driver| {
        let Some((disk, weir)) = site(driver, FEW, MODES) else { return };
        let worker = weir.workers()[0];
        assert_eq!(weir.get("/disk/small0.txt").body, b"small 0");
        let before = weir.open_descriptors(worker);
        disk.break_reads(true);
        for path in ["/disk/large4.bin", "/threads/large5.bin"] {
            assert_eq!(ask(&weir, path).response().status, 500);
            let name = path.rsplit('/').next().unwrap_or_default();
            let why = format!("/{name}\" failed (5: Input/output error)");
            weir.wait_for_log("error.log", &why);
        }
        others_are_served(&weir);
        disk.break_reads(false);
        assert!(weir.get("/disk/large4.bin").body == pattern(LARGE, 4));
        wait_until("descriptors are left", || weir.open_descriptors(worker) <= before + 2);
    });
}

#[test]
fn leaving_and_reloading_while_the_disk_stands_still() {
    on_all_drivers(|driver| {
        let Some((disk, mut weir)) = site(driver, FEW, MODES) else { return };
        assert_eq!(weir.get("/disk/small0.txt").body, b"small 0");
        disk.stall();
        let mut before = ask(&weir, "/disk/small1.txt");
        let mut large = ask(&weir, "/disk/large1.bin");
        wait_until("nothing reached the disk", || disk.waiting() >= 2);
        let old = weir.workers();
        weir.reload();
        assert_eq!(weir.get("/fast.txt").body, b"fast");
        assert!(old.iter().all(|pid| weir.processes().contains(pid)), "the old worker waits");
        disk.go_on();
        assert_eq!(before.response().body, b"small 1");
        assert!(large.response().body == pattern(LARGE, 1));
        wait_until("the old worker stays", || {
            !old.iter().any(|pid| weir.processes().contains(pid))
        });
        disk.stall();
        let mut last = ask(&weir, "/disk/small3.txt");
        wait_until("nothing reached the disk", || disk.waiting() >= 1);
        weir.signal("QUIT");
        weir.wait_for_log("error.log", "gracefully shutting down");
        disk.go_on();
        assert_eq!(last.response().body, b"small 3");
        assert!(weir.wait_for_end().success());
    });
}
