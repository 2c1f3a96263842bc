//! Counters of spans, of all workers since the configuration was loaded.

use std::cell::Cell;
use std::io;

use base::json::Object;
use http::server::HttpMain;
use shm::Counters;

use crate::Otel;

/// The outcomes of spans that are counted.
#[derive(Clone, Copy, Debug)]
pub enum Count {
    /// Spans that the collector has taken.
    Exported,
    /// Spans that there was no room for.
    Dropped,
    /// Spans that were sent, and not taken.
    Failed,
}

/// The counters, and the line of this worker.
pub struct Counts {
    counters: Counters,
    slot: Cell<usize>,
}

impl Counts {
    /// Counters for the processes of so many slots.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn new(slots: usize) -> io::Result<Counts> {
        Ok(Counts { counters: Counters::new(slots)?, slot: Cell::new(0) })
    }

    /// In a worker: its slot.
    pub fn use_slot(&self, slot: usize) {
        self.slot.set(slot);
    }

    pub fn add(&self, count: Count, spans: usize) {
        self.counters.line(self.slot.get()).add(count as usize, spans as u64);
    }

    /// Of all workers.
    pub fn sum(&self, count: Count) -> u64 {
        self.counters.sum(count as usize)
    }
}

/// The spans exported, dropped and failed of all workers; `None`: nothing is traced.
pub fn sums(main: &HttpMain) -> Option<[u64; 3]> {
    let batches = main.confs.get::<Otel>()?.batches.as_ref()?;
    Some([Count::Exported, Count::Dropped, Count::Failed].map(|of| batches.counts.sum(of)))
}

/// The part of `stub_status json`.
pub fn status(main: &HttpMain, o: &mut Object<'_>) {
    if let Some([exported, dropped, failed]) = sums(main) {
        o.number("exported", exported);
        o.number("dropped", dropped);
        o.number("failed", failed);
    }
}
