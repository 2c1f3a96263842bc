//! The loop: its parts, and its turn.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::rc::Rc;

use base::log::Level;

use crate::driver::{Driver, DriverKind, EPOLL_EVENTS, Phase};
use crate::listener::AcceptLock;
use crate::runtime::batch::Batch;
use crate::runtime::inner::{INNER, Inner, with};
use crate::runtime::remote::{self, Mailbox};
use crate::runtime::room::descriptors_max;
use crate::runtime::stopwatch::{Run, Stopwatch};
use crate::runtime::{relief, task};
use crate::state::Core;
use crate::state::tasks::Tasks;

/// Rounds of tasks that wake tasks within one turn: accept, the new connection's first recv, and
/// the tasks woken by that need no system call each.
const ROUNDS: usize = 4;

/// The settings of a loop.
pub struct Options {
    /// The source of its events.
    pub driver: DriverKind,
    /// Connections it holds at most (`worker_connections`).
    pub connections: usize,
    /// Accept all waiting connections at a report, not one.
    pub multi_accept: bool,
    /// The lock under which the workers accept, if they do.
    pub accept_mutex: Option<Box<dyn AcceptLock>>,
    /// Delay before trying for the lock again, in milliseconds.
    pub accept_mutex_delay_ms: u64,
    /// Interval between readings of the clock, in milliseconds; 0: after each wait.
    pub timer_resolution_ms: u64,
    /// A turn that takes longer is logged, unless `timer_resolution_ms` makes the clock too coarse
    /// for it, in milliseconds.
    pub stall_ms: u64,
    /// Events that one call of `epoll_wait` collects at most (`epoll_events`); not 0.
    pub epoll_events: usize,
}

/// The default of `stall_threshold`, in milliseconds.
pub const STALL_MS: u64 = 1000;

impl Default for Options {
    fn default() -> Options {
        Options {
            driver: DriverKind::default(),
            connections: 512,
            multi_accept: false,
            accept_mutex: None,
            accept_mutex_delay_ms: 500,
            timer_resolution_ms: 0,
            stall_ms: STALL_MS,
            epoll_events: EPOLL_EVENTS,
        }
    }
}

impl Inner {
    /// Applies the events and timers of a turn; returns the failures to log.
    fn apply_turn(&mut self) -> Vec<io::Error> {
        let Inner { core, driver } = self;
        driver.apply(core, Phase::Rest);
        core.slots.time_flights();
        let now_ms = base::time::now_ms();
        core.slots.expire(&mut core.tasks, now_ms);
        self.follow_posts();
        self.cancel_flights();
        let closed = self.close_landed() | std::mem::take(&mut self.core.descriptor_closed);
        if self.core.starved_until_ms.is_some_and(|until| closed || until <= now_ms) {
            self.feed();
        }
        self.quiet_idle_listeners();
        std::mem::take(&mut self.core.listen_failures)
    }

    /// The limit of the next wait: 0 when tasks are queued, `None` without any timer.
    fn timeout_ms(&self) -> Option<u64> {
        if self.core.tasks.is_ready() {
            return Some(0);
        }
        let core = &self.core;
        let all = [
            core.slots.next_ms(),
            core.starved_until_ms,
            core.relief.next_ms(),
            core.tidying.next_ms(),
        ];
        let next = all.into_iter().flatten().min()?;
        Some(next.saturating_sub(base::time::now_ms()))
    }
}

/// The loop of a thread. Making one installs it for the free functions and types of this crate;
/// dropping it drops all tasks.
pub struct Loop {
    accept_lock: Option<Box<dyn AcceptLock>>,
    accept_delay_ms: u64,
    watch: Stopwatch,
    /// Kept for its capacity.
    batch: Batch,
    /// A loop stays on its thread.
    not_send: PhantomData<*const ()>,
}

impl Loop {
    /// Makes the loop of this thread.
    ///
    /// # Errors
    /// The errors of the driver's system calls, or `AlreadyExists` when the thread has a loop.
    pub fn new(options: Options) -> io::Result<Loop> {
        if INNER.with(|inner| inner.borrow().is_some()) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the thread has a loop"));
        }
        base::time::update();
        mem::recycle_pages();
        let (id, mailbox) = Mailbox::open()?;
        let Options { driver, timer_resolution_ms, epoll_events, .. } = options;
        let driver = Driver::new(driver, &mailbox, timer_resolution_ms, epoll_events)
            .inspect_err(|_| remote::close(id))?;
        let tasks = Tasks::new(id, &task::VTABLE);
        let mut core = Core::new(tasks, options.connections, descriptors_max());
        core.multi_accept = options.multi_accept;
        core.accept_held = options.accept_mutex.is_none();
        core.accept_listening = options.accept_mutex.is_none();
        INNER.with(|inner| *inner.borrow_mut() = Some(Inner { core, driver }));
        let stall_ms = if timer_resolution_ms > 0 { u64::MAX } else { options.stall_ms };
        Ok(Loop {
            accept_lock: options.accept_mutex,
            accept_delay_ms: options.accept_mutex_delay_ms,
            watch: Stopwatch::new(stall_ms),
            batch: Batch::default(),
            not_send: PhantomData,
        })
    }

    /// Turns until `done` returns true; it is called before each turn.
    ///
    /// # Errors
    /// When the driver fails to wait, which it cannot recover from.
    pub fn run_until(&mut self, mut done: impl FnMut() -> bool) -> io::Result<()> {
        while !done() {
            self.turn()?;
        }
        Ok(())
    }

    /// Runs `future` as a task, and the loop until it ends.
    ///
    /// # Errors
    /// As [`Loop::run_until`], or when the task panicked.
    pub fn block_on<T: 'static>(
        &mut self,
        future: impl Future<Output = T> + 'static,
    ) -> io::Result<T> {
        let output = Rc::new(RefCell::new(None));
        let (into, ended) = (output.clone(), Rc::new(()));
        let alive = ended.clone();
        task::spawn(async move {
            let _alive = alive;
            let value = future.await;
            *into.borrow_mut() = Some(value);
        });
        self.run_until(|| Rc::strong_count(&ended) == 1)?;
        output.take().ok_or_else(|| io::Error::other("the task panicked"))
    }

    /// One turn: wait, apply the events, fire timers, run tasks.
    fn turn(&mut self) -> io::Result<()> {
        let timeout_ms = self.accept_turn(with(|inner| inner.timeout_ms()));
        let run = self.watch.run();
        let read_clock = with(|inner| inner.driver.wait(timeout_ms))?;
        if read_clock {
            base::time::update();
        }
        self.account(&run);
        if self.accept_lock.is_some() {
            self.accept_first();
        }
        let listen_failures = with(Inner::apply_turn);
        for error in listen_failures {
            let call = with(|inner| inner.driver.listen_call());
            let text = base::log::os_error(&error);
            base::log!(base::log::default(), Level::Alert, None, "{call} failed {text}");
        }
        self.run_tasks();
        let failed = os::memory::take_short();
        let (shortage, tidy) = with(|inner| {
            let core = &mut inner.core;
            (failed || core.relief.is_on(), core.tidying.is_due())
        });
        if shortage {
            relief::turn(failed);
        }
        if tidy {
            let freed = mem::trim();
            with(|inner| {
                let more = inner.driver.tidy();
                inner.core.tidying.tidy(freed, more);
            });
        }
        Ok(())
    }

    fn run_tasks(&mut self) {
        let mut polls = self.rounds();
        if task::end_turn(polls) {
            polls += self.rounds();
        }
        task::begin_next_turn();
        with(|inner| {
            inner.core.stats.polls += polls as u64;
            inner.core.polled = polls;
            // A simulation's clock does not tell the time spent.
            if !matches!(inner.driver, Driver::Sim(_)) {
                inner.core.tidying.polled(polls);
            }
        });
    }

    /// Runs the queued tasks, and those that they wake; gives the number of polls.
    fn rounds(&mut self) -> usize {
        let mut polls = 0;
        for _ in 0..ROUNDS {
            match self.batch.run_queued() {
                0 => break,
                polled => polls += polled,
            }
            // The freed memory may be in the driver still.
            if os::memory::is_low() {
                break;
            }
        }
        polls
    }

    fn account(&mut self, run: &Run) {
        let polls = with(|inner| inner.core.polled);
        let wait_ms = self.watch.woken(run, polls);
        with(|inner| {
            let stats = &mut inner.core.stats;
            stats.turns += 1;
            stats.wait_ms += wait_ms;
            stats.busy_ms += run.busy_ms;
            stats.longest_turn_ms = stats.longest_turn_ms.max(run.busy_ms);
        });
    }

    /// Tries for the accept lock before a wait, and returns the limit of the wait.
    fn accept_turn(&mut self, timeout_ms: Option<u64>) -> Option<u64> {
        let Some(lock) = &self.accept_lock else { return timeout_ms };
        let disabled = with(|inner| {
            let disabled = inner.core.accept_disabled;
            inner.core.accept_disabled = disabled.saturating_sub(1);
            disabled > 0
        });
        let held = !disabled && lock.try_lock();
        with(|inner| {
            inner.core.accept_held = held;
            inner.core.accept_listening = held;
            inner.sync_listeners();
        });
        match held {
            true => timeout_ms,
            false => Some(timeout_ms.unwrap_or(u64::MAX).min(self.accept_delay_ms)),
        }
    }

    /// Accepts while the lock is held, and releases it before anything else runs.
    fn accept_first(&mut self) {
        let held = with(|inner| {
            if inner.core.accept_held {
                inner.driver.apply(&mut inner.core, Phase::Listeners);
            }
            inner.core.accept_held
        });
        if held {
            let polled = self.batch.run_queued();
            with(|inner| inner.core.stats.polls += polled as u64);
            self.unlock_accept();
        }
    }

    fn unlock_accept(&mut self) {
        let Some(lock) = &self.accept_lock else { return };
        if with(|inner| std::mem::take(&mut inner.core.accept_held)) {
            lock.unlock();
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Futures go while the loop is still there for them to release their slots.
        task::drop_all();
        crate::pool::forget_default();
        // Still held when the last turn failed.
        self.unlock_accept();
        let inner = INNER.with(|inner| inner.borrow_mut().take());
        if let Some(inner) = inner {
            remote::close(inner.core.tasks.loop_id());
        }
    }
}
