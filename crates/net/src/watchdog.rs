//! The watchdog of workers, for addresses with `reuseport=steered`.
//!
//! With a socket of its own for each worker, a stuck worker (a module that blocks the loop, a stop
//! signal) also holds up the connections that the kernel puts into its socket's queue. Each worker
//! has a heartbeat. While one is silent, the kernel gives new connections to the others if it can
//! be programmed to ([`os::heartbeat`]); and the others empty the queue of the silent one, because
//! the silence is noticed only some moments later. Connections that a worker has accepted are its
//! own, and wait for it.

use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use base::log;
use base::log::{Level, os_error};
use event::Accepted;
use os::heartbeat::Heartbeats;

/// Interval of heartbeats, and of looks at the other workers, in milliseconds.
const BEAT_MS: u64 = 10;

/// Silence after which a worker counts as stuck, in milliseconds: several missed beats. A
/// connection waits for that long, a beat more, and its share of the queue.
pub const STUCK_MS: u64 = 35;

/// Connections that are taken from another queue at a time: other tasks here have their turn.
const AT_ONCE: usize = 64;

/// One worker's heartbeat, and its view of the other workers.
pub struct Watchdog {
    pub(crate) heartbeats: Rc<Heartbeats>,
    pub(crate) index: usize,
    pub(crate) others: Vec<Other>,
}

/// Another worker's socket.
pub(crate) struct Other {
    /// The address, by its number in the configuration.
    pub(crate) listener: usize,
    pub(crate) worker: usize,
    pub(crate) fd: Rc<OwnedFd>,
}

impl Watchdog {
    /// Runs until its task is cancelled: `take` gets the connections of stuck workers, with the
    /// number of the address.
    pub async fn run(self, take: impl Fn(usize, Accepted)) {
        loop {
            self.heartbeats.beat(self.index);
            for other in &self.others {
                if self.heartbeats.is_stuck(other.worker, STUCK_MS) {
                    let who = format_args!("worker {}", other.worker);
                    rescue(&other.fd, who, |accepted| take(other.listener, accepted));
                }
            }
            event::sleep(BEAT_MS).await;
        }
    }
}

/// Takes connections from the queue of a socket that a stuck worker should have emptied; `who` is
/// the worker in the log.
pub fn rescue(fd: &OwnedFd, who: fmt::Arguments<'_>, take: impl Fn(Accepted)) {
    for _ in 0..AT_ONCE {
        match event::accept_from(fd) {
            Ok(Some(accepted)) => take(accepted),
            Ok(None) => return,
            Err(e) => {
                let e = os_error(&e);
                log!(log::default(), Level::Error, None, "accept4() for {who} failed {e}");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::net::{TcpListener, TcpStream};

    /// Waits until the watchdog has looked at the others once more: it does so right after a
    /// heartbeat of its own.
    async fn look(heartbeats: &Heartbeats) {
        heartbeats.beat_at(0, -2000);
        event::testing::until(|| !heartbeats.is_stuck(0, 1000)).await;
    }

    #[test]
    fn the_queue_of_a_silent_worker_is_emptied() {
        let mut event_loop = event::Loop::new(event::Options::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let heartbeats = Rc::new(Heartbeats::new(4).unwrap());
        let fd = Rc::new(OwnedFd::from(listener));
        let others = vec![Other { listener: 7, worker: 2, fd }];
        let watchdog = Watchdog { heartbeats: heartbeats.clone(), index: 0, others };
        let taken = Rc::new(Cell::new(0));
        let count = taken.clone();
        event_loop
            .block_on(async move {
                let keeper = event::spawn(watchdog.run(move |listener, _| {
                    assert_eq!(listener, 7);
                    count.set(count.get() + 1);
                }));
                let _clients = [TcpStream::connect(addr), TcpStream::connect(addr)];
                // The other one has no heartbeat yet, then it has one, which stays new because it
                // is ahead of the clock.
                look(&heartbeats).await;
                assert_eq!(taken.get(), 0);
                heartbeats.beat_at(2, 3_600_000);
                look(&heartbeats).await;
                look(&heartbeats).await;
                assert_eq!(taken.get(), 0);
                // Then it is silent.
                heartbeats.beat_at(2, -(STUCK_MS as i64) - 1);
                look(&heartbeats).await;
                assert_eq!(taken.get(), 2);
                event::task::cancel(keeper);
            })
            .unwrap();
    }
}
