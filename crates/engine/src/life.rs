//! The life of an engine in a worker: what it has under way, and how it leaves.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use event::Gate;

/// Whether a worker's engine is to leave, or gives up, and how much of its work is left.
#[derive(Default)]
pub struct Life {
    /// Closed when the worker is to leave: parked connections wake, and answers end theirs.
    pub gate: Gate,
    given_up: Cell<bool>,
    active: Rc<Cell<usize>>,
}

impl Life {
    /// Says whether the worker is to leave.
    #[inline]
    pub fn is_leaving(&self) -> bool {
        self.gate.is_closed()
    }

    /// Gives up what is under way: every task wakes and finds its work at an end.
    pub fn give_up(&self) {
        self.given_up.set(true);
        event::task::wake_all();
    }

    /// Work that keeps a worker from leaving while it lasts.
    pub fn work(&self) -> Work {
        self.active.set(self.active.get() + 1);
        Work(self.active.clone())
    }

    /// The pieces of work under way.
    pub fn active(&self) -> usize {
        self.active.get()
    }

    /// Runs `future` until it ends, or until connections are given up: it is dropped then. Costs
    /// nothing meanwhile, as every task is woken when that comes.
    pub async fn unless_given_up<T>(
        &self,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        std::future::poll_fn(|cx| match self.given_up.get() {
            true => Poll::Ready(None),
            false => future.as_mut().poll(cx).map(Some),
        })
        .await
    }
}

/// A piece of work under way; it ends when this is dropped.
pub struct Work(Rc<Cell<usize>>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}
