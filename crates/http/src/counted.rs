//! The counting of a request as under way in a zone, and its times so far.

use std::rc::Rc;

use engine::Metrics;
use engine::metrics::{RowId, word};

/// The times of a request, microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseTimes {
    /// From its first byte until its head was there.
    pub head_us: u64,
    /// Waits of the phases before the content.
    pub access_us: u64,
    /// From its first byte until its response could be sent; `u64::MAX` before.
    pub ready_us: u64,
}

impl Default for PhaseTimes {
    fn default() -> PhaseTimes {
        PhaseTimes { head_us: 0, access_us: 0, ready_us: u64::MAX }
    }
}

/// A request counted as under way. One that is dropped before its end, as after a panic, is lost.
pub(crate) struct Counted {
    pub metrics: Rc<Metrics>,
    pub row: RowId,
    pub is_over: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(counters) = self.metrics.counters(self.row)
        {
            counters.sub(word::PROCESSING, 1);
            counters.add(word::LOST, 1);
        }
    }
}
