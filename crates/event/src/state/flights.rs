//! Operations that the driver performs itself (*flights*), for drivers that complete operations
//! instead of reporting readiness.
//!
//! ```text
//!          start                    land                      the future takes it
//!   (none) ------> Flying ---------------------------> Ready ---------------------> (none)
//!                    |    deadline: cancel, then land as above
//!                    |
//!                    | the future is dropped: cancel
//!                    v              land
//!                 Orphaned ---------------------------> (none), what it came to is dropped
//! ```
//!
//! The memory of such an operation belongs to its flight, never to the future, until it has landed.
//! A socket that is dropped meanwhile closes with the landing of its last flight. A posted send
//! ([`crate::Sock::post`]) is an orphan from the start: it continues by itself when it lands short,
//! and its result shows in the socket's entry. Cancelling is a request: a flight may land with a
//! result although it was cancelled, and then, if its future still exists, that result counts.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;

use mem::{Chain, FileHandle, Page};

use super::socks::SockKey;

/// The error of a send whose file became shorter.
pub(crate) const TRUNCATED: &str = "file was truncated while it was sent";

/// Boxes of flights kept for reuse.
const SPARE_MAX: usize = 512;

/// An operation with the memory that the driver uses for it.
pub(crate) enum FlightOp {
    /// Receive into the spare room of the page.
    Recv { page: Page },
    /// Send from the front of the chain, `limit` bytes at most.
    Send { chain: Chain, limit: usize },
    /// Send all of the chain; `sent` of `len` bytes have gone.
    Post { chain: Chain, sent: u32, len: u32, fd: RawFd },
    /// Read from a file.
    Read(Rc<Reading>),
    /// It has landed, and its future has taken the result.
    Over,
}

pub(crate) struct Flight {
    pub(crate) op: FlightOp,
    pub(crate) sock: SockKey,
    pub(super) result: Option<io::Result<usize>>,
}

/// The operations of the driver, by slot, and the work that waits for their end.
#[derive(Default)]
pub(crate) struct Flights {
    pub(crate) list: Vec<Option<Box<Flight>>>,
    /// Boxes for the next ones.
    #[expect(clippy::vec_box, reason = "it is the box that a flight takes and gives back")]
    spare: Vec<Box<Flight>>,
    /// Sockets that are closed when nothing of theirs is in flight any more.
    pub(crate) leaving: Vec<(SockKey, OwnedFd)>,
    /// The memory of orphans, to be dropped when nothing is borrowed.
    remains: Vec<FlightOp>,
    /// Posted sends that have landed short, and are to go on.
    pub(crate) short: Vec<u32>,
    /// Posted sends for which there was no room, and which the kernel does not wait for.
    pub(crate) full: Vec<u32>,
    /// Posted sends whose sockets are watched for room.
    pub(crate) blocked: Vec<u32>,
    /// Sockets whose last posted send has landed, and which send no more.
    pub(crate) ended: Vec<(SockKey, RawFd)>,
    /// Posted sends that have not landed.
    pub(crate) posted: usize,
}

impl Flights {
    /// The operation of `slot`, for the driver.
    pub(crate) fn get(&mut self, slot: u32) -> Option<&mut Flight> {
        self.list.get_mut(slot as usize)?.as_deref_mut()
    }

    pub(crate) fn insert(&mut self, slot: u32, op: FlightOp, sock: SockKey) {
        let flight = match self.spare.pop() {
            Some(mut flight) => {
                *flight = Flight { op, sock, result: None };
                flight
            }
            None => Box::new(Flight { op, sock, result: None }),
        };
        let at = slot as usize;
        if self.list.len() <= at {
            self.list.resize_with(at + 1, || None);
        }
        self.list[at] = Some(flight);
    }

    pub(crate) fn take(&mut self, slot: u32) -> Option<(FlightOp, Option<io::Result<usize>>)> {
        let mut flight = self.list.get_mut(slot as usize)?.take()?;
        let op = std::mem::replace(&mut flight.op, FlightOp::Over);
        let result = flight.result.take();
        // As many as were in flight at once lately.
        if self.spare.len() < SPARE_MAX {
            self.spare.push(flight);
        }
        Some((op, result))
    }

    /// Drops the result of the operation of `slot`, which has landed.
    pub(crate) fn discard(&mut self, slot: u32) {
        let flight = self.take(slot);
        self.remains.extend(flight.map(|(op, _)| op));
    }

    /// Keeps a descriptor open until its socket's flights have landed.
    pub(crate) fn keep_open(&mut self, key: SockKey, fd: OwnedFd) {
        self.leaving.push((key, fd));
    }

    /// Posted sends that are with the driver.
    pub(crate) fn posted(&self) -> usize {
        self.posted
    }

    pub(crate) fn take_remains(&mut self) -> Vec<FlightOp> {
        std::mem::take(&mut self.remains)
    }
}

/// A read, with all memory that the kernel uses for it. The driver holds it as well while it is in
/// progress.
pub(crate) struct Reading {
    pub(crate) file: FileHandle,
    pub(crate) memory: Vec<u8>,
    /// The first byte of the destination, and its length.
    pub(crate) to: *mut u8,
    pub(crate) len: u32,
    pub(crate) pos: u64,
    /// If not empty, replaces `to` and `len`: each destination is the same memory, so that the data
    /// of one overwrites that of the one before.
    pub(crate) pieces: Vec<libc::iovec>,
}
