//! The floor of passing bytes on: each connection gets one of its own to the backend, and bytes
//! received on either are sent on the other with one `recv` and one `send`. It knows no protocol,
//! has no timers and no log: a proxy cannot be cheaper with these calls, and its further cost is
//! its own work.
//!
//! `relay PORT BACKEND`: both are ports of the loopback.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

const LISTENER: u64 = u64::MAX;

fn main() -> ExitCode {
    let ports: Vec<u16> = std::env::args().skip(1).filter_map(|p| p.parse().ok()).collect();
    let &[port, backend] = ports.as_slice() else {
        eprintln!("usage: relay PORT BACKEND");
        return ExitCode::from(2);
    };
    match serve(port, backend) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("relay: {e}");
            ExitCode::FAILURE
        }
    }
}

/// One end of a pair, with its unsent bytes.
struct End {
    fd: OwnedFd,
    other: usize,
    unsent: VecDeque<u8>,
}

struct Relay {
    queue: OwnedFd,
    backend: SocketAddrV4,
    /// By descriptor.
    ends: Vec<Option<End>>,
    page: Vec<u8>,
}

fn serve(port: u16, backend: u16) -> rustix::io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    net::listen(&listener, 4096)?;
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&queue, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let backend = SocketAddrV4::new(Ipv4Addr::LOCALHOST, backend);
    let mut relay = Relay { queue, backend, ends: Vec::new(), page: Vec::with_capacity(16 * 1024) };
    let mut events = Vec::with_capacity(512);
    loop {
        events.clear();
        match epoll::wait(&relay.queue, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => relay.accept_all(&listener)?,
                index => relay.moves(index as usize, event.flags),
            }
        }
    }
}

impl Relay {
    fn accept_all(&mut self, listener: &OwnedFd) -> rustix::io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let client = match net::accept_with(listener, flags) {
                Ok(fd) => fd,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(e) => return Err(e),
            };
            let kind = SocketType::STREAM;
            let upstream = net::socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
            if net::connect(&upstream, &self.backend).is_err() {
                continue;
            }
            rustix::io::ioctl_fionbio(&upstream, true)?;
            let (a, b) = (client.as_raw_fd() as usize, upstream.as_raw_fd() as usize);
            self.add(client, b)?;
            self.add(upstream, a)?;
        }
    }

    fn add(&mut self, fd: OwnedFd, other: usize) -> rustix::io::Result<()> {
        sockopt::set_tcp_nodelay(&fd, true)?;
        let index = fd.as_raw_fd() as usize;
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        epoll::add(&self.queue, fd.as_fd(), EventData::new_u64(index as u64), interest)?;
        if self.ends.len() <= index {
            self.ends.resize_with(index + 1, || None);
        }
        self.ends[index] = Some(End { fd, other, unsent: VecDeque::new() });
        Ok(())
    }

    /// Moves the received bytes of one end to the other, and unsent ones of its own to its socket.
    fn moves(&mut self, index: usize, flags: EventFlags) {
        let Some(Some(end)) = self.ends.get_mut(index) else { return };
        let other = end.other;
        let mut alive = end.unsent.is_empty() || end.send(&[]);
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            alive &= self.copy(index, other);
        }
        if !alive {
            self.ends[index] = None;
            self.ends[other] = None;
        }
    }

    fn copy(&mut self, from: usize, to: usize) -> bool {
        loop {
            let Some(end) = &self.ends[from] else { return false };
            self.page.clear();
            match net::recv(&end.fd, spare_capacity(&mut self.page), RecvFlags::empty()) {
                Ok((_, 0)) => return false,
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Err(_) => return false,
            }
            let Some(end) = &mut self.ends[to] else { return false };
            if !end.send(&self.page) {
                return false;
            }
            // Less than there was room for: that was all.
            if self.page.len() < self.page.capacity() {
                return true;
            }
        }
    }
}

impl End {
    /// Sends as much as the socket takes and keeps the rest.
    fn send(&mut self, bytes: &[u8]) -> bool {
        if !self.unsent.is_empty() {
            self.unsent.extend(bytes);
            return match net::send(&self.fd, self.unsent.make_contiguous(), SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    self.unsent.drain(..sent);
                    true
                }
                Err(Errno::AGAIN) => true,
                Err(_) => false,
            };
        }
        match net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => self.unsent.extend(&bytes[sent..]),
            Err(Errno::AGAIN) => self.unsent.extend(bytes),
            Err(_) => return false,
        }
        true
    }
}
