//! `limit_req_zone … sync`: the buckets of a zone, for the shared state process.

use std::cell::Cell;
use std::rc::Rc;

use fleet::limits::{Amount, Buckets, Delta, LimitPart};
use shm::{Entry, Locked};

use super::{Bucket, Shared, Zone};

/// The part of a zone.
pub(super) fn part(zone: &Zone<Bucket>, shared: Rc<Shared<Bucket>>) -> LimitPart<ReqBuckets> {
    let rate = zone.rate.get();
    LimitPart::new(&zone.shown(), &zone.key_shown(), rate, ReqBuckets::new(shared, rate))
}

/// The buckets of a zone.
pub(super) struct ReqBuckets {
    shared: Rc<Shared<Bucket>>,
    rate: i64,
    /// Of the entries that were touched, so many were before the end of the last outage.
    old: Cell<u64>,
}

impl ReqBuckets {
    fn new(shared: Rc<Shared<Bucket>>, rate: i64) -> ReqBuckets {
        ReqBuckets { shared, rate, old: Cell::new(0) }
    }

    /// The content of a bucket at that time.
    fn content(&self, bucket: Bucket, now: u64) -> u64 {
        // A request more, and less: the bucket has leaked in between.
        let excess = bucket.with_one_more(now, self.rate).saturating_sub(1000);
        u64::try_from(excess).unwrap_or(0)
    }
}

impl Buckets for ReqBuckets {
    fn take(&self, max: usize, now_ms: u64, most: Option<u64>, out: &mut Vec<Delta>) -> bool {
        let Some(touched) = &self.shared.touched else { return true };
        let each = |t: &Locked<'_, Bucket>, entry, amount: u64| {
            let (bucket, key) = (t.value(entry)?, t.bytes_of(entry)?);
            let level = self.content(bucket, now_ms);
            let (_, taken) = touched.counts();
            let amount = match most {
                _ if taken <= self.old.get() => Amount::Raise(level),
                Some(most) => Amount::Add(amount.min(level.saturating_add(most))),
                None => Amount::Add(amount),
            };
            Some(Delta { entry, key, amount })
        };
        touched.collect(&self.shared.table, max, each, out)
    }

    fn outage_ended(&self) {
        let touched = self.shared.touched.as_ref();
        self.old.set(touched.map_or(0, |touched| touched.counts().0));
    }

    fn give_back(&self, delta: &Delta) {
        let Some(touched) = &self.shared.touched else { return };
        let _lock = self.shared.table.lock();
        let amount = match delta.amount {
            Amount::Add(amount) => amount,
            // The next round finds the level in the bucket.
            Amount::Raise(_) => 1,
        };
        touched.add(delta.entry, amount);
    }

    fn put(&self, entry: Entry, excess: i64, sent_ms: u64) {
        let Some(touched) = &self.shared.touched else { return };
        let mut t = self.shared.table.lock();
        if t.value(entry).is_none() {
            return;
        }
        let pending = i64::try_from(touched.pending(entry)).unwrap_or(i64::MAX);
        let excess = excess.max(0).saturating_add(pending);
        t.set(entry, Bucket { last: sent_ms, excess });
    }
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
