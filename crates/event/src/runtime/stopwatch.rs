//! Times the turns of a loop: the run between two waits, in which nobody else is served.

use base::log::Level;
use rustix::time::{ClockId, clock_gettime};

/// With a threshold up to this many milliseconds, turns are timed by the exact clock. The usual one
/// costs next to nothing, but ticks only every 4 ms on most kernels.
const EXACT_MS: u64 = 20;

/// Times the turns of one loop.
pub(super) struct Stopwatch {
    /// A run that takes longer is logged, milliseconds.
    stall_ms: u64,
    is_exact: bool,
    /// When the last wait ended, milliseconds.
    woken_ms: u64,
    /// The thread's processor time then, microseconds; measured with the exact clock only, because
    /// reading it is a system call.
    woken_cpu_us: u64,
}

/// A run that is over.
pub(super) struct Run {
    /// Its length, milliseconds.
    pub busy_ms: u64,
    /// The processor time in it, milliseconds, if it was measured.
    cpu_ms: Option<u64>,
}

impl Stopwatch {
    /// Logs runs that take longer than `stall_ms` milliseconds.
    pub fn new(stall_ms: u64) -> Stopwatch {
        let is_exact = stall_ms <= EXACT_MS;
        let mut watch = Stopwatch { stall_ms, is_exact, woken_ms: 0, woken_cpu_us: 0 };
        watch.woken_ms = watch.now_ms();
        watch.woken_cpu_us = watch.cpu_us().unwrap_or(0);
        watch
    }

    /// The run that ends now, because a wait begins.
    pub fn run(&self) -> Run {
        let cpu_ms = self.cpu_us().map(|us| us.saturating_sub(self.woken_cpu_us) / 1000);
        Run { busy_ms: self.now_ms() - self.woken_ms, cpu_ms }
    }

    /// The wait behind `run`, in which so many tasks were polled, is over. Returns the length of
    /// the wait in milliseconds, and logs a long run.
    pub fn woken(&mut self, run: &Run, polls: usize) -> u64 {
        if run.busy_ms > self.stall_ms {
            run.log(polls);
        }
        let now_ms = self.now_ms();
        let wait_ms = now_ms - self.woken_ms - run.busy_ms;
        self.woken_ms = now_ms;
        self.woken_cpu_us = self.cpu_us().unwrap_or(0);
        wait_ms
    }

    fn now_ms(&self) -> u64 {
        let clock = if self.is_exact { ClockId::Monotonic } else { ClockId::MonotonicCoarse };
        let now = clock_gettime(clock);
        now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
    }

    fn cpu_us(&self) -> Option<u64> {
        let now = self.is_exact.then(|| clock_gettime(ClockId::ThreadCPUTime))?;
        Some(now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000)
    }
}

impl Run {
    #[cold]
    fn log(&self, polls: usize) {
        let m = "a turn of the event loop took";
        let (ms, log) = (self.busy_ms, base::log::default());
        match self.cpu_ms {
            // Otherwise the thread waited for the system, or for a processor.
            Some(cpu_ms) => base::log!(
                log,
                Level::Warn,
                None,
                "{m} {ms} ms, {cpu_ms} ms of it on a processor, for {polls} tasks; nothing else \
                 ran in it"
            ),
            None => {
                base::log!(
                    log,
                    Level::Warn,
                    None,
                    "{m} {ms} ms for {polls} tasks, in which nothing else ran"
                );
            }
        }
    }
}
