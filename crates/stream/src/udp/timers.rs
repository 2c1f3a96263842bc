//! The timers of sessions over UDP: eight bytes each.
//!
//! A session's time moves with each datagram, its timer does not: one that fires too early begins
//! anew. A session that ends leaves its timer behind; those are swept out when they are many.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The bits of a timer that name a session's place; the others are its time, in milliseconds. The
/// table has fewer places, and a machine's clock takes 34 years for the rest.
const PLACE_BITS: u32 = 24;

/// Timers of sessions that are over are swept out when there are so many beside the others.
const OVER_MAX: usize = 1024;

/// The timers of a table.
#[derive(Default)]
pub(super) struct Timers(BinaryHeap<Reverse<u64>>);

/// The most places that timers can name.
pub(super) const PLACES_MAX: usize = 1 << PLACE_BITS;

fn parts(timer: u64) -> (u64, u32) {
    (timer >> PLACE_BITS, (timer & (PLACES_MAX as u64 - 1)) as u32)
}

impl Timers {
    /// Begins a timer.
    pub fn begin(&mut self, at_ms: u64, place: u32) {
        // A time beyond all ends is one.
        let at_ms = at_ms.min(u64::MAX >> PLACE_BITS);
        self.0.push(Reverse(at_ms << PLACE_BITS | u64::from(place)));
    }

    /// The time of the next one.
    pub fn next_ms(&self) -> Option<u64> {
        self.0.peek().map(|Reverse(timer)| parts(*timer).0)
    }

    /// Takes a timer that is over: its time, and the place.
    pub fn take(&mut self, now_ms: u64) -> Option<(u64, u32)> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.0.pop().map(|Reverse(timer)| parts(timer))
    }

    /// Whether most belong to no session: there are `live` ones.
    pub fn want_sweep(&self, live: usize) -> bool {
        self.0.len() > 2 * live + OVER_MAX
    }

    /// Keeps those that `is_live` knows by time and place.
    pub fn sweep(&mut self, is_live: impl Fn(u64, u32) -> bool) {
        self.0.retain(|Reverse(timer)| {
            let (at_ms, place) = parts(*timer);
            is_live(at_ms, place)
        });
        self.0.shrink_to(2 * self.0.len() + OVER_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_fire_in_their_order() {
        let mut timers = Timers::default();
        for (at, place) in [(30, 1), (10, 2), (20, 3), (u64::MAX, 4), (10, 5)] {
            timers.begin(at, place);
        }
        assert_eq!(timers.next_ms(), Some(10));
        assert_eq!((timers.take(9), timers.take(10)), (None, Some((10, 2))));
        assert_eq!([timers.take(25), timers.take(25)], [Some((10, 5)), Some((20, 3))]);
        assert_eq!(timers.take(25), None);
        timers.sweep(|at, place| (at, place) != (30, 1));
        assert_eq!(timers.take(u64::MAX).map(|(_, place)| place), Some(4));
        assert_eq!(timers.next_ms(), None);
    }

    #[test]
    fn those_of_sessions_that_are_over_are_swept_out() {
        let mut timers = Timers::default();
        for i in 0..100_000 {
            timers.begin(1_000_000 + i, 7);
            if timers.want_sweep(1) {
                timers.sweep(|at, _| at == 1_000_000 + i);
            }
        }
        assert!(timers.0.len() <= OVER_MAX + 3);
    }
}
