//! The entries of a table that changed since they were last sent, with an amount each.
//!
//! ```text
//!  ┌──────┬──────┬───────────────────────┬───────────────────────┬─────────────────────┐
//!  │ head │ tail │ amounts, one per cell │ ring of touched cells │ notes, one per cell │
//!  └──────┴──────┴───────────────────────┴───────────────────────┴─────────────────────┘
//! ```
//!
//! Workers add under the lock of the table, and the process that sends takes under it, so there is
//! one writer at a time. An entry is in the ring while its amount is not 0: adding to it again
//! costs one store. A note is a number that the process leaves for workers. If a process dies in
//! between, at most one entry is sent late, with its next change.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use shm::{Entry, Locked, Record, Table, Zone};

use crate::limits::STEP;

/// Words before the amounts: head and tail on cache lines of their own.
const BEFORE: usize = 16;
const TAIL: usize = 8;

/// An amount shares its word with the generation of its entry, which has the upper byte.
const AMOUNT: u64 = (1 << 56) - 1;

/// See the head of the file.
#[derive(Debug)]
pub struct Touched {
    words: Zone,
    cells: usize,
}

impl Touched {
    /// For a table with that number of cells, made before the fork.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(cells: usize) -> io::Result<Touched> {
        let words = cells.checked_mul(3).and_then(|n| n.checked_add(BEFORE));
        let bytes = words.and_then(|n| n.checked_mul(8)).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Touched { words: Zone::anonymous(bytes)?, cells })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words.words()[at]
    }

    /// The word of an entry's amount, and its generation as it stands there.
    fn amount(&self, entry: Entry) -> Option<(&AtomicU64, u64)> {
        let at = entry.cell();
        (at < self.cells).then(|| (self.word(BEFORE + at), u64::from(entry.generation()) << 56))
    }

    fn ring(&self, n: u64) -> &AtomicU64 {
        self.word(BEFORE + self.cells + (n % self.cells.max(1) as u64) as usize)
    }

    /// Under the table's lock: adds to the amount of an entry. False if there is no room, which
    /// happens when entries are evicted faster than they are sent.
    #[inline]
    pub fn add(&self, entry: Entry, n: u64) -> bool {
        let Some((word, generation)) = self.amount(entry) else { return false };
        let old = word.load(Ordering::Relaxed);
        if old & AMOUNT != 0 && old & !AMOUNT == generation {
            let sum = (old & AMOUNT).saturating_add(n).min(AMOUNT);
            word.store(generation | sum, Ordering::Relaxed);
            return true;
        }
        let head = self.word(0).load(Ordering::Relaxed);
        if head.wrapping_sub(self.word(TAIL).load(Ordering::Relaxed)) >= self.cells as u64 {
            return false;
        }
        word.store(generation | n.clamp(1, AMOUNT), Ordering::Relaxed);
        self.ring(head).store(entry.to_word(), Ordering::Relaxed);
        self.word(0).store(head.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// The amount of an entry that was not taken yet.
    pub fn pending(&self, entry: Entry) -> u64 {
        let Some((word, generation)) = self.amount(entry) else { return 0 };
        let old = word.load(Ordering::Relaxed);
        if old & !AMOUNT == generation { old & AMOUNT } else { 0 }
    }

    /// Under the table's lock: takes the entry that was touched longest ago, with its amount.
    pub fn take(&self) -> Option<(Entry, u64)> {
        loop {
            let tail = self.word(TAIL).load(Ordering::Relaxed);
            if tail == self.word(0).load(Ordering::Relaxed) {
                return None;
            }
            let entry = Entry::from_word(self.ring(tail).load(Ordering::Relaxed));
            self.word(TAIL).store(tail.wrapping_add(1), Ordering::Relaxed);
            let Some(entry) = entry else { continue };
            let amount = self.pending(entry);
            if amount != 0
                && let Some((word, _)) = self.amount(entry)
            {
                word.store(0, Ordering::Relaxed);
                return Some((entry, amount));
            }
        }
    }

    /// The number of entries that were put into the ring so far, and of those taken out of it: an
    /// entry is older than a moment if no more were taken with it than had been put in by then.
    pub fn counts(&self) -> (u64, u64) {
        (self.word(0).load(Ordering::Relaxed), self.word(TAIL).load(Ordering::Relaxed))
    }

    /// Takes up to `max` entries, in steps so that workers get the table's lock in between. `each`
    /// makes of an entry and its amount what is sent, if anything. Returns whether nothing was
    /// left.
    pub fn collect<R: Record, T>(
        &self,
        table: &Table<R>,
        max: usize,
        mut each: impl FnMut(&Locked<'_, R>, Entry, u64) -> Option<T>,
        out: &mut Vec<T>,
    ) -> bool {
        let until = out.len().saturating_add(max);
        loop {
            let t = table.lock();
            for _ in 0..STEP {
                if out.len() >= until {
                    return false;
                }
                let Some((entry, amount)) = self.take() else { return true };
                out.extend(each(&t, entry, amount));
            }
        }
    }

    /// Under the table's lock: leaves a number for workers.
    pub fn note(&self, entry: Entry, n: u64) {
        if entry.cell() < self.cells {
            let generation = u64::from(entry.generation()) << 56;
            let at = BEFORE + 2 * self.cells + entry.cell();
            self.word(at).store(generation | n.min(AMOUNT), Ordering::Relaxed);
        }
    }

    /// The number that was left for an entry; 0 without one.
    pub fn noted(&self, entry: Entry) -> u64 {
        if entry.cell() >= self.cells {
            return 0;
        }
        let word = self.word(BEFORE + 2 * self.cells + entry.cell()).load(Ordering::Relaxed);
        let is_its = word & !AMOUNT == u64::from(entry.generation()) << 56;
        if is_its { word & AMOUNT } else { 0 }
    }

    /// Whether nothing is left to take.
    pub fn is_empty(&self) -> bool {
        self.word(0).load(Ordering::Relaxed) == self.word(TAIL).load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shm::{Record, Table};

    #[derive(Clone, Copy)]
    struct Nothing;

    impl Record for Nothing {
        const WORDS: usize = 1;

        fn to_words(self) -> [u64; 4] {
            [0; 4]
        }

        fn from_words(_: [u64; 4]) -> Nothing {
            Nothing
        }
    }

    #[test]
    fn amounts_add_up_and_are_taken_in_order() {
        let table = Table::<Nothing>::new(4096).unwrap();
        let touched = Touched::new(table.bytes() / 64).unwrap();
        let mut t = table.lock();
        let a = t.insert(table.key(b"a"), Nothing).unwrap();
        let b = t.insert(table.key(b"b"), Nothing).unwrap();
        assert!(touched.is_empty() && touched.take().is_none());
        for (entry, n) in [(b, 1000), (a, 1000), (b, 500)] {
            assert!(touched.add(entry, n));
        }
        assert_eq!((touched.pending(a), touched.pending(b)), (1000, 1500));
        assert_eq!(touched.take(), Some((b, 1500)));
        assert!(touched.add(b, 7));
        assert_eq!(touched.take(), Some((a, 1000)));
        assert_eq!(touched.take(), Some((b, 7)));
        assert!(touched.take().is_none() && touched.is_empty());
        assert_eq!(touched.counts(), (3, 3));
        touched.note(a, 9);
        assert_eq!((touched.noted(a), touched.noted(b)), (9, 0));
    }

    #[test]
    fn entries_are_collected_up_to_a_number() {
        let table = Table::<Nothing>::new(64 << 10).unwrap();
        let touched = Touched::new(table.bytes() / 64).unwrap();
        let count = 2 * STEP + 10;
        for n in 0..count {
            let mut t = table.lock();
            let entry = t.insert(table.key(&n.to_le_bytes()), Nothing).unwrap();
            assert!(touched.add(entry, n as u64 + 1));
        }
        let mut all = vec![0];
        // Of what is touched, even amounts are sent.
        let even = |_: &Locked<'_, Nothing>, _, amount| (amount % 2 == 0).then_some(amount);
        assert!(!touched.collect(&table, 10, even, &mut all));
        assert_eq!(all, (0..=10).map(|n| 2 * n).collect::<Vec<_>>());
        assert!(touched.collect(&table, count, even, &mut all));
        assert_eq!(all.len(), count / 2 + 1);
        assert!(touched.is_empty());
    }

    #[test]
    fn entries_that_are_gone_are_passed_over() {
        let table = Table::<Nothing>::new(4096).unwrap();
        let touched = Touched::new(table.bytes() / 64).unwrap();
        let mut t = table.lock();
        let old = t.insert(table.key(b"a"), Nothing).unwrap();
        assert!(touched.add(old, 3));
        t.remove(old);
        let new = t.insert(table.key(b"b"), Nothing).unwrap();
        assert_eq!(old.cell(), new.cell());
        assert!(touched.add(new, 4));
        assert_eq!(touched.pending(old), 0);
        assert_eq!(touched.take(), Some((new, 4)));
        assert!(touched.take().is_none());
    }

    #[test]
    fn a_full_ring_refuses() {
        let table = Table::<Nothing>::new(1024).unwrap();
        let touched = Touched::new(table.bytes() / 64).unwrap();
        let mut t = table.lock();
        let mut refused = 0;
        for n in 0..200_u32 {
            let entry = t.insert(table.key(&n.to_le_bytes()), Nothing).unwrap();
            refused += usize::from(!touched.add(entry, 1));
            t.remove(entry);
        }
        assert!(refused > 0);
        while touched.take().is_some() {}
        let entry = t.insert(table.key(b"x"), Nothing).unwrap();
        assert!(touched.add(entry, 1));
    }
}
