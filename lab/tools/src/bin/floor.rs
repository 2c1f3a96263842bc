//! The floor: the cost of a request when a server does nothing but move bytes. One thread, one
//! edge-triggered epoll, a fixed response of 1 KB for each request head. It reads no HTTP beyond
//! the empty line, but for the length of a POST's body; it is no server, but the yardstick for
//! servers.
//!
//! `floor PORT [close|echo|file PATH|hold|sink|RS256 KEY|ES256 KEY|udp]`: with `close`, each
//! connection is closed after its first answer; with `echo`, the first request upgrades a
//! connection, and later bytes are sent back; with `file`, the body is that file's content, by
//! `sendfile`, one request at a time; with `hold`, requests wait for one with the path `/go`, and
//! then all of them are answered at once; with `sink`, requests have bodies, and a short answer
//! behind the last byte; with `RS256` or `ES256`, the signature of each request's token is verified
//! by the public key in that file, as aws-lc-rs takes it, and a wrong one ends the connection. With
//! `udp` each datagram comes back with the bit that makes a question of DNS an answer.

#![forbid(unsafe_code)]

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, VerificationAlgorithm,
};
use bare::{Bare, Connection, Connections, Outcome};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const BODY: usize = 1024;

fn main() -> ExitCode {
    bare::run("floor PORT [close|echo|file PATH|hold|sink|RS256 KEY|ES256 KEY|udp]", |arguments| {
        let port = arguments.first()?.parse().ok()?;
        let path = arguments.get(2).copied();
        let mode = match arguments.get(1).copied() {
            Some("close") => Mode::Close,
            Some("echo") => Mode::Echo,
            Some("file") => Mode::File,
            Some("hold") => Mode::Hold,
            Some("sink") => Mode::Sink,
            Some("RS256") => return Some(verify(port, &RSA_PKCS1_2048_8192_SHA256, path?)),
            Some("ES256") => return Some(verify(port, &ECDSA_P256_SHA256_FIXED, path?)),
            Some("udp") => return Some(echo_datagrams(port)),
            _ => Mode::Keep,
        };
        Some(serve(port, mode, path, None))
    })
}

/// The connection after its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Keep,
    Close,
    Echo,
    File,
    Hold,
    Sink,
}

/// What is kept of a connection.
#[derive(Default)]
struct Own {
    upgraded: bool,
    /// Bytes of a request's body that are still to come.
    body: usize,
    /// Bytes of the file that are still to be sent.
    unsent: u64,
}

struct Floor {
    mode: Mode,
    response: Vec<u8>,
    file: Option<(File, u64)>,
    received: Vec<u8>,
    /// Connections whose requests wait.
    held: Vec<usize>,
    /// By which the token of each request is verified.
    key: Option<ParsedPublicKey>,
    signature: Vec<u8>,
}

fn verify(port: u16, algorithm: &'static dyn VerificationAlgorithm, path: &str) -> Outcome {
    let key = ParsedPublicKey::new(algorithm, std::fs::read(path)?)?;
    serve(port, Mode::Keep, None, Some(key))
}

fn serve(port: u16, mode: Mode, path: Option<&str>, key: Option<ParsedPublicKey>) -> Outcome {
    let file = path.map(File::open).transpose()?;
    let file = file.map(|f| f.metadata().map(|m| (f, m.len()))).transpose()?;
    let response = response(mode, file.as_ref().map_or(BODY as u64, |f| f.1));
    let received = Vec::with_capacity(16 * 1024);
    let (held, signature) = (Vec::new(), Vec::new());
    bare::serve(port, &mut Floor { mode, response, file, received, held, key, signature })
}

impl Bare for Floor {
    type Own = Own;

    fn accepted(&mut self, client: OwnedFd, all: &mut Connections<Own>) -> Outcome {
        all.add(client, Own::default())?;
        Ok(())
    }

    fn readable(&mut self, index: usize, all: &mut Connections<Own>) -> bool {
        let Some(c) = all.get(index) else { return false };
        match self.answer(c) {
            After::Keep => {}
            After::Close => return false,
            After::Hold => self.held.push(index),
            After::Go => {
                for index in self.held.drain(..) {
                    all.get(index).map(|c| c.send(&self.response));
                }
            }
        }
        true
    }

    fn writable(&mut self, index: usize, all: &mut Connections<Own>) -> bool {
        all.get(index).is_some_and(|c| c.flush() && self.send_file(c))
    }
}

/// Sends datagrams back. The listening socket only tells that this is up.
fn echo_datagrams(port: u16) -> Outcome {
    let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let _listener = bare::listen(at)?;
    let socket =
        net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    net::bind(&socket, &at)?;
    let mut buffer = [0; 2048];
    loop {
        let (len, _, from) = net::recvfrom(&socket, &mut buffer[..], RecvFlags::empty())?;
        if len > 2 {
            buffer[2] |= 0x80;
        }
        if let Some(from) = from {
            // A client that is gone needs no answer.
            let _ = net::sendto(&socket, &buffer[..len], SendFlags::NOSIGNAL, &from);
        }
    }
}

fn response(mode: Mode, len: u64) -> Vec<u8> {
    if mode == Mode::Echo {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                    Connection: Upgrade\r\n\
                    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        return head.as_bytes().to_vec();
    }
    if mode == Mode::Sink {
        return b"HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Length: 2\r\n\r\nok".to_vec();
    }
    let mut bytes = bare::head(len, mode != Mode::Close);
    if mode != Mode::File {
        bytes.resize(bytes.len() + BODY, b'x');
    }
    bytes
}

/// The next step after a receive.
enum After {
    Keep,
    Close,
    /// The request waits.
    Hold,
    /// Answer all waiting requests.
    Go,
}

impl After {
    fn keep(keeps: bool) -> After {
        if keeps { After::Keep } else { After::Close }
    }
}

impl Floor {
    /// Answers received requests.
    fn answer(&mut self, c: &mut Connection<Own>) -> After {
        if self.mode == Mode::Sink || c.own.body > 0 {
            return After::keep(self.sink(c));
        }
        self.received.clear();
        if c.receive(&mut self.received).is_none() {
            return After::Close;
        }
        if self.received.starts_with(b"POST ") {
            return After::keep(self.take_body(c) && self.sink(c));
        }
        let requests = self.received.windows(4).filter(|w| w == b"\r\n\r\n").count();
        if requests > 0 && !self.is_signed() {
            return After::Close;
        }
        if self.mode == Mode::Hold && requests > 0 && !self.received.starts_with(b"GET /return ") {
            return if self.received.starts_with(b"GET /go ") { After::Go } else { After::Hold };
        }
        if c.own.upgraded {
            return After::keep(c.send(&self.received));
        }
        After::keep(self.respond(c, requests))
    }

    /// Whether the token of the request in `received` has the key's signature, or none is asked
    /// for.
    fn is_signed(&mut self) -> bool {
        const BEARER: &[u8] = b"Bearer ";
        let Some(key) = &self.key else { return true };
        let Some(at) = self.received.windows(BEARER.len()).position(|w| w == BEARER) else {
            return false;
        };
        let token = &self.received[at + BEARER.len()..];
        let token = &token[..token.iter().position(|&b| b == b'\r').unwrap_or(token.len())];
        let Some(dot) = token.iter().rposition(|&b| b == b'.') else { return false };
        self.signature.clear();
        base::base64::decode_url(&token[dot + 1..], &mut self.signature)
            && key.verify_sig(&token[..dot], &self.signature).is_ok()
    }

    /// Reads requests with bodies, one at a time on a connection as proxies send them, and answers
    /// each at its end; false when the connection is over.
    fn sink(&mut self, c: &mut Connection<Own>) -> bool {
        loop {
            self.received.clear();
            match c.receive(&mut self.received) {
                None => return false,
                Some(0) => return true,
                Some(_) if !self.take_body(c) => return false,
                Some(_) => {}
            }
        }
    }

    /// Takes a piece of a request, which begins with its head, and answers where that is its end;
    /// false when the connection is over.
    fn take_body(&self, c: &mut Connection<Own>) -> bool {
        let mut body = self.received.len();
        if c.own.body == 0 {
            let Some(head) = self.received.windows(4).position(|w| w == b"\r\n\r\n") else {
                return false;
            };
            c.own.body = content_length(&self.received[..head]);
            body -= head + 4;
        }
        // More than the body would be another request, which no proxy sends yet.
        let Some(rest) = c.own.body.checked_sub(body) else { return false };
        c.own.body = rest;
        rest > 0 || c.send(&self.response)
    }

    /// Answers `requests` requests; false when the connection is over.
    fn respond(&mut self, c: &mut Connection<Own>, requests: usize) -> bool {
        c.own.upgraded = self.mode == Mode::Echo && requests > 0;
        let sent = match (requests, &self.file) {
            (0, _) => return true,
            (_, Some((_, len))) => {
                c.own.unsent += len;
                c.send(&self.response) && self.send_file(c)
            }
            // The usual case: one request, one send, nothing copied.
            (1, None) => c.send(&self.response),
            (_, None) => c.send(&self.response.repeat(requests)),
        };
        sent && self.mode != Mode::Close
    }

    /// Sends what the socket takes of the file, and leaves the rest to the next event; false when
    /// the connection is over. To ask again behind a short count costs 5 to 10 % more, and the head
    /// with `MSG_MORE` half as much again, on Linux 6.18.
    fn send_file(&self, c: &mut Connection<Own>) -> bool {
        let Some((file, len)) = self.file.as_ref().filter(|_| c.own.unsent > 0) else {
            return true;
        };
        let mut from = len - c.own.unsent;
        match sendfile(&c.fd, file, Some(&mut from), c.own.unsent as usize) {
            Ok(0) => return false,
            Ok(sent) => c.own.unsent -= sent as u64,
            Err(Errno::AGAIN) => {}
            Err(_) => return false,
        }
        true
    }
}

/// The length that a head announces; 0 where it has none.
fn content_length(head: &[u8]) -> usize {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let line = text.split("\r\n").find_map(|line| line.strip_prefix("content-length:"));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}
