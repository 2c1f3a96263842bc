//! The clients of `overload`: each has an address and a thread, asks, waits for the answer, and
//! asks again, on the same connection while the server keeps it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::client::connect_from;

/// The request of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// A page that the server sends within a second.
    Held,
    /// The same from the server behind.
    Passed,
    /// Sends a body of [`BODY`] bytes within a second or more.
    Upload,
    /// Reads [`super::LONG`] bytes of the server behind within a second or more.
    SlowRead,
}

/// A body, bytes: it fits the server's buffer.
const BODY: usize = 200 << 10;
/// Pieces of a slow body or of a slow read, and the pause between them.
const PIECES: usize = 8;
const PAUSE: Duration = Duration::from_millis(125);
/// A client that was refused or failed asks again after this time.
const RETRY: Duration = Duration::from_millis(500);
/// The limit of an answer; a client that is told to leave does so within [`POLL`].
const PATIENCE: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(100);
/// Thousands of threads.
const STACK: usize = 128 << 10;

/// How requests ended.
#[derive(Default)]
pub struct Counts {
    /// Answered with 200, to the last byte.
    pub good: AtomicU64,
    /// Answered with 503.
    pub refused: AtomicU64,
    /// Answered with another status.
    pub errors: AtomicU64,
    /// Closed or reset.
    pub cut: AtomicU64,
    /// Not connected, or not answered in time.
    pub late: AtomicU64,
}

impl Counts {
    /// All of them now.
    pub fn now(&self) -> [u64; 5] {
        [&self.good, &self.refused, &self.errors, &self.cut, &self.late]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

/// Clients that run until they are told to leave.
pub struct Crowd {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// Starts them, spread over a second; `first` is the number of the first one's address.
    pub fn start(
        port: u16,
        ask: Ask,
        numbers: std::ops::Range<usize>,
        counts: &Arc<Counts>,
    ) -> Outcome<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let all = numbers.len().max(1) as u32;
        let first = numbers.start;
        let threads = numbers
            .map(|number| {
                let (stop, counts) = (Arc::clone(&stop), Arc::clone(counts));
                let begins = Duration::from_secs(1) * (number - first) as u32 / all;
                std::thread::Builder::new().stack_size(STACK).spawn(move || {
                    std::thread::sleep(begins);
                    Client { port, ask, number, stop: &stop, counts: &counts, kept: None }.run();
                })
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| format!("a thread for each client: {e}"))?;
        Ok(Self { stop, threads })
    }

    /// Has all of them close their connections; returns when they have.
    pub fn leave(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

struct Client<'a> {
    port: u16,
    ask: Ask,
    number: usize,
    stop: &'a AtomicBool,
    counts: &'a Counts,
    kept: Option<TcpStream>,
}

/// How a request failed.
enum Failed {
    Left,
    /// Closed or reset after so many bytes of the answer.
    Cut(usize),
    Late,
}

impl Client<'_> {
    fn run(&mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let was_kept = self.kept.is_some();
            let mut ended = self.exchange();
            if was_kept && matches!(ended, Err(Failed::Cut(0))) {
                // The server closed the kept connection: a client asks again.
                ended = self.exchange();
            }
            let count = match ended {
                Ok(200) => &self.counts.good,
                Ok(503) => &self.counts.refused,
                Ok(_) => &self.counts.errors,
                Err(Failed::Cut(_)) => &self.counts.cut,
                Err(Failed::Late) => &self.counts.late,
                Err(Failed::Left) => return,
            };
            count.fetch_add(1, Ordering::Relaxed);
            if !matches!(ended, Ok(200)) {
                std::thread::sleep(RETRY);
            }
        }
    }

    fn exchange(&mut self) -> Result<u16, Failed> {
        let mut stream = match self.kept.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let host = "Host: localhost\r\n\r\n";
        let begun = match self.ask {
            Ask::Held => stream.write_all(format!("GET /held/3k HTTP/1.1\r\n{host}").as_bytes()),
            Ask::Passed => {
                stream.write_all(format!("GET /passed/held/3k HTTP/1.1\r\n{host}").as_bytes())
            }
            Ask::SlowRead => {
                stream.write_all(format!("GET /passed/long HTTP/1.1\r\n{host}").as_bytes())
            }
            Ask::Upload => stream.write_all(
                format!("POST /passed/taken HTTP/1.1\r\nContent-Length: {BODY}\r\n{host}")
                    .as_bytes(),
            ),
        };
        let mut sent = begun;
        if self.ask == Ask::Upload {
            for _ in 0..PIECES {
                self.stay()?;
                std::thread::sleep(PAUSE);
                sent = sent.and_then(|()| stream.write_all(&[b'x'; BODY / PIECES]));
            }
        }
        // What was not taken may have been answered all the same.
        let (status, keep) = self.answer(&mut stream).map_err(|failed| match failed {
            Failed::Late if sent.is_err() => Failed::Cut(0),
            other => other,
        })?;
        if keep && sent.is_ok() {
            self.kept = Some(stream);
        }
        Ok(status)
    }

    fn stay(&self) -> Result<(), Failed> {
        if self.stop.load(Ordering::Relaxed) { Err(Failed::Left) } else { Ok(()) }
    }

    fn connect(&self) -> Result<TcpStream, Failed> {
        let address =
            Ipv4Addr::from_bits(Ipv4Addr::new(127, 2, 0, 1).to_bits() + self.number as u32);
        let stream = connect_from(address, self.port, CONNECT).map_err(|_| Failed::Late)?;
        stream.set_read_timeout(Some(POLL)).map_err(|_| Failed::Late)?;
        if self.ask == Ask::SlowRead {
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 8192);
        }
        Ok(stream)
    }

    /// Reads an answer with a length: its status, and whether the connection is kept.
    fn answer(&self, stream: &mut TcpStream) -> Result<(u16, bool), Failed> {
        let began = Instant::now();
        let (mut got, mut head) = (Vec::new(), None);
        let mut all = 0;
        let mut page = vec![0; 16 << 10];
        let mut piece = 0;
        loop {
            if let Some((status, len, keep)) = head
                && all >= len
            {
                return Ok((status, keep));
            }
            self.stay()?;
            match stream.read(&mut page) {
                Ok(0) => return Err(Failed::Cut(all)),
                Ok(n) => {
                    all += n;
                    piece += n;
                    if head.is_none() {
                        got.extend_from_slice(&page[..n]);
                        head = parse(&got);
                    }
                    if self.ask == Ask::SlowRead && piece >= super::LONG / PIECES {
                        piece = 0;
                        std::thread::sleep(PAUSE);
                    }
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if began.elapsed() > PATIENCE {
                        return Err(Failed::Late);
                    }
                }
                Err(_) => return Err(Failed::Cut(all)),
            }
        }
    }
}

/// The status, the length of head and body, and whether the connection is kept.
fn parse(got: &[u8]) -> Option<(u16, usize, bool)> {
    let end = got.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&got[..end]).to_ascii_lowercase();
    let status = text.split(' ').nth(1)?.parse().ok()?;
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.and_then(|value| value.parse().ok()).unwrap_or(0);
    Some((status, end + length, !text.contains("\r\nconnection: close\r\n")))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn an_answer_has_a_status_a_length_and_an_end() {
        let head = b"HTTP/1.1 503 X\r\nContent-Length: 12\r\nConnection: close\r\n\r\nabc";
        assert_eq!(parse(head), Some((503, head.len() - 3 + 12, false)));
        assert_eq!(parse(&head[..20]), None);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(parse(head), Some((200, head.len(), true)));
    }
}
