//! The beginning of requests: at their heads, or behind the frames that came with these.

use http_wire::h2::read::Fault;

use super::{Job, Parties, Receiver, Taken};

impl<S: FnMut(Job) -> bool, O> Parties<'_, S, O> {
    /// Runs a request.
    pub(super) fn begin(&mut self, job: Job) {
        self.has_waiting |= (self.start)(job);
    }
}

impl Receiver {
    /// Begins requests that wait for the frames behind their heads, as many of them as there is
    /// time for before other connections have their turns. Those of a client that floods, or did
    /// lately, begin when all frames were looked at. Where the connection ends for a fault, all of
    /// them do, and are logged.
    pub(super) fn begin_open<S: FnMut(Job) -> bool, O: Fn() -> bool>(
        &mut self,
        done: Result<Taken, Fault>,
        parties: &mut Parties<'_, S, O>,
    ) -> Result<Taken, Fault> {
        if self.is_suspect() && done == Ok(Taken::Part) {
            return done;
        }
        while let Some(job) = self.rules.open.pop_front() {
            parties.begin(job);
            if done.is_ok() && !self.rules.open.is_empty() && (parties.is_over)() {
                return Ok(Taken::Part);
            }
        }
        done
    }
}
