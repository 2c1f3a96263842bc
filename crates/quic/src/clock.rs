//! Converts between the event loop's clock (microseconds) and the `Instant`s of quinn-proto.

use std::cell::Cell;
use std::time::{Duration, Instant};

use event::Deadline;

thread_local! {
    /// An instant, and the loop's time at that instant, in microseconds. Needed because an
    /// `Instant` has no epoch from which it could be computed.
    static ORIGIN: Cell<Option<(Instant, u64)>> = const { Cell::new(None) };
}

fn origin() -> (Instant, u64) {
    match ORIGIN.get() {
        Some(origin) => origin,
        None => {
            let now = (Instant::now(), base::time::exact_us());
            ORIGIN.set(Some(now));
            now
        }
    }
}

/// The loop's current time as an `Instant`.
pub(crate) fn now() -> Instant {
    let (origin, us) = origin();
    origin + Duration::from_micros(base::time::exact_us().saturating_sub(us))
}

/// The first whole millisecond of the loop's clock that is not before `at`.
pub(crate) fn deadline(at: Instant) -> Deadline {
    let (origin, us) = origin();
    let after = at.saturating_duration_since(origin);
    // Rounds up, because a timer that fires too early would find nothing due and be set again at
    // once.
    let at_us = us + after.as_nanos().div_ceil(1000) as u64;
    Deadline::at(at_us.div_ceil(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_not_before_their_instants() {
        base::time::pin(5_000, 0);
        let at = now();
        for (ns, ms) in
            [(0, 5_000), (1, 5_001), (999_999, 5_001), (1_000_000, 5_001), (1_000_001, 5_002)]
        {
            assert_eq!(deadline(at + Duration::from_nanos(ns)), Deadline::at(ms), "{ns}");
        }
        base::time::unpin();
    }
}
