//! `limit_req_zone … sync`: the sum of all servers' requests in leaky buckets.
//!
//! A worker decides by the bucket in its zone, which it fills with its own requests. The round
//! sends the requests since the last one, and the engine's bucket takes the place of the zone's,
//! with the requests in it that came meanwhile. So a worker knows of others' requests after an
//! interval, and the engine counts each request once: over a time that is long against the
//! interval, the rate of all together is exact. In one interval, each server may let the whole rate
//! pass.
//!
//! After an outage the round sends the *level* of each bucket instead of its requests: the engine's
//! bucket is raised to the highest level of all servers. Sums would be a debt, because each server
//! was right to let the whole rate pass: three full buckets would refuse all requests for the time
//! in which two of them leak. A round that fails is not an outage yet: if each of them were, an
//! engine that fails every other round would never learn a sum.

use std::cell::{Cell, RefCell};

use sha2::{Digest, Sha256};
use shm::Entry;

use crate::call::{Answer, Call};
use crate::node::{Part, PartError, Round};
use crate::scripts::LIMIT;
use crate::status::Counter;

/// Requests of one key that are to be sent.
#[derive(Clone, Debug)]
pub struct Delta {
    /// The key's entry.
    pub entry: Entry,
    /// The key.
    pub key: Vec<u8>,
    /// Thousandths of requests.
    pub amount: Amount,
}

/// The effect of requests on the engine's bucket, in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// They are added.
    Add(u64),
    /// The bucket is raised to that level, unless it is above it.
    Raise(u64),
}

impl Amount {
    /// The argument of [`LIMIT`], for example `1000` or `=10000`.
    fn to_arg(self) -> Vec<u8> {
        match self {
            Amount::Add(n) => n.to_string().into_bytes(),
            Amount::Raise(n) => format!("={n}").into_bytes(),
        }
    }
}

/// The buckets of a zone.
pub trait Buckets {
    /// Takes the next touched entries, at most `max`; whether none was left. `most` limits an
    /// amount to what is in the bucket now and that much above it: a process that was started again
    /// does not know how old the requests are, nor does one after an outage.
    fn take(&self, max: usize, now_ms: u64, most: Option<u64>, out: &mut Vec<Delta>) -> bool;

    /// An outage is over: of entries that were touched until now, [`Buckets::take`] gives levels.
    fn outage_ended(&self);

    /// The engine did not take an amount: it is to be sent again.
    fn give_back(&self, delta: &Delta);

    /// Replaces a bucket by the engine's, whose content is that of `sent_ms`; requests that were
    /// not taken yet are added. The content may be negative.
    fn put(&self, entry: Entry, excess: i64, sent_ms: u64);
}

/// Keys in one call: a script of this length takes the engine half a millisecond.
pub const KEYS_MAX: usize = 128;

/// Hash slots over which the keys of a zone are spread, in a cluster.
const SLOTS: u8 = 16;

/// Keys in one round, so that tables get their turn when very many are hot.
pub const ROUND_MAX: usize = 20_000;

/// Entries taken under one hold of the table's lock.
pub const STEP: usize = 256;

/// 128 bits of a hash of a key that no client can find collisions of, as text, and its slot.
fn hash(definition: &str, key: &[u8]) -> (u8, String) {
    let mut hasher = Sha256::new();
    hasher.update(definition.as_bytes());
    hasher.update([0]);
    hasher.update(key);
    let hash = hasher.finalize();
    let mut text = Vec::new();
    base::base64::encode_url(&hash[..16], &mut text);
    (hash[16] % SLOTS, String::from_utf8_lossy(&text).into_owned())
}

/// Groups keys for calls: all of a group have names of one hash slot. `kind` is the letter of the
/// kind of zone; `key` gives the key of an item.
pub fn grouped<T>(
    (prefix, kind, zone, definition): (&str, char, &str, &str),
    items: Vec<T>,
    key: impl Fn(&T) -> &[u8],
) -> Vec<Vec<(T, Vec<u8>)>> {
    let mut slots: Vec<Vec<(T, Vec<u8>)>> = (0..SLOTS).map(|_| Vec::new()).collect();
    for item in items {
        let (slot, hash) = hash(definition, key(&item));
        let name = format!("{prefix}:{{{kind}:{zone}:{slot:x}}}:{hash}").into_bytes();
        slots[usize::from(slot)].push((item, name));
    }
    let mut groups = Vec::new();
    for slot in slots {
        let mut rest = slot.into_iter().peekable();
        while rest.peek().is_some() {
            groups.push(rest.by_ref().take(KEYS_MAX).collect());
        }
    }
    groups
}

/// An outage has begun when the engine has not answered for the timeout and so many intervals: one
/// round that times out is less, two are more.
const OUTAGE_ROUNDS: u64 = 5;

/// Longest window, in milliseconds; see [`LIMIT`].
const WINDOW_MAX_MS: u64 = 60_000;

/// A zone that is shared.
pub struct LimitPart<B> {
    name: String,
    /// The key and the rate as written: zones of the same name that differ in them share nothing.
    definition: String,
    /// Thousandths that leak each second.
    rate: i64,
    buckets: B,
    /// The keys of each call that is out.
    flight: RefCell<Vec<Vec<Delta>>>,
    /// When nothing was left to send.
    drained_ms: Cell<Option<u64>>,
    /// The same before the round that is out.
    drained_before_ms: Cell<Option<u64>>,
    /// The engine did not answer last time.
    is_away: Cell<bool>,
    /// The begin of the last round before which the engine had answered.
    good_ms: Cell<Option<u64>>,
    /// The round that is out sends levels.
    sends_levels: Cell<bool>,
    /// The last round left something.
    has_more: Cell<bool>,
}

impl<B: Buckets> LimitPart<B> {
    /// The part of a zone.
    pub fn new(name: &str, key: &str, rate: i64, buckets: B) -> LimitPart<B> {
        let definition = format!("limit_req {key} {rate}");
        LimitPart {
            name: name.to_owned(),
            definition,
            rate,
            buckets,
            flight: RefCell::default(),
            drained_ms: Cell::new(None),
            drained_before_ms: Cell::new(None),
            is_away: Cell::new(false),
            good_ms: Cell::new(None),
            sends_levels: Cell::new(false),
            has_more: Cell::new(false),
        }
    }

    /// The buckets.
    pub fn buckets(&self) -> &B {
        &self.buckets
    }

    /// The milliseconds for which the engine forgives that requests are reported late.
    fn window_ms(&self, round: &Round) -> u64 {
        let least = round.interval_ms.saturating_mul(2);
        let since = self.drained_ms.get().map_or(0, |ms| round.now_ms.saturating_sub(ms));
        since.saturating_add(round.interval_ms).clamp(least, WINDOW_MAX_MS.max(least))
    }

    /// Whether more than one round has failed, or none could be begun for a time.
    fn is_outage(&self, round: &Round) -> bool {
        let most = round.interval_ms.saturating_mul(OUTAGE_ROUNDS).saturating_add(round.timeout_ms);
        let good_ms = self.good_ms.get();
        self.is_away.get() && good_ms.is_none_or(|ms| round.now_ms.saturating_sub(ms) > most)
    }

    fn take(&self, round: &Round) -> Vec<Delta> {
        let mut all = Vec::new();
        if !self.is_away.get() {
            self.good_ms.set(Some(round.now_ms));
        }
        self.sends_levels.set(self.is_outage(round));
        if self.sends_levels.get() {
            self.buckets.outage_ended();
            self.drained_ms.set(None);
        }
        self.drained_before_ms.set(self.drained_ms.get());
        // Without a round before, amounts may be of long ago.
        let most = self.drained_ms.get().is_none().then(|| {
            let rate = u64::try_from(self.rate).unwrap_or(0);
            rate.saturating_mul(round.interval_ms) / 500
        });
        let is_drained = self.buckets.take(ROUND_MAX, round.now_ms, most, &mut all);
        self.has_more.set(!is_drained);
        if is_drained {
            self.drained_ms.set(Some(round.now_ms));
        }
        all
    }

    fn call(&self, keys: &[(Delta, Vec<u8>)], window_ms: u64) -> Call {
        let mut args = vec![self.rate.to_string().into_bytes(), window_ms.to_string().into_bytes()];
        args.extend(keys.iter().map(|(delta, _)| delta.amount.to_arg()));
        let keys = keys.iter().map(|(_, name)| name.clone()).collect();
        Call { script: &LIMIT, keys, args }
    }
}

impl<B: Buckets> Part for LimitPart<B> {
    fn name(&self) -> &str {
        &self.name
    }

    fn definition(&self) -> &str {
        &self.definition
    }

    fn ask(&self, round: &Round, out: &mut Vec<Call>) {
        let (window_ms, taken) = (self.window_ms(round), self.take(round));
        round.status.add(Counter::Sent, taken.len() as u64);
        let names = (round.prefix, 'l', &*self.name, &*self.definition);
        let mut flight = self.flight.borrow_mut();
        for keys in grouped(names, taken, |delta| &delta.key) {
            out.push(self.call(&keys, window_ms));
            flight.push(keys.into_iter().map(|(delta, _)| delta).collect());
        }
    }

    fn answered(&self, round: &Round, answers: &[Answer]) -> Result<(), PartError> {
        let flight = self.flight.take();
        self.is_away.set(false);
        if self.sends_levels.take() {
            // Until now, the others' requests were not known here.
            self.buckets.outage_ended();
        }
        let mut foreign = 0;
        for (deltas, answer) in flight.iter().zip(answers) {
            let list = answer.list().filter(|list| list.len() == deltas.len());
            for (delta, answer) in deltas.iter().zip(list.ok_or(PartError::Malformed)?) {
                match answer {
                    Answer::Int(excess) => self.buckets.put(delta.entry, *excess, round.now_ms),
                    _ => foreign += 1,
                }
            }
        }
        round.status.add(Counter::Foreign, foreign);
        if foreign == 0 { Ok(()) } else { Err(PartError::Foreign) }
    }

    fn unanswered(&self) {
        // If the engine ran them, sending them again would count them twice.
        self.flight.take();
    }

    fn refused(&self, round: &Round, answers: &[Answer]) {
        for (deltas, answer) in self.flight.take().iter().zip(answers) {
            if let Answer::Error(_) = answer {
                deltas.iter().for_each(|delta| self.buckets.give_back(delta));
                self.drained_ms.set(self.drained_before_ms.get());
            }
            for (delta, answer) in deltas.iter().zip(answer.list().unwrap_or_default()) {
                if let Answer::Int(excess) = answer {
                    self.buckets.put(delta.entry, *excess, round.now_ms);
                }
            }
        }
    }

    fn failed(&self) {
        self.is_away.set(true);
    }

    fn joined(&self) {
        self.unanswered();
    }

    fn has_more(&self) -> bool {
        self.has_more.get()
    }
}
