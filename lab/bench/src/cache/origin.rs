//! An origin whose answers identify themselves, line by line: the object, the fetch of it, and the
//! position in the body. An answer made of two, or cut, shows.
//!
//! `/NUMBER` is an object. Its length is the same in each fetch or not, as the load chooses.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Outcome;

/// The making of an answer.
#[derive(Clone, Copy)]
pub struct Manner {
    /// Before the first byte.
    pub delay: Duration,
    /// Bytes that are written at once, and the pause between two writes.
    pub piece: usize,
    pub pause: Duration,
    /// Its freshness lifetime, seconds.
    pub max_age: u64,
    /// Every third object comes in chunks.
    pub chunked: bool,
    /// The length of an object, in its how-manieth fetch.
    pub len: fn(u64, u64) -> usize,
}

impl Manner {
    /// At once and as a whole, `len` bytes each.
    pub const fn plain(len: fn(u64, u64) -> usize) -> Manner {
        let (delay, pause) = (Duration::ZERO, Duration::ZERO);
        Manner { delay, piece: usize::MAX, pause, max_age: 3600, chunked: false, len }
    }
}

/// The requests that it saw.
pub struct Seen {
    began: Instant,
    /// Requests.
    pub fetches: AtomicU64,
    /// When the last write of the last answer began, nanoseconds since `began`.
    last_ns: AtomicU64,
    over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Seen {
    /// Milliseconds since it began: what `X-Time` of an answer says.
    pub fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// When the last write of the last answer began.
    pub fn last(&self) -> Instant {
        self.began + Duration::from_nanos(self.last_ns.load(Ordering::Acquire))
    }
}

/// The server: a thread for each connection. It ends when it is dropped.
pub struct Origin {
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// The requests that it saw.
    pub seen: Arc<Seen>,
}

const LINE: usize = 32;

/// The number of tags: an object has that of its number modulo this.
pub const TAGS: u64 = 7;

/// The line at a place of a body: `OBJECT FETCH PLACE`, in hexadecimal.
fn line(object: u64, fetch: u64, at: u64) -> [u8; LINE] {
    let mut out = [b' '; LINE];
    let mut put = |from: usize, to: usize, mut n: u64| {
        for byte in out[from..to].iter_mut().rev() {
            *byte = b"0123456789abcdef"[(n & 15) as usize];
            n >>= 4;
        }
    };
    put(0, 8, object);
    put(9, 17, fetch);
    put(18, 31, at);
    out[31] = b'\n';
    out
}

/// The body of an object's fetch.
pub fn body(object: u64, fetch: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + LINE);
    while out.len() < len {
        out.extend_from_slice(&line(object, fetch, out.len() as u64));
    }
    out.truncate(len);
    out
}

/// Whether a body is that of an object's fetch, whole.
pub fn is_body(object: u64, fetch: u64, body: &[u8], len: usize) -> bool {
    body.len() == len
        && body
            .chunks(LINE)
            .enumerate()
            .all(|(i, part)| line(object, fetch, (i * LINE) as u64).starts_with(part))
}

impl Origin {
    /// One that listens.
    pub fn start(manner: Manner) -> Outcome<Origin> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .map_err(|e| format!("the origin's port: {e}"))?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let seen = Arc::new(Seen {
            began: Instant::now(),
            fetches: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            over: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let all = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if all.over.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(copy) = stream.try_clone() {
                    let mut open = all.open.lock().unwrap_or_else(PoisonError::into_inner);
                    open.retain(|s| s.peer_addr().is_ok());
                    open.push(copy);
                }
                let seen = all.clone();
                std::thread::spawn(move || {
                    let _ = serve(&stream, manner, &seen);
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        Ok(Origin { port, seen })
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.seen.over.store(true, Ordering::Release);
        let open = self.seen.open.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in open.iter() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        drop(open);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// The object that a request's path names.
fn object(head: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(head).ok()?;
    let path = text.split(' ').nth(1)?;
    path.rsplit('/').next()?.parse().ok()
}

fn serve(mut stream: &TcpStream, manner: Manner, seen: &Seen) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut got, mut page) = (Vec::new(), [0; 4096]);
    loop {
        let end = loop {
            if let Some(end) = got.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            match stream.read(&mut page)? {
                0 => return Ok(()),
                n => got.extend_from_slice(&page[..n]),
            }
        };
        let Some(object) = object(&got[..end]) else {
            // The question whether the server is there, where all it does is pass requests on.
            stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n1\n")?;
            return Ok(());
        };
        let closes = got[..end].windows(17).any(|w| w == b"Connection: close");
        got.drain(..end);
        let fetch = seen.fetches.fetch_add(1, Ordering::AcqRel) + 1;
        std::thread::sleep(manner.delay);
        answer(stream, object, fetch, manner, seen)?;
        if closes {
            return Ok(());
        }
    }
}

fn answer(
    mut stream: &TcpStream,
    object: u64,
    fetch: u64,
    manner: Manner,
    seen: &Seen,
) -> std::io::Result<()> {
    let len = (manner.len)(object, fetch);
    let chunked = manner.chunked && object.is_multiple_of(3);
    let framing = match chunked {
        true => "Transfer-Encoding: chunked".to_string(),
        false => format!("Content-Length: {len}"),
    };
    let mut out = format!(
        "HTTP/1.1 200 OK\r\nX-Fetch: {fetch}\r\nX-Length: {len}\r\nETag: \"{fetch}\"\r\n\
         X-Time: {}\r\nCache-Tag: tag{}\r\nCache-Control: max-age={}\r\n{framing}\r\n\r\n",
        seen.now_ms(),
        object % TAGS,
        manner.max_age
    )
    .into_bytes();
    let body = body(object, fetch, len);
    let mut pieces = body.chunks(manner.piece.min(len.max(1))).peekable();
    while let Some(piece) = pieces.next() {
        if chunked {
            out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        }
        out.extend_from_slice(piece);
        if chunked {
            out.extend_from_slice(b"\r\n");
        }
        if pieces.peek().is_some() {
            stream.write_all(&out)?;
            out.clear();
            std::thread::sleep(manner.pause);
        }
    }
    if chunked {
        out.extend_from_slice(b"0\r\n\r\n");
    }
    seen.last_ns.store(seen.began.elapsed().as_nanos() as u64, Ordering::Release);
    stream.write_all(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_tell_what_they_are() {
        let whole = body(7, 2, 1000);
        assert_eq!(whole.len(), 1000);
        assert!(is_body(7, 2, &whole, 1000));
        assert!(!is_body(7, 3, &whole, 1000) && !is_body(8, 2, &whole, 1000), "another one's");
        assert!(!is_body(7, 2, &whole[..999], 1000), "cut");
        let mut mixed = body(7, 1, 512);
        mixed.extend_from_slice(&whole[512..]);
        assert!(!is_body(7, 2, &mixed, 1000), "mixed");
        assert_eq!(object(b"GET /a/12 HTTP/1.0\r\n"), Some(12));
    }
}
