//! Disks that fail, and work on them that is cut short: each request gets its status or a closed
//! connection, the others go on, and no descriptor is left. Many of these cases are faults that
//! servers with threads for files have had before.

use std::os::unix::fs::PermissionsExt;

use crate::disk::{BIG, LARGE, ask, backend, others_are_served, site_in, told};
use testkit::{Conn, Driver, StallingFolder, Weir, on_all_drivers, pattern, wait_until};

const PLACES: &str = "
    client_body_temp_path html/disk/body; proxy_temp_path html/disk/proxy; ssi_types text/plain;
    location /dav/ { alias html/disk/; dav_methods PUT DELETE COPY MOVE; }
    location /all/ { alias html/; dav_methods MOVE; }
    location /moved { client_body_buffer_size 1k; error_page 403 = /echo; deny all; }
    location /mirrored { client_body_buffer_size 1k; mirror /copy; proxy_pass http://127.0.0.1:%BACK%; }
    location /copy { internal; proxy_pass http://127.0.0.1:%PORT0%/seen; }
    location /seen { client_body_buffer_size 1k; access_log logs/seen.log;
                     proxy_pass http://127.0.0.1:%BACK%; }
    location /kept { proxy_cache kept; proxy_cache_valid 1h; add_header X-Kept $upstream_cache_status;
                     proxy_pass http://127.0.0.1:%BACK%; }
    location /echo { client_body_buffer_size 1k; client_body_timeout 1s;
                     proxy_pass http://127.0.0.1:%BACK%; }
    location /big { proxy_buffers 2 4k; proxy_buffer_size 4k; proxy_busy_buffers_size 4k;
                    proxy_pass http://127.0.0.1:%BACK%; }
    location /slow { proxy_buffers 2 4k; proxy_buffer_size 4k; proxy_busy_buffers_size 4k;
                     limit_rate 200k; proxy_pass http://127.0.0.1:%BACK%; }
    location /threads/ { alias html/disk/; aio threads; aio_write on; }
    location /limited/ { alias html/disk/; aio threads; sendfile_max_chunk 64k; limit_rate 4m; }
    location /copied/ { alias html/disk/; aio threads; sendfile off; output_buffers 2 64k; }
    location /page { ssi on; default_type text/html; alias html/page.html; }
    location /broken { ssi on; default_type text/html; alias html/broken.html; }
    location /redirected { proxy_pass http://127.0.0.1:%PORT0%/sends; }
    location /sends { add_header X-Accel-Redirect /threads/large3.bin; return 200; }";

fn served(driver: testkit::Driver, pools: &str) -> Option<(StallingFolder, Weir)> {
    // Not on the disk that stalls, where the cache manager would wait as well.
    with_cache(driver, pools, "kept")
}

/// The same with the cache in that folder.
fn with_cache(driver: testkit::Driver, pools: &str, cache: &str) -> Option<(StallingFolder, Weir)> {
    let places = PLACES.replace("%BACK%", &backend().to_string());
    let cache = format!("proxy_cache_path {cache} keys_zone=kept:1m use_temp_path=off;");
    let (folder, weir) = site_in(driver, pools, &cache, &places)?;
    let part = |path: &str| format!("<!--#include virtual=\"{path}\" -->");
    let page = [part("/threads/small1.txt"), part("/limited/large1.bin"), part("/big")].join("|");
    weir.write("html/page.html", format!("{page}|{}", part("/copied/large2.bin")));
    weir.write("html/broken.html", part("/threads/large4.bin"));
    Some((folder, weir))
}

/// The body of `/page`.
fn page() -> Vec<u8> {
    let parts = [b"small 1".to_vec(), pattern(LARGE, 1), pattern(BIG, 1), pattern(LARGE, 2)];
    parts.join(&b'|')
}

fn post(weir: &Weir, method: &str, path: &str, len: usize, body: &[u8]) -> Conn {
    let mut conn = weir.connect();
    conn.send(format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n"));
    conn.send(body);
    conn
}

/// A server whose disk has answered, and the number of its worker's descriptors.
fn sound(driver: Driver) -> Option<(StallingFolder, Weir, usize)> {
    let (disk, weir) = served(driver, "")?;
    assert_eq!(weir.get("/disk/small0.txt").body, b"small 0");
    let before = weir.open_descriptors(weir.workers()[0]);
    Some((disk, weir, before))
}

fn nothing_is_left(weir: &Weir, before: usize) {
    let worker = weir.workers()[0];
    wait_until("descriptors are left", || weir.open_descriptors(worker) <= before + 2);
}

#[test]
fn writes_that_fail_are_told_and_leave_nothing() {
    on_all_drivers(|driver| {
        let Some((disk, weir, before)) = sound(driver) else { return };
        let body = pattern(50_000, 3);
        for (errno, told) in [(5, "(5: Input/output error)"), (28, "(28: No space left on device)")]
        {
            disk.break_writes(Some(errno));
            // The body of a request, of a PUT, and a response that its client does not take.
            assert_eq!(post(&weir, "POST", "/echo", body.len(), &body).response().status, 500);
            assert_eq!(post(&weir, "PUT", "/dav/x", body.len(), &body).response().status, 500);
            // It comes at the client's pace instead.
            let slow = ask(&weir, "/slow").response();
            assert!(slow.body == pattern(BIG, 1), "{}", slow.body.len());
            weir.wait_for_log("error.log", &format!("{told} while reading upstream"));
            assert!(!disk.has("x"));
            others_are_served(&weir);
        }
        disk.break_writes(None);
        let echo = post(&weir, "POST", "/echo", body.len(), &body).response();
        assert_eq!(echo.text(), "got 50000");
        assert_eq!(post(&weir, "PUT", "/dav/x", body.len(), &body).response().status, 201);
        assert_eq!(disk.content("x"), Some(body));
        nothing_is_left(&weir, before);
    });
}

#[test]
fn a_part_of_a_page_that_cannot_be_read_ends_the_page() {
    on_all_drivers(|driver| {
        let Some((disk, weir, before)) = sound(driver) else { return };
        disk.break_reads(true);
        let mut conn = ask(&weir, "/broken");
        // A page of which nothing was sent before the part failed is answered with 500 instead.
        let got = conn.read_to_end();
        assert!(got.starts_with(b"HTTP/1.1 500 ") || !got.ends_with(b"0\r\n\r\n"));
        weir.wait_for_log("error.log", "(5: Input/output error)");
        disk.break_reads(false);
        others_are_served(&weir);
        nothing_is_left(&weir, before);
    });
}

/// Ways of sending files. With `off` the worker itself waits.
const WAYS: &str = "
    error_page 500 /sorry; location = /sorry { return 200 sorry; }
    location /plain/ { alias html/disk/; }
    location /sendfile_off/ { alias html/disk/; aio off; }
    location /threads/ { alias html/disk/; aio threads; }
    location /copied/ { alias html/disk/; aio threads; sendfile off; }
    location /copied_off/ { alias html/disk/; aio off; sendfile off; }
    location /gzip/ { alias html/disk/; gzip on; gzip_types *; gzip_min_length 0; }
    location /sub/ { alias html/disk/; sub_filter_types *; sub_filter small large; }
    location /headed/ { alias html/disk/; add_header X-Way here always; expires 1h; }
    location /held/ { alias html/disk/; open_file_cache max=10; }
    location /slow/ { alias html/disk/; limit_rate 500k; }
    location /slow_off/ { alias html/disk/; aio off; limit_rate 500k; }
    location /page { ssi on; default_type text/html; alias html/page.html; }";

const NAMES: [&str; 9] =
    ["plain", "sendfile_off", "threads", "copied", "copied_off", "gzip", "sub", "headed", "held"];

#[test]
fn a_file_of_which_nothing_can_be_read_is_answered_by_a_status() {
    on_all_drivers(|driver| {
        let Some((disk, weir)) = site_in(driver, "", "", WAYS) else { return };
        assert_eq!(weir.get("/fast.txt").body, b"fast");
        let before = weir.open_descriptors(weir.workers()[0]);
        disk.break_reads(true);
        for (n, way) in NAMES.iter().enumerate() {
            for (kind, range) in [("small", ""), ("large", ""), ("large", "Range: bytes=9000-\r\n")]
            {
                let ending = if kind == "small" { "txt" } else { "bin" };
                let name = format!("{kind}{}.{ending}", n % 6);
                let response = weir.request(
                    "GET",
                    &format!("/{way}/{name}"),
                    &format!("Accept-Encoding: gzip\r\n{range}"),
                );
                assert_eq!((response.status, &*response.text()), (500, "sorry"), "{way} {name}");
                assert_eq!(response.header("connection"), Some("close"), "{way} {name}");
                for gone in ["etag", "last-modified", "content-range", "expires", "x-way"] {
                    assert_eq!(response.header(gone), None, "{way} {name}");
                }
                let path = weir.prefix().join("html/disk").join(&name);
                let why = format!("() \"{}\" failed (5: Input/output error)", path.display());
                weir.wait_for_log("error.log", &why);
            }
        }
        // Answers before it stay, and nothing comes behind it.
        let mut conn = weir.connect();
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        conn.send([get("/fast.txt"), get("/plain/large5.bin"), get("/fast.txt")].concat());
        assert_eq!(conn.response().body, b"fast");
        assert_eq!(conn.response().status, 500);
        assert!(conn.read_to_end().is_empty());
        assert_eq!(weir.request("HEAD", "/plain/large5.bin", "").status, 200);
        others_are_served(&weir);
        disk.break_reads(false);
        assert!(weir.get("/plain/large5.bin").body == pattern(LARGE, 5));
        nothing_is_left(&weir, before);
    });
}

#[test]
fn a_file_that_fails_behind_its_first_byte_cuts_the_response() {
    on_all_drivers(|driver| {
        let Some((disk, weir)) = site_in(driver, "", "", WAYS) else { return };
        disk.break_reads_beyond(LARGE - 200_000);
        for (n, way) in ["slow", "slow_off", "copied", "copied_off"].iter().enumerate() {
            let mut conn = ask(&weir, &format!("/{way}/large{n}.bin"));
            let got = conn.read_to_end();
            assert!(got.starts_with(b"HTTP/1.1 200 "), "{way}");
            assert!((1000..LARGE).contains(&got.len()), "{way}: {}", got.len());
            let why = format!("large{n}.bin\" failed (5: Input/output error)");
            weir.wait_for_log("error.log", &why);
        }
        others_are_served(&weir);
    });
}

#[test]
fn parts_of_a_page_come_whole_from_threads() {
    // Subrequests with threads, sendfile in pieces, limits of the rate and temporary files; a clock
    // that is read seldom; a pool of one thread. Requests hung of each of these.
    on_all_drivers(|driver| {
        let pools = "thread_pool default threads=1;\ntimer_resolution 100ms;";
        let Some((_disk, weir)) = served(driver, pools) else { return };
        let mut conn = weir.connect();
        conn.send("GET /page HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2));
        for _ in 0..2 {
            let response = conn.response();
            assert!(response.body == page(), "{} bytes", response.body.len());
        }
        assert!(weir.get("/redirected").body == pattern(LARGE, 3));
    });
}

#[test]
fn responses_of_one_connection_keep_apart() {
    // Pipelined requests for cold files by sendfile, by copies and with ranges: a response had
    // bytes of another.
    on_all_drivers(|driver| {
        let Some((_disk, weir)) = served(driver, "thread_pool default threads=2;") else { return };
        let mut conn = weir.connect();
        let places = ["threads", "copied", "disk", "limited"];
        for i in 0..6 {
            let place = places[i % places.len()];
            let range = if i % 2 == 1 { "Range: bytes=100000-900000\r\n" } else { "" };
            conn.send(format!("GET /{place}/large{i}.bin HTTP/1.1\r\nHost: x\r\n{range}\r\n"));
        }
        for i in 0..6 {
            let response = conn.response();
            let whole = pattern(LARGE, i);
            match i % 2 {
                1 => assert!(response.status == 206 && response.body == whole[100_000..=900_000]),
                _ => assert!(response.status == 200 && response.body == whole, "{i}"),
            }
        }
    });
}

#[test]
fn clients_that_go_leave_nothing_behind() {
    on_all_drivers(|driver| {
        let Some((disk, weir)) = served(driver, "") else { return };
        for path in ["/disk/small0.txt", "/page"] {
            assert_eq!(weir.get(path).status, 200, "{path}");
        }
        let before = weir.open_descriptors(weir.workers()[0]);
        disk.stall();
        let body = pattern(20_000, 4);
        let mut gone: Vec<Conn> = Vec::new();
        for path in ["/disk/large1.bin", "/threads/small2.txt", "/copied/large3.bin", "/page"] {
            gone.push(ask(&weir, path));
        }
        gone.push(post(&weir, "POST", "/echo", body.len(), &body));
        gone.push(post(&weir, "POST", "/echo", body.len() + 1, &body));
        gone.push(post(&weir, "PUT", "/dav/put", body.len(), &body));
        gone.push(ask(&weir, "/big"));
        wait_until("nothing reached the disk", || disk.waiting() >= 5);
        others_are_served(&weir);
        drop(gone);
        others_are_served(&weir);
        disk.go_on();
        nothing_is_left(&weir, before);
        // Work begun in a thread was finished, or not done at all.
        if let Some(put) = disk.content("put") {
            assert_eq!(put, body);
        }
        assert!(weir.get("/page").body == page());
        wait_until("tasks are left", || told(&weir, &["pools", "default", "running"]) == 0);
    });
}

#[test]
fn a_body_that_stops_coming_times_out_behind_its_disk() {
    on_all_drivers(|driver| {
        let Some((disk, weir, before)) = sound(driver) else { return };
        disk.stall();
        let mut conn = post(&weir, "POST", "/echo", 100_000, &pattern(50_000, 5));
        wait_until("nothing reached the disk", || disk.waiting() >= 1);
        others_are_served(&weir);
        disk.go_on();
        conn.read_to_end();
        weir.wait_for_log("error.log", "timed out");
        drop(conn);
        nothing_is_left(&weir, before);
    });
}

#[test]
fn a_fast_stop_does_not_wait_for_requests() {
    // At once, and for a worker that is leaving already.
    for signals in [&["TERM"][..], &["QUIT", "TERM"]] {
        on_all_drivers(|driver| {
            let Some((disk, mut weir)) = served(driver, "") else { return };
            assert_eq!(weir.get("/disk/small0.txt").body, b"small 0");
            // More than a last turn of the loop sends.
            let huge = vec![b'h'; 30_000_000];
            disk.add("huge.bin", &huge);
            disk.stall();
            let body = pattern(20_000, 6);
            let mut get = ask(&weir, "/disk/huge.bin");
            let mut put = post(&weir, "PUT", "/dav/put", body.len(), &body);
            wait_until("nothing reached the disk", || disk.waiting() >= 2);
            for signal in signals {
                weir.signal(signal);
                if *signal == "QUIT" {
                    weir.wait_for_log("error.log", "gracefully shutting down");
                }
            }
            weir.wait_for_log("error.log", ": exit");
            // A thread that the kernel holds goes when the disk lets it.
            disk.go_on();
            assert!(weir.wait_for_end().success());
            assert!(get.read_to_end().len() < huge.len());
            put.read_to_end();
        });
    }
}

#[test]
fn a_reload_truncates_no_response() {
    on_all_drivers(|driver| {
        let Some((disk, mut weir)) = served(driver, "") else { return };
        assert!(weir.get("/page").body == page());
        let mut big = ask(&weir, "/big");
        assert!(big.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 200"));
        disk.stall();
        let mut paged = ask(&weir, "/page");
        let body = pattern(20_000, 7);
        let mut put = post(&weir, "PUT", "/dav/put", body.len(), &body);
        wait_until("nothing reached the disk", || disk.waiting() >= 2);
        let old = weir.workers();
        weir.signal("HUP");
        // The master looks at the folders of temporary files, which are there as well.
        wait_until("the master waits for the disk, too", || disk.waiting() >= 3);
        disk.go_on();
        assert!(big.read_exact(BIG) == pattern(BIG, 1));
        assert!(paged.response().body == page());
        assert_eq!(put.response().status, 201);
        assert_eq!(disk.content("put"), Some(body));
        wait_until("the old worker stays", || {
            !old.iter().any(|pid| weir.processes().contains(pid))
        });
        weir.signal("QUIT");
        assert!(weir.wait_for_end().success());
    });
}

#[test]
fn a_full_queue_fails_work_of_every_kind_alone() {
    on_all_drivers(|driver| {
        let pools = "thread_pool default threads=1 max_queue=0;";
        let Some((disk, weir)) = served(driver, pools) else { return };
        disk.stall();
        let mut first = ask(&weir, "/disk/small1.txt");
        wait_until("nothing reached the disk", || disk.waiting() == 1);
        let body = pattern(20_000, 8);
        assert_eq!(post(&weir, "PUT", "/dav/put", body.len(), &body).response().status, 500);
        assert_eq!(post(&weir, "POST", "/echo", body.len(), &body).response().status, 500);
        assert_eq!(weir.request("DELETE", "/dav/small2.txt", "").status, 500);
        assert_eq!(weir.get("/disk/small3.txt").status, 500);
        let overflow = "thread pool \"default\" queue overflow: 0 tasks waiting";
        weir.wait_for_log("error.log", overflow);
        assert!(told(&weir, &["pools", "default", "refused"]) >= 4);
        disk.go_on();
        assert_eq!(first.response().body, b"small 1");
        wait_until("the thread is busy", || weir.get("/disk/small3.txt").body == b"small 3");
        assert!(disk.has("small2.txt"));
    });
}

#[test]
fn a_copy_over_a_longer_file_is_as_long_as_its_source() {
    on_all_drivers(|driver| {
        let Some((disk, weir)) = served(driver, "") else { return };
        let to = "Destination: /dav/large5.bin\r\n";
        assert_eq!(weir.request("COPY", "/dav/small5.txt", to).status, 204);
        assert_eq!(disk.content("large5.bin").unwrap(), b"small 5");
    });
}

#[test]
fn what_cannot_be_moved_whole_stays() {
    on_all_drivers(|driver| {
        let Some((disk, weir)) = served(driver, "") else { return };
        for name in ["a", "sub/b"] {
            weir.write(&format!("html/tree/{name}"), name);
        }
        let tree = weir.prefix().join("html/tree");
        for folder in [tree.parent().unwrap(), &tree, &tree.join("sub")] {
            std::fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).unwrap();
        }
        let to = "Destination: /all/disk/tree/\r\n";
        disk.break_writes(Some(28));
        assert_eq!(weir.request("MOVE", "/all/tree/", to).status, 507);
        weir.wait_for_log("error.log", "(28: No space left on device)");
        assert!(tree.join("a").exists() && tree.join("sub/b").exists());
        disk.break_writes(None);
        assert_eq!(weir.request("MOVE", "/all/tree/", to).status, 201);
        assert!(!tree.exists());
        assert_eq!(disk.content("tree/sub/b").unwrap(), b"sub/b");
    });
}

#[test]
fn bodies_in_files_go_where_their_request_goes() {
    // To the location of an error, and with a copy of the request: bodies were lost on both ways.
    on_all_drivers(|driver| {
        let Some((_disk, weir)) = served(driver, "thread_pool default threads=1;") else { return };
        let body = pattern(50_000, 9);
        for path in ["/moved", "/mirrored"] {
            let mut conn = post(&weir, "POST", path, body.len(), &body);
            // Nothing of it is taken for the next request.
            conn.send("GET /fast.txt HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(conn.response().text(), "got 50000", "{path}");
            assert_eq!(conn.response().text(), "fast", "{path}");
        }
        weir.wait_for_log("seen.log", " 200 9 ");
    });
}

#[test]
fn no_part_of_a_response_is_kept_by_a_cache() {
    on_all_drivers(|driver| {
        let pools = "thread_pool default threads=1;";
        let Some((disk, weir)) = with_cache(driver, pools, "html/disk/kept") else { return };
        let whole = pattern(BIG, 1);
        disk.break_writes(Some(28));
        for _ in 0..2 {
            let response = weir.get("/kept");
            assert!(response.body == whole && response.header("x-kept") == Some("MISS"));
        }
        disk.break_writes(None);
        wait_until("it is not kept", || {
            let response = weir.get("/kept");
            assert!(response.body == whole, "{} bytes", response.body.len());
            response.header("x-kept") == Some("HIT")
        });
    });
}
