//! `keepalive N shared`: idle connections that any worker may take.
//!
//! The kernel keeps them: a pair of connected sockets, made before the fork, is a queue of messages
//! that each carry a descriptor and say what it is. Who has a connection too many sends it there;
//! who needs one receives it. A worker that dies leaves the queue as it is, and with the last
//! worker of a configuration it is gone, and all that is in it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use base::time::{now_ms, unix_ms};
use event::Sock;
use os::SockAddr;
use os::socket::{message_pair, peek, recv_fd, send_fd};
use shm::Zone;

use super::pool::UpConn;

/// How often the queue is looked through for connections that ended, milliseconds.
const SWEEP_MS: u64 = 2_000;

/// The numbers that a message begins with: requests, age, when it was sent, until when it is kept.
const NUMBERS: usize = 4;

/// The longest message: the numbers and an address.
const MESSAGE_MAX: usize = NUMBERS * 8 + 128;

/// See the module's documentation.
pub(crate) struct Handover {
    send: OwnedFd,
    receive: OwnedFd,
    /// How many there are, and when they were last looked through.
    words: Zone,
    max: u64,
}

/// A connection in the queue.
struct Queued {
    fd: OwnedFd,
    message: Vec<u8>,
}

impl Queued {
    fn number(&self, i: usize) -> u64 {
        let bytes = self.message.get(i * 8..i * 8 + 8).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    }

    fn addr(&self) -> &[u8] {
        self.message.get(NUMBERS * 8..).unwrap_or_default()
    }

    /// It is to be kept longer, and its peer neither closed it nor sent anything.
    fn is_good(&self) -> bool {
        let nothing = |e: io::Error| e.kind() == io::ErrorKind::WouldBlock;
        unix_ms() < self.number(3) && peek(&self.fd, &mut [0]).is_err_and(nothing)
    }

    fn into_conn(self) -> UpConn {
        let age = self.number(1).saturating_add(unix_ms().saturating_sub(self.number(2)));
        let requests = self.number(0);
        let start_ms = now_ms().saturating_sub(age);
        UpConn { sock: Sock::from_fd(self.fd), requests, start_ms, cached: true }
    }
}

impl Handover {
    /// An empty queue of so many connections, made before the fork.
    ///
    /// # Errors
    /// The system's.
    pub fn new(max: usize) -> io::Result<Handover> {
        let (send, receive) = message_pair()?;
        Ok(Handover { send, receive, words: Zone::anonymous(16)?, max: max as u64 })
    }

    fn count(&self) -> &AtomicU64 {
        &self.words.words()[0]
    }

    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.count().load(Ordering::Relaxed) == 0
    }

    /// Gives a connection to whoever needs it; where there is no room, it is closed.
    pub fn put(&self, conn: UpConn, addr: &SockAddr, keep_ms: u64) {
        let age = now_ms().saturating_sub(conn.start_ms);
        let numbers = [conn.requests, age, unix_ms(), unix_ms().saturating_add(keep_ms)];
        let mut message: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        message.extend_from_slice(addr.to_string().as_bytes());
        if let Ok(fd) = conn.sock.into_fd() {
            self.send(&Queued { fd, message });
        }
    }

    fn send(&self, queued: &Queued) {
        if self.count().load(Ordering::Relaxed) >= self.max || queued.message.len() > MESSAGE_MAX {
            return;
        }
        // A queue that is full closes the connection: nothing is lost.
        if send_fd(&self.send, &queued.message, queued.fd.as_fd()).is_ok() {
            self.count().fetch_add(1, Ordering::Relaxed);
        }
    }

    fn receive(&self) -> Option<Queued> {
        let mut message = vec![0; MESSAGE_MAX];
        loop {
            match recv_fd(&self.receive, &mut message) {
                Ok((len, fd)) => {
                    let less = |n: u64| n.checked_sub(1);
                    let _ = self.count().fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
                    message.truncate(len);
                    return fd.map(|fd| Queued { fd, message });
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    // What a worker had counted that died meanwhile counts no more.
                    self.count().store(0, Ordering::Relaxed);
                    return None;
                }
            }
        }
    }

    /// A connection to `addr` that still stands.
    pub fn take(&self, addr: &SockAddr) -> Option<UpConn> {
        let wanted = addr.to_string();
        // Once through the queue at most: those to other servers go behind.
        for _ in 0..self.count().load(Ordering::Relaxed) {
            let queued = self.receive()?;
            if !queued.is_good() {
                continue;
            }
            if queued.addr() == wanted.as_bytes() {
                return Some(queued.into_conn());
            }
            self.send(&queued);
        }
        None
    }

    /// Now and then, by one worker: closes what ended or waited too long.
    pub fn sweep(&self) {
        let (now, last) = (unix_ms(), &self.words.words()[1]);
        let seen = last.load(Ordering::Relaxed);
        if now.saturating_sub(seen) < SWEEP_MS
            || last.compare_exchange(seen, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        for _ in 0..self.count().load(Ordering::Relaxed) {
            match self.receive() {
                Some(queued) if queued.is_good() => self.send(&queued),
                Some(_) => {}
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// Runs a test on every driver.
    fn run<F: Future<Output = ()> + 'static>(body: impl Fn() -> F) {
        for driver in event::testing::real_drivers() {
            let options = event::Options { driver, ..event::Options::default() };
            event::Loop::new(options).unwrap().block_on(body()).unwrap();
        }
    }

    fn conn(listener: &TcpListener) -> (UpConn, TcpStream) {
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        let (far, _) = listener.accept().unwrap();
        let sock = Sock::from_fd(near.into());
        (UpConn { sock, requests: 5, start_ms: now_ms(), cached: false }, far)
    }

    #[test]
    fn connections_change_hands() {
        run(|| async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = |n: u8| SockAddr::parse(format!("127.0.0.{n}:80").as_bytes()).unwrap();
            let shared = Handover::new(3).unwrap();
            assert!(shared.take(&addr(1)).is_none());
            let (one, mut far_one) = conn(&listener);
            let (two, far_two) = conn(&listener);
            let (three, _far_three) = conn(&listener);
            let (four, mut far_four) = conn(&listener);
            shared.put(one, &addr(1), 60_000);
            shared.put(two, &addr(2), 60_000);
            shared.put(three, &addr(3), 0);
            shared.put(four, &addr(1), 60_000);
            // There was no room for the fourth. (A ring closes what is dropped at its next turn.)
            event::sleep(20).await;
            far_four.set_nonblocking(false).unwrap();
            assert_eq!(std::io::Read::read(&mut far_four, &mut [0]).unwrap(), 0);
            // The one to another server goes behind; the one whose time is over, away.
            assert!(shared.take(&addr(3)).is_none());
            let taken = shared.take(&addr(1)).unwrap();
            assert!(taken.requests == 5 && taken.cached);
            os::socket::send(taken.sock.fd(), b"x", false).unwrap();
            far_one.set_nonblocking(false).unwrap();
            assert_eq!(std::io::Read::read(&mut far_one, &mut [0]).unwrap(), 1);
            // The peer of the last one has closed it.
            drop(far_two);
            event::sleep(20).await;
            shared.sweep();
            assert!(shared.is_empty() && shared.take(&addr(2)).is_none());
        });
    }
}
