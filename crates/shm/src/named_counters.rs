//! Counters by name: a row of lines for each name and process, and the names themselves.
//!
//! ```text
//!  names   ┌─────────────┬────────────────┬───────────────────┐
//!          │ lock, count │ index (hashed) │ entries           │
//!          └─────────────┴────────────────┴───────────────────┘
//!  lines   ┌───────────────────┬───────────────────┬─ ─┬──────┐
//!          │ slot 0: all rows  │ slot 1: all rows  │   │ base │
//!          └───────────────────┴───────────────────┴─ ─┴──────┘
//! ```
//!
//! A name is added under a lock, is found without one, and stays. A process writes the lines of its
//! own slot with plain loads and stores. Processes beyond the number of slots share the last one,
//! which they change by atomic additions. The lines of `base` hold the sums at the last reset: no
//! counter is ever written by another process than its own.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::counters::{LINE_FIELDS, Line};
use crate::{Zone, mutex};

/// Words of an entry: the length, and the text.
const ENTRY: usize = 40;

/// The longest name in bytes; of a longer one, so many bytes count.
pub const NAME_MAX: usize = (ENTRY - 1) * 8;

/// Words before the index: the lock and the number of entries on a line of their own.
const HEAD: usize = LINE_FIELDS;

/// Rows of counters by name.
#[derive(Debug)]
pub struct NamedCounters {
    names: Zone,
    lines: Zone,
    capacity: usize,
    slots: usize,
    row_lines: usize,
    /// The same in all processes, which inherit it. Clients may choose names, so it has a secret.
    hash: RandomState,
}

/// A row's counters of one process.
#[derive(Clone, Copy, Debug)]
pub struct CounterRow<'a> {
    lines: &'a [Line],
    /// Several processes write it.
    shared: bool,
}

impl CounterRow<'_> {
    /// Adds to a counter.
    #[inline]
    pub fn add(&self, word: usize, n: u64) {
        let line = &self.lines[word / LINE_FIELDS];
        match self.shared {
            false => line.add(word % LINE_FIELDS, n),
            true => line.add_shared(word % LINE_FIELDS, n),
        }
    }

    /// Takes from a counter of work under way.
    #[inline]
    pub fn sub(&self, word: usize, n: u64) {
        self.add(word, n.wrapping_neg());
    }

    /// Puts a value in place of the counter's.
    #[inline]
    pub fn set(&self, word: usize, n: u64) {
        self.lines[word / LINE_FIELDS].set(word % LINE_FIELDS, n);
    }

    /// A counter's value.
    #[inline]
    pub fn get(&self, word: usize) -> u64 {
        self.lines[word / LINE_FIELDS].get(word % LINE_FIELDS)
    }
}

impl NamedCounters {
    /// Rows of `row_lines` lines for `capacity` names and `slots` processes. Memory is taken only
    /// for the rows that are written.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(capacity: usize, slots: usize, row_lines: usize) -> io::Result<NamedCounters> {
        let (capacity, slots, row_lines) = (capacity.max(1), slots.max(1), row_lines.max(1));
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let words = capacity.checked_mul(ENTRY + 1).ok_or_else(too_much)?;
        let lines = (slots + 1).checked_mul(capacity).and_then(|n| n.checked_mul(row_lines));
        let bytes = lines.and_then(|n| n.checked_mul(size_of::<Line>())).ok_or_else(too_much)?;
        Ok(NamedCounters {
            names: Zone::anonymous((HEAD + words) * 8)?,
            lines: Zone::anonymous(bytes)?,
            capacity,
            slots,
            row_lines,
            hash: RandomState::new(),
        })
    }

    /// The number of rows that there may be.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of processes with lines of their own, and one.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The number of rows in use.
    pub fn rows(&self) -> usize {
        let count = self.names.words()[1].load(Ordering::Acquire);
        usize::try_from(count).unwrap_or(usize::MAX).min(self.capacity)
    }

    /// The index: twice as many places as rows, each with a row's number plus one, or 0.
    fn index(&self) -> &[AtomicU32] {
        &self.names.view::<AtomicU32>()[HEAD * 2..][..self.capacity * 2]
    }

    fn entry(&self, row: usize) -> &[AtomicU64] {
        &self.names.words()[HEAD + self.capacity + row * ENTRY..][..ENTRY]
    }

    fn is_named(&self, row: usize, name: &[u8]) -> bool {
        let entry = self.entry(row);
        entry[0].load(Ordering::Relaxed) == name.len() as u64
            && words(name).zip(&entry[1..]).all(|(word, at)| at.load(Ordering::Relaxed) == word)
    }

    /// The row of a name, or the free place of the index for it.
    fn probe(&self, name: &[u8]) -> Result<usize, Option<usize>> {
        let index = self.index();
        let first = self.hash.hash_one(name) as usize % index.len();
        for at in (first..index.len()).chain(0..first) {
            match index[at].load(Ordering::Acquire) {
                0 => return Err(Some(at)),
                n if self.is_named(n as usize - 1, name) => return Ok(n as usize - 1),
                _ => {}
            }
        }
        Err(None)
    }

    /// The row of a name, if it has one.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.probe(cut(name)).ok()
    }

    /// The row of a name, made now if there is none; `None` where there is no room for `spare` rows
    /// behind it.
    pub fn find_or_add(&self, name: &[u8], spare: usize) -> Option<usize> {
        let name = cut(name);
        if let Ok(row) = self.probe(name) {
            return Some(row);
        }
        let lock = &self.names.view::<AtomicU32>()[0];
        // An owner that died left at worst a row that is not in the index, and stays unused.
        mutex::lock(lock);
        let added = self.add_locked(name, spare);
        mutex::unlock(lock, true);
        added
    }

    fn add_locked(&self, name: &[u8], spare: usize) -> Option<usize> {
        let place = match self.probe(name) {
            Ok(row) => return Some(row),
            Err(place) => place?,
        };
        let row = self.rows();
        if row + spare >= self.capacity {
            return None;
        }
        let entry = self.entry(row);
        entry[0].store(name.len() as u64, Ordering::Relaxed);
        words(name).zip(&entry[1..]).for_each(|(word, at)| at.store(word, Ordering::Relaxed));
        self.names.words()[1].store(row as u64 + 1, Ordering::Release);
        self.index()[place].store(row as u32 + 1, Ordering::Release);
        Some(row)
    }

    /// A row's name.
    pub fn name(&self, row: usize) -> Vec<u8> {
        let entry = self.entry(row);
        let len = usize::try_from(entry[0].load(Ordering::Relaxed)).unwrap_or(NAME_MAX);
        let bytes = entry[1..].iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        bytes.take(len.min(NAME_MAX)).collect()
    }

    /// A row's counters of a process.
    #[inline]
    pub fn of(&self, slot: usize, row: usize) -> CounterRow<'_> {
        let shared = slot >= self.slots - 1;
        CounterRow { lines: self.row_of(slot.min(self.slots - 1), row), shared }
    }

    fn row_of(&self, slot: usize, row: usize) -> &[Line] {
        let at = (slot * self.capacity + row.min(self.capacity - 1)) * self.row_lines;
        &self.lines.view::<Line>()[at..at + self.row_lines]
    }

    /// In a process that begins to write: its slot. Sums leave out those above all that were used.
    pub fn use_slot(&self, slot: usize) {
        let used = slot.min(self.slots - 1) as u64 + 1;
        self.names.words()[2].fetch_max(used, Ordering::Relaxed);
    }

    fn used(&self) -> usize {
        let used = self.names.words()[2].load(Ordering::Relaxed);
        usize::try_from(used).unwrap_or(self.slots).min(self.slots)
    }

    fn get(&self, slot: usize, row: usize, word: usize) -> u64 {
        self.row_of(slot, row)[word / LINE_FIELDS].get(word % LINE_FIELDS)
    }

    /// A counter's sum over all processes since the last reset.
    pub fn sum(&self, row: usize, word: usize) -> u64 {
        self.total(row, word).wrapping_sub(self.get(self.slots, row, word))
    }

    fn total(&self, row: usize, word: usize) -> u64 {
        (0..self.used()).fold(0, |sum, slot| sum.wrapping_add(self.get(slot, row, word)))
    }

    /// Adds the sums of all counters of a row since the last reset to `sums`.
    pub fn add_sums(&self, row: usize, sums: &mut [u64]) {
        let (lines, _) = sums.as_chunks_mut::<LINE_FIELDS>();
        for slot in 0..self.used() {
            for (sums, line) in lines.iter_mut().zip(self.row_of(slot, row)) {
                line.add_to(sums);
            }
        }
        for (sums, line) in lines.iter_mut().zip(self.row_of(self.slots, row)) {
            line.take_from(sums);
        }
    }

    /// A value that is neither counted nor reset.
    pub fn base(&self, row: usize, word: usize) -> u64 {
        self.get(self.slots, row, word)
    }

    /// Notes a value for [`NamedCounters::base`], in a word that nothing is counted in.
    pub fn set_base(&self, row: usize, word: usize, n: u64) {
        self.row_of(self.slots, row)[word / LINE_FIELDS].set(word % LINE_FIELDS, n);
    }

    /// The greatest value that a process has put into a word.
    pub fn greatest(&self, row: usize, word: usize) -> u64 {
        (0..self.used()).map(|slot| self.get(slot, row, word)).max().unwrap_or(0)
    }

    /// Begins to count from 0 again, but for work under way.
    pub fn reset(&self, row: usize, under_way: &[usize]) {
        for word in (0..self.row_lines * LINE_FIELDS).filter(|word| !under_way.contains(word)) {
            let total = self.total(row, word);
            self.row_of(self.slots, row)[word / LINE_FIELDS].set(word % LINE_FIELDS, total);
        }
    }

    /// In the master: the process of that slot, `pid`, is dead. Adds the work that it had under way
    /// to the counter of lost work. That of processes which share a slot cannot be told apart, and
    /// stays. `part` is the word that has a part of the work under way, by a row's name.
    pub fn died(
        &self,
        pid: u32,
        slot: usize,
        (under_way, lost): (usize, usize),
        part: impl Fn(&[u8]) -> Option<usize>,
    ) {
        mutex::free_of(&self.names.view::<AtomicU32>()[0], pid);
        if slot >= self.slots - 1 {
            return;
        }
        for row in 0..self.rows() {
            let counters = self.of(slot, row);
            let left = counters.get(under_way);
            if left > 0 {
                counters.set(under_way, 0);
                counters.add(lost, left);
                if let Some(part) = part(&self.name(row)) {
                    counters.set(part, 0);
                }
            }
        }
    }
}

fn cut(name: &[u8]) -> &[u8] {
    &name[..name.len().min(NAME_MAX)]
}

fn words(name: &[u8]) -> impl Iterator<Item = u64> {
    name.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        let counters = NamedCounters::new(100, 3, 2).unwrap();
        let names: Vec<Vec<u8>> = (0..100u32).map(|n| format!("zone {n}").into_bytes()).collect();
        for (row, name) in names.iter().enumerate() {
            assert_eq!(counters.find(name), None);
            assert_eq!(counters.find_or_add(name, 0), Some(row));
        }
        for (row, name) in names.iter().enumerate() {
            assert_eq!(counters.find_or_add(name, 0), Some(row));
            assert_eq!(counters.name(row), *name);
        }
        assert_eq!(counters.find_or_add(b"more", 0), None);
        assert_eq!(counters.rows(), 100);
    }

    #[test]
    fn any_bytes_are_a_name_and_long_ones_are_cut() {
        let counters = NamedCounters::new(8, 1, 1).unwrap();
        let long = [b'x'; NAME_MAX + 9];
        for name in [&b""[..], b"\0", b"\0\0", b"\xff\"\n", &long] {
            let row = counters.find_or_add(name, 0).unwrap();
            assert_eq!(counters.name(row), cut(name));
        }
        assert_eq!(counters.rows(), 5);
        assert_eq!(counters.find(&long[..NAME_MAX]), Some(4));
        assert_eq!(counters.find_or_add(b"with room behind", 3), None);
        assert_eq!(counters.find_or_add(b"with room behind", 2), Some(5));
    }

    #[test]
    fn sums_resets_and_the_dead() {
        let counters = NamedCounters::new(4, 3, 2).unwrap();
        let row = counters.find_or_add(b"a", 0).unwrap();
        [0, 1, 70].into_iter().for_each(|slot| counters.use_slot(slot));
        counters.of(0, row).add(0, 2);
        counters.of(0, row).add(9, 5);
        counters.of(1, row).add(9, 1);
        // Both share the last slot.
        counters.of(2, row).add(9, 1);
        counters.of(70, row).add(9, 1);
        assert_eq!((counters.sum(row, 0), counters.sum(row, 9)), (2, 8));
        counters.reset(row, &[0]);
        assert_eq!((counters.sum(row, 0), counters.sum(row, 9)), (2, 0));
        counters.of(1, row).add(9, 3);
        counters.of(0, row).add(4, 1);
        counters.died(0, 0, (0, 1), |_| Some(4));
        assert_eq!(counters.sum(row, 4), 0);
        assert_eq!([0, 1, 9].map(|word| counters.sum(row, word)), [0, 2, 3]);
        counters.died(0, 0, (0, 1), |_| None);
        assert_eq!(counters.sum(row, 1), 2);
        counters.of(1, row).set(3, 7);
        assert_eq!(counters.greatest(row, 3), 7);
        let mut sums = [0; 16];
        counters.add_sums(row, &mut sums);
        assert_eq!((sums[1], sums[9]), (2, 3));
        counters.set_base(row, 15, 4);
        assert_eq!(counters.base(row, 15), 4);
    }
}
