//! Counters of the functions of scripts that directives name: calls, failures and processor time,
//! of all workers, since the configuration was loaded. Whoever shows them finds them among the
//! parts of the metrics ([`super::Metrics::parts`]).

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use shm::Counters;

use super::Metrics;

/// The fields of a worker's line.
const CALLS: usize = 0;
const FAILURES: usize = 1;
const USEC: usize = 2;

/// The counters of a function.
pub struct FunctionCounts {
    /// `http` or `stream`.
    pub engine: &'static str,
    /// The directive that names it.
    pub directive: &'static str,
    /// Its name.
    pub function: String,
    counters: Counters,
    slot: Cell<usize>,
}

/// The sums of a function over all workers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FunctionSums {
    /// Calls.
    pub calls: u64,
    /// Of these, failed: an exception, a rejection, or a limit.
    pub failures: u64,
    /// Processor time, microseconds.
    pub usec: u64,
}

impl FunctionCounts {
    /// The counters of a function of `http` or `stream`, which directives of one name share, for so
    /// many slots of processes.
    ///
    /// # Errors
    /// Memory cannot be mapped.
    pub fn of(
        metrics: &Metrics,
        slots: usize,
        (engine, directive): (&'static str, &'static str),
        function: &str,
    ) -> io::Result<Rc<FunctionCounts>> {
        let known = metrics
            .parts::<FunctionCounts>()
            .into_iter()
            .find(|of| of.engine == engine && of.directive == directive && of.function == function);
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Rc::new(FunctionCounts {
            engine,
            directive,
            function: function.to_owned(),
            counters: Counters::new(slots)?,
            slot: Cell::new(0),
        });
        metrics.add_part(made.clone());
        Ok(made)
    }

    /// Called in a worker: sets its slot.
    pub fn use_slot(&self, slot: usize) {
        self.slot.set(slot);
    }

    /// A call has begun.
    pub fn called(&self) {
        self.counters.line(self.slot.get()).add(CALLS, 1);
    }

    /// A call has failed.
    pub fn failed(&self) {
        self.counters.line(self.slot.get()).add(FAILURES, 1);
    }

    /// A call has taken processor time.
    pub fn took(&self, usec: u64) {
        self.counters.line(self.slot.get()).add(USEC, usec);
    }

    /// The sums over all workers.
    pub fn sums(&self) -> FunctionSums {
        let [calls, failures, usec] = [CALLS, FAILURES, USEC].map(|of| self.counters.sum(of));
        FunctionSums { calls, failures, usec }
    }
}
