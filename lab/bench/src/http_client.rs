//! A client of HTTP/1, in the clear or over TLS, that reads answers to their last byte.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::client::connect;
use crate::tls;

/// A connection.
pub trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// An answer that came whole.
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// The lines before the body.
    pub head: String,
    /// The body, without framing.
    pub body: Vec<u8>,
}

impl Answer {
    /// A field's value.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (n, value) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Whether the status is 200.
    pub fn is_ok(&self) -> bool {
        self.status == 200
    }
}

/// Why there is none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// No connection could be made.
    NotConnected,
    /// It ended before the answer began.
    Unanswered,
    /// It ended within the answer.
    Cut,
    /// Nothing came for too long.
    Stuck,
    /// The bytes are no answer.
    Garbage,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lost::NotConnected => "not connected",
            Lost::Unanswered => "closed unanswered",
            Lost::Cut => "cut",
            Lost::Stuck => "stuck",
            Lost::Garbage => "wrong framing",
        })
    }
}

/// A client, which keeps its connection where it may.
pub struct Client {
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    kept: Option<Box<dyn Stream>>,
    got: Vec<u8>,
    page: Vec<u8>,
    /// The limit of each wait.
    patience: Duration,
    /// The pause behind each read.
    pub pause: Duration,
}

impl Client {
    /// A client without a connection; over TLS where there is a configuration.
    pub fn new(port: u16, tls: Option<Arc<ClientConfig>>, patience: Duration) -> Self {
        let (kept, got, page) = (None, Vec::new(), vec![0; 64 << 10]);
        Self { port, tls, kept, got, page, patience, pause: Duration::ZERO }
    }

    /// Leaves its connection.
    pub fn leave(&mut self) {
        self.kept = None;
    }

    /// A new connection, behind the handshake.
    pub fn connect(&self) -> Result<Box<dyn Stream>, Lost> {
        let lost = |e: &std::io::Error| if is_late(e) { Lost::Stuck } else { Lost::NotConnected };
        let mut socket = connect(self.port, self.patience).map_err(|e| lost(&e))?;
        let Some(config) = &self.tls else { return Ok(Box::new(socket)) };
        let session = ClientConnection::new(Arc::clone(config), tls::client::name());
        let mut session = session.map_err(|_| Lost::NotConnected)?;
        while session.is_handshaking() {
            session.complete_io(&mut socket).map_err(|e| lost(&e))?;
        }
        Ok(Box::new(StreamOwned::new(session, socket)))
    }

    /// Sends a request once, on the kept connection where there is one.
    pub fn ask_once(&mut self, request: &[u8]) -> Result<Answer, Lost> {
        let stream = self.kept.take().map_or_else(|| self.connect(), Ok)?;
        self.exchange(stream, request)
    }

    /// Asks for a path as [`Client::ask_once`] does.
    pub fn get_once(&mut self, path: &str) -> Result<Answer, Lost> {
        self.ask_once(request(path, "").as_bytes())
    }

    /// Asks for a path as [`Client::ask`] does; `fields` are whole lines.
    pub fn get(&mut self, path: &str, fields: &str) -> Result<Answer, Lost> {
        self.ask(request(path, fields).as_bytes())
    }

    /// Sends a request, again on a new connection where a kept one was closed before an answer.
    pub fn ask(&mut self, request: &[u8]) -> Result<Answer, Lost> {
        if let Some(stream) = self.kept.take() {
            match self.exchange(stream, request) {
                Err(Lost::Unanswered) => {}
                other => return other,
            }
        }
        let stream = self.connect()?;
        self.exchange(stream, request)
    }

    fn exchange(&mut self, mut stream: Box<dyn Stream>, request: &[u8]) -> Result<Answer, Lost> {
        self.got.clear();
        // An answer may be there although not all of the request was taken.
        let sent = stream.write_all(request).and_then(|()| stream.flush());
        if sent.as_ref().is_err_and(is_late) {
            return Err(Lost::Stuck);
        }
        let (head, mut at) = loop {
            if let Some(end) = self.got.windows(4).position(|w| w == b"\r\n\r\n") {
                break (String::from_utf8_lossy(&self.got[..end + 2]).into_owned(), end + 4);
            }
            self.more(&mut stream)?;
        };
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(Lost::Garbage)?;
        let mut answer = Answer { status, head, body: Vec::new() };
        if status == 204 {
        } else if let Some(len) = answer.field("Content-Length") {
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
        if sent.is_ok() && answer.field("Connection") != Some("close") {
            self.kept = Some(stream);
        }
        Ok(answer)
    }

    fn chunks(
        &mut self,
        stream: &mut Box<dyn Stream>,
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

    fn more(&mut self, stream: &mut Box<dyn Stream>) -> Result<(), Lost> {
        if !self.pause.is_zero() {
            std::thread::sleep(self.pause);
        }
        let lost = if self.got.is_empty() { Lost::Unanswered } else { Lost::Cut };
        match stream.read(&mut self.page) {
            Ok(0) => Err(lost),
            Ok(n) => {
                self.got.extend_from_slice(&self.page[..n]);
                Ok(())
            }
            Err(e) if is_late(&e) => Err(Lost::Stuck),
            Err(_) => Err(lost),
        }
    }
}

fn request(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

fn is_late(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The status as the words of a finding.
pub fn status(answer: &Answer) -> String {
    format!("status {}", answer.status)
}
