//! The keeper of a cache's index: a part of the cache manager.
//!
//! ```text
//!  workers ─rings─▶ news ─▶ journal ─now and then, with the zone─▶ index
//!                    ▲ │
//!   files of entries │ └─marks─▶ search ─▶ zone ─▶ files to delete ─▶ purger
//!   with unknown keys┘
//! ```
//!
//! Three tasks run side by side: news are written and the entries of marks are searched, and from
//! time to time they are merged into the index ([`merging`]); files of purged entries are deleted
//! ([`deleting`]); and files are read whose keys the index does not have ([`crate::unindexed`]).

mod deleting;
mod merging;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;

use base::log::os_error;
use base::time::{now_ms, unix_ms};
use event::Gate;

use crate::faults::FaultCause;
use crate::index::{self, Journal, Left, MarkedPurge};
use crate::index_format::{ReadStep, Record, read};
use crate::instance::Cache;
use crate::key::Hash;
use crate::keys::Purged;
use crate::purge_marks::{MarkState, PurgeMark};
use crate::store;
use crate::unindexed;
use deleting::{Deletion, Deletions};

/// The time for which news are gathered before they are written, milliseconds.
const GATHER_MS: u64 = 100;

/// The pause between two looks of the keeper where no bell rings, milliseconds.
const REST_MS: u64 = 10_000;

/// The pause after a write that failed, milliseconds.
const FAULT_MS: u64 = 5_000;

/// Entries that are purged without a pause.
const PURGED_AT_ONCE: usize = 128;

/// The keeper of a cache's index.
pub(crate) struct Keeper {
    pub(crate) cache: Rc<Cache>,
    /// Records that go to the journal with the next news.
    outbox: RefCell<Vec<u8>>,
    /// Entries that are gone, as the last news said: they go to the journal with the next.
    gone: RefCell<Vec<Hash>>,
    journal: RefCell<Option<Journal>>,
    deletions: Deletions,
    /// Marks whose files are deleted: the journal records that when they are settled. Before, there
    /// may be files that they cover whose keys are unknown, also after the next start.
    cleared: RefCell<Vec<(u64, u64)>>,
    /// The time of the last write that failed.
    failed: Cell<Option<u64>>,
    /// The last order given: [`crate::index_format::FileHeader::order`].
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
        deletions: Deletions::new(),
        cleared: RefCell::default(),
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
        self.deletions.begin();
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
        self.deletions.add(deletion);
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

    /// Notes what keepers before this one have left.
    async fn measure(&self) {
        let folder = self.folder();
        let task = move || index::left(&folder);
        let left = store::elsewhere(Some(&event::pool::default()), task).await;
        self.left.set(left.ok().and_then(Result::ok).unwrap_or_default());
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
