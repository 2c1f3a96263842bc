//! `limit_req_zone … sync=strict`: the engine of `shared_state` counts, and a request waits for its
//! answer. For logins and the like: few requests, of which none may be too many.

use std::rc::Rc;

use base::log::Level;
use base::time::now_ms;
use conf::table::Contexts;
use conf::{ConfError, Word, value};
use engine::{Cx, Session};
use fleet::strict::{Outcome, Questions, StrictZone};
use fleet::{Counter, Status};

use super::{Bucket, Decision, ReqLimiter, ReqOutcome, ReqVerdict, Zone};

/// What happens to a request that the engine does not answer for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum OnError {
    /// The limit holds for this server alone.
    #[default]
    Local,
    /// It goes on.
    Open,
    /// It is refused.
    Deny,
}

/// The longest wait for the engine where none is given, milliseconds.
const WAIT_MS: u64 = 20;

/// The parameters of a strict zone.
#[derive(Default)]
pub(super) struct Terms {
    strict: Option<Word>,
    on_error: Option<(Word, OnError)>,
    wait: Option<(Word, u64)>,
}

/// A zone that the engine counts.
pub(crate) struct Strict {
    /// The number by which questions name the zone.
    number: u64,
    questions: Rc<Questions>,
    on_error: OnError,
    wait_ms: u64,
    status: Rc<Status>,
}

impl Terms {
    /// Reads a parameter; false if it is another one.
    pub fn read(&mut self, word: &Word) -> Result<bool, ConfError> {
        let invalid =
            |what: &str| ConfError::at(word, format!("invalid {what} \"{}\"", word.lossy()));
        let text = word.bytes();
        if text == b"sync=strict" {
            self.strict = Some(word.clone());
        } else if let Some(how) = text.strip_prefix(b"on_error=") {
            let how = match how {
                b"local" => OnError::Local,
                b"open" => OnError::Open,
                b"deny" => OnError::Deny,
                _ => return Err(invalid("parameter")),
            };
            self.on_error = Some((word.clone(), how));
        } else if let Some(time) = text.strip_prefix(b"wait=") {
            let ms = value::parse_msec(time).filter(|ms| (1..=10_000).contains(ms));
            self.wait = Some((word.clone(), ms.ok_or_else(|| invalid("wait"))?));
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Makes a zone strict, if it is to be.
    pub fn set<S: Session>(self, cx: &Cx<S>, zone: &Zone<Bucket>) -> Result<(), ConfError> {
        let Some(word) = &self.strict else {
            let other = self.on_error.map(|(word, _)| word).or(self.wait.map(|(word, _)| word));
            return match other {
                None => Ok(()),
                Some(word) => {
                    let m = format!("\"{}\" needs \"sync=strict\"", word.lossy());
                    Err(ConfError::at(&word, m))
                }
            };
        };
        cx.env.fleet.check(word)?;
        if !S::BLOCK.intersects(Contexts::HTTP) {
            return Err(ConfError::at(word, "\"sync=strict\" is for zones in \"http\" alone"));
        }
        if zone.synced.get().is_some() {
            return Err(ConfError::at(word, "\"sync\" and \"sync=strict\" exclude each other"));
        }
        let strict = StrictZone { name: zone.shown(), rate: zone.rate.get() };
        let (number, questions) = cx.env.fleet.add_strict(strict).map_err(|e| {
            let e = base::log::os_error(&e);
            ConfError::at(word, format!("memory for strict limits cannot be mapped {e}"))
        })?;
        let on_error = self.on_error.map_or(OnError::default(), |(_, how)| how);
        let wait_ms = self.wait.map_or(WAIT_MS, |(_, ms)| ms);
        let status = cx.env.fleet.status().clone();
        let _ = zone.strict.set(Strict { number, questions, on_error, wait_ms, status });
        Ok(())
    }
}

impl Strict {
    /// Asks for a request of a key, and waits.
    async fn ask(&self, key: &[u8], burst: i64, slot: usize) -> Outcome {
        let Some(asked) = self.questions.ask(self.number, key, burst, slot) else {
            return Outcome::Unknown;
        };
        self.status.add(Counter::Waits, 1);
        let asked = Waits { questions: &self.questions, asked: Some(asked) };
        let until = now_ms() + self.wait_ms;
        while now_ms() < until {
            event::sleep(1).await;
            if let Some(outcome) = asked.poll() {
                return outcome;
            }
        }
        asked.give_up().unwrap_or(Outcome::Unknown)
    }
}

/// A question, given up if its request goes.
struct Waits<'a> {
    questions: &'a Questions,
    asked: Option<fleet::strict::Asked>,
}

impl Waits<'_> {
    fn poll(&self) -> Option<Outcome> {
        self.questions.poll(self.asked.as_ref()?)
    }

    fn give_up(mut self) -> Option<Outcome> {
        self.questions.give_up(&self.asked.take()?)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.questions.give_up(&asked);
        }
    }
}

impl ReqLimiter {
    /// Whether a request has to wait for the engine.
    pub fn is_strict(&self) -> bool {
        self.limits.iter().any(|limit| limit.zone.strict.get().is_some())
    }

    /// As [`ReqLimiter::admit`], where zones are strict.
    pub async fn admit_strictly<S: Session>(&self, s: &mut S) -> ReqVerdict {
        if s.shared::<ReqOutcome>().0.get().is_some() {
            return ReqVerdict::Pass;
        }
        let mut key = self.scratch.take();
        let decision = self.decide_strictly(s, &mut key).await;
        self.scratch.give(key);
        self.conclude(s, decision)
    }

    async fn decide_strictly<S: Session>(&self, s: &mut S, key: &mut Vec<u8>) -> Decision {
        let (mut local, mut passed) = (Vec::new(), None::<(u64, i64, usize)>);
        for (i, limit) in self.limits.iter().enumerate() {
            let Some(strict) = limit.zone.strict.get() else { continue };
            if !limit.zone.key(s, key) {
                continue;
            }
            let outcome = strict.ask(key, limit.burst, s.stats().slot()).await;
            s.debug(format_args!("limit_req[{i}]: {outcome:?}"));
            match (outcome, strict.on_error) {
                (Outcome::Over(excess), _) => {
                    return Decision::Refuse { excess: Some(excess), limit: i };
                }
                (Outcome::Passes(excess), _) => {
                    let delay_ms = limit.delay_ms(excess);
                    if passed.as_ref().is_none_or(|(ms, ..)| *ms < delay_ms) {
                        passed = Some((delay_ms, excess, i));
                    }
                }
                (Outcome::Unknown, OnError::Local) => local.push(i),
                (Outcome::Unknown, OnError::Open) => passed = passed.or(Some((0, 0, i))),
                (Outcome::Unknown, OnError::Deny) => {
                    let zone = limit.zone.shown();
                    let m = "limiting requests: the shared state does not answer for zone";
                    s.log(Level::Error, format_args!("{m} \"{zone}\""));
                    return Decision::Refuse { excess: None, limit: i };
                }
            }
        }
        // The other zones decide as always. A request that they refuse counts in the strict ones.
        match (self.decide(s, key, &local), passed) {
            (Decision::Uncounted, Some((delay_ms, excess, limit))) => {
                Decision::Pass { delay_ms, excess, limit }
            }
            (Decision::Pass { delay_ms: other, .. }, Some((delay_ms, excess, limit)))
                if delay_ms > other =>
            {
                Decision::Pass { delay_ms, excess, limit }
            }
            (decision, _) => decision,
        }
    }
}
