//! Runs the queued tasks, and lets those that are ready at the same time run in lockstep.
//!
//! ```text
//!  one by one   read a, send a, read b, send b, read c, send c
//!  gathered     read a, read b, read c, send a, send b, send c
//! ```
//!
//! A server's code for a request and the kernel's code for sending each overflow the processor's
//! first-level caches, and a `sendfile` of 1 MB leaves little of our data in the second level. If
//! every request alternated between the two, each would start with caches full of something else.
//! So a task calls [`super::task::gather`] before such a step and waits there for the other tasks
//! that are ready: all of them read and prepare their responses, then all of them send. The same
//! happens in front of requests to upstreams.
//!
//! A group has at most 32 tasks and waits for at most 150 µs. A task that is ready alone does not
//! wait, and no task waits twice in a round.
//!
//! Measured with 64 busy clients against the same program without gathering, in several runs: 4 to
//! 13 % less CPU time for a response of 1 KB, 1 to 7 % for one of 100 KB, 6 to 10 % for a proxied
//! request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use super::inner::with;
use super::relief;
use super::task::{drop_quietly, log_panic, waker};

/// The lists of tasks of one round.
#[derive(Default)]
pub(crate) struct Batch {
    queued: Vec<u32>,
    gathered: Vec<u32>,
}

impl Batch {
    /// Runs one round: polls every task that is queued at its beginning. Tasks that are queued
    /// during the round stay in the queue. Returns the number of polls.
    pub(crate) fn run_queued(&mut self) -> usize {
        let (later, garbage, remains) = with(|inner| {
            let tasks = &mut inner.core.tasks;
            std::mem::swap(&mut tasks.queue, &mut self.queued);
            let (later, garbage) =
                (std::mem::take(&mut tasks.later), std::mem::take(&mut tasks.garbage));
            (later, garbage, inner.core.flights.take_remains())
        });
        later.into_iter().for_each(Waker::wake);
        drop((garbage, remains));
        let mut polls = 0;
        if !self.run(&mut polls) {
            self.make_memory();
        }
        polls
    }

    /// Polls the tasks of the round, and adds the number of polls to `polls`. Returns false if an
    /// allocation failed during a poll: then the round stops, and the lists hold the tasks that
    /// have not run.
    fn run(&mut self, polls: &mut usize) -> bool {
        let len = self.queued.len();
        for at in 0..len {
            let is_full = run_one(&self.queued, at, len - at - 1);
            *polls += 1;
            let mut enough = !os::memory::take_short();
            if enough && is_full {
                enough = self.run_gathered(polls);
            }
            if !enough {
                self.queued.drain(..=at);
                return false;
            }
        }
        self.queued.clear();
        true
    }

    /// The same for the group of waiting tasks.
    fn run_gathered(&mut self, polls: &mut usize) -> bool {
        with(|inner| std::mem::swap(&mut inner.core.tasks.gathering.aside, &mut self.gathered));
        for at in 0..self.gathered.len() {
            run_one(&self.gathered, at, 0);
            *polls += 1;
            if os::memory::take_short() {
                self.gathered.drain(..=at);
                return false;
            }
        }
        self.gathered.clear();
        true
    }

    /// Called after an allocation has failed: the reserve of memory covers little more than the
    /// task that was being polled. So connections are asked to close, and their tasks are queued in
    /// front of those that this round has not run.
    #[cold]
    fn make_memory(&mut self) {
        relief::make_memory();
        with(|inner| {
            let tasks = &mut inner.core.tasks;
            for rest in [&mut self.gathered, &mut tasks.gathering.aside, &mut self.queued] {
                tasks.queue.append(rest);
            }
        });
    }
}

/// Polls the task at `at` of `list`; `behind` more tasks of this round may join the group. Returns
/// whether the group continues now.
fn run_one(list: &[u32], at: usize, behind: usize) -> bool {
    let begun = with(|inner| {
        let tasks = &mut inner.core.tasks;
        tasks.gathering.behind = behind;
        if let Some(&next) = list.get(at + 1) {
            tasks.prefetch(next);
        }
        tasks.begin_poll(list[at]).map(|(future, task)| (tasks.loop_id(), future, task))
    });
    let Some((loop_id, mut future, task)) = begun else {
        return with(|inner| inner.core.tasks.gathering.is_full());
    };
    let waker = waker(loop_id, task);
    let mut cx = Context::from_waker(&waker);
    let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx)));
    let ended = match polled {
        Ok(Poll::Pending) => false,
        Ok(Poll::Ready(())) => true,
        Err(panic) => {
            log_panic(&*panic);
            drop_quietly(Some(panic));
            true
        }
    };
    let (gone, is_full) = with(|inner| {
        let tasks = &mut inner.core.tasks;
        (tasks.end_poll(task, future, ended), tasks.gathering.is_full())
    });
    drop_quietly(gone);
    is_full
}
