//! `*_cache_path … sync`: purges here reach other servers, and theirs this one.
//!
//! A worker makes a purge, and writes it to its ring in shared memory. The shared state process
//! sends it, and makes the purges of others as a worker would. How far it has come stands in a file
//! beside the cache. While the engine is away, purges wait in another file there ([`Waiting`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use base::log::{Level, lossy, os_error};
use cache::{Cache, Ticket};
use conf::{ConfError, Word};
use fleet::purges::{Cursor, Purge, PurgePart, Purges};
use http::cx::Cx;
use http::request::Request;
use shm::{Pushed, Rings, Zone, ZoneState};

use super::waiting::{Batch, Waiting};

/// Bytes of a process's ring. Pages are taken when they are used.
const RING_BYTES: usize = 64 << 10;

/// The purges of this server that others have not heard of.
pub(super) struct Outbox {
    rings: Rings,
    /// Its first word: how often a ring was full, since others have purged everything for that.
    full: Zone,
}

impl ZoneState for Outbox {
    fn died(&self, _: u32, _: usize) {}
}

impl Outbox {
    fn new(slots: usize) -> io::Result<Outbox> {
        Ok(Outbox { rings: Rings::new(slots, RING_BYTES)?, full: Zone::anonymous(8)? })
    }

    /// In the process of that slot: others are to hear of a purge.
    pub fn add(&self, slot: usize, purge: &Purge) {
        let bytes = purge.to_bytes();
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        if self.rings.push(slot, &[&len[..], &bytes].concat()) == Pushed::Full {
            self.full.words()[0].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How often a ring was full.
    fn times_full(&self) -> u64 {
        self.full.words()[0].load(Ordering::SeqCst)
    }

    /// Others purge everything, for the times that a ring was full. If that has happened again
    /// meanwhile, they have to do so again.
    fn told_full(&self, times: u64) {
        let (ok, fail) = (Ordering::SeqCst, Ordering::SeqCst);
        let _ = self.full.words()[0].compare_exchange(times, 0, ok, fail);
    }
}

/// In a worker: other servers are to hear of a purge that a request made here. Returns whether they
/// do so later, because the engine is away: the purge waits on the disk then.
pub(super) async fn tell(r: &Request, t: &Ticket, tags: &[u8]) -> bool {
    let Some(sharing) = t.cache.shares.get() else { return false };
    let slot = r.main.stats.slot();
    let purges: Vec<_> = match t.key.strip_suffix(b"*") {
        _ if !tags.is_empty() => {
            tags.split(|b| *b == b' ').map(|tag| Purge::Tag(tag.to_vec())).collect()
        }
        Some(prefix) => vec![Purge::Prefix(prefix.to_vec())],
        None => vec![Purge::Key(t.key.to_vec())],
    };
    let is_away = (sharing.is_away)();
    if is_away {
        let waiting = Waiting::of(&t.cache.settings.layout.folder);
        let kept = purges.clone();
        match event::run_blocking(move || waiting.add(&kept)).await {
            Ok(Ok(())) => return true,
            Ok(Err(e)) => {
                let e = os_error(&e);
                r.log(Level::Error, format_args!("a purge cannot wait on the disk {e}"));
            }
            Err(_) => {}
        }
    }
    purges.iter().for_each(|purge| (sharing.add)(slot, purge));
    is_away
}

/// The memory for the purges of a cache; that of the configuration before, if there is one.
pub(super) fn outbox(cx: &mut Cx, at: &Word, name: &[u8]) -> Result<Rc<Outbox>, ConfError> {
    let zone = [b"purges of ", name].concat();
    cx.declare_zone(at, &zone, Some(RING_BYTES), "cache purges")?;
    let slots = cx.env.slots();
    let kept = cx.env.zones.kept::<Outbox>(&zone);
    let outbox = match kept.filter(|kept| kept.rings.slots() >= slots) {
        Some(kept) => kept,
        None => Rc::new(Outbox::new(slots).map_err(|e| {
            let e = os_error(&e);
            ConfError::at(at, format!("mmap(MAP_ANON|MAP_SHARED) failed {e}"))
        })?),
    };
    cx.env.zones.put(&zone, outbox.clone());
    Ok(outbox)
}

/// Shares the purges of a cache.
pub(super) fn share(cx: &Cx, cache: &Rc<Cache>, outbox: Rc<Outbox>) {
    let name = lossy(&cache.name).into_owned();
    let own = outbox.clone();
    let add = move |slot: usize, purge: &Purge| own.add(slot, purge);
    let status = cx.env.fleet.status().clone();
    let is_away = move || status.state() != fleet::State::Joined;
    let _ = cache.shares.set(cache::Sharing { add: Box::new(add), is_away: Box::new(is_away) });
    let of_cache = OfCache {
        cache: cache.clone(),
        outbox,
        taken: RefCell::default(),
        rest: RefCell::default(),
        times_full: Cell::new(0),
        queue: RefCell::default(),
        is_busy: Cell::new(false),
        is_behind: Cell::new(false),
        waiting: Waiting::of(&cache.settings.layout.folder),
        batch: RefCell::default(),
        is_filing: Cell::new(false),
        looked_ms: Cell::new(None),
        has_failed: Cell::new(false),
    };
    cx.env.fleet.add(Rc::new(PurgePart::new(&name, Handle(Rc::new(of_cache)))));
}

/// A cache, in the shared state process.
struct OfCache {
    cache: Rc<Cache>,
    outbox: Rc<Outbox>,
    /// How far each ring was read.
    taken: RefCell<Vec<(usize, u64)>>,
    /// Purges that were read from the rings and not sent yet, with those that are on their way.
    rest: RefCell<(Vec<Purge>, usize)>,
    /// What is on its way is a purge of everything, unless this is 0.
    times_full: Cell<u64>,
    /// Purges of others to make, oldest first, with the cursor after them.
    queue: RefCell<VecDeque<(Vec<Purge>, Cursor)>>,
    /// A task makes them.
    is_busy: Cell<bool>,
    /// A purge has failed. The cursor in the file stays before it, so that the next process makes
    /// it again.
    is_behind: Cell<bool>,
    waiting: Waiting,
    /// Purges of the file: those that are left to send, and those that are on their way.
    batch: RefCell<Option<(Batch, usize, usize)>>,
    /// A thread reads or writes the file.
    is_filing: Cell<bool>,
    looked_ms: Cell<Option<u64>>,
    /// The last use of the file has failed, which was logged.
    has_failed: Cell<bool>,
}

/// Purges of other servers that are made at the same time: all of a round.
const AT_ONCE: usize = 512;

/// The interval of looks at the file, milliseconds: a worker may write it just when the engine is
/// back.
const LOOK_MS: u64 = 1_000;

impl OfCache {
    /// Has a thread do something with the file; `None` if it failed.
    async fn file_of_waiting<T: Send + 'static>(
        &self,
        work: impl FnOnce(Waiting) -> io::Result<T> + Send + 'static,
    ) -> Option<T> {
        let waiting = self.waiting.clone();
        let done = event::run_blocking(move || work(waiting)).await.ok()?;
        let has_failed = done.is_err();
        if self.has_failed.replace(has_failed) != has_failed
            && let Err(e) = &done
        {
            let (name, e) = (lossy(&self.cache.name), os_error(e));
            let m = format_args!("cache \"{name}\": the file of waiting purges {e}");
            base::log!(base::log::default(), Level::Error, None, "{m}");
        }
        done.ok()
    }

    /// Looks whether purges wait in the file, and reads them.
    fn look(self: &Rc<OfCache>) {
        let now_ms = base::time::now_ms();
        let is_due = self.looked_ms.get().is_none_or(|ms| now_ms.saturating_sub(ms) >= LOOK_MS);
        if !is_due || self.batch.borrow().is_some() || self.is_filing.get() {
            return;
        }
        self.looked_ms.set(Some(now_ms));
        if self.waiting.is_empty() || self.is_filing.replace(true) {
            return;
        }
        let own = self.clone();
        event::spawn(async move {
            let read = own.file_of_waiting(|waiting| waiting.read()).await;
            let read = read.filter(|batch| !batch.purges.is_empty());
            *own.batch.borrow_mut() = read.map(|batch| (batch, 0, 0));
            own.is_filing.set(false);
        });
    }

    /// Those of the batch that were on their way have been sent; the file loses them at the end.
    fn sent_of_file(self: &Rc<OfCache>) {
        let mut batch = self.batch.borrow_mut();
        let Some((of, sent, flies)) = &mut *batch else { return };
        *sent += std::mem::take(flies);
        if *sent < of.purges.len() {
            return;
        }
        let (bytes, crc) = (of.bytes, of.crc);
        *batch = None;
        self.is_filing.set(true);
        self.looked_ms.set(None);
        let own = self.clone();
        event::spawn(async move {
            own.file_of_waiting(move |waiting| waiting.sent(bytes, crc)).await;
            own.is_filing.set(false);
        });
    }

    /// Writes the purges in memory to the file: this server may end before the engine is back.
    async fn keep_all(&self) {
        self.read();
        let times = self.outbox.times_full();
        let (purges, count) = {
            let rest = self.rest.borrow();
            (rest.0.clone(), rest.0.len())
        };
        let purges = if times > 0 { vec![Purge::all()] } else { purges };
        if purges.is_empty() {
            return;
        }
        if self.file_of_waiting(move |waiting| waiting.add(&purges)).await.is_some() {
            self.outbox.told_full(times);
            self.done(count);
        }
    }

    /// The first purges of those that were read from the rings need not be sent any more.
    fn done(&self, count: usize) {
        let mut rest = self.rest.borrow_mut();
        rest.0.drain(..count);
        rest.1 = 0;
        if rest.0.is_empty() {
            for (slot, at) in self.taken.take() {
                self.outbox.rings.taken(slot, at);
            }
        }
    }

    /// Reads the rings. Others may read them again until the purges are sent.
    fn read(&self) {
        let mut taken = self.taken.borrow_mut();
        let mut rest = self.rest.borrow_mut();
        if !rest.0.is_empty() {
            return;
        }
        taken.clear();
        for slot in 0..self.outbox.rings.slots() {
            if self.outbox.rings.is_empty(slot) {
                continue;
            }
            let mut bytes = Vec::new();
            taken.push((slot, self.outbox.rings.peek(slot, &mut bytes)));
            let mut next = &bytes[..];
            while let Some((len, behind)) = next.split_first_chunk::<4>() {
                let len = u32::from_le_bytes(*len) as usize;
                let Some((purge, behind)) = behind.split_at_checked(len) else { break };
                rest.0.extend(Purge::from_bytes(purge));
                next = behind;
            }
        }
    }

    async fn make_one(&self, purge: &Purge) -> Result<(), cache::PurgeError> {
        let (key, tags) = match purge {
            Purge::Key(key) => (key.clone(), &[][..]),
            Purge::Prefix(prefix) => ([&prefix[..], b"*"].concat(), &[][..]),
            Purge::Tag(tag) => (Vec::new(), &tag[..]),
        };
        let made = cache::purge(&self.cache, &key, &cache::hash(&key), tags, None).await;
        if made.is_ok() && *purge == Purge::all() {
            self.is_behind.set(false);
        }
        made.map(|_| ())
    }

    fn file(&self) -> PathBuf {
        self.cache.settings.layout.folder.join(cache::PURGES_FILE)
    }

    /// Makes the purges of the queue. There is one such task, so cursors are written in order.
    async fn make_all(&self) {
        loop {
            let next = self.queue.borrow_mut().pop_front();
            let Some((purges, cursor)) = next else { break };
            self.make(purges, cursor).await;
        }
        self.is_busy.set(false);
    }

    /// Makes purges and writes the cursor behind them. They run at the same time: each waits until
    /// the journal of the cache is on the disk, and one write of it is for all.
    async fn make(&self, purges: Vec<Purge>, cursor: Cursor) {
        let has_failed = Cell::new(false);
        let all = purges.iter().map(|purge| {
            let has_failed = &has_failed;
            async move {
                if let Err(e) = self.make_one(purge).await
                    && !has_failed.replace(true)
                {
                    let (name, log) = (lossy(&self.cache.name), base::log::default());
                    base::log!(log, Level::Error, None, "cache \"{name}\": a purge failed: {e:?}");
                }
            }
        });
        event::side_by_side(all, AT_ONCE).await;
        // What a purge that failed was to remove is in the whole cache.
        if has_failed.get() && self.make_one(&Purge::all()).await.is_err() {
            self.is_behind.set(true);
        }
        if self.is_behind.get() {
            return;
        }
        let file = self.file();
        let written = event::run_blocking(move || write(&file, &cursor)).await;
        if let Ok(Err(e)) = written {
            let (path, e) = (self.file(), os_error(&e));
            let log = base::log::default();
            base::log!(log, Level::Error, None, "\"{}\" cannot be written {e}", path.display());
        }
    }
}

/// Replaces the file as a whole.
fn write(file: &std::path::Path, cursor: &Cursor) -> io::Result<()> {
    let new = file.with_file_name(format!("{}.new", cache::PURGES_FILE));
    std::fs::write(&new, cursor.to_text())?;
    std::fs::rename(&new, file)
}

/// What the part owns: purges outlive the call that makes them.
struct Handle(Rc<OfCache>);

impl Purges for Handle {
    fn keep(&self) {
        if self.0.is_filing.replace(true) {
            return;
        }
        let own = self.0.clone();
        event::spawn(async move {
            own.keep_all().await;
            own.is_filing.set(false);
        });
    }

    fn peek(&self, max: usize, out: &mut Vec<Purge>) {
        self.0.look();
        if let Some((batch, sent, flies)) = &mut *self.0.batch.borrow_mut() {
            *flies = max.min(batch.purges.len() - *sent);
            out.extend(batch.purges[*sent..*sent + *flies].iter().cloned());
            return;
        }
        // They may be on their way to the file.
        if self.0.is_filing.get() {
            return;
        }
        self.0.read();
        let mut rest = self.0.rest.borrow_mut();
        // After the rings were read: what is in none of them is in this number.
        self.0.times_full.set(self.0.outbox.times_full());
        if self.0.times_full.get() > 0 {
            out.push(Purge::all());
            rest.1 = rest.0.len();
            return;
        }
        rest.1 = max.min(rest.0.len());
        let count = rest.1;
        out.extend(rest.0[..count].iter().cloned());
    }

    fn sent(&self) {
        if self.0.batch.borrow().is_some() {
            return self.0.sent_of_file();
        }
        let times = self.0.times_full.take();
        if times > 0 {
            self.0.outbox.told_full(times);
        }
        let count = {
            let rest = self.0.rest.borrow();
            rest.1.min(rest.0.len())
        };
        self.0.done(count);
    }

    fn cursor(&self) -> Option<Cursor> {
        Cursor::from_text(&std::fs::read_to_string(self.0.file()).ok()?)
    }

    fn perform(&self, purges: Vec<Purge>, cursor: Cursor) {
        self.0.queue.borrow_mut().push_back((purges, cursor));
        if !self.0.is_busy.replace(true) {
            let own = self.0.clone();
            event::spawn(async move { own.make_all().await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_is_full_again_is_told_again() {
        let outbox = Outbox::new(1).unwrap();
        let fill = || {
            let before = outbox.times_full();
            while outbox.times_full() == before {
                outbox.add(0, &Purge::Key(vec![b'k'; 1000]));
            }
        };
        fill();
        let times = outbox.times_full();
        outbox.told_full(times);
        assert_eq!(outbox.times_full(), 0);
        fill();
        let times = outbox.times_full();
        fill();
        outbox.told_full(times);
        assert!(outbox.times_full() > 0, "a purge was lost after the engine was told");
    }
}
