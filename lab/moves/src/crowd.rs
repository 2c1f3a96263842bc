//! Thousands of clients on one thread: each sends a numbered message a second, and compares what
//! comes back. The messages of all clients are spread evenly over the second.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rig::Outcome;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use testkit::pattern;

use crate::clients::{UPGRADE, head, wrong};
use crate::{PATIENCE, Ports, Protocol, Tally, config};

/// The time between two messages of a client.
const PERIOD: Duration = Duration::from_secs(1);

/// The longest wait for events: a client's turn may come.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// The interval between two looks for answers that do not come.
const LOOK: Duration = Duration::from_secs(1);

/// The clients of one kind.
pub struct Crowd {
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    queue: OwnedFd,
    members: Vec<Option<Member>>,
    /// Members whose sockets did not take all bytes.
    blocked: Vec<usize>,
    tally: Tally,
    began: Instant,
    /// Messages that were not sent, because the answer to the one before was not there.
    pub late: u64,
}

/// One client.
struct Member {
    socket: TcpStream,
    tls: Option<ClientConnection>,
    unsent: Vec<u8>,
    number: u64,
    message: Vec<u8>,
    /// Bytes of the message that are back.
    back: usize,
    /// The message is on its way since then.
    sent_at: Option<Instant>,
}

impl Crowd {
    /// Opens the connections.
    pub fn open(protocol: Protocol, ports: &Ports, count: usize) -> Outcome<Crowd> {
        let tls = match protocol {
            Protocol::Tunnel { tls: false } => None,
            _ => Some(config()?),
        };
        let queue = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| e.to_string())?;
        let port = ports.of(protocol);
        let (members, blocked) = (Vec::with_capacity(count), Vec::new());
        let tally = Tally::default();
        let began = Instant::now();
        let mut crowd = Crowd { port, tls, queue, members, blocked, tally, began, late: 0 };
        for i in 0..count {
            crowd.members.push(None);
            crowd.connect(i).map_err(|e| format!("connection {i}: {e}"))?;
        }
        Ok(crowd)
    }

    fn connect(&mut self, i: usize) -> io::Result<()> {
        let member = Member::connect(self.port, self.tls.as_ref())?;
        let data = epoll::EventData::new_u64(i as u64);
        epoll::add(&self.queue, &member.socket, data, epoll::EventFlags::IN)?;
        self.members[i] = Some(member);
        Ok(())
    }

    /// Sends and compares until `stop`, and until all messages are back; then reports.
    pub fn run(mut self, stop: &AtomicBool, report: &Sender<(Tally, u64)>) {
        let began = Instant::now();
        let (mut begun, mut looked_at) = (0_u64, began);
        let mut events = Vec::with_capacity(512);
        loop {
            let ends = stop.load(Ordering::Relaxed);
            let waits = |member: &Member| member.sent_at.is_some();
            if ends && !self.members.iter().flatten().any(waits) {
                break;
            }
            let periods = began.elapsed().as_secs_f64() / PERIOD.as_secs_f64();
            let due = (periods * self.members.len() as f64) as u64;
            while !ends && begun < due {
                self.send(begun as usize % self.members.len());
                begun += 1;
            }
            for i in std::mem::take(&mut self.blocked) {
                self.with(i, Member::flush);
            }
            events.clear();
            match epoll::wait(&self.queue, spare_capacity(&mut events), Some(&TICK)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => break,
            }
            for event in &events {
                self.receive(event.data.u64() as usize);
            }
            if looked_at.elapsed() > LOOK {
                looked_at = Instant::now();
                self.look();
            }
        }
        // Where nobody waits for it any more, the load has failed.
        let _ = report.send((self.tally, self.late));
    }

    /// Sends the next message of a member, unless the answer to its last one is missing.
    fn send(&mut self, i: usize) {
        match &self.members[i] {
            Some(member) if member.sent_at.is_some() => self.late += 1,
            Some(_) => self.with(i, |member| member.begin(i)),
            // It could not be opened again: another try.
            None => {
                let _ = self.connect(i);
            }
        }
    }

    fn receive(&mut self, i: usize) {
        let Some(member) = &mut self.members[i] else { return };
        match member.receive() {
            Ok(None) => {}
            Ok(Some(sent_at)) => self.tally.add(sent_at),
            Err(e) => self.failed(i, &e),
        }
        self.with(i, |_| Ok(()));
    }

    /// Has a member do something, and notes what has come of it.
    fn with(&mut self, i: usize, what: impl FnOnce(&mut Member) -> io::Result<()>) {
        let Some(member) = &mut self.members[i] else { return };
        match what(member) {
            Ok(()) if member.unsent.is_empty() => {}
            Ok(()) => self.blocked.push(i),
            Err(e) => self.failed(i, &e),
        }
    }

    fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Counts a failure, and opens the connection again.
    fn failed(&mut self, i: usize, error: &io::Error) {
        match error.kind() {
            ErrorKind::InvalidData => self.tally.wrong += 1,
            _ => self.tally.lost += 1,
        }
        if self.tally.wrong + self.tally.lost <= 5 {
            let waited = self.members[i].as_ref().and_then(|member| member.sent_at);
            let waited = waited.map_or("no message was under way".to_string(), |at| {
                format!("a message was under way for {:.0?}", at.elapsed())
            });
            println!("connection {i}, {:.3?} after the start: {error}; {waited}", self.age());
        }
        self.tally.reconnects += 1;
        // Closing it removes it from the queue.
        self.members[i] = None;
        let _ = self.connect(i);
    }

    /// Gives up those that have waited for too long.
    fn look(&mut self) {
        let is_late = |at: Instant| at.elapsed() > PATIENCE;
        for i in 0..self.members.len() {
            let sent_at = self.members[i].as_ref().and_then(|member| member.sent_at);
            if sent_at.is_some_and(is_late) {
                self.failed(i, &io::Error::from(ErrorKind::TimedOut));
            }
        }
    }
}

impl Member {
    /// Opens a connection, and the tunnel behind it: the server of `stream` wants a request, too.
    fn connect(port: u16, tls: Option<&Arc<ClientConfig>>) -> io::Result<Member> {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let tls = tls.map(|config| ClientConnection::new(config.clone(), name)).transpose();
        let mut tls = tls.map_err(io::Error::other)?;
        let answer = match &mut tls {
            None => {
                socket.write_all(UPGRADE.as_bytes())?;
                head(&mut socket)?
            }
            Some(session) => {
                let mut stream = rustls::Stream::new(session, &mut socket);
                stream.write_all(UPGRADE.as_bytes())?;
                head(&mut stream)?
            }
        };
        if !answer.starts_with("HTTP/1.1 101") {
            return Err(wrong());
        }
        socket.set_nonblocking(true)?;
        let (unsent, message) = (Vec::new(), Vec::new());
        Ok(Member { socket, tls, unsent, number: 0, message, back: 0, sent_at: None })
    }

    /// Sends the next message.
    fn begin(&mut self, i: usize) -> io::Result<()> {
        self.number += 1;
        self.message.clear();
        self.message.extend_from_slice(&(i as u64).to_be_bytes());
        self.message.extend_from_slice(&self.number.to_be_bytes());
        let (len, seed) = (self.number as usize * 7919 % 500, i + self.number as usize);
        self.message.extend_from_slice(&pattern(len, seed));
        (self.back, self.sent_at) = (0, Some(Instant::now()));
        match &mut self.tls {
            None => self.unsent.extend_from_slice(&self.message),
            Some(session) => session.writer().write_all(&self.message)?,
        }
        self.flush()
    }

    /// Sends what waits, as far as the socket takes it.
    fn flush(&mut self) -> io::Result<()> {
        if let Some(session) = &mut self.tls {
            while session.wants_write() {
                session.write_tls(&mut self.unsent)?;
            }
        }
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Takes what has come, once. Gives the time at which the message was sent that is whole by
    /// now.
    fn receive(&mut self) -> io::Result<Option<Instant>> {
        let mut buf = [0; 16 << 10];
        let n = match self.socket.read(&mut buf) {
            // Over TLS, the server's process has closed it: a session that ends says so.
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the end, bare")),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut came = &buf[..n];
        if self.tls.is_none() {
            self.compare(came)?;
        }
        while !came.is_empty() && self.tls.is_some() {
            let mut plain = Vec::new();
            if let Some(session) = &mut self.tls {
                session.read_tls(&mut came)?;
                session.process_new_packets().map_err(io::Error::other)?;
                match session.reader().read_to_end(&mut plain) {
                    Ok(_) => {
                        let what = "the end, told by close_notify";
                        return Err(io::Error::new(ErrorKind::UnexpectedEof, what));
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
            }
            self.compare(&plain)?;
        }
        self.flush()?;
        let is_whole = self.sent_at.is_some() && self.back == self.message.len();
        Ok(self.sent_at.take_if(|_| is_whole))
    }

    fn compare(&mut self, came: &[u8]) -> io::Result<()> {
        let wanted = self.message.get(self.back..self.back + came.len());
        self.back += came.len();
        match self.sent_at.is_some() && wanted == Some(came) || came.is_empty() {
            true => Ok(()),
            false => Err(wrong()),
        }
    }
}
