//! Disks and folders of a cache that are full, read-only or broken: no request fails for that.

use crate::origin::{Answer, Origin};
use crate::tmpfs::Tmpfs;
use testkit::{Driver, Site, StallingFolder, Weir, built_binary, wait_for};

const LEN: usize = 100_000;

fn body(path: &str) -> Vec<u8> {
    path.bytes().cycle().take(LEN).collect()
}

fn origin() -> Origin {
    Origin::start(|asked| Answer::of(body(&asked.target)))
}

fn site(site: Site, origin: &Origin, path: &str) -> Weir {
    site.http(&format!(
        "proxy_cache_path cache keys_zone=one:1m use_temp_path=off {path};
         proxy_cache_key $uri; add_header X-Cache $upstream_cache_status;
         server {{ listen 127.0.0.1:%PORT0%; proxy_cache one;
             location = /status {{ stub_status json; }}
             location / {{ proxy_pass http://127.0.0.1:{}; }} }}",
        origin.port
    ))
    .start()
}

/// Sends a request, checks that the answer is whole and right, and returns the cache status.
fn ask(weir: &Weir, path: &str) -> String {
    let response = weir.get(path);
    assert!(response.status == 200 && response.body == body(path), "{path}: {}", response.status);
    response.header("X-Cache").unwrap().to_owned()
}

/// The faults of all caches with one cause.
fn faults(weir: &Weir, cause: &str) -> u64 {
    let status = weir.get("/status").text();
    let name = format!("\"{cause}\":");
    let of_zones = status.split(&name).skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
        rest[..end].parse::<u64>().unwrap()
    });
    of_zones.sum()
}

/// Lines of the error log with a text, but for those about the index, which has its own.
fn lines(weir: &Weir, text: &str) -> usize {
    let log = weir.error_log();
    log.lines().filter(|line| line.contains(text) && !line.contains("the index")).count()
}

#[test]
fn a_full_disk_and_one_that_cannot_be_written() {
    let new = Site::new(built_binary(), Driver::usual());
    let Some(disk) = Tmpfs::mount(&new.prefix().join("cache")) else { return };
    let origin = origin();
    let weir = site(new, &origin, "");
    for i in 0..30 {
        assert_eq!(ask(&weir, &format!("/{i}")), "MISS");
    }
    // The faults are counted a moment after the responses.
    wait_for("30 responses to be kept or not", || {
        let kept = weir.cached_files("cache").len() as u64;
        (kept >= 5 && kept + faults(&weir, "write") + faults(&weir, "rename") >= 30).then_some(())
    });
    let (full, kept) = ("No space left on device", weir.cached_files("cache").len());
    let told = lines(&weir, full);
    assert!((1..=2).contains(&told), "a line a minute for each cause, not {told}");
    let served = (0..30).filter(|i| ask(&weir, &format!("/{i}")) == "HIT").count();
    assert!(served >= kept, "{served} of {kept}");
    assert_eq!(lines(&weir, full), told);
    // There is room again, and the next response is kept.
    disk.set("size=8m");
    assert_eq!(ask(&weir, "/room"), "MISS");
    wait_for("the file", || (ask(&weir, "/room") == "HIT").then_some(()));
    wait_for("all files", || {
        let files = weir.cached_files("cache");
        files.iter().all(|f| f.rsplit('/').next().unwrap().len() == 32).then_some(())
    });
    disk.set("ro");
    let before = faults(&weir, "faults");
    for n in 1..=3 {
        assert_eq!(ask(&weir, "/room"), "HIT");
        assert_eq!(ask(&weir, "/new"), "MISS");
        // The fault is counted a moment after the response; until then the next client would be
        // served from the same fetch.
        wait_for("the fault", || (faults(&weir, "faults") >= before + n).then_some(()));
    }
    // They are counted and not logged: a failed write was logged within this minute.
    assert_eq!(lines(&weir, full) + lines(&weir, "Read-only file system"), told);
    disk.set("rw");
    ask(&weir, "/new");
    wait_for("the file", || (ask(&weir, "/new") == "HIT").then_some(()));
}

#[test]
fn reads_that_fail() {
    let new = Site::new(built_binary(), Driver::usual());
    let origin = Origin::start(|_| Answer::of(body("x")));
    let weir = new
        .http(&format!(
            "proxy_cache_path whole keys_zone=whole:1m use_temp_path=off;
             proxy_cache_path broken keys_zone=broken:1m use_temp_path=off;
             proxy_cache_key $arg_key; add_header X-Cache $upstream_cache_status;
             server {{ listen 127.0.0.1:%PORT0%; proxy_cache broken;
                 location = /status {{ stub_status json; }}
                 location = /whole {{ proxy_cache whole; proxy_pass http://127.0.0.1:{0}; }}
                 location / {{ proxy_pass http://127.0.0.1:{0}; }} }}",
            origin.port
        ))
        .start();
    let ask = |weir: &Weir, path: &str| {
        let response = weir.get(path);
        assert!(response.status == 200 && response.body == body("x"), "{path}");
        response.header("X-Cache").unwrap().to_owned()
    };
    for key in ["/whole?key=a", "/whole?key=b", "/whole?key=c"] {
        ask(&weir, key);
        wait_for("the file", || (ask(&weir, key) == "HIT").then_some(()));
    }
    let files = wait_for("all files", || {
        let files = weir.files_below("whole");
        let name = |f: &String| f.rsplit('/').next().unwrap().to_owned();
        let read = |f: &String| (name(f), std::fs::read(f).unwrap());
        let files: Vec<_> = files.iter().map(read).filter(|(name, _)| name.len() == 32).collect();
        (files.len() == 3).then_some(files)
    });
    // The same on a disk of which the kernel has nothing in its memory.
    let folder = match StallingFolder::mount(&weir.prefix().join("broken"), files) {
        Ok(folder) => folder,
        Err(e) => {
            eprintln!("SKIPPED: no file system can be mounted here: {e}");
            return;
        }
    };
    // It goes before the folder does.
    let mut weir = weir;
    folder.break_reads(true);
    weir.restart();
    let asked = origin.count("/?key=a");
    for n in 1..4 {
        assert_eq!(ask(&weir, "/?key=a"), "MISS");
        assert_eq!(origin.count("/?key=a"), asked + n);
    }
    assert_eq!(faults(&weir, "read"), 3);
    assert_eq!(lines(&weir, "Input/output error"), 1, "{}", weir.error_log());
    // One of which the head can be read is found, and then asked for as if it had not been.
    folder.break_reads_beyond(LEN / 2);
    let asked = origin.count("/?key=c");
    for n in 1..4 {
        assert_eq!(ask(&weir, "/?key=c"), "MISS");
        assert_eq!(origin.count("/?key=c"), asked + n);
    }
    assert_eq!(faults(&weir, "read"), 6);
    let path = weir.prefix().join("broken");
    weir.wait_for_log("error.log", &format!("pread() \"{}/", path.display()));
    folder.break_reads(false);
    assert_eq!(ask(&weir, "/?key=b"), "HIT");
    assert_eq!(ask(&weir, "/?key=c"), "HIT");
}

#[test]
fn limits_that_leave_no_room() {
    let large = || Origin::start(|asked| Answer::of(body(&asked.target).repeat(15)));
    for (path, limit) in [("max_size=1m", "max_size"), ("min_free=900000g", "min_free")] {
        let origin = large();
        let weir = site(Site::new(built_binary(), Driver::usual()), &origin, path);
        for n in 1..=3 {
            let response = weir.get("/a");
            assert!(response.status == 200 && response.body == body("/a").repeat(15));
            wait_for("it to be counted", || (faults(&weir, "no_room") == n).then_some(()));
        }
        let told = format!("\"{limit}\" leaves no room for a response, not cached, cache \"one\"");
        weir.wait_for_log("error.log", &told);
        assert_eq!((lines(&weir, "leaves no room"), faults(&weir, "faults")), (1, 0));
        assert_eq!((origin.count("/a"), weir.cached_files("cache").len()), (3, 0));
    }
}
