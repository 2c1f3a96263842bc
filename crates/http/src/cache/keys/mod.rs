//! The zone of a cache in shared memory: what all processes know of each key.
//!
//! An entry takes one cell of 64 bytes, key and all. It says how large the file is, when it is to
//! go if nobody asks for it, whether somebody fetches it, and of which version it is: a number that
//! changes with each file, so that what a worker holds in its own memory is known to be the file's
//! while the numbers are the same.
//!
//! ```text
//!  (none) ─visit─▶ asked for ─lock─▶ being fetched ─stored─▶ there ─stale─▶ there, being fetched
//!                     ▲                   │ released            │  ▲               │ stored
//!                     └───────────────────┴── released, gone ───┘  └───────────────┘ or released
//! ```

mod invalid;

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::time::{now_ms, unix_ms, unix_secs};
use shm::{Bells, Counters, Entry, Journal, Locked, Record, Rings, Table, Zone};

use super::key::{Hash, Layout};
use super::marks::Marks;
use super::streams::Streams;
use super::ticket::Status;

mod hold;
mod known;
mod placing;
mod room;
mod showing;

pub(crate) use hold::{Hold, Lock};
pub(crate) use known::{Known, Meta, Purged};
pub(crate) use placing::{Placing, Turn};
pub(crate) use room::Room;
pub(crate) use showing::Showing;

/// There is a file.
const THERE: u8 = 1;
/// Somebody fetches it.
const UPDATING: u8 = 2;
/// Somebody in another process than the one that fetches it waits for the end of that, or did.
const AWAITED: u8 = 4;
/// The index knows its key and its tags, or will in a moment.
const KNOWN: u8 = 8;
/// The index says that there is a file; nobody has seen it yet.
const UNSEEN: u8 = 16;
/// The index told of the file at the start.
const TOLD: u8 = 32;
/// A file is being given its place: nobody knows whether it has it.
const PLACING: u8 = 64;

/// How often an entry was asked for is counted up to here.
const USES_MAX: u16 = 1023;

/// What is known of a key.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Node {
    /// Size of the file in blocks of the file system.
    blocks: u32,
    /// When it is to go if nobody asks for it, seconds since 1970.
    expire: u32,
    /// The file's version; 0 is unknown. Of a file that nobody has seen, by what the index knows it
    /// again.
    version: u32,
    /// Until when the lock is respected, on the monotonic clock, cut; and the name of who has it.
    lock: u32,
    uses: u16,
    /// A status to answer with instead of asking the upstream; 0 is none.
    error: u16,
    flags: u8,
    /// Until when `error` is good, seconds since 1970.
    error_until: u32,
}

impl Record for Node {
    const WORDS: usize = 3;

    fn to_words(self) -> [u64; 4] {
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let rest = u32::from(self.uses & USES_MAX)
            | u32::from(self.error & 1023) << 10
            | u32::from(self.flags) << 20;
        [
            pair(self.blocks, self.expire),
            pair(self.version, self.lock),
            pair(rest, self.error_until),
            0,
        ]
    }

    fn from_words([a, b, c, _]: [u64; 4]) -> Node {
        Node {
            blocks: a as u32,
            expire: (a >> 32) as u32,
            version: b as u32,
            lock: (b >> 32) as u32,
            uses: c as u16 & USES_MAX,
            error: (c >> 10) as u16 & 1023,
            flags: (c >> 20) as u8,
            error_until: (c >> 32) as u32,
        }
    }
}

impl Node {
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The same without its file.
    fn without_file(self) -> Node {
        let flags = self.flags & !(THERE | KNOWN | UNSEEN | TOLD);
        Node { blocks: 0, version: 0, flags, ..self }
    }

    /// The file's version.
    fn file_version(&self) -> u32 {
        if self.has(UNSEEN) { 0 } else { self.version }
    }

    /// Whether the index told of that file: of one that was seen it did, or not.
    fn is_told_of(&self, file: u32) -> bool {
        self.has(TOLD) && (!self.has(UNSEEN) || self.version == file)
    }

    /// The same when a file was seen, by what it is known again. If the index told of another one
    /// nobody knows its tags.
    fn seen(self, file: u32) -> Node {
        let unknown = if self.has(UNSEEN) && self.version != file { KNOWN | TOLD } else { 0 };
        let (version, flags) = (self.file_version(), self.flags & !(UNSEEN | unknown) | THERE);
        Node { version, flags, ..self }
    }

    /// Somebody fetches it, or gives its file a place: the entry stays.
    fn is_in_use(&self) -> bool {
        self.flags & (UPDATING | PLACING) != 0
    }

    /// The same, as far as that is respected.
    fn is_busy(&self) -> bool {
        self.has(PLACING) || self.has(UPDATING) && until(self.lock) > 0
    }

    /// There is a file whose key the index does not know.
    fn is_unknown(&self) -> bool {
        self.flags & (THERE | KNOWN) == THERE
    }
}

/// What a zone counts; the first are the statuses of requests ([`super::Status`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Count {
    /// Responses that were kept.
    Fills = 8,
    /// Requests that waited for another's fill.
    Waits,
    /// Entries that made room for others.
    Evictions,
    /// Entries that nobody asked for any more.
    Expired,
    /// Requests that passed the cache by because something was wrong with it.
    Faults,
    /// Entries that were purged.
    Purged,
    /// Responses that were not kept, as there was no room for them within the limits.
    NoRoom,
}

/// How many counters a zone has.
const COUNTS: usize = 24;

/// Words beside the table.
#[derive(Clone, Copy)]
enum Word {
    /// Blocks of all files.
    Size,
    /// 1 when all files are known.
    Warm,
    /// The process that loads, 0 if none.
    Loading,
    /// How many entries are too many; 0 while the zone never was full.
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
    /// Entries that the index told of.
    Indexed,
    /// Which index it is that tells of the known entries; 0 if none is to.
    Index,
    /// 1 when what the index told of is in the zone.
    Read,
    /// How often it was wanted that all that was told to the index is on the disk.
    SureWanted,
    /// Up to which of these it is.
    SureDone,
    /// 1 when the disk did not take what was written last.
    Unwritten,
}

/// See the module's documentation.
pub(crate) struct Keys {
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
    /// What the index is to know, from all processes.
    rings: Rings,
    /// What was purged.
    pub marks: Marks,
    /// The name of this zone in the files of the index: tenths of seconds when it was made, cut, so
    /// that a later one is greater.
    pub id: u32,
    /// Where the files are.
    pub layout: Layout,
    /// This process's slot.
    slot: Cell<usize>,
    mine: showing::Mine,
    /// Requests of this process that wait.
    waiting: Cell<usize>,
}

/// How many fetches of a process are noted, so that its death sets them free at once.
const JOURNAL_PLACES: usize = 16 << 10;

/// Bytes of news for the index that a process may be ahead.
const RING: usize = 256 << 10;

/// What there is of a key that a request asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Visit {
    /// A status is kept instead of a response.
    Error(u16),
    /// There is a file.
    There(Seen),
    /// There is none. `maybe`: but that is not certain, as the folder was not read yet.
    Absent {
        /// See above.
        maybe: bool,
        /// It was not asked for often enough to be kept.
        scarce: bool,
    },
    /// The zone is full, and nothing in it can go.
    Full,
}

/// What the zone tells of a file before it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// Its version; 0: whoever opens it finds out.
    pub version: u32,
    /// Purges that came later may be of it: [`Marks::settled`].
    pub settled: u64,
}

/// A file that is to be deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Evicted {
    /// Its name.
    pub hash: Hash,
    /// Whether there is a file at all.
    pub file: bool,
}

/// What a zone is like at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Totals {
    /// Blocks of all files.
    pub blocks: u64,
    /// Entries.
    pub entries: usize,
    /// See [`Word::Watermark`].
    pub watermark: usize,
}

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
            marks: Marks::new()?,
            id: (unix_ms() / 100) as u32,
            layout,
            slot: Cell::new(0),
            mine: showing::Mine::default(),
            waiting: Cell::new(0),
        })
    }

    /// In a process that was forked: which slot it has.
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
        // Under the lock: nobody else writes.
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

    /// A request of this process begins to wait for what another process may do. Whether it will
    /// be told.
    pub fn begins_waiting(&self) -> bool {
        let before = self.waiting.get();
        self.waiting.set(before + 1);
        if before == 0 {
            self.bells.listen(self.slot.get(), true);
        }
        self.bells.has(self.slot.get())
    }

    /// Such a request waits no more.
    pub fn stopped_waiting(&self) {
        let left = self.waiting.get().saturating_sub(1);
        self.waiting.set(left);
        if left == 0 {
            self.bells.listen(self.slot.get(), false);
        }
    }

    /// Counts something.
    pub fn count(&self, what: usize) {
        let line = self.counts[what / 8 % self.counts.len()].line(self.slot.get());
        line.add(what % 8, 1);
    }

    /// What was counted over all processes.
    pub fn counted(&self, what: usize) -> u64 {
        self.counts[what / 8 % self.counts.len()].sum(what % 8)
    }

    /// How often the cache was asked, over all processes.
    pub fn asked(&self) -> u64 {
        Status::ALL.iter().map(|status| self.counted(*status as usize)).sum()
    }

    /// A request asks for a key. `again`: it did so before, and is not counted twice. What had to
    /// go to make room is added to `evicted`.
    pub fn visit(
        &self,
        hash: &Hash,
        min_uses: u16,
        inactive: u32,
        again: bool,
        evicted: &mut Vec<Evicted>,
    ) -> Visit {
        let key = self.table.key(hash);
        // Asked before the entry: what is settled later may be of what comes into its place.
        let settled = self.marks.settled();
        let mut t = self.lock();
        let now = now_secs();
        let expire = now.saturating_add(inactive);
        let maybe = self.get(Word::Warm) == 0;
        let absent = |node: &Node| {
            // What is about to get its place is not to be met before it is taken in.
            let maybe = maybe && !node.has(PLACING);
            Visit::Absent { maybe, scarce: node.uses < min_uses }
        };
        let found = t.find(key).and_then(|entry| Some((entry, t.value(entry)?)));
        if let Some((entry, mut node)) = found {
            if !again {
                node.uses = (node.uses + 1).min(USES_MAX);
            }
            node.expire = expire;
            if node.error != 0 && node.error_until < now {
                node.error = 0;
            }
            t.set(entry, node);
            t.touch(entry);
            return match node {
                Node { error, .. } if error != 0 => Visit::Error(error),
                _ if node.has(THERE) => {
                    let version = node.file_version();
                    // It may be another file already, of which purges are that were not of this.
                    let settled = if node.has(PLACING) { 0 } else { settled };
                    Visit::There(Seen { version, settled })
                }
                _ => absent(&node),
            };
        }
        let node = Node { expire, uses: 1, ..Node::default() };
        match self.insert(&mut t, hash, node, evicted) {
            Some(_) => absent(&node),
            None => Visit::Full,
        }
    }

    /// Makes an entry, in the place of the oldest ones where there is no room.
    fn insert(
        &self,
        t: &mut Locked<'_, Node>,
        hash: &Hash,
        node: Node,
        evicted: &mut Vec<Evicted>,
    ) -> Option<Entry> {
        let key = self.table.key(hash);
        if let Ok(entry) = t.insert(key, node) {
            return Some(entry);
        }
        let len = t.len() as u64;
        self.word(Word::Watermark).store((len - len / 8).max(1), Ordering::Relaxed);
        evicted.push(self.evict_one(t)?);
        t.insert(key, node).ok()
    }

    /// How many entries that are being fetched are passed over to find one that can go.
    const PASSED_OVER: usize = 20;

    fn evict_one(&self, t: &mut Locked<'_, Node>) -> Option<Evicted> {
        let mut at = t.oldest();
        for _ in 0..Self::PASSED_OVER {
            let entry = at?;
            let node = t.value(entry)?;
            if !node.is_busy() {
                return self.remove_entry(t, entry, node);
            }
            at = t.newer(entry);
        }
        None
    }

    fn remove_entry(&self, t: &mut Locked<'_, Node>, entry: Entry, node: Node) -> Option<Evicted> {
        let hash = t.key_of(entry)?;
        self.recount(&node, &Node::default());
        t.remove(entry);
        Some(Evicted { hash, file: node.has(THERE) })
    }

    /// Takes out the oldest entries: `count` of them at most, and as long as `more` says so.
    pub fn evict(&self, count: usize, more: impl Fn(&Totals) -> bool, evicted: &mut Vec<Evicted>) {
        let mut t = self.lock();
        for _ in 0..count {
            if !more(&self.totals_of(&t)) {
                return;
            }
            match self.evict_one(&mut t) {
                Some(one) => evicted.push(one),
                None => return,
            }
            self.count(Count::Evictions as usize);
        }
    }

    /// Takes out entries that nobody asked for in time: `count` of them at most. Gives the seconds
    /// until the next one is due; `None` where there is no entry.
    pub fn expire(&self, count: usize, evicted: &mut Vec<Evicted>) -> Option<u32> {
        let mut t = self.lock();
        let now = now_secs();
        for _ in 0..count {
            let entry = t.oldest()?;
            let mut node = t.value(entry)?;
            if node.expire > now {
                return Some(node.expire - now);
            }
            if node.is_busy() {
                // Somebody fetches it: it is not that old.
                node.expire = now.saturating_add(1);
                t.set(entry, node);
                t.touch(entry);
                continue;
            }
            evicted.extend(self.remove_entry(&mut t, entry, node));
            self.count(Count::Expired as usize);
        }
        Some(0)
    }

    fn totals_of(&self, t: &Locked<'_, Node>) -> Totals {
        Totals {
            blocks: self.get(Word::Size),
            entries: t.len(),
            watermark: self.get(Word::Watermark) as usize,
        }
    }

    /// What the zone is like now.
    pub fn totals(&self) -> Totals {
        self.totals_of(&self.lock())
    }

    /// Blocks of all files, as far as they are known: without the lock.
    pub fn blocks(&self) -> u64 {
        self.get(Word::Size)
    }

    /// A file was opened of which no version was known, and is known again by `file`: gives the
    /// version that it has from now on; 0 where another one came into its place, or it was purged,
    /// which is asked under the lock.
    pub fn opened(
        &self,
        hash: &Hash,
        blocks: u32,
        file: u32,
        is_purged: impl FnOnce() -> bool,
    ) -> u32 {
        self.found(hash, |node| {
            let is_it = node.file_version() == 0 && !is_purged();
            is_it.then(|| Node { blocks, ..node.seen(file) })
        })
    }

    /// The header of a file was changed by who has its turn: the same.
    pub fn renewed(&self, hash: &Hash, blocks: u32, is_purged: impl FnOnce() -> bool) -> u32 {
        self.found(hash, |node| {
            let flags = node.flags & !UNSEEN | THERE;
            (!is_purged()).then_some(Node { blocks, flags, ..node })
        })
    }

    fn found(&self, hash: &Hash, change: impl FnOnce(Node) -> Option<Node>) -> u32 {
        let version = self.next_version();
        let mut t = self.lock();
        let Some(entry) = t.find(self.table.key(hash)) else { return 0 };
        let Some(old) = t.value(entry) else { return 0 };
        let Some(node) = change(old) else { return 0 };
        self.change(&mut t, entry, &old, Node { version, ..node });
        version
    }

    /// There is no file although the zone said so, when it was of that version. Whether that is
    /// news.
    pub fn gone(&self, hash: &Hash, version: u32) -> bool {
        let mut t = self.lock();
        let found = t.find(self.table.key(hash)).and_then(|e| Some((e, t.value(e)?)));
        let Some((entry, node)) =
            found.filter(|(_, n)| n.has(THERE) && n.file_version() == version)
        else {
            return false;
        };
        self.change(&mut t, entry, &node, node.without_file());
        true
    }

    /// The loader met a file, which is known again by `file`. False where there is no room for it.
    pub fn add(&self, hash: &Hash, blocks: u32, file: u32, inactive: u32) -> bool {
        let mut t = self.lock();
        let expire = now_secs().saturating_add(inactive);
        let key = self.table.key(hash);
        let found = t.find(key).and_then(|entry| Some((entry, t.value(entry)?)));
        let done = match found {
            Some((_, node)) if node.has(THERE) && !node.has(UNSEEN) => true,
            // Whoever gives it its place tells of it.
            Some((_, node)) if node.has(PLACING) => true,
            Some((entry, node)) => {
                self.change(&mut t, entry, &node, Node { blocks, ..node.seen(file) });
                true
            }
            None => {
                let node = Node { blocks, expire, uses: 1, flags: THERE, ..Node::default() };
                let added = t.insert(key, node).is_ok();
                match added {
                    true => self.recount(&Node::default(), &node),
                    false => {
                        let len = t.len() as u64;
                        let mark = (len - len / 8).max(1);
                        self.word(Word::Watermark).store(mark, Ordering::Relaxed);
                    }
                }
                added
            }
        };
        drop(t);
        self.word(Word::Loaded).fetch_add(1, Ordering::Relaxed);
        done
    }

    /// Whether all files are known.
    pub fn is_warm(&self) -> bool {
        self.get(Word::Warm) != 0
    }

    /// Whether they are being found out.
    pub fn is_loading(&self) -> bool {
        self.get(Word::Loading) != 0
    }

    /// Files that the loader has met so far.
    pub fn loaded(&self) -> u64 {
        self.get(Word::Loaded)
    }

    /// Begins to load for the process `pid`; false where another does so, or did.
    pub fn begin_loading(&self, pid: u32) -> bool {
        let word = self.word(Word::Loading);
        !self.is_warm()
            && word.compare_exchange(0, pid.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Loading ended; `whole`: all files were met.
    pub fn end_loading(&self, whole: bool) {
        if whole {
            self.word(Word::Warm).store(1, Ordering::Release);
        }
        self.word(Word::Loading).store(0, Ordering::Release);
    }
}
