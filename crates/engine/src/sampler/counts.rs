//! Counters of zones and servers as the sampler needs them: their growth, and the point of a step.

use crate::history::{HEAT, HEAT_BOUNDS_US, PeerState, Point};
use crate::metrics::{Reading, word};

/// Counters that only grow, at a moment or over a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// See [`Point`].
    pub done: u64,
    /// As there.
    pub errors_4xx: u64,
    /// As there.
    pub errors_5xx: u64,
    /// As there.
    pub failed: u64,
    /// How often failures took the server of an upstream out.
    pub unavailable: u64,
    /// The histogram of times.
    pub times: [u64; word::BUCKETS],
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            done: 0,
            errors_4xx: 0,
            errors_5xx: 0,
            failed: 0,
            unavailable: 0,
            times: [0; word::BUCKETS],
        }
    }
}

impl Counts {
    /// The counters of a zone, or of a server of an upstream.
    pub fn of(reading: &Reading, is_peer: bool) -> Counts {
        let failed = if is_peer { word::FAILS } else { word::LOST };
        let mut times = [0; word::BUCKETS];
        times.iter_mut().zip(reading.buckets()).for_each(|(to, n)| *to = n);
        Counts {
            done: reading.get(word::DONE),
            errors_4xx: reading.class(4),
            errors_5xx: reading.class(5),
            failed: reading.get(failed),
            unavailable: if is_peer { reading.get(word::UNAVAILABLE) } else { 0 },
            times,
        }
    }

    /// The growth since `before`. Counters that went down were reset in between, and have grown
    /// from 0.
    pub fn since(&self, before: &Counts) -> Counts {
        let is_reset = self.done < before.done
            || self.failed < before.failed
            || self.times.iter().zip(&before.times).any(|(now, before)| now < before);
        if is_reset {
            return self.clone();
        }
        let mut times = self.times;
        times.iter_mut().zip(&before.times).for_each(|(now, before)| *now -= before);
        Counts {
            done: self.done - before.done,
            errors_4xx: self.errors_4xx.saturating_sub(before.errors_4xx),
            errors_5xx: self.errors_5xx.saturating_sub(before.errors_5xx),
            failed: self.failed - before.failed,
            unavailable: self.unavailable.saturating_sub(before.unavailable),
            times,
        }
    }

    /// Adds the growth of a part.
    pub fn add(&mut self, part: &Counts) {
        self.done += part.done;
        self.errors_4xx += part.errors_4xx;
        self.errors_5xx += part.errors_5xx;
        self.failed += part.failed;
        self.times.iter_mut().zip(&part.times).for_each(|(sum, n)| *sum += n);
    }

    /// The point of a step in which the counters grew by this.
    pub fn point(&self, active: u64, state: PeerState) -> Point {
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let mut heat = [0; HEAT];
        for (i, n) in self.times.iter().enumerate() {
            let us = word::BOUNDS_US.get(i).copied().unwrap_or(u64::MAX);
            let bucket = HEAT_BOUNDS_US.partition_point(|bound| *bound < us);
            heat[bucket] = small(u64::from(heat[bucket]) + n);
        }
        let any = self.times.iter().any(|n| *n > 0);
        let p99_us = match word::quantile_us(&self.times, 0.99) {
            Some(us) => small(us.max(1)),
            None if any => u32::MAX,
            None => 0,
        };
        Point {
            done: small(self.done),
            errors_4xx: small(self.errors_4xx),
            errors_5xx: small(self.errors_5xx),
            failed: small(self.failed),
            active: small(active),
            state,
            p99_us,
            heat,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_and_resets() {
        let at = |done, errors_5xx| {
            let mut counts = Counts { done, errors_5xx, ..Counts::default() };
            counts.times[word::bucket(2_000)] = done;
            counts
        };
        assert_eq!(at(9, 3).since(&at(4, 1)), at(5, 2));
        assert_eq!(at(2, 1).since(&at(4, 1)), at(2, 1));
    }

    #[test]
    fn heat_is_the_histogram_in_fewer_buckets() {
        assert!(HEAT_BOUNDS_US.iter().all(|bound| word::BOUNDS_US.contains(bound)));
        let mut counts = Counts::default();
        for us in [20, 300, 301, 3_000_000, 3_000_001, 70_000_000] {
            counts.times[word::bucket(us)] += 1;
        }
        let point = counts.point(0, PeerState::Up);
        assert_eq!(point.heat, [2, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(point.p99_us, u32::MAX);
        assert_eq!(Counts::default().point(0, PeerState::Up).p99_us, 0);
    }
}
