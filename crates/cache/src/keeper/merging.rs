//! Merges the index, the journals and the zone into a new index.

use base::log::Level;
use base::time::now_ms;
use event::Gate;

use super::{Keeper, PURGED_AT_ONCE};
use crate::index::{self, Journal, Left, Merge};
use crate::index_format::{FileHeader, IndexFileKind};
use crate::store;

/// The size of the journals from which on they are merged into the index, beside half of the
/// index's size, bytes.
const JOURNAL_MAX: u64 = 4 << 20;

/// The age from which on it is merged: the index has the order of use, which no journal has.
/// Milliseconds.
const JOURNAL_AGE_MS: u64 = 600_000;

/// Journals of keepers before: each reload leaves one, and none grows old where they come often.
const JOURNALS_MAX: usize = 32;

/// The time for which a server that has taken over the index is not looked for again, milliseconds.
const TAKEN_OVER_MS: u64 = 60_000;

impl Keeper {
    /// Whether it is time to make a new index.
    pub(super) fn is_to_merge(&self) -> bool {
        let (keys, left) = (&self.cache.keys, self.left.get());
        let journal = self.journal.borrow().as_ref().map_or(0, |journal| journal.bytes);
        let now = now_ms();
        let old = journal > 0 && now >= self.merged.get() + JOURNAL_AGE_MS;
        let large = journal + left.journal_bytes > JOURNAL_MAX + left.index_bytes / 2;
        (large || old || left.journals >= JOURNALS_MAX || keys.is_merge_wanted())
            && keys.is_warm()
            && self.may_write()
            && self.taken_over.get().is_none_or(|at| now >= at + TAKEN_OVER_MS)
            && keys.marks.uncleared().is_empty()
            // The new index has no marks.
            && keys.marks.settled() >= keys.marks.newest()
    }

    /// Makes a new index of the old one, the journals and the zone.
    pub(super) async fn merge(&self, leave: &Gate) {
        let keys = &self.cache.keys;
        let began = now_ms();
        let merged = self.try_to_merge(leave).await;
        match merged {
            Ok(Some((size, order))) => {
                keys.set_index_order(order);
                self.merged.set(now_ms());
                self.left.set(Left { index_bytes: size, ..Left::default() });
                let (log, folder) = (base::log::default(), self.folder());
                let (folder, ms) = (folder.display(), now_ms() - began);
                base::log!(
                    log,
                    Level::Info,
                    None,
                    "http file cache: index of {folder} written, {size} bytes in {ms} ms"
                );
            }
            Ok(None) => {}
            Err(e) => {
                self.failed.set(Some(now_ms()));
                self.fault("writing", &e);
            }
        }
    }

    async fn try_to_merge(&self, leave: &Gate) -> std::io::Result<Option<(u64, u64)>> {
        let keys = &self.cache.keys;
        let pool = event::pool::default();
        let (folder, order, part) = (self.folder(), self.next_order(), keys.id);
        let (known, last) = (keys.index_order(), self.journal.take());
        // News go to another journal from now on: the new index has all records of the last one.
        let task = move || {
            if index::is_taken_over(&folder, part)? {
                return Ok(None);
            }
            let is_lost = known != 0 && index::order_of(&folder) != known;
            if let Some(last) = last {
                // A request that waits for its flush looks at the next journal.
                last.sync()?;
            }
            let journal = Journal::create(&folder, order, part)?;
            let header = FileHeader { kind: IndexFileKind::Index, order, part };
            let merge = Merge::begin(&folder, header, &journal.path)?;
            Ok(Some((journal, merge, is_lost)))
        };
        let begun: std::io::Result<_> = store::elsewhere(Some(&pool), task).await?;
        let Some((journal, mut merge, is_lost)) = begun? else {
            self.taken_over.set(Some(now_ms()));
            return Ok(None);
        };
        self.journal.replace(Some(journal));
        // The marks of old journals go with them.
        let purged = keys.marks.last_time();
        if purged > 0 {
            keys.purge_records(purged).iter().for_each(|record| self.note(record));
            self.write_news(true).await;
            if !self.may_write() {
                return Ok(None);
            }
        }
        if is_lost {
            self.is_lost().await;
        }
        loop {
            let step = move || merge.next().map(|batch| (merge, batch));
            let (of_step, batch) = store::elsewhere(Some(&pool), step).await??;
            merge = of_step;
            let Some(batch) = batch else { break };
            let mut metas = Vec::with_capacity(batch.hashes.len());
            for some in batch.hashes.chunks(PURGED_AT_ONCE) {
                metas.extend(keys.metas(some));
            }
            if leave.is_closed() {
                return Ok(None);
            }
            let step = move || merge.put(&batch, &metas).map(|()| merge);
            merge = store::elsewhere(Some(&pool), step).await??;
            self.write_news(false).await;
        }
        let order = merge.order();
        let size = store::elsewhere(Some(&pool), move || merge.finish()).await??;
        Ok(Some((size, order)))
    }
}
