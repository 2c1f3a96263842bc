//! Answers the questions of workers about strict limits.

use std::rc::Rc;

use event::{Deadline, Fd};
use fleet::strict::{Outcome, Questions, StrictZone, Taken, call, outcome};

use crate::caller::Caller;

/// After a failed attempt, questions are answered with "unknown" for this time, milliseconds: no
/// worker is to wait for an engine that is away.
const AWAY_MS: u64 = 250;

/// Answers questions for ever.
pub(crate) async fn run(zones: Vec<StrictZone>, questions: Rc<Questions>, mut caller: Caller) {
    let prefix = caller.prefix();
    let Ok(bell) = os::fd::dup(questions.bell()) else { return };
    let bell = Fd::new(bell);
    let mut away_until = 0;
    let zone_of = |taken: &Taken| zones.iter().find(|zone| zone.number() == taken.zone());
    loop {
        let mut taken = questions.gather();
        taken.retain(|taken| {
            let is_known = zone_of(taken).is_some();
            if !is_known {
                // A worker of the configuration before asks for a zone that is no more.
                questions.answer(taken, Outcome::Unknown);
            }
            is_known
        });
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
            let calls = taken.iter().filter_map(|one| Some(call(&prefix, zone_of(one)?, one)));
            answers = caller.exchange(calls.collect()).await.unwrap_or_default();
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
