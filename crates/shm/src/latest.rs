//! The latest records of all processes: a ring in which a new record takes the place of the oldest.
//!
//! ```text
//!  ┌───────┬──────────────────────────────┬─ ─┐
//!  │ count │ number, sum, length, bytes … │   │   a record is number n, in place n modulo places
//!  └───────┴──────────────────────────────┴─ ─┘
//! ```
//!
//! Writers take numbers and never wait. A reader takes a record if its number is the same before
//! and after the copy and the sum is that of its bytes: a record that another one overtakes, or
//! whose writer died halfway, is left out.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::Zone;
use crate::counters::LINE_FIELDS;

/// Words before the bytes of a record.
const HEAD: usize = 3;

/// The latest records, made before the fork.
#[derive(Debug)]
pub struct Latest {
    zone: Zone,
    places: usize,
    /// Words of a place.
    words: usize,
}

impl Latest {
    /// Room for `places` records of at most `bytes` bytes. Memory is taken for those that are
    /// written.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(places: usize, bytes: usize) -> io::Result<Latest> {
        let places = places.max(1);
        let words = (HEAD + bytes.div_ceil(8)).next_multiple_of(LINE_FIELDS);
        let all = places.checked_mul(words).and_then(|n| n.checked_add(LINE_FIELDS));
        let bytes = all.and_then(|n| n.checked_mul(8)).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Latest { zone: Zone::anonymous(bytes)?, places, words })
    }

    fn count(&self) -> &AtomicU64 {
        &self.zone.words()[0]
    }

    fn place(&self, number: u64) -> &[AtomicU64] {
        let at = (number % self.places as u64) as usize * self.words;
        &self.zone.words()[LINE_FIELDS + at..][..self.words]
    }

    /// The number that the next record gets: so many there have been.
    pub fn next(&self) -> u64 {
        self.count().load(Ordering::Acquire)
    }

    /// Writes a record; bytes that there is no room for are left out.
    pub fn push(&self, record: &[u8]) {
        let number = self.count().fetch_add(1, Ordering::AcqRel);
        let place = self.place(number);
        let record = &record[..record.len().min((self.words - HEAD) * 8)];
        place[0].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        let mut sum = begin(number, record.len() as u64);
        for (chunk, at) in record.chunks(8).zip(&place[HEAD..]) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let word = u64::from_le_bytes(word);
            sum = add(sum, word);
            at.store(word, Ordering::Relaxed);
        }
        place[1].store(sum, Ordering::Relaxed);
        place[2].store(record.len() as u64, Ordering::Relaxed);
        place[0].store(number + 1, Ordering::Release);
    }

    /// The record of that number, if it is whole and still there.
    pub fn get(&self, number: u64) -> Option<Vec<u8>> {
        let place = self.place(number);
        if place[0].load(Ordering::Acquire) != number + 1 {
            return None;
        }
        let len = usize::try_from(place[2].load(Ordering::Relaxed)).ok()?;
        let words = place[HEAD..].get(..len.div_ceil(8))?;
        let (mut sum, mut bytes) = (begin(number, len as u64), Vec::with_capacity(len + 8));
        for word in words {
            let word = word.load(Ordering::Relaxed);
            sum = add(sum, word);
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        let expected = place[1].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let same = place[0].load(Ordering::Relaxed) == number + 1;
        bytes.truncate(len);
        (same && sum == expected).then_some(bytes)
    }

    /// The numbers of the records that may be there, the oldest first.
    pub fn numbers(&self) -> std::ops::Range<u64> {
        let next = self.next();
        next.saturating_sub(self.places as u64)..next
    }
}

fn begin(number: u64, len: u64) -> u64 {
    add(add(0xcbf2_9ce4_8422_2325, number), len)
}

/// FNV-1a, a word at a time.
fn add(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(0x0100_0000_01b3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_gives_way() {
        let latest = Latest::new(4, 20).unwrap();
        assert_eq!((latest.next(), latest.numbers(), latest.get(0)), (0, 0..0, None));
        for n in 0..10_u8 {
            latest.push(&vec![n; usize::from(n)]);
        }
        assert_eq!((latest.next(), latest.numbers()), (10, 6..10));
        for n in latest.numbers() {
            assert_eq!(latest.get(n), Some(vec![n as u8; n as usize]));
        }
        assert_eq!((latest.get(5), latest.get(10)), (None, None));
    }

    #[test]
    fn a_long_record_is_cut() {
        let latest = Latest::new(1, 20).unwrap();
        latest.push(&[7; 1000]);
        let record = latest.get(0).unwrap();
        assert!((20..64).contains(&record.len()));
        assert!(record.iter().all(|b| *b == 7));
    }

    #[test]
    fn half_a_record_is_left_out() {
        let latest = Latest::new(2, 16).unwrap();
        (0..3_u8).for_each(|n| latest.push(&[n; 16]));
        // Another writer is at it, or died there.
        latest.place(2)[HEAD].store(9, Ordering::Relaxed);
        assert_eq!((latest.get(1), latest.get(2)), (Some(vec![1; 16]), None));
        latest.place(1)[2].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(latest.get(1), None);
    }
}
