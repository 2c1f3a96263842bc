//! `keyval_zone … sync`: a table that several servers share; the later write wins.
//!
//! Each entry has the number of the change that made it, and whether other servers have heard of
//! it. The shared state process walks the changes since the last round, newest first, and pushes
//! them with their time. A pair that was taken out stays as a tombstone until the engine knows.
//! The engine gives each write a version; the process pulls what is above the version it has.
//!
//! With each new connection the process pulls everything. A pair that the engine does not have is
//! pushed as an old one then: the engine may have been emptied, or a replica without the last
//! writes may have taken over.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use fleet::scripts::{PULL, PUSH};
use fleet::{Answer, Call, Counter, Part, PartError, Pull, PulledRecord, Pushed, Round};
use shm::Entry;

use crate::store::{DIRTY, HASH, Meta, OLD, Pair, Store, TOMBSTONE, read};
use crate::zone::Zone;

/// Entries looked at under one hold of the lock.
const STEP: u32 = 1024;

/// The most pairs, and about the most bytes, of one push and of one pull.
const PAIRS_MAX: usize = 256;
const BYTES_MAX: usize = 512 << 10;

/// How long the engine keeps tombstones. A server that was cut off for longer takes pairs that the
/// engine does not have for removed ones.
const TOMBSTONE_MS: u64 = 24 * 3_600_000;

/// All entries are walked again after this time, in case a process died while it changed the order
/// of entries.
const WALK_ALL_MS: u64 = 60_000;

impl Store {
    /// Appends the entries that other servers have not heard of, among those changed after the
    /// change of that number. Returns the number of the latest change.
    fn dirty_since(&self, floor: u64, out: &mut VecDeque<Entry>) -> u64 {
        let (mut latest, mut last) = (None, None);
        loop {
            let t = self.lock();
            let latest = *latest.get_or_insert(self.version());
            // If the last one is gone, some entries are seen twice.
            let mut next = match last.filter(|entry| t.value(*entry).is_some()) {
                Some(entry) => t.older(entry),
                None => t.newest(),
            };
            for _ in 0..STEP {
                let Some((entry, meta)) =
                    next.and_then(|entry| Some((entry, self.meta(&t, entry)?)))
                else {
                    return latest;
                };
                // An entry without a number is of a worker that shares nothing: the one before this
                // configuration.
                if meta.number() != 0 && meta.number() <= floor {
                    return latest;
                }
                if meta.has(DIRTY) {
                    out.push_back(entry);
                }
                last = Some(entry);
                next = t.older(entry);
            }
        }
    }

    /// A pair that other servers have not heard of.
    fn dirty(&self, entry: Entry) -> Option<(Pair, Meta)> {
        let t = self.lock();
        let meta = self.meta(&t, entry).filter(|meta| meta.has(DIRTY))?;
        Some((read(&t, entry)?, meta))
    }

    /// The engine has stored a change: others will hear of it.
    fn settle(&self, entry: Entry, sent: Meta) {
        let mut t = self.lock();
        if self.meta(&t, entry).is_none_or(|meta| meta.change != sent.change) {
            return;
        }
        if sent.has(TOMBSTONE) {
            if let Some(pair) = read(&t, entry) {
                self.take_out(&mut t, entry, &pair.key);
            }
        } else {
            self.set_meta(&mut t, entry, Meta { change: sent.number(), ..sent });
        }
    }

    /// Takes over a record of the engine. `sent` is the change that it has won against. A change
    /// that other servers have not heard of stays: the engine decides about it.
    fn apply(&self, record: &PulledRecord, sent: Option<u64>, evicts: bool) -> Applied {
        let Some(form) = self.form(&record.key) else { return Applied::Refused };
        let (now_ms, mut t) = (base::time::unix_ms(), self.lock());
        let old = self.slot(&t, &form);
        if let Some((_, _, meta)) = &old
            && meta.has(DIRTY)
            && Some(meta.change) != sent
        {
            return Applied::Same;
        }
        let left_ms = record.left_ms;
        let Some(value) = record.value.as_ref().filter(|_| left_ms != Some(0)) else {
            let Some((entry, pair, _)) = old else { return Applied::Same };
            self.take_out(&mut t, entry, &pair.key);
            self.changed();
            return Applied::Changed;
        };
        let expires_ms = left_ms.map_or(0, |ms| now_ms.saturating_add(ms));
        if let Some((_, pair, meta)) = &old
            && pair.value == *value
            && !meta.has(DIRTY)
            && (expires_ms == 0) == (pair.expires_ms == 0)
            && expires_ms.abs_diff(pair.expires_ms) < SAME_MS
        {
            // It is our own, or was pulled before.
            return Applied::Same;
        }
        if let Some((entry, pair, _)) = &old {
            self.take_out(&mut t, *entry, &pair.key);
        }
        let pair = Pair { key: record.key.clone(), value: value.clone(), expires_ms };
        let bytes = self.bytes(&form, &pair);
        let meta = Meta { expires_ms, change: self.changed(), changed_ms: base::time::now_ms() };
        if bytes.len() > shm::KEY_MAX || !self.table.fits(bytes.len()) {
            return Applied::Refused;
        }
        match self.make_room(&mut t, evicts, (&form, &bytes, meta)) {
            true => Applied::Changed,
            false => Applied::Refused,
        }
    }

    /// Every pair that the engine did not return goes, if it is `over`, or is pushed as an old one.
    /// Pairs that were changed after the change of that number are left alone.
    fn reconcile(&self, seen: &HashSet<[u8; HASH]>, until: u64, over: bool) {
        let mut n = 0;
        loop {
            let mut t = self.lock();
            let used = t.used();
            for _ in 0..STEP {
                if n >= used {
                    return;
                }
                let entry = t.nth(n);
                n += 1;
                let Some((entry, meta)) = entry.and_then(|e| Some((e, self.meta(&t, e)?))) else {
                    continue;
                };
                if meta.has(DIRTY) || meta.number() > until {
                    continue;
                }
                let Some(pair) = read(&t, entry) else { continue };
                let known = self.form(&pair.key).is_none_or(|f| seen.contains(&self.hash(&f)));
                if known {
                    continue;
                }
                self.take_out(&mut t, entry, &pair.key);
                let change = self.changed() | DIRTY | OLD;
                if !over && let Some(form) = self.form(&pair.key) {
                    let meta = Meta { change, ..meta };
                    self.insert(&mut t, &form, &self.bytes(&form, &pair), meta);
                }
            }
        }
    }
}

/// Times that differ by less are the same: they travelled.
const SAME_MS: u64 = 2_000;

/// The outcome of taking over a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Applied {
    Changed,
    Same,
    /// There is no room, or the key is none here.
    Refused,
}

/// A change that was pushed.
struct Sent {
    entry: Entry,
    meta: Meta,
    key: Vec<u8>,
}

/// A pull of everything.
struct Resync {
    /// The hashes of the keys that the engine returned.
    seen: HashSet<[u8; HASH]>,
    /// The latest change when it began.
    until: u64,
    /// Nothing was heard for so long that tombstones are gone: if the engine has kept its data,
    /// pairs that it does not have were removed.
    over: bool,
}

/// A zone that is shared.
pub(crate) struct TablePart {
    zone: Rc<Zone>,
    name: String,
    definition: String,
    /// Changes up to this number are in `todo`, or others have heard of them.
    floor: Cell<u64>,
    walked_ms: Cell<u64>,
    todo: RefCell<VecDeque<Entry>>,
    flight: RefCell<Vec<Sent>>,
    /// The version up to which everything was pulled.
    version: Cell<u64>,
    epoch: RefCell<Vec<u8>>,
    /// The epoch of the last pull that left nothing. With another one, the engine lost its data.
    complete: RefCell<Vec<u8>>,
    resync: RefCell<Option<Resync>>,
    /// The last round that left nothing to pull, milliseconds of the monotonic clock.
    answered_ms: Cell<Option<u64>>,
    has_more: Cell<bool>,
    dropped: Cell<u64>,
}

impl TablePart {
    pub fn new(zone: Rc<Zone>, is_stream: bool) -> TablePart {
        let shown = base::log::lossy(&zone.name).into_owned();
        let engine = if is_stream { "stream/" } else { "" };
        let dropped = Cell::new(zone.store().dropped());
        let definition = format!("keyval {:?}", zone.store().kind);
        TablePart {
            zone,
            name: format!("{engine}{shown}"),
            definition,
            floor: Cell::new(0),
            walked_ms: Cell::new(0),
            todo: RefCell::default(),
            flight: RefCell::default(),
            version: Cell::new(0),
            epoch: RefCell::default(),
            complete: RefCell::default(),
            resync: RefCell::default(),
            answered_ms: Cell::new(None),
            has_more: Cell::new(false),
            dropped,
        }
    }

    fn store(&self) -> &Store {
        self.zone.store()
    }

    fn keys(&self, round: &Round) -> Vec<Vec<u8>> {
        let key = |what| format!("{}:{{k:{}}}:{what}", round.prefix, self.name).into_bytes();
        // The order that the scripts name: version, records, index by version, epoch, by expiry.
        ["v", "d", "z", "e", "x"].map(key).to_vec()
    }

    /// Finds the changes since the last round.
    fn walk(&self, now_ms: u64) {
        if now_ms.saturating_sub(self.walked_ms.get()) >= WALK_ALL_MS {
            self.walked_ms.set(now_ms);
            self.floor.set(0);
            self.todo.borrow_mut().clear();
        }
        if self.store().version() != self.floor.get() {
            let latest = self.store().dirty_since(self.floor.get(), &mut self.todo.borrow_mut());
            self.floor.set(latest);
        }
    }

    /// The changes to send; none before the engine's time is known.
    fn push(&self, round: &Round) -> Option<Call> {
        round.engine_ms(round.now_ms)?;
        let mut call = Call { script: &PUSH, keys: self.keys(round), args: Vec::new() };
        call.args.push(round.node.as_bytes().to_vec());
        call.args.push(TOMBSTONE_MS.to_string().into_bytes());
        let (mut todo, mut flight) = (self.todo.borrow_mut(), self.flight.borrow_mut());
        let (unix_ms, mut bytes) = (base::time::unix_ms(), 0);
        while flight.len() < PAIRS_MAX && bytes < BYTES_MAX {
            let Some(entry) = todo.pop_front() else { break };
            let Some((pair, meta)) = self.store().dirty(entry) else { continue };
            let left_ms = match pair.expires_ms {
                0 => 0,
                at if at <= unix_ms => continue,
                at => at - unix_ms,
            };
            let kind: &[u8] = match meta {
                meta if meta.has(TOMBSTONE) => b"t",
                meta if meta.has(OLD) => b"o",
                _ => b"s",
            };
            let changed_ms = round.engine_ms(meta.changed_ms).unwrap_or(0);
            bytes += pair.key.len() + pair.value.len();
            let number = |n: u64| n.to_string().into_bytes();
            call.args.push(pair.key.clone());
            call.args.extend([number(changed_ms), number(left_ms), kind.to_vec(), pair.value]);
            flight.push(Sent { entry, meta, key: pair.key });
        }
        round.status.add(Counter::Sent, flight.len() as u64);
        (!flight.is_empty()).then_some(call)
    }

    fn begin_resync(&self, now_ms: u64) {
        let gap_ms = self.answered_ms.get().map_or(0, |ms| now_ms.saturating_sub(ms));
        let (seen, until) = (HashSet::new(), self.store().version());
        let over = gap_ms >= TOMBSTONE_MS;
        *self.resync.borrow_mut() = Some(Resync { seen, until, over });
        self.version.set(0);
    }

    fn end_push(&self, round: &Round, answer: &Answer) -> Result<bool, PartError> {
        let flight = self.flight.take();
        let keys = flight.iter().map(|sent| &sent.key[..]);
        let Some(outcomes) = fleet::pushed(answer, keys) else {
            self.todo.borrow_mut().extend(flight.iter().map(|sent| sent.entry));
            return Err(PartError::Malformed);
        };
        let (mut is_changed, mut malformed) = (false, 0);
        for (sent, outcome) in flight.iter().zip(outcomes) {
            match outcome {
                Pushed::Stored => self.store().settle(sent.entry, sent.meta),
                Pushed::Lost(record) => {
                    is_changed |= self.apply(round, &record, Some(sent.meta.change));
                }
                Pushed::Malformed => {
                    malformed += 1;
                    self.store().settle(sent.entry, sent.meta);
                }
            }
        }
        round.status.add(Counter::Malformed, malformed);
        Ok(is_changed)
    }

    fn apply(&self, round: &Round, record: &PulledRecord, sent: Option<u64>) -> bool {
        let applied = self.store().apply(record, sent, self.zone.evicts());
        match applied {
            Applied::Refused => round.status.add(Counter::Dropped, 1),
            Applied::Changed => round.status.add(Counter::Received, 1),
            Applied::Same => {}
        }
        applied == Applied::Changed
    }

    fn end_pull(&self, round: &Round, pull: &Pull) -> bool {
        let is_first = self.version.get() == 0 && self.epoch.borrow().is_empty();
        let is_other = *self.epoch.borrow() != pull.epoch && !is_first;
        self.epoch.borrow_mut().clone_from(&pull.epoch);
        if is_other || pull.latest < self.version.get() {
            // The engine was emptied, or is one that lacks the last writes.
            self.begin_resync(round.now_ms);
            self.has_more.set(true);
            return false;
        }
        round.status.add(Counter::Malformed, pull.malformed);
        let mut is_changed = false;
        for record in &pull.records {
            if let Some(resync) = &mut *self.resync.borrow_mut()
                && let Some(form) = self.store().form(&record.key)
            {
                resync.seen.insert(self.store().hash(&form));
            }
            is_changed |= self.apply(round, record, None);
        }
        let reached = pull.reached.unwrap_or(pull.latest);
        self.version.set(reached.max(self.version.get()));
        if pull.reached.is_some_and(|reached| reached < pull.latest) {
            self.has_more.set(true);
            return is_changed;
        }
        let before = self.complete.replace(pull.epoch.clone());
        if let Some(resync) = self.resync.take() {
            let has_kept = before == pull.epoch && !before.is_empty();
            self.store().reconcile(&resync.seen, resync.until, resync.over && has_kept);
        }
        self.answered_ms.set(Some(round.now_ms));
        is_changed
    }
}

impl Part for TablePart {
    fn name(&self) -> &str {
        &self.name
    }

    fn definition(&self) -> &str {
        &self.definition
    }

    fn ask(&self, round: &Round, out: &mut Vec<Call>) {
        self.walk(round.now_ms);
        let push = self.push(round);
        self.has_more.set(push.is_some() && !self.todo.borrow().is_empty());
        out.extend(push);
        let args = [self.version.get(), PAIRS_MAX as u64, BYTES_MAX as u64];
        let args = args.map(|n| n.to_string().into_bytes()).to_vec();
        out.push(Call { script: &PULL, keys: self.keys(round), args });
        let dropped = self.store().dropped();
        let before = self.dropped.replace(dropped);
        round.status.add(Counter::Dropped, dropped.saturating_sub(before));
    }

    fn answered(&self, round: &Round, answers: &[Answer]) -> Result<(), PartError> {
        let is_foreign = answers.iter().any(|answer| matches!(answer, Answer::Error(_)));
        if is_foreign {
            self.unanswered();
            return Err(PartError::Foreign);
        }
        let (pull, push) = answers.split_last().ok_or(PartError::Malformed)?;
        let mut is_changed = false;
        if let Some(push) = push.first() {
            is_changed |= self.end_push(round, push)?;
        }
        let pull = fleet::pull(pull).ok_or(PartError::Malformed)?;
        is_changed |= self.end_pull(round, &pull);
        if is_changed {
            self.zone.save_soon();
        }
        Ok(())
    }

    fn unanswered(&self) {
        // The engine may have stored them: pushing them again changes nothing.
        let flight = self.flight.take();
        self.todo.borrow_mut().extend(flight.iter().map(|sent| sent.entry));
        self.has_more.set(false);
    }

    fn joined(&self) {
        self.unanswered();
        let now_ms = base::time::now_ms();
        self.begin_resync(now_ms);
        self.epoch.borrow_mut().clear();
    }

    fn has_more(&self) -> bool {
        self.has_more.get()
    }
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
