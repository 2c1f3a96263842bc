//! Connections with 64 bytes each.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::Done;
use crate::Outcome;
use crate::stream::mixed::{mix, quiet_port};

/// Clients.
pub const THREADS: u64 = 12;
/// Addresses at which Weir listens, and the backend: connections between two addresses and to one
/// port are as many as there are ports, and each is taken for a while after its end.
const ADDRESSES: u64 = 8;
/// The limit of an answer.
const LIMIT: Duration = Duration::from_secs(30);
const LEN: usize = 64;

/// A thread that sends what comes back with all bits inverted.
pub struct Backend {
    /// Its port on each of the addresses.
    pub port: u16,
    over: Arc<AtomicBool>,
}

impl Backend {
    /// One that listens.
    pub fn new() -> Outcome<Self> {
        let port = quiet_port()?;
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        let listeners: Vec<OwnedFd> = (0..ADDRESSES)
            .map(|n| listen(SocketAddrV4::new(address(n), port)))
            .collect::<rustix::io::Result<_>>()
            .map_err(|e| format!("a backend's port: {e}"))?;
        std::thread::spawn(move || {
            if let Err(e) = serve(&listeners, &stop) {
                println!("the backend of connections ended: {e}");
            }
        });
        Ok(Self { port, over })
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn address(n: u64) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 2 + (n % ADDRESSES) as u8)
}

fn listen(at: SocketAddrV4) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    net::bind(&fd, &at)?;
    net::listen(&fd, 4096)?;
    Ok(fd)
}

fn serve(listeners: &[OwnedFd], over: &AtomicBool) -> rustix::io::Result<()> {
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for listener in listeners {
        let data = epoll::EventData::new_u64(listener.as_raw_fd() as u64);
        epoll::add(&queue, listener, data, epoll::EventFlags::IN)?;
    }
    let mut connections: Vec<Option<OwnedFd>> = Vec::new();
    let mut events = Vec::with_capacity(512);
    let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    while !over.load(Ordering::Relaxed) {
        events.clear();
        match epoll::wait(&queue, spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        for event in &events {
            let number = event.data.u64() as usize;
            if let Some(listener) = listeners.iter().find(|l| l.as_raw_fd() as usize == number) {
                accept_all(listener, &queue, &mut connections)?;
            } else if let Some(slot) = connections.get_mut(number)
                && slot.as_ref().is_some_and(|fd| !echo(fd))
            {
                *slot = None;
            }
        }
    }
    Ok(())
}

fn accept_all(
    listener: &OwnedFd,
    queue: &OwnedFd,
    connections: &mut Vec<Option<OwnedFd>>,
) -> rustix::io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        let fd = match net::accept_with(listener, flags) {
            Ok(fd) => fd,
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::CONNABORTED | Errno::INTR) => continue,
            Err(e) => return Err(e),
        };
        let index = fd.as_raw_fd() as usize;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(queue, fd.as_fd(), data, epoll::EventFlags::IN)?;
        if connections.len() <= index {
            connections.resize_with(index + 1, || None);
        }
        connections[index] = Some(fd);
    }
}

/// Sends back what has come; false when the connection is over.
fn echo(fd: &OwnedFd) -> bool {
    let mut buffer = [0; 4096];
    match net::recv(fd, &mut buffer[..], RecvFlags::empty()) {
        Ok((_, 0)) => false,
        Ok((_, len)) => {
            buffer[..len].iter_mut().for_each(|b| *b = !*b);
            net::send(fd, &buffer[..len], SendFlags::NOSIGNAL) == Ok(len)
        }
        Err(Errno::AGAIN | Errno::INTR) => true,
        Err(_) => false,
    }
}

/// A client, until all connections are over.
pub fn client(port: u16, seed: u64, number: u64, done: &Done) {
    for n in 0.. {
        if done.take(1) == 0 {
            return;
        }
        let counter = match connection(SocketAddrV4::new(address(number + n), port), seed ^ n) {
            Ok(true) => &done.answered,
            Ok(false) => &done.wrong,
            Err(e) => {
                done.tell(|| format!("a connection: {e}"));
                &done.lost
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        done.sessions.fetch_add(1, Ordering::Relaxed);
    }
}

/// Connects, has 64 bytes sent back, closes; gives whether they are the right ones.
fn connection(to: SocketAddrV4, place: u64) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut bytes = [0; LEN];
    for (n, part) in (0..).zip(bytes.chunks_mut(8)) {
        part.copy_from_slice(&mix(place ^ n << 56).to_le_bytes());
    }
    stream.write_all(&bytes)?;
    let mut answer = [0; LEN + 1];
    let mut len = 0;
    while len < LEN {
        match stream.read(&mut answer[len..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => len += more,
        }
    }
    Ok(len == LEN && bytes.iter().zip(&answer).all(|(a, b)| *a == !*b))
}
