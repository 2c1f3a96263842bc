//! Waiting for readiness: parked connections, and the wait within every other operation.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::wait::Wait;
use crate::deadline::Deadline;
use crate::gate::Gate;
use crate::runtime::inner::{Inner, try_with, with};
use crate::sock::{Registered, Sock};
use crate::state::Core;
use crate::state::index::NONE;
use crate::state::slot::{Park, SlotState, Terms};
use crate::state::socks::{Direction, bits};

/// Why a parked connection was woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// There may be bytes to read, or the end of the stream.
    Ready,
    /// The gate was closed.
    Gate,
    /// The loop has no connections or no memory left: this one should close.
    Reclaim,
}

/// The ends of a wait besides readiness.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) deadline_ms: u64,
    pub(crate) gate: u32,
    pub(crate) park: Park,
}

impl Limits {
    pub(crate) fn plain(deadline: Deadline) -> Limits {
        Limits { deadline_ms: deadline.at_ms(), gate: 0, park: Park::No }
    }
}

impl Wait {
    /// Waits until the driver has `sock` for ready; at once when it already has.
    pub(crate) fn poll_ready(
        &mut self,
        inner: &mut Inner,
        cx: &mut Context<'_>,
        sock: &Registered,
        direction: Direction,
        limits: Limits,
    ) -> Poll<io::Result<Wake>> {
        if let Some(polled) = self.poll(inner, cx) {
            return polled.map(|state| match state {
                SlotState::TimedOut => Err(io::ErrorKind::TimedOut.into()),
                SlotState::Shed => Err(io::ErrorKind::OutOfMemory.into()),
                SlotState::Gate => Ok(Wake::Gate),
                SlotState::Reclaim => Ok(Wake::Reclaim),
                _ => Ok(Wake::Ready),
            });
        }
        let Some(entry) = inner.core.socks.get(sock.key) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if entry.bits & direction.bit() != 0 {
            return Poll::Ready(Ok(Wake::Ready));
        }
        if entry.waiter(direction) != NONE {
            return Poll::Ready(Err(io::ErrorKind::ResourceBusy.into()));
        }
        inner.driver.arm(&mut inner.core, sock.wish(direction))?;
        let terms = Terms {
            sock: sock.key.index,
            gate: limits.gate,
            park: limits.park,
            deadline_ms: limits.deadline_ms,
        };
        self.begin(inner, cx, terms);
        inner.core.set_waiter(sock.key, direction, self.key().index);
        Poll::Pending
    }
}

/// The future of the waits for readiness. Every idle connection has one: [`Limits`] lie in it
/// field by field, without padding between.
#[must_use = "a future does nothing until it is awaited"]
pub(crate) struct Ready<'a> {
    sock: &'a Registered,
    wait: Wait,
    deadline_ms: u64,
    gate: u32,
    park: Park,
    direction: Direction,
    /// Whether reporting readiness consumes it.
    once: bool,
}

impl<'a> Ready<'a> {
    fn new(sock: &'a Registered, direction: Direction, limits: Limits) -> Ready<'a> {
        let Limits { deadline_ms, gate, park } = limits;
        Ready { sock, wait: Wait::new(), deadline_ms, gate, park, direction, once: false }
    }

    /// A wait for a descriptor that its owner uses without the loop's knowledge.
    pub(crate) fn once(
        sock: &'a Registered,
        direction: Direction,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<()>> + use<'a> {
        Ready { once: true, ..Ready::new(sock, direction, Limits::plain(deadline)) }.ended()
    }

    /// The same for reading, with a gate.
    pub(crate) fn once_or(sock: &'a Registered, gate: &Gate, deadline: Deadline) -> Ready<'a> {
        let limits = Limits { gate: gate.id(), ..Limits::plain(deadline) };
        Ready { once: true, ..Ready::new(sock, Direction::Read, limits) }
    }

    /// Waits for readiness alone. Without a gate and parking there is no other reason to report.
    fn ended(mut self) -> impl Future<Output = io::Result<()>> + Unpin + use<'a> {
        std::future::poll_fn(move |cx| Pin::new(&mut self).poll(cx).map_ok(drop))
    }
}

impl Future for Ready<'_> {
    type Output = io::Result<Wake>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Wake>> {
        let this = &mut *self;
        let limits = Limits { deadline_ms: this.deadline_ms, gate: this.gate, park: this.park };
        with(|inner| {
            let polled = this.wait.poll_ready(inner, cx, this.sock, this.direction, limits);
            if this.once
                && matches!(polled, Poll::Ready(Ok(Wake::Ready)))
                && let Some(entry) = inner.core.socks.get(this.sock.key)
            {
                entry.bits &= !this.direction.bit();
            }
            polled
        })
    }
}

/// Which of two sockets ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// There may be something to read from the one that is waited for.
    This,
    /// The other one is readable, or its peer sends no more, depending on what the wait is for.
    Other,
}

/// The future of [`Sock::readable_while`] and [`Sock::either_readable`]: one slot, and one timer,
/// for two sockets.
struct ReadyBoth<'a> {
    sock: &'a Registered,
    other: Option<&'a Registered>,
    wait: Wait,
    deadline_ms: u64,
    /// The event that is waited for at the other socket.
    direction: Direction,
    /// The slot is the other socket's reader, too.
    watching: bool,
}

impl<'a> ReadyBoth<'a> {
    fn new(
        sock: &'a Sock,
        other: Option<&'a Sock>,
        direction: Direction,
        deadline: Deadline,
    ) -> ReadyBoth<'a> {
        let (other, deadline_ms) = (other.map(|other| &other.0), deadline.at_ms());
        let (wait, watching) = (Wait::new(), false);
        ReadyBoth { sock: &sock.0, other, wait, deadline_ms, direction, watching }
    }

    fn poll_both(&mut self, inner: &mut Inner, cx: &mut Context<'_>) -> Poll<io::Result<Side>> {
        let slot = self.wait.key().index;
        match self.wait.poll(inner, cx) {
            Some(Poll::Pending) => return Poll::Pending,
            Some(Poll::Ready(state)) => {
                self.forget_other(inner, slot);
                match state {
                    SlotState::TimedOut => return Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                    SlotState::Shed => return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into())),
                    _ => (),
                }
            }
            None => (),
        }
        let Inner { core, driver } = inner;
        let Some(entry) = core.socks.get(self.sock.key) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if entry.bits & bits::READ != 0 {
            return Poll::Ready(Ok(Side::This));
        }
        if entry.reader != NONE {
            return Poll::Ready(Err(io::ErrorKind::ResourceBusy.into()));
        }
        driver.arm(core, self.sock.wish(Direction::Read))?;
        // A waiter of the other one is woken as well.
        let direction = self.direction;
        let free =
            |core: &mut Core, key| core.socks.get(key).is_some_and(|entry| entry.reader == NONE);
        let mut other = self.other.filter(|other| free(core, other.key));
        if let Some(watched) = other
            && let Err(e) = driver.arm(core, watched.wish(direction))
        {
            if direction == Direction::Read {
                return Poll::Ready(Err(e));
            }
            // The first socket is what is waited for.
            other = None;
        }
        let ready = |core: &mut Core, key| {
            core.socks.get(key).is_some_and(|entry| entry.bits & direction.bit() != 0)
        };
        if other.is_some_and(|other| ready(core, other.key)) {
            return Poll::Ready(Ok(Side::Other));
        }
        let terms = Terms {
            sock: self.sock.key.index,
            gate: 0,
            park: Park::No,
            deadline_ms: self.deadline_ms,
        };
        self.wait.begin(inner, cx, terms);
        let slot = self.wait.key().index;
        inner.core.set_waiter(self.sock.key, Direction::Read, slot);
        if let Some(other) = other {
            inner.core.set_waiter(other.key, direction, slot);
            self.watching = true;
        }
        Poll::Pending
    }

    fn forget_other(&mut self, inner: &mut Inner, slot: u32) {
        if std::mem::take(&mut self.watching)
            && let Some(other) = self.other
        {
            inner.core.socks.forget_waiter(other.key.index, slot);
        }
    }
}

impl Future for ReadyBoth<'_> {
    type Output = io::Result<Side>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Side>> {
        with(|inner| self.poll_both(inner, cx))
    }
}

impl Drop for ReadyBoth<'_> {
    fn drop(&mut self) {
        if self.watching {
            // Before the slot itself is released.
            let slot = self.wait.key().index;
            let _ = try_with(|inner| self.forget_other(inner, slot));
        }
    }
}

impl Sock {
    /// Waits until there may be something to read, or the end of it, or until the peer of `other`
    /// is known to send no more. Counts as the reader of both; where `other` has a reader, only
    /// `self` is waited for. The error is `TimedOut` at the deadline.
    pub fn readable_while<'a>(
        &'a self,
        other: Option<&'a Sock>,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<Side>> + use<'a> {
        ReadyBoth::new(self, other, Direction::PeerClosed, deadline)
    }

    /// Waits until there may be something to read, or the end of it, from this socket or from
    /// `other`. Counts as the reader of both; a relay that is idle waits so. The error is
    /// `TimedOut` at the deadline.
    pub fn either_readable<'a>(
        &'a self,
        other: &'a Sock,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<Side>> + use<'a> {
        ReadyBoth::new(self, Some(other), Direction::Read, deadline)
    }

    /// Waits until there may be something to read, or the end of it. Owns no buffer meanwhile. The
    /// error is `TimedOut` at the deadline.
    pub fn readable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> + use<'_> {
        Ready::new(&self.0, Direction::Read, Limits::plain(deadline)).ended()
    }

    /// Waits until something may be sent.
    pub fn writable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> + use<'_> {
        Ready::new(&self.0, Direction::Write, Limits::plain(deadline)).ended()
    }

    /// Parks an idle connection: waits until there may be something to read, the gate is closed, or
    /// the loop is short of connections and reclaims this one. Data goes before the gate.
    pub fn readable_or(
        &self,
        gate: &Gate,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<Wake>> + use<'_> {
        self.parked(gate, Park::Idle, deadline)
    }

    /// The same for a connection whose peer owes its first request, or the rest of one: see
    /// [`victims`](crate::runtime::victims).
    pub fn owed_or(
        &self,
        gate: &Gate,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<Wake>> + use<'_> {
        self.parked(gate, Park::Begun, deadline)
    }

    /// The same without a gate. A connection that was not accepted owes nothing, and is only waited
    /// for. The error is `ConnectionAborted` where the loop wants this one back.
    pub fn owed(
        &self,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<()>> + Unpin + use<'_> {
        let is_client = with(|inner| {
            inner.core.socks.get(self.0.key).is_some_and(|e| e.bits & bits::ACCEPTED != 0)
        });
        let park = if is_client { Park::Begun } else { Park::No };
        let limits = Limits { park, ..Limits::plain(deadline) };
        let mut ready = Ready::new(&self.0, Direction::Read, limits);
        std::future::poll_fn(move |cx| {
            Pin::new(&mut ready).poll(cx).map(|woken| match woken? {
                Wake::Reclaim => Err(io::ErrorKind::ConnectionAborted.into()),
                Wake::Ready | Wake::Gate => Ok(()),
            })
        })
    }

    fn parked(
        &self,
        gate: &Gate,
        park: Park,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<Wake>> + use<'_> {
        let limits = Limits { deadline_ms: deadline.at_ms(), gate: gate.id(), park };
        let mut ready = Ready::new(&self.0, Direction::Read, limits);
        let closed = gate.is_closed();
        std::future::poll_fn(move |cx| match Pin::new(&mut ready).poll(cx) {
            Poll::Pending if closed => Poll::Ready(Ok(Wake::Gate)),
            polled => polled,
        })
    }

    /// Waits until the peer is known to send no more. Takes the reader's place; data that
    /// arrives meanwhile stays for the next recv.
    pub fn closed_by_peer(&self) -> impl Future<Output = io::Result<()>> + Unpin + use<'_> {
        self.closed_by_peer_before(Deadline::NEVER)
    }

    /// The same until a deadline, at which the error is `TimedOut`.
    pub fn closed_by_peer_before(
        &self,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<()>> + Unpin + use<'_> {
        Ready::new(&self.0, Direction::PeerClosed, Limits::plain(deadline)).ended()
    }
}
