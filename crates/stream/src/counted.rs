//! Counts active sessions in a zone.

use std::rc::Rc;

use engine::Metrics;
use engine::metrics::{RowId, word};

/// An active session, counted in the zone of the server with which it started; uncounted when
/// dropped.
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
