//! `limit_req_zone … sync=strict`: each request asks the engine, which is the only place that
//! counts.
//!
//! ```text
//!  worker                                    shared state process
//!  Free ─ask()─▶ Asked ───────────────gather()──▶ Taken ─answer()─▶ Answered ─poll()─▶ Free
//!                  └─ gives up ─▶ Free              └─ gives up ─▶ Left ─answer()─▶ Free
//! ```
//!
//! Questions lie in places of shared memory. A worker looks for its answer each millisecond, until
//! its patience ends; these limits are for few requests, such as logins.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};
use shm::Zone;

use crate::call::{Answer, Call};
use crate::scripts::STRICT;

/// The most questions at a time.
const PLACES: usize = 1024;

/// Words of a place: a cache line.
const WORDS: usize = 8;
const STATE: usize = 0;
const ZONE: usize = 1;
const HASH: usize = 2;
const BURST: usize = 4;
const EXCESS: usize = 5;
const OWNER: usize = 6;

const FREE: u64 = 0;
const WRITTEN: u64 = 1;
const ASKED: u64 = 2;
const TAKEN: u64 = 3;
const LEFT: u64 = 4;
const PASSES: u64 = 5;
const OVER: u64 = 6;
const UNKNOWN: u64 = 7;

/// The questions of all workers.
#[derive(Debug)]
pub struct Questions {
    zone: Zone,
    bell: OwnedFd,
}

/// The outcome of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The request is counted, with so many thousandths in the bucket.
    Passes(i64),
    /// It is too many.
    Over(i64),
    /// The engine did not answer.
    Unknown,
}

/// A question that a worker waits for.
#[derive(Debug)]
pub struct Asked {
    place: usize,
}

/// A question that the process has taken.
#[derive(Clone, Debug)]
pub struct Taken {
    place: usize,
    zone: u64,
    hash: [u64; 2],
    burst: i64,
}

/// A zone whose limit is strict.
#[derive(Clone, Debug)]
pub struct StrictZone {
    /// Its name.
    pub name: String,
    /// Thousandths that leak each second.
    pub rate: i64,
}

impl StrictZone {
    /// The number by which questions name the zone: the same in all configurations that have it.
    pub fn number(&self) -> u64 {
        let StrictZone { name, rate } = self;
        word(&Sha256::digest(format!("{rate} {name}"))[..8])
    }
}

/// Eight bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

impl Questions {
    /// Memory and a bell, made before the fork.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Questions> {
        let zone = Zone::anonymous((PLACES + 1) * WORDS * 8)?;
        Ok(Questions { zone, bell: os::fd::eventfd()? })
    }

    /// Becomes readable when there are questions.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn word(&self, place: usize, at: usize) -> &AtomicU64 {
        &self.zone.words()[place * WORDS + at]
    }

    fn moves(&self, place: usize, from: u64, to: u64) -> bool {
        let (ok, fail) = (Ordering::AcqRel, Ordering::Acquire);
        self.word(place, STATE).compare_exchange(from, to, ok, fail).is_ok()
    }

    /// In the master: whether the configuration that runs has strict zones. If it has none, nobody
    /// answers the workers of the one before.
    pub fn set_answered(&self, is_answered: bool) {
        self.word(PLACES, STATE).store(u64::from(!is_answered), Ordering::Release);
    }

    /// Asks for a request of a key. `slot` is the worker's. `None` if all places are taken, or if
    /// nobody answers.
    pub fn ask(&self, zone: u64, key: &[u8], burst: i64, slot: usize) -> Option<Asked> {
        if self.word(PLACES, STATE).load(Ordering::Acquire) != 0 {
            return None;
        }
        let place = (0..PLACES)
            .map(|n| (n + slot * 7) % PLACES)
            .find(|place| self.moves(*place, FREE, WRITTEN))?;
        let put = |at, value| self.word(place, at).store(value, Ordering::Relaxed);
        let hash = Sha256::digest(key);
        for (n, half) in hash[..16].chunks_exact(8).enumerate() {
            put(HASH + n, word(half));
        }
        put(ZONE, zone);
        put(BURST, burst.cast_unsigned());
        put(OWNER, slot as u64);
        self.word(place, STATE).store(ASKED, Ordering::Release);
        os::fd::eventfd_notify(&self.bell);
        Some(Asked { place })
    }

    /// The answer, once it is there.
    pub fn poll(&self, asked: &Asked) -> Option<Outcome> {
        let state = self.word(asked.place, STATE).load(Ordering::Acquire);
        let excess = self.word(asked.place, EXCESS).load(Ordering::Relaxed).cast_signed();
        let outcome = match state {
            PASSES => Outcome::Passes(excess),
            OVER => Outcome::Over(excess),
            UNKNOWN => Outcome::Unknown,
            _ => return None,
        };
        self.word(asked.place, STATE).store(FREE, Ordering::Release);
        Some(outcome)
    }

    /// The worker waits no longer; the answer, if it has come just now.
    pub fn give_up(&self, asked: &Asked) -> Option<Outcome> {
        let is_left = self.moves(asked.place, ASKED, FREE) || self.moves(asked.place, TAKEN, LEFT);
        if is_left { None } else { self.poll(asked) }
    }

    /// In the process: takes all questions.
    pub fn gather(&self) -> Vec<Taken> {
        os::fd::eventfd_take(&self.bell);
        let mut all = Vec::new();
        for place in 0..PLACES {
            if self.moves(place, ASKED, TAKEN) {
                let get = |at| self.word(place, at).load(Ordering::Relaxed);
                all.push(Taken {
                    place,
                    zone: get(ZONE),
                    hash: [get(HASH), get(HASH + 1)],
                    burst: get(BURST).cast_signed(),
                });
            }
        }
        all
    }

    /// In the process: answers a question.
    pub fn answer(&self, taken: &Taken, outcome: Outcome) {
        let (state, excess) = match outcome {
            Outcome::Passes(excess) => (PASSES, excess),
            Outcome::Over(excess) => (OVER, excess),
            Outcome::Unknown => (UNKNOWN, 0),
        };
        self.word(taken.place, EXCESS).store(excess.cast_unsigned(), Ordering::Relaxed);
        if !self.moves(taken.place, TAKEN, state) {
            self.moves(taken.place, LEFT, FREE);
        }
    }

    /// In the master: a process that answers is dead. What it had taken is asked again; the request
    /// may be counted twice.
    pub(crate) fn answerer_died(&self) {
        for place in 0..PLACES {
            self.moves(place, LEFT, FREE);
            self.moves(place, TAKEN, ASKED);
        }
        os::fd::eventfd_notify(&self.bell);
    }

    /// In the master: a worker is dead, and reads no answers.
    pub fn died(&self, slot: usize) {
        for place in 0..PLACES {
            if self.word(place, OWNER).load(Ordering::Relaxed) != slot as u64 {
                continue;
            }
            for state in [ASKED, PASSES, OVER, UNKNOWN] {
                self.moves(place, state, FREE);
            }
            self.moves(place, TAKEN, LEFT);
        }
    }
}

/// The call for a question.
pub fn call(prefix: &str, zone: &StrictZone, taken: &Taken) -> Call {
    let StrictZone { name, rate } = zone;
    let [a, b] = taken.hash;
    let key = format!("{prefix}:{{s:{name}:{rate}:{a:016x}{b:016x}}}").into_bytes();
    let args = [*rate, taken.burst].map(|n| n.to_string().into_bytes()).to_vec();
    Call { script: &STRICT, keys: vec![key], args }
}

/// The outcome that an answer means.
pub fn outcome(answer: Option<&Answer>) -> Outcome {
    let number = |n: &Answer| n.int().filter(|n| (0..=i64::MAX / 2).contains(n));
    match answer.and_then(Answer::list) {
        Some([Answer::Int(1), excess]) => number(excess).map_or(Outcome::Unknown, Outcome::Passes),
        Some([Answer::Int(0), excess]) => number(excess).map_or(Outcome::Unknown, Outcome::Over),
        _ => Outcome::Unknown,
    }
}

impl Taken {
    /// The number of its zone.
    pub fn zone(&self) -> u64 {
        self.zone
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::model::{Engine, Random};

    #[test]
    fn questions_are_answered_once() {
        let questions = Questions::new().unwrap();
        let asked = questions.ask(3, b"key", 2000, 5).unwrap();
        assert_eq!(questions.poll(&asked), None);
        let taken = questions.gather();
        assert_eq!((taken.len(), taken[0].zone(), taken[0].burst), (1, 3, 2000));
        assert!(questions.gather().is_empty());
        // A process that is started again takes it over.
        questions.answerer_died();
        assert_eq!(questions.gather().len(), 1);
        questions.answer(&taken[0], Outcome::Over(7));
        assert_eq!(questions.poll(&asked), Some(Outcome::Over(7)));
        assert_eq!(questions.poll(&asked), None);
    }

    #[test]
    fn places_come_back_whoever_gives_up() {
        let questions = Questions::new().unwrap();
        for _ in 0..3 {
            let all: Vec<_> =
                (0..PLACES).map(|n| questions.ask(0, &[n as u8], 0, n % 3).unwrap()).collect();
            assert!(questions.ask(0, b"more", 0, 0).is_none());
            assert_eq!(questions.give_up(&all[0]), None);
            let taken = questions.gather();
            assert_eq!(taken.len(), PLACES - 1);
            assert_eq!(questions.give_up(&all[1]), None);
            let second = taken.iter().find(|taken| taken.place == all[2].place).unwrap();
            questions.answer(second, Outcome::Passes(1));
            assert_eq!(questions.give_up(&all[2]), Some(Outcome::Passes(1)));
            taken.iter().for_each(|taken| questions.answer(taken, Outcome::Unknown));
            (0..3).for_each(|slot| questions.died(slot));
        }
        assert!(questions.ask(0, b"more", 0, 0).is_some());
    }

    /// A reload makes another `Fleet`. Workers of the one before go on asking.
    #[test]
    fn questions_outlive_a_configuration() {
        let lasting = crate::LastingQuestions::default();
        let zone = |name: &str, rate| StrictZone { name: name.to_owned(), rate };
        let fleet = || crate::Fleet::new(None, Rc::default(), lasting.clone());
        let (before, after) = (fleet(), fleet());
        let (number, questions) = before.add_strict(zone("login", 80)).unwrap();
        let (other, _) = after.add_strict(zone("login", 90)).unwrap();
        let (same, _) = after.add_strict(zone("login", 80)).unwrap();
        assert!(number == same && number != other);
        questions.ask(number, b"key", 0, 1).unwrap();
        let (zones, questions) = after.strict().unwrap();
        let taken = questions.gather();
        assert_eq!(taken.len(), 1);
        assert_eq!(zones.iter().filter(|zone| zone.number() == taken[0].zone()).count(), 1);
        let without = fleet();
        assert!(without.strict().is_none(), "a configuration without such zones has no answers");
        without.begins();
        assert!(questions.ask(number, b"key", 0, 1).is_none(), "nobody would answer");
        after.begins();
        assert!(questions.ask(number, b"key", 0, 1).is_some());
    }

    #[test]
    fn what_makes_no_sense_is_no_answer() {
        assert_eq!(outcome(None), Outcome::Unknown);
        for answer in [Answer::Nil, Answer::Int(1), Answer::List(vec![Answer::Int(1), Answer::Nil])]
        {
            assert_eq!(outcome(Some(&answer)), Outcome::Unknown);
        }
    }

    /// Three servers ask for the same key, at 1 request a minute, for an hour of simulated time in
    /// which calls and answers are lost: no two requests pass within a minute.
    #[test]
    fn no_second_request_passes_in_an_hour() {
        let zone = StrictZone { name: "login".to_owned(), rate: 1000 / 60 };
        for seed in 0..20 {
            let (mut engine, mut random) = (Engine::default(), Random::new(seed));
            let questions = Questions::new().unwrap();
            let (mut last, mut passed) = (None, 0);
            let mut now = 1_700_000_000_000_i64;
            let end = now + 3_600_000;
            while now < end {
                now += 1 + random.below(4_000).cast_signed();
                let slot = random.below(3) as usize;
                let asked = questions.ask(0, b"user", 0, slot).unwrap();
                for taken in questions.gather() {
                    if random.below(10) == 0 {
                        // The call is lost.
                        questions.answer(&taken, Outcome::Unknown);
                        continue;
                    }
                    now += random.below(30).cast_signed();
                    let answer = engine.run(&call("p", &zone, &taken), now);
                    let is_lost = random.below(10) == 0;
                    let answer = Some(&answer).filter(|_| !is_lost);
                    questions.answer(&taken, outcome(answer));
                }
                if let Some(Outcome::Passes(_)) = questions.poll(&asked) {
                    assert!(last.is_none_or(|last| now - last >= 59_000), "seed {seed}");
                    (last, passed) = (Some(now), passed + 1);
                }
            }
            assert!((40..=61).contains(&passed), "seed {seed}: {passed}");
        }
    }
}
