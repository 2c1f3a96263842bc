//! Loads of the cache: its promises under trouble. Each is a file here; they share an origin
//! ([`origin`]) and a client that reads every answer to its last byte.

mod disks;
mod full;
mod kills;
mod lock;
mod million;
pub mod origin;
mod purges;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::client::connect;
use crate::server::Setup;

pub use disks::run as disks;
pub use full::run as full;
pub use kills::run as kills;
pub use lock::run as lock;
pub use million::restart;
pub use purges::run as purge;

const CONFIG: &str = include_str!("../../configs/cache.conf");

/// The limit of a client's waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server with a cache in `folder` before an origin. `path` are parameters behind the zone's
/// name, `directives` those of the location.
fn setup(workers: usize, origin: u16, folder: &Path, path: &str, directives: &str) -> Setup {
    Setup {
        template: CONFIG,
        connections: 4096,
        fill: vec![
            ("%WORKERS%", workers.to_string()),
            ("%FOLDER%", folder.display().to_string()),
            ("%PATH%", path.to_string()),
            ("%ORIGIN%", origin.to_string()),
            ("%CACHE%", directives.to_string()),
        ],
        cpus: if workers == 1 { "0" } else { "0-1" },
        ..Setup::default()
    }
}

/// An answer that came whole.
struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    /// A field's value.
    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (n, value) = line.split_once(": ")?;
            n.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    fn is_ok(&self) -> bool {
        self.head.starts_with("HTTP/1.1 200 ")
    }
}

/// Why there is none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// The connection could not be made, or ended before the answer began.
    Unanswered,
    /// It ended within the answer.
    Cut,
    /// Nothing came for too long.
    Stuck,
    /// The bytes are no answer.
    Garbage,
}

/// A client's connection, made when it is needed.
struct Client {
    port: u16,
    stream: Option<TcpStream>,
    got: Vec<u8>,
    page: Vec<u8>,
}

impl Client {
    fn new(port: u16) -> Client {
        Client { port, stream: None, got: Vec::new(), page: vec![0; 128 << 10] }
    }

    /// Asks for a path. The connection is kept where the answer came whole.
    fn get(&mut self, path: &str) -> Result<Answer, Lost> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = self.exchange(request.as_bytes());
        if answer.is_err() {
            self.stream = None;
        }
        answer
    }

    fn exchange(&mut self, request: &[u8]) -> Result<Answer, Lost> {
        self.got.clear();
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(self.port, PATIENCE).map_err(|_| Lost::Unanswered)?,
        };
        stream.write_all(request).map_err(|_| Lost::Unanswered)?;
        let (head, mut at) = loop {
            if let Some(end) = self.got.windows(4).position(|w| w == b"\r\n\r\n") {
                break (String::from_utf8_lossy(&self.got[..end + 2]).into_owned(), end + 4);
            }
            self.more(&mut stream)?;
        };
        let mut answer = Answer { head, body: Vec::new() };
        if let Some(len) = answer.field("Content-Length") {
            let len: usize = len.parse().map_err(|_| Lost::Garbage)?;
            while self.got.len() < at + len {
                self.more(&mut stream)?;
            }
            answer.body.extend_from_slice(&self.got[at..at + len]);
            at += len;
        } else if answer.field("Transfer-Encoding") == Some("chunked") {
            at = self.chunks(&mut stream, at, &mut answer.body)?;
        } else {
            return Err(Lost::Garbage);
        }
        if at != self.got.len() {
            return Err(Lost::Garbage);
        }
        if answer.field("Connection") != Some("close") {
            self.stream = Some(stream);
        }
        Ok(answer)
    }

    fn chunks(
        &mut self,
        stream: &mut TcpStream,
        mut at: usize,
        body: &mut Vec<u8>,
    ) -> Result<usize, Lost> {
        loop {
            let line = loop {
                match self.got[at..].windows(2).position(|w| w == b"\r\n") {
                    Some(end) => break end,
                    None => self.more(stream)?,
                }
            };
            let text = std::str::from_utf8(&self.got[at..at + line]).map_err(|_| Lost::Garbage)?;
            let len = usize::from_str_radix(text, 16).map_err(|_| Lost::Garbage)?;
            at += line + 2;
            while self.got.len() < at + len + 2 {
                self.more(stream)?;
            }
            body.extend_from_slice(&self.got[at..at + len]);
            at += len + 2;
            if len == 0 {
                return Ok(at);
            }
        }
    }

    fn more(&mut self, stream: &mut TcpStream) -> Result<(), Lost> {
        let lost = if self.got.is_empty() { Lost::Unanswered } else { Lost::Cut };
        match stream.read(&mut self.page) {
            Ok(0) => Err(lost),
            Ok(n) => {
                self.got.extend_from_slice(&self.page[..n]);
                Ok(())
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Err(Lost::Stuck),
            Err(_) => Err(lost),
        }
    }
}
