//! The threads of a pool and their queue: how many tasks run at once.
//!
//! Threads that compute compete with the loop for the processors: thirty threads that copy into the
//! page cache leave the loop a thirtieth of its processor. Threads that wait for a disk cost
//! nothing, and a disk is fastest with many requests. So as many tasks run at once as the worker
//! has processors, and further ones in proportion to their waits: if tasks wait for nine tenths of
//! their time, nine for each processor.
//!
//! - Each task that ends admits one more until that number is reached; a row of 16 tasks beyond it
//!   halves the excess.
//! - The short waits for locks among the threads themselves do not count as waits.
//! - While tasks are queued and none may run, an idle thread checks every millisecond how many of
//!   the running tasks wait. After ten checks without a finished task one more runs, because it may
//!   be one that waits.
//! - A thread that yields its processor after a task keeps its place among the running ones.
//!   Otherwise the threads would yield to each other without end, and the loop to all of them.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Counters, Job, Refused};
use crate::state::relief::SPARE_THREADS;

/// The state that a pool and its threads share.
pub(super) struct Shared {
    queue: Mutex<Queue>,
    /// Told when there is a task for an idle thread, and when the pool ends.
    work: Condvar,
    name: String,
    threads: usize,
    /// Tasks that may compute at once.
    processors: usize,
    max_queue: usize,
    stack: usize,
}

/// The stack of a thread: room for the tasks of modules, of which only used pages are memory. 32
/// threads with Rust's 2 MB would exceed the address space of some servers.
pub(super) const STACK: usize = 512 << 10;

/// A thread that was idle for this long ends, unless it is the last: its stack is memory.
const IDLE: Duration = Duration::from_secs(10);

/// The time between two looks at tasks that run while others may not.
const WATCH: Duration = Duration::from_millis(1);

/// Looks without a task that ended, after which one more runs.
const LOOKS_MAX: u32 = 10;

/// Tasks one after the other, with more room than their waits are worth, for which there is less.
const ROW: u32 = 16;

/// About the number of last tasks that tell how much of its time a task waits.
const MEMORY: u64 = 16;

/// The time that a task took, in microseconds.
struct Took {
    all_us: u64,
    /// The part in which it waited for something, rather than to be run.
    waiting_us: u64,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<(Job, Instant)>,
    /// Short tasks. They go first every other time, so that neither kind waits for all of the
    /// other.
    short: VecDeque<(Job, Instant)>,
    short_next: bool,
    started: usize,
    running: usize,
    /// Threads that were started, and have not looked for a task yet.
    starting: usize,
    /// Threads that wait to be told of one.
    idle: usize,
    /// Those of them that were told, and have not looked since.
    told: usize,
    /// The threads that run tasks.
    runs: Vec<u32>,
    /// Threads that have run one, and give way before they look for another: each has the place of
    /// a task, as all of them would give way to each other otherwise, and the loop to all.
    returning: usize,
    /// Tasks that may run beside those that may compute.
    extra: usize,
    /// Tasks since there was more room than their waits are worth.
    row: u32,
    /// The time that the last tasks have waited, and that they have run, in microseconds.
    waited_us: u64,
    ran_us: u64,
    /// An idle thread looks whether more tasks may run.
    is_watched: bool,
    /// Its looks since a task ended.
    looks: u32,
    done: u64,
    refused: u64,
    longest_wait_us: u64,
    closed: bool,
}

impl Queue {
    fn waiting(&self) -> usize {
        self.jobs.len() + self.short.len()
    }

    /// A thread has run a task.
    fn ended(&mut self, thread: u32, took: &Took, processors: usize, threads: usize) {
        self.running -= 1;
        if let Some(i) = self.runs.iter().position(|id| *id == thread) {
            self.runs.swap_remove(i);
        }
        self.done += 1;
        self.looks = 0;
        self.waited_us = self.waited_us - self.waited_us / MEMORY + took.waiting_us;
        self.ran_us = self.ran_us - self.ran_us / MEMORY + (took.all_us - took.waiting_us);
        let worth = processors as u64 * self.waited_us / self.ran_us.max(1);
        let worth = threads.min(usize::try_from(worth).unwrap_or(threads));
        if self.extra <= worth {
            self.row = 0;
            let more = took.waiting_us > 0 && self.waiting() > 0;
            self.extra = worth.min(self.extra + usize::from(more));
            return;
        }
        self.row += 1;
        if self.row >= ROW {
            (self.row, self.extra) = (0, worth.max(self.extra / 2));
        }
    }

    /// The running tasks that wait.
    fn seen(&mut self, waiting: usize, threads: usize) {
        self.looks += 1;
        let mut extra = match waiting == self.running {
            // They may have come in front of many.
            true => 4 * waiting,
            false => waiting,
        };
        if self.looks >= LOOKS_MAX {
            self.looks = 0;
            extra = extra.max(self.extra + 1);
        }
        self.extra = self.extra.max(extra).min(threads);
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
    pub(super) fn new(
        name: &str,
        threads: usize,
        processors: usize,
        max_queue: usize,
        stack: usize,
    ) -> Arc<Shared> {
        // The kernel keeps 15 bytes of a thread's name.
        let name: String = format!("pool {name}").chars().filter(|c| *c != '\0').collect();
        let (queue, work) = (Mutex::default(), Condvar::new());
        Arc::new(Shared { queue, work, name, threads, processors, max_queue, stack })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No task runs under the lock; nothing is left half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn post(self: &Arc<Self>, job: Job, is_short: bool) -> Result<(), Refused> {
        let mut queue = self.lock();
        let busy = queue.waiting() + queue.running;
        if super::is_full(busy, self.threads, self.max_queue) {
            queue.refused += 1;
            return Err(Refused::Full(busy - self.threads));
        }
        if queue.started == 0
            && let Err(error) = self.start_thread(&mut queue)
        {
            queue.done += 1;
            return Err(Refused::NoThread(job, error));
        }
        let lane = if is_short { &mut queue.short } else { &mut queue.jobs };
        lane.push_back((job, Instant::now()));
        self.call(&mut queue);
        Ok(())
    }

    /// So many more tasks may run.
    fn room(&self, queue: &Queue) -> usize {
        (self.processors + queue.extra).saturating_sub(queue.running + queue.returning)
    }

    /// Has a thread run the next task, or look whether it may.
    fn call(self: &Arc<Self>, queue: &mut Queue) {
        if queue.waiting() == 0 || queue.is_watched && self.room(queue) == 0 {
            return;
        }
        // To wake one is a system call; each that takes a task calls the next.
        let coming = queue.starting + queue.told + queue.returning;
        if coming >= queue.waiting().min(self.room(queue).max(1)) {
            return;
        }
        if queue.idle > queue.told {
            queue.told += 1;
            self.work.notify_one();
        } else if queue.started < self.threads {
            // Fewer threads than wished for do the work as well.
            let _ = self.start_thread(queue);
        }
    }

    fn start_thread(self: &Arc<Self>, queue: &mut Queue) -> io::Result<()> {
        let own = self.clone();
        // A thread begins with the signals blocked that its maker has blocked.
        os::signal::with_all_blocked(|| {
            os::thread::start(&self.name, self.stack, move || own.work())
        })?;
        SPARE_THREADS.fetch_add(usize::from(queue.started > 0), Ordering::Relaxed);
        queue.started += 1;
        queue.starting += 1;
        Ok(())
    }

    fn work(self: &Arc<Self>) {
        let id = os::thread::id();
        let mut ready_us = os::thread::ready_us();
        let mut queue = self.lock();
        queue.starting -= 1;
        loop {
            let next = if self.room(&queue) > 0 { queue.take() } else { None };
            if let Some((job, posted)) = next {
                queue.running += 1;
                queue.runs.push(id);
                let waited_us = posted.elapsed().as_micros() as u64;
                queue.longest_wait_us = queue.longest_wait_us.max(waited_us);
                self.call(&mut queue);
                drop(queue);
                let (before, began) = (os::thread::waits(), Instant::now());
                let notice = job();
                let all_us = began.elapsed().as_micros() as u64;
                let mut took = Took { all_us, waiting_us: 0 };
                if os::thread::waits() > before {
                    // Its own part is at most what the thread has had since this was last read. Of
                    // a task that has waited and of which no more is known, all was a wait.
                    let before_us = std::mem::replace(&mut ready_us, os::thread::ready_us());
                    let own_us = ready_us.zip(before_us).map_or(0, |(now, before)| now - before);
                    took.waiting_us = all_us.saturating_sub(own_us);
                }
                let waited = 2 * took.waiting_us > took.all_us;
                queue = self.lock();
                queue.ended(id, &took, self.processors, self.threads);
                queue.returning += 1;
                drop(queue);
                // After the counting: the woken task may look at the counters.
                notice.give();
                if !waited {
                    // A row of tasks would keep the loop from its processor for milliseconds.
                    std::thread::yield_now();
                }
                queue = self.lock();
                queue.returning -= 1;
                continue;
            }
            if queue.closed && queue.waiting() == 0 {
                // Others may have waited for the end of the queue.
                self.work.notify_all();
                return Self::end_thread(&mut queue);
            }
            let watches = queue.waiting() > 0 && !queue.is_watched;
            queue.is_watched |= watches;
            let limit = if watches { WATCH } else { IDLE };
            queue.idle += 1;
            let waited = self.work.wait_timeout(queue, limit);
            let (now, end) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = now;
            queue.idle -= 1;
            // Where this one was not told, another was, and finds that none is to come.
            queue.told = queue.told.saturating_sub(1);
            if watches {
                queue.is_watched = false;
                if end.timed_out() && queue.waiting() > 0 {
                    queue = self.look(queue);
                }
            } else if end.timed_out() && queue.waiting() == 0 && queue.started > 1 {
                return Self::end_thread(&mut queue);
            }
        }
    }

    fn end_thread(queue: &mut Queue) {
        SPARE_THREADS.fetch_sub(usize::from(queue.started > 1), Ordering::Relaxed);
        queue.started -= 1;
    }

    /// Looks how many of the tasks that run wait.
    fn look<'a>(&'a self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let (runs, done) = (queue.runs.clone(), queue.done);
        drop(queue);
        let waiting = runs.into_iter().filter(|id| os::thread::is_waiting(*id)).count();
        let mut queue = self.lock();
        if queue.done == done {
            queue.seen(waiting, self.threads);
        }
        queue
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The room beside computing tasks after so many of this kind, while others are queued.
    fn room_after(queue: &mut Queue, tasks: usize, all_us: u64, waiting_us: u64) -> usize {
        for _ in 0..tasks {
            queue.jobs.push_back((Box::new(|| unreachable!()), Instant::now()));
            queue.running = 1;
            queue.ended(1, &Took { all_us, waiting_us }, 2, 32);
        }
        queue.extra
    }

    #[test]
    fn there_is_as_much_room_as_waits_are_worth() {
        let mut queue = Queue::default();
        assert_eq!(room_after(&mut queue, 100, 500, 0), 0);
        // On two processors, ten in a hundred microseconds are worth a fifth of a task.
        assert_eq!(room_after(&mut queue, 100, 100, 10), 0);
        assert_eq!(room_after(&mut queue, 100, 100, 55), 2);
        assert_eq!(room_after(&mut queue, 100, 1000, 910), 20);
        assert_eq!(room_after(&mut queue, 100, 8000, 7990), 32);
        // A task that waits a moment for another one's lock keeps none of the share.
        assert_eq!(room_after(&mut queue, 200, 300, 20), 0);
    }

    #[test]
    fn room_grows_by_one_for_each_wait() {
        let mut queue = Queue::default();
        assert_eq!(room_after(&mut queue, 5, 8000, 7990), 5);
    }
}
