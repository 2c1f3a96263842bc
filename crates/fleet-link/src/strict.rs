//! Answers the questions of workers about strict limits.

use std::io::ErrorKind;
use std::rc::Rc;

use event::{Deadline, Fd};
use fleet::strict::{Outcome, Questions, StrictZone, Taken, call, outcome};

use crate::caller::Caller;

/// Answers questions for ever. While the engine is away, they are answered with "unknown" at once,
/// because no worker is to wait for it; and it is tried also without a question, so that the first
/// one after its return is answered.
pub(crate) async fn run(zones: Vec<StrictZone>, questions: Rc<Questions>, mut caller: Caller) {
    let prefix = caller.prefix();
    let Ok(bell) = os::fd::dup(questions.bell()) else { return };
    let bell = Fd::new(bell);
    let retry_ms = caller.retry_ms();
    let (mut is_away, mut retry_at) = (false, 0);
    let zone_of = |taken: &Taken| zones.iter().find(|zone| zone.number() == taken.zone());
    loop {
        if is_away {
            let is_due = base::time::exact_ms() >= retry_at;
            if is_due {
                retry_at = base::time::exact_ms() + retry_ms;
            }
            is_away = !match is_due {
                true => caller.attempt(0).await.unwrap_or(false),
                false => caller.has_arrived(),
            };
        }
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
            let until = if is_away { Deadline::in_ms(retry_ms) } else { Deadline::NEVER };
            match bell.readable(until).await {
                Err(e) if e.kind() != ErrorKind::TimedOut => return,
                _ => continue,
            }
        }
        let mut answers = Vec::new();
        if !is_away && (caller.is_connected() || caller.connect().await.is_ok()) {
            let calls = taken.iter().filter_map(|one| Some(call(&prefix, zone_of(one)?, one)));
            answers = caller.exchange(calls.collect()).await.unwrap_or_default();
        }
        if answers.is_empty() {
            is_away = true;
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
