//! `limit_req_zone … sync`: the buckets of a zone, for the shared state process.

use std::rc::Rc;

use fleet::limits::{Buckets, Delta, LimitPart};
use shm::Entry;

use super::{Bucket, Shared, Zone};

/// The part of a zone.
pub(super) fn part(zone: &Zone<Bucket>, shared: Rc<Shared<Bucket>>) -> LimitPart<ReqBuckets> {
    let rate = zone.rate.get();
    LimitPart::new(&zone.shown(), &zone.key_shown(), rate, ReqBuckets { shared, rate })
}

/// The buckets of a zone.
pub(super) struct ReqBuckets {
    shared: Rc<Shared<Bucket>>,
    rate: i64,
}

impl ReqBuckets {
    /// The content of a bucket at that time.
    fn content(&self, bucket: Bucket, now: u64) -> u64 {
        // A request more, and less: the bucket has leaked in between.
        let excess = bucket.with_one_more(now, self.rate).saturating_sub(1000);
        u64::try_from(excess).unwrap_or(0)
    }
}

impl Buckets for ReqBuckets {
    fn take(&self, max: usize, now_ms: u64, most: Option<u64>, out: &mut Vec<Delta>) {
        let Some(touched) = &self.shared.touched else { return };
        let t = self.shared.table.lock();
        let until = out.len() + max;
        while out.len() < until {
            let Some((entry, mut amount)) = touched.take() else { return };
            let (Some(bucket), Some(key)) = (t.value(entry), t.bytes_of(entry)) else { continue };
            if let Some(most) = most {
                amount = amount.min(self.content(bucket, now_ms).saturating_add(most));
            }
            out.push(Delta { entry, key, amount });
        }
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
