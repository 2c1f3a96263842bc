//! The result of a task: the thread stores its value here, and the future takes it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::TaskError;
use crate::runtime::remote;
use crate::runtime::task::{drop_quietly, panic_text};
use crate::state::index::NO_TASK;

pub(super) struct ResultCell<T> {
    state: Mutex<CellState<T>>,
    loop_id: u16,
}

enum CellState<T> {
    /// The task has not ended; the waker of its future, if that was polled already.
    Open(Option<Waker>),
    Ended(Result<T, TaskError>),
    /// The future is gone.
    GivenUp,
}

/// The wake-up at the end of a task, once the pool has counted it.
pub(super) enum Notice {
    /// The task that waits for it.
    Task(Waker),
    /// The loop of that number: a leaving loop looks at its pools after each wait.
    Loop(u16),
    /// No wake-up: the future was not polled yet.
    Nobody,
}

impl Notice {
    pub(super) fn give(self) {
        match self {
            Notice::Task(waker) => waker.wake(),
            Notice::Loop(id) => remote::wake(id, NO_TASK),
            Notice::Nobody => {}
        }
    }
}

impl<T> ResultCell<T> {
    pub(super) fn new(loop_id: u16) -> Arc<ResultCell<T>> {
        Arc::new(ResultCell { state: Mutex::new(CellState::Open(None)), loop_id })
    }

    fn lock(&self) -> MutexGuard<'_, CellState<T>> {
        // Only moves are done under the lock: nothing is left half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the task, on its thread, stores its result, and returns the wake-up.
    pub(super) fn fill(&self, task: impl FnOnce() -> T) -> Notice {
        // A panicked task is gone with all that it owned; nothing sees it half done.
        let value = catch_unwind(AssertUnwindSafe(task)).map_err(|panic| {
            let text = panic_text(&*panic).to_owned();
            drop_quietly(Some(panic));
            TaskError::Panicked(text)
        });
        let before = {
            let mut state = self.lock();
            match &*state {
                CellState::GivenUp => Err(value),
                _ => Ok(std::mem::replace(&mut *state, CellState::Ended(value))),
            }
        };
        match before {
            Ok(CellState::Open(Some(waker))) => Notice::Task(waker),
            Ok(_) => Notice::Nobody,
            Err(unwanted) => {
                drop_quietly(Some(unwanted));
                Notice::Loop(self.loop_id)
            }
        }
    }

    /// The value, once; `waker` is called when it is there.
    pub(super) fn poll(&self, waker: &Waker) -> Option<Result<T, TaskError>> {
        let mut state = self.lock();
        match &mut *state {
            CellState::Open(Some(old)) if old.will_wake(waker) => None,
            CellState::Open(old) => {
                *old = Some(waker.clone());
                None
            }
            _ => match std::mem::replace(&mut *state, CellState::GivenUp) {
                CellState::Ended(value) => Some(value),
                _ => None,
            },
        }
    }

    /// Drops the future's side; returns a value that is already there.
    pub(super) fn give_up(&self) -> Option<Result<T, TaskError>> {
        let before = std::mem::replace(&mut *self.lock(), CellState::GivenUp);
        match before {
            CellState::Ended(value) => Some(value),
            _ => None,
        }
    }
}
