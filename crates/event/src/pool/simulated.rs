//! A pool without threads, for the simulated driver: tasks wait, and then run on the loop, after
//! random times. So every order in which threads can end is met, and met again with the same seed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::{Counters, Job, Refused};
use crate::deadline::sleep;
use crate::driver::Driver;
use crate::driver::sim::net::Net;
use crate::runtime::inner::with;
use crate::runtime::task::{self, yield_now};

pub(super) struct Virtual {
    threads: usize,
    max_queue: usize,
    state: RefCell<VirtualState>,
}

#[derive(Default)]
struct VirtualState {
    /// Tasks with the time at which they came.
    jobs: VecDeque<(Job, u64)>,
    counters: Counters,
    /// Simulated threads, which live while there is work.
    threads: usize,
}

impl Virtual {
    pub(super) fn new(threads: usize, max_queue: usize) -> Rc<Virtual> {
        Rc::new(Virtual { threads, max_queue, state: RefCell::default() })
    }

    pub(super) fn post(self: &Rc<Self>, job: Job) -> Result<(), Refused> {
        let mut state = self.state.borrow_mut();
        let busy = state.jobs.len() + state.counters.running;
        if super::is_full(busy, self.threads, self.max_queue) || by_net(Net::refuses) {
            state.counters.refused += 1;
            return Err(Refused::Full(busy.saturating_sub(self.threads)));
        }
        state.jobs.push_back((job, base::time::now_ms()));
        if busy >= state.threads && state.threads < self.threads {
            state.threads += 1;
            task::spawn(self.clone().thread(Alive(self.clone())));
        }
        Ok(())
    }

    async fn thread(self: Rc<Self>, _alive: Alive) {
        // Even the quickest thread answers no earlier than the next round.
        yield_now().await;
        loop {
            let taken = {
                let state = &mut *self.state.borrow_mut();
                let taken = state.jobs.pop_front();
                if let Some((_, came)) = &taken {
                    state.counters.running += 1;
                    let waited_us = base::time::now_ms().saturating_sub(*came) * 1000;
                    let longest = &mut state.counters.longest_wait_us;
                    *longest = waited_us.max(*longest);
                }
                taken
            };
            let Some((job, _)) = taken else { return };
            match by_net(Net::task_ms) {
                0 => {}
                ms => sleep(ms).await,
            }
            let notice = job();
            {
                let counters = &mut self.state.borrow_mut().counters;
                counters.running -= 1;
                counters.done += 1;
            }
            notice.give();
        }
    }

    pub(super) fn counters(&self) -> Counters {
        let state = self.state.borrow();
        Counters { queued: state.jobs.len(), ..state.counters }
    }
}

/// A simulated thread is there, until its task goes: with the loop, at the latest.
struct Alive(Rc<Virtual>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.state.borrow_mut().threads -= 1;
    }
}

/// Asks the source of chance, which the simulated network has.
fn by_net<T: Default>(ask: impl FnOnce(&mut Net) -> T) -> T {
    with(|inner| match &mut inner.driver {
        Driver::Sim(sim) => ask(&mut sim.net),
        _ => T::default(),
    })
}
