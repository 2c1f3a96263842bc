//! The keeper of a cache's index: a part of the cache manager.
//!
//! ```text
//!  workers ─rings─▶ news ─▶ journal ─now and then, with the zone─▶ index
//!                    ▲ │
//!   files of entries │ └─marks─▶ search ─▶ zone ─▶ files to delete ─▶ purger
//!   with unknown keys┘
//! ```
//!
//! Three tasks run side by side: news are written and the entries of marks are searched; files of
//! purged entries are deleted; and files are read whose keys the index does not have.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::index_format::{FileHeader, IndexFileKind, ReadStep, Record, read};
use base::log::{Level, os_error};
use base::time::{now_ms, unix_ms};
use event::{Gate, Notify};

use crate::faults::FaultCause;
use crate::index::{self, Journal, Left, MarkedPurge, Merge};
use crate::instance::{Cache, Pace};
use crate::key::Hash;
use crate::keys::Purged;
use crate::manager;
use crate::purge_marks::{MarkState, PurgeMark};
use crate::purging;
use crate::store;
use crate::unindexed;

/// The time for which news are gathered before they are written, milliseconds.
const GATHER_MS: u64 = 100;

/// The pause between two looks of the keeper where no bell rings, milliseconds.
const REST_MS: u64 = 10_000;

/// The pause after a write that failed, milliseconds.
const FAULT_MS: u64 = 5_000;

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

/// Entries that are purged without a pause.
const PURGED_AT_ONCE: usize = 128;

/// Files that are deleted without a pause, where the configuration sets no pace.
const DELETED_AT_ONCE: usize = 16;

/// The pause behind a deletion while the cache is asked, as a multiple of the deletion's own time:
/// with a fiftieth of the time, and the file system's own writes, p99 of other requests stays as it
/// was (docs/CACHE.md has the figures), with a tenth it does not.
const REST: u32 = 49;

/// The same when the cache was not asked for [`IDLE`].
const IDLE_REST: u32 = 9;

/// The time without a request after which a cache counts as idle.
const IDLE: Duration = Duration::from_secs(10);

/// The longest part of a rest between two looks at its conditions.
const LOOK: Duration = Duration::from_secs(1);

/// With more purges than this whose files are not deleted there is no rest: there is room for 1024.
const WAITING_MAX: usize = 128;

/// Files of entries that were purged.
struct Deletion {
    mark: u64,
    id: u64,
    files: Vec<Hash>,
    /// The limit of blocks from which on there is no rest: half as much as was purged has come
    /// since, and lies on the disk beside the purged files.
    room: u64,
    /// Files of entries that the zone does not have: such a file is left where a process was killed
    /// between taking the entry out and deleting the file, or between the rename and taking the
    /// entry in. There are hardly any.
    left: Vec<Hash>,
}

/// The number of requests of a cache, and the time since which it has not changed.
struct Asked {
    times: u64,
    since: Instant,
}

impl Asked {
    /// Whether there was no request for [`IDLE`]; `times` is the number of requests until now.
    fn is_idle(&mut self, times: u64, now: Instant) -> bool {
        if times != self.times {
            *self = Asked { times, since: now };
        }
        now.duration_since(self.since) >= IDLE
    }
}

/// The keeper of a cache's index.
pub(crate) struct Keeper {
    pub(crate) cache: Rc<Cache>,
    /// Records that go to the journal with the next news.
    outbox: RefCell<Vec<u8>>,
    /// Entries that are gone, as the last news said: they go to the journal with the next.
    gone: RefCell<Vec<Hash>>,
    journal: RefCell<Option<Journal>>,
    deletions: RefCell<VecDeque<Deletion>>,
    /// Marks whose files are deleted: the journal records that when they are settled. Before, there
    /// may be files that they cover whose keys are unknown, also after the next start.
    cleared: RefCell<Vec<(u64, u64)>>,
    /// There is a deletion.
    deleting: Notify,
    asked: RefCell<Asked>,
    /// The time of the last write that failed.
    failed: Cell<Option<u64>>,
    /// The last order given: [`FileHeader::order`].
    order: Cell<u64>,
    /// The time when the index was written last, or this keeper began.
    merged: Cell<u64>,
    /// The index, and journals of keepers before this one.
    left: Cell<Left>,
    /// Marks that a keeper before this one had begun with are to be looked for again.
    again: Cell<bool>,
    /// The time when another server was found to write the index.
    taken_over: Cell<Option<u64>>,
}

/// The right to keep the index, given back when dropped.
struct Right<'a>(&'a Cache);

impl Drop for Right<'_> {
    fn drop(&mut self) {
        self.0.keys.end_keeping();
    }
}

/// Keeps the index of a cache until `leave`.
pub(crate) async fn keep(cache: Rc<Cache>, leave: Gate) {
    // The keeper before may have something to write yet.
    while !cache.keys.begin_keeping(std::process::id()) {
        if event::race(leave.closed(), event::sleep(GATHER_MS)).await == event::Either::First(()) {
            return;
        }
    }
    let right = Right(&cache);
    let keeper = Keeper {
        cache: cache.clone(),
        outbox: RefCell::default(),
        gone: RefCell::default(),
        journal: RefCell::default(),
        deletions: RefCell::default(),
        cleared: RefCell::default(),
        deleting: Notify::new(),
        asked: RefCell::new(Asked { times: 0, since: Instant::now() }),
        failed: Cell::new(None),
        order: Cell::new(0),
        merged: Cell::new(now_ms()),
        left: Cell::default(),
        again: Cell::new(true),
        taken_over: Cell::new(None),
    };
    keeper.measure().await;
    let mut news = pin!(keeper.news(&leave));
    let mut purger = pin!(keeper.delete());
    let mut reader = pin!(unindexed::read(&keeper));
    std::future::poll_fn(|cx| {
        let _ = (purger.as_mut().poll(cx), reader.as_mut().poll(cx));
        news.as_mut().poll(cx)
    })
    .await;
    drop(right);
}

impl Keeper {
    /// Writes news, searches for the entries of marks, and merges, until `leave`.
    async fn news(&self, leave: &Gate) {
        loop {
            self.write_news(false).await;
            if leave.is_closed() {
                return self.write_news(false).await;
            }
            self.look_for_marks().await;
            self.settle();
            if self.is_to_merge() {
                self.merge(leave).await;
            }
            if !self.is_urgent() && !self.has_news() {
                let stirred = event::race(self.cache.stirred.notified(), leave.closed());
                let _ = event::race(stirred, event::sleep(REST_MS)).await;
            }
            // News that come one by one are written together.
            let until = now_ms() + GATHER_MS;
            while !self.is_urgent() && !leave.is_closed() && now_ms() < until {
                let stirred = event::race(self.cache.stirred.notified(), leave.closed());
                let _ = event::race(stirred, event::sleep(until - now_ms())).await;
            }
        }
    }

    fn has_news(&self) -> bool {
        !self.outbox.borrow().is_empty()
            || !self.gone.borrow().is_empty()
            || self.cache.keys.has_news()
    }

    /// A request waits for a purge or a flush.
    fn is_urgent(&self) -> bool {
        self.has_new_marks() || self.cache.keys.flush_requested().is_some()
    }

    fn has_new_marks(&self) -> bool {
        let is_new = |mark: &PurgeMark| mark.state == MarkState::New;
        let keys = &self.cache.keys;
        keys.is_read() && (self.again.get() || keys.marks.uncleared().iter().any(is_new))
    }

    /// A record that goes to the journal.
    pub(crate) fn note(&self, record: &Record<'_>) {
        record.encode(&mut self.outbox.borrow_mut());
    }

    /// Whether the last write succeeded, or long enough ago.
    pub(crate) fn may_write(&self) -> bool {
        self.failed.get().is_none_or(|at| now_ms() >= at + FAULT_MS)
    }

    fn folder(&self) -> PathBuf {
        self.cache.settings.layout.folder.clone()
    }

    fn next_order(&self) -> u64 {
        let order = unix_ms().max(self.order.get() + 1);
        self.order.set(order);
        order
    }

    /// Takes the news of all processes; [`Keys::index_has`] gets the second value once they are
    /// written.
    ///
    /// One process reports a file, another one that it is gone: the rings are not read at the same
    /// moment, and the second report may come first. It is kept back until the next time therefore,
    /// when the first has come for sure, and dropped if there is a file again.
    fn take_news(&self) -> (Vec<u8>, Vec<(usize, u64)>) {
        let keys = &self.cache.keys;
        let mut told = Vec::new();
        let taken = keys.for_index(&mut told);
        let mut bytes = self.outbox.take();
        let mut gone = Vec::new();
        let mut rest = &told[..];
        while let ReadStep::Record(record, len) = read(rest, true) {
            match record {
                Record::Gone(hash) => gone.push(hash),
                _ => bytes.extend_from_slice(&rest[..len]),
            }
            rest = &rest[len..];
        }
        let before = self.gone.replace(gone);
        for some in before.chunks(PURGED_AT_ONCE) {
            for (hash, meta) in some.iter().zip(keys.metas(some)) {
                if meta.is_none() {
                    Record::Gone(*hash).encode(&mut bytes);
                }
            }
        }
        (bytes, taken)
    }

    /// Writes the news of the processes and the outbox to the journal; it is flushed to the disk
    /// where `flush` says so, or a request waits for that.
    async fn write_news(&self, flush: bool) {
        let keys = &self.cache.keys;
        // Asked first: later news may not be taken this time.
        let wanted = keys.flush_requested();
        let flush = flush || wanted.is_some();
        let (bytes, taken) = self.take_news();
        if bytes.is_empty() && !flush {
            return keys.index_has(&taken);
        }
        if !self.may_write() {
            lost(&self.cache, &bytes);
            keys.index_has(&taken);
            return self.set_flushed(wanted, true);
        }
        let journal = self.journal.take();
        let (folder, order, part) = (self.folder(), self.next_order(), keys.id);
        let pool = event::pool::default();
        let task = move || {
            let mut written = journal.map_or_else(|| Journal::create(&folder, order, part), Ok);
            if let Ok(journal) = &mut written
                && let Err(e) = journal.append(&bytes, flush)
            {
                written = Err(e);
            }
            (written, bytes)
        };
        let Ok((written, bytes)) = store::elsewhere(Some(&pool), task).await else { return };
        let failed = written.is_err();
        match written {
            Ok(journal) => self.journal.replace(Some(journal)),
            Err(e) => {
                self.failed.set(Some(now_ms()));
                self.fault("writing", &e);
                lost(&self.cache, &bytes);
                None
            }
        };
        keys.index_has(&taken);
        self.set_flushed(wanted, failed);
    }

    fn set_flushed(&self, wanted: Option<u64>, failed: bool) {
        self.cache.keys.set_flushed(wanted, failed);
        if wanted.is_some() {
            self.cache.stirred.notify_all();
        }
    }

    fn fault(&self, what: &str, e: &std::io::Error) {
        let folder = self.folder().join(index::FOLDER);
        let (folder, e) = (folder.display(), os_error(e));
        self.cache
            .tell(FaultCause::Index, format_args!("{what} the index in \"{folder}\" failed {e}"));
    }

    /// Searches for the entries of new marks, and takes them out of the zone.
    async fn look_for_marks(&self) {
        let keys = &self.cache.keys;
        if !keys.is_read() {
            return;
        }
        let again = self.again.replace(false);
        let mut marks = keys.marks.uncleared();
        marks.retain(|mark| again || mark.state == MarkState::New);
        if marks.is_empty() {
            return;
        }
        let purges: Vec<MarkedPurge> = marks.iter().map(marked).collect();
        purges.iter().for_each(|p| self.note(&Record::Mark(p.purge())));
        // After this the journal has all that was kept before the marks could be seen.
        self.write_news(true).await;
        let (folder, order) = (self.folder(), keys.index_order());
        let pool = event::pool::default();
        let task = move || index::search(&folder, order, &purges);
        let found = match store::elsewhere(Some(&pool), task).await {
            Ok(Ok((found, whole))) => {
                if !whole {
                    self.is_lost().await;
                }
                found
            }
            Ok(Err(e)) => {
                self.fault("reading", &e);
                self.is_lost().await;
                vec![Vec::new(); marks.len()]
            }
            Err(_) => return self.again.set(true),
        };
        for (mark, found) in marks.iter().zip(found) {
            self.take_out(mark, &found).await;
        }
        keys.ring();
        self.cache.stirred.notify_all();
        self.deleting.notify_all();
    }

    /// Takes the entries that were found for a mark out of the zone; their files are deleted later.
    async fn take_out(&self, mark: &PurgeMark, found: &[(Hash, u32)]) {
        let keys = &self.cache.keys;
        let redo = mark.state != MarkState::New;
        let (mut out, mut files, mut left) = (0, Vec::new(), Vec::new());
        let before = keys.blocks();
        for some in found.chunks(PURGED_AT_ONCE) {
            for (hash, date) in some {
                match keys.purge_for(hash, mark, *date) {
                    Purged::Out => {
                        out += 1;
                        files.push(*hash);
                    }
                    Purged::Nothing => left.push(*hash),
                    Purged::Younger => {}
                }
            }
            event::task::yield_now().await;
        }
        let count = (!redo).then_some(out);
        keys.marks.set(mark.seq, MarkState::Done, count);
        // The journals may have several records of one.
        files.sort_unstable();
        left.sort_unstable();
        left.dedup();
        left.retain(|hash| files.binary_search(hash).is_err());
        // The metadata of files lies together by folder.
        for list in [&mut files, &mut left] {
            list.sort_by_key(|hash| self.cache.settings.layout.folder_of(hash));
        }
        let room = before.midpoint(keys.blocks());
        let deletion = Deletion { mark: mark.seq, id: mark.id, files, left, room };
        self.deletions.borrow_mut().push_back(deletion);
    }

    /// The index has lost entries: their files are read again.
    async fn is_lost(&self) {
        let keys = &self.cache.keys;
        keys.set_index_order(0);
        let mut from = Some(0);
        while from.is_some() {
            keys.some_are_unknown(&mut from);
            event::task::yield_now().await;
        }
    }

    /// Marks are settled once it is known of every entry whether they cover it.
    fn settle(&self) {
        let keys = &self.cache.keys;
        let newest = keys.marks.newest();
        if keys.marks.settled() < newest
            && keys.is_warm()
            && keys.unknown() == 0
            && keys.marks.uncleared().iter().all(|mark| mark.state >= MarkState::Done)
            && keys.marks.newest() == newest
        {
            keys.marks.settle(newest);
        }
        let settled = keys.marks.settled();
        self.cleared.borrow_mut().retain(|(seq, id)| {
            if *seq <= settled {
                self.note(&Record::Cleared(*id));
            }
            *seq > settled
        });
    }

    /// Deletes the files of purged entries, for ever.
    async fn delete(&self) {
        loop {
            let deletion = self.deletions.borrow_mut().pop_front();
            let Some(deletion) = deletion else {
                self.deleting.notified().await;
                continue;
            };
            let Deletion { files, left, room, .. } = &deletion;
            self.delete_some(left, None, *room).await;
            self.delete_some(files, self.cache.settings.purger, *room).await;
            // The index forgets them: a file that is renamed after this, by a process that is
            // killed then, is not trusted at the next start.
            self.gone.borrow_mut().extend(deletion.files.iter().chain(&deletion.left));
            let keys = &self.cache.keys;
            keys.marks.set(deletion.mark, MarkState::Cleared, None);
            self.cleared.borrow_mut().push((deletion.mark, deletion.id));
            self.cache.stirred.notify_all();
        }
    }

    /// Deletes files, at the configured pace or with rests between them ([`Keeper::rest`]).
    async fn delete_some(&self, files: &[Hash], pace: Option<Pace>, room: u64) {
        let at_once = pace.map_or(DELETED_AT_ONCE, |pace| pace.files.clamp(1, 1024) as usize);
        let mut began = now_ms();
        for some in files.chunks(at_once) {
            let from = Instant::now();
            purging::delete_purged(&self.cache, some, Some(&event::pool::default())).await;
            match pace {
                None => self.rest(from.elapsed(), room).await,
                Some(pace) if some.len() == at_once || now_ms() - began >= pace.threshold_ms => {
                    event::sleep(pace.sleep_ms).await;
                    began = now_ms();
                }
                Some(_) => {}
            }
        }
    }

    /// Rests behind a deletion that took so long, so that the disk is there for others; but not
    /// when there are more than `room` blocks of others, or little is free, or many purges wait.
    async fn rest(&self, took: Duration, room: u64) {
        let keys = &self.cache.keys;
        let began = Instant::now();
        loop {
            let is_urgent = self.deletions.borrow().len() > WAITING_MAX
                || keys.blocks() > room
                || manager::is_low(&self.cache).await;
            let is_idle = self.asked.borrow_mut().is_idle(keys.asked(), Instant::now());
            let times = match (is_urgent, is_idle) {
                (true, _) => 0,
                (false, true) => IDLE_REST,
                (false, false) => REST,
            };
            let left = (took * times).saturating_sub(began.elapsed());
            event::sleep((left.min(LOOK).as_millis() as u64).max(1)).await;
            if left <= LOOK {
                return;
            }
        }
    }

    /// Notes what keepers before this one have left.
    async fn measure(&self) {
        let folder = self.folder();
        let task = move || index::left(&folder);
        let left = store::elsewhere(Some(&event::pool::default()), task).await;
        self.left.set(left.ok().and_then(Result::ok).unwrap_or_default());
    }

    /// Whether it is time to make a new index.
    fn is_to_merge(&self) -> bool {
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
    async fn merge(&self, leave: &Gate) {
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

fn marked(mark: &PurgeMark) -> MarkedPurge {
    MarkedPurge { id: mark.id, time: mark.time, of: mark.of, text: mark.text.clone() }
}

/// Records could not be written: the index does not know their keys.
fn lost(cache: &Cache, mut bytes: &[u8]) {
    let mut hashes = Vec::new();
    while let ReadStep::Record(record, len) = read(bytes, true) {
        if let Record::Put(entry) = record {
            hashes.push(entry.hash);
        }
        bytes = &bytes[len..];
    }
    cache.keys.are_unknown(&hashes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_idle_when_it_was_not_asked_for_long() {
        let began = Instant::now();
        let mut asked = Asked { times: 5, since: began };
        let mut is_idle = |times, secs| asked.is_idle(times, began + Duration::from_secs(secs));
        assert!(!is_idle(5, 9));
        assert!(is_idle(5, 10));
        assert!(!is_idle(6, 11), "asked again");
        assert!(!is_idle(6, 20));
        assert!(is_idle(6, 21));
    }
}
