//! Counters that all workers share: what `stub_status` shows, and the numbers of connections.

use std::cell::Cell;
use std::io;
use std::sync::atomic::Ordering;

use shm::{Counters, Zone};

/// One counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Field {
    /// Connections accepted.
    Accepted,
    /// Connections that got a task.
    Handled,
    /// Requests.
    Requests,
    /// Connections open now.
    Active,
    /// Connections whose request head is being read.
    Reading,
    /// Connections whose request is being answered.
    Writing,
    /// Connections without a request: new ones, and kept ones between two.
    Waiting,
}

/// What counts what is under way, and is void when a worker died.
pub const UNDER_WAY: [usize; 4] = [
    Field::Active as usize,
    Field::Reading as usize,
    Field::Writing as usize,
    Field::Waiting as usize,
];

/// The counters, made before the fork; each worker writes its own line.
pub struct Stats {
    counters: Counters,
    numbers: Zone,
    slot: Cell<usize>,
}

impl Stats {
    /// Counters for so many processes.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(slots: usize) -> io::Result<Stats> {
        let counters = Counters::new(slots.max(1))?;
        Ok(Stats { counters, numbers: Zone::anonymous(64)?, slot: Cell::new(0) })
    }

    /// Says which line this process writes; what a predecessor left under way there is cleared.
    pub fn use_slot(&self, slot: usize) {
        self.slot.set(slot);
        self.counters.clear(slot, &UNDER_WAY);
    }

    /// The line that this process writes: its slot among the master's processes.
    pub fn slot(&self) -> usize {
        self.slot.get()
    }

    /// Clears what a dead worker left under way.
    pub fn worker_died(&self, slot: usize) {
        self.counters.clear(slot, &UNDER_WAY);
    }

    /// Adds to this worker's counter.
    #[inline]
    pub fn add(&self, field: Field, n: u64) {
        self.counters.line(self.slot.get()).add(field as usize, n);
    }

    /// Takes from this worker's counter.
    #[inline]
    pub fn sub(&self, field: Field, n: u64) {
        self.counters.line(self.slot.get()).sub(field as usize, n);
    }

    /// The sum over all workers.
    pub fn sum(&self, field: Field) -> u64 {
        self.counters.sum(field as usize)
    }

    /// The next connection's number.
    pub fn next_connection(&self) -> u64 {
        match self.numbers.words().first() {
            Some(n) => n.fetch_add(1, Ordering::Relaxed) + 1,
            None => 0,
        }
    }
}
