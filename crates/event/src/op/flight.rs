//! Operations in the hands of the driver: for drivers that complete them instead of reporting
//! readiness.
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
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use mem::{Chain, Page};
use rustix::io::Errno;

use super::ready::Direction;
use super::{Reading, Wait};
use crate::deadline::Deadline;
use crate::runtime::slot::{NONE, Park, Terms};
use crate::runtime::turn::{Core, Inner};
use crate::sock::{Registered, SockKey, bits, out};

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
    result: Option<io::Result<usize>>,
}

/// The operations of the driver, by slot, and the work that waits for their end.
#[derive(Default)]
pub(crate) struct Flights {
    list: Vec<Option<Box<Flight>>>,
    /// Boxes for the next ones.
    #[expect(clippy::vec_box, reason = "it is the box that a flight takes and gives back")]
    spare: Vec<Box<Flight>>,
    /// Sockets that are closed when nothing of theirs is in flight any more.
    leaving: Vec<(SockKey, OwnedFd)>,
    /// The memory of orphans, to be dropped when nothing is borrowed.
    remains: Vec<FlightOp>,
    /// Posted sends that have landed short, and are to go on.
    short: Vec<u32>,
    /// Posted sends for which there was no room, and which the kernel does not wait for.
    full: Vec<u32>,
    /// The same, once their sockets are watched for room.
    blocked: Vec<u32>,
    /// Sockets whose last posted send has landed, and which send no more.
    ended: Vec<(SockKey, RawFd)>,
    /// Posted sends that have not landed.
    posted: usize,
}

impl Flights {
    /// The operation of `slot`, for the driver.
    pub(crate) fn get(&mut self, slot: u32) -> Option<&mut Flight> {
        self.list.get_mut(slot as usize)?.as_deref_mut()
    }

    fn insert(&mut self, slot: u32, op: FlightOp, sock: SockKey) {
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

    fn take(&mut self, slot: u32) -> Option<(FlightOp, Option<io::Result<usize>>)> {
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

impl Core {
    /// The driver is done with the operation of `slot` and with its memory.
    pub(crate) fn land(&mut self, slot: u32, result: io::Result<usize>) {
        let Some(flight) = self.flights.get(slot) else { return };
        if let FlightOp::Post { .. } = flight.op {
            return self.land_post(slot, result);
        }
        if let Some(entry) = self.socks.get(flight.sock) {
            entry.flights = entry.flights.saturating_sub(1);
            if let (FlightOp::Recv { page }, Ok(count)) = (&flight.op, &result) {
                // Here and not when the task runs: a report that comes after this one counts.
                match count {
                    0 => entry.bits |= bits::PEER_CLOSED,
                    _ if page.spare() > 0 && entry.bits & bits::PEER_CLOSED == 0 => {
                        entry.bits &= !bits::READ;
                    }
                    _ => (),
                }
            }
        }
        flight.result = Some(result);
        if self.slots.land(&mut self.tasks, slot) {
            self.flights.discard(slot);
        }
    }
}

impl Core {
    /// Lands a posted send: it continues, or is over and makes room for the next, or broke its
    /// connection.
    /// its connection.
    fn land_post(&mut self, slot: u32, result: io::Result<usize>) {
        let Some(Flight { op: FlightOp::Post { sent, len, fd, .. }, sock, .. }) =
            self.flights.get(slot)
        else {
            return;
        };
        let (key, fd) = (*sock, *fd);
        *sent += result.as_ref().map_or(0, |&sent| sent as u32);
        let whole = *sent >= *len;
        let mut ready = bits::WRITE;
        // The socket may have closed behind its last send.
        if let Some(entry) = self.socks.get(key) {
            match &result {
                Ok(1..) if !whole => return self.flights.short.push(slot),
                // The peer sends no more: then the kernel does not wait for long.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.flights.full.push(slot);
                }
                _ => (),
            }
            entry.flights = entry.flights.saturating_sub(1);
            if !whole {
                entry.out |= out::BROKEN;
                ready |= bits::READ | bits::PEER_CLOSED;
            } else if entry.out & out::LAST != 0 {
                self.flights.ended.push((key, fd));
            }
            entry.out &= !(out::POSTED | out::LAST);
            self.apply(key, ready);
        }
        self.flights.posted -= 1;
        if self.slots.land(&mut self.tasks, slot) {
            self.flights.discard(slot);
        }
    }

    /// A socket that was watched has room.
    pub(crate) fn room_for_posts(&mut self, key: SockKey) {
        let Flights { list, blocked, short, .. } = &mut self.flights;
        let sock = |slot: u32| list.get(slot as usize).and_then(Option::as_ref).map(|f| f.sock);
        short.extend(blocked.extract_if(.., |slot| sock(*slot) == Some(key)));
    }
}

impl Inner {
    /// Asks the driver to cancel the operations that are to end.
    pub(crate) fn cancel_flights(&mut self) {
        let Inner { core, driver } = self;
        for slot in core.slots.take_cancels() {
            let Flights { full, blocked, .. } = &mut core.flights;
            // Sends that wait for room are not in the driver.
            match full.iter().chain(&*blocked).any(|&waiting| waiting == slot) {
                true => {
                    full.retain(|&waiting| waiting != slot);
                    blocked.retain(|&waiting| waiting != slot);
                    core.land_post(slot, Err(Errno::CANCELED.into()));
                }
                false => driver.cancel(slot),
            }
        }
    }

    /// Leaves the sending of `chain`, which has `len` bytes, to the driver. The socket has no other
    /// posted send.
    pub(crate) fn post(&mut self, sock: &Registered, chain: Chain, len: u32, deadline: Deadline) {
        let Inner { core, driver } = self;
        let Some(entry) = core.socks.get(sock.key) else { return };
        entry.flights += 1;
        entry.out |= out::POSTED;
        let fd = sock.fd();
        let slot = core.slots.post(deadline.at_ms());
        core.flights.insert(
            slot,
            FlightOp::Post { chain, sent: 0, len, fd: fd.as_raw_fd() },
            sock.key,
        );
        core.flights.posted += 1;
        driver.start(core, slot, fd);
    }

    /// Does the work that landed posted sends leave.
    pub(crate) fn follow_posts(&mut self) {
        let Inner { core, driver } = self;
        while let Some(slot) = core.flights.short.pop() {
            let Some(Flight { op: FlightOp::Post { fd, .. }, sock, .. }) = core.flights.get(slot)
            else {
                continue;
            };
            let (fd, key) = (*fd, *sock);
            if core.socks.get(key).is_some() {
                // SAFETY: the socket has its entry, and so its descriptor is open.
                driver.start(core, slot, unsafe { BorrowedFd::borrow_raw(fd) });
            } else {
                core.land_post(slot, Ok(0));
            }
        }
        while let Some(slot) = core.flights.full.pop() {
            let Some(Flight { op: FlightOp::Post { fd, .. }, sock, .. }) = core.flights.get(slot)
            else {
                continue;
            };
            let (fd, key) = (*fd, *sock);
            core.flights.blocked.push(slot);
            // SAFETY: as above; a socket keeps its entry while it has flights.
            driver.watch_room(core, key, unsafe { BorrowedFd::borrow_raw(fd) });
        }
        while let Some((key, fd)) = core.flights.ended.pop() {
            if core.socks.get(key).is_some() {
                // SAFETY: as above.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                // Fails when the peer has broken the connection, which shows elsewhere.
                let _ = driver.shutdown_write(key, fd);
            }
        }
    }

    /// Closes sockets whose last flight has landed. Returns whether there were any.
    pub(crate) fn close_landed(&mut self) -> bool {
        let Inner { core, driver } = self;
        let (mut at, mut closed) = (0, false);
        while let Some((key, _)) = core.flights.leaving.get(at) {
            if core.socks.get(*key).is_some_and(|entry| entry.flights > 0) {
                at += 1;
                continue;
            }
            let (key, fd) = core.flights.leaving.swap_remove(at);
            closed |= driver.closing(key, fd).is_some();
            core.socks.remove(key);
        }
        closed
    }
}

impl Wait {
    /// Gives the operation that `make` makes to the driver, and waits for its end.
    pub(crate) fn poll_flight(
        &mut self,
        inner: &mut Inner,
        cx: &mut Context<'_>,
        sock: &Registered,
        deadline: Deadline,
        make: impl FnOnce() -> FlightOp,
    ) -> Poll<(Option<FlightOp>, io::Result<usize>)> {
        if !self.is_idle() {
            return self.poll_landed(inner, cx);
        }
        let Some(entry) = inner.core.socks.get(sock.key) else {
            return Poll::Ready((None, Err(io::ErrorKind::NotConnected.into())));
        };
        let op = make();
        let direction = match op {
            FlightOp::Recv { .. } => Direction::Read,
            _ => Direction::Write,
        };
        if entry.waiter(direction) != NONE {
            return Poll::Ready((Some(op), Err(io::ErrorKind::ResourceBusy.into())));
        }
        entry.flights += 1;
        // The deadline is the flight's, and needs no timer before the next wait is over.
        let sock_index = sock.key.index;
        let terms = Terms { sock: sock_index, gate: 0, park: Park::No, deadline_ms: u64::MAX };
        self.begin(inner, cx, terms);
        let slot = self.key().index;
        inner.core.set_waiter(sock.key, direction, slot);
        inner.core.slots.fly(slot, deadline.at_ms());
        inner.core.flights.insert(slot, op, sock.key);
        inner.driver.start(&mut inner.core, slot, sock.fd());
        Poll::Pending
    }
}

impl Wait {
    /// Waits for the end of the operation that was begun.
    pub(crate) fn poll_landed(
        &mut self,
        inner: &mut Inner,
        cx: &mut Context<'_>,
    ) -> Poll<(Option<FlightOp>, io::Result<usize>)> {
        let slot = self.key().index;
        match self.poll(inner, cx) {
            Some(Poll::Pending) => Poll::Pending,
            _ => Poll::Ready(match inner.core.flights.take(slot) {
                Some((op, result)) => (Some(op), outcome(result)),
                None => (None, Err(io::ErrorKind::NotConnected.into())),
            }),
        }
    }

    /// Gives an operation to the driver that is no socket's and has no deadline.
    pub(crate) fn fly(&mut self, inner: &mut Inner, cx: &mut Context<'_>, op: FlightOp) {
        let terms = Terms { sock: NONE, gate: 0, park: Park::No, deadline_ms: u64::MAX };
        self.begin(inner, cx, terms);
        let slot = self.key().index;
        inner.core.slots.fly(slot, u64::MAX);
        let nobody = SockKey { index: NONE, generation: 0 };
        inner.core.flights.insert(slot, op, nobody);
        inner.driver.start_plain(&mut inner.core, slot);
    }
}

fn outcome(result: Option<io::Result<usize>>) -> io::Result<usize> {
    match result {
        // Only the deadline cancels an operation that has a future.
        Some(Err(error)) if error.raw_os_error() == Some(Errno::CANCELED.raw_os_error()) => {
            Err(io::ErrorKind::TimedOut.into())
        }
        Some(result) => result,
        None => Err(io::ErrorKind::NotConnected.into()),
    }
}
