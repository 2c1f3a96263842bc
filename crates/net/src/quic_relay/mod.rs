//! Datagrams of QUIC that come to one worker and belong to another: those of connections that an
//! *elder* process has, one that is leaving after a reload, or the binary's before.
//!
//! ```text
//!   client ──▶ socket of index i ──▶ newest worker of i ──relay──▶ elder: slot and half of the id
//!     ▲                                                              │
//!     └────────────────────── its own descriptor of the socket ◀─────┘
//! ```
//!
//! Each process that has connections has a *slot*, its number among the living processes of its
//! master; the *half* tells the processes of a binary from those of the one that it replaces, of
//! which there are never three. The master makes a pair of sockets for each worker before it forks
//! it: the worker gets one end, its [`Inbox`], and every later worker the other one. Later workers
//! alone need it: the newest one of an index reads the common socket. A new binary gets the ends of
//! the old one's workers ([`Handover`]).
//!
//! When a process ends, its inbox closes: a datagram for it fails, and is answered with a stateless
//! reset. The slot of a process is free then, and its next owner knows none of those connections,
//! which is the same answer.

mod handover;
mod message;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use shm::Counters;

pub use self::handover::{Handover, VAR};
pub use self::message::{HEAD_MAX, Relayed};
use crate::quic_id::{Id, Key, Place};

/// Bytes that wait in a relay before more are dropped, as far as the system allows.
const QUEUE: usize = 1 << 20;

/// The sending end of a process's relay.
#[derive(Debug)]
pub struct Elder {
    /// The slot of the process in shared memory.
    pub slot: u16,
    /// The half of the ids that its binary uses.
    pub half: bool,
    /// The end.
    pub fd: OwnedFd,
}

impl Elder {
    /// The process has ended.
    pub fn has_ended(&self) -> bool {
        // Nothing comes from the other end but its end.
        let read = os::socket::recv(&self.fd, &mut [0; 1]);
        !matches!(read, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
}

/// The receiving end of a process's relay.
#[derive(Debug)]
pub struct Inbox(OwnedFd);

impl Inbox {
    /// Takes the next message into `buf`, which has room for [`HEAD_MAX`] bytes and the longest
    /// datagrams; nothing where it cannot be read.
    ///
    /// # Errors
    /// The system's; `WouldBlock` where none waits.
    pub fn recv<'a>(&self, buf: &'a mut [u8]) -> io::Result<Option<Relayed<'a>>> {
        let n = os::socket::recv(&self.0, buf)?;
        Ok(Relayed::read(buf.get(..n).unwrap_or_default()))
    }

    /// The descriptor, to wait for it, or to keep it elsewhere.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// An inbox of such a descriptor.
    pub fn of(fd: OwnedFd) -> Inbox {
        Inbox(fd)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes the relay of a process: what others send by, and what it receives from.
///
/// # Errors
/// The system's.
pub fn pair() -> io::Result<(OwnedFd, Inbox)> {
    let (sends, receives) = os::socket::message_pair()?;
    let _ = os::socket::set_sndbuf_large(&sends, QUEUE);
    Ok((sends, Inbox(receives)))
}

/// The slots of a master's living processes, in memory that all of them share.
#[derive(Debug, Clone)]
pub struct Living(Rc<Counters>);

impl Living {
    /// Room for so many slots.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(slots: usize) -> io::Result<Living> {
        Ok(Living(Rc::new(Counters::new(slots)?)))
    }

    /// Notes that a process begins, or has ended. In the master alone.
    pub fn set(&self, slot: usize, lives: bool) {
        if slot < self.0.slots() {
            self.0.line(slot).set(0, u64::from(lives));
        }
    }

    fn has(&self, slot: u16) -> bool {
        let slot = usize::from(slot);
        slot < self.0.slots() && self.0.line(slot).get(0) != 0
    }
}

/// The process that has a connection, by its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// This process.
    Own,
    /// An elder, which may have ended: [`Relay::pass_on`] says so.
    Elder,
    /// Another process that lives, and that this one has no relay to. Its datagrams come here by
    /// mistake: they are dropped, and never answered with a reset.
    Other,
    /// None that lives: a stateless reset is the answer.
    None,
}

/// The fate of a datagram that was to be passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passed {
    /// The elder gets it.
    On,
    /// Too many wait for it: it is lost, as in a network.
    Lost,
    /// The process has ended.
    Ended,
}

/// A worker's place among the processes that have connections.
pub struct Relay {
    key: Rc<Key>,
    place: Place,
    /// None in a server of one process.
    living: Option<Living>,
    elders: Vec<Elder>,
    inbox: Cell<Option<Inbox>>,
}

impl Relay {
    /// The relay of a worker.
    pub fn new(
        key: Rc<Key>,
        place: Place,
        living: Option<Living>,
        elders: Vec<Elder>,
        inbox: Option<Inbox>,
    ) -> Relay {
        Relay { key, place, living, elders, inbox: Cell::new(inbox) }
    }

    /// That of the only process of a server without a master.
    pub fn alone(key: Rc<Key>) -> Relay {
        Relay::new(key, Place { index: 0, slot: 0, half: false }, None, Vec::new(), None)
    }

    /// The socket for datagrams that others pass on; for the first that asks.
    pub fn take_inbox(&self) -> Option<Inbox> {
        self.inbox.take()
    }

    /// The key of connection ids.
    pub fn key(&self) -> &Rc<Key> {
        &self.key
    }

    /// A new connection id of this process's.
    pub fn new_id(&self) -> Id {
        Id::new(&self.key, self.place, os::random::number().to_ne_bytes())
    }

    /// This process's place.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The owner of the connection that a genuine id names.
    pub fn owner(&self, place: Place) -> Owner {
        if place.half == self.place.half && place.slot == self.place.slot {
            return Owner::Own;
        }
        if self.elder(place).is_some() {
            return Owner::Elder;
        }
        let lives = self.living.as_ref().is_some_and(|living| living.has(place.slot));
        match place.half == self.place.half && lives {
            true => Owner::Other,
            false => Owner::None,
        }
    }

    fn elder(&self, place: Place) -> Option<&Elder> {
        self.elders.iter().find(|e| e.slot == place.slot && e.half == place.half)
    }

    /// Passes a datagram on to the elder that its id names.
    pub fn pass_on(&self, place: Place, datagram: &Relayed<'_>) -> Passed {
        let Some(elder) = self.elder(place) else { return Passed::Ended };
        match datagram.send(&elder.fd) {
            Ok(()) => Passed::On,
            Err(e) if has_no_reader(&e) => Passed::Ended,
            Err(_) => Passed::Lost,
        }
    }
}

/// Whether the receiving end of a relay has closed.
fn has_no_reader(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected};
    matches!(e.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotConnected)
}

#[cfg(test)]
mod tests;
