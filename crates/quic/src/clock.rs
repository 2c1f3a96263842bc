//! The loop's clock as the instants that quinn-proto counts in.

use std::cell::Cell;
use std::time::{Duration, Instant};

use event::Deadline;

thread_local! {
    /// An instant, and the loop's time then, in microseconds: instants have no beginning that one
    /// could name.
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

/// The time now.
pub(crate) fn now() -> Instant {
    let (origin, us) = origin();
    origin + Duration::from_micros(base::time::exact_us().saturating_sub(us))
}

/// The first millisecond of the loop's that is not before an instant.
pub(crate) fn deadline(at: Instant) -> Deadline {
    let (origin, us) = origin();
    let at_us = us + at.saturating_duration_since(origin).as_micros() as u64;
    Deadline::at(at_us.div_ceil(1000))
}
