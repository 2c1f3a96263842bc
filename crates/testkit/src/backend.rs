//! A small HTTP server: the path of a request chooses its answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::listener;

/// The server; its threads end with the test's process.
pub struct Backend {
    /// Where it listens.
    pub port: u16,
    /// Connections so far.
    pub connections: Arc<AtomicUsize>,
}

/// A request as it came.
struct Asked {
    head: String,
    body: Vec<u8>,
}

impl Asked {
    fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|l| {
            let (n, v) = l.split_once(": ")?;
            n.eq_ignore_ascii_case(name).then_some(v)
        })
    }
}

impl Backend {
    /// Starts it on a free port.
    pub fn start() -> Backend {
        let (listener, port) = listener();
        let connections = Arc::new(AtomicUsize::new(0));
        let c = connections.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let number = c.fetch_add(1, Ordering::Relaxed) + 1;
                let stream = stream.expect("a test's socket");
                std::thread::spawn(move || serve(stream, number));
            }
        });
        Backend { port, connections }
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Reads until `end`; the bytes behind it stay in `buf`.
fn until(s: &mut TcpStream, buf: &mut Vec<u8>, end: &[u8]) -> Option<Vec<u8>> {
    loop {
        if let Some(i) = buf.windows(end.len()).position(|w| w == end) {
            let rest = buf.split_off(i + end.len());
            return Some(std::mem::replace(buf, rest));
        }
        let mut page = [0; 16384];
        match s.read(&mut page) {
            Ok(0) | Err(_) => return None,
            Ok(n) => buf.extend_from_slice(&page[..n]),
        }
    }
}

fn exactly(s: &mut TcpStream, buf: &mut Vec<u8>, len: usize) -> Option<Vec<u8>> {
    while buf.len() < len {
        let mut page = [0; 16384];
        match s.read(&mut page) {
            Ok(0) | Err(_) => return None,
            Ok(n) => buf.extend_from_slice(&page[..n]),
        }
    }
    let rest = buf.split_off(len);
    Some(std::mem::replace(buf, rest))
}

fn request(s: &mut TcpStream, buf: &mut Vec<u8>) -> Option<Asked> {
    let head = String::from_utf8_lossy(&until(s, buf, b"\r\n\r\n")?).into_owned();
    let mut asked = Asked { head, body: Vec::new() };
    if asked.path() == "/early-413" {
        return Some(asked);
    }
    if asked.field("Transfer-Encoding") == Some("chunked") {
        loop {
            let line = until(s, buf, b"\r\n")?;
            let size = String::from_utf8_lossy(&line);
            let size = usize::from_str_radix(size.trim(), 16).expect("a chunk's size");
            let chunk = exactly(s, buf, size + 2)?;
            asked.body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    } else if let Some(len) = asked.field("Content-Length") {
        let len = len.parse().expect("a length");
        asked.body = exactly(s, buf, len)?;
    }
    Some(asked)
}

fn serve(mut s: TcpStream, number: usize) {
    let mut buf = Vec::new();
    let mut kept = false;
    while let Some(asked) = request(&mut s, &mut buf) {
        if std::mem::replace(&mut kept, true) && asked.path() == "/gone-if-kept" {
            return;
        }
        if !answer(&mut s, &asked, number) {
            return;
        }
    }
}

fn with_body(s: &mut TcpStream, head: &str, body: &[u8]) -> bool {
    let mut out = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    out.extend_from_slice(body);
    s.write_all(&out).is_ok()
}

/// Answers; false: the connection ends.
fn answer(s: &mut TcpStream, asked: &Asked, number: usize) -> bool {
    let path = asked.path().to_owned();
    let arg = path.split_once('?').map(|(_, a)| a).unwrap_or_default();
    match path.split('?').next().unwrap_or_default() {
        "/chunked" => {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n";
            s.write_all(head.as_bytes()).is_ok()
                && s.write_all(b"5\r\nhello\r\n6\r\n world\r\n0\r\nX-T: end\r\n\r\n").is_ok()
        }
        "/till-close" => {
            let _ = s.write_all(b"HTTP/1.0 200 OK\r\n\r\nuntil the end");
            false
        }
        "/short" | "/silent" | "/stalls" | "/bad-chunk" | "/too-much" => answer_badly(s, asked),
        "/gone" => false,
        "/garbage" => {
            let _ = s.write_all(b"HTTP/1.1 200 OK\r\nbad\x01header: x\r\n\r\n");
            false
        }
        "/long-head" => {
            let field = format!("Content-Length: 0\r\nX-Long: {}\r\n", "x".repeat(64 << 10));
            let _ = s.write_all(format!("HTTP/1.1 200 OK\r\n{field}\r\n").as_bytes());
            false
        }
        "/two-heads" => {
            let early = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
            let _ = s.write_all(early.as_bytes());
            with_body(s, "200 OK", b"after hints")
        }
        "/early-413" => {
            let _ = with_body(s, "413 Too Large\r\nConnection: close", b"too large");
            std::thread::sleep(std::time::Duration::from_millis(200));
            false
        }
        "/upgrade" => {
            let head =
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: upgrade\r\n";
            let _ = s.write_all(format!("{head}\r\nwelcome").as_bytes());
            let mut page = [0; 1024];
            while let Ok(n) = s.read(&mut page) {
                if n == 0 || s.write_all(&page[..n].to_ascii_uppercase()).is_err() {
                    break;
                }
            }
            false
        }
        "/close-after" => {
            let _ = with_body(s, "200 OK", b"last one");
            false
        }
        _ => answer_well(s, asked, number, arg),
    }
}

/// Answers that break off, stall, or say too much.
fn answer_badly(s: &mut TcpStream, asked: &Asked) -> bool {
    match asked.path() {
        "/short" => {
            let _ = s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort");
            false
        }
        "/silent" => {
            std::thread::sleep(std::time::Duration::from_secs(5));
            false
        }
        "/stalls" => {
            let _ = s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
            std::thread::sleep(std::time::Duration::from_secs(2));
            false
        }
        "/bad-chunk" => {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n";
            let _ = s.write_all(head.as_bytes());
            false
        }
        "/too-much" => {
            let _ = s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour and more");
            true
        }
        _ => false,
    }
}

/// Answers that are as they should be.
fn answer_well(s: &mut TcpStream, asked: &Asked, number: usize, arg: &str) -> bool {
    match asked.path().split('?').next().unwrap_or_default() {
        "/status" => with_body(s, &format!("{arg} Chosen\r\nX-Up: yes"), b"chosen"),
        "/redirect" => with_body(s, &format!("302 Found\r\nLocation: {arg}"), b""),
        "/cookie" => with_body(s, "200 OK\r\nSet-Cookie: a=b; Path=/one/; Domain=up.example", b""),
        "/needs-name" => {
            with_body(s, "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"up\"", b"")
        }
        "/accel" => with_body(
            s,
            &format!("200 OK\r\nX-Accel-Redirect: {arg}\r\nSet-Cookie: kept=1\r\nX-Lost: 1"),
            b"not shown",
        ),
        "/big" => {
            let n: usize = arg.parse().expect("a number of bytes");
            let body: Vec<u8> = (0..n).map(|i| (i % 251) as u8).collect();
            with_body(s, "200 OK", &body)
        }
        // The request, with the number of its connection.
        _ if asked.head.starts_with("HEAD ") => {
            s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n").is_ok()
        }
        _ => {
            let mut body = asked.head.clone().into_bytes();
            body.extend_from_slice(&asked.body);
            with_body(s, &format!("200 OK\r\nX-Connection: {number}\r\nX-Hidden: 1"), &body)
        }
    }
}
