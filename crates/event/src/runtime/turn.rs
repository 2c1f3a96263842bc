//! The loop: its parts, and its turn.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::rc::{Rc, Weak};

use base::log::Level;

use crate::driver::{Driver, DriverKind, Phase};
use crate::listener::{AcceptLock, Shared};
use crate::op::fd_set::Sets;
use crate::op::flight::Flights;
use crate::runtime::batch::Batch;
use crate::runtime::relief::{self, Relief, Tidying};
use crate::runtime::remote::{self, Mailbox};
use crate::runtime::slot::Slots;
use crate::runtime::stopwatch::{Run, Stopwatch};
use crate::runtime::task::{self, Tasks};
use crate::runtime::victims::Victims;
use crate::sock::{SockKey, Socks};

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
            epoll_events: crate::driver::EPOLL_EVENTS,
        }
    }
}

/// The work of a loop so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    /// How often the loop waited for events and handled them.
    pub turns: u64,
    /// Tasks polled.
    pub polls: u64,
    /// Tasks that have not ended.
    pub tasks: usize,
    /// Operations that wait.
    pub waiting: usize,
    /// Connections accepted, those without room included.
    pub accepted: u64,
    /// Milliseconds spent waiting in the kernel, to the clock's tick of some milliseconds.
    pub wait_ms: u64,
    /// Milliseconds spent running tasks and timers, to the same precision.
    pub busy_ms: u64,
    /// The longest run between two waits, in milliseconds.
    pub longest_turn_ms: u64,
}

/// The room in a loop.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Room {
    /// Its connections, those to servers included.
    pub connections: usize,
    /// Of these, idle ones and those with half a request: they make room for others.
    pub parked: usize,
    /// The most connections.
    pub connections_max: usize,
    /// About how many descriptors the process has open.
    pub descriptors: usize,
    /// The most descriptors.
    pub descriptors_max: usize,
    /// An allocation has failed lately.
    pub lacks_memory: bool,
    /// Bytes that the kernel may fill, with which no memory needs to be yet.
    pub lent: usize,
}

/// A scarce resource, with its amount.
#[derive(Clone, Copy)]
pub(crate) enum Shortage {
    Connections(usize),
    Descriptors(usize),
}

/// The limit on the numbers of descriptors.
pub(crate) fn descriptors_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// The part that operations share, apart from the driver.
pub(crate) struct Core {
    pub(crate) socks: Socks,
    pub(crate) slots: Slots,
    pub(crate) tasks: Tasks,
    pub(crate) flights: Flights,
    pub(crate) sets: Sets,
    pub(crate) stats: Stats,
    pub(crate) listeners: Vec<Weak<Shared>>,
    pub(crate) idle_listeners: Vec<SockKey>,
    pub(crate) connections_max: usize,
    pub(crate) descriptors_max: usize,
    /// Descriptors that are no connections: the most that were seen in this period.
    others: usize,
    others_period: u64,
    pub(crate) multi_accept: bool,
    /// Whether connections may be accepted: always, or while the accept lock is held.
    pub(crate) accept_held: bool,
    /// Whether listeners are reported: always, or from holding the accept lock until another worker
    /// has it.
    pub(crate) accept_listening: bool,
    /// Turns in which the accept lock is left to others.
    pub(crate) accept_disabled: usize,
    /// Set while descriptors have run out.
    pub(crate) starved_until_ms: Option<u64>,
    pub(crate) relief: Relief,
    pub(crate) victims: Victims,
    /// The last turn in which a connection was accepted.
    pub(crate) accepted_turn: u64,
    tidying: Tidying,
    /// Polls of the last turn.
    pub(crate) polled: usize,
    /// The driver has closed a descriptor since accepting was last looked at.
    pub(crate) descriptor_closed: bool,
    /// Failures to watch a listener, to be logged when nothing is borrowed: a log may use the loop.
    pub(crate) listen_failures: Vec<io::Error>,
    /// The second in which the lack of connections was last logged.
    reuse_logged: u64,
    /// The second in which the lack of descriptors was last logged.
    pub(crate) starved_logged: u64,
}

/// The loop of a thread.
pub(crate) struct Inner {
    /// Dropped first: it ends its use of the memory that the flights own.
    pub(crate) driver: Driver,
    pub(crate) core: Core,
}

thread_local! {
    static INNER: RefCell<Option<Inner>> = const { RefCell::new(None) };
}

/// Calls `f` with this thread's loop. `f` must not call anything that may use the loop itself:
/// dropping a future, a socket or a foreign waker does.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&mut Inner) -> R) -> R {
    INNER.with(|inner| f(inner.borrow_mut().as_mut().expect("this thread has an event loop")))
}

/// [`with`], or nothing when the thread has no loop, or it is in use at this moment.
#[inline]
pub(crate) fn try_with<R>(f: impl FnOnce(&mut Inner) -> R) -> Option<R> {
    INNER.try_with(|inner| Some(f(inner.try_borrow_mut().ok()?.as_mut()?))).ok().flatten()
}

impl Core {
    /// About how many descriptors are open, those of other uses included. The kernel gives the
    /// lowest free number: when `newest` was opened, all below it were in use. Freed lower numbers
    /// hide the others for a while, so the recent maximum is taken.
    fn descriptors_used(&mut self, newest: usize) -> usize {
        let connections = self.socks.with_descriptor();
        let others = (newest + 1).saturating_sub(connections);
        let period = base::time::unix_secs() / 16;
        if others > self.others || period != self.others_period {
            (self.others, self.others_period) = (others, period);
        }
        connections + self.others
    }

    /// Asks some of the parked connections to go; false when there are none.
    pub(crate) fn reclaim(&mut self) -> bool {
        let parked = self.slots.parked();
        if parked > 0 {
            self.reclaim_parked((parked / 8).clamp(1, 32));
        }
        parked > 0
    }

    /// Whether so few connections are left that others make room.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let max = self.connections_max;
        max.saturating_sub(self.socks.connections()) <= max / 16
    }

    /// The room in the loop.
    fn room(&self) -> Room {
        let connections = self.socks.connections();
        Room {
            connections,
            parked: self.slots.parked(),
            connections_max: self.connections_max,
            descriptors: self.socks.with_descriptor() + self.others,
            descriptors_max: self.descriptors_max,
            lacks_memory: self.relief.is_on(),
            lent: 0,
        }
    }
}

/// Whether so much of something is taken that parked connections make room: a sixteenth is left. Of
/// few parked ones most have come this moment, and are about to send their request: they stay until
/// almost nothing is left.
fn is_short(used: usize, max: usize, parked: usize) -> bool {
    let (free, few) = (max.saturating_sub(used), max / 16);
    free <= few && (parked >= few || free <= max / 64)
}

impl Inner {
    /// Asks parked connections to close when few connections or descriptors are left: active ones
    /// need some for files and upstreams. `newest` is the one opened last. Returns the shortage to
    /// log: once a second.
    pub(crate) fn make_room(&mut self, newest: usize) -> Option<Shortage> {
        let core = &mut self.core;
        let (max, descriptors) = (core.connections_max, core.descriptors_max);
        // The connections that were asked to close are still open.
        let leaving = core.leaving();
        let connections = core.socks.connections().saturating_sub(leaving);
        let used = core.descriptors_used(newest).saturating_sub(leaving);
        let parked = core.slots.parked().saturating_sub(leaving);
        let shortage = if is_short(connections, max, parked) {
            Shortage::Connections(max)
        } else if is_short(used, descriptors + 1, parked) {
            Shortage::Descriptors(descriptors)
        } else {
            return None;
        };
        if !core.reclaim() {
            return None;
        }
        let second = base::time::unix_secs();
        (std::mem::replace(&mut core.reuse_logged, second) != second).then_some(shortage)
    }

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
        let core = Core {
            socks: Socks::new(),
            slots: Slots::new(base::time::now_ms()),
            tasks: Tasks::new(id),
            flights: Flights::default(),
            sets: Sets::default(),
            stats: Stats::default(),
            listeners: Vec::new(),
            idle_listeners: Vec::new(),
            connections_max: options.connections,
            descriptors_max: descriptors_max(),
            others: 0,
            others_period: 0,
            multi_accept: options.multi_accept,
            accept_held: options.accept_mutex.is_none(),
            accept_listening: options.accept_mutex.is_none(),
            accept_disabled: 0,
            starved_until_ms: None,
            relief: Relief::default(),
            victims: Victims::default(),
            accepted_turn: 0,
            tidying: Tidying::default(),
            polled: 0,
            descriptor_closed: false,
            listen_failures: Vec::new(),
            reuse_logged: 0,
            starved_logged: 0,
        };
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
        let wait_ms = self.watch.woken(run);
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

/// Whether a thread has a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It has none.
    Absent,
    /// It has one, whose functions may be called.
    Free,
    /// It has one, which is in use: it has called the destructor of a value.
    InUse,
}

/// Whether this thread has a loop.
pub fn presence() -> Presence {
    let seen = INNER.try_with(|inner| match inner.try_borrow_mut() {
        Ok(inner) if inner.is_none() => Presence::Absent,
        Ok(_) => Presence::Free,
        Err(_) => Presence::InUse,
    });
    seen.unwrap_or(Presence::Absent)
}

/// The name of the driver of this thread's loop.
pub fn driver_name() -> &'static str {
    with(|inner| inner.driver.kind().name())
}

/// Connections that this thread's loop holds.
pub fn connections_in_use() -> usize {
    try_with(|inner| inner.core.socks.connections()).unwrap_or(0)
}

/// Sends that were left to the driver of this thread's loop, and are not over.
pub fn posted() -> usize {
    try_with(|inner| inner.core.flights.posted()).unwrap_or(0)
}

/// The room in this thread's loop.
pub fn room() -> Room {
    try_with(|inner| Room { lent: inner.driver.lent(), ..inner.core.room() }).unwrap_or_default()
}

/// The limit of its connections.
pub fn connections_max() -> usize {
    try_with(|inner| inner.core.connections_max).unwrap_or(0)
}

/// The number of the present turn of this thread's loop: it is another one after each wait.
#[inline]
pub fn turn() -> u64 {
    try_with(|inner| inner.core.stats.turns).unwrap_or(0)
}

/// The work of this thread's loop so far.
pub fn stats() -> Stats {
    try_with(|inner| Stats {
        tasks: inner.core.tasks.live(),
        waiting: inner.core.slots.in_use(),
        ..inner.core.stats
    })
    .unwrap_or_default()
}

/// Reports that a descriptor was closed outside the loop's knowledge (a cached file): accepting
/// that has stopped for want of one resumes.
pub fn descriptor_closed() {
    let _ = try_with(|inner| {
        if inner.core.starved_until_ms.is_some() {
            inner.feed();
        }
    });
}
