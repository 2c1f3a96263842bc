//! Connections without a socket of their own: many of them share a datagram socket.
//!
//! They count as connections of the loop and close to make room, as those with a socket do: parked
//! ones when connections or memory run out and, if that is not enough, busy ones of clients that
//! exceed their share. The loop does not see their datagrams, so their owner reports the state of
//! each.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::task::{Context, Poll};

use os::sockaddr::block_of;

use crate::deadline::Deadline;
use crate::op::wait::Wait;
use crate::runtime::inner::{Inner, try_with, with};
use crate::runtime::room::log_shortage;
use crate::state::clients::Standing;
use crate::state::slot::{Park, SlotKey, SlotState, Terms};
use crate::state::socks::{Direction, SockKey, SockKind, bits};

/// The state of a connection, as far as it matters where room is short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// It has work, and stays.
    Busy,
    /// It is kept for the next request.
    Idle,
    /// It owes something: its first request, or the rest of one.
    Owes,
}

/// Why a connection is to be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Its deadline has passed.
    Due,
    /// It should close if it is still parked, because the loop is short of connections or memory.
    Reclaimed,
    /// It should close although it is busy, because its client exceeds its share.
    Displaced,
}

/// A connection without a socket. Its place among the connections is free when it is dropped, or
/// was closed.
#[derive(Debug)]
pub struct Socketless {
    key: SockKey,
    /// The slot of its task's wait.
    slot: Cell<SlotKey>,
    park: Cell<Park>,
    deadline_ms: Cell<u64>,
    is_open: Cell<bool>,
}

/// Whether another `n` connections have room: where all are taken, parked ones are asked to close,
/// and their places count as free.
pub fn has_room(n: usize) -> bool {
    try_with(|inner| {
        let core = &mut inner.core;
        let max = core.connections_max;
        let is_free = |used: usize, leaving: usize| used.saturating_sub(leaving) + n <= max;
        let used = core.socks.connections();
        let leaving = core.leaving();
        is_free(used, leaving) || core.reclaim() && is_free(used, core.leaving())
    })
    .unwrap_or(false)
}

impl Socketless {
    /// A connection of this thread's loop, and of that client; when the loop is short of those, the
    /// longest parked ones are asked to close.
    ///
    /// # Panics
    /// When this thread has no loop.
    pub fn new(client: Option<IpAddr>) -> Socketless {
        let key = with(|inner| inner.core.socks.insert(SockKind::Socketless, 0));
        let this = Socketless {
            key,
            slot: Cell::new(SlotKey::NONE),
            park: Cell::new(Park::No),
            deadline_ms: Cell::new(u64::MAX),
            is_open: Cell::new(true),
        };
        if let Some(ip) = client {
            this.set_client(ip);
        }
        if let Some(shortage) = with(|inner| inner.make_room(0)) {
            log_shortage(shortage);
        }
        this
    }

    /// Names the client whose connection this is: it may move.
    pub fn set_client(&self, ip: IpAddr) {
        with(|inner| inner.core.socks.set_client(self.key, block_of(ip)));
    }

    /// The place of the connection's client, if a share is `share` connections.
    pub fn standing(&self, share: usize) -> Standing {
        let share = u32::try_from(share).unwrap_or(u32::MAX);
        with(|inner| inner.core.socks.clients.standing(self.key.index, share))
    }

    /// Whether the connection was told to close, so that there is room for others.
    #[cold]
    pub fn is_displaced(&self) -> bool {
        with(|inner| inner.core.socks.get(self.key).is_some_and(|e| e.bits & bits::DISPLACED != 0))
    }

    /// Sets the state of the connection, and the time at which [`Socketless::called`] returns.
    pub fn stands(&self, rest: Rest, deadline: Deadline) {
        let park = match rest {
            Rest::Busy => Park::No,
            Rest::Idle => Park::Idle,
            Rest::Owes => Park::Begun,
        };
        let before = (self.park.replace(park), self.deadline_ms.replace(deadline.at_ms()));
        if before != (park, deadline.at_ms()) {
            let slot = self.slot.get();
            let _ = try_with(|inner| inner.core.slots.change(slot, park, deadline.at_ms()));
        }
    }

    /// Waits until the connection is to be looked at; one task does. `None` once it was closed.
    pub async fn called(&self) -> Option<Call> {
        let mut wait = Wait::new();
        poll_fn(|cx| with(|inner| self.poll_called(inner, &mut wait, cx))).await
    }

    fn poll_called(
        &self,
        inner: &mut Inner,
        wait: &mut Wait,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Call>> {
        let ended = match wait.poll(inner, cx) {
            Some(Poll::Pending) => return Poll::Pending,
            Some(Poll::Ready(state)) => Some(state),
            None => None,
        };
        if !self.is_open.get() {
            return Poll::Ready(None);
        }
        match ended {
            // Unless there is a later one now. It does not come again until it is set again.
            Some(SlotState::TimedOut) if self.deadline_ms.get() <= base::time::now_ms() => {
                self.deadline_ms.set(u64::MAX);
                return Poll::Ready(Some(Call::Due));
            }
            Some(SlotState::Reclaim) => return Poll::Ready(Some(Call::Reclaimed)),
            Some(SlotState::Shed) => return Poll::Ready(Some(Call::Displaced)),
            _ => {}
        }
        let terms = Terms {
            sock: self.key.index,
            gate: 0,
            park: self.park.get(),
            deadline_ms: self.deadline_ms.get(),
        };
        wait.begin(inner, cx, terms);
        self.slot.set(wait.key());
        inner.core.set_waiter(self.key, Direction::Read, wait.key().index);
        Poll::Pending
    }

    /// The connection is over: its place is free, and its task's wait ends.
    pub fn close(&self) {
        if !self.is_open.replace(false) {
            return;
        }
        // Without a loop there is no place any more.
        let _ = try_with(|inner| {
            let (core, slot) = (&mut inner.core, self.slot.get());
            if core.slots.state(slot) == SlotState::Waiting {
                core.slots.complete(&mut core.tasks, slot.index, SlotState::Gate);
            }
            core.socks.remove(self.key);
        });
    }
}

impl Drop for Socketless {
    fn drop(&mut self) {
        self.close();
    }
}
