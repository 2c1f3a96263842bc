//! Responses on their way into files, for waiters of other workers: the number of the file, and how
//! much of the body is in it.
//!
//! ```text
//!  free ──claim──▶ claimed ──show──▶ shown ──┐ progress
//!    ▲                │                ▲     │
//!    │  generation+1  │                └─────┘
//!    └──── end, or the process died ───┘
//! ```
//!
//! A slot takes a cache line in shared memory, found by the key's hash among a few. Without a free
//! one among these a response is not shown, and its waiters wait to its end. A reader keeps slot
//! and generation: when the latter has changed it is over, and the header of the file that the
//! reader has open says whether it ended well (`UNFINISHED` in [`crate::file_header`]).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use shm::Zone;

use crate::key::Hash;

/// Words of a slot.
const WORDS: usize = 8;
/// Slots among which one of a hash may be.
const WAYS: usize = 8;
/// Most slots of a cache.
const SLOTS_MAX: usize = 8192;

/// Words of a slot: pid, generation and phase in one; the hash; the number in the file's name;
/// bytes of the body in it; the slot of the process; whether a request waits for it.
const STATE: usize = 0;
const HASH: usize = 1;
const NUMBER: usize = 3;
const WRITTEN: usize = 4;
const OWNER: usize = 5;
const WANTED: usize = 6;

const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const SHOWN: u64 = 2;
const PHASE: u64 = 0xff;
const GENERATION_BITS: u32 = 34;
const PID_AT: u32 = 8 + GENERATION_BITS;

fn state(pid: u32, generation: u64, phase: u64) -> u64 {
    let generation = generation & ((1 << GENERATION_BITS) - 1);
    u64::from(pid) << PID_AT | generation << 8 | phase
}

fn generation(state: u64) -> u64 {
    state >> 8 & ((1 << GENERATION_BITS) - 1)
}

/// The streams of a cache.
pub struct Streams {
    zone: Zone,
    buckets: usize,
}

/// A response on its way, whatever comes later into its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamId {
    slot: usize,
    generation: u64,
}

/// A response of a key that is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveStream {
    /// Its name.
    pub id: StreamId,
    /// The number in the name of its file; `None`: there is no file yet.
    pub number: Option<u32>,
    /// The slot of the process that fetches it.
    pub owner: usize,
}

impl Streams {
    /// Slots for about `responses` responses, made before the fork.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(responses: usize) -> io::Result<Streams> {
        let buckets = (responses.clamp(WAYS, SLOTS_MAX) / WAYS).next_power_of_two();
        Ok(Streams { zone: Zone::anonymous(buckets * WAYS * WORDS * 8)?, buckets })
    }

    fn words(&self, slot: usize) -> &[AtomicU64] {
        &self.zone.words()[slot * WORDS..(slot + 1) * WORDS]
    }

    /// The slots in which a hash may be.
    fn bucket(&self, hash: &Hash) -> std::ops::Range<usize> {
        let first = halves(hash).0 as usize % self.buckets * WAYS;
        first..first + WAYS
    }

    /// A slot for a response that the process `pid` in the slot `owner` fetches; `None` where all
    /// are taken.
    pub fn claim(&self, hash: &Hash, pid: u32, owner: usize) -> Option<StreamId> {
        for slot in self.bucket(hash) {
            let words = self.words(slot);
            let old = words[STATE].load(Ordering::Relaxed);
            let generation = generation(old);
            let new = state(pid, generation, CLAIMED);
            if old & PHASE != FREE
                || words[STATE]
                    .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            let (low, high) = halves(hash);
            for (word, value) in [(HASH, low), (HASH + 1, high), (WRITTEN, 0), (WANTED, 0)] {
                words[word].store(value, Ordering::Relaxed);
            }
            // A lookup takes a slot as valid when it has an owner.
            words[OWNER].store(owner as u64 + 1, Ordering::SeqCst);
            return Some(StreamId { slot, generation });
        }
        None
    }

    /// The file exists, with this part of the body.
    pub fn show(&self, id: StreamId, pid: u32, number: u32, written: u64) {
        let words = self.words(id.slot);
        words[NUMBER].store(number.into(), Ordering::Relaxed);
        words[WRITTEN].store(written, Ordering::Relaxed);
        let (old, new) = (state(pid, id.generation, CLAIMED), state(pid, id.generation, SHOWN));
        let _ = words[STATE].compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// So much of the body is in the file.
    pub fn progress(&self, id: StreamId, written: u64) {
        self.words(id.slot)[WRITTEN].store(written, Ordering::Release);
    }

    /// It is over.
    pub fn end(&self, id: StreamId, pid: u32) {
        let words = self.words(id.slot);
        for phase in [CLAIMED, SHOWN] {
            let old = state(pid, id.generation, phase);
            if words[STATE].load(Ordering::Relaxed) == old {
                words[OWNER].store(0, Ordering::Release);
                let free = state(0, id.generation + 1, FREE);
                let _ =
                    words[STATE].compare_exchange(old, free, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// Hides the responses of a hash from new readers; a reader goes on.
    pub fn hide(&self, hash: &Hash) {
        // One that was asked for before the last purge may be under way beside the next.
        for _ in 0..WAYS {
            let Some(found) = self.find(hash) else { return };
            self.words(found.id.slot)[OWNER].store(0, Ordering::SeqCst);
        }
    }

    /// The same of a response that the process `pid` fetches.
    pub(crate) fn hide_one(&self, id: StreamId, pid: u32) {
        let words = self.words(id.slot);
        let now = words[STATE].load(Ordering::Acquire);
        if generation(now) == id.generation && (now >> PID_AT) as u32 == pid {
            words[OWNER].store(0, Ordering::SeqCst);
        }
    }

    /// A request waits for it.
    pub fn want(&self, id: StreamId) {
        self.words(id.slot)[WANTED].store(1, Ordering::SeqCst);
    }

    /// Whether a request waits for it.
    pub fn is_wanted(&self, id: StreamId) -> bool {
        self.words(id.slot)[WANTED].load(Ordering::SeqCst) != 0
    }

    /// The response of a hash that is on its way.
    pub fn find(&self, hash: &Hash) -> Option<LiveStream> {
        let (low, high) = halves(hash);
        self.bucket(hash).find_map(|slot| {
            let words = self.words(slot);
            let before = words[STATE].load(Ordering::Acquire);
            if before & PHASE == FREE {
                return None;
            }
            let owner = words[OWNER].load(Ordering::SeqCst).checked_sub(1)?;
            let is_it = words[HASH].load(Ordering::Relaxed) == low
                && words[HASH + 1].load(Ordering::Relaxed) == high;
            let number = words[NUMBER].load(Ordering::Relaxed) as u32;
            // The values belong together if the state did not change meanwhile.
            fence(Ordering::Acquire);
            let after = words[STATE].load(Ordering::Relaxed);
            (is_it && before == after).then(|| LiveStream {
                id: StreamId { slot, generation: generation(before) },
                number: (before & PHASE == SHOWN).then_some(number),
                owner: owner as usize,
            })
        })
    }

    /// Bytes of the body in the file; `None` when it is over.
    pub fn written(&self, id: StreamId) -> Option<u64> {
        let words = self.words(id.slot);
        let written = words[WRITTEN].load(Ordering::Acquire);
        fence(Ordering::Acquire);
        let now = words[STATE].load(Ordering::Relaxed);
        (now & PHASE == SHOWN && generation(now) == id.generation).then_some(written)
    }

    /// In the master: a process is dead, and its fetches are over. Whether there were any.
    pub fn died(&self, pid: u32) -> bool {
        let mut any = false;
        for slot in 0..self.buckets * WAYS {
            let words = self.words(slot);
            let old = words[STATE].load(Ordering::Acquire);
            if old & PHASE != FREE && (old >> PID_AT) as u32 == pid {
                words[OWNER].store(0, Ordering::Release);
                words[STATE].store(state(0, generation(old) + 1, FREE), Ordering::Release);
                any = true;
            }
        }
        any
    }
}

fn halves(hash: &Hash) -> (u64, u64) {
    let all = u128::from_le_bytes(*hash);
    (all as u64, (all >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_on_its_way() {
        let streams = Streams::new(100).unwrap();
        let hash = crate::key::hash(b"a");
        assert_eq!(streams.find(&hash), None);
        let id = streams.claim(&hash, 7, 3).unwrap();
        assert_eq!(streams.find(&hash), Some(LiveStream { id, number: None, owner: 3 }));
        assert_eq!((streams.written(id), streams.is_wanted(id)), (None, false));
        streams.want(id);
        assert!(streams.is_wanted(id));
        streams.show(id, 7, 42, 10);
        assert_eq!(streams.find(&hash).unwrap().number, Some(42));
        assert_eq!(streams.written(id), Some(10));
        streams.progress(id, 20);
        assert_eq!(streams.written(id), Some(20));
        // None of several is found any more, and a reader goes on.
        let other = streams.claim(&hash, 8, 4).unwrap();
        streams.hide_one(id, 8);
        assert_eq!(streams.find(&hash).unwrap().id, id, "another process's");
        streams.hide_one(id, 7);
        assert_eq!(streams.find(&hash).unwrap().id, other);
        streams.hide(&hash);
        assert_eq!((streams.find(&hash), streams.written(id)), (None, Some(20)));
        streams.end(other, 8);
        streams.end(id, 7);
        assert_eq!((streams.written(id), streams.find(&hash)), (None, None));
        // The next response in the slot is another one.
        let next = streams.claim(&hash, 8, 1).unwrap();
        streams.show(next, 8, 43, 5);
        assert_eq!((streams.written(id), streams.written(next)), (None, Some(5)));
        streams.end(id, 7);
        assert_eq!(streams.written(next), Some(5));
    }

    #[test]
    fn the_dead_fetch_nothing() {
        let streams = Streams::new(1).unwrap();
        let hash = |n: u8| crate::key::hash(&[n]);
        let claim = |n: u8| streams.claim(&hash(n), u32::from(n % 2), 0).unwrap();
        let ids: Vec<StreamId> = (0..8).map(claim).collect();
        assert_eq!(streams.claim(&hash(9), 5, 0), None, "all are taken");
        streams.show(ids[1], 1, 1, 1);
        assert!(streams.died(1));
        assert!(!streams.died(1));
        assert_eq!(streams.written(ids[1]), None);
        assert!(streams.find(&hash(0)).is_some() && streams.find(&hash(1)).is_none());
        assert!(streams.claim(&hash(9), 5, 0).is_some());
        // The end of the dead process's response does not affect the next one.
        streams.end(ids[1], 1);
        assert!(streams.find(&hash(9)).is_some());
    }
}
