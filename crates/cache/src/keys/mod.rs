//! The zone of a cache in shared memory: the entries of all keys, for all processes.
//!
//! An entry takes one cell of 64 bytes, key and all. It has the size of the file, the time when it
//! expires unused, the lock of the request that fetches it, and the version of the file: a number
//! that changes with each file, so that a worker knows its own copy to be the file's while the
//! numbers are the same.
//!
//! ```text
//!  (none) ─visit─▶ asked for ─lock─▶ being fetched ─stored─▶ there ─stale─▶ there, being fetched
//!                     ▲                   │ released            │  ▲               │ stored
//!                     └───────────────────┴── released, gone ───┘  └───────────────┘ or released
//! ```

mod counters;
mod eviction;
mod files;
mod hold;
mod indexed;
mod loading;
mod node;
mod published;
mod rename;
mod reserved_blocks;
mod visit;

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::time::{now_ms, unix_ms, unix_secs};
use shm::{Bells, Counters, Entry, Journal, Locked, Rings, Table, Zone};

use self::node::Node;
use crate::key::Layout;
use crate::purge_marks::PurgeMarks;
use crate::streams::Streams;

use self::counters::COUNTS;
pub use self::counters::Count;
pub use self::eviction::Evicted;
pub(crate) use self::eviction::Totals;
pub use self::hold::{FetchLock, Hold};
pub(crate) use self::indexed::{IndexedEntry, Purged, ZoneEntry};
pub(crate) use self::node::{FAILED, NOT_STORED};
pub(crate) use self::published::PublishedFill;
pub(crate) use self::rename::{RenameRight, RenameTurn};
pub use self::reserved_blocks::ReservedBlocks;
pub use self::visit::{Seen, Visit};

/// Words beside the table.
#[derive(Clone, Copy)]
enum Word {
    /// Blocks of all files.
    Size,
    /// 1 when all files are known.
    Warm,
    /// The process that loads, 0 if none.
    Loading,
    /// The number of entries that is too large; 0 while the zone never was full.
    Watermark,
    /// The last version given.
    Version,
    /// Files that the loader has seen.
    Loaded,
    /// Entries with files whose keys the index does not know.
    Unknown,
    /// The process that keeps the index, 0 if none.
    Keeper,
    /// Not 0 if there may be variants of keys beside their first.
    Variants,
    /// 1 when purges that are not done are known.
    Marked,
    /// Entries that came from the index.
    Indexed,
    /// The order of the index that has the indexed entries; 0 if there is none.
    Index,
    /// 1 when the zone has the index's entries.
    Read,
    /// Flushes of the index requested.
    FlushesRequested,
    /// Flushes of the index done.
    FlushesDone,
    /// 1 when the last write to the journal failed.
    JournalFailed,
}

/// The zone of a cache.
pub struct Keys {
    table: Table<Node>,
    words: Zone,
    counts: [Counters; COUNTS / 8],
    /// Blocks that each process is about to write, by its slot.
    writing: Zone,
    journal: Journal,
    /// Files that each process is giving their places.
    placing: Journal,
    bells: Rc<Bells>,
    /// Responses on their way that workers show one another.
    pub streams: Streams,
    /// News for the index, from all processes.
    rings: Rings,
    /// The marks of purges.
    pub marks: PurgeMarks,
    /// The name of this zone in the files of the index: tenths of seconds when it was made, cut, so
    /// that a later one is greater.
    pub id: u32,
    /// Where the files are.
    pub layout: Layout,
    /// This process's slot.
    slot: Cell<usize>,
    mine: published::OwnFetches,
    /// Requests of this process that wait.
    waiting: Cell<usize>,
}

/// Fetches of a process that are noted, so that its death sets them free at once.
const JOURNAL_PLACES: usize = 16 << 10;

/// Bytes of news for the index that a process may be ahead.
const RING: usize = 256 << 10;

fn secs(t: i64) -> u32 {
    t.clamp(0, u32::MAX.into()) as u32
}

fn now_secs() -> u32 {
    secs(unix_secs() as i64)
}

/// Milliseconds until a point on the clock that was cut to 32 bits; 0 if it has passed.
fn until(point: u32) -> u64 {
    let left = point.wrapping_sub(now_ms() as u32) as i32;
    u64::try_from(left).unwrap_or(0)
}

#[cfg(test)]
impl Keys {
    /// A zone of a cache of which nothing is on a disk.
    fn for_tests(bytes: usize) -> Rc<Keys> {
        let bells = Rc::new(Bells::default());
        let layout = Layout { folder: "/nowhere".into(), levels: [0; 3] };
        Rc::new(Keys::new(bytes, layout, bells, 4, 10).unwrap())
    }
}

impl Keys {
    /// A zone of `bytes` bytes for the files of that layout, made before the fork.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(
        bytes: usize,
        layout: Layout,
        bells: Rc<Bells>,
        slots: usize,
        connections: usize,
    ) -> io::Result<Keys> {
        Ok(Keys {
            table: Table::new(bytes)?,
            words: Zone::anonymous(128)?,
            writing: Zone::anonymous(slots.max(1) * 8)?,
            counts: [Counters::new(slots)?, Counters::new(slots)?, Counters::new(slots)?],
            journal: Journal::new(slots, connections.min(JOURNAL_PLACES))?,
            placing: Journal::new(slots, JOURNAL_PLACES)?,
            streams: Streams::new(connections)?,
            bells,
            rings: Rings::new(slots, RING)?,
            marks: PurgeMarks::new()?,
            id: (unix_ms() / 100) as u32,
            layout,
            slot: Cell::new(0),
            mine: published::OwnFetches::default(),
            waiting: Cell::new(0),
        })
    }

    /// Sets the slot of a process that was forked.
    pub fn use_slot(&self, slot: usize) {
        self.slot.set(slot);
        self.writes_nothing(slot);
    }

    fn word(&self, word: Word) -> &AtomicU64 {
        &self.words.words()[word as usize]
    }

    fn get(&self, word: Word) -> u64 {
        self.word(word).load(Ordering::Relaxed)
    }

    fn lock(&self) -> Locked<'_, Node> {
        let t = self.table.lock();
        if t.recovered() {
            // A process died between an entry and the sum over all of them.
            let (mut sum, mut unknown) = (0, 0);
            let mut at = t.oldest();
            while let Some(entry) = at {
                if let Some(node) = t.value(entry) {
                    sum += u64::from(node.blocks);
                    unknown += u64::from(node.is_unknown());
                }
                at = t.newer(entry);
            }
            self.word(Word::Size).store(sum, Ordering::Relaxed);
            self.word(Word::Unknown).store(unknown, Ordering::Relaxed);
        }
        t
    }

    /// Counts an entry that was like `from` as it is now.
    fn recount(&self, from: &Node, to: &Node) {
        // Under the lock: no other process writes.
        let change = |word: Word, from: u64, to: u64| {
            if from != to {
                let sum = self.get(word).saturating_sub(from) + to;
                self.word(word).store(sum, Ordering::Relaxed);
            }
        };
        change(Word::Size, from.blocks.into(), to.blocks.into());
        change(Word::Unknown, from.is_unknown().into(), to.is_unknown().into());
    }

    /// Changes an entry that was like `from`.
    fn change(&self, t: &mut Locked<'_, Node>, entry: Entry, from: &Node, to: Node) {
        t.set(entry, to);
        self.recount(from, &to);
    }

    fn next_version(&self) -> u32 {
        // In one order with the marks of purges, of which some depend on it.
        match self.word(Word::Version).fetch_add(1, Ordering::SeqCst) as u32 {
            u32::MAX => self.next_version(),
            n => n + 1,
        }
    }

    /// A request of this process begins to wait for another process. Whether a bell will wake it.
    pub(crate) fn begins_waiting(&self) -> bool {
        let before = self.waiting.get();
        self.waiting.set(before + 1);
        if before == 0 {
            self.bells.listen(self.slot.get(), true);
        }
        self.bells.has(self.slot.get())
    }

    /// Such a request waits no more.
    pub(crate) fn stopped_waiting(&self) {
        let left = self.waiting.get().saturating_sub(1);
        self.waiting.set(left);
        if left == 0 {
            self.bells.listen(self.slot.get(), false);
        }
    }
}
