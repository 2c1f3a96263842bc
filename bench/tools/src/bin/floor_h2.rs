//! The floor for passing on over HTTP/2: as `floor`, but its clients speak HTTP/2 by prior
//! knowledge. One thread, one epoll, the same response of 1 KB for each request without a body.
//! What one receive brings is answered in one send. It reads frames' heads, the windows and the
//! table size that the client allows, and none of the fields.
//!
//! `floor_h2 PORT`

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
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_LEN: usize = 9;
/// The window of a connection before the client opens it further.
const INITIAL_WINDOW: i64 = 65_535;

/// `:status: 200`, and `server`, `content-type` and `content-length` put into the table.
const FIRST: &[u8] = b"\x88\x76\x05floor\x5f\x0atext/plain\x5c\x041024";
/// The same fields from the table.
const NEXT: &[u8] = b"\x88\xc0\xbf\xbe";
/// The same without a table, behind the word that it has no room (RFC 7541 section 6.3).
const WITHOUT_TABLE: &[u8] = b"\x20\x88\x0f\x27\x05floor\x0f\x10\x0atext/plain\x0f\x0d\x041024";

fn main() -> ExitCode {
    let Some(port) = std::env::args().nth(1).and_then(|p| p.parse().ok()) else {
        eprintln!("usage: floor_h2 PORT");
        return ExitCode::from(2);
    };
    match serve(port) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("floor_h2: {e}");
            ExitCode::FAILURE
        }
    }
}

/// A connection.
struct Connection {
    fd: OwnedFd,
    has_preface: bool,
    has_table: bool,
    answered: bool,
    window: i64,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// Streams that wait for the connection's window.
    waiting: VecDeque<u32>,
}

fn serve(port: u16) -> rustix::io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    net::listen(&listener, 4096)?;
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64(LISTENER);
    epoll::add(&queue, &listener, data, epoll::EventFlags::IN)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Vec::with_capacity(512);
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
            let Some(slot) = connections.get_mut(event.data.u64() as usize) else { continue };
            if slot.as_mut().is_some_and(|c| turn(c).is_none()) {
                *slot = None;
            }
        }
    }
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
        // Our parameters: the usual ones.
        let mut unsent = Vec::new();
        write_head(&mut unsent, 0, 4, 0, 0);
        connections[index] = Some(Connection {
            fd,
            has_preface: false,
            has_table: true,
            answered: false,
            window: INITIAL_WINDOW,
            received: Vec::with_capacity(64 << 10),
            unsent,
            waiting: VecDeque::new(),
        });
    }
}

fn write_head(out: &mut Vec<u8>, len: usize, kind: u8, flags: u8, stream: u32) {
    out.extend_from_slice(&(len as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// Receives and answers until nothing is there; nothing when the connection is over.
fn turn(c: &mut Connection) -> Option<()> {
    loop {
        let room = c.received.capacity() - c.received.len();
        match net::recv(&c.fd, spare_capacity(&mut c.received), RecvFlags::empty()) {
            Ok((_, 0)) => return None,
            Ok((_, len)) => {
                frames(c)?;
                send(c)?;
                // Less than there was room for: all of it.
                if len < room {
                    return Some(());
                }
            }
            Err(Errno::AGAIN) => return send(c),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Takes whole frames.
fn frames(c: &mut Connection) -> Option<()> {
    let mut used = 0;
    if !c.has_preface {
        if c.received.len() < PREFACE.len() {
            return Some(());
        }
        if !c.received.starts_with(PREFACE) {
            return None;
        }
        (c.has_preface, used) = (true, PREFACE.len());
    }
    let received = std::mem::take(&mut c.received);
    while let Some(head) = received[used..].first_chunk::<HEAD_LEN>() {
        let len = word(&head[..3]) as usize;
        let Some(payload) = received.get(used + HEAD_LEN..used + HEAD_LEN + len) else { break };
        let (flags, stream) = (head[4], word(&head[5..]) & 0x7fff_ffff);
        match head[3] {
            // HEADERS; it answers no request with a body.
            1 if flags & 1 == 0 => return None,
            1 => c.waiting.push_back(stream),
            4 if flags & 1 == 0 => {
                let mut all = payload.chunks_exact(6).map(|s| (word(&s[..2]), word(&s[2..])));
                c.has_table &= !all.any(|(id, value)| id == 1 && value < 4096);
                write_head(&mut c.unsent, 0, 4, 1, 0);
            }
            6 if flags & 1 == 0 => {
                write_head(&mut c.unsent, len, 6, 1, 0);
                c.unsent.extend_from_slice(payload);
            }
            7 => return None,
            8 if stream == 0 => c.window += i64::from(word(payload)),
            _ => {}
        }
        used += HEAD_LEN + len;
    }
    c.received = received;
    c.received.drain(..used);
    while c.window >= BODY as i64
        && let Some(stream) = c.waiting.pop_front()
    {
        c.window -= BODY as i64;
        let block = match (c.has_table, std::mem::replace(&mut c.answered, true)) {
            (true, true) => NEXT,
            (true, false) => FIRST,
            (false, true) => &WITHOUT_TABLE[1..],
            (false, false) => WITHOUT_TABLE,
        };
        write_head(&mut c.unsent, block.len(), 1, 4, stream);
        c.unsent.extend_from_slice(block);
        write_head(&mut c.unsent, BODY, 0, 1, stream);
        c.unsent.resize(c.unsent.len() + BODY, b'x');
    }
    Some(())
}

/// Sends as much as the socket takes and keeps the rest.
fn send(c: &mut Connection) -> Option<()> {
    let mut sent = 0;
    while sent < c.unsent.len() {
        match net::send(&c.fd, &c.unsent[sent..], SendFlags::NOSIGNAL) {
            Ok(n) => sent += n,
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    c.unsent.drain(..sent);
    Some(())
}
