//! Other ways of proxied requests: files, tunnels, hints; and peers that go away half-way.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testkit::wait_for;
use testkit::{
    Backend, Driver, Peer, Scripted, Site, Weir, built_binary, on_all_drivers, read_until,
};

fn site(driver: Driver, port: u16, http: &str, locations: &str) -> Weir {
    let text = format!("{http} server {{ listen 127.0.0.1:%PORT0% sndbuf=32k; {locations} }}");
    let text = text.replace("%UP%", &format!("127.0.0.1:{port}"));
    Site::new(built_binary(), driver).file("html/a.txt", "from the file").http(&text).start()
}

fn head_ends(bytes: &[u8]) -> bool {
    bytes.ends_with(b"\r\n\r\n")
}

#[test]
fn responses_kept_as_files() {
    on_all_drivers(|driver| {
        let b = Scripted::start(|mut s, _| {
            while let Some(asked) = read_until(&mut s, head_ends) {
                let path =
                    String::from_utf8_lossy(&asked).split(' ').nth(1).unwrap_or("").to_owned();
                let date = "Last-Modified: Thu, 01 Jan 2015 00:00:00 GMT\r\n";
                let (status, len, body) = match path.as_str() {
                    "/gone" => ("404 Not Found", 4, "gone"),
                    "/short" => ("200 OK", 10, "short"),
                    "/empty" => ("200 OK", 0, ""),
                    _ => ("200 OK", 400_000, ""),
                };
                let mut out =
                    format!("HTTP/1.1 {status}\r\n{date}Content-Length: {len}\r\n\r\n{body}");
                if len == 400_000 {
                    out.push_str(&"x".repeat(200_000));
                    if s.write_all(out.as_bytes()).is_err() {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                    out = "y".repeat(200_000);
                }
                if s.write_all(out.as_bytes()).is_err() || path == "/short" {
                    return;
                }
            }
        });
        let weir = site(
            driver,
            b.port,
            "proxy_store_access user:rw group:r;",
            "location / { root html/kept; proxy_pass http://%UP%; proxy_store on; }
             location /named/ { proxy_pass http://%UP%; proxy_store %PREFIX%/html/n$uri.f; }
             location /off/ { root html; proxy_pass http://%UP%; proxy_store off; }",
        );
        let html = weir.prefix().join("html");
        // Workers may run as another user.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&html, open).expect("the folder is ours");
        let kept = |path: &str| std::fs::read(html.join(path)).ok();
        assert_eq!(weir.get("/a/b/c").body.len(), 400_000);
        let file = kept("kept/a/b/c").expect("kept when the client has all of it");
        assert!(
            file[..200_000].iter().all(|b| *b == b'x')
                && file[200_000..].iter().all(|b| *b == b'y')
        );
        let facts = std::fs::metadata(html.join("kept/a/b/c")).expect("it is there");
        let mode = std::os::unix::fs::PermissionsExt::mode(&facts.permissions());
        assert_eq!(mode & 0o777, 0o640);
        let changed = facts.modified().expect("a time").duration_since(std::time::UNIX_EPOCH);
        assert_eq!(changed.expect("after 1970").as_secs(), 1_420_070_400);
        assert_eq!(weir.get("/empty").status, 200);
        assert_eq!(kept("kept/empty").as_deref(), Some(&b""[..]));
        assert_eq!(weir.get("/named/z").status, 200);
        assert_eq!(kept("n/named/z.f").map(|f| f.len()), Some(400_000));
        // Not all of it, not a 200, not asked for, only the head.
        weir.raw("GET /short HTTP/1.1\r\nHost: a\r\n\r\n");
        weir.get("/gone");
        weir.get("/off/z");
        for path in ["kept/short", "kept/gone", "off/z"] {
            assert_eq!(kept(path), None, "{path}");
        }
        // A client that goes away does not end it.
        let mut c = weir.connect();
        c.send("GET /left HTTP/1.1\r\nHost: a\r\n\r\n");
        c.read_exact(1000);
        drop(c);
        wait_for("the file of a response whose client went", || {
            kept("kept/left").filter(|f| f.len() == 400_000)
        });
        let left: Vec<_> = walk(&weir.prefix().join("proxy_temp"));
        assert!(left.is_empty(), "{left:?}");
    });
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    entries.flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] }).collect()
}

#[test]
fn tunnels_and_hints() {
    on_all_drivers(|driver| {
        let b = Backend::start();
        let weir = site(
            driver,
            b.port,
            "server { listen 127.0.0.1:%PORT1%; location / { return 200 plain; } }",
            "error_page 502 =502 /a.txt;
             location / { tunnel_pass; tunnel_read_timeout 1s; }
             location = /a.txt { root html; }",
        );
        let connect = |to: &str, version: &str| {
            let mut c = weir.connect();
            c.send(format!("CONNECT {to} HTTP/{version}\r\nHost: {to}\r\n\r\n"));
            c
        };
        let up = format!("127.0.0.1:{}", b.port);
        let mut c = connect(&up, "1.1");
        let head = String::from_utf8_lossy(&c.read_until(b"\r\n\r\n")).into_owned();
        assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("chunked"), "{head}");
        assert!(!head.contains("Content-Length"), "{head}");
        for n in 0..3 {
            c.send(format!("GET /in-{n} HTTP/1.1\r\nHost: b\r\n\r\n"));
            assert!(c.response().text().starts_with(&format!("GET /in-{n} HTTP/1.1\r\n")));
        }
        // The silence ends it.
        assert!(c.read_to_end().is_empty());
        weir.wait_for_log("error.log", "upstream timed out (110: Connection timed out) while");
        let dead = testkit::Port::reserve();
        let r = connect(&format!("127.0.0.1:{}", dead.number()), "1.1").response();
        assert_eq!((r.status, r.text().as_str()), (502, "from the file"));
        assert_eq!(connect(&up, "1.0").response().status, 405);
        let mut other = testkit::Conn::tcp(weir.port(1));
        other.send(format!("CONNECT {up} HTTP/1.1\r\nHost: {up}\r\n\r\n"));
        assert_eq!(other.response().status, 405);
        assert_eq!(weir.get("/").status, 405);
    });
    on_all_drivers(|driver| {
        let b = Backend::start();
        let weir = site(
            driver,
            b.port,
            "",
            "location / { proxy_pass http://%UP%; early_hints $arg_hints; proxy_hide_header X-No; }",
        );
        let get = |path: &str, version: &str| {
            let head = format!("GET {path} HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n");
            String::from_utf8_lossy(&weir.raw(head)).into_owned()
        };
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n";
        assert!(get("/two-heads?hints=1", "1.1").starts_with(hints));
        for (path, version) in
            [("/two-heads?hints=0", "1.1"), ("/two-heads", "1.1"), ("/two-heads?hints=1", "1.0")]
        {
            let got = get(path, version);
            assert!(!got.contains("103") && got.ends_with("after hints"), "{got}");
        }
    });
}

const ECHO: &str = "
import asyncio, sys, websockets
async def echo(ws, *_):
    async for message in ws:
        await ws.send(message)
async def main():
    async with websockets.serve(echo, '127.0.0.1', %PORT%):
        await asyncio.Future()
asyncio.run(main())
";

const CLIENT: &str = "
import asyncio, sys, websockets
async def main(port):
    async with websockets.connect('ws://127.0.0.1:%d/ws' % port, max_size=None) as ws:
        for message in ['hello', 'x' * 100000, bytes(range(256)) * 4096, '']:
            await ws.send(message)
            assert await ws.recv() == message
        await ws.ping()
    print('fine')
asyncio.run(main(int(sys.argv[1])))
";

#[test]
fn websockets() {
    let peer =
        Peer::start("python3", "python3-websockets", &[("echo.py", ECHO)], &["%DIR%/echo.py"]);
    on_all_drivers(|driver| {
        let weir = site(
            driver,
            peer.port(),
            "map $http_upgrade $up { default upgrade; '' close; }",
            "location / { proxy_pass http://%UP%; proxy_set_header Upgrade $http_upgrade;
                          proxy_set_header Connection $up; }",
        );
        let port = weir.port(0).to_string();
        let out =
            std::process::Command::new("/usr/bin/python3").args(["-c", CLIENT, &port]).output();
        let out = out.expect("python3 runs");
        let (said, failed) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!(said.trim(), "fine", "{failed}");
    });
}

#[test]
fn silent_tunnels() {
    let peer = Scripted::start(|mut s, _| {
        if read_until(&mut s, head_ends).is_none() {
            return;
        }
        let head = "HTTP/1.1 101 Go on\r\nConnection: upgrade\r\nUpgrade: own\r\n\r\n";
        let _ = s.write_all(head.as_bytes());
        let mut page = [0; 1000];
        // Echoes the bytes it gets, and sends nothing of its own.
        while let Ok(n @ 1..) = s.read(&mut page) {
            if s.write_all(&page[..n]).is_err() {
                return;
            }
        }
    });
    on_all_drivers(|driver| {
        let weir = site(
            driver,
            peer.port,
            "log_format moved '$status $upstream_bytes_sent $upstream_response_length';",
            "access_log logs/moved.log moved; proxy_read_timeout 2s;
             location / { proxy_pass http://%UP%; proxy_set_header Upgrade $http_upgrade;
                          proxy_set_header Connection upgrade; }",
        );
        let mut c = weir.connect();
        c.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: own\r\n\r\n");
        assert!(c.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 101 "));
        // Each message keeps it alive, for longer than it may be silent.
        for i in 0..6 {
            c.send(format!("message {i}"));
            assert_eq!(c.read_exact(9), format!("message {i}").into_bytes());
            std::thread::sleep(Duration::from_millis(400));
        }
        assert_eq!(c.read_to_end(), b"");
        weir.wait_for_log(
            "error.log",
            "upstream timed out (110: Connection timed out) while proxying upgraded connection",
        );
        let line = weir.wait_for_log("moved.log", "101 ");
        // The bytes sent include the request's head before the messages.
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let [101, sent, received] = numbers[..] else { panic!("{line}") };
        assert!(sent > 54 && received >= 54, "{line}");
    });
}

/// The place at which a server breaks off, and the way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Close,
    Reset,
    Stall,
}

/// Ends a connection in the given way.
fn break_off(s: &TcpStream, fault: Fault) {
    match fault {
        Fault::Close => {}
        // Unread bytes at a socket's close make the kernel reset it.
        Fault::Reset => {
            let _ = os::socket::set_reset_on_close(s);
        }
        Fault::Stall => std::thread::sleep(Duration::from_millis(1500)),
    }
}

#[test]
fn servers_that_break_off_anywhere() {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789";
    const HEAD: usize = ANSWER.len() - 10;
    on_all_drivers(|driver| {
        let served = Arc::new(AtomicUsize::new(0));
        let count = served.clone();
        let good = Scripted::start(move |mut s, _| {
            while read_until(&mut s, head_ends).is_some() {
                count.fetch_add(1, Ordering::Relaxed);
                if s.write_all(ANSWER).is_err() {
                    return;
                }
            }
        });
        let bad = Scripted::start(|mut s, _| {
            // Answers well until it is told how to err: `/FAULT-AT`.
            while let Some(asked) = read_until(&mut s, head_ends) {
                let text = String::from_utf8_lossy(&asked);
                let path = text.split(' ').nth(1).unwrap_or_default();
                let (fault, at) = path[1..].split_once('-').unwrap_or(("", ""));
                let fault = match fault {
                    "Close" => Fault::Close,
                    "Reset" => Fault::Reset,
                    "Stall" => Fault::Stall,
                    _ => {
                        let _ = s.write_all(ANSWER);
                        continue;
                    }
                };
                let at = at.parse().unwrap_or(0);
                let _ = s.write_all(&ANSWER[..at]);
                return break_off(&s, fault);
            }
        });
        let weir = site(
            driver,
            bad.port,
            &format!(
                "upstream pair {{ server %UP% max_fails=0; server 127.0.0.1:{} backup; keepalive 4; }}
                 proxy_read_timeout 300ms;",
                good.port
            ),
            "location / { proxy_pass http://pair; }",
        );
        for fault in [Fault::Close, Fault::Reset, Fault::Stall] {
            for at in [0, 1, 8, 20, HEAD - 1, HEAD, HEAD + 1, HEAD + 9] {
                // Over a new connection and over a kept one.
                weir.get("/warm");
                let before = served.load(Ordering::Relaxed);
                let got = weir.raw(format!(
                    "GET /{fault:?}-{at} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
                ));
                let got = String::from_utf8_lossy(&got).into_owned();
                let retried = served.load(Ordering::Relaxed) > before;
                assert_eq!(retried, at < HEAD, "{fault:?} {at}: {got}");
                match retried {
                    true => assert!(got.ends_with("\r\n\r\n0123456789"), "{fault:?} {at}: {got}"),
                    // Half an answer is never passed off as one.
                    false => assert!(!got.ends_with("0123456789"), "{fault:?} {at}: {got}"),
                }
                // Not repeated where that might do it twice.
                let before = served.load(Ordering::Relaxed);
                let head = "Host: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                weir.raw(format!("POST /{fault:?}-{at} HTTP/1.1\r\n{head}"));
                assert_eq!(served.load(Ordering::Relaxed), before, "POST {fault:?} {at}");
            }
        }
    });
}

#[test]
fn a_full_folder_for_temporary_files() {
    // A file system of a few kilobytes needs rights; a limit on the size of files does as well.
    let b = Backend::start();
    let weir = Site::new(built_binary(), Driver::usual())
        .file("proxy_temp", "not a folder")
        .allow("proxy_temp")
        .http(&format!(
            "server {{ listen 127.0.0.1:%PORT0% sndbuf=16k;
                 location / {{ proxy_pass http://127.0.0.1:{}; proxy_temp_path %PREFIX%/proxy_temp/x; }}
                 location /a.txt {{ return 200 alive; }} }}",
            b.port
        ));
    let out = weir.run(&["-t"]);
    assert!(!out.status.success(), "a folder that cannot be made is found at start");
    drop(weir);
    let weir = site(Driver::usual(), b.port, "", "location / { proxy_pass http://%UP%; }");
    let folder = weir.prefix().join("proxy_temp");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::write(&folder, "in the way").expect("a file in the folder's place");
    let mut c = weir.connect();
    c.send("GET /big?12000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    weir.wait_for_log("error.log", "proxy_temp");
    assert_eq!(c.response().body.len(), 12_000_000, "the server is read at the client's pace");
    assert_eq!(weir.get("/next").status, 200);
}

/// Reads and drops.
fn drain(mut s: TcpStream) {
    let mut page = [0; 65536];
    while matches!(s.read(&mut page), Ok(1..)) {}
}

#[test]
fn servers_that_take_no_more() {
    on_all_drivers(|driver| {
        let b = Scripted::start(|mut s, n| {
            let _ = read_until(&mut s, |b| b.windows(4).any(|w| w == b"\r\n\r\n"));
            match n {
                // Answers early and closes: the answer counts.
                1 => {
                    let _ = s.write_all(
                        b"HTTP/1.1 413 Enough\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                    );
                    drain(s);
                }
                // Takes nothing more.
                _ => std::thread::sleep(Duration::from_millis(1500)),
            }
        });
        let weir = site(
            driver,
            b.port,
            "client_max_body_size 0; proxy_send_timeout 300ms; proxy_read_timeout 300ms;
             client_body_buffer_size 16m;",
            "location / { proxy_pass http://%UP%; }",
        );
        let post = || {
            let mut c = weir.connect();
            c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n");
            c.send(vec![b'b'; 8_000_000]);
            c.response().status
        };
        assert_eq!(post(), 413);
        assert_eq!(post(), 504);
    });
}
