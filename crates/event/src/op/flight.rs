//! Waiting for operations in the hands of the driver; see [`crate::state::flights`].

use std::io;
use std::task::{Context, Poll};

use rustix::io::Errno;

use super::wait::Wait;
use crate::deadline::Deadline;
use crate::runtime::inner::Inner;
use crate::sock::Registered;
use crate::state::flights::FlightOp;
use crate::state::index::NONE;
use crate::state::slot::{Park, Terms};
use crate::state::socks::{Direction, SockKey};

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
