//! The parts that bare servers share: one thread, one edge-triggered epoll, and connections with
//! the bytes that their sockets did not take. Each server states what it does with a connection's
//! bytes.

#![forbid(unsafe_code)]

pub mod attacks;
pub mod content;
pub mod fastcgi;
pub mod h2;
pub mod h3;
pub mod quic;
pub mod tls;

use std::collections::VecDeque;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::buffer::{Buffer, spare_capacity};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// The end of a server.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const ACCEPTED: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// The interval in which [`serve`] looks whether it is over.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// A server's work on its connections, which go by their indices.
pub trait Bare {
    /// The server's own part of a connection.
    type Own;

    /// Takes a client, usually by [`Connections::add`].
    fn accepted(&mut self, client: OwnedFd, all: &mut Connections<Self::Own>) -> Outcome;

    /// Bytes have come, or the end; false when the connection is over.
    fn readable(&mut self, index: usize, all: &mut Connections<Self::Own>) -> bool;

    /// The socket takes bytes again; false when the connection is over.
    fn writable(&mut self, index: usize, all: &mut Connections<Self::Own>) -> bool {
        all.get(index).is_none_or(|c| c.flush())
    }

    /// All that was there at one wait is done.
    fn turn_over(&mut self, _: &mut Connections<Self::Own>) {}
}

/// A connection.
pub struct Connection<T> {
    /// Its socket.
    pub fd: OwnedFd,
    /// The server's own part.
    pub own: T,
    unsent: VecDeque<u8>,
}

/// The connections of a server, by descriptor.
pub struct Connections<T> {
    queue: OwnedFd,
    slots: Vec<Option<Connection<T>>>,
}

/// The program's `main`: nothing from `server` means that the arguments are wrong.
pub fn run(usage: &str, server: impl FnOnce(&[&str]) -> Option<Outcome>) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match server(&arguments) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(e)) => {
            eprintln!("{}: {e}", usage.split(' ').next().unwrap_or_default());
            ExitCode::FAILURE
        }
        None => {
            eprintln!("usage: {usage}");
            ExitCode::from(2)
        }
    }
}

/// Receives once; see [`Connection::receive`].
pub fn receive(fd: &OwnedFd, buffer: impl Buffer<u8>) -> Option<usize> {
    match net::recv(fd, buffer, RecvFlags::empty()) {
        Ok((_, 0)) => None,
        Ok((_, len)) => Some(len),
        Err(Errno::AGAIN | Errno::INTR) => Some(0),
        Err(_) => None,
    }
}

/// The head of a bare answer.
pub fn head(len: u64, keeps: bool) -> Vec<u8> {
    let connection = if keeps { "keep-alive" } else { "close" };
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Type: text/plain\r\n\
         Content-Length: {len}\r\nConnection: {connection}\r\n\r\n"
    );
    head.into_bytes()
}

/// A socket that listens.
pub fn listen(at: SocketAddrV4) -> rustix::io::Result<OwnedFd> {
    let fd = net::socket_with(AddressFamily::INET, SocketType::STREAM, ACCEPTED, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    net::bind(&fd, &at)?;
    net::listen(&fd, 4096)?;
    Ok(fd)
}

/// A connection to a port of the loopback.
pub fn connect(port: u16) -> rustix::io::Result<OwnedFd> {
    let fd = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::connect(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
}

/// Serves a port of the loopback for ever.
pub fn serve(port: u16, server: &mut impl Bare) -> Outcome {
    serve_at(&[listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?], server, None)
}

/// Serves these listening sockets, until that says that it is over.
pub fn serve_at<B: Bare>(
    listeners: &[OwnedFd],
    server: &mut B,
    over: Option<&AtomicBool>,
) -> Outcome {
    let mut all = Connections { queue: epoll::create(epoll::CreateFlags::CLOEXEC)?, slots: vec![] };
    for listener in listeners {
        // Not a connection: no slot is this far.
        let data = EventData::new_u64(!(listener.as_raw_fd() as u64));
        epoll::add(&all.queue, listener, data, EventFlags::IN)?;
    }
    let mut events = Vec::with_capacity(512);
    while over.is_none_or(|over| !over.load(Ordering::Relaxed)) {
        events.clear();
        let limit = over.is_some().then_some(&TICK);
        match epoll::wait(&all.queue, spare_capacity(&mut events), limit) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in &events {
            let index = event.data.u64() as usize;
            if let Some(l) = listeners.iter().find(|l| l.as_raw_fd() as usize == !index) {
                accept_all(l, server, &mut all)?;
                continue;
            }
            if all.get(index).is_none() {
                continue;
            }
            let flags = event.flags;
            let came = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
            if !server.writable(index, &mut all) || came && !server.readable(index, &mut all) {
                all.close(index);
            }
        }
        server.turn_over(&mut all);
    }
    Ok(())
}

fn accept_all<B: Bare>(
    listener: &OwnedFd,
    server: &mut B,
    all: &mut Connections<B::Own>,
) -> Outcome {
    loop {
        match net::accept_with(listener, ACCEPTED) {
            Ok(client) => server.accepted(client, all)?,
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::CONNABORTED | Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

impl<T> Connections<T> {
    /// Takes a connection; gives its index.
    pub fn add(&mut self, fd: OwnedFd, own: T) -> rustix::io::Result<usize> {
        sockopt::set_tcp_nodelay(&fd, true)?;
        let index = fd.as_raw_fd() as usize;
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        epoll::add(&self.queue, fd.as_fd(), EventData::new_u64(index as u64), interest)?;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(Connection { fd, own, unsent: VecDeque::new() });
        Ok(index)
    }

    /// The connection of that index, where it is still there.
    pub fn get(&mut self, index: usize) -> Option<&mut Connection<T>> {
        self.slots.get_mut(index)?.as_mut()
    }

    /// Ends a connection.
    pub fn close(&mut self, index: usize) {
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = None;
        }
    }
}

impl<T> Connection<T> {
    /// Receives once behind the bytes that are there, and gives how many came: 0 where none have
    /// come yet. Nothing means that the connection is over.
    pub fn receive(&self, bytes: &mut Vec<u8>) -> Option<usize> {
        receive(&self.fd, spare_capacity(bytes))
    }

    /// Sends as much as the socket takes and keeps the rest; false when the connection is over.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        if !self.unsent.is_empty() {
            // An event tells when the socket takes bytes again.
            self.unsent.extend(bytes);
            return true;
        }
        match net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => self.unsent.extend(&bytes[sent..]),
            Err(Errno::AGAIN) => self.unsent.extend(bytes),
            Err(_) => return false,
        }
        true
    }

    /// Sends what was kept; false when the connection is over.
    pub fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match net::send(&self.fd, self.unsent.make_contiguous(), SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}
