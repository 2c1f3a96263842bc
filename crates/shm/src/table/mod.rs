//! A table of keys and values that processes share: rate limits, connection counts, sessions.
//!
//! The zone is a row of cells of one cache line each. Cells are named by their number, never by an
//! address, so it does not matter where a process sees the zone.
//!
//! ```text
//!  ┌──────┬───────────┬──────┬──────┬──────┬──────┬─ ─ ─
//!  │ Head │  buckets  │ cell │ cell │ cell │ more │   an entry is a cell, and as many
//!  └──────┴───────────┴──────┴──────┴──────┴──────┴─ ─ ─   "more" as the rest of its key needs
//!    lock   bucket ──▶ next ──▶ next                       entries of one bucket
//!    newest ◀──▶ … ◀──▶ oldest                             entries by last use
//!    free ──▶ next ──▶ next                                cells that were used before
//! ```
//!
//! Entries may carry a payload, bytes of any length behind a key of fixed length.
//!
//! All of it is atomics: whatever a dead process left behind, every word is valid, and a number
//! outside the zone leads nowhere. The next process that takes the lock repairs the table: whole
//! entries stay, and the chains are built again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

use self::cell::{Cell, DATA, ENTRY, FREE, Head, MORE, NONE, Tag, get, read, same, set, write};
use crate::Zone;
use crate::mutex;
use crate::zone::CACHE_LINE;
use crate::zones::Fill;

mod cell;
mod repair;
#[cfg(test)]
mod tests;

/// Longest key in bytes.
pub const KEY_MAX: usize = u16::MAX as usize;

/// A value in a table: a few words. A process may die after it wrote some of them, so any mix of an
/// old and a new value must be valid, too.
pub trait Record: Copy {
    /// The words of a cell that it takes, 1 to 4.
    const WORDS: usize;
    /// For tables whose entries have a payload: the length of all keys in bytes. Bytes behind the
    /// key are the payload, which is neither hashed nor compared, and which is overwritten with
    /// zeroes when the entry goes.
    const KEY_LEN: usize = KEY_MAX;
    /// Whether each key is a hash of eight bytes or more that no client can predict: it is not
    /// hashed again.
    const KEY_IS_HASH: bool = false;
    /// Its words; the rest of the array stays zero.
    fn to_words(self) -> [u64; 4];
    /// The value of these words; any bits are valid.
    fn from_words(words: [u64; 4]) -> Self;
}

/// A table of values of type `R` by keys of bytes, shared by processes under one lock.
pub struct Table<R> {
    zone: Zone,
    hasher: RandomState,
    buckets: u32,
    /// The number of the first cell behind the buckets.
    first: u32,
    cells: u32,
    _values: PhantomData<fn(R) -> R>,
}

/// A key with its hash, which no client can predict: the seed is made with the table.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    hash: u32,
    bytes: &'a [u8],
}

/// A handle to an entry. It is valid while the entry is there; later it finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    cell: u32,
    generation: u8,
}

impl Entry {
    /// The number of its cell: below the table's bytes divided by 64, and no other living entry's.
    pub fn cell(self) -> usize {
        self.cell as usize
    }

    /// Differs between an entry and the one before it in the same cell.
    pub fn generation(self) -> u8 {
        self.generation
    }

    /// The handle as a word, never 0.
    pub fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.cell)
    }

    /// The handle that a word encodes; 0 encodes none.
    pub fn from_word(word: u64) -> Option<Entry> {
        let entry = Entry { cell: word as u32, generation: (word >> 32) as u8 };
        (entry.cell != NONE).then_some(entry)
    }
}

/// There is not enough room for the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl<R: Record> Table<R> {
    const KEY_AT: usize = R::WORDS;
    /// Bytes of the key in an entry's own cell.
    const INLINE: usize = (DATA - R::WORDS) * 8;
    const HAS_PAYLOAD: bool = R::KEY_LEN < KEY_MAX;

    /// A table in a zone of its own of `bytes` bytes, made before the fork of the processes that
    /// share it.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(bytes: usize) -> io::Result<Table<R>> {
        const { assert!(R::WORDS >= 1 && R::WORDS <= 4) };
        let zone = Zone::anonymous(bytes.max(16 * CACHE_LINE))?;
        let total = u32::try_from(zone.view::<Cell>().len()).unwrap_or(u32::MAX);
        // A full table has two entries a bucket.
        let buckets = (total / 2).max(2).next_power_of_two() / 2;
        let first = 1 + (buckets as usize * size_of::<AtomicU32>()).div_ceil(CACHE_LINE) as u32;
        let (hasher, cells) = (RandomState::new(), total.saturating_sub(first));
        Ok(Table { zone, hasher, buckets, first, cells, _values: PhantomData })
    }

    /// Length of the zone in bytes.
    pub fn bytes(&self) -> usize {
        self.zone.bytes()
    }

    /// The number of entries with short keys that there is room for.
    pub fn capacity(&self) -> usize {
        self.cells as usize
    }

    /// Whether an empty table has room for a key of that length.
    pub fn fits(&self, key_len: usize) -> bool {
        Self::cells_more(key_len) < self.cells
    }

    /// Prepares a key, with the payload behind it where one is to be inserted; done before the lock
    /// is taken.
    ///
    /// # Panics
    /// Of a key longer than [`KEY_MAX`], in builds with assertions; elsewhere such a key is cut.
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        debug_assert!(bytes.len() <= KEY_MAX);
        let bytes = &bytes[..bytes.len().min(KEY_MAX)];
        let hash = match bytes.first_chunk() {
            Some(hash) if R::KEY_IS_HASH => u64::from_le_bytes(*hash),
            _ => self.hasher.hash_one(&bytes[..bytes.len().min(R::KEY_LEN)]),
        };
        Key { hash: (hash ^ hash >> 32) as u32, bytes }
    }

    /// Takes the lock, waiting for it. Not to be held over anything that waits, nor taken twice.
    pub fn lock(&self) -> Locked<'_, R> {
        let recovered = mutex::lock(&self.head().lock);
        let mut locked = Locked { t: self, whole: true, recovered };
        if recovered {
            locked.repair();
        }
        locked
    }

    /// The cells in use and in all; read without the lock.
    pub fn fill(&self) -> Fill {
        let head = self.head();
        let free =
            get(&head.free_count).saturating_add(self.cells.saturating_sub(get(&head.fresh)));
        let capacity = self.cells as usize;
        Fill { used: capacity.saturating_sub(free as usize), capacity }
    }

    /// Takes the lock away from a dead process.
    pub fn free_of(&self, dead: u32) {
        mutex::free_of(&self.head().lock, dead);
    }

    fn head(&self) -> &Head {
        &self.zone.view::<Head>()[0]
    }

    /// The cell of a number, if the number is a cell's.
    fn cell(&self, number: u32) -> Option<&Cell> {
        if number < self.first {
            return None;
        }
        self.zone.view::<Cell>().get(number as usize)
    }

    fn bucket(&self, hash: u32) -> &AtomicU32 {
        let words = self.zone.view::<AtomicU32>();
        &words[CACHE_LINE / size_of::<AtomicU32>() + (hash & (self.buckets - 1)) as usize]
    }

    /// The number of cells for the rest of a key.
    fn cells_more(key_len: usize) -> u32 {
        key_len.saturating_sub(Self::INLINE).div_ceil(DATA * 8) as u32
    }
}

/// A table whose lock this process holds; dropping it releases the lock.
pub struct Locked<'a, R: Record> {
    t: &'a Table<R>,
    whole: bool,
    recovered: bool,
}

impl<R: Record> Drop for Locked<'_, R> {
    fn drop(&mut self) {
        let whole = self.whole && !std::thread::panicking();
        mutex::unlock(&self.t.head().lock, whole);
    }
}

impl<'a, R: Record> Locked<'a, R> {
    /// Whether the previous owner died with the lock: values kept beside the table (sums over its
    /// entries) must be computed again.
    pub fn recovered(&self) -> bool {
        self.recovered
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        get(&self.t.head().entries) as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry of a key.
    pub fn find(&self, key: Key<'_>) -> Option<Entry> {
        let mut number = get(self.t.bucket(key.hash));
        // No chain is longer than the table: a bound where a chain is circular for some reason.
        for _ in 0..=self.t.cells {
            let cell = self.t.cell(number)?;
            if get(&cell.hash) == key.hash {
                let tag = Tag::of(cell);
                if tag.kind == ENTRY && self.has_key(cell, tag, key.bytes) {
                    return Some(Entry { cell: number, generation: tag.generation });
                }
            }
            number = get(&cell.next);
        }
        None
    }

    fn has_key(&self, cell: &Cell, tag: Tag, key: &[u8]) -> bool {
        let key = &key[..key.len().min(R::KEY_LEN)];
        if usize::from(tag.key_len).min(R::KEY_LEN) != key.len() {
            return false;
        }
        let (own, mut rest) = key.split_at(key.len().min(Table::<R>::INLINE));
        if !same(&cell.data[Table::<R>::KEY_AT..], own) {
            return false;
        }
        let mut number = get(&cell.more);
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.len().min(DATA * 8));
            match self.t.cell(number) {
                Some(cell) if same(&cell.data, part) => number = get(&cell.more),
                _ => return false,
            }
            rest = behind;
        }
        true
    }

    /// Makes an entry, the newest, for a key that has none.
    ///
    /// # Errors
    /// [`Full`] when there is no room; nothing has changed then.
    pub fn insert(&mut self, key: Key<'_>, value: R) -> Result<Entry, Full> {
        let more = Table::<R>::cells_more(key.bytes.len());
        if self.room() <= more {
            return Err(Full);
        }
        let (number, cell) = self.take_cell()?;
        let (own, mut rest) = key.bytes.split_at(key.bytes.len().min(Table::<R>::INLINE));
        write(&cell.data[Table::<R>::KEY_AT..], own);
        let mut link = &cell.more;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.len().min(DATA * 8));
            let (number, cell) = self.take_cell()?;
            write(&cell.data, part);
            Tag { kind: MORE, ..Tag::of(cell) }.put(cell);
            set(link, number);
            link = &cell.more;
            rest = behind;
        }
        set(link, NONE);
        set(&cell.hash, key.hash);
        write_value(cell, value);
        let generation = Tag::of(cell).generation.wrapping_add(1);
        Tag { kind: ENTRY, generation, key_len: key.bytes.len() as u16 }.put(cell);
        self.link(number, cell);
        Ok(Entry { cell: number, generation })
    }

    fn link(&mut self, number: u32, cell: &Cell) {
        let head = self.t.head();
        let bucket = self.t.bucket(get(&cell.hash));
        set(&cell.next, get(bucket));
        set(bucket, number);
        self.link_newest(number, cell);
        set(&head.entries, get(&head.entries) + 1);
    }

    fn link_newest(&mut self, number: u32, cell: &Cell) {
        let head = self.t.head();
        let newest = get(&head.newest);
        set(&cell.older, newest);
        set(&cell.newer, NONE);
        match self.t.cell(newest) {
            Some(other) => set(&other.newer, number),
            None => set(&head.oldest, number),
        }
        set(&head.newest, number);
    }

    fn unlink_used(&mut self, cell: &Cell) {
        let head = self.t.head();
        let (newer, older) = (get(&cell.newer), get(&cell.older));
        match self.t.cell(newer) {
            Some(other) => set(&other.older, older),
            None => set(&head.newest, older),
        }
        match self.t.cell(older) {
            Some(other) => set(&other.newer, newer),
            None => set(&head.oldest, newer),
        }
    }

    /// The cell of an entry that is still there.
    fn entry(&self, entry: Entry) -> Option<&Cell> {
        let cell = self.t.cell(entry.cell)?;
        let tag = Tag::of(cell);
        (tag.kind == ENTRY && tag.generation == entry.generation).then_some(cell)
    }

    /// An entry's value; `None` when the entry is gone.
    pub fn value(&self, entry: Entry) -> Option<R> {
        let cell = self.entry(entry)?;
        let mut words = [0; 4];
        for (word, from) in words.iter_mut().zip(&cell.data[..R::WORDS]) {
            *word = from.load(Ordering::Relaxed);
        }
        Some(R::from_words(words))
    }

    /// The key of an entry whose key has `N` bytes; `None` when the entry is gone, or the key has
    /// another length.
    pub fn key_of<const N: usize>(&self, entry: Entry) -> Option<[u8; N]> {
        let bytes = self.bytes_of(entry)?;
        let key_len = bytes.len().min(R::KEY_LEN);
        bytes.get(..N).filter(|_| key_len == N)?.try_into().ok()
    }

    /// The payload of an entry: the bytes behind its key.
    pub fn payload(&self, entry: Entry) -> Option<Vec<u8>> {
        let mut bytes = self.bytes_of(entry)?;
        bytes.drain(..bytes.len().min(R::KEY_LEN));
        Some(bytes)
    }

    /// The key of an entry and its payload.
    pub fn bytes_of(&self, entry: Entry) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.copy(entry, &mut bytes).then_some(bytes)
    }

    /// Makes `bytes` the key of an entry and its payload; false when the entry is gone.
    pub fn copy(&self, entry: Entry, bytes: &mut Vec<u8>) -> bool {
        let Some(cell) = self.entry(entry) else { return false };
        let len = usize::from(Tag::of(cell).key_len);
        bytes.clear();
        bytes.reserve(len + CACHE_LINE);
        read(&cell.data[Table::<R>::KEY_AT..], bytes);
        let mut number = get(&cell.more);
        for _ in 0..Table::<R>::cells_more(len) {
            let Some(more) = self.t.cell(number) else { return false };
            read(&more.data, bytes);
            number = get(&more.more);
        }
        bytes.truncate(len);
        true
    }

    /// Gives an entry another value.
    pub fn set(&mut self, entry: Entry, value: R) {
        if let Some(cell) = self.entry(entry) {
            write_value(cell, value);
        }
    }

    /// Makes an entry the newest.
    pub fn touch(&mut self, entry: Entry) {
        if get(&self.t.head().newest) == entry.cell {
            return;
        }
        let t = self.t;
        if self.entry(entry).is_some()
            && let Some(cell) = t.cell(entry.cell)
        {
            self.unlink_used(cell);
            self.link_newest(entry.cell, cell);
        }
    }

    /// The entry that was made or touched longest ago.
    pub fn oldest(&self) -> Option<Entry> {
        self.at(get(&self.t.head().oldest))
    }

    /// The entry that was made or touched last.
    pub fn newest(&self) -> Option<Entry> {
        self.at(get(&self.t.head().newest))
    }

    /// The entry that was touched next before this one.
    pub fn older(&self, entry: Entry) -> Option<Entry> {
        self.at(get(&self.entry(entry)?.older))
    }

    /// The entry that was touched next after this one.
    pub fn newer(&self, entry: Entry) -> Option<Entry> {
        self.at(get(&self.entry(entry)?.newer))
    }

    /// The entry in the n-th of the cells that were ever [used](Self::used): to go through all of
    /// them, some at a time.
    pub fn nth(&self, n: u32) -> Option<Entry> {
        self.at(self.t.first.saturating_add(n))
    }

    /// The number of cells ever used.
    pub fn used(&self) -> u32 {
        get(&self.t.head().fresh)
    }

    fn at(&self, number: u32) -> Option<Entry> {
        let tag = Tag::of(self.t.cell(number)?);
        (tag.kind == ENTRY).then_some(Entry { cell: number, generation: tag.generation })
    }

    /// Takes an entry out.
    pub fn remove(&mut self, entry: Entry) {
        let t = self.t;
        if self.entry(entry).is_none() {
            return;
        }
        let Some(cell) = t.cell(entry.cell) else { return };
        let tag = Tag::of(cell);
        Tag { kind: FREE, ..tag }.put(cell);
        self.unlink_bucket(entry.cell, cell);
        self.unlink_used(cell);
        let head = t.head();
        set(&head.entries, get(&head.entries).saturating_sub(1));
        let mut number = get(&cell.more);
        self.give_cell(entry.cell, cell);
        for _ in 0..Table::<R>::cells_more(tag.key_len.into()) {
            let Some(cell) = t.cell(number) else { return };
            let next = get(&cell.more);
            Tag { kind: FREE, ..Tag::of(cell) }.put(cell);
            self.give_cell(number, cell);
            number = next;
        }
    }

    fn unlink_bucket(&mut self, number: u32, cell: &Cell) {
        let mut link = self.t.bucket(get(&cell.hash));
        for _ in 0..=self.t.cells {
            let at = get(link);
            if at == number {
                set(link, get(&cell.next));
                return;
            }
            match self.t.cell(at) {
                Some(other) => link = &other.next,
                None => return,
            }
        }
    }

    /// The number of free cells.
    fn room(&self) -> u32 {
        let head = self.t.head();
        get(&head.free_count).saturating_add(self.t.cells.saturating_sub(get(&head.fresh)))
    }

    /// A free cell, when there is [room](Self::room).
    fn take_cell(&mut self) -> Result<(u32, &'a Cell), Full> {
        let t = self.t;
        let head = t.head();
        let number = get(&head.free);
        if let Some(cell) = t.cell(number) {
            set(&head.free, get(&cell.next));
            set(&head.free_count, get(&head.free_count).saturating_sub(1));
            return Ok((number, cell));
        }
        let fresh = get(&head.fresh);
        match t.cell(t.first.saturating_add(fresh)) {
            Some(cell) if fresh < t.cells => {
                set(&head.fresh, fresh + 1);
                Ok((t.first + fresh, cell))
            }
            _ => {
                // The count of free cells was wrong: the table needs a repair.
                self.whole = false;
                Err(Full)
            }
        }
    }

    fn give_cell(&mut self, number: u32, cell: &Cell) {
        let head = self.t.head();
        if Table::<R>::HAS_PAYLOAD {
            cell.data.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        set(&cell.next, get(&head.free));
        set(&head.free, number);
        set(&head.free_count, get(&head.free_count) + 1);
    }
}

fn write_value<R: Record>(cell: &Cell, value: R) {
    for (to, word) in cell.data[..R::WORDS].iter().zip(value.to_words()) {
        to.store(word, Ordering::Relaxed);
    }
}
