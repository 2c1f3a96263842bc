//! Memory pressure: the loop's reaction when the system has no more memory, and the memory that it
//! returns in quiet times.
//!
//! ```text
//!            an allocation failed
//!   enough ───────────────────────▶ short: nothing is accepted, connections are asked to close
//!     ▲                               │ ▲                         again each turn
//!     │ CALM_MS without a failure     ▼ │ another one failed
//!     └──────────────────────────── refilled: the reserve is whole, connections are accepted
//! ```
//!
//! After each poll of a task the loop checks whether an allocation has failed. The allocator's
//! reserve ([`os::memory`]) lets the running task continue. From then on the loop accepts no
//! connection, and asks parked connections (idle, or with half of a header section) and connections
//! whose client is slow to read a response or to send a body to close. [`victims`](super::victims)
//! chooses them, those with the longest waits first and more of them each time. Once the reserve is
//! whole, connections are accepted again. The log has a line at the beginning and, after a second
//! without a failed allocation, one with the numbers of closed connections.
//!
//! In quiet times unused memory goes back to the system: pages that nobody used for a second, and
//! free parts of the heap in a second with few polls.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::log::Level;

use crate::runtime::turn::{Inner, with};
use crate::runtime::victims::Asked;

/// The time without a failed allocation after which the shortage counts as over.
const CALM_MS: u64 = 1_000;

/// Interval between attempts to fill the reserve while nothing else happens.
const RETRY_MS: u64 = 20;

/// A connection's task runs in the next turn; its memory in the driver comes back in the one after.
const GRACE: u8 = 2;

/// The state of a loop in a shortage of memory.
#[derive(Default)]
pub(crate) struct Relief {
    /// When the shortage began; `None` without one.
    since_ms: Option<u64>,
    /// When an allocation failed last, or the reserve was last found incomplete.
    last_ms: u64,
    /// The reserve is not whole, and since when.
    short: bool,
    short_ms: u64,
    /// Sheddings since then: each asks for more than the one before.
    rounds: u32,
    /// Turns until the connections that were asked have closed: their memory is not back before.
    grace: u8,
    parked: u64,
    slow: u64,
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

/// The outcome of a shedding.
struct Shed {
    /// It is the first of this shortage.
    began: bool,
    /// Connections that were asked to close.
    asked: usize,
}

impl Inner {
    /// An allocation failed: accepts nothing more, and asks connections to go.
    fn shed(&mut self) -> Shed {
        let now_ms = base::time::now_ms();
        let relief = &mut self.core.relief;
        relief.last_ms = now_ms;
        let began = relief.since_ms.is_none();
        relief.since_ms.get_or_insert(now_ms);
        if !std::mem::replace(&mut relief.short, true) {
            (relief.short_ms, relief.rounds) = (now_ms, 0);
            self.sync_listeners();
        }
        let relief = &mut self.core.relief;
        let round = relief.rounds;
        relief.rounds += 1;
        relief.grace = GRACE;
        let Asked { parked, slow } = self.core.shed_round(round);
        self.core.relief.parked += parked as u64;
        self.core.relief.slow += slow as u64;
        Shed { began, asked: parked + slow }
    }
}

/// An allocation failed: asks connections to go, and logs the first time.
#[cold]
pub(crate) fn make_memory() -> usize {
    let Shed { began, asked } = with(Inner::shed);
    if began {
        base::log!(
            base::log::default(),
            Level::Crit,
            None,
            "memory is short: accepting no connection, closing idle and slow ones"
        );
    }
    asked
}

/// After the tasks of a turn, while memory is or was short.
#[cold]
pub(crate) fn turn(failed: bool) {
    if failed {
        make_memory();
        return;
    }
    let waits = with(|inner| {
        let relief = &mut inner.core.relief;
        let waits = relief.grace > 0;
        relief.grace = relief.grace.saturating_sub(1);
        waits
    });
    if waits {
        return;
    }
    if with(|inner| inner.core.relief.short) {
        // Twice: what came back since the first time counts as unused then.
        mem::trim();
        mem::trim();
        let enough = os::memory::refill() || make_memory() == 0 && with(Inner::settle);
        if !enough {
            return;
        }
        with(|inner| {
            inner.core.relief.short = false;
            inner.core.relief.last_ms = base::time::now_ms();
            inner.sync_listeners();
        });
        return;
    }
    let now_ms = base::time::now_ms();
    let relief = with(|inner| {
        let relief = &mut inner.core.relief;
        (now_ms >= relief.last_ms + CALM_MS).then(|| std::mem::take(relief))
    });
    if let Some(Relief { since_ms, parked, slow, .. }) = relief {
        let ms = now_ms - since_ms.unwrap_or(now_ms);
        base::log!(
            base::log::default(),
            Level::Warn,
            None,
            "memory suffices again after {ms} ms: {parked} idle and {slow} slow connections were \
             closed"
        );
    }
}

impl Inner {
    /// No connection is left to close. After a while the present reserve has to be enough: new
    /// connections may be few and small.
    fn settle(&mut self) -> bool {
        os::memory::give_back();
        base::time::now_ms() >= self.core.relief.short_ms + CALM_MS && os::memory::settle()
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
