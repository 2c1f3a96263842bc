//! The threads of a pool and their queue.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Counters, Job, Refused};
use crate::runtime::relief::SPARE_THREADS;

/// The state that a pool and its threads share.
pub(super) struct Shared {
    queue: Mutex<Queue>,
    /// Told when there is a task for an idle thread, and when the pool ends.
    work: Condvar,
    name: String,
    threads: usize,
    max_queue: usize,
    stack: usize,
}

/// The stack of a thread: room for the tasks of modules, of which only used pages are memory. 32
/// threads with Rust's 2 MB would exceed the address space of some servers.
pub(super) const STACK: usize = 512 << 10;

/// A thread that was idle for this long ends, unless it is the last: its stack is memory.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Queue {
    jobs: VecDeque<(Job, Instant)>,
    /// Short tasks. They go first every other time, so that neither kind waits for all of the
    /// other.
    short: VecDeque<(Job, Instant)>,
    short_next: bool,
    started: usize,
    running: usize,
    done: u64,
    refused: u64,
    longest_wait_us: u64,
    closed: bool,
}

impl Queue {
    fn waiting(&self) -> usize {
        self.jobs.len() + self.short.len()
    }

    fn take(&mut self) -> Option<(Job, Instant)> {
        self.short_next = !self.short_next;
        let Queue { jobs, short, .. } = self;
        match self.short_next {
            true => short.pop_front().or_else(|| jobs.pop_front()),
            false => jobs.pop_front().or_else(|| short.pop_front()),
        }
    }
}

impl Shared {
    pub(super) fn new(name: &str, threads: usize, max_queue: usize, stack: usize) -> Arc<Shared> {
        // The kernel keeps 15 bytes of a thread's name.
        let name: String = format!("pool {name}").chars().filter(|c| *c != '\0').collect();
        let (queue, work) = (Mutex::default(), Condvar::new());
        Arc::new(Shared { queue, work, name, threads, max_queue, stack })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No task runs under the lock; nothing is left half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn post(self: &Arc<Self>, job: Job, is_short: bool) -> Result<(), Refused> {
        let mut queue = self.lock();
        let busy = queue.waiting() + queue.running;
        if busy >= self.threads.saturating_add(self.max_queue) {
            queue.refused += 1;
            return Err(Refused::Full(busy - self.threads));
        }
        if busy >= queue.started && queue.started < self.threads {
            match self.start_thread() {
                Ok(()) => {
                    SPARE_THREADS.fetch_add(usize::from(queue.started > 0), Ordering::Relaxed);
                    queue.started += 1;
                }
                // Fewer threads than wished for do the work as well.
                Err(_) if queue.started > 0 => {}
                Err(error) => {
                    queue.done += 1;
                    return Err(Refused::NoThread(job, error));
                }
            }
        }
        let lane = if is_short { &mut queue.short } else { &mut queue.jobs };
        lane.push_back((job, Instant::now()));
        drop(queue);
        self.work.notify_one();
        Ok(())
    }

    fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let own = self.clone();
        // A thread begins with the signals blocked that its maker has blocked.
        os::signal::with_all_blocked(|| {
            os::thread::start(&self.name, self.stack, move || own.work())
        })
    }

    fn work(&self) {
        let mut queue = self.lock();
        loop {
            let Some((job, posted)) = queue.take() else {
                if queue.closed {
                    SPARE_THREADS.fetch_sub(usize::from(queue.started > 1), Ordering::Relaxed);
                    queue.started -= 1;
                    return;
                }
                let waited = self.work.wait_timeout(queue, IDLE);
                let (now, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
                queue = now;
                if timed_out.timed_out() && queue.waiting() == 0 && queue.started > 1 {
                    queue.started -= 1;
                    SPARE_THREADS.fetch_sub(1, Ordering::Relaxed);
                    return;
                }
                continue;
            };
            queue.running += 1;
            let waited_us = posted.elapsed().as_micros() as u64;
            queue.longest_wait_us = queue.longest_wait_us.max(waited_us);
            drop(queue);
            let notice = job();
            queue = self.lock();
            queue.running -= 1;
            queue.done += 1;
            drop(queue);
            // After the counting: the woken task may look at the counters.
            notice.give();
            queue = self.lock();
        }
    }

    /// Ends the pool when its queue is done.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    pub(super) fn counters(&self) -> Counters {
        let queue = self.lock();
        Counters {
            queued: queue.waiting(),
            running: queue.running,
            done: queue.done,
            refused: queue.refused,
            longest_wait_us: queue.longest_wait_us,
        }
    }
}
