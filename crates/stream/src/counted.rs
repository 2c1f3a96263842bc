//! Sessions that are counted as under way in a zone.

use std::rc::Rc;

use engine::Metrics;
use engine::metrics::{RowId, word};

/// A session counted as under way in the zone of the server that it began with.
pub(crate) struct Counted {
    pub metrics: Rc<Metrics>,
    pub row: RowId,
    pub is_over: bool,
}

impl Counted {
    pub fn leave(&mut self) {
        if !self.is_over
            && let Some(counters) = self.metrics.counters(self.row)
        {
            counters.sub(word::PROCESSING, 1);
        }
        self.is_over = true;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(counters) = self.metrics.counters(self.row)
        {
            counters.add(word::LOST, 1);
        }
        self.leave();
    }
}
