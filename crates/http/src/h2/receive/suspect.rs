//! Requests of a client that floods, or did lately.

use proto::h2::read::Fault;

use super::{Job, Parties, Receiver, Taken};

impl Receiver {
    /// Begins the requests that wait when all frames were looked at, and as many of them as there
    /// is time for before other connections have their turns. Where the connection ends for a
    /// fault, all of them do, and are logged.
    pub(super) fn begin_some<S: FnMut(Job), O: Fn() -> bool>(
        &mut self,
        done: Result<Taken, Fault>,
        parties: &mut Parties<'_, S, O>,
    ) -> Result<Taken, Fault> {
        if done == Ok(Taken::Part) {
            return done;
        }
        let goes_on = done.is_ok();
        let mut jobs = std::mem::take(&mut self.rules.open).into_iter();
        for job in jobs.by_ref() {
            (parties.start)(job);
            if goes_on && (parties.is_over)() {
                break;
            }
        }
        self.rules.open = jobs.collect();
        done.map(|all| if self.rules.open.is_empty() { all } else { Taken::Part })
    }
}
