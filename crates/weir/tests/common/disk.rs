//! Scaffolding for tests of slow and broken disks: a file system of the test's own (FUSE), a server
//! on it, and an upstream. Mounting needs root and `/dev/fuse`; without these, the tests say so and
//! pass.
#![allow(dead_code, reason = "each program uses a part")]

use std::time::{Duration, Instant};

use testkit::{
    Conn, Seen, Site, Sleep, StallingFolder, Turns, Weir, built_binary, listener, pattern,
};

pub const LARGE: usize = 1_500_000;

/// The length of the upstream's answer, bytes.
pub const BIG: usize = 3_000_000;

/// A server with a stalling folder below its files, if the machine allows it. The server is last:
/// it goes first.
pub fn site(driver: testkit::Driver, pools: &str, server: &str) -> Option<(StallingFolder, Weir)> {
    site_in(driver, pools, "", server)
}

/// The same with directives of the `http` block.
pub fn site_in(
    driver: testkit::Driver,
    pools: &str,
    http: &str,
    server: &str,
) -> Option<(StallingFolder, Weir)> {
    let site = Site::new(built_binary(), driver);
    let mut files: Vec<(String, Vec<u8>)> =
        (0..6).map(|i| (format!("large{i}.bin"), pattern(LARGE, i))).collect();
    files.extend((0..6).map(|i| (format!("small{i}.txt"), format!("small {i}").into_bytes())));
    files.push(("users".to_owned(), b"u:{PLAIN}p\n".to_vec()));
    let others: String = (0..3000).map(|i| format!("user{i}:{{PLAIN}}x\n")).collect();
    files.push(("many".to_owned(), format!("{others}u:{{PLAIN}}p\n").into_bytes()));
    files.push(("gone.txt".to_owned(), b"gone".to_vec()));
    files.push(("moving.txt".to_owned(), b"moving".to_vec()));
    let folder = StallingFolder::try_mount(&site.prefix().join("html/disk"), files)?;
    let weir = site
        .file("html/fast.txt", "fast")
        .file("html/fast.bin", pattern(300_000, 9))
        .config(&format!(
            "worker_processes 1;\n{pools}\nevents {{}}\nhttp {{\naccess_log off;\nsendfile on;\n{http}\n\
             server {{ listen 127.0.0.1:%PORT0%; root html;\n\
             location = /json {{ stub_status json; }}\n{server} }}\n}}\n"
        ))
        .start();
    Some((folder, weir))
}

/// An upstream that answers each request with as many bytes, and that of a body with its length.
pub fn backend() -> u16 {
    let (listener, port) = listener();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            std::thread::spawn(move || {
                use std::io::{Read, Write};
                let (mut text, mut buf) = (Vec::new(), [0; 65536]);
                let want = loop {
                    let n = socket.read(&mut buf).unwrap_or(0);
                    text.extend_from_slice(&buf[..n]);
                    let end = text.windows(4).position(|w| w == b"\r\n\r\n");
                    let head = String::from_utf8_lossy(&text).to_lowercase();
                    let len = head.split("content-length: ").nth(1);
                    let len = len.and_then(|l| l.split('\r').next()?.parse().ok()).unwrap_or(0);
                    match end {
                        Some(end) if text.len() >= end + 4 + len => break len,
                        _ if n == 0 => return,
                        _ => {}
                    }
                };
                let body = match want {
                    0 => pattern(BIG, 1),
                    len => format!("got {len}").into_bytes(),
                };
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(&body));
            });
        }
    });
    port
}

/// A number of the object that tells of the workers, by the names on the way to it.
pub fn told(weir: &Weir, names: &[&str]) -> u64 {
    let text = weir.get("/json").text();
    let mut rest = &*text;
    for name in names {
        let name = format!("\"{name}\":");
        let at = rest.find(&name);
        assert!(at.is_some(), "no {name} in {text}");
        rest = &rest[at.unwrap_or(0) + name.len()..];
    }
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().expect("a number")
}

pub fn ask(weir: &Weir, path: &str) -> Conn {
    let mut conn = weir.connect();
    conn.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    conn
}

/// Asks for fast files for a while, in which the loop's thread sleeps nowhere but where it waits
/// for events, and has no long turns.
pub fn others_are_served(weir: &Weir) {
    let trace = Turns::watch(weir.workers()[0]);
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < Duration::from_millis(150) || rounds < 10 {
        assert_eq!(weir.get("/fast.txt").body, b"fast");
        assert_eq!(weir.get("/fast.bin").body.len(), 300_000);
        assert_eq!(weir.get("/none.txt").status, 404);
        rounds += 1;
    }
    match trace.and_then(Turns::end) {
        Ok(seen) => short_turns(&seen),
        Err(e) => eprintln!("SKIPPED: turns cannot be traced here: {e}"),
    }
}

fn short_turns(seen: &Seen) {
    no_sleep(seen);
    let Seen { turns, long_turns, .. } = seen;
    assert!(*turns >= 10 && long_turns * 10 < *turns, "{long_turns} of {turns} turns are long");
}

/// Looks whether a loop slept anywhere but where it waits for events.
pub fn no_sleep(seen: &Seen) {
    let Seen { turns, longest_us, longest_own_us, sleeps, .. } = seen;
    eprintln!("{turns} turns, {longest_us} us at most, {longest_own_us} us of its own; {sleeps:?}");
    // A pool's lock is held for a moment, by a thread that may have to wait for a processor; and
    // without a system call it is the program's own memory that is waited for.
    const FUTEX: i64 = 202;
    // So is the memory that a call copies to, whose pages another thread's mmap() or the kernel's
    // reclaim may hold: once, and briefly. A read that waits for a disk does so again and again.
    const PREADV2: i64 = 327;
    let is_brief = |sleep: &&Sleep| sleep.call == Some(PREADV2) && sleep.us < 1000;
    let may_be_brief = sleeps.iter().filter(is_brief).count() == 1;
    for sleep in sleeps {
        let is_own = matches!(sleep.call, None | Some(FUTEX));
        assert!(is_own || may_be_brief && is_brief(&sleep), "the loop sleeps: {sleep:?}");
    }
}
