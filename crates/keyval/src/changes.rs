//! What a table that other servers share knows of the change of each entry: two words for each
//! cell, beside the table, so that the pairs of other tables are no longer for it.
//!
//! ```text
//!  ┌────────────────────────────────────────────────────────────┬───────────────────────┐
//!  │ bits of the change (3), generation of the entry, number    │ time of the change    │
//!  └────────────────────────────────────────────────────────────┴───────────────────────┘
//! ```
//!
//! The words of another generation are those of an entry that is gone. All are read and written
//! under the table's lock.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use shm::{Entry, Record, Zone};

use crate::store::{BITS, HASH};

/// The generation's place: numbers have 53 bits, which a million changes a second use up in 285
/// years.
const SHIFT: u32 = 53;
const NUMBER: u64 = (1 << SHIFT) - 1;

/// The record of the table: when an entry goes, milliseconds since 1970; 0 for never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Expiry(pub u64);

impl Record for Expiry {
    const WORDS: usize = 1;
    const KEY_LEN: usize = HASH;
    const KEY_IS_HASH: bool = true;

    fn to_words(self) -> [u64; 4] {
        [self.0, 0, 0, 0]
    }

    fn from_words([expires_ms, ..]: [u64; 4]) -> Expiry {
        Expiry(expires_ms)
    }
}

/// See the head of the file.
pub(crate) struct Changes {
    words: Zone,
    cells: usize,
}

impl Changes {
    /// For a table with that number of cells, made before the fork.
    pub fn new(cells: usize) -> io::Result<Changes> {
        let bytes = cells.checked_mul(16).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Changes { words: Zone::anonymous(bytes)?, cells })
    }

    fn words(&self, entry: Entry) -> Option<[&AtomicU64; 2]> {
        let at = 2 * entry.cell();
        (entry.cell() < self.cells).then(|| [0, 1].map(|n| &self.words.words()[at + n]))
    }

    /// The bits and the number of an entry's change, and its time; 0 if none is known.
    pub fn get(&self, entry: Entry) -> (u64, u64) {
        let Some([word, time]) = self.words(entry) else { return (0, 0) };
        let word = word.load(Ordering::Relaxed);
        let generation = (word & !BITS) >> SHIFT;
        match generation == u64::from(entry.generation()) {
            true => (word & (BITS | NUMBER), time.load(Ordering::Relaxed)),
            false => (0, 0),
        }
    }

    /// Keeps the bits and the number of an entry's change, and its time.
    pub fn set(&self, entry: Entry, change: u64, changed_ms: u64) {
        if let Some([word, time]) = self.words(entry) {
            let generation = u64::from(entry.generation()) << SHIFT;
            word.store(change & (BITS | NUMBER) | generation, Ordering::Relaxed);
            time.store(changed_ms, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{DIRTY, OLD};
    use shm::Table;

    #[test]
    fn an_entry_has_its_own_change() {
        let table = Table::<Expiry>::new(4096).unwrap();
        let changes = Changes::new(table.bytes() / 64).unwrap();
        let mut t = table.lock();
        let old = t.insert(table.key(b"a"), Expiry(0)).unwrap();
        assert_eq!(changes.get(old), (0, 0));
        changes.set(old, DIRTY | OLD | NUMBER, 7);
        assert_eq!(changes.get(old), (DIRTY | OLD | NUMBER, 7));
        t.remove(old);
        let new = t.insert(table.key(b"b"), Expiry(0)).unwrap();
        assert_eq!(old.cell(), new.cell());
        assert_eq!(changes.get(new), (0, 0), "that of the entry before is none of it");
        changes.set(new, 3, 8);
        assert_eq!((changes.get(new), changes.get(old)), ((3, 8), (0, 0)));
    }
}
