//! Counters of spans, shared by all workers, since the configuration was loaded.

use std::cell::Cell;
use std::io;

use base::json::Object;
use http::server::HttpMain;
use shm::Counters;

use crate::Otel;

/// The outcome of a span.
#[derive(Clone, Copy, Debug)]
pub enum Count {
    /// Accepted by the collector.
    Exported,
    /// Dropped, because all batches were full.
    Dropped,
    /// Sent, but not accepted.
    Failed,
}

/// The counters of all workers, and the slot of this one.
pub struct Counts {
    counters: Counters,
    slot: Cell<usize>,
}

impl Counts {
    /// Allocates counters for `slots` processes in shared memory.
    ///
    /// # Errors
    /// The memory cannot be mapped.
    pub fn new(slots: usize) -> io::Result<Counts> {
        Ok(Counts { counters: Counters::new(slots)?, slot: Cell::new(0) })
    }

    /// Called in a worker: sets its slot.
    pub fn use_slot(&self, slot: usize) {
        self.slot.set(slot);
    }

    /// Adds `spans` to a counter of this worker.
    pub fn add(&self, count: Count, spans: usize) {
        self.counters.line(self.slot.get()).add(count as usize, spans as u64);
    }

    /// The sum over all workers.
    pub fn sum(&self, count: Count) -> u64 {
        self.counters.sum(count as usize)
    }
}

/// The numbers of exported, dropped and failed spans of all workers; `None` if tracing is off.
pub fn sums(main: &HttpMain) -> Option<[u64; 3]> {
    let batches = main.confs.get::<Otel>()?.batches.as_ref()?;
    Some([Count::Exported, Count::Dropped, Count::Failed].map(|of| batches.counts.sum(of)))
}

/// The same of log records; `None` if no log goes to a collector.
pub fn log_sums(main: &HttpMain) -> Option<[u64; 3]> {
    let otel = main.confs.get::<Otel>()?;
    let logs = otel.logs.as_ref().filter(|_| otel.outbox.as_ref().is_some_and(|o| o.is_used()))?;
    Some([Count::Exported, Count::Dropped, Count::Failed].map(|of| logs.counts.sum(of)))
}

/// Writes the counters for `stub_status json`.
pub fn status(main: &HttpMain, o: &mut Object<'_>) {
    if let Some([exported, dropped, failed]) = sums(main) {
        o.number("exported", exported);
        o.number("dropped", dropped);
        o.number("failed", failed);
    }
}
