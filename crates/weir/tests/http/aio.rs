//! `aio` and related directives: the bytes are the same whether the loop, a thread or the ring
//! reads them.

use std::fs::OpenOptions;

use crate::disk;
use testkit::{
    Conn, Site, Turns, Weir, built_binary, on_all_drivers, pattern, site_on_all_drivers, wait_until,
};

const BIG: usize = 700_001;

const PLACES: [&str; 9] =
    ["auto", "off", "on", "threads", "one", "named", "copied", "direct", "direct-off"];

const CONF: &str = "
    sendfile on;
    server {
        listen 127.0.0.1:%PORT0%;
        location /auto/ { alias html/; }
        location /off/ { alias html/; aio off; }
        location /on/ { alias html/; aio on; }
        location /threads/ { alias html/; aio threads; sendfile_max_chunk 512k; }
        location /one/ { alias html/; aio threads=one; read_ahead 1m; }
        location /named/ { alias html/; aio threads=o$arg_n; }
        location /copied/ { alias html/; sendfile off; output_buffers 1 10k; }
        location /direct/ { alias html/; directio 1; directio_alignment 4k; }
        location = /json { stub_status json; }
        location /direct-off/ { alias html/; directio 4k; aio off; directio_alignment 4k; }
    }";

fn site(driver: testkit::Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/empty", "")
        .file("html/small", "small")
        .file("html/page", pattern(4096, 0))
        .file("html/big", pattern(BIG, 0))
        .config(&format!(
            "thread_pool one threads=1;\nevents {{}}\nhttp {{ access_log off;\n{CONF} }}\n"
        ))
        // Not every file system reads past the page cache.
        .allow("fcntl(O_DIRECT)")
        .allow("file was truncated while it was sent")
        .start()
}

#[test]
fn every_way_gives_the_same_bytes() {
    site_on_all_drivers(site, |weir| {
        for place in PLACES {
            for _ in 0..2 {
                assert_eq!(weir.get(&format!("/{place}/empty?n=ne")).body, b"", "{place}");
                assert_eq!(weir.get(&format!("/{place}/small?n=ne")).body, b"small", "{place}");
                assert!(
                    weir.get(&format!("/{place}/page?n=ne")).body == pattern(4096, 0),
                    "{place}"
                );
                assert!(weir.get(&format!("/{place}/big?n=ne")).body == pattern(BIG, 0), "{place}");
            }
            for (range, from, to) in [
                ("bytes=1-1", 1, 2),
                ("bytes=4095-8192", 4095, 8193),
                ("bytes=600000-", 600_000, BIG),
                ("bytes=-5", BIG - 5, BIG),
            ] {
                let header = format!("Range: {range}\r\n");
                let part = weir.request("GET", &format!("/{place}/big?n=ne"), &header);
                assert_eq!(part.status, 206);
                assert!(part.body == pattern(BIG, 0)[from..to], "{place} {range}");
            }
            assert_eq!(weir.get(&format!("/{place}/none?n=ne")).status, 404, "{place}");
            assert_eq!(weir.request("HEAD", &format!("/{place}/big?n=ne"), "").status, 200);
        }
        let pipelined: String = PLACES
            .iter()
            .map(|p| format!("GET /{p}/big?n=ne HTTP/1.1\r\nHost: x\r\n\r\n"))
            .collect();
        let mut conn = weir.connect();
        conn.send(pipelined);
        for response in conn.responses(PLACES.len()) {
            assert!(response.body == pattern(BIG, 0));
        }
    });
}

#[test]
fn a_pool_named_by_a_variable_must_be_there() {
    site_on_all_drivers(site, |weir| {
        assert_eq!(weir.get("/named/small?n=ne").body, b"small");
        // Whatever is in memory.
        assert_eq!(weir.get("/named/small?n=ther").status, 500);
        weir.wait_for_log("error.log", "[error]");
        weir.wait_for_log("error.log", "thread pool \"other\" not found, client: 127.0.0.1");
    });
}

#[test]
fn mistakes_are_named_with_their_place() {
    for (text, message) in [
        ("aio threads=nope;", "[emerg] unknown thread pool \"nope\" in "),
        ("aio maybe;", "[emerg] \"aio\" directive invalid value in "),
        ("aio on; aio off;", "[emerg] \"aio\" directive is duplicate in "),
        ("aio threads=$nope;", "[emerg] unknown \"nope\" variable in "),
        ("directio x;", "[emerg] \"directio\" directive invalid value in "),
        ("directio 1; directio 1;", "[emerg] \"directio\" directive is duplicate in "),
        ("output_buffers 0 1k;", "[emerg] \"output_buffers\" directive invalid value in "),
        ("directio_alignment 500;", "[emerg] \"directio_alignment\" must be a power of two"),
        ("thread_pool a threads=1;", "[emerg] \"thread_pool\" directive is not allowed here in "),
    ] {
        let http = format!("http {{\nserver {{ listen 127.0.0.1:%PORT0%; {text} }} }}");
        let mut site = Site::new(built_binary(), testkit::Driver::Epoll)
            .config(&format!("events {{}}\n{http}"));
        let _ = site.port(0);
        let told = site.is_refused(message);
        assert!(told.contains("weir.conf:3"), "{text}: {told}");
    }
}

fn begin(weir: &Weir, path: &str) -> Conn {
    let mut conn = weir.connect();
    conn.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    assert!(conn.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 200 "));
    conn
}

/// More than the buffers of two sockets hold.
const HUGE: u64 = 64 << 20;

#[test]
fn files_that_change_while_they_are_sent() {
    site_on_all_drivers(site, |weir| {
        let worker = weir.workers()[0];
        assert_eq!(weir.get("/auto/small").body, b"small");
        let before = weir.open_descriptors(worker);
        for place in ["auto", "off", "threads", "copied", "direct"] {
            let path = weir.prefix().join("html/huge");
            let sized = |len| {
                let open = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
                open.and_then(|file| file.set_len(len)).expect("a file");
            };
            // With `off` the loop waits for the disk.
            let trace = (place != "off").then(|| Turns::watch(worker));
            sized(HUGE);
            let mut conn = begin(&weir, &format!("/{place}/huge"));
            std::fs::remove_file(&path).expect("removed");
            sized(10);
            assert_eq!(conn.read_to_end().len() as u64, HUGE, "{place}: of the file it began with");

            sized(HUGE);
            let mut conn = begin(&weir, &format!("/{place}/huge"));
            sized(1000);
            assert!((conn.read_to_end().len() as u64) < HUGE, "{place}");
            weir.wait_for_log("error.log", "file was truncated while it was sent");

            // Clients that go in the middle.
            sized(HUGE);
            for _ in 0..5 {
                drop(begin(&weir, &format!("/{place}/huge")));
            }
            if let Some(Ok(seen)) = trace.map(|trace| trace.and_then(Turns::end)) {
                eprint!("{:?} {place}: ", weir.driver());
                disk::no_sleep(&seen);
            }
        }
        wait_until("descriptors to be closed", || weir.open_descriptors(worker) <= before);
    });
}

#[test]
fn a_hole_in_the_middle_of_a_file_does_not_hold_the_loop() {
    const LEN: usize = 12 << 20;
    site_on_all_drivers(site, |weir| {
        let path = weir.prefix().join("html/holed");
        std::fs::write(&path, pattern(LEN, 0)).expect("a file");
        assert!(weir.get("/threads/holed").body == pattern(LEN, 0));
        let file = std::fs::File::open(&path).expect("a file");
        file.sync_all().expect("on disk");
        let cached = || os::probe::pages_cached(&file, 0, LEN as u64);
        let Ok(before) = cached() else {
            eprintln!("SKIPPED: pages in memory cannot be counted here");
            return;
        };
        // Head and tail stay.
        assert!(os::probe::forget(&file, 4 << 20, 4 << 20));
        if !cached().is_ok_and(|now| now > 0 && now < before) {
            eprintln!("SKIPPED: no hole can be made in this file system's pages");
            return;
        }
        // A part seen in memory counts as being there for a quarter of a second.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let trace = Turns::watch(weir.workers()[0]);
        assert!(weir.get("/threads/holed").body == pattern(LEN, 0));
        if let Ok(seen) = trace.and_then(Turns::end) {
            eprint!("{:?}: ", weir.driver());
            disk::no_sleep(&seen);
        }
    });
}

#[test]
fn files_of_another_user_that_are_in_memory_wait_for_no_thread() {
    on_all_drivers(|driver| {
        // Under root, the workers are `nobody`, and may read these files and no more.
        let weir = site(driver);
        assert!(weir.get("/threads/big").body == pattern(BIG, 0));
        let done = disk::told(&weir, &["pools", "default", "done"]);
        for _ in 0..5 {
            assert!(weir.get("/threads/big").body == pattern(BIG, 0));
            assert!(weir.get("/auto/big").body == pattern(BIG, 0));
        }
        let after = disk::told(&weir, &["pools", "default", "done"]);
        assert_eq!(after, done, "a thread read what was in memory");
    });
}

#[test]
fn the_configuration_of_large_files_serves_word_for_word() {
    let text = "
        worker_processes 16;
        thread_pool default threads=32 max_queue=65536;

        events { accept_mutex off; }

        http {
            include mime.types;
            default_type application/octet-stream;
            access_log off;
            sendfile on;
            sendfile_max_chunk 512k;

            server {
                listen 127.0.0.1:%PORT0%;
                location / {
                    root html;
                    aio threads;
                }
            }
        }";
    let weir = Site::new(built_binary(), testkit::Driver::Epoll)
        .file("conf/mime.types", "types { image/png png; }")
        .file("html/big", pattern(BIG, 0))
        .file("html/big.png", pattern(4 << 20, 0))
        .config(text)
        .start();
    assert_eq!(weir.workers().len(), 16);
    // Some on each worker, most of them on files that are not in memory.
    std::thread::scope(|scope| {
        for n in 0..24 {
            let weir = &weir;
            scope.spawn(move || {
                let png = weir.get("/big.png");
                assert_eq!(png.header("content-type"), Some("image/png"), "{n}");
                assert!(png.body == pattern(4 << 20, 0), "{n}");
                let big = weir.get("/big");
                assert_eq!(big.header("content-type"), Some("application/octet-stream"));
                assert!(big.body == pattern(BIG, 0), "{n}");
            });
        }
    });
}
