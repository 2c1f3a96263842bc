//! `keepalive N shared`: idle connections that any worker may take.
//!
//! A worker keeps one idle connection to each server for itself and hands the others over. The
//! kernel keeps them: a pair of connected unix sockets, made before the fork, is a queue of
//! messages that each carry a descriptor and its description. A worker with a surplus connection
//! sends it there, one that needs a connection receives it. A queue has no owner, so no process's
//! death disturbs it; with the last worker of a configuration the queue and its connections are
//! gone.
//!
//! Only the front of a queue can be received. With one queue for all servers, a worker had to
//! receive connections to other servers and send them back. So each server has a queue of its own;
//! with more than [`QUEUES_MAX`] servers, some share one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use base::time::{now_ms, unix_ms};
use event::Sock;
use os::SockAddr;
use os::socket::{message_pair, peek, recv_fd, send_fd};
use shm::Zone;

use crate::pool::{Kept, UpConn};

/// Interval of looking for connections that ended, milliseconds.
const SWEEP_MS: u64 = 2_000;

/// The numbers that a message begins with: requests, age, time of sending, expiry.
const NUMBERS: usize = 4;

/// The longest message: the numbers and an address.
const MESSAGE_MAX: usize = NUMBERS * 8 + 128;

/// The queues of an upstream.
pub(crate) struct Handover {
    /// Both ends of each queue: to send, to receive.
    queues: Vec<(OwnedFd, OwnedFd)>,
    /// The time of the last look, and the length of each queue.
    words: Zone,
    max: u64,
}

/// More servers than this share queues.
const QUEUES_MAX: usize = 16;

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

    /// Whether its time is not over, and its peer neither closed it nor sent anything.
    fn is_good(&self) -> bool {
        let nothing = |e: io::Error| e.kind() == io::ErrorKind::WouldBlock;
        unix_ms() < self.number(3) && peek(&self.fd, &mut [0]).is_err_and(nothing)
    }

    fn into_conn(self) -> UpConn {
        let age = self.number(1).saturating_add(unix_ms().saturating_sub(self.number(2)));
        let requests = self.number(0);
        let start_ms = now_ms().saturating_sub(age);
        UpConn {
            sock: Sock::from_fd(self.fd).into(),
            requests,
            start_ms,
            cached: true,
            moved_in: 0,
        }
    }
}

impl Handover {
    /// Empty queues for so many connections to so many servers, made before the fork.
    ///
    /// # Errors
    /// The system's.
    pub fn new(max: usize, servers: usize) -> io::Result<Handover> {
        let count = servers.clamp(1, QUEUES_MAX);
        let queues = (0..count).map(|_| message_pair()).collect::<io::Result<_>>()?;
        Ok(Handover { queues, words: Zone::anonymous(8 * (1 + count))?, max: max as u64 })
    }

    fn count(&self, queue: usize) -> &AtomicU64 {
        &self.words.words()[1 + queue]
    }

    fn total(&self) -> u64 {
        (0..self.queues.len()).map(|q| self.count(q).load(Ordering::Relaxed)).sum()
    }

    /// Whether there is none. The kernel is asked: a worker that died may have left the counts
    /// wrong.
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(|(_, receive)| peek(receive, &mut [0]).is_err())
    }

    /// The queue of a server's connections.
    fn queue(&self, addr: &[u8]) -> usize {
        base::crc::crc32(addr) as usize % self.queues.len()
    }

    /// Whether the next connection would be closed.
    pub fn is_full(&self) -> bool {
        self.total() >= self.max
    }

    /// Queues a connection for any worker; without room it is closed.
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
        if self.is_full() || queued.message.len() > MESSAGE_MAX {
            return;
        }
        let queue = self.queue(queued.addr());
        self.count(queue).fetch_add(1, Ordering::Relaxed);
        // A queue that is full closes the connection: nothing is lost.
        if send_fd(&self.queues[queue].0, &queued.message, queued.fd.as_fd()).is_err() {
            self.one_less(queue);
        }
    }

    fn one_less(&self, queue: usize) {
        let less = |n: u64| n.checked_sub(1);
        let _ = self.count(queue).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn receive(&self, queue: usize) -> Option<Queued> {
        let mut message = vec![0; MESSAGE_MAX];
        loop {
            match recv_fd(&self.queues[queue].1, &mut message) {
                Ok((len, fd)) => {
                    self.one_less(queue);
                    message.truncate(len);
                    return fd.map(|fd| Queued { fd, message });
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    // Drops the counts of workers that died. A count that another worker makes at
                    // this moment is lost, too, until the next sweep.
                    self.count(queue).store(0, Ordering::Relaxed);
                    return None;
                }
            }
        }
    }

    /// A connection to `addr` that still stands.
    pub fn take(&self, addr: &SockAddr) -> Option<UpConn> {
        let wanted = addr.to_string();
        let queue = self.queue(wanted.as_bytes());
        // Once through the queue at most: connections to other servers go behind.
        for _ in 0..self.count(queue).load(Ordering::Relaxed) {
            let queued = self.receive(queue)?;
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

    /// All connections that still stand: no worker of this configuration needs them any more.
    pub fn take_all(&self) -> Vec<Kept> {
        let queue = |queue| std::iter::from_fn(move || self.receive(queue));
        let all = (0..self.queues.len()).flat_map(queue);
        let kept = |queued: Queued| {
            let addr = SockAddr::parse(queued.addr())?;
            let left_ms = queued.number(3).saturating_sub(unix_ms());
            let until_ms = now_ms().saturating_add(left_ms);
            Some(Kept { conn: queued.into_conn(), addr, tag: 0, until_ms })
        };
        all.filter(Queued::is_good).filter_map(kept).collect()
    }

    /// At intervals, by one worker: closes connections that ended or were idle too long.
    pub fn sweep(&self) {
        let (now, last) = (unix_ms(), &self.words.words()[0]);
        let seen = last.load(Ordering::Relaxed);
        if now.saturating_sub(seen) < SWEEP_MS
            || last.compare_exchange(seen, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        for queue in 0..self.queues.len() {
            // All of them, whatever the count says; it is right afterwards.
            let all: Vec<Queued> = std::iter::from_fn(|| self.receive(queue)).collect();
            all.iter().filter(|queued| queued.is_good()).for_each(|queued| self.send(queued));
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
        (
            UpConn {
                sock: sock.into(),
                requests: 5,
                start_ms: now_ms(),
                cached: false,
                moved_in: 0,
            },
            far,
        )
    }

    #[test]
    fn connections_change_hands() {
        // All servers share a queue, and they do not.
        for queues in [1, 2, 5] {
            change_hands(queues);
        }
    }

    fn change_hands(queues: usize) {
        run(move || async move {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = |n: u8| SockAddr::parse(format!("127.0.0.{n}:80").as_bytes()).unwrap();
            let shared = Handover::new(3, queues).unwrap();
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
            event::testing::turns(2).await;
            far_four.set_nonblocking(false).unwrap();
            assert_eq!(std::io::Read::read(&mut far_four, &mut [0]).unwrap(), 0);
            // The one to another server goes behind; the one whose time is over, away.
            assert!(shared.take(&addr(3)).is_none());
            let taken = shared.take(&addr(1)).unwrap();
            assert!(taken.requests == 5 && taken.cached);
            let mut x = mem::Chain::new();
            x.write(b"x");
            taken.sock.send(&mut x, event::Deadline::NEVER).await.unwrap();
            far_one.set_nonblocking(false).unwrap();
            assert_eq!(std::io::Read::read(&mut far_one, &mut [0]).unwrap(), 1);
            // The peer of the last one has closed it.
            drop(far_two);
            event::testing::turns(2).await;
            shared.sweep();
            assert!(shared.is_empty() && shared.take(&addr(2)).is_none());
        });
    }
}
