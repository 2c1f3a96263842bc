//! Answers the questions of workers about strict limits.

use std::rc::Rc;

use event::{Deadline, Fd};
use fleet::strict::{Outcome, Questions, StrictZone, call, outcome};

use crate::caller::Caller;

/// After a failed attempt, questions are answered with "unknown" for this time, milliseconds: no
/// worker is to wait for an engine that is away.
const AWAY_MS: u64 = 250;

/// Answers questions for ever.
pub(crate) async fn run(zones: Vec<StrictZone>, questions: Rc<Questions>, mut caller: Caller) {
    let prefix = caller.prefix();
    let Ok(bell) = os::fd::dup(questions.bell()) else { return };
    let bell = Fd::new(bell);
    let (mut is_first, mut away_until) = (true, 0);
    loop {
        let taken = questions.gather(std::mem::take(&mut is_first));
        if taken.is_empty() {
            if bell.readable(Deadline::NEVER).await.is_err() {
                return;
            }
            continue;
        }
        let mut answers = Vec::new();
        if base::time::exact_ms() >= away_until
            && (caller.is_connected() || caller.connect().await.is_ok())
        {
            let known = taken
                .iter()
                .filter_map(|taken| zones.get(taken.zone()).map(|zone| call(&prefix, zone, taken)));
            let calls: Vec<_> = known.collect();
            // A zone that is not known is of another configuration: nothing is answered right.
            if calls.len() == taken.len() {
                answers = caller.exchange(calls).await.unwrap_or_default();
            }
        }
        if answers.is_empty() {
            away_until = base::time::exact_ms() + AWAY_MS;
            caller.disconnect();
        }
        for (n, taken) in taken.iter().enumerate() {
            let outcome = outcome(answers.get(n));
            if outcome == Outcome::Unknown {
                // A replica, or an engine without memory: the next attempt looks for another one.
                caller.disconnect();
            }
            questions.answer(taken, outcome);
        }
    }
}
