//! What comes of a task: the place where the thread leaves its value and the future finds it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::TaskError;
use crate::remote;
use crate::task::{NO_TASK, drop_quietly, panic_text};

pub(super) struct Outcome<T> {
    state: Mutex<State<T>>,
    loop_id: u16,
}

enum State<T> {
    /// The task has not ended; who waits for it, if somebody has asked already.
    Open(Option<Waker>),
    Ended(Result<T, TaskError>),
    /// Nobody will ask (any more).
    GivenUp,
}

/// Who is to be told that a task has ended, once the pool has counted it.
pub(super) enum Notice {
    /// The one that waits for it.
    Task(Waker),
    /// The loop of that number: when it leaves, it looks at its pools after each wait.
    Loop(u16),
    /// Nobody has asked yet.
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

impl<T> Outcome<T> {
    pub(super) fn new(loop_id: u16) -> Arc<Outcome<T>> {
        Arc::new(Outcome { state: Mutex::new(State::Open(None)), loop_id })
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Only moves are done under the lock: nothing is left half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the task, on its thread, leaves what comes of it, and says who is to be told.
    pub(super) fn fill(&self, task: impl FnOnce() -> T) -> Notice {
        // A task that panicked is gone with all that it owned; nobody sees it half done.
        let value = catch_unwind(AssertUnwindSafe(task)).map_err(|panic| {
            let text = panic_text(&*panic).to_owned();
            drop_quietly(Some(panic));
            TaskError::Panicked(text)
        });
        let before = {
            let mut state = self.lock();
            match &*state {
                State::GivenUp => Err(value),
                _ => Ok(std::mem::replace(&mut *state, State::Ended(value))),
            }
        };
        match before {
            Ok(State::Open(Some(waker))) => Notice::Task(waker),
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
            State::Open(Some(old)) if old.will_wake(waker) => None,
            State::Open(old) => {
                *old = Some(waker.clone());
                None
            }
            _ => match std::mem::replace(&mut *state, State::GivenUp) {
                State::Ended(value) => Some(value),
                _ => None,
            },
        }
    }

    /// Nobody asks any more; a value that is there already is given back.
    pub(super) fn give_up(&self) -> Option<Result<T, TaskError>> {
        let before = std::mem::replace(&mut *self.lock(), State::GivenUp);
        match before {
            State::Ended(value) => Some(value),
            _ => None,
        }
    }
}
