//! Messages of many processes for one: each process has a ring of its own to write to, and one
//! process reads them all.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{LINE_FIELDS, Zone};

/// A ring of words for each process slot, in memory that is touched only as far as it is used.
///
/// ```text
///  ┌──────┬──────┬────────────────────────────────┐
///  │ head │ tail │ … length, bytes, length, bytes │   of each slot; head and tail only grow
///  └──────┴──────┴────────────────────────────────┘
/// ```
///
/// A message exists once the head has moved behind it: a process that dies while writing leaves no
/// part of one. The reader moves the tail when it has handled the messages: if it dies before, the
/// next reader reads them again.
#[derive(Debug)]
pub struct Rings {
    zone: Zone,
    slots: usize,
    /// Words of a ring.
    words: usize,
}

/// Words before a ring: head and tail do not share a cache line.
const BEFORE: usize = 2 * LINE_FIELDS;

/// The result of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// It is the only one in its ring: the reader may not know that there is something.
    First,
    /// Other messages are before it.
    Queued,
    /// There is no room for it.
    Full,
}

impl Rings {
    /// Rings for `slots` processes of about `bytes` bytes each, made before the fork.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(slots: usize, bytes: usize) -> io::Result<Rings> {
        let words = (bytes / 8).max(LINE_FIELDS).next_multiple_of(LINE_FIELDS);
        let row = (BEFORE + words).checked_mul(8).ok_or(io::ErrorKind::OutOfMemory)?;
        let bytes = slots.checked_mul(row).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Rings { zone: Zone::anonymous(bytes)?, slots, words })
    }

    /// The number of rings.
    pub fn slots(&self) -> usize {
        self.slots
    }

    fn row(&self, slot: usize) -> Option<(&AtomicU64, &AtomicU64, &[AtomicU64])> {
        let row = BEFORE + self.words;
        let words = self.zone.words().get(slot * row..(slot + 1) * row)?;
        (slot < self.slots).then(|| (&words[0], &words[LINE_FIELDS], &words[BEFORE..]))
    }

    /// Writes a message to the ring of this process, which has that slot.
    pub fn push(&self, slot: usize, message: &[u8]) -> Pushed {
        let Some((head, tail, ring)) = self.row(slot) else { return Pushed::Full };
        let (begin, end) = (head.load(Ordering::Relaxed), tail.load(Ordering::Acquire));
        let need = 1 + message.len().div_ceil(8) as u64;
        let used = begin.wrapping_sub(end);
        if used.saturating_add(need) > self.words as u64 {
            return Pushed::Full;
        }
        let put = |at: u64, word: u64| {
            ring[(at % self.words as u64) as usize].store(word, Ordering::Relaxed);
        };
        put(begin, message.len() as u64);
        for (at, chunk) in message.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            put(begin + 1 + at as u64, u64::from_le_bytes(word));
        }
        head.store(begin + need, Ordering::Release);
        if used == 0 { Pushed::First } else { Pushed::Queued }
    }

    /// Whether a ring holds anything.
    pub fn is_empty(&self, slot: usize) -> bool {
        let Some((head, tail, _)) = self.row(slot) else { return true };
        head.load(Ordering::Acquire) == tail.load(Ordering::Relaxed)
    }

    /// Appends the bytes of all messages in a ring to `out`. Returns the argument for
    /// [`Rings::taken`].
    pub fn peek(&self, slot: usize, out: &mut Vec<u8>) -> u64 {
        let Some((head, tail, ring)) = self.row(slot) else { return 0 };
        let (end, mut at) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        let get = |at: u64| ring[(at % self.words as u64) as usize].load(Ordering::Relaxed);
        while at != end {
            let len = get(at);
            let words = len.div_ceil(8);
            if words >= end.wrapping_sub(at) {
                // A length that reaches beyond the head, which no process writes: the rest is
                // skipped, so that the next message is read from its start.
                return end;
            }
            let start = out.len();
            for word in 0..words {
                out.extend_from_slice(&get(at + 1 + word).to_le_bytes());
            }
            out.truncate(start + len as usize);
            at += 1 + words;
        }
        at
    }

    /// The messages up to there are done with.
    pub fn taken(&self, slot: usize, at: u64) {
        if let Some((_, tail, _)) = self.row(slot) {
            tail.store(at, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_order_and_round_the_end() {
        let rings = Rings::new(3, 64 * 8).unwrap();
        let mut expected = Vec::new();
        for round in 0..200_u32 {
            assert!(rings.is_empty(1));
            for n in 0..3 {
                let message = vec![round as u8; (round + n) as usize % 40];
                let pushed = rings.push(1, &message);
                assert_eq!(pushed, if n == 0 { Pushed::First } else { Pushed::Queued });
                expected.extend_from_slice(&message);
            }
            let mut out = Vec::new();
            rings.peek(1, &mut out);
            // Messages that were not taken are read again.
            out.clear();
            let at = rings.peek(1, &mut out);
            rings.taken(1, at);
            assert_eq!(out, expected);
            expected.clear();
        }
        assert!(rings.is_empty(0) && rings.is_empty(2));
    }

    #[test]
    fn no_room_is_said() {
        let rings = Rings::new(1, 64 * 8).unwrap();
        let pushed: Vec<_> = (0..5).map(|_| rings.push(0, &[7; 120])).collect();
        assert_eq!(pushed[3..], [Pushed::Queued, Pushed::Full]);
        let mut out = Vec::new();
        rings.taken(0, rings.peek(0, &mut out));
        assert_eq!(out.len(), 4 * 120);
        assert_eq!(rings.push(0, &[7; 120]), Pushed::First);
        assert_eq!(rings.push(1, &[7]), Pushed::Full);
        assert_eq!(rings.push(0, &[7; 64 * 8]), Pushed::Full);
    }

    #[test]
    fn what_makes_no_sense_is_passed_over() {
        let rings = Rings::new(1, 64 * 8).unwrap();
        rings.push(0, b"one");
        rings.push(0, b"two");
        let (_, _, ring) = rings.row(0).unwrap();
        ring[2].store(u64::MAX, Ordering::Relaxed);
        let mut out = Vec::new();
        rings.taken(0, rings.peek(0, &mut out));
        assert_eq!(out, b"one");
        assert!(rings.is_empty(0));
        assert_eq!(rings.push(0, b"three"), Pushed::First);
    }
}
