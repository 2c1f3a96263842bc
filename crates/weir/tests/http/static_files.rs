//! Files by `root`, `alias`, `index`, with and without `open_file_cache`: freshness above all.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::{Conn, Driver, Site, Weir, built_binary, each_site, pattern, wait_until};

const CONF: &str = "
    sendfile on;
    keepalive_requests 1000000;
    server {
        listen 127.0.0.1:%PORT0%;
        location /alias/ { alias html/dir/; }
        location /cached/ { alias html/; open_file_cache max=3 inactive=60s;
                            open_file_cache_valid 60s; open_file_cache_errors on; }
        location /brief/ { alias html/; open_file_cache max=3; open_file_cache_valid 0; }
        location /copied/ { alias html/; sendfile off; }
        location /links/ { alias html/; disable_symlinks on from=$document_root; }
        location /idx/ { alias html/; index nope.html $arg_i.html b.txt; }
        location /abs/ { alias html/; index nope /alias/in.txt; }
    }";

fn site(driver: Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/a.txt", "first")
        .file("html/b.txt", "bb")
        .file("html/empty.txt", "")
        .file("html/big.bin", pattern(300_000, 0))
        .file("html/mid.bin", pattern(20_000, 0))
        .file("html/dir/in.txt", "inside")
        .http(CONF)
        .start()
}

/// Makes a file look old, so that its content is trusted at once; the time of change cannot be set,
/// so that is waited for.
fn age(weir: &Weir, names: &[&str]) {
    for name in names {
        let path = weir.prefix().join(name);
        assert!(
            Command::new("touch")
                .arg("-d")
                .arg("1 hour ago")
                .arg(path)
                .status()
                .expect("touch runs")
                .success()
        );
    }
    std::thread::sleep(Duration::from_millis(2200));
}

fn set_time(path: &Path, time: &str) {
    assert!(
        Command::new("touch").arg("-d").arg(time).arg(path).status().expect("touch runs").success()
    );
}

#[test]
fn files_are_served() {
    each_site(site, |weir| {
        for _ in 0..3 {
            let a = weir.get("/a.txt");
            assert_eq!((a.status, &a.body[..]), (200, &b"first"[..]));
            assert_eq!(a.header("content-length"), Some("5"));
            assert_eq!(a.header("accept-ranges"), Some("bytes"));
            assert!(a.header("etag").is_some_and(|e| e.ends_with("-5\"")));
            for path in ["/", "/copied/", "/cached/", "/brief/"] {
                assert_eq!(weir.get(&format!("{path}big.bin")).body, pattern(300_000, 0), "{path}");
                assert_eq!(weir.get(&format!("{path}mid.bin")).body, pattern(20_000, 0), "{path}");
                let empty = weir.get(&format!("{path}empty.txt"));
                assert_eq!((empty.status, empty.header("content-length")), (200, Some("0")));
            }
        }
        assert_eq!(weir.get("/alias/in.txt").body, b"inside");
        let folder = weir.get("/dir");
        assert_eq!(folder.status, 301);
        assert!(folder.header("location").is_some_and(|l| l.ends_with("/dir/")));
        let folder = weir.get("/dir?a=b");
        assert!(folder.header("location").is_some_and(|l| l.ends_with("/dir/?a=b")));
        weir.answers_with(&[
            ("GET", "/nope", 404),
            ("GET", "/a.txt/x", 404),
            ("GET", "/dir/", 403),
            ("POST", "/a.txt", 405),
            ("DELETE", "/a.txt", 405),
            ("HEAD", "/a.txt", 200),
        ]);
        weir.wait_for_log("error.log", "html/nope\" failed (2: No such file or directory)");
        weir.wait_for_log("error.log", "html/dir/\" is forbidden");
    });
}

#[test]
fn indexes_are_found() {
    each_site(site, |weir| {
        assert_eq!(weir.get("/idx/").body, b"bb");
        assert_eq!(weir.get("/idx/?i=a").body, b"bb");
        weir.write("html/a.html", "variable");
        assert_eq!(weir.get("/idx/?i=a").body, b"variable");
        assert_eq!(weir.get("/abs/").body, b"inside");
        assert_eq!(weir.get("/nope/").status, 404);
        weir.wait_for_log("error.log", "html/nope\" is not found (2: No such file or directory)");
    });
}

/// Every way in which a file can change shows in the very next answer. On one driver, since files
/// do not depend on it and the test has to wait.
#[test]
fn changes_show_at_once() {
    let weir = site(Driver::ALL[0]);
    let path = |name: &str| weir.prefix().join("html").join(name);
    weir.write("html/c.txt", "cc");
    age(&weir, &["html/a.txt", "html/b.txt", "html/c.txt"]);
    for (name, text) in [("a.txt", "first"), ("b.txt", "bb"), ("c.txt", "cc")] {
        for _ in 0..2 {
            assert_eq!(weir.get(&format!("/{name}")).text(), text);
        }
    }
    // In place, of the same length, with its old time put back.
    std::fs::write(path("a.txt"), "other").unwrap();
    set_time(&path("a.txt"), "1 hour ago");
    assert_eq!(weir.get("/a.txt").body, b"other");
    for i in 0..20 {
        let text = format!("text{}", i % 10);
        std::fs::write(path("a.txt"), &text).unwrap();
        assert_eq!(weir.get("/a.txt").body, text.as_bytes());
    }
    // Another file in its place, as old.
    std::fs::write(path("new"), "BB").unwrap();
    set_time(&path("new"), "1 hour ago");
    std::fs::rename(path("new"), path("b.txt")).unwrap();
    assert_eq!(weir.get("/b.txt").body, b"BB");
    // Gone, and then something else.
    std::fs::remove_file(path("c.txt")).unwrap();
    assert_eq!(weir.get("/c.txt").status, 404);
    std::fs::create_dir(path("c.txt")).unwrap();
    assert_eq!(weir.get("/c.txt").status, 301);
}

/// Requests that one wait of the loop has found share what it learns of a file: a change shows
/// nevertheless in the answer to the next request, on a kept connection and on a new one.
#[test]
fn changes_show_at_once_while_others_ask_for_the_same_file() {
    each_site(site, |weir| {
        let (path, new) = (weir.prefix().join("html/a.txt"), weir.prefix().join("html/new"));
        let stop = AtomicBool::new(false);
        let get = |conn: &mut Conn| {
            conn.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
            conn.response()
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut other = Conn::tcp(weir.port(0));
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(get(&mut other).status, 200);
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            let mut kept = Conn::tcp(weir.port(0));
            let changes = (0..40).find(|n| {
                let text = format!("text of {n}");
                std::fs::write(&new, &text).unwrap();
                std::fs::rename(&new, &path).unwrap();
                let fresh = [get(&mut kept), weir.get("/a.txt")];
                fresh.iter().any(|answer| answer.body != text.as_bytes())
            });
            stop.store(true, Ordering::Relaxed);
            assert_eq!(changes, None, "the change that was not seen");
        });
    });
}

#[test]
fn the_open_file_cache_holds_for_its_time() {
    let weir = site(Driver::ALL[0]);
    let path = weir.prefix().join("html/a.txt");
    age(&weir, &["html/a.txt"]);
    for prefix in ["/cached", "/brief"] {
        assert_eq!(weir.get(&format!("{prefix}/a.txt")).body, b"first");
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(weir.get("/cached/a.txt").body, b"first");
    assert_eq!(weir.get("/brief/a.txt").status, 404);
    assert_eq!(weir.get("/cached/nope").status, 404);
    weir.write("html/nope", "now");
    assert_eq!(weir.get("/cached/nope").status, 404);
    assert_eq!(weir.get("/brief/nope").body, b"now");
    // Three more push them out.
    for name in ["b.txt", "mid.bin", "big.bin"] {
        assert_eq!(weir.get(&format!("/cached/{name}")).status, 200);
    }
    assert_eq!(weir.get("/cached/nope").body, b"now");
    assert_eq!(weir.get("/cached/a.txt").status, 404);
    let worker = weir.workers()[0];
    let open = weir.open_descriptors(worker);
    for i in 0..50 {
        weir.write(&format!("html/f{i}"), "x");
        assert_eq!(weir.get(&format!("/cached/f{i}")).body, b"x");
    }
    // Three for the cache, and one for a connection that is just being closed; a busy machine has
    // more of these for a moment.
    wait_until("the cache to be bounded", || weir.open_descriptors(worker) <= open + 4);
}

#[test]
fn links_are_checked() {
    each_site(site, |weir| {
        std::os::unix::fs::symlink("a.txt", weir.prefix().join("html/link")).unwrap();
        assert_eq!(weir.get("/link").body, b"first");
        assert_eq!(weir.get("/links/link").status, 403);
        assert_eq!(weir.get("/links/a.txt").body, b"first");
        weir.wait_for_log("error.log", "openat() \"");
        weir.wait_for_log("error.log", "failed (40: Too many levels of symbolic links)");
    });
}

#[test]
fn descriptors_held_for_a_moment_never_serve_what_is_gone() {
    each_site(site, |weir| {
        let big = weir.prefix().join("html/big.bin");
        let before = open_files(&weir);
        assert_eq!(weir.get("/big.bin").body, pattern(300_000, 0));
        assert_eq!(weir.get("/big.bin").body, pattern(300_000, 0));
        // Replaced by a file of the same length, changed in place, deleted: each is seen at once.
        let other = weir.prefix().join("html/other");
        std::fs::write(&other, vec![b'o'; 300_000]).unwrap();
        std::fs::rename(&other, &big).unwrap();
        assert_eq!(weir.get("/big.bin").body, vec![b'o'; 300_000]);
        std::fs::write(&big, vec![b'p'; 200_000]).unwrap();
        assert_eq!(weir.get("/big.bin").body, vec![b'p'; 200_000]);
        std::fs::remove_file(&big).unwrap();
        assert_eq!(weir.get("/big.bin").status, 404);
        testkit::wait_for("the descriptors to be closed", || {
            (open_files(&weir) <= before).then_some(())
        });
    });
}

/// Regular files below the site's folder that the workers have open.
fn open_files(weir: &Weir) -> usize {
    let of = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let paths = weir.workers().into_iter().flat_map(of).flatten();
    let targets = paths.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    targets.filter(|to| to.to_string_lossy().contains("/html/")).count()
}

/// Their sizes are 0 or a page, whatever they hold; nginx sends as many bytes.
#[test]
fn files_of_the_kernel_are_sent_with_their_content() {
    testkit::each_driver(|driver| {
        let text = "server { listen 127.0.0.1:%PORT0%; default_type text/plain;
            location / { root /; }
            location /strict/ { alias /; disable_symlinks on; }
            location /own/ { alias html/; } }";
        let site = Site::new(built_binary(), driver).file("html/empty", "");
        let weir = site.http(text).start();
        let kernel = std::fs::read("/proc/version").unwrap();
        let r = weir.get("/proc/version");
        assert_eq!((r.status, &r.body), (200, &kernel));
        assert_eq!((r.header("ETag"), r.header("Accept-Ranges")), (None, None));
        assert_eq!(r.header("Content-Type"), Some("text/plain"));
        let head = weir.request("HEAD", "/proc/version", "");
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("Content-Length"), Some(&kernel.len().to_string()[..]));
        assert!(weir.get("/proc/self/status").text().starts_with("Name:\t"));
        let page = "/sys/kernel/mm/transparent_hugepage/enabled";
        if let Ok(content) = std::fs::read(page) {
            assert_eq!(weir.get(page).body, content);
        }
        assert_eq!(weir.request("POST", "/proc/version", "").status, 405);
        assert_eq!(weir.get("/strict/proc/version").body, b"");
        let empty = weir.get("/own/empty");
        assert_eq!((empty.status, &empty.body[..]), (200, &b""[..]));
        assert!(empty.header("ETag").is_some() && empty.header("Content-Length") == Some("0"));
    });
}
