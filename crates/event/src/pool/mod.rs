//! Thread pools for blocking work: disks, and libraries that block.
//!
//! ```text
//!   the loop's thread                     threads of the pool (started when there is work)
//!   pool.run(task) ── queues ──────────────▶ the task runs, its value goes into the ResultCell
//!        │                                                     │
//!   Run (a future) ◀── remote queue, eventfd (one for many) ── wake
//! ```
//!
//! A pool belongs to one loop. Until its first task it is a plain value, so that it can be made
//! before a fork. Threads start one by one, when a task finds none idle; all but one end after ten
//! seconds without work. As many tasks compute at once as the worker has processors, and further
//! ones run while tasks wait for disks ([`threads`]). If not even one thread can be started (memory
//! or processes are short), tasks run on the loop, which waits for them.
//!
//! A pool has two queues and takes from each in turn, so that short tasks (names, small files,
//! parts of files that several requests wait for) do not wait behind hundreds of long reads.
//!
//! A task owns all its data: dropping its future discards the result and never the work, and
//! nothing that a thread uses goes away with a request or a connection. On the simulated driver
//! there are no threads: tasks run on the loop, after random delays.
//!
//! Modules that have blocking code of their own use [`run_blocking`].

mod result;
mod simulated;
mod threads;

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use base::log::{Level, debug};

use self::result::{Notice, ResultCell};
use self::simulated::Virtual;
use self::threads::Shared;
use crate::driver::Driver;
use crate::runtime::inner::{try_with, with};

/// The name of the pool that is used where none is named.
pub const DEFAULT_NAME: &str = "default";
/// Threads of the default pool, when the configuration does not say.
const DEFAULT_THREADS: usize = 32;
/// Tasks that may wait for a thread, where the configuration does not say.
pub const DEFAULT_QUEUE: usize = 65536;

type Job = Box<dyn FnOnce() -> Notice + Send>;

/// Why a task has no value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskError {
    /// As many tasks wait as may. The task was not run.
    QueueFull,
    /// The task panicked, with this text.
    Panicked(String),
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskError::QueueFull => f.write_str("the queue of the thread pool is full"),
            TaskError::Panicked(text) => write!(f, "panic in a thread pool's task: {text}"),
        }
    }
}

impl std::error::Error for TaskError {}

impl From<TaskError> for std::io::Error {
    fn from(error: TaskError) -> std::io::Error {
        std::io::Error::other(error)
    }
}

/// The work of a pool, done and queued.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Tasks that wait for a thread.
    pub queued: usize,
    /// Tasks that run.
    pub running: usize,
    /// Tasks that ended, with a value or by a panic.
    pub done: u64,
    /// Tasks that were refused.
    pub refused: u64,
    /// The longest time that a task has waited for a thread, in microseconds.
    pub longest_wait_us: u64,
}

/// A pool of threads. Clones are the same pool; it ends with the last of them, when its tasks are
/// done.
#[derive(Clone)]
pub struct Pool(Rc<Inner>);

struct Inner {
    name: Box<str>,
    threads: usize,
    max_queue: usize,
    /// The stack of each thread, bytes.
    stack: usize,
    engine: OnceCell<Engine>,
    /// No thread could be started, which was logged.
    is_alone: Cell<bool>,
}

enum Engine {
    Threads(Arc<Shared>),
    Virtual(Rc<Virtual>),
}

/// Threads that write logs at most: each file has one at a time.
const LOG_THREADS: usize = 16;

/// Files that may wait for one of them: more than a configuration has.
const LOG_QUEUE: usize = 1 << 20;

/// The stack of one of them, which does nothing but write.
const LOG_STACK: usize = 128 << 10;

/// The name of the pool that writes logs.
const LOGS_NAME: &str = "logs";

/// Processors for tasks that compute, of each worker; 0: as many as there are.
static PROCESSORS: AtomicUsize = AtomicUsize::new(0);

/// Sets the number of workers that share the processors.
pub fn set_workers(workers: usize) {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    PROCESSORS.store((all / workers.max(1)).max(1), Ordering::Relaxed);
}

fn processors() -> usize {
    if PROCESSORS.load(Ordering::Relaxed) == 0 {
        set_workers(1);
    }
    PROCESSORS.load(Ordering::Relaxed)
}

thread_local! {
    static DEFAULT: RefCell<Option<Pool>> = const { RefCell::new(None) };
    static LOGS: RefCell<Option<Pool>> = const { RefCell::new(None) };
    /// The pools of this thread that have begun to work.
    static STARTED: RefCell<Vec<Weak<Inner>>> = const { RefCell::new(Vec::new()) };
}

/// Whether a pool with `tasks` tasks, running or waiting, takes no more.
fn is_full(tasks: usize, threads: usize, max_queue: usize) -> bool {
    tasks >= threads.saturating_add(max_queue)
}

impl Pool {
    /// A pool of at most `threads` threads (one at least), for which at most `max_queue` tasks may
    /// wait when all of them are busy. Starts nothing.
    pub fn new(name: &str, threads: usize, max_queue: usize) -> Pool {
        Pool::with_stack(name, threads, max_queue, threads::STACK)
    }

    /// The same with so many bytes of stack for each thread. Where no thread can be started, tasks
    /// run on the thread of the loop, which has its own.
    pub fn with_stack(name: &str, threads: usize, max_queue: usize, stack: usize) -> Pool {
        let (name, threads) = (name.into(), threads.max(1));
        let (engine, is_alone) = (OnceCell::new(), Cell::new(false));
        Pool(Rc::new(Inner { name, threads, max_queue, stack, engine, is_alone }))
    }

    /// The name that `thread_pool` gave it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The limit of its threads.
    pub fn threads(&self) -> usize {
        self.0.threads
    }

    /// The limit of tasks that wait while all threads are busy.
    pub fn max_queue(&self) -> usize {
        self.0.max_queue
    }

    /// Whether the next task would be refused.
    pub fn is_full(&self) -> bool {
        let Counters { queued, running, .. } = self.counters();
        is_full(queued + running, self.threads(), self.max_queue())
    }

    /// Its work, done and queued.
    pub fn counters(&self) -> Counters {
        match self.0.engine.get() {
            None => Counters::default(),
            Some(Engine::Threads(shared)) => shared.counters(),
            Some(Engine::Virtual(virt)) => virt.counters(),
        }
    }

    /// Gives `task` to a thread, now; the future has its value. Dropping the future discards the
    /// value, in the pool, and not the task, which runs in any case.
    ///
    /// Never borrow from a request or connection in a task: it outlives them.
    ///
    /// # Errors
    /// The future's: see [`TaskError`]. A full queue is logged.
    ///
    /// # Panics
    /// When this thread has no loop.
    pub fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> Run<T> {
        self.post(task, false)
    }

    /// As [`Pool::run`], for a task that is soon done or that many wait for: a name, a small file.
    /// It does not wait behind all that takes long; of both kinds, every other task that is begun
    /// is one.
    pub fn run_short<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Run<T> {
        self.post(task, true)
    }

    fn post<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
        is_short: bool,
    ) -> Run<T> {
        let outcome = ResultCell::new(with(|inner| inner.core.tasks.loop_id()));
        let of_task = outcome.clone();
        let job: Job = Box::new(move || of_task.fill(task));
        let posted = match self.engine() {
            Engine::Threads(shared) => shared.post(job, is_short),
            // The simulation tries every order, for both kinds.
            Engine::Virtual(virt) => virt.post(job),
        };
        let outcome = match posted {
            Ok(()) => {
                self.note("task added");
                Ok(outcome)
            }
            Err(Refused::Full(waiting)) => Err(self.refused(waiting)),
            Err(Refused::NoThread(job, error)) => {
                self.run_here(job, &error);
                Ok(outcome)
            }
        };
        Run { pool: self.clone(), outcome: Some(outcome) }
    }

    /// Gives `task` to a thread without a way to wait for it.
    ///
    /// # Errors
    /// [`TaskError`], when it will not run.
    pub fn detach(&self, task: impl FnOnce() + Send + 'static) -> Result<(), TaskError> {
        match self.run(task).outcome.take() {
            Some(Err(error)) => Err(error),
            Some(Ok(outcome)) => {
                outcome.give_up();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Writes the state of the pool to the debug log. Not of the pool that writes logs: each line
    /// would bring another.
    fn note(&self, what: &str) {
        let log = base::log::default();
        if log.debug_enabled(debug::CORE) && self.name() != LOGS_NAME {
            let Counters { queued, running, .. } = self.counters();
            let name = self.name();
            base::debug!(
                log,
                debug::CORE,
                None,
                "thread pool \"{name}\": {what}, {queued} queued, {running} running"
            );
        }
    }

    fn engine(&self) -> &Engine {
        self.0.engine.get_or_init(|| {
            STARTED.with(|started| {
                let mut started = started.borrow_mut();
                started.retain(|pool| pool.strong_count() > 0);
                started.push(Rc::downgrade(&self.0));
            });
            let Inner { name, threads, max_queue, stack, .. } = &*self.0;
            if with(|inner| matches!(inner.driver, Driver::Sim(_))) {
                return Engine::Virtual(Virtual::new(*threads, *max_queue));
            }
            let log = base::log::default();
            base::debug!(log, debug::CORE, None, "thread pool \"{name}\" started");
            Engine::Threads(Shared::new(name, *threads, processors(), *max_queue, *stack))
        })
    }

    #[cold]
    fn refused(&self, waiting: usize) -> TaskError {
        let (log, name) = (base::log::default(), self.name());
        base::log!(
            log,
            Level::Error,
            None,
            "thread pool \"{name}\" queue overflow: {waiting} tasks waiting"
        );
        TaskError::QueueFull
    }

    /// Runs a task on the loop for want of a thread.
    #[cold]
    fn run_here(&self, job: Job, error: &std::io::Error) {
        if !self.0.is_alone.replace(true) {
            let (log, name, error) =
                (base::log::default(), self.name(), base::log::os_error(error));
            base::log!(
                log,
                Level::Crit,
                None,
                "pthread_create() failed {error}: without threads in pool \"{name}\" its tasks \
                 hold the worker up"
            );
        }
        job().give();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { name, threads, max_queue, .. } = &*self.0;
        write!(f, "thread_pool {name} threads={threads} max_queue={max_queue}")
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(Engine::Threads(shared)) = self.engine.get() {
            shared.close();
        }
    }
}

/// The pools that a configuration names.
#[derive(Default, Debug)]
pub struct Pools(RefCell<Vec<Pool>>);

impl Pools {
    /// Adds a pool.
    ///
    /// # Errors
    /// The pool, if its name is taken.
    pub fn add(&self, pool: Pool) -> Result<(), Pool> {
        let mut pools = self.0.borrow_mut();
        if pools.iter().any(|p| p.name() == pool.name()) {
            return Err(pool);
        }
        pools.push(pool);
        Ok(())
    }

    /// The pool of that name. [`DEFAULT_NAME`] is always there: a pool of 32 threads, if it was
    /// not added before.
    pub fn get(&self, name: &[u8]) -> Option<Pool> {
        let mut pools = self.0.borrow_mut();
        if let Some(pool) = pools.iter().find(|p| p.name().as_bytes() == name) {
            return Some(pool.clone());
        }
        (name == DEFAULT_NAME.as_bytes()).then(|| {
            let pool = Pool::new(DEFAULT_NAME, DEFAULT_THREADS, DEFAULT_QUEUE);
            pools.push(pool.clone());
            pool
        })
    }

    /// All pools that were added or looked up, in that order.
    pub fn all(&self) -> Vec<Pool> {
        self.0.borrow().clone()
    }

    /// Makes their default pool the one of this thread; see [`default()`].
    pub fn install(&self) {
        if let Some(pool) = self.get(DEFAULT_NAME.as_bytes()) {
            set_default(pool);
        }
    }
}

/// Why a task was not taken.
enum Refused {
    /// So many wait.
    Full(usize),
    /// No thread could be started for the task.
    NoThread(Job, std::io::Error),
}

/// The future of [`Pool::run`].
#[must_use = "without its future a task's value is dropped; use Pool::detach for that"]
pub struct Run<T: Send + 'static> {
    pool: Pool,
    /// `None` once it was returned.
    outcome: Option<Result<Arc<ResultCell<T>>, TaskError>>,
}

impl<T: Send + 'static> Future for Run<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, TaskError>> {
        let value = match self.outcome.take() {
            Some(Ok(outcome)) => match outcome.poll(cx.waker()) {
                Some(value) => {
                    self.pool.note("task done");
                    value
                }
                None => {
                    self.outcome = Some(Ok(outcome));
                    return Poll::Pending;
                }
            },
            Some(Err(error)) => Err(error),
            // Polled after its end.
            None => return Poll::Pending,
        };
        if let Err(error @ TaskError::Panicked(_)) = &value {
            base::log!(base::log::default(), Level::Alert, None, "{error}");
        }
        Poll::Ready(value)
    }
}

impl<T: Send + 'static> Unpin for Run<T> {}

impl<T: Send + 'static> Drop for Run<T> {
    fn drop(&mut self) {
        if let Some(Ok(outcome)) = self.outcome.take()
            && let Some(value) = outcome.give_up()
            && std::mem::needs_drop::<T>()
        {
            // A value that came at this very moment is dropped in the pool: closing a file, say,
            // may wait for a disk. Where the loop or the pool has ended, it is dropped here.
            if try_with(|_| ()).is_some() {
                let _ = self.pool.detach(move || drop(value));
            }
        }
    }
}

/// The pool that is used where none is named: the one that the configuration calls `default`, or
/// one of 32 threads.
pub fn default() -> Pool {
    DEFAULT.with(|default| {
        default
            .borrow_mut()
            .get_or_insert_with(|| Pool::new(DEFAULT_NAME, DEFAULT_THREADS, DEFAULT_QUEUE))
            .clone()
    })
}

/// Makes `pool` the one that [`default()`] gives on this thread.
pub fn set_default(pool: Pool) {
    // The old one goes after the borrow has ended.
    let _old = DEFAULT.with(|default| default.replace(Some(pool)));
}

/// Ends the pools of this thread's own, with its loop.
pub(crate) fn forget_default() {
    let _old = DEFAULT.try_with(|default| default.take());
    let _old = LOGS.try_with(|logs| logs.take());
}

/// The pool that writes log lines. It does nothing else, so that lines are written however busy the
/// others are, and a stuck disk of logs holds up no other disk.
pub fn for_logs() -> Pool {
    LOGS.with(|logs| {
        logs.borrow_mut()
            .get_or_insert_with(|| Pool::with_stack(LOGS_NAME, LOG_THREADS, LOG_QUEUE, LOG_STACK))
            .clone()
    })
}

/// Runs code that blocks (a database's client, a name lookup, a hash, an image) on a thread of the
/// default pool and returns its value. Modules run such code this way; those with a pool of their
/// own call [`Pool::run`].
///
/// The task owns its data, and runs to its end even if the future is dropped. It must not use the
/// loop, a request, or anything else of the loop's thread; `Send` keeps it from most of that.
///
/// ```
/// # let mut event_loop = event::Loop::new(event::Options::default())?;
/// # let answer = event_loop.block_on(async {
/// // In a content handler: Step::Wait(Box::pin(async move { … }))
/// let user = String::from("alice");
/// let found = event::run_blocking(move || {
///     // A library that blocks. Other requests are answered meanwhile.
///     std::fs::read_to_string("/etc/hostname").map(|name| format!("{user} at {name}"))
/// });
/// match found.await {
///     Ok(Ok(text)) => 200 + text.is_empty() as u16,
///     Ok(Err(_disk)) => 404,
///     // The queue was full, or the library panicked.
///     Err(_task) => 503,
/// }
/// # })?;
/// # assert!(matches!(answer, 200 | 404));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`Pool::run`].
pub async fn run_blocking<T: Send + 'static>(
    task: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TaskError> {
    default().run(task).await
}

/// Runs `task` in the default pool where this thread has a loop that it would hold up, and at once
/// where it has none. There is no way to wait for it.
pub fn elsewhere(task: impl FnOnce() + Send + 'static) {
    if try_with(|_| ()).is_some() {
        // Where the queue is full there is worse trouble than a task that was not run.
        let _ = default().detach(task);
    } else {
        task();
    }
}

/// Whether the pools of this thread are idle. A worker that leaves gracefully finishes detached
/// work, too. The pool for logs does not count, because a log that nothing reads may keep its
/// thread busy forever: the logs limit the wait for their last lines themselves.
pub fn all_idle() -> bool {
    started().iter().filter(|pool| pool.name() != LOGS_NAME).all(|pool| {
        let counters = pool.counters();
        counters.queued == 0 && counters.running == 0
    })
}

/// The pools of this thread that have begun to work.
pub fn started() -> Vec<Pool> {
    STARTED.with(|started| started.borrow().iter().filter_map(Weak::upgrade).map(Pool).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_thread_the_loop_does_the_work() {
        let (log, lines) = base::log::capture(Level::Crit);
        base::log::set_default(log);
        let mut event_loop = crate::Loop::new(crate::Options::default()).unwrap();
        // No address space has room for such a stack.
        let pool = Pool::with_stack("lonely", 4, 10, 1 << 50);
        let own = pool.clone();
        let done = event_loop
            .block_on(async move {
                let first = own.run(|| std::thread::current().id()).await;
                let second = own.run_short(|| 7).await;
                (first, second)
            })
            .unwrap();
        assert_eq!(done, (Ok(std::thread::current().id()), Ok(7)));
        let Counters { queued, running, done, refused, .. } = pool.counters();
        assert_eq!((queued, running, done, refused), (0, 0, 2, 0));
        assert_eq!(lines.take().matches("pthread_create() failed").count(), 1);
    }
}
