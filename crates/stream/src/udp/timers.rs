//! The timers of UDP sessions: eight bytes each.
//!
//! The deadline of a session moves with each datagram, its timer does not: a timer that fires too
//! early is set again. A session that ends leaves its timer behind; those are swept when there are
//! many.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The low bits of a timer are the session's index in the table, the others its time in
/// milliseconds, which overflows after 26 years of uptime.
const PLACE_BITS: u32 = u64::BITS - base::time::MONOTONIC_BITS;

/// Slack: dead timers are swept once there are more timers than twice the live sessions plus this.
const OVER_MAX: usize = 1024;

/// The timers of a table, soonest first.
#[derive(Default)]
pub(super) struct Timers(BinaryHeap<Reverse<u64>>);

/// The maximum number of sessions in a table.
pub(super) const PLACES_MAX: usize = 1 << PLACE_BITS;

fn parts(timer: u64) -> (u64, u32) {
    (timer >> PLACE_BITS, (timer & (PLACES_MAX as u64 - 1)) as u32)
}

impl Timers {
    /// Sets a timer.
    pub fn begin(&mut self, at_ms: u64, place: u32) {
        // Capped, because the time has fewer bits.
        let at_ms = at_ms.min(u64::MAX >> PLACE_BITS);
        self.0.push(Reverse(at_ms << PLACE_BITS | u64::from(place)));
    }

    /// The time of the next timer, in milliseconds.
    pub fn next_ms(&self) -> Option<u64> {
        self.0.peek().map(|Reverse(timer)| parts(*timer).0)
    }

    /// Takes a timer that is due: its time, and the session's index.
    pub fn take(&mut self, now_ms: u64) -> Option<(u64, u32)> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.0.pop().map(|Reverse(timer)| parts(timer))
    }

    /// Whether most timers belong to no session, given `live` sessions.
    pub(crate) fn want_sweep(&self, live: usize) -> bool {
        self.0.len() > 2 * live + OVER_MAX
    }

    /// Removes all timers for which `is_live`, given time and index, is false.
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
