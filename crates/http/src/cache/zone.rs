//! A cache as a process has it: its zone in shared memory, its folder and limits, and what this
//! worker holds of it.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use base::hash::Table;
use base::log::os_error;
use base::time::now_ms;
use bytes::Bytes;
use conf::{ConfError, Word};
use event::{Notify, Pool};
use proto::cache_index::Record;

use super::faults::{Cause, Faults};
use super::fill::Fill;
use super::key::{Hash, Layout};
use super::keys::{Count, Evicted, Keys, Room};
use super::store::{self, Memory};
use super::ticket::Status;
use super::waiters::Waiters;
use crate::cx::Cx;
use files::FileError;

/// How fast loader and manager work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    /// Files at a time.
    pub files: u64,
    /// The pause after them, milliseconds.
    pub sleep_ms: u64,
    /// How long they may take, milliseconds.
    pub threshold_ms: u64,
}

/// The parameters of a `*_cache_path`.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub layout: Layout,
    pub use_temp_path: bool,
    /// Seconds.
    pub inactive: u32,
    /// Bytes.
    pub max_size: Option<u64>,
    /// Bytes of the file system that are to stay free.
    pub min_free: u64,
    /// Bytes of bodies that a worker answers from its own memory.
    pub memory: usize,
    /// `None`: as fast as may be.
    pub loader: Option<Pace>,
    pub manager: Pace,
    /// How files of purged entries are deleted; `None`: as fast as may be.
    pub purger: Option<Pace>,
}

/// See the module's documentation.
pub struct Cache {
    /// The name of its zone.
    pub name: Bytes,
    pub(crate) settings: Settings,
    pub(crate) keys: Rc<Keys>,
    pub(crate) faults: Faults,
    pub(crate) waiters: Rc<Waiters>,
    pub(crate) memory: RefCell<Memory>,
    /// Responses on their way to this cache, by key.
    pub(crate) fills: RefCell<Table<Hash, Rc<Fill>>>,
    /// Less than `min_free` was left when a file was added last.
    is_low: Cell<bool>,
    /// Size of a block of its file system; 0 before it was asked for.
    block: Cell<u64>,
    /// Something was purged, or told to the index, or another process rang.
    pub(crate) stirred: Notify,
    /// When this process began.
    started_ms: Cell<u64>,
    /// This process hears its bell.
    is_heard: Cell<bool>,
    /// Wakes this worker's waiters; given to whoever fetches.
    pub(crate) told: Rc<dyn Fn(&Hash)>,
}

/// What a cache may take in any case before workers keep it within `max_size`, bytes: below that
/// it is the manager's, at its pace.
const LEAST: u64 = 1 << 20;

/// How long after its start a process waits for the loader, milliseconds.
const MARKS_MS: u64 = 2000;

/// How many entries a worker takes out at once to make room within `max_size`: those in the place
/// of which one large one comes may be many.
const EVICT_AT_ONCE: usize = 1024;

/// The same where the disk is too full.
const EVICT_WHERE_LOW: usize = 4;

/// What has to be there and to be done before a file may be written.
#[derive(Default)]
pub(crate) struct Admitted {
    /// Files to delete first.
    pub going: Vec<Hash>,
    /// Where so many bytes of a file system have to be free then, if that matters.
    pub free: Option<(PathBuf, u64)>,
}

impl Admitted {
    /// Deletes what is to go, and looks at the disk: whether there is room. For threads.
    pub fn settle(&self, layout: &Layout) -> (bool, Option<FileError>) {
        let failed = self.going.iter().filter_map(|hash| store::delete(layout, hash).err());
        let failed = failed.reduce(|first, _| first);
        let space = |(folder, least): &(PathBuf, u64)| {
            os::file::space(folder).is_ok_and(|space| space.available < *least)
        };
        (!self.free.as_ref().is_some_and(space), failed)
    }
}

/// What a cache is like at a moment, and what it did so far, over all processes.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name of its zone.
    pub name: Bytes,
    /// Keys that are known.
    pub entries: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// `max_size`, bytes.
    pub max_bytes: Option<u64>,
    /// Requests by `$upstream_cache_status`.
    pub requests: Vec<(&'static str, u64)>,
    /// Responses that were kept.
    pub fills: u64,
    /// Requests that waited for another's.
    pub waits: u64,
    /// Entries that made room for others.
    pub evictions: u64,
    /// Entries that nobody asked for in time.
    pub expired: u64,
    /// Responses that were not kept, as there was no room for them within the limits.
    pub no_room: u64,
    /// Requests that passed the cache by, or responses that were not kept, as something was wrong.
    pub faults: u64,
    /// The same by what was wrong.
    pub faults_by: Vec<(&'static str, u64)>,
    /// Entries that were purged.
    pub purged: u64,
    /// Entries that the index told of at the start.
    pub indexed: u64,
    /// Entries whose keys the index does not know yet.
    pub unindexed: u64,
    /// Files that the loader has met.
    pub loaded: u64,
    /// All files are known.
    pub is_loaded: bool,
}

impl Cache {
    /// What it is like now.
    pub fn report(&self) -> Report {
        let keys = &self.keys;
        let totals = keys.totals();
        let counted = |what: Count| keys.counted(what as usize);
        let requests = Status::ALL
            .iter()
            .filter_map(|s| s.text().map(|text| (text, keys.counted(*s as usize))));
        Report {
            name: self.name.clone(),
            entries: totals.entries as u64,
            bytes: totals.blocks * self.block(),
            max_bytes: self.settings.max_size,
            requests: requests.collect(),
            fills: counted(Count::Fills),
            waits: counted(Count::Waits),
            evictions: counted(Count::Evictions),
            expired: counted(Count::Expired),
            no_room: counted(Count::NoRoom),
            faults: counted(Count::Faults),
            faults_by: Cause::WRONG.iter().map(|(c, name)| (*name, keys.faults(*c))).collect(),
            purged: counted(Count::Purged),
            indexed: keys.indexed(),
            unindexed: keys.unknown(),
            loaded: keys.loaded(),
            is_loaded: keys.is_warm(),
        }
    }

    /// Makes a cache, or goes on with the zone that a configuration before had of it.
    pub(crate) fn make(
        cx: &mut Cx,
        name: &Bytes,
        bytes: usize,
        settings: Settings,
        at: &Word,
    ) -> Result<Cache, ConfError> {
        let shown = base::log::lossy(name).into_owned();
        let keys = match cx.env.zones.kept::<Keys>(name) {
            Some(kept) if kept.layout == settings.layout => kept,
            Some(kept) if kept.layout.folder == settings.layout.folder => {
                let m = format!("cache \"{shown}\" had previously different levels");
                return Err(ConfError::at(at, m));
            }
            Some(kept) => {
                let (now, old) = (settings.layout.folder.display(), kept.layout.folder.display());
                let m = format!(
                    "cache \"{shown}\" uses the \"{now}\" cache path while previously it used the \
                     \"{old}\" cache path"
                );
                return Err(ConfError::at(at, m));
            }
            None => {
                let env = &cx.env;
                let slots = env.slots();
                let made = env.bells.make(slots).and_then(|()| {
                    let layout = settings.layout.clone();
                    Keys::new(bytes, layout, env.bells.clone(), slots, env.connections)
                });
                let keys = made.map_err(|e| {
                    let m = format!("mmap(MAP_ANON|MAP_SHARED, {bytes}) failed {}", os_error(&e));
                    ConfError::at(at, m)
                })?;
                Rc::new(keys)
            }
        };
        cx.env.zones.put(name, keys.clone());
        let waiters = Rc::new(Waiters::default());
        let of_told = waiters.clone();
        Ok(Cache {
            name: name.clone(),
            memory: RefCell::new(Memory::new(settings.memory)),
            settings,
            keys,
            faults: Faults::default(),
            waiters,
            fills: RefCell::default(),
            is_low: Cell::new(false),
            block: Cell::new(0),
            stirred: Notify::new(),
            started_ms: Cell::new(0),
            is_heard: Cell::new(false),
            told: Rc::new(move |hash| of_told.wake(hash)),
        })
    }

    /// In a process that was forked, before it serves: its slot.
    pub(crate) fn use_slot(&self, slot: usize) {
        self.keys.use_slot(slot);
        self.started_ms.set(now_ms());
        // Asked of the file system once, where nobody waits for it yet.
        self.block();
    }

    /// Whether all files in its folder are known, or are being found out.
    pub(crate) fn is_known(&self) -> bool {
        self.keys.is_warm() || self.keys.is_loading()
    }

    /// Another process rang: wakes those whose wait is over.
    pub(crate) fn rung(&self) {
        self.waiters.look(&self.keys);
        self.fills.borrow().values().for_each(|fill| fill.asked_for());
        self.stirred.notify_all();
    }

    /// Whether this process hears its bell already; from now on it does.
    pub(crate) fn hears(&self) -> bool {
        self.is_heard.replace(true)
    }

    /// At a start, waits until it is known what was purged before, which the loader reads at first,
    /// and where that matters which files the index tells of. Whether the first is known then.
    pub(crate) async fn marks_are_known(&self) -> bool {
        let until = self.started_ms.get() + MARKS_MS;
        let keys = &self.keys;
        let is_known = || keys.is_marked() && (keys.marks.distrusted() == 0 || keys.is_read());
        while !is_known() && now_ms() < until {
            event::sleep(2).await;
        }
        keys.is_marked()
    }

    /// Tells whoever keeps the index. False where there is no room for it.
    pub(crate) fn tell_index(&self, record: &Record<'_>) -> bool {
        let told = self.keys.tell_index(record);
        self.stirred.notify_all();
        told
    }

    /// The same of an entry that is gone. Where there is no room for it, it is found out when the
    /// file is.
    pub(crate) fn tell_gone(&self, hash: &Hash) {
        self.tell_index(&Record::Gone(*hash));
    }

    /// Counts a request by what came of it.
    pub(crate) fn keys_count(&self, status: Status) {
        self.keys.count(status as usize);
    }

    /// Whether files are made in the module's folder for temporary files.
    pub(crate) fn uses_temp_path(&self) -> bool {
        self.settings.use_temp_path
    }

    /// Size of a block of the file system that the files are on, bytes.
    pub(crate) fn block(&self) -> u64 {
        if self.block.get() == 0 {
            let space = os::file::space(&self.settings.layout.folder);
            self.block.set(space.map_or(512, |s| s.block.max(512)));
        }
        self.block.get()
    }

    /// `max_size` in blocks.
    pub(crate) fn max_blocks(&self) -> Option<u64> {
        self.settings.max_size.map(|max| max / self.block())
    }

    /// Something is wrong: counts it, and says whether to tell of it.
    pub(crate) fn fault(&self, cause: Cause) -> bool {
        self.keys.count_fault(cause);
        self.faults.is_to_tell(cause)
    }

    /// The same, told without a request.
    #[cold]
    pub(crate) fn tell(&self, cause: Cause, message: std::fmt::Arguments<'_>) {
        if self.fault(cause) {
            let name = base::log::lossy(&self.name);
            let log = base::log::default();
            base::log!(log, cause.level(), None, "{message}, cache \"{name}\"");
        }
    }

    /// Deletes the files of entries that were taken out, in a thread.
    pub(crate) fn discard(self: &Rc<Cache>, evicted: Vec<Evicted>, pool: Option<&Pool>) {
        let mut memory = self.memory.borrow_mut();
        evicted.iter().for_each(|one| memory.forget(&one.hash));
        drop(memory);
        let files: Vec<_> = evicted.iter().filter(|e| e.file).map(|e| e.hash).collect();
        files.iter().for_each(|hash| self.tell_gone(hash));
        self.delete(files, pool);
    }

    /// Deletes files, in a thread.
    fn delete(self: &Rc<Cache>, files: Vec<Hash>, pool: Option<&Pool>) {
        if files.is_empty() {
            return;
        }
        let layout = self.settings.layout.clone();
        let task = move || store::delete_each(&layout, &files).1;
        let Some(pool) = pool.cloned() else {
            if let Some(e) = task() {
                self.tell(Cause::Delete, format_args!("{e}"));
            }
            return;
        };
        let cache = self.clone();
        event::spawn(async move {
            if let Ok(Some(e)) = pool.run(task).await {
                cache.tell(Cause::Delete, format_args!("{e}"));
            }
        });
    }

    /// The disk has less room than it is to keep, or not any more.
    pub(crate) fn is_low(&self, low: bool) {
        self.is_low.set(low);
    }

    /// A file is about to take `bytes` in all: takes entries out until it fits into `max_size`
    /// together with all others that are being written. Who adds it deletes theirs first, and so
    /// never faster than that. `None`: it does not fit.
    pub(crate) fn admit(self: &Rc<Cache>, room: &mut Room, bytes: u64) -> Option<Admitted> {
        let low = self.is_low.get();
        room.grow(bytes.div_ceil(self.block()));
        let writing = self.keys.writing();
        let most = self.settings.max_size.map(|max| max.max(LEAST) / self.block());
        let too_many = |blocks: u64| most.is_some_and(|most| blocks + writing > most);
        let mut evicted = Vec::new();
        if low {
            self.keys.evict(EVICT_WHERE_LOW, |_| true, &mut evicted);
        }
        // What is too large alone takes nobody's place.
        let fits = most.is_none_or(|most| bytes.div_ceil(self.block()) <= most);
        if fits && too_many(self.keys.blocks()) {
            self.keys.evict(EVICT_AT_ONCE, |t| too_many(t.blocks), &mut evicted);
        }
        let mut memory = self.memory.borrow_mut();
        evicted.iter().for_each(|one| memory.forget(&one.hash));
        drop(memory);
        let going: Vec<Hash> = evicted.iter().filter(|e| e.file).map(|e| e.hash).collect();
        going.iter().for_each(|hash| self.tell_gone(hash));
        let least = self.settings.min_free;
        let free = (least > 0).then(|| {
            let least = least.saturating_add(writing.saturating_mul(self.block()));
            (self.settings.layout.folder.clone(), least)
        });
        if !fits || too_many(self.keys.blocks()) {
            self.delete(going, Some(&event::pool::default()));
            return None;
        }
        Some(Admitted { going, free })
    }
}
