//! A cache as a process has it: its zone in shared memory, its folder and limits, and the responses
//! that this worker holds.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use crate::index_format::Record;
use base::hash::Table;
use base::time::now_ms;
use bytes::Bytes;
use engine::metrics::RowId;
use event::{Notify, Pool};

use crate::faults::{FaultCause, Faults};
use crate::fill::Fill;
use crate::key::{Hash, Layout};
use crate::keys::{Count, Evicted, Keys, ReservedBlocks};
use crate::status::CacheStatus;
use crate::store::{self, ResponseMemory};
use crate::waiters::Waiters;
use files::FileError;

/// The pace of loader, manager and purger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Files at a time.
    pub files: u64,
    /// The pause after them, milliseconds.
    pub sleep_ms: u64,
    /// The time they may take, milliseconds.
    pub threshold_ms: u64,
}

/// The parameters of a `*_cache_path`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder and its levels.
    pub layout: Layout,
    /// Files are written in the module's folder for temporary files.
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
    /// The pace of the manager.
    pub manager: Pace,
    /// The pace of the purger; `None`: its own.
    pub purger: Option<Pace>,
}

/// A cache in this process: its zone in shared memory, its files and who waits for them.
pub struct Cache {
    /// The name of its zone.
    pub name: Bytes,
    /// The parameters of its `*_cache_path`.
    pub settings: Settings,
    /// Its zone.
    pub keys: Rc<Keys>,
    pub(crate) faults: Faults,
    /// The requests of this worker that wait.
    pub waiters: Rc<Waiters>,
    pub(crate) memory: RefCell<ResponseMemory>,
    /// Responses on their way to this cache, by key.
    pub fills: RefCell<Table<Hash, Rc<Fill>>>,
    /// Less than `min_free` was left when a file was added last.
    is_low: Cell<bool>,
    /// Its counters of bytes.
    pub row: OnceCell<RowId>,
    /// Size of a block of its file system; 0 before it was asked for.
    block: Cell<u64>,
    /// An entry was purged or reported to the index, or another process rang.
    pub stirred: Notify,
    /// The start of this process, milliseconds on the monotonic clock.
    started_ms: Cell<u64>,
    /// This process hears its bell.
    is_heard: Cell<bool>,
    /// Wakes this worker's waiters at the end of a fetch.
    pub wake: Rc<dyn Fn(&Hash)>,
    /// Other servers, if they share purges.
    pub shares: OnceCell<Sharing>,
}

/// See [`Sharing::add`].
pub type AddPurge = Box<dyn Fn(usize, &fleet::purges::Purge)>;

/// See [`Cache::shares`].
pub struct Sharing {
    /// Queues a purge for the other servers. Arguments: the slot of this process, which has a queue
    /// of its own, and the purge.
    pub add: AddPurge,
    /// Whether they cannot hear of it now.
    pub is_away: Box<dyn Fn() -> bool>,
}

/// The size below which workers do not enforce `max_size`, bytes: there the manager does, at its
/// pace.
const LEAST: u64 = 1 << 20;

/// The time after its start for which a process waits for the loader, milliseconds.
const MARKS_MS: u64 = 2000;

/// Entries that a worker takes out at once to make room within `max_size`: one large response may
/// need the room of many.
const EVICT_AT_ONCE: usize = 1024;

/// The same where the disk is too full.
const EVICT_WHERE_LOW: usize = 4;

/// The conditions for writing a file.
#[derive(Default)]
pub struct Admitted {
    /// Files to delete first.
    pub going: Vec<Hash>,
    /// Where so many bytes of a file system have to be free then, if that matters.
    pub free: Option<(PathBuf, u64)>,
}

impl Admitted {
    /// Deletes the files, and says whether the disk has room then. For threads.
    pub fn settle(&self, layout: &Layout) -> (bool, Option<FileError>) {
        let failed = self.going.iter().filter_map(|hash| store::delete(layout, hash).err());
        let failed = failed.reduce(|first, _| first);
        let space = |(folder, least): &(PathBuf, u64)| {
            os::file::space(folder).is_ok_and(|space| space.available < *least)
        };
        (!self.free.as_ref().is_some_and(space), failed)
    }
}

/// The state and the counters of a cache, over all processes.
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
    /// Entries that expired unused.
    pub expired: u64,
    /// Responses that were not kept, as there was no room for them within the limits.
    pub no_room: u64,
    /// Requests that passed the cache by, or responses that were not kept, as something was wrong.
    pub faults: u64,
    /// The same by their causes.
    pub faults_by: Vec<(&'static str, u64)>,
    /// Entries that were purged.
    pub purged: u64,
    /// Entries that came from the index at the start.
    pub indexed: u64,
    /// Entries whose keys the index does not know yet.
    pub unindexed: u64,
    /// Files that the loader has met.
    pub loaded: u64,
    /// All files are known.
    pub is_loaded: bool,
}

impl Cache {
    /// Its state and counters now.
    pub fn report(&self) -> Report {
        let keys = &self.keys;
        let totals = keys.totals();
        let counted = |what: Count| keys.counted(what as usize);
        let requests = CacheStatus::ALL
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
            faults_by: FaultCause::WRONG.iter().map(|(c, name)| (*name, keys.faults(*c))).collect(),
            purged: counted(Count::Purged),
            indexed: keys.indexed(),
            unindexed: keys.unknown(),
            loaded: keys.loaded(),
            is_loaded: keys.is_warm(),
        }
    }

    /// A cache over a zone of keys.
    pub fn new(name: &Bytes, keys: Rc<Keys>, settings: Settings) -> Cache {
        let waiters = Rc::new(Waiters::default());
        let of_wake = waiters.clone();
        Cache {
            name: name.clone(),
            memory: RefCell::new(ResponseMemory::new(settings.memory)),
            settings,
            keys,
            faults: Faults::default(),
            waiters,
            fills: RefCell::default(),
            is_low: Cell::new(false),
            row: OnceCell::new(),
            block: Cell::new(0),
            stirred: Notify::new(),
            started_ms: Cell::new(0),
            is_heard: Cell::new(false),
            wake: Rc::new(move |hash| of_wake.wake(hash)),
            shares: OnceCell::new(),
        }
    }

    /// In a process that was forked, before it serves: its slot.
    pub fn use_slot(&self, slot: usize) {
        self.keys.use_slot(slot);
        self.started_ms.set(now_ms());
        // The file system is asked once, while no request waits.
        self.block();
    }

    /// Whether all files in its folder are known, or are being found out.
    pub fn is_known(&self) -> bool {
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

    /// At a start, waits until the loader has read the purges of before, and, where that matters,
    /// the entries of the index. Whether the purges are known then.
    pub async fn marks_are_known(&self) -> bool {
        let until = self.started_ms.get() + MARKS_MS;
        let keys = &self.keys;
        let is_known = || keys.is_marked() && (keys.marks.distrusted() == 0 || keys.is_read());
        while !is_known() && now_ms() < until {
            event::sleep(2).await;
        }
        keys.is_marked()
    }

    /// Reports to the keeper of the index. False where the ring is full.
    pub(crate) fn tell_index(&self, record: &Record<'_>) -> bool {
        let told = self.keys.tell_index(record);
        self.stirred.notify_all();
        told
    }

    /// Reports an entry that is gone. Where the ring is full, the loss is found out when the file
    /// is.
    pub(crate) fn tell_gone(&self, hash: &Hash) {
        self.tell_index(&Record::Gone(*hash));
    }

    /// Counts a request by its status.
    pub fn keys_count(&self, status: CacheStatus) {
        self.keys.count(status as usize);
    }

    /// Whether files are made in the module's folder for temporary files.
    pub fn uses_temp_path(&self) -> bool {
        self.settings.use_temp_path
    }

    /// Size of a block of the file system that the files are on, bytes.
    pub fn block(&self) -> u64 {
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
    pub fn fault(&self, cause: FaultCause) -> bool {
        self.keys.count_fault(cause);
        self.faults.is_to_tell(cause)
    }

    /// Counts a fault, and logs it where it is due.
    #[cold]
    pub fn tell(&self, cause: FaultCause, message: std::fmt::Arguments<'_>) {
        if self.fault(cause) {
            let name = base::log::lossy(&self.name);
            let log = base::log::default();
            base::log!(log, cause.level(), None, "{message}, cache \"{name}\"");
        }
    }

    /// Deletes the files of entries that were taken out, in a thread.
    pub fn discard(self: &Rc<Cache>, evicted: Vec<Evicted>, pool: Option<&Pool>) {
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
                self.tell(FaultCause::Delete, format_args!("{e}"));
            }
            return;
        };
        let cache = self.clone();
        event::spawn(async move {
            if let Ok(Some(e)) = pool.run(task).await {
                cache.tell(FaultCause::Delete, format_args!("{e}"));
            }
        });
    }

    /// The disk has less room than it is to keep, or not any more.
    pub fn is_low(&self, low: bool) {
        self.is_low.set(low);
    }

    /// A file is about to take `bytes` in all: takes entries out until it fits into `max_size`
    /// together with all others that are being written. Who adds it deletes theirs first, and so
    /// never faster than that. `None`: it does not fit.
    pub fn admit(self: &Rc<Cache>, room: &mut ReservedBlocks, bytes: u64) -> Option<Admitted> {
        let low = self.is_low.get();
        room.grow(bytes.div_ceil(self.block()));
        let writing = self.keys.writing();
        let most = self.settings.max_size.map(|max| max.max(LEAST) / self.block());
        let too_many = |blocks: u64| most.is_some_and(|most| blocks + writing > most);
        let mut evicted = Vec::new();
        if low {
            self.keys.evict(EVICT_WHERE_LOW, |_| true, &mut evicted);
        }
        // A response that is too large by itself evicts no other.
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
