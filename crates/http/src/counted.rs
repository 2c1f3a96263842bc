//! Requests that are counted as under way in a zone.

use std::rc::Rc;

use engine::Metrics;
use engine::metrics::{RowId, word};

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
