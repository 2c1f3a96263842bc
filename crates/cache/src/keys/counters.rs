//! The counters of a zone, over all processes.

use super::Keys;
use crate::faults::FaultCause;
use crate::status::CacheStatus;

/// The counters of a zone; the first are the statuses of requests ([`CacheStatus`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Count {
    /// Responses that were kept.
    Fills = 8,
    /// Requests that waited for another's fill.
    Waits,
    /// Entries that made room for others.
    Evictions,
    /// Entries that expired unused.
    Expired,
    /// Requests that passed the cache by because something was wrong with it.
    Faults,
    /// Entries that were purged.
    Purged,
    /// Responses that were not kept, as there was no room for them within the limits.
    NoRoom,
}

/// The number of counters of a zone.
pub(crate) const COUNTS: usize = 24;

/// The first of the counters of faults, one for each cause.
const FAULTS: usize = 16;

impl Keys {
    /// Counts something.
    pub fn count(&self, what: usize) {
        let line = self.counts[what / 8 % self.counts.len()].line(self.slot.get());
        line.add(what % 8, 1);
    }

    /// The sum of a counter over all processes.
    pub fn counted(&self, what: usize) -> u64 {
        self.counts[what / 8 % self.counts.len()].sum(what % 8)
    }

    /// The number of requests of the cache, over all processes.
    pub fn asked(&self) -> u64 {
        CacheStatus::ALL.iter().map(|status| self.counted(*status as usize)).sum()
    }

    /// Counts a fault and its cause; a lack of room within the limits is counted as that alone.
    pub(crate) fn count_fault(&self, cause: FaultCause) {
        if cause.is_wrong() {
            self.count(Count::Faults as usize);
            self.count(FAULTS + cause as usize);
        } else {
            self.count(Count::NoRoom as usize);
        }
    }

    /// Faults of a cause, over all processes.
    pub fn faults(&self, cause: FaultCause) -> u64 {
        self.counted(FAULTS + cause as usize)
    }
}
