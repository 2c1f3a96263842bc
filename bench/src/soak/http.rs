//! A client of HTTP/1, in the clear or over TLS, that reads answers to their last byte.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::tally::PATIENCE;
use crate::client::connect;
use crate::tls;

pub trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// An answer that came whole.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// A field's value.
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (n, value) = line.split_once(':')?;
        n.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Why there is none: the words of findings.
pub type Lost = &'static str;

const UNANSWERED: Lost = "closed unanswered";
const NOT_CONNECTED: Lost = "not connected";
const CUT: Lost = "cut";
const STUCK: Lost = "stuck";
const GARBAGE: Lost = "wrong framing";

/// A client, which keeps its connection where it may.
pub struct Client {
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    kept: Option<Box<dyn Stream>>,
    got: Vec<u8>,
    page: Vec<u8>,
    /// The pause behind each read.
    pub pause: Duration,
}

impl Client {
    pub fn new(port: u16, tls: Option<Arc<ClientConfig>>) -> Self {
        let (kept, got, page) = (None, Vec::new(), vec![0; 64 << 10]);
        Self { port, tls, kept, got, page, pause: Duration::ZERO }
    }

    /// Leaves its connection.
    pub fn leave(&mut self) {
        self.kept = None;
    }

    /// A new connection, behind the handshake.
    pub fn connect(&self) -> Result<Box<dyn Stream>, Lost> {
        let lost = |e: &std::io::Error| if is_late(e) { STUCK } else { NOT_CONNECTED };
        let mut socket = connect(self.port, PATIENCE).map_err(|e| lost(&e))?;
        let Some(config) = &self.tls else { return Ok(Box::new(socket)) };
        let session = ClientConnection::new(Arc::clone(config), tls::client::name());
        let mut session = session.map_err(|_| NOT_CONNECTED)?;
        while session.is_handshaking() {
            session.complete_io(&mut socket).map_err(|e| lost(&e))?;
        }
        Ok(Box::new(StreamOwned::new(session, socket)))
    }

    /// Asks for a path.
    pub fn get(&mut self, path: &str, fields: &str) -> Result<Answer, Lost> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        self.ask(request.as_bytes())
    }

    /// Sends a request, again on a new connection where a kept one was closed before an answer.
    pub fn ask(&mut self, request: &[u8]) -> Result<Answer, Lost> {
        if let Some(stream) = self.kept.take() {
            match self.exchange(stream, request) {
                Err(UNANSWERED) => {}
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
            return Err(STUCK);
        }
        let (head, mut at) = loop {
            if let Some(end) = self.got.windows(4).position(|w| w == b"\r\n\r\n") {
                break (String::from_utf8_lossy(&self.got[..end + 2]).into_owned(), end + 4);
            }
            self.more(&mut stream)?;
        };
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(GARBAGE)?;
        let mut answer = Answer { status, head, body: Vec::new() };
        if status == 204 {
        } else if let Some(len) = answer.field("Content-Length") {
            let len: usize = len.parse().map_err(|_| GARBAGE)?;
            while self.got.len() < at + len {
                self.more(&mut stream)?;
            }
            answer.body.extend_from_slice(&self.got[at..at + len]);
            at += len;
        } else if answer.field("Transfer-Encoding") == Some("chunked") {
            at = self.chunks(&mut stream, at, &mut answer.body)?;
        } else {
            return Err(GARBAGE);
        }
        if at != self.got.len() {
            return Err(GARBAGE);
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
            let text = std::str::from_utf8(&self.got[at..at + line]).map_err(|_| GARBAGE)?;
            let len = usize::from_str_radix(text, 16).map_err(|_| GARBAGE)?;
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
        let lost = if self.got.is_empty() { UNANSWERED } else { CUT };
        match stream.read(&mut self.page) {
            Ok(0) => Err(lost),
            Ok(n) => {
                self.got.extend_from_slice(&self.page[..n]);
                Ok(())
            }
            Err(e) if is_late(&e) => Err(STUCK),
            Err(_) => Err(lost),
        }
    }
}

fn is_late(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The status as the words of a finding.
pub fn status(answer: &Answer) -> String {
    format!("status {}", answer.status)
}
