//! What goes wrong with a cache. None of it is a reason to fail a request; it is counted, and told
//! once a minute for each cause.

use std::cell::Cell;

use base::log::Level;
use base::time::now_ms;

/// Why a response was not kept, or what is kept not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
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

/// How many causes there are where something is wrong.
const WRONG: usize = Cause::Index as usize + 1;

/// How many causes there are.
const CAUSES: usize = Cause::MinFree as usize + 1;

impl Cause {
    /// Those where something is wrong, with the names that the status has for them.
    pub const WRONG: [(Cause, &'static str); WRONG] = [
        (Cause::ZoneFull, "zone_full"),
        (Cause::Open, "open"),
        (Cause::Read, "read"),
        (Cause::Write, "write"),
        (Cause::Rename, "rename"),
        (Cause::Delete, "delete"),
        (Cause::Damaged, "damaged"),
        (Cause::Index, "keys_on_disk"),
    ];

    /// Whether something is wrong; else the limits are what they are.
    pub fn is_wrong(self) -> bool {
        (self as usize) < WRONG
    }

    /// How it is told.
    pub fn level(self) -> Level {
        if self.is_wrong() { Level::Crit } else { Level::Error }
    }
}

/// How long a cause that was told is not told again, milliseconds.
const QUIET_MS: u64 = 60_000;

/// When each cause was told last.
#[derive(Default)]
pub(crate) struct Faults([Cell<Option<u64>>; CAUSES]);

impl Faults {
    /// Whether it is time to tell of a cause, which then counts as told.
    pub fn is_to_tell(&self, cause: Cause) -> bool {
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
        assert!(faults.is_to_tell(Cause::Write));
        assert!(!faults.is_to_tell(Cause::Write));
        assert!(faults.is_to_tell(Cause::Damaged));
        assert!(faults.is_to_tell(Cause::MinFree) && !faults.is_to_tell(Cause::MinFree));
        let long_ago = now_ms().checked_sub(QUIET_MS);
        faults.0[Cause::Write as usize].set(long_ago.or(Some(0)));
        assert_eq!(faults.is_to_tell(Cause::Write), now_ms() >= QUIET_MS);
    }
}
