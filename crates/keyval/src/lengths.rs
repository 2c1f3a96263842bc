//! The lengths of the keys in a table, by which the longest match is found: of a table of networks
//! the lengths of their prefixes, of a table of prefixes their own.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use shm::Zone;

/// The largest length.
pub const MAX: usize = 4096;

/// Words with a bit for each length that occurs.
const BITS: usize = MAX / 64 + 1;

/// Words behind those: how often each length occurs, and some of the owner's.
const WORDS: usize = BITS + MAX + 1 + OWN;

/// The number of the owner's words.
const OWN: usize = 3;

/// Counts of lengths in shared memory. They are changed under the lock of their table.
pub struct Lengths(Zone);

impl Lengths {
    /// No length.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new() -> io::Result<Lengths> {
        Ok(Lengths(Zone::anonymous(WORDS * size_of::<u64>())?))
    }

    /// Words that the owner of the table may use as it likes.
    pub fn own(&self, n: usize) -> &AtomicU64 {
        &self.0.words()[WORDS - OWN + n.min(OWN - 1)]
    }

    fn word(&self, i: usize) -> u64 {
        self.0.words()[i].load(Ordering::Relaxed)
    }

    fn put(&self, i: usize, value: u64) {
        self.0.words()[i].store(value, Ordering::Relaxed);
    }

    /// A key of this length came.
    pub fn add(&self, length: usize) {
        let count = self.word(BITS + length);
        self.put(BITS + length, count + 1);
        self.put(length / 64, self.word(length / 64) | 1 << (length % 64));
    }

    /// One went.
    pub fn sub(&self, length: usize) {
        let count = self.word(BITS + length).saturating_sub(1);
        self.put(BITS + length, count);
        if count == 0 {
            self.put(length / 64, self.word(length / 64) & !(1 << (length % 64)));
        }
    }

    /// All went.
    pub fn clear(&self) {
        (0..BITS + MAX + 1).for_each(|i| self.put(i, 0));
    }

    /// The lengths that occur within a range, the longest first.
    pub fn within(&self, from: usize, to: usize) -> impl Iterator<Item = usize> {
        let mut next = to.min(MAX) + 1;
        std::iter::from_fn(move || {
            while next > from {
                let (word, bit) = ((next - 1) / 64, (next - 1) % 64);
                let below = self.word(word) & (u64::MAX >> (63 - bit));
                if below != 0 {
                    next = word * 64 + 63 - below.leading_zeros() as usize;
                    return (next >= from).then_some(next);
                }
                next = word * 64;
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_longest_first() {
        let lengths = Lengths::new().unwrap();
        for length in [0, 3, 3, 63, 64, 100, MAX] {
            lengths.add(length);
        }
        let within = |from, to| lengths.within(from, to).collect::<Vec<_>>();
        assert_eq!(within(0, usize::MAX), [MAX, 100, 64, 63, 3, 0]);
        assert_eq!(within(3, 64), [64, 63, 3]);
        assert_eq!(within(4, 62), [0; 0]);
        assert_eq!(within(1, 5), [3]);
        lengths.sub(3);
        assert_eq!(within(1, 5), [3]);
        lengths.sub(3);
        lengths.sub(3);
        assert_eq!(within(1, 5), [0; 0]);
        lengths.clear();
        assert_eq!(within(0, MAX), [0; 0]);
    }
}
