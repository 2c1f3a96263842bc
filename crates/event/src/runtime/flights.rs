//! Operations in the hands of the driver, beyond one future's wait: posted sends, cancelling, and
//! sockets that close after their last operation.

use std::os::fd::{AsRawFd, BorrowedFd};

use mem::Chain;
use rustix::io::Errno;

use crate::deadline::Deadline;
use crate::runtime::inner::Inner;
use crate::sock::Registered;
use crate::state::flights::{Flight, FlightOp, Flights};
use crate::state::socks::out;

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
