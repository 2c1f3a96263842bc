//! The floor: the cost of a request when a server does nothing but move bytes. One thread, one
//! edge-triggered epoll, a fixed response of 1 KB for each request head. It reads no HTTP beyond
//! the empty line, but for the length of a POST's body; it is no server, but the yardstick for
//! servers.
//!
//! `floor PORT [close|echo|hold|sink|udp]`: with `close`, each connection is closed after its first
//! answer; with `echo`, the first request upgrades a connection, and later bytes are sent back;
//! with `hold`, requests wait for one with the path `/go`, and then all of them are answered at
//! once; with `sink`, requests have bodies, and a short answer behind the last byte. With `udp`
//! each datagram comes back with the bit that makes a question of DNS an answer.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

const BODY: usize = 1024;
const LISTENER: u64 = u64::MAX;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(port) = args.next().and_then(|p| p.parse().ok()) else {
        eprintln!("usage: floor PORT [close|echo|hold|sink|udp]");
        return ExitCode::from(2);
    };
    let mode = match args.next().as_deref() {
        Some("close") => Mode::Close,
        Some("echo") => Mode::Echo,
        Some("hold") => Mode::Hold,
        Some("sink") => Mode::Sink,
        Some("udp") => Mode::Udp,
        _ => Mode::Keep,
    };
    let served = match mode {
        Mode::Udp => echo_datagrams(port),
        _ => serve(port, mode),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("floor: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The connection after its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Keep,
    Close,
    Echo,
    Hold,
    Sink,
    Udp,
}

/// A connection with its unsent bytes.
struct Connection {
    fd: OwnedFd,
    unsent: VecDeque<u8>,
    upgraded: bool,
    /// Bytes of a request's body that are still to come.
    body: usize,
}

fn serve(port: u16, mode: Mode) -> rustix::io::Result<()> {
    let listener = listen(port)?;
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64(LISTENER);
    epoll::add(&queue, &listener, data, epoll::EventFlags::IN)?;
    let response = response(mode);
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Vec::with_capacity(512);
    let mut received = Vec::with_capacity(16 * 1024);
    let mut held = Vec::new();
    loop {
        events.clear();
        match epoll::wait(&queue, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        for event in &events {
            if event.data.u64() == LISTENER {
                accept_all(&listener, &queue, &mut connections)?;
                continue;
            }
            let index = event.data.u64() as usize;
            let Some(slot) = connections.get_mut(index) else { continue };
            let Some(connection) = slot else { continue };
            match answer(connection, &response, &mut received, mode) {
                After::Keep => {}
                After::Close => *slot = None,
                After::Hold => held.push(index),
                After::Go => {
                    for index in held.drain(..) {
                        let connection = connections.get_mut(index).and_then(Option::as_mut);
                        connection.map(|c| send(c, &response));
                    }
                }
            }
        }
    }
}

/// Sends datagrams back. The listening socket only tells that this is up.
fn echo_datagrams(port: u16) -> rustix::io::Result<()> {
    let _listener = listen(port)?;
    let socket =
        net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
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

fn listen(port: u16) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    net::bind(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    net::listen(&fd, 4096)?;
    Ok(fd)
}

fn response(mode: Mode) -> Vec<u8> {
    if mode == Mode::Echo {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                    Connection: Upgrade\r\n\
                    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        return head.as_bytes().to_vec();
    }
    if mode == Mode::Sink {
        return b"HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Length: 2\r\n\r\nok".to_vec();
    }
    let connection = if mode == Mode::Close { "close" } else { "keep-alive" };
    let mut bytes = format!(
        "HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Type: text/plain\r\n\
         Content-Length: {BODY}\r\nConnection: {connection}\r\n\r\n"
    )
    .into_bytes();
    bytes.resize(bytes.len() + BODY, b'x');
    bytes
}

fn accept_all(
    listener: &OwnedFd,
    queue: &OwnedFd,
    connections: &mut Vec<Option<Connection>>,
) -> rustix::io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        let fd = match net::accept_with(listener, flags) {
            Ok(fd) => fd,
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::CONNABORTED | Errno::INTR) => continue,
            Err(e) => return Err(e),
        };
        sockopt::set_tcp_nodelay(&fd, true)?;
        let index = fd.as_raw_fd() as usize;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(queue, fd.as_fd(), epoll::EventData::new_u64(index as u64), interest)?;
        if connections.len() <= index {
            connections.resize_with(index + 1, || None);
        }
        connections[index] =
            Some(Connection { fd, unsent: VecDeque::new(), upgraded: false, body: 0 });
    }
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

/// Answers received requests.
fn answer(c: &mut Connection, response: &[u8], received: &mut Vec<u8>, mode: Mode) -> After {
    if mode == Mode::Sink || c.body > 0 {
        return sink(c, response, received);
    }
    received.clear();
    let requests = match net::recv(&c.fd, spare_capacity(received), RecvFlags::empty()) {
        Ok((_, 0)) => return After::Close,
        Ok(_) => received.windows(4).filter(|w| w == b"\r\n\r\n").count(),
        Err(Errno::AGAIN | Errno::INTR) => 0,
        Err(_) => return After::Close,
    };
    if received.starts_with(b"POST ") {
        return match take_body(c, response, received) {
            true => sink(c, response, received),
            false => After::Close,
        };
    }
    if mode == Mode::Hold && requests > 0 && !received.starts_with(b"GET /return ") {
        return if received.starts_with(b"GET /go ") { After::Go } else { After::Hold };
    }
    if c.upgraded {
        return After::keep(send(c, received));
    }
    After::keep(respond(c, response, requests, mode))
}

/// Reads requests with bodies, one at a time on a connection as proxies send them, and answers each
/// at its end.
fn sink(c: &mut Connection, response: &[u8], received: &mut Vec<u8>) -> After {
    loop {
        received.clear();
        match net::recv(&c.fd, spare_capacity(received), RecvFlags::empty()) {
            Ok((_, 0)) => return After::Close,
            Ok(_) => {}
            Err(Errno::AGAIN) => return After::Keep,
            Err(Errno::INTR) => continue,
            Err(_) => return After::Close,
        }
        if !take_body(c, response, received) {
            return After::Close;
        }
    }
}

/// Takes a piece of a request, which begins with its head, and answers where that is its end; false
/// when the connection is over.
fn take_body(c: &mut Connection, response: &[u8], received: &[u8]) -> bool {
    let mut body = received.len();
    if c.body == 0 {
        let Some(head) = received.windows(4).position(|w| w == b"\r\n\r\n") else {
            return false;
        };
        c.body = content_length(&received[..head]);
        body -= head + 4;
    }
    // More than the body would be another request, which no proxy sends yet.
    let Some(rest) = c.body.checked_sub(body) else { return false };
    c.body = rest;
    rest > 0 || send(c, response)
}

/// The length that a head announces; 0 where it has none.
fn content_length(head: &[u8]) -> usize {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let line = text.split("\r\n").find_map(|line| line.strip_prefix("content-length:"));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// Answers `requests` requests; false when the connection is over.
fn respond(c: &mut Connection, response: &[u8], requests: usize, mode: Mode) -> bool {
    let close = mode == Mode::Close;
    c.upgraded = mode == Mode::Echo && requests > 0;
    if c.unsent.is_empty() && requests == 1 {
        // The usual case: one request, one send, nothing copied.
        return send(c, response) && !close;
    }
    for _ in 0..requests {
        c.unsent.extend(response);
    }
    while !c.unsent.is_empty() {
        match net::send(&c.fd, c.unsent.make_contiguous(), SendFlags::NOSIGNAL) {
            Ok(sent) => drop(c.unsent.drain(..sent)),
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
    !close || requests == 0
}

/// Sends as much as the socket takes and keeps the rest.
fn send(c: &mut Connection, bytes: &[u8]) -> bool {
    if !c.unsent.is_empty() {
        c.unsent.extend(bytes);
        return true;
    }
    match net::send(&c.fd, bytes, SendFlags::NOSIGNAL) {
        Ok(sent) => c.unsent.extend(&bytes[sent..]),
        Err(Errno::AGAIN) => c.unsent.extend(bytes),
        Err(_) => return false,
    }
    true
}
