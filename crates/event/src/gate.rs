//! A gate that closes once and wakes every task that waits at it.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::op::wait::Wait;
use crate::runtime::inner::{try_with, with};
use crate::runtime::task::{next_turn, spawn};
use crate::state::Core;
use crate::state::index::NONE;
use crate::state::slot::{Park, Terms};

/// Open until it is closed for good, for example to inform the connections of a worker that it
/// shuts down. Waiting at a gate costs the slot of a parked connection nothing, because closing
/// scans all slots.
#[derive(Clone, Debug)]
pub struct Gate(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    id: u32,
    closed: Cell<bool>,
}

thread_local! {
    static LAST_ID: Cell<u32> = const { Cell::new(0) };
}

impl Gate {
    /// An open gate, for the loop of this thread.
    pub fn new() -> Gate {
        // 0 stands for "no gate". Numbers that come round again wake too many, never too few.
        let id = LAST_ID.with(|last| {
            last.set(last.get().wrapping_add(1).max(1));
            last.get()
        });
        Gate(Rc::new(Inner { id, closed: Cell::new(false) }))
    }

    /// Closes the gate and wakes every task that waits at it: of many, some in each turn of the
    /// loop.
    pub fn close(&self) {
        if self.0.closed.replace(true) {
            return;
        }
        let id = self.0.id;
        if let Some(Some(next)) = try_with(|inner| close_from(&mut inner.core, id, 0)) {
            spawn(async move {
                let mut next = Some(next);
                while let Some(from) = next {
                    next_turn().await;
                    next = with(|inner| close_from(&mut inner.core, id, from));
                }
            });
        }
    }

    /// Whether the gate was closed.
    pub fn is_closed(&self) -> bool {
        self.0.closed.get()
    }

    /// Waits until the gate is closed.
    pub fn closed(&self) -> Closed<'_> {
        Closed { gate: self, wait: Wait::new() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id
    }
}

impl Default for Gate {
    fn default() -> Gate {
        Gate::new()
    }
}

fn close_from(core: &mut Core, id: u32, from: usize) -> Option<usize> {
    core.slots.close_gate(&mut core.tasks, id, from)
}

/// The future of [`Gate::closed`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Closed<'a> {
    gate: &'a Gate,
    wait: Wait,
}

impl Future for Closed<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.gate.is_closed() {
            return Poll::Ready(());
        }
        with(|inner| {
            if this.wait.poll(inner, cx).is_none_or(|polled| polled.is_ready()) {
                let gate = this.gate.id();
                let terms = Terms { sock: NONE, gate, park: Park::No, deadline_ms: u64::MAX };
                this.wait.begin(inner, cx, terms);
            }
            Poll::Pending
        })
    }
}
