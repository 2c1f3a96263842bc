//! The engine's clock as a server sees it: the difference to its own monotonic clock.
//!
//! Writes are ordered by the engine's time. A server says when a write was made, and not how long
//! ago, because a slow engine may run a call seconds after it was sent.

/// A measured difference.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The engine's time less ours, milliseconds.
    offset_ms: i64,
    /// The difference may be wrong by half of this, milliseconds.
    trip_ms: u64,
    /// When it was measured.
    at_ms: u64,
}

/// Clocks drift apart by less than one millisecond in so many.
const DRIFT: u64 = 1_000;

/// The engine's clock.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct EngineClock(Option<Sample>);

impl EngineClock {
    /// The engine's time was `engine_ms` at some moment between two of ours.
    pub fn heard(&mut self, sent_ms: u64, heard_ms: u64, engine_ms: i64) {
        let trip_ms = heard_ms.saturating_sub(sent_ms);
        let middle = sent_ms.saturating_add(trip_ms / 2).cast_signed();
        let offset_ms = engine_ms.saturating_sub(middle);
        let new = Sample { offset_ms, trip_ms, at_ms: heard_ms };
        if let Some(old) = &self.0 {
            let doubt_ms = old.trip_ms.saturating_add(heard_ms.saturating_sub(old.at_ms) / DRIFT);
            // Of two that agree, the one that took less time is better. Where they do not, it is
            // another engine, or its clock was set.
            let agree = old.offset_ms.abs_diff(offset_ms) <= doubt_ms.saturating_add(trip_ms);
            if agree && trip_ms > doubt_ms {
                return;
            }
        }
        self.0 = Some(new);
    }

    /// The difference to our monotonic clock, once it is known.
    pub fn offset_ms(&self) -> Option<i64> {
        self.0.map(|sample| sample.offset_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_answer_counts_until_the_clock_is_set() {
        let mut clock = EngineClock::default();
        assert_eq!(clock.offset_ms(), None);
        clock.heard(1_000, 1_010, 501_005);
        assert_eq!(clock.offset_ms(), Some(500_000));
        // A slow answer agrees, and is less exact.
        clock.heard(2_000, 3_000, 502_990);
        assert_eq!(clock.offset_ms(), Some(500_000));
        clock.heard(4_000, 4_002, 504_002);
        assert_eq!(clock.offset_ms(), Some(500_001));
        // A clock that drifts is followed, one that was set as well.
        clock.heard(100_000, 100_050, 600_040);
        assert_eq!(clock.offset_ms(), Some(500_015));
        clock.heard(200_000, 200_004, 100_002);
        assert_eq!(clock.offset_ms(), Some(-100_000));
        clock.heard(0, u64::MAX, i64::MIN);
    }
}
