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
//! whose client is slow to read a response or to send a body to close.
//! [`victims`](crate::state::victims) chooses them, those with the longest waits first and more of
//! them each time. Once the reserve is whole, connections are accepted again. The log has a line at
//! the beginning and, after a second without a failed allocation, one with the numbers of closed
//! connections.
//!
//! In quiet times unused memory goes back to the system: pages that nobody used for a second, and
//! free parts of the heap in a second with few polls.

use base::log::Level;

use crate::runtime::inner::{Inner, with};
use crate::state::relief::{CALM_MS, Relief};
use crate::state::victims::Asked;

/// A connection's task runs in the next turn; its memory in the driver comes back in the one after.
const GRACE: u8 = 2;

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
