//! Faults of a cache. None of them fails a request; each is counted, and logged once a minute for
//! each cause.

use std::cell::Cell;

use base::log::Level;
use base::time::now_ms;

/// The cause for which a response was not kept, or a kept one not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultCause {
    /// The zone is full of entries that are being fetched.
    ZoneFull,
    /// A file could not be opened.
    Open,
    /// A file could not be read.
    Read,
    /// A file could not be made or written: the disk is full, or the folder is gone.
    Write,
    /// A file could not be given its place.
    Rename,
    /// A file could not be deleted.
    Delete,
    /// A file is damaged, or not ours.
    Damaged,
    /// The index cannot be read or written.
    Index,
    /// `max_size` has no room for a file: nothing is wrong, and it is counted on its own.
    MaxSize,
    /// `min_free` has none. The same.
    MinFree,
}

/// The number of causes that are faults.
const WRONG: usize = FaultCause::Index as usize + 1;

/// The number of causes.
const CAUSES: usize = FaultCause::MinFree as usize + 1;

impl FaultCause {
    /// The causes that are faults, with their names in the status.
    pub const WRONG: [(FaultCause, &'static str); WRONG] = [
        (FaultCause::ZoneFull, "zone_full"),
        (FaultCause::Open, "open"),
        (FaultCause::Read, "read"),
        (FaultCause::Write, "write"),
        (FaultCause::Rename, "rename"),
        (FaultCause::Delete, "delete"),
        (FaultCause::Damaged, "damaged"),
        (FaultCause::Index, "keys_on_disk"),
    ];

    /// Whether it is a fault; else a limit leaves no room.
    pub fn is_wrong(self) -> bool {
        (self as usize) < WRONG
    }

    /// The level of its line in the log.
    pub fn level(self) -> Level {
        if self.is_wrong() { Level::Crit } else { Level::Error }
    }
}

/// The time for which a cause that was logged is not logged again, milliseconds.
const QUIET_MS: u64 = 60_000;

/// The time at which each cause was logged last.
#[derive(Default)]
pub struct Faults([Cell<Option<u64>>; CAUSES]);

impl Faults {
    /// Whether a cause is to be logged; it counts as logged then.
    pub(crate) fn is_to_tell(&self, cause: FaultCause) -> bool {
        let now = now_ms();
        let last = &self.0[cause as usize];
        let due = last.get().is_none_or(|at| at + QUIET_MS <= now);
        if due {
            last.set(Some(now));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_told_once_in_a_while() {
        base::time::update();
        let faults = Faults::default();
        assert!(faults.is_to_tell(FaultCause::Write));
        assert!(!faults.is_to_tell(FaultCause::Write));
        assert!(faults.is_to_tell(FaultCause::Damaged));
        assert!(faults.is_to_tell(FaultCause::MinFree) && !faults.is_to_tell(FaultCause::MinFree));
        let long_ago = now_ms().checked_sub(QUIET_MS);
        faults.0[FaultCause::Write as usize].set(long_ago.or(Some(0)));
        assert_eq!(faults.is_to_tell(FaultCause::Write), now_ms() >= QUIET_MS);
    }
}
