//! A future's hold on a slot: the wait of every operation.

use std::task::{Context, Poll};

use crate::runtime::inner::{Inner, try_with};
use crate::state::index::NONE;
use crate::state::slot::{SlotKey, SlotState, Terms};

/// A future's hold on a slot: none, or the key of one that is released with the future.
#[derive(Debug)]
pub(crate) struct Wait(SlotKey);

impl Wait {
    pub(crate) const fn new() -> Wait {
        Wait(SlotKey::NONE)
    }

    pub(crate) fn key(&self) -> SlotKey {
        self.0
    }

    /// Whether no wait was begun, or the last one was seen to its end.
    pub(crate) fn is_idle(&self) -> bool {
        self.0 == SlotKey::NONE
    }

    /// The state of the wait: `None` when none was begun, `Ready` (with its end, and the slot
    /// released) once, `Pending` before that.
    pub(crate) fn poll(
        &mut self,
        inner: &mut Inner,
        cx: &mut Context<'_>,
    ) -> Option<Poll<SlotState>> {
        if self.0 == SlotKey::NONE {
            return None;
        }
        let core = &mut inner.core;
        match core.slots.state(self.0) {
            SlotState::Free => {
                self.0 = SlotKey::NONE;
                None
            }
            SlotState::Waiting | SlotState::Flying => {
                core.slots.set_waker(&mut core.tasks, self.0, cx.waker());
                Some(Poll::Pending)
            }
            state => {
                self.give_back(inner);
                Some(Poll::Ready(state))
            }
        }
    }

    /// Begins to wait. A wait that was begun before is given up.
    pub(crate) fn begin(&mut self, inner: &mut Inner, cx: &mut Context<'_>, terms: Terms) {
        self.release(inner);
        let core = &mut inner.core;
        self.0 = core.slots.begin(&core.tasks, cx.waker(), terms);
    }

    /// Gives the wait up, or its end away.
    fn release(&mut self, inner: &mut Inner) {
        let slot = self.0.index;
        self.give_back(inner);
        if slot != NONE {
            if inner.core.slots.state_at(slot) == SlotState::Free {
                inner.core.flights.discard(slot);
            }
            inner.cancel_flights();
        }
    }

    fn give_back(&mut self, inner: &mut Inner) {
        let key = std::mem::replace(&mut self.0, SlotKey::NONE);
        if key != SlotKey::NONE {
            let core = &mut inner.core;
            let sock = core.slots.release(&mut core.tasks, key);
            if sock != NONE {
                core.socks.forget_waiter(sock, key.index);
            }
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if self.0 != SlotKey::NONE {
            // Without a loop there is no slot any more.
            let _ = try_with(|inner| self.release(inner));
        }
    }
}
