//! Descriptors that one task waits for together: sockets of datagrams, of which a worker may have
//! many thousands.
//!
//! ```text
//!            watch            something to read
//!   (silent) ------> watched -------------------> reported: its tag is ready
//!      ^                |                                |
//!      +---- silence ---+--------------------------------+
//! ```
//!
//! A member costs its place in the table of sockets: no task, no slot and no timer. It is reported
//! for as long as there is something to read, whether a report was answered or not. So a reader
//! need not read until nothing is left; [`Member::watch`] comes behind each read, and costs a
//! system call only with drivers whose reports end the wish.

use std::future::Future;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::deadline::Deadline;
use crate::gate::Gate;
use crate::op::wait::Wait;
use crate::runtime::inner::{try_with, with};
use crate::sock::Registered;
use crate::state::index::NONE;
use crate::state::sets::Entry;
use crate::state::slot::{Park, SlotState, Terms};
use crate::state::socks::{Direction, SockKind};

/// A set of descriptors of this thread's loop.
#[derive(Debug)]
pub struct FdSet {
    number: u32,
}

impl FdSet {
    /// A set without members.
    ///
    /// # Panics
    /// When this thread has no loop.
    #[allow(clippy::new_without_default, reason = "it is of a loop")]
    pub fn new() -> FdSet {
        FdSet { number: with(|inner| inner.core.sets.take()) }
    }

    /// Takes a nonblocking descriptor, which does not count as a connection, into the loop and the
    /// set. `tag` stands for it in reports, which begin with [`Member::watch`].
    pub fn add(&self, fd: OwnedFd, tag: u32) -> Member {
        let member = Registered::new(fd, SockKind::Member, 0);
        with(|inner| {
            if let Some(entry) = inner.core.socks.get(member.key) {
                // A member has no waiters of its own.
                (entry.reader, entry.writer) = (self.number, tag);
            }
        });
        Member(member)
    }

    /// Moves the tags of members with something to read behind those in `tags`. One may come more
    /// than once, and one of a member that is gone may come.
    pub fn take_ready(&self, tags: &mut Vec<u32>) {
        with(|inner| {
            if let Some(entry) = inner.core.sets.0.get_mut(self.number as usize) {
                tags.append(&mut entry.ready);
            }
        });
    }

    /// Ends the wait of the task that waits, if one does.
    pub fn wake(&self) {
        let _ = try_with(|inner| {
            let core = &mut inner.core;
            let entry = core.sets.0.get_mut(self.number as usize);
            if let Some(slot) = entry.and_then(|entry| entry.slot.take()) {
                core.slots.complete(&mut core.tasks, slot, SlotState::Ready);
            }
        });
    }

    /// Waits for a member with something to read, [`FdSet::wake`], the deadline, the end of a gate
    /// that is open now, or whatever else wakes the task. One task may wait at a time.
    pub fn ready(&self, gate: &Gate, deadline: Deadline) -> Ready {
        let gate = if gate.is_closed() { 0 } else { gate.id() };
        let deadline_ms = deadline.at_ms();
        Ready { number: self.number, gate, deadline_ms, wait: Wait::new(), has_begun: false }
    }
}

impl Drop for FdSet {
    fn drop(&mut self) {
        // Without a loop there is no set any more.
        let _ = try_with(|inner| inner.core.sets.0[self.number as usize] = Entry::default());
    }
}

/// The future of [`FdSet::ready`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Ready {
    number: u32,
    gate: u32,
    deadline_ms: u64,
    wait: Wait,
    has_begun: bool,
}

impl Future for Ready {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_begun {
            return Poll::Ready(());
        }
        let this = &mut *self;
        with(|inner| {
            let (number, gate) = (this.number as usize, this.gate);
            if inner.core.sets.0.get(number).is_none_or(|entry| !entry.ready.is_empty()) {
                return Poll::Ready(());
            }
            let deadline_ms = this.deadline_ms;
            let terms = Terms { sock: NONE, gate, park: Park::No, deadline_ms };
            this.wait.begin(inner, cx, terms);
            inner.core.sets.0[number].slot = Some(this.wait.key().index);
            this.has_begun = true;
            Poll::Pending
        })
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if self.has_begun {
            let _ = try_with(|inner| {
                if let Some(entry) = inner.core.sets.0.get_mut(self.number as usize) {
                    entry.slot = None;
                }
            });
        }
    }
}

/// A descriptor in a set; closes when it is dropped.
#[derive(Debug)]
pub struct Member(Registered);

impl Member {
    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Has the driver report it while there is something to read.
    ///
    /// # Errors
    /// The driver's.
    pub fn watch(&self) -> io::Result<()> {
        with(|inner| inner.driver.arm(&mut inner.core, self.0.wish(Direction::Read)))
    }

    /// Ends the reports until [`Member::watch`], though there is something to read. One that was
    /// under way may still come.
    pub fn silence(&self) {
        let _ = try_with(|inner| inner.driver.disarm(&mut inner.core, self.0.key, self.0.fd()));
    }
}
