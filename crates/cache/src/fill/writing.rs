//! The file of a fill: written piece by piece, and renamed to its name when it is whole.

use std::future::Future;
use std::io;
use std::pin::Pin;

use base::time::{now_ms, unix_secs};
use bytes::Bytes;
use files::FileError;
use os::file::FileMeta;

use super::task::FillTask;
use super::{ALIGNED_FROM, Plan};
use crate::faults::FaultCause;
use crate::file_header::{Header, UNFINISHED};
use crate::index_format::IndexEntry;
use crate::instance::Admitted;
use crate::keys::{PublishedFill, RenameRight, RenameTurn, ReservedBlocks};
use crate::store::{self, UnfinishedFile};

/// The time for which a file waits for others of the same key that are being renamed, milliseconds.
const TURN_MS: u64 = 10_000;

/// The longest pause between two attempts, milliseconds.
const TURN_REST_MS: u64 = 64;

/// The result of a write in a thread.
pub(super) struct Written {
    unfinished: UnfinishedFile,
    /// Bytes of the body that are in the file.
    total: u64,
    /// Others may read it.
    is_shown: bool,
}

/// A write in a thread.
pub(super) type Writing = Pin<Box<dyn Future<Output = WriteResult>>>;

/// The result of it; `None` where there was no room on the disk.
pub(super) type WriteResult = io::Result<Result<Option<Written>, FileError>>;

/// A file that has its place.
struct Placed {
    meta: FileMeta,
    /// The failure to delete a file that made room for it.
    deleted: Option<FileError>,
}

/// The outcome of a commit.
enum CommitOutcome {
    Placed(Placed),
    /// It was written to its end for its readers.
    NotKept,
    /// There is not enough room on the disk.
    NoRoom,
}

/// Writes the last pieces of a body, which begin at `at`, and the header. For threads.
fn write_rest(
    unfinished: &UnfinishedFile,
    header: &Header,
    pieces: Vec<Bytes>,
    start: u64,
    at: u64,
) -> Result<(), FileError> {
    let header = Bytes::from(header.encode());
    if at == 0 {
        // One write, of the header and all of a small body.
        let mut all = vec![header];
        all.extend(pieces);
        return unfinished.write(&all, 0);
    }
    unfinished.write(&pieces, start + at)?;
    unfinished.write(&[header], 0)
}

impl FillTask {
    /// Aligns the body before the file is made; `total` bytes of it are here, and its length may be
    /// unknown.
    pub(super) fn align(&mut self, total: u64) {
        if self.unfinished.is_none() && total >= ALIGNED_FROM {
            self.plan.header.align();
            self.fill.body_start.set(self.plan.header.body_start() as u64);
        }
    }

    /// Begins a write if there is enough to be written, and none is under way.
    pub(super) fn write(&mut self, least: u64) {
        let state = self.fill.state.borrow();
        if !self.storing || self.writing.is_some() || state.total - state.written < least {
            return;
        }
        let (pieces, at) = (state.unwritten(), state.written);
        let total = state.total;
        drop(state);
        self.align(total);
        let Some(admitted) = self.admit(total) else { return };
        let layout = self.plan.cache.settings.layout.clone();
        let (temp, path) = (self.plan.temp.clone(), self.path.clone());
        let (unfinished, start) = (self.unfinished.take(), self.fill.body_start.get());
        let pool = self.plan.pool.clone();
        let published = self.fill.published.as_ref().filter(|s| s.is_wanted());
        let was_shown = published.is_some_and(PublishedFill::is_shown);
        let begin = published.filter(|s| !s.is_shown()).and(self.plan.length).map(|length| {
            let header = Header { body_len: UNFINISHED, ..self.plan.header.clone() };
            (header.encode(), start.saturating_add(length))
        });
        self.writing = Some(Box::pin(async move {
            store::elsewhere(pool.as_ref(), move || {
                // A file that could not be deleted is met by the next fill that makes room, or by
                // the loader.
                if !admitted.settle(&layout).0 {
                    return Ok(None);
                }
                let unfinished = match unfinished {
                    Some(unfinished) => unfinished,
                    None => UnfinishedFile::create(&temp, &path)?,
                };
                let mut is_shown = was_shown;
                if let Some((header, len)) = begin
                    && unfinished.reserve(len)?
                {
                    unfinished.write(&[Bytes::from(header)], 0)?;
                    is_shown = true;
                }
                unfinished.write(&pieces, start + at)?;
                Ok(Some(Written { unfinished, total, is_shown }))
            })
            .await
        }));
    }

    pub(super) fn written(&mut self, done: WriteResult) {
        match done {
            Ok(Ok(None)) => {
                self.plan.cache.is_low(true);
                self.no_room(FaultCause::MinFree);
            }
            Ok(Ok(Some(Written { unfinished, total: written, is_shown }))) => {
                let mut state = self.fill.state.borrow_mut();
                state.file = Some(unfinished.handle().clone());
                state.written = written;
                state.trim(true);
                drop(state);
                if is_shown {
                    self.fill.show(&unfinished);
                }
                self.unfinished = Some(unfinished);
            }
            Ok(Err(e)) => self.failed(FaultCause::Write, format_args!("{e}")),
            Err(e) => self.failed(FaultCause::Write, format_args!("{e}")),
        }
    }

    /// Takes room for a file with so much of a body, or with all of it where its length is known;
    /// without room the response goes on without a file.
    pub(super) fn admit(&mut self, total: u64) -> Option<Admitted> {
        let body = total.max(self.plan.length.unwrap_or(0));
        let bytes = (self.plan.header.body_start() as u64).saturating_add(body);
        if self.room.covers(bytes.div_ceil(self.plan.cache.block())) {
            // It has all its room since its file was begun.
            return Some(Admitted::default());
        }
        let admitted = self.plan.cache.admit(&mut self.room, bytes);
        if admitted.is_none() {
            self.no_room(FaultCause::MaxSize);
        }
        admitted
    }

    /// The response goes on without a file, as a limit has no room for one.
    #[cold]
    fn no_room(&mut self, limit: FaultCause) {
        let what = if limit == FaultCause::MaxSize { "max_size" } else { "min_free" };
        self.unfinished = None;
        self.failed(limit, format_args!("\"{what}\" leaves no room for a response, not cached"));
    }

    /// The response goes on without a file.
    #[cold]
    pub(super) fn failed(&mut self, cause: FaultCause, message: std::fmt::Arguments<'_>) {
        self.storing = false;
        self.room = ReservedBlocks::new(&self.plan.cache.keys);
        self.not_shown();
        self.plan.cache.tell(cause, message);
    }

    /// All was received: writes the rest and the header, and renames the file. A file that was
    /// purged meanwhile is not renamed, since there may be a newer one already; it is written to
    /// its end for its readers.
    pub(super) async fn commit(&mut self) {
        let right = self.turn().await;
        if right.is_none() && !self.fill.published.as_ref().is_some_and(PublishedFill::is_shown) {
            return;
        }
        let (pieces, at, total) = {
            let state = self.fill.state.borrow();
            (state.unwritten(), state.written, state.total)
        };
        self.align(total);
        let Some(admitted) = self.admit(total) else { return };
        let header = Header { body_len: total, ..self.plan.header.clone() };
        let (temp, path) = (self.plan.temp.clone(), self.path.clone());
        let unfinished = self.unfinished.take();
        let start = self.fill.body_start.get();
        let layout = self.plan.cache.settings.layout.clone();
        let pool = self.plan.pool.clone();
        let is_to_be_kept = right.is_some();
        let task = move || -> Result<CommitOutcome, FileError> {
            let (is_there, deleted) = admitted.settle(&layout);
            if !is_there {
                return Ok(CommitOutcome::NoRoom);
            }
            let mut unfinished = match unfinished {
                Some(unfinished) => unfinished,
                None => UnfinishedFile::create(&temp, &path)?,
            };
            write_rest(&unfinished, &header, pieces, start, at)?;
            if !is_to_be_kept {
                return Ok(CommitOutcome::NotKept);
            }
            let meta = unfinished.place(&path)?;
            Ok(CommitOutcome::Placed(Placed { meta, deleted }))
        };
        let going = |is: bool| right.iter().for_each(|right| right.is_under_way(is));
        going(true);
        let ended = store::elsewhere(pool.as_ref(), task).await;
        going(false);
        match (ended, right) {
            (Ok(Ok(CommitOutcome::Placed(placed))), Some(right)) => {
                self.placed(placed, &right).await
            }
            (Ok(Ok(CommitOutcome::Placed(_) | CommitOutcome::NotKept)), _) => {}
            (Ok(Ok(CommitOutcome::NoRoom)), _) => {
                self.plan.cache.is_low(true);
                self.no_room(FaultCause::MinFree);
            }
            (Ok(Err(e)), _) => self.failed(FaultCause::Rename, format_args!("{e}")),
            (Err(e), _) => self.failed(FaultCause::Rename, format_args!("{e}")),
        }
    }

    /// The right to rename the file, once no other fill has it; `None` where it is not to be kept.
    pub(super) async fn turn(&mut self) -> Option<RenameRight> {
        let (until, mut rest) = (now_ms() + TURN_MS, 1);
        loop {
            let Plan { cache, hash, pool, .. } = &self.plan;
            let (inactive, mut evicted) = (cache.settings.inactive, Vec::new());
            let is_purged = || self.fill.is_purged(cache);
            let turn = cache.keys.turn(hash, inactive, is_purged, &mut evicted);
            cache.discard(evicted, pool.as_ref());
            match turn {
                RenameTurn::Ours(right) => return Some(right),
                RenameTurn::Busy if now_ms() < until => {}
                RenameTurn::Full => {
                    let m = format_args!("could not allocate node in cache keys zone");
                    cache.tell(FaultCause::ZoneFull, m);
                    return None;
                }
                RenameTurn::Busy | RenameTurn::Purged => return None,
            }
            // Many may wait for the same.
            event::sleep(rest).await;
            rest = (rest * 2).min(TURN_REST_MS);
        }
    }

    /// Readers of other processes get no more bytes.
    pub(super) fn not_shown(&self) {
        if let Some(published) = &self.fill.published {
            published.end();
        }
    }

    /// The file has its place: it is taken in, or deleted again where it was purged meanwhile.
    async fn placed(&mut self, placed: Placed, right: &RenameRight) {
        let Placed { meta, deleted } = placed;
        if let Some(e) = deleted {
            self.plan.cache.tell(FaultCause::Delete, format_args!("{e}"));
        }
        let Plan { cache, hash, pool, .. } = &self.plan;
        let header = &self.fill.header;
        let is_variant = self.fill.main != *hash;
        if is_variant {
            cache.keys.has_variant();
        }
        let expire = unix_secs().saturating_add(cache.settings.inactive.into());
        let entry = IndexEntry {
            hash: *hash,
            blocks: store::blocks(&meta, cache.block()),
            expire: u32::try_from(expire).unwrap_or(u32::MAX),
            date: u32::try_from(header.date).unwrap_or(0),
            version: 0,
            file: store::identity(&meta),
            uses: 1,
            is_variant,
            key: &header.key,
            tags: &self.fill.tags,
        };
        let version = right.stored(&entry, || self.fill.is_purged(cache));
        cache.stirred.notify_all();
        cache.memory.borrow_mut().forget(hash);
        if version.is_none() {
            // Before another one may take its place.
            cache.tell_gone(hash);
            store::take_away(cache, hash, pool.as_ref()).await;
        }
        cache.is_low(false);
    }
}
