//! Clients that go while a request of theirs is passed on, folders for temporary files that are
//! full, servers that say too much, and ten thousand of them at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use testkit::{Conn, wait_for};
use testkit::{
    Driver, PATIENCE, Scripted, Site, Weir, built_binary, each_driver, listener, read_until,
};

fn head_ends(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|w| w == b"\r\n\r\n")
}

/// An event that the upstream server saw.
#[derive(Debug, PartialEq)]
enum Seen {
    /// A request's head, and maybe more.
    Asked(String),
    /// The connection ended while it held its answer back.
    GoneEarly,
    /// The connection was there when it answered, and took all of the answer.
    Answered,
    /// It could not send all.
    GoneLate,
}

/// A server that reports the fate of its connections. `/wait`: answers when the client should be
/// gone; `/endless`: its answer has no end; else it answers at once.
fn telling(tell: Sender<Seen>) -> Scripted {
    let tell = Mutex::new(tell);
    Scripted::start(move |mut s, _| {
        let tell = tell.lock().expect("no test panicked here").clone();
        while let Some(asked) = read_until(&mut s, head_ends) {
            let text = String::from_utf8_lossy(&asked).into_owned();
            let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
            let told = |seen: Seen| drop(tell.send(seen));
            if !path.ends_with("/ok") {
                told(Seen::Asked(path.clone()));
            }
            if path.ends_with("/upload") || path.ends_with("/wait") {
                // Until the end, or for long enough to be sure that none comes.
                s.set_read_timeout(Some(Duration::from_millis(400))).expect("a timeout");
                let mut page = [0; 4096];
                let ended = loop {
                    match s.read(&mut page) {
                        Ok(1..) => {}
                        Ok(0) => break true,
                        Err(e) => break e.kind() != std::io::ErrorKind::WouldBlock,
                    }
                };
                if ended {
                    return told(Seen::GoneEarly);
                }
                s.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            }
            if path.ends_with("/endless") {
                let _ = s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n");
                let page = [b'x'; 65536];
                s.set_write_timeout(Some(PATIENCE)).expect("a timeout");
                while s.write_all(&page).is_ok() {}
                return told(Seen::GoneLate);
            }
            let done = s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            if !path.ends_with("/ok") {
                told(if done.is_ok() { Seen::Answered } else { Seen::GoneLate });
            }
        }
    })
}

/// The way in which a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leave {
    Close,
    Reset,
    /// Only the sending side ends, which counts the same, as in nginx.
    Half,
}

fn leave(s: TcpStream, how: Leave) -> Option<TcpStream> {
    match how {
        Leave::Close => None,
        Leave::Reset => {
            os::socket::set_reset_on_close(&s).expect("a socket option");
            None
        }
        Leave::Half => {
            s.shutdown(std::net::Shutdown::Write).expect("it stands");
            Some(s)
        }
    }
}

fn ask(weir: &Weir, request: &str) -> TcpStream {
    let mut s = TcpStream::connect(("127.0.0.1", weir.port(0))).expect("it listens");
    s.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    s.write_all(request.as_bytes()).expect("it takes a request");
    s
}

fn next(seen: &Receiver<Seen>) -> Seen {
    seen.recv_timeout(PATIENCE).expect("the server behind tells in time")
}

/// A socket that is connected to by nobody any more: its queue is full.
fn full_listener() -> (OwnedFd, u16, Vec<TcpStream>) {
    let any = os::SockAddr::parse(b"127.0.0.1:0").expect("an address");
    let fd = os::socket::socket(&any, os::socket::Kind::Stream).expect("a socket");
    os::socket::bind(&fd, &any).expect("a free port");
    os::socket::listen(&fd, 0).expect("it listens");
    let port = os::socket::local_addr(&fd).expect("an address").port();
    let to = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let mut waiting = Vec::new();
    while let Ok(s) = TcpStream::connect_timeout(&to, Duration::from_millis(200)) {
        waiting.push(s);
    }
    (fd, port, waiting)
}

#[test]
fn clients_that_go_at_each_point() {
    let (_listener, full, _waiting) = full_listener();
    each_driver(|driver| {
        let (tell, seen) = channel();
        let b = telling(tell);
        // Buffered and not, each with and without *_ignore_client_abort.
        let mut places = String::new();
        for (name, buffering) in [("b", "on"), ("u", "off")] {
            for (more, ignore) in [("", "off"), ("i", "on")] {
                places.push_str(&format!(
                    "location /{name}{more}/ {{ proxy_pass http://behind;
                         proxy_buffering {buffering}; proxy_request_buffering {buffering};
                         proxy_ignore_client_abort {ignore}; }}
                     location /{name}{more}/full {{ proxy_pass http://127.0.0.1:{full};
                         proxy_connect_timeout 600ms; proxy_ignore_client_abort {ignore}; }}"
                ));
            }
        }
        let weir = Site::new(built_binary(), driver)
            .http(&format!(
                "log_format path '$uri $status'; access_log logs/path.log path;
                 upstream behind {{ server 127.0.0.1:{}; keepalive 8; }}
                 client_max_body_size 0;
                 server {{ listen 127.0.0.1:%PORT0% sndbuf=32k; {places} }}",
                b.port
            ))
            .start();
        let others_are_served = |place: &str| {
            assert_eq!(weir.get(&format!("/{place}/ok")).text(), "ok", "{place}");
        };
        others_are_served("b");
        let worker = weir.workers()[0];
        let before = weir.open_descriptors(worker);
        for (place, ignores) in [("b", false), ("u", false), ("bi", true), ("ui", true)] {
            let head = |path: &str| format!("GET /{place}/{path} HTTP/1.1\r\nHost: a\r\n\r\n");
            // Before there is a connection to the server.
            let s = ask(&weir, &head("full"));
            std::thread::sleep(Duration::from_millis(50));
            drop(s);
            match ignores {
                false => {
                    let gone = "connection is closed too while connecting to upstream";
                    weir.wait_for_log("error.log", gone);
                    weir.wait_for_log("path.log", &format!("/{place}/full 499"));
                }
                true => drop(weir.wait_for_log("path.log", &format!("/{place}/full 504"))),
            }
            // Within the body of its request.
            let s = ask(
                &weir,
                &format!(
                    "POST /{place}/upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n0123"
                ),
            );
            if place.starts_with('u') {
                assert_eq!(next(&seen), Seen::Asked(format!("/{place}/upload")));
            }
            drop(s);
            if place.starts_with('u') {
                // There is no more of the body to be had, whatever is ignored.
                assert_eq!(next(&seen), Seen::GoneEarly, "{place}");
            }
            weir.wait_for_log("path.log", &format!("/{place}/upload 400"));
            // While the server thinks.
            for how in [Leave::Close, Leave::Reset, Leave::Half] {
                let s = ask(&weir, &head("wait"));
                assert_eq!(next(&seen), Seen::Asked(format!("/{place}/wait")));
                let rest = leave(s, how);
                let want = if ignores { Seen::Answered } else { Seen::GoneEarly };
                assert_eq!(next(&seen), want, "{place} {how:?}");
                if let Some(mut s) = rest {
                    let mut got = Vec::new();
                    let _ = s.read_to_end(&mut got);
                    assert_eq!(got.ends_with(b"\r\n\r\nok"), ignores, "{place} {how:?}");
                }
            }
            if !ignores {
                weir.wait_for_log("path.log", &format!("/{place}/wait 499"));
            }
            // Within the response.
            for how in [Leave::Close, Leave::Reset] {
                let mut s = ask(&weir, &head("endless"));
                s.read_exact(&mut [0; 5000]).expect("a beginning");
                leave(s, how);
                assert_eq!(next(&seen), Seen::Asked(format!("/{place}/endless")));
                assert_eq!(next(&seen), Seen::GoneLate, "{place} {how:?}");
            }
            others_are_served(place);
        }
        wait_for("descriptors to be closed", || {
            (weir.open_descriptors(worker) <= before + 2).then_some(())
        });
        assert!(seen.try_recv().is_err(), "nothing was asked twice");
    });
}

#[test]
fn servers_that_say_too_much() {
    each_driver(|driver| {
        let b = Scripted::start(|mut s, n| {
            while let Some(asked) = read_until(&mut s, head_ends) {
                let text = String::from_utf8_lossy(&asked).into_owned();
                let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
                let answer = |body: &str| {
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                };
                let out = match path.as_str() {
                    "/two" => answer("first") + &answer("second"),
                    "/chunked-two" => {
                        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n\r\n"
                            .to_owned()
                            + &answer("second")
                    }
                    "/none-two" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned() + &answer("second"),
                    "/late" => {
                        if s.write_all(answer("first").as_bytes()).is_err() {
                            return;
                        }
                        std::thread::sleep(Duration::from_millis(50));
                        answer("second")
                    }
                    _ => answer(&format!("connection {n}")),
                };
                if s.write_all(out.as_bytes()).is_err() {
                    return;
                }
            }
        });
        let weir = Site::new(built_binary(), driver)
            .http(&format!(
                "upstream behind {{ server 127.0.0.1:{}; keepalive 8; }}
                 server {{ listen 127.0.0.1:%PORT0%; location / {{ proxy_pass http://behind; }}
                     location /now/ {{ proxy_pass http://behind/; proxy_buffering off; }} }}",
                b.port
            ))
            .start();
        let worker = weir.workers()[0];
        let without = weir.open_descriptors(worker);
        for place in ["", "/now"] {
            for (path, body) in [
                ("/two", "first"),
                ("/chunked-two", "first"),
                ("/none-two", ""),
                ("/late", "first"),
            ] {
                let before = weir.get(&format!("{place}/x")).text();
                assert_eq!(weir.get(&format!("{place}{path}")).text(), body, "{place}{path}");
                if path == "/late" {
                    // The surplus ends the kept connection.
                    wait_for("its end", || {
                        (weir.open_descriptors(worker) <= without).then_some(())
                    });
                }
                // Surplus bytes answer no request, and their connection is not used again.
                let after = weir.get(&format!("{place}/x")).text();
                assert!(after.starts_with("connection ") && after != before, "{path}: {after}");
            }
        }
    });
}

/// POST is not sent again: a connection whose end has come must not take it.
#[test]
fn servers_that_close_a_kept_connection() {
    each_driver(|driver| {
        // The n-th connection: so many answers, and its end so much later.
        const LIVES: [(u32, Duration); 2] =
            [(1, Duration::ZERO), (2, Duration::from_millis(2_500))];
        let (tell, closed) = channel();
        let b = Scripted::start(move |mut s, n| {
            let (answers, pause) = LIVES[(n - 1) % LIVES.len()];
            for _ in 0..answers {
                if read_until(&mut s, head_ends).is_none() {
                    return;
                }
                let kept = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                if s.write_all(kept).is_err() {
                    return;
                }
            }
            std::thread::sleep(pause);
            drop(s);
            let _ = tell.send(());
        });
        let weir = Site::new(built_binary(), driver)
            .http(&format!(
                "upstream behind {{ server 127.0.0.1:{}; keepalive 8; }}
                 server {{ listen 127.0.0.1:%PORT0%; location / {{ proxy_pass http://behind; }} }}",
                b.port
            ))
            .start();
        let worker = weir.workers()[0];
        let without = weir.open_descriptors(worker);
        for (answers, _) in LIVES {
            for _ in 0..answers {
                assert_eq!(weir.request("POST", "/", "").status, 200);
            }
            closed.recv().unwrap();
            wait_for("the end of the kept connection", || {
                (weir.open_descriptors(worker) <= without).then_some(())
            });
        }
        assert_eq!(weir.request("POST", "/", "").status, 200);
    });
}

/// A small file system; gone when this is dropped.
struct Small(PathBuf);

impl Small {
    /// Mounts `what` (a size for tmpfs, or an image of ext4) on a folder.
    fn mount(at: PathBuf, ext4: bool) -> Result<Small, String> {
        std::fs::create_dir_all(&at).map_err(|e| e.to_string())?;
        let run = |program: &str, args: &[&str]| {
            let out = Command::new(program).args(args).output().map_err(|e| e.to_string())?;
            match out.status.success() {
                true => Ok(()),
                false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
            }
        };
        let to = at.to_string_lossy().into_owned();
        if !ext4 {
            run("mount", &["-t", "tmpfs", "-o", "size=128k,mode=777", "weir-test", &to])?;
            return Ok(Small(at));
        }
        let image = at.with_extension("img");
        let file = std::fs::File::create(&image).map_err(|e| e.to_string())?;
        file.set_len(1 << 20).map_err(|e| e.to_string())?;
        let image = image.to_string_lossy().into_owned();
        run("mkfs.ext4", &["-q", "-m", "0", "-O", "^has_journal", &image])?;
        run("mount", &["-o", "loop", &image, &to])?;
        let small = Small(at);
        run("chmod", &["777", &to])?;
        Ok(small)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Needs the right to mount; where that is not to be had, it says so and passes (a file system of
/// the tests' own plays the same in `disk_faults`).
#[test]
fn a_full_disk_under_temporary_files() {
    const BIG: usize = 8_000_000;
    let b = Scripted::start(|mut s, _| {
        while let Some(asked) = read_until(&mut s, head_ends) {
            let big = asked.starts_with(b"GET /big");
            let body = if big { "x".repeat(BIG) } else { "small".to_owned() };
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            if s.write_all((head + &body).as_bytes()).is_err() {
                return;
            }
        }
    });
    let (mounted, faults) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for ext4 in [false, true] {
        each_driver(|driver| {
            // One each: room that another gives back would be usable again.
            let (id, name) = (std::process::id(), driver.name());
            let own = std::env::temp_dir().join(format!("weir-full-{id}-{ext4}-{name}"));
            let small = match Small::mount(own.clone(), ext4) {
                Ok(small) => small,
                Err(e) => {
                    eprintln!("SKIPPED: no file system can be mounted here: {e}");
                    return;
                }
            };
            let weir = Site::new(built_binary(), driver)
                .http(&format!(
                    "client_body_temp_path {0}/body; proxy_temp_path {0}/proxy;
                     client_max_body_size 0; client_body_buffer_size 8k;
                     server {{ listen 127.0.0.1:%PORT0% sndbuf=16k;
                         location / {{ proxy_pass http://127.0.0.1:{1}; }} }}",
                    own.display(),
                    b.port
                ))
                .start();
            let full = "(28: No space left on device)";
            // A request's body.
            let mut c = weir.connect();
            c.send(format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {BIG}\r\n\r\n"));
            let _ = c.try_send(vec![b'y'; 4 << 20]);
            assert_eq!(c.response().status, 500);
            let line = weir.wait_for_log("error.log", full);
            assert!(line.contains("[crit]") && line.contains("pwritev()"), "{line}");
            // A response that its client does not take.
            let mut c: Conn = weir.connect();
            c.send("GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(weir.get("/small").text(), "small", "others go on");
            // Bytes that fit no file stay in the buffers, and the rest with the server.
            let whole = c.response();
            assert_eq!((whole.status, whole.body.len()), (200, BIG));
            assert!(whole.body.iter().all(|b| *b == b'x'));
            // A client that reads fast enough needs no file.
            let line = format!("{full} while reading upstream");
            faults.fetch_add(weir.error_log().matches(&line).count(), Ordering::Relaxed);
            mounted.fetch_add(1, Ordering::Relaxed);
            assert_eq!(weir.get("/small").text(), "small");
            let left = weir.files_below(&own.to_string_lossy());
            assert!(left.iter().all(|name| !name.contains("/body/") && !name.contains("/proxy/")));
            drop(small);
            let _ = std::fs::remove_dir(&own);
            let _ = std::fs::remove_file(own.with_extension("img"));
        });
    }
    assert!(mounted.into_inner() == 0 || faults.into_inner() > 0, "no client was too slow");
}

/// Pages of many parts, each from the server behind: few clients make many connections there.
#[test]
fn ten_thousand_connections_to_servers() {
    const PARTS: usize = 40;
    const PAGES: usize = 252;
    let all = PARTS * PAGES;
    let (_, most) = os::limits::get_both(os::limits::Limit::NoFile);
    assert!(most >= 12_000, "the limit of descriptors is {most}: at least 12,000 are needed");
    os::limits::set(os::limits::Limit::NoFile, most).expect("a limit may be taken");
    for driver in [Driver::Epoll, Driver::Uring] {
        let chosen = std::env::var("WEIR_TEST_DRIVERS").unwrap_or_default();
        if !chosen.is_empty() && !chosen.split(',').any(|name| name == driver.name()) {
            continue;
        }
        let (listener, port) = listener();
        let page = "<!--#include virtual=\"/up\" -->".repeat(PARTS);
        let weir = Site::new(built_binary(), driver)
            .file("html/page.html", page)
            .config(&format!(
                "worker_processes 1; worker_rlimit_nofile {most};
                 events {{ worker_connections 12000; }}
                 http {{ access_log off; proxy_read_timeout 120s;
                     server {{ listen 127.0.0.1:%PORT0%;
                         location /page.html {{ root html; ssi on; }}
                         location /up {{ proxy_pass http://127.0.0.1:{port}; }} }} }}"
            ))
            .start();
        // All are there at once: none is answered before the last has come.
        let held = Arc::new(Mutex::new(Vec::with_capacity(all)));
        let taking = held.clone();
        let taker = std::thread::spawn(move || {
            for stream in listener.incoming().take(all) {
                taking.lock().expect("no panic").push(stream.expect("a connection"));
            }
        });
        let mut clients: Vec<Conn> = (0..PAGES).map(|_| weir.connect()).collect();
        for c in &mut clients {
            c.set_patience(Duration::from_secs(60));
            c.send("GET /page.html HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        }
        let began = Instant::now();
        while held.lock().expect("no panic").len() < all {
            assert!(began.elapsed() < Duration::from_secs(60), "connections do not come");
            std::thread::sleep(Duration::from_millis(20));
        }
        taker.join().expect("no panic");
        let worker = weir.workers()[0];
        assert!(weir.open_descriptors(worker) > all, "they are all open");
        for mut s in held.lock().expect("no panic").drain(..) {
            assert!(read_until(&mut s, head_ends).is_some(), "a request on each");
            s.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n+").expect("it is read");
        }
        for c in &mut clients {
            let response = c.response();
            assert_eq!((response.status, response.text()), (200, "+".repeat(PARTS)));
        }
        wait_for("descriptors to be closed", || {
            (weir.open_descriptors(worker) < 200).then_some(())
        });
    }
}

/// A server is done with a response when that is in a file, however slow the client is.
#[test]
fn a_client_that_does_not_read_keeps_no_server() {
    const LONG: usize = 24_000_000;
    each_driver(|driver| {
        let (sent, all_sent) = channel();
        let sent = Mutex::new(sent);
        let b = Scripted::start(move |mut s, _| {
            while read_until(&mut s, head_ends).is_some() {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n");
                if s.write_all((head + &"x".repeat(LONG)).as_bytes()).is_err() {
                    return;
                }
                let _ = sent.lock().expect("no panic").send(());
            }
        });
        let weir = Site::new(built_binary(), driver)
            .http(&format!(
                "server {{ listen 127.0.0.1:%PORT0% sndbuf=16k;
                     location / {{ proxy_pass http://127.0.0.1:{0}; }}
                     location /gzip {{ proxy_pass http://127.0.0.1:{0}; gzip on; gzip_types *; }} }}",
                b.port
            ))
            .start();
        for (path, fields) in [("/", ""), ("/gzip", "Accept-Encoding: gzip\r\n")] {
            let mut c: Conn = weir.connect();
            c.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n"));
            all_sent.recv_timeout(PATIENCE).expect("the server gets rid of all of it");
            let all = c.read_to_end();
            assert!(all.starts_with(b"HTTP/1.1 200 ") && (path != "/" || all.len() > LONG));
        }
    });
}
