//! `limit_conn_zone … sync`: the connections of a key on all servers.
//!
//! A server decides by its own count and the others' sum of the last round, which the shared state
//! process leaves in the zone. Counts have a lifetime on the engine and are repeated, so that those
//! of a server that is gone do not stay. A key stays in the zone while any server has connections
//! of it: otherwise each new connection of a client that keeps none here would be its first one,
//! about which nothing is known.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use fleet::limits::{ROUND_MAX, STEP, grouped};
use fleet::scripts::CONNECTIONS;
use fleet::{Answer, Call, Counter, Part, PartError, Round};
use shm::{Entry, Locked};

use super::conn::Count;
use super::{Shared, Zone};

/// Rounds in which each count is repeated once.
const REPEAT: u32 = 10;

/// The lifetime of a count, in rounds and in milliseconds at least.
const LIFETIME_ROUNDS: u64 = 30;
const LIFETIME_MS: u64 = 5_000;

/// A count that is sent.
struct Sent {
    entry: Entry,
    key: Vec<u8>,
    count: u64,
}

/// A zone that is shared.
pub(super) struct ConnPart {
    name: String,
    definition: String,
    shared: Rc<Shared<Count>>,
    /// Where the repetition goes on.
    next: Cell<u32>,
    flight: RefCell<Vec<Vec<Sent>>>,
    has_more: Cell<bool>,
}

impl ConnPart {
    pub fn new(zone: &Zone<Count>, shared: Rc<Shared<Count>>) -> ConnPart {
        ConnPart {
            name: zone.shown(),
            definition: format!("limit_conn {}", zone.key_shown()),
            shared,
            next: Cell::new(0),
            flight: RefCell::default(),
            has_more: Cell::new(false),
        }
    }

    /// The counts that have changed.
    fn changed(&self) -> Vec<Sent> {
        let Some(touched) = &self.shared.touched else { return Vec::new() };
        let mut all = Vec::new();
        let each = |t: &Locked<'_, Count>, entry, _| {
            let Count(count) = t.value(entry)?;
            Some(Sent { entry, key: t.bytes_of(entry)?, count })
        };
        let is_drained = touched.collect(&self.shared.table, ROUND_MAX, each, &mut all);
        self.has_more.set(!is_drained);
        all
    }

    /// Some of the counts that have not changed: the others' sums of them may have.
    fn repeated(&self, all: &mut Vec<Sent>) {
        let (mut n, used) = (self.next.get(), self.shared.table.lock().used());
        let mut left = used.div_ceil(REPEAT).min(ROUND_MAX as u32);
        while left > 0 {
            let t = self.shared.table.lock();
            for _ in 0..left.min(STEP as u32) {
                n = if n >= used { 0 } else { n };
                if let Some(entry) = t.nth(n)
                    && let (Some(Count(count)), Some(key)) = (t.value(entry), t.bytes_of(entry))
                {
                    all.push(Sent { entry, key, count });
                }
                (n, left) = (n + 1, left - 1);
            }
        }
        self.next.set(n);
    }

    fn call(round: &Round, keys: &[(Sent, Vec<u8>)]) -> Call {
        let lifetime_ms = round.interval_ms.saturating_mul(LIFETIME_ROUNDS).max(LIFETIME_MS);
        let mut args = vec![round.node.as_bytes().to_vec(), lifetime_ms.to_string().into_bytes()];
        args.extend(keys.iter().map(|(sent, _)| sent.count.to_string().into_bytes()));
        let keys = keys.iter().map(|(_, name)| name.clone()).collect();
        Call { script: &CONNECTIONS, keys, args }
    }

    /// Leaves the others' sum for workers. An entry goes when no server has connections of its key.
    fn put(&self, sent: &Sent, others: u64) {
        let Some(touched) = &self.shared.touched else { return };
        let mut t = self.shared.table.lock();
        match t.value(sent.entry) {
            Some(Count(0)) if others == 0 && touched.pending(sent.entry) == 0 => {
                t.remove(sent.entry);
            }
            Some(_) => touched.note(sent.entry, others),
            None => {}
        }
    }
}

impl Part for ConnPart {
    fn name(&self) -> &str {
        &self.name
    }

    fn definition(&self) -> &str {
        &self.definition
    }

    fn ask(&self, round: &Round, out: &mut Vec<Call>) {
        let mut all = self.changed();
        self.repeated(&mut all);
        round.status.add(Counter::Sent, all.len() as u64);
        let names = (round.prefix, 'n', &*self.name, &*self.definition);
        let mut flight = self.flight.borrow_mut();
        for keys in grouped(names, all, |sent| &sent.key) {
            out.push(Self::call(round, &keys));
            flight.push(keys.into_iter().map(|(sent, _)| sent).collect());
        }
    }

    fn answered(&self, round: &Round, answers: &[Answer]) -> Result<(), PartError> {
        let flight = self.flight.take();
        let mut foreign = 0;
        for (all, answer) in flight.iter().zip(answers) {
            let list = answer.list().filter(|list| list.len() == all.len());
            for (sent, answer) in all.iter().zip(list.ok_or(PartError::Malformed)?) {
                match answer {
                    Answer::Int(others) => self.put(sent, u64::try_from(*others).unwrap_or(0)),
                    _ => foreign += 1,
                }
            }
        }
        round.status.add(Counter::Foreign, foreign);
        if foreign == 0 { Ok(()) } else { Err(PartError::Foreign) }
    }

    fn unanswered(&self) {
        if let Some(touched) = &self.shared.touched {
            let _lock = self.shared.table.lock();
            for sent in self.flight.take().into_iter().flatten() {
                touched.add(sent.entry, 1);
            }
        }
        self.has_more.set(false);
    }

    fn joined(&self) {
        self.unanswered();
    }

    fn has_more(&self) -> bool {
        self.has_more.get()
    }
}

#[cfg(test)]
#[path = "conn_sync_tests.rs"]
mod tests;
