//! The state of a loop while memory is short, and its return of unused memory in quiet times.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The time without a failed allocation after which the shortage counts as over.
pub(crate) const CALM_MS: u64 = 1_000;

/// Interval between attempts to fill the reserve while nothing else happens.
pub(crate) const RETRY_MS: u64 = 20;

/// The state of a loop in a shortage of memory.
#[derive(Default)]
pub(crate) struct Relief {
    /// When the shortage began; `None` without one.
    pub(crate) since_ms: Option<u64>,
    /// When an allocation failed last, or the reserve was last found incomplete.
    pub(crate) last_ms: u64,
    /// The reserve is not whole, and since when.
    pub(crate) short: bool,
    pub(crate) short_ms: u64,
    /// Sheddings since then: each asks for more than the one before.
    pub(crate) rounds: u32,
    /// Turns until the connections that were asked have closed: their memory is not back before.
    pub(crate) grace: u8,
    pub(crate) parked: u64,
    pub(crate) slow: u64,
}

impl Relief {
    /// Whether accepting is stopped.
    pub(crate) fn is_short(&self) -> bool {
        self.short
    }

    /// Whether there was a failure lately.
    pub(crate) fn is_on(&self) -> bool {
        self.since_ms.is_some()
    }

    /// The time of the next action, if there is one.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.since_ms?;
        Some(self.last_ms + if self.short { RETRY_MS } else { CALM_MS })
    }
}

/// Delay between activity and a look at unused memory, and between looks.
const TIDY_MS: u64 = 1_000;

/// As many polls in [`TIDY_MS`] are a quiet time.
const QUIET: u64 = 100;

/// Polls since the last look that justify another one, or freed pages and the like. An idle loop
/// does not look at all.
const WORTH: u64 = 1_000;
const WORTH_FREED: usize = 16;

/// Threads of the process's pools that end when they have been idle for a while.
pub(crate) static SPARE_THREADS: AtomicUsize = AtomicUsize::new(0);

/// Returns the memory that a burst has left behind, in quiet times: unused values, and free memory
/// in the middle of the heap.
#[derive(Default)]
pub(crate) struct Tidying {
    due_ms: Option<u64>,
    polls: u64,
    polls_since: u64,
    freed_since: usize,
    /// [`SPARE_THREADS`] at the last look.
    threads: usize,
    /// There were fewer then than before: what they held may have come back only since.
    ended: bool,
}

impl Tidying {
    /// So many tasks were polled in a turn.
    #[inline]
    pub(crate) fn polled(&mut self, polls: usize) {
        self.polls += polls as u64;
        if self.due_ms.is_none() && polls > 0 {
            self.due_ms = Some(base::time::now_ms() + TIDY_MS);
        }
    }

    /// The time of the next action, if there is one.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Whether that is now.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due_ms.is_some_and(|due| due <= base::time::now_ms())
    }

    /// Tidies up. `freed`: values of free lists that [`mem::trim`] has freed now. `more`: the
    /// driver may have memory to give back soon.
    #[cold]
    pub(crate) fn tidy(&mut self, freed: usize, more: bool) {
        self.freed_since += freed;
        let polls = std::mem::take(&mut self.polls);
        self.polls_since += polls;
        let quiet = polls < QUIET;
        let threads = SPARE_THREADS.load(Ordering::Relaxed);
        // Memory that a thread held is in the middle of the heap.
        let ended = threads < self.threads;
        let ended_before = std::mem::replace(&mut self.ended, ended);
        self.threads = threads;
        let worth = self.polls_since >= WORTH || self.freed_since >= WORTH_FREED || polls == 0;
        let some = self.polls_since > 0 || self.freed_since > 0;
        if quiet && (worth && some || ended || ended_before) {
            os::memory::give_back();
            (self.polls_since, self.freed_since) = (0, 0);
        }
        let more = more || polls > 0 || mem::pages_kept() > 0 || threads > 0 || ended;
        self.due_ms = more.then(|| base::time::now_ms() + TIDY_MS);
    }
}
