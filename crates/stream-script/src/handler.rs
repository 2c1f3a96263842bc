//! `js_access` and `js_preread`: functions that decide about sessions.
//!
//! A function has decided when it said so (`s.done()` and its siblings), and neither a callback nor
//! anything that it waits for is left. A callback for the client's bytes is called with all bytes
//! that have come so far: once at the beginning, and then after more have come, or after something
//! that the script has waited for, as in nginx.

use std::rc::Rc;

use ::script::Outcome;
use base::log::Level;
use engine::Client;
use event::{Deadline, Either};
use script_modules::{Function, share};
use stream::StreamSession;
use stream::module::{Deciding, Verdict, WaitingHandler, Way};
use stream::phases::{client_ended, preread_deadline, receive_more, status};

use crate::script::{Script, UNDECIDED};

/// A function that a phase calls.
pub(crate) struct Handler {
    function: Function,
    /// The phase reads the client's bytes.
    reads: bool,
}

impl Handler {
    /// A handler for the access phase.
    pub fn access(function: &Function) -> Handler {
        Handler { function: function.clone(), reads: false }
    }

    /// A handler for the preread phase.
    pub fn preread(function: &Function) -> Handler {
        Handler { function: function.clone(), reads: true }
    }

    /// The code that the function decides by.
    async fn decide(&self, s: &mut StreamSession) -> Result<i64, u16> {
        let failed = status::INTERNAL;
        share::time().await;
        let script = Script::of(s).map_err(|_| failed)?.ok_or(failed)?;
        script.code.set(UNDECIDED);
        let called = script.call(s, &self.function).map_err(|_| failed)?;
        let (until, mut leaves) = (preread_deadline(s), None);
        let mut has_all = false;
        loop {
            if script.form(Way::Up).is_some() {
                share::time().await;
                let bytes = s.preread.filled().to_vec();
                script.event(s, Way::Up, bytes, false).map_err(|_| failed)?;
            }
            let (listens, waits) = (script.is_listening(), script.is_waiting());
            let reads = self.reads && script.form(Way::Up).is_some();
            match (reads, waits) {
                (false, false) if listens => {
                    let m = "waits for bytes that its phase does not read";
                    return Err(self.failed(s, m));
                }
                (false, false) => break,
                (true, false) if has_all => return Err(status::OK),
                (true, false) => receive_more(s, until).await?,
                (true, true) if !has_all => {
                    let came = event::race(receive_more(s, until), script.job.ops.next()).await;
                    match came {
                        Either::First(Ok(())) => {}
                        // What it has sent may be enough for what the script decides later.
                        Either::First(Err(status::OK)) => {
                            has_all = true;
                            leaves = Some(preread_deadline(s));
                            self.go_on(s, &script, &mut leaves).await?;
                        }
                        Either::First(Err(status)) => return Err(status),
                        Either::Second(next) => script.go_on(s, next).map_err(|_| failed)?,
                    }
                }
                (_, true) => self.go_on(s, &script, &mut leaves).await?,
            }
        }
        if script.code.get() == UNDECIDED {
            if let Outcome::Pending(call) = called
                && !script.has_ended(s, call).map_err(|_| failed)?
            {
                return Err(self.failed(s, "returned a promise that is never settled"));
            }
            return Err(self.failed(s, "has not decided"));
        }
        Ok(script.code.get())
    }

    /// Lets the script go on with what it waits for. A client that sends no more has some time
    /// left, until `leaves`, because it may wait for an answer.
    async fn go_on(
        &self,
        s: &mut StreamSession,
        script: &Rc<Script>,
        leaves: &mut Option<Deadline>,
    ) -> Result<(), u16> {
        let next = script.job.ops.next();
        let came = match *leaves {
            None => event::race(next, client_ended(s)).await,
            Some(until) => event::race(next, event::sleep_until(until)).await,
        };
        match (came, *leaves) {
            (Either::First(next), _) => script.go_on(s, next).map_err(|_| status::INTERNAL),
            (Either::Second(()), None) => {
                *leaves = Some(preread_deadline(s));
                Ok(())
            }
            (Either::Second(()), Some(_)) => {
                let m = format_args!("client closed connection while a script waited");
                s.log(Level::Info, m);
                Err(status::OK)
            }
        }
    }

    fn failed(&self, s: &StreamSession, what: &str) -> u16 {
        let (directive, name) = (self.function.counts.directive, self.function.lossy());
        s.log(Level::Error, format_args!("{directive} \"{name}\" {what}"));
        status::INTERNAL
    }
}

impl WaitingHandler for Handler {
    fn run<'a>(&'a self, s: &'a mut StreamSession) -> Deciding<'a> {
        Box::pin(async move {
            match self.decide(s).await {
                Ok(code) => verdict(code),
                Err(status) => Verdict::Status(status),
            }
        })
    }
}

/// `s.decline()`: the next handler of the phase decides.
const DECLINED: i64 = -5;

/// What the code of `s.done()` means for the phase.
fn verdict(code: i64) -> Verdict {
    match (code, u16::try_from(code)) {
        (0, _) => Verdict::Done,
        (DECLINED, _) => Verdict::Next,
        (_, Ok(status)) => Verdict::Status(status),
        (_, Err(_)) => Verdict::Status(status::INTERNAL),
    }
}

#[cfg(test)]
mod tests {
    use super::{Verdict, verdict};

    #[test]
    fn codes_are_verdicts() {
        for (code, expected) in [
            (0, Verdict::Done),
            (-5, Verdict::Next),
            (403, Verdict::Status(403)),
            (503, Verdict::Status(503)),
            (-1, Verdict::Status(500)),
            (-6, Verdict::Status(500)),
        ] {
            assert_eq!(verdict(code), expected, "{code}");
        }
    }
}
