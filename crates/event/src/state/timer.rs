//! The timer wheel: seven rings of 64 buckets, one millisecond a tick.
//!
//! A timer lies in the ring of the highest base-64 digit in which its deadline differs from the
//! wheel's clock, in the bucket of that digit. When the clock reaches a bucket of an upper ring,
//! its timers move down; in the lowest ring they fire. Setting and cancelling are O(1) and never
//! allocate: the links of the lists lie in the slots themselves.

use super::index::NONE;
use super::slot::Slot;

const BITS: u32 = 6;
const RING: usize = 1 << BITS;
const RINGS: usize = 7;

/// A slot that is in no bucket.
pub(crate) const NO_BUCKET: u16 = u16::MAX;

/// The bucket of timers that were due already when they were set.
const DUE: u16 = (RINGS * RING) as u16;

/// Half of the rings' span (34 years): together with the clock below that, no sum of the two has a
/// digit that the rings lack.
const FAR_MS: u64 = 1 << (RINGS as u32 * BITS - 1);

pub(crate) struct Wheel {
    /// The wheel's clock: everything due until then has fired.
    elapsed_ms: u64,
    heads: [u32; RINGS * RING + 1],
    /// One bit for each bucket of a ring that holds something.
    occupied: [u64; RINGS],
}

impl Wheel {
    pub(crate) fn new(now_ms: u64) -> Wheel {
        Wheel { elapsed_ms: now_ms, heads: [NONE; RINGS * RING + 1], occupied: [0; RINGS] }
    }

    /// Sets the timer of slot `index` to the slot's deadline.
    pub(crate) fn insert(&mut self, slots: &mut [Slot], index: u32) {
        let when = slots[index as usize].deadline_ms;
        let bucket = self.bucket(when);
        let head = self.heads[usize::from(bucket)];
        let slot = &mut slots[index as usize];
        (slot.bucket, slot.timer_prev, slot.timer_next) = (bucket, NONE, head);
        if head != NONE {
            slots[head as usize].timer_prev = index;
        }
        self.heads[usize::from(bucket)] = index;
        if bucket != DUE {
            let bucket = usize::from(bucket);
            self.occupied[bucket / RING] |= 1 << (bucket % RING);
        }
    }

    fn bucket(&self, when: u64) -> u16 {
        if when <= self.elapsed_ms {
            return DUE;
        }
        // Timers beyond the last ring wait in it and move when their bucket comes.
        let when = when.min(self.elapsed_ms + FAR_MS);
        let differing = (self.elapsed_ms ^ when) | (RING as u64 - 1);
        let ring = ((63 - differing.leading_zeros()) / BITS).min(RINGS as u32 - 1);
        let digit = (when >> (ring * BITS)) as usize % RING;
        (ring as usize * RING + digit) as u16
    }

    /// Removes the timer of slot `index`, if it is set.
    pub(crate) fn remove(&mut self, slots: &mut [Slot], index: u32) {
        let slot = &mut slots[index as usize];
        let (bucket, prev, next) = (slot.bucket, slot.timer_prev, slot.timer_next);
        if bucket == NO_BUCKET {
            return;
        }
        slot.bucket = NO_BUCKET;
        if next != NONE {
            slots[next as usize].timer_prev = prev;
        }
        if prev != NONE {
            slots[prev as usize].timer_next = next;
            return;
        }
        self.heads[usize::from(bucket)] = next;
        if next == NONE && bucket != DUE {
            let bucket = usize::from(bucket);
            self.occupied[bucket / RING] &= !(1 << (bucket % RING));
        }
    }

    /// When [`Wheel::expire`] has something to do next: the deadline of the nearest timer, or
    /// an earlier time at which timers move to a lower ring.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        if self.heads[usize::from(DUE)] != NONE {
            return Some(self.elapsed_ms);
        }
        // A lower ring always comes before a higher one: its timers agree with the clock in
        // every digit that the higher one's differ in.
        let ring = self.occupied.iter().position(|&bits| bits != 0)?;
        let digit = u64::from(self.occupied[ring].trailing_zeros());
        let shift = ring as u32 * BITS;
        let above = self.elapsed_ms >> (shift + BITS) << (shift + BITS);
        Some(above + (digit << shift))
    }

    /// Moves the clock to `now_ms` and adds the timers that are due by then to `fired`. Where there
    /// are more than `most`, the rest stays due, and the clock behind.
    pub(crate) fn expire(
        &mut self,
        slots: &mut [Slot],
        now_ms: u64,
        most: usize,
        fired: &mut Vec<u32>,
    ) {
        while let Some(next) = self.next_ms().filter(|&next| next <= now_ms) {
            if fired.len() >= most {
                return;
            }
            self.elapsed_ms = self.elapsed_ms.max(next);
            let bucket = match self.heads[usize::from(DUE)] {
                NONE => self.bucket_at(next),
                _ => usize::from(DUE),
            };
            let mut index = std::mem::replace(&mut self.heads[bucket], NONE);
            if bucket != usize::from(DUE) {
                self.occupied[bucket / RING] &= !(1 << (bucket % RING));
            }
            while index != NONE {
                let slot = &mut slots[index as usize];
                let next_in_list = slot.timer_next;
                slot.bucket = NO_BUCKET;
                if slot.deadline_ms <= self.elapsed_ms && fired.len() < most {
                    fired.push(index);
                } else {
                    self.insert(slots, index);
                }
                index = next_in_list;
            }
        }
        self.elapsed_ms = self.elapsed_ms.max(now_ms);
    }

    /// The bucket that [`Wheel::next_ms`] found to begin at `start`.
    fn bucket_at(&self, start: u64) -> usize {
        let ring = self.occupied.iter().position(|&bits| bits != 0).unwrap_or(0);
        ring * RING + (start >> (ring as u32 * BITS)) as usize % RING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        wheel: Wheel,
        slots: Vec<Slot>,
    }

    impl Bench {
        fn new(start: u64) -> Bench {
            Bench { wheel: Wheel::new(start), slots: Vec::new() }
        }

        fn set(&mut self, deadline_ms: u64) -> u32 {
            let index = self.slots.len() as u32;
            let mut slot = Slot::VACANT;
            slot.deadline_ms = deadline_ms;
            self.slots.push(slot);
            self.wheel.insert(&mut self.slots, index);
            index
        }

        /// Goes from wake-up to wake-up, as the loop does, and says when each timer fired.
        fn run(&mut self, until: u64) -> Vec<(u64, u32)> {
            let mut all = Vec::new();
            while let Some(next) = self.wheel.next_ms().filter(|&next| next <= until) {
                let mut fired = Vec::new();
                self.wheel.expire(&mut self.slots, next, usize::MAX, &mut fired);
                all.extend(fired.into_iter().map(|index| (next, index)));
            }
            let mut fired = Vec::new();
            self.wheel.expire(&mut self.slots, until, usize::MAX, &mut fired);
            assert!(fired.is_empty());
            all
        }
    }

    #[test]
    fn each_timer_fires_in_its_millisecond() {
        for start in [0, 1, 63, 64, 4095, 4096, 1_000_003, (1 << 36) - 70] {
            let mut bench = Bench::new(start);
            let delays = [1, 2, 62, 63, 64, 65, 127, 4095, 4096, 4097, 65_000, 300_000, 9_000_000];
            let mut expected: Vec<(u64, u32)> =
                delays.iter().map(|delay| (start + delay, bench.set(start + delay))).collect();
            expected.sort_unstable();
            let mut fired = bench.run(start + 10_000_000);
            fired.sort_unstable();
            assert_eq!(fired, expected, "from {start}");
            assert_eq!(bench.wheel.next_ms(), None);
        }
    }

    #[test]
    fn a_late_turn_fires_everything_that_is_due() {
        let mut bench = Bench::new(10);
        let early: Vec<u32> = [11, 100, 5000].map(|at| bench.set(at)).into();
        let late = bench.set(5001);
        let mut fired = Vec::new();
        bench.wheel.expire(&mut bench.slots, 5000, usize::MAX, &mut fired);
        fired.sort_unstable();
        assert_eq!(fired, early);
        assert_eq!(bench.run(6000), [(5001, late)]);
    }

    #[test]
    fn of_many_that_are_due_some_fire_at_once() {
        for late in [0, 1, 70, 5000] {
            let mut bench = Bench::new(7);
            let all: Vec<u32> = (0..100).map(|n| bench.set(100 + n % 3)).collect();
            let (mut fired, mut calls) = (Vec::new(), 0);
            while fired.len() < all.len() {
                let mut some = Vec::new();
                bench.wheel.expire(&mut bench.slots, 102 + late, 16, &mut some);
                assert!(!some.is_empty() && some.len() <= 16, "{}", some.len());
                assert_eq!(bench.wheel.next_ms().is_some(), fired.len() + some.len() < all.len());
                fired.extend(some);
                calls += 1;
            }
            assert!(calls <= 9, "each of three milliseconds has one call more: {calls}");
            fired.sort_unstable();
            assert_eq!(fired, all);
            let next = bench.set(110 + late);
            assert_eq!(bench.run(20_000), [(110 + late, next)], "the clock has caught up");
        }
    }

    #[test]
    fn a_deadline_beyond_the_rings_waits() {
        let mut bench = Bench::new(7);
        bench.set(u64::MAX - 1);
        let near = bench.set(1 << 38);
        assert_eq!(bench.run(1 << 40), [(1 << 38, near)]);
        assert!(bench.wheel.next_ms().is_some());
    }

    #[test]
    fn what_is_due_already_fires_at_once() {
        let mut bench = Bench::new(50);
        let (past, now) = (bench.set(3), bench.set(50));
        assert_eq!(bench.wheel.next_ms(), Some(50));
        let mut fired = Vec::new();
        bench.wheel.expire(&mut bench.slots, 50, usize::MAX, &mut fired);
        fired.sort_unstable();
        assert_eq!(fired, [past, now]);
    }

    #[test]
    fn cancelled_timers_do_not_fire() {
        let mut bench = Bench::new(0);
        let timers: Vec<u32> = (1..200).map(|n| bench.set(n % 7 * 40 + 1)).collect();
        let (gone, left): (Vec<u32>, Vec<u32>) = timers.iter().partition(|&index| index % 3 != 0);
        for &index in &gone {
            bench.wheel.remove(&mut bench.slots, index);
            bench.wheel.remove(&mut bench.slots, index);
        }
        let mut fired: Vec<u32> = bench.run(1000).into_iter().map(|(_, index)| index).collect();
        fired.sort_unstable();
        assert_eq!(fired, left);
    }
}
