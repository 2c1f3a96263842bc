//! `sticky learn … sync`: a session that one server has learnt is known to all. Of two servers of
//! an upstream, the one that was learnt later stays.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::time::unix_ms;
use fleet::scripts::{PULL, PUSH};
use fleet::{Answer, Call, Counter, Part, PartError, Pull, PulledRecord, Pushed, Round};
use shm::{Entry, Locked};

use super::sessions::{Known, Shared};

/// The most sessions of one push and of one pull.
const SESSIONS_MAX: usize = 500;

/// About the most bytes of a pull.
const BYTES_MAX: usize = 512 << 10;

/// The length of the hash that is a session's key.
const KEY: usize = 16;

/// A session that was pushed.
struct Sent {
    entry: Entry,
    key: [u8; KEY],
}

/// The sessions of a zone.
pub(super) struct SessionsPart {
    name: String,
    shared: Rc<Shared>,
    timeout_ms: u64,
    version: Cell<u64>,
    epoch: RefCell<Vec<u8>>,
    flight: RefCell<Vec<Sent>>,
    has_more: Cell<bool>,
}

impl SessionsPart {
    pub fn new(name: &str, shared: Rc<Shared>, timeout_ms: u64) -> SessionsPart {
        SessionsPart {
            name: format!("sticky/{name}"),
            shared,
            timeout_ms,
            version: Cell::new(0),
            epoch: RefCell::default(),
            flight: RefCell::default(),
            has_more: Cell::new(false),
        }
    }

    fn keys(&self, round: &Round) -> Vec<Vec<u8>> {
        let key = |what| format!("{}:{{k:{}}}:{what}", round.prefix, self.name).into_bytes();
        ["v", "d", "z", "e", "x"].map(key).to_vec()
    }

    fn push(&self, round: &Round) -> Option<Call> {
        let touched = self.shared.touched.as_ref()?;
        // None before the engine's time is known.
        let now_there = round.engine_ms(round.now_ms)?;
        let mut call = Call { script: &PUSH, keys: self.keys(round), args: Vec::new() };
        // Sessions end by their lifetimes alone: there are no tombstones.
        call.args.extend([round.node.as_bytes().to_vec(), b"0".to_vec()]);
        let now = unix_ms();
        let mut flight = self.flight.borrow_mut();
        let each = |t: &Locked<'_, Known>, entry, _| {
            let (known, key) = (t.value(entry)?, t.key_of::<KEY>(entry)?);
            let age_ms = now.saturating_sub(known.last_ms);
            let left_ms = self.timeout_ms.checked_sub(age_ms).filter(|ms| *ms > 0)?;
            let number = |n: u64| n.to_string().into_bytes();
            call.args.push(key.to_vec());
            let used_ms = now_there.saturating_sub(age_ms);
            call.args.extend([number(used_ms), number(left_ms), b"s".to_vec(), known.to_bytes()]);
            Some(Sent { entry, key })
        };
        let is_drained = touched.collect(&self.shared.table, SESSIONS_MAX, each, &mut flight);
        round.status.add(Counter::Sent, flight.len() as u64);
        self.has_more.set(!is_drained);
        (!flight.is_empty()).then_some(call)
    }

    /// Takes over a session, unless it was used here later.
    fn apply(&self, round: &Round, record: &PulledRecord) {
        let (Some(value), Some(left_ms)) = (&record.value, record.left_ms) else { return };
        if left_ms == 0 || record.key.len() != KEY {
            return;
        }
        let age_ms = self.timeout_ms.saturating_sub(left_ms);
        let Some(known) = Known::from_bytes(value, unix_ms().saturating_sub(age_ms)) else {
            return round.status.add(Counter::Malformed, 1);
        };
        let key = self.shared.table.key(&record.key);
        let mut t = self.shared.table.lock();
        if let Some(entry) = t.find(key) {
            if t.value(entry).is_some_and(|own| own.last_ms < known.last_ms) {
                t.set(entry, known);
                round.status.add(Counter::Received, 1);
            }
            return;
        }
        let mut is_there = t.insert(key, known).is_ok();
        if !is_there && let Some(oldest) = t.oldest() {
            t.remove(oldest);
            is_there = t.insert(key, known).is_ok();
        }
        let counter = if is_there { Counter::Received } else { Counter::Dropped };
        round.status.add(counter, 1);
    }

    /// The engine may lack sessions: all are sent again.
    fn send_all(&self) {
        let Some(touched) = &self.shared.touched else { return };
        let mut n = 0;
        loop {
            let t = self.shared.table.lock();
            for _ in 0..1024 {
                if n >= t.used() {
                    return;
                }
                if let Some(entry) = t.nth(n) {
                    touched.add(entry, 1);
                }
                n += 1;
            }
        }
    }

    fn end_pull(&self, round: &Round, pull: &Pull) {
        let is_first = self.version.get() == 0 && self.epoch.borrow().is_empty();
        let is_other = *self.epoch.borrow() != pull.epoch && !is_first;
        self.epoch.borrow_mut().clone_from(&pull.epoch);
        if is_other || pull.latest < self.version.get() {
            self.version.set(0);
            self.send_all();
            return self.has_more.set(true);
        }
        round.status.add(Counter::Malformed, pull.malformed);
        pull.records.iter().for_each(|record| self.apply(round, record));
        self.version.set(pull.reached.unwrap_or(pull.latest).max(self.version.get()));
        if pull.reached.is_some_and(|reached| reached < pull.latest) {
            self.has_more.set(true);
        }
    }
}

impl Part for SessionsPart {
    fn name(&self) -> &str {
        &self.name
    }

    fn definition(&self) -> &str {
        "sticky"
    }

    fn ask(&self, round: &Round, out: &mut Vec<Call>) {
        out.extend(self.push(round));
        let args = [self.version.get(), SESSIONS_MAX as u64, BYTES_MAX as u64];
        let args = args.map(|n| n.to_string().into_bytes()).to_vec();
        out.push(Call { script: &PULL, keys: self.keys(round), args });
    }

    fn answered(&self, round: &Round, answers: &[Answer]) -> Result<(), PartError> {
        if answers.iter().any(|answer| matches!(answer, Answer::Error(_))) {
            self.unanswered();
            return Err(PartError::Foreign);
        }
        let (pull, push) = answers.split_last().ok_or(PartError::Malformed)?;
        let flight = self.flight.take();
        if let Some(push) = push.first() {
            let keys = flight.iter().map(|sent| &sent.key[..]);
            for outcome in fleet::pushed(push, keys).ok_or(PartError::Malformed)? {
                if let Pushed::Lost(record) = outcome {
                    self.apply(round, &record);
                }
            }
        }
        self.end_pull(round, &fleet::pull(pull).ok_or(PartError::Malformed)?);
        Ok(())
    }

    fn unanswered(&self) {
        if let Some(touched) = &self.shared.touched {
            let _lock = self.shared.table.lock();
            for sent in self.flight.take() {
                touched.add(sent.entry, 1);
            }
        }
        self.has_more.set(false);
    }

    fn joined(&self) {
        self.unanswered();
        self.version.set(0);
        self.epoch.borrow_mut().clear();
        self.send_all();
    }

    fn has_more(&self) -> bool {
        self.has_more.get()
    }
}

#[cfg(test)]
#[path = "sessions_part_tests.rs"]
mod tests;
