//! Clients' requests and an upstream's answers, on sockets of the loop.

use std::rc::Rc;

use bytes::Bytes;
use event::testing::{connect, listen};
use event::{Deadline, Sock, TaskId};
use mem::Chain;
use os::SockAddr;

use super::{BIG, pattern};
use crate::simulation::Ending;

/// Long enough for whatever ends at all.
const PATIENCE_MS: u64 = 2_000_000;

/// The result of a request.
pub enum Answer {
    /// All of it: status and body.
    Whole(u16, Vec<u8>),
    /// The status and a part of the body, or nothing at all.
    Cut(Option<u16>),
}

/// A client's connection.
pub struct Conn {
    sock: Rc<Sock>,
    got: Vec<u8>,
}

impl Conn {
    pub async fn open(addr: &SockAddr) -> Option<Conn> {
        Some(Conn { sock: Rc::new(connect(addr).await.ok()?), got: Vec::new() })
    }

    /// Sends in the background, so that an early answer is seen.
    pub fn send(&self, bytes: Vec<u8>) -> Ending {
        let sock = self.sock.clone();
        Ending(event::spawn(async move {
            let mut chain = Chain::new();
            chain.push_bytes(Bytes::from(bytes));
            // The server may close before it has all.
            let _ = sock.send(&mut chain, Deadline::in_ms(PATIENCE_MS)).await;
        }))
    }

    /// Receives more; false at the end.
    async fn more(&mut self) -> bool {
        match self.sock.recv(1, Deadline::in_ms(PATIENCE_MS)).await {
            Ok(page) => {
                self.got.extend_from_slice(&page);
                !page.is_empty()
            }
            Err(e) => {
                assert!(e.kind() != std::io::ErrorKind::TimedOut, "a request is stuck");
                false
            }
        }
    }

    /// The next answer, and whether the connection is good for another request.
    pub async fn answer(&mut self, pause: Option<u64>) -> (Answer, bool) {
        let head = loop {
            if let Some(at) = memchr::memmem::find(&self.got, b"\r\n\r\n") {
                let rest = self.got.split_off(at + 4);
                break String::from_utf8(std::mem::replace(&mut self.got, rest)).unwrap();
            }
            if !self.more().await {
                assert!(self.got.is_empty() || b"HTTP/1.1 ".starts_with(&self.got[..1]));
                return (Answer::Cut(None), false);
            }
        };
        if let Some(ms) = pause {
            event::sleep(ms).await;
        }
        let status = head.get(9..12).and_then(|s| s.parse::<u16>().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {head:?}"));
        let kept = !head.contains("Connection: close");
        let field = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::to_owned)
        };
        let body = match field("Content-Length: ") {
            Some(length) => self.exactly(length.parse().unwrap()).await,
            None if status == 204 || status == 304 => Some(Vec::new()),
            None if field("Transfer-Encoding: ").is_some() => self.chunks().await,
            None => {
                while self.more().await {}
                Some(std::mem::take(&mut self.got))
            }
        };
        match body {
            Some(body) => (Answer::Whole(status, body), kept),
            None => (Answer::Cut(Some(status)), false),
        }
    }

    async fn exactly(&mut self, len: usize) -> Option<Vec<u8>> {
        while self.got.len() < len {
            if !self.more().await {
                return None;
            }
        }
        let rest = self.got.split_off(len);
        Some(std::mem::replace(&mut self.got, rest))
    }

    async fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let Some(at) = memchr::memmem::find(&self.got, b"\r\n") else {
                if self.more().await {
                    continue;
                }
                return None;
            };
            let line = self.exactly(at + 2).await?;
            let len = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16);
            let mut chunk = self.exactly(len.unwrap() + 2).await?;
            assert!(chunk.ends_with(b"\r\n"));
            chunk.truncate(chunk.len() - 2);
            if chunk.is_empty() {
                return Some(body);
            }
            body.append(&mut chunk);
        }
    }
}

/// An upstream: it answers a body with its length and sum, and anything else with [`BIG`] bytes.
pub fn upstream() -> (SockAddr, TaskId) {
    let (listener, addr) = listen().expect("a listener");
    let task = event::spawn(async move {
        let mut answering = Vec::new();
        while let Ok(accepted) = listener.accept().await {
            answering.push(Ending(event::spawn(async move {
                let _ = answer_one(accepted.sock).await;
            })));
        }
    });
    (addr, task)
}

/// The upstream's summary of a body.
pub fn told_of(body: &[u8]) -> Vec<u8> {
    let sum = body.iter().fold(7u64, |sum, b| sum.wrapping_mul(31) + u64::from(*b));
    format!("{} {sum}", body.len()).into_bytes()
}

async fn answer_one(sock: Sock) -> Option<()> {
    let mut conn = Conn { sock: Rc::new(sock), got: Vec::new() };
    let head = loop {
        if let Some(at) = memchr::memmem::find(&conn.got, b"\r\n\r\n") {
            break String::from_utf8(conn.exactly(at + 4).await?).unwrap();
        }
        if !conn.more().await {
            return None;
        }
    };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let body = match length.map(|length| length.parse().unwrap()) {
        Some(length) => told_of(&conn.exactly(length).await?),
        None => pattern(BIG, 1),
    };
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut chain = Chain::new();
    chain.push_bytes(Bytes::from([answer.into_bytes(), body].concat()));
    conn.sock.send(&mut chain, Deadline::in_ms(PATIENCE_MS)).await.ok()
}
