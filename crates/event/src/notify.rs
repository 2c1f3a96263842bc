//! Waking one waiter, or all of them, within a thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::deadline::Deadline;
use crate::op::wait::Wait;
use crate::runtime::inner::{try_with, with};
use crate::state::index::NONE;
use crate::state::slot::{Park, SlotKey, SlotState, Terms};

/// Notifications between tasks of one thread.
#[derive(Default, Debug)]
pub struct Notify {
    state: RefCell<Waiters>,
}

#[derive(Default, Debug)]
struct Waiters {
    /// A notification that no task waited for.
    permit: bool,
    /// The waiters, the longest first. Entries of operations that have ended may be among them.
    queue: VecDeque<SlotKey>,
}

impl Notify {
    /// Without waiters and without a notification.
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Wakes the longest waiter. Without one, the next wait ends at once.
    pub fn notify_one(&self) {
        if !self.wake_one() {
            self.state.borrow_mut().permit = true;
        }
    }

    /// Wakes all present waiters; later ones wait.
    pub fn notify_all(&self) {
        while self.wake_one() {}
    }

    /// Wakes up to `most` waiters, the longest first; returns their number. Nothing is kept for
    /// later ones.
    pub fn notify_some(&self, most: usize) -> usize {
        (0..most).take_while(|_| self.wake_one()).count()
    }

    fn wake_one(&self) -> bool {
        let waiters = &mut *self.state.borrow_mut();
        let woken = try_with(|inner| {
            let core = &mut inner.core;
            while let Some(key) = waiters.queue.pop_front() {
                if core.slots.state(key) == SlotState::Waiting {
                    core.slots.complete(&mut core.tasks, key.index, SlotState::Ready);
                    return true;
                }
            }
            false
        });
        woken.unwrap_or(false)
    }

    /// Waits for a notification.
    pub fn notified(&self) -> Notified<'_> {
        Notified(self.notified_by(Deadline::NEVER))
    }

    /// Waits for a notification until a deadline; returns whether it came.
    pub fn notified_by(&self, deadline: Deadline) -> NotifiedBy<'_> {
        NotifiedBy { notify: self, wait: Wait::new(), deadline, done: false }
    }
}

/// The future of [`Notify::notified`]. A notification that reaches it goes to the next waiter if
/// the future is dropped before it is polled.
#[must_use = "a future does nothing until it is awaited"]
pub struct Notified<'a>(NotifiedBy<'a>);

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

/// The future of [`Notify::notified_by`]; see [`Notified`].
#[must_use = "a future does nothing until it is awaited"]
pub struct NotifiedBy<'a> {
    notify: &'a Notify,
    wait: Wait,
    deadline: Deadline,
    done: bool,
}

impl Future for NotifiedBy<'_> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        let waiters = &mut *this.notify.state.borrow_mut();
        let key = this.wait.key();
        let polled = with(|inner| match this.wait.poll(inner, cx) {
            Some(polled) => polled.map(|state| state != SlotState::TimedOut),
            None if this.done || std::mem::take(&mut waiters.permit) => Poll::Ready(true),
            None => {
                let deadline_ms = this.deadline.at_ms();
                let terms = Terms { sock: NONE, gate: 0, park: Park::No, deadline_ms };
                this.wait.begin(inner, cx, terms);
                waiters.queue.push_back(this.wait.key());
                Poll::Pending
            }
        });
        this.done = polled.is_ready();
        if polled == Poll::Ready(false) {
            waiters.queue.retain(|&other| other != key);
        }
        polled
    }
}

impl Drop for NotifiedBy<'_> {
    fn drop(&mut self) {
        let key = self.wait.key();
        if self.done || key == SlotKey::NONE {
            return;
        }
        let told = try_with(|inner| inner.core.slots.state(key) == SlotState::Ready);
        if told == Some(true) {
            self.notify.notify_one();
        } else {
            self.notify.state.borrow_mut().queue.retain(|&other| other != key);
        }
    }
}
