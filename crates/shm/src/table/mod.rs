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
//! All of it is atomics, so that whatever a process left behind when it died, every word is a
//! value; a number that leads out of the zone leads nowhere. The table is put in order again by the
//! next process that takes the lock: entries that were whole stay, chains are made anew.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::Zone;
use crate::mutex;
use crate::zone::{CACHE_LINE, Shared};

/// No cell: number 0 is the head.
const NONE: u32 = 0;

/// Words of a cell that hold the value and the first bytes of the key.
const DATA: usize = 5;

/// Longest key in bytes.
pub const KEY_MAX: usize = u16::MAX as usize;

#[repr(C, align(64))]
struct Cell {
    /// The key's hash; while the table is put in order, the entry that has claimed this cell.
    hash: AtomicU32,
    /// The next entry of the bucket; the next free cell.
    next: AtomicU32,
    newer: AtomicU32,
    older: AtomicU32,
    /// The first cell with more of the key; in such a cell, the next one.
    more: AtomicU32,
    /// What the cell is, its generation, and the length of the key: see [`Tag`].
    tag: AtomicU32,
    data: [AtomicU64; DATA],
}

/// The first cell.
#[repr(C, align(64))]
struct Head {
    lock: AtomicU32,
    newest: AtomicU32,
    oldest: AtomicU32,
    /// Cells that were given back.
    free: AtomicU32,
    free_count: AtomicU32,
    /// The first cell that was never used, as a number of cells from the first: memory is touched
    /// late.
    fresh: AtomicU32,
    entries: AtomicU32,
    rest: [AtomicU32; 9],
}

// SAFETY: atomics only, 24 + 40 bytes: no padding. Any bits are values.
unsafe impl Shared for Cell {}
// SAFETY: sixteen atomics of four bytes: no padding. Any bits are values.
unsafe impl Shared for Head {}

/// What a cell is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tag {
    kind: u8,
    generation: u8,
    key_len: u16,
}

const FREE: u8 = 0;
const ENTRY: u8 = 1;
const MORE: u8 = 2;

impl Tag {
    fn of(cell: &Cell) -> Tag {
        let [kind, generation, a, b] = cell.tag.load(Ordering::Relaxed).to_le_bytes();
        Tag { kind, generation, key_len: u16::from_le_bytes([a, b]) }
    }

    /// Written last by who makes an entry and first by who takes it away: until then, and from then
    /// on, the cell is free to a process that puts the table in order.
    fn put(self, cell: &Cell) {
        let [a, b] = self.key_len.to_le_bytes();
        fence(Ordering::Release);
        cell.tag.store(u32::from_le_bytes([self.kind, self.generation, a, b]), Ordering::Relaxed);
        fence(Ordering::Release);
    }
}

/// A value in a table: a few words. A process may die after it wrote some of them, so any mix of an
/// old and a new value has to be one too.
pub trait Record: Copy {
    /// How many words of a cell it takes, 1 to 4.
    const WORDS: usize;
    /// Its words; the rest of the row stays zero.
    fn to_words(self) -> [u64; 4];
    /// The value of these words, whatever they are.
    fn from_words(words: [u64; 4]) -> Self;
}

/// A table of values of type `R` by keys of bytes; see the module's documentation.
pub struct Table<R> {
    zone: Zone,
    hasher: RandomState,
    buckets: u32,
    /// The number of the first cell behind the buckets.
    first: u32,
    cells: u32,
    _values: PhantomData<fn(R) -> R>,
}

/// A key with its hash, which no client can foretell: the seed is made with the table.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    hash: u32,
    bytes: &'a [u8],
}

/// An entry's name. It stays good while the entry is there; later it names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    cell: u32,
    generation: u8,
}

impl Entry {
    /// The name as a word, never 0.
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.cell)
    }

    /// The name that is a word; 0 is none.
    pub(crate) fn from_word(word: u64) -> Option<Entry> {
        let entry = Entry { cell: word as u32, generation: (word >> 32) as u8 };
        (entry.cell != NONE).then_some(entry)
    }
}

/// There is not enough room for the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl<R: Record> Table<R> {
    const KEY_AT: usize = R::WORDS;
    /// How many bytes of the key are in an entry's own cell.
    const INLINE: usize = (DATA - R::WORDS) * 8;

    /// A table in a zone of its own of `bytes` bytes, made before the fork of those who share it.
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

    /// How many entries with short keys there is room for.
    pub fn capacity(&self) -> usize {
        self.cells as usize
    }

    /// Whether an empty table has room for a key of that length.
    pub fn fits(&self, key_len: usize) -> bool {
        Self::cells_more(key_len) < self.cells
    }

    /// Prepares a key; done before the lock is taken.
    ///
    /// # Panics
    /// Of a key longer than [`KEY_MAX`], in builds with assertions; elsewhere such a key is cut.
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        debug_assert!(bytes.len() <= KEY_MAX);
        let bytes = &bytes[..bytes.len().min(KEY_MAX)];
        let hash = self.hasher.hash_one(bytes);
        Key { hash: (hash ^ hash >> 32) as u32, bytes }
    }

    /// Takes the lock, waiting for it. Not to be held over anything that waits, nor taken twice.
    pub fn lock(&self) -> Locked<'_, R> {
        let recovered = mutex::lock(&self.head().lock);
        let mut locked = Locked { t: self, whole: true, recovered };
        if recovered {
            locked.put_in_order();
        }
        locked
    }

    /// Takes the lock away from a process that is dead.
    pub fn free_of(&self, dead: u32) {
        mutex::free_of(&self.head().lock, dead);
    }

    fn head(&self) -> &Head {
        &self.zone.view::<Head>()[0]
    }

    /// The cell of a number; of one that leads nowhere, none.
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

    /// How many cells hold the rest of a key.
    fn cells_more(key_len: usize) -> u32 {
        key_len.saturating_sub(Self::INLINE).div_ceil(DATA * 8) as u32
    }
}

/// A table whose lock this process has; given back when dropped.
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

fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

fn set(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Relaxed);
}

impl<'a, R: Record> Locked<'a, R> {
    /// Whether the process that had the lock before died with it, so that whatever is kept beside
    /// the table (sums over its entries) has to be made anew.
    pub fn recovered(&self) -> bool {
        self.recovered
    }

    /// How many entries there are.
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
        // No chain is longer than the table: a bound where a chain is a circle for some reason.
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
        if usize::from(tag.key_len) != key.len() {
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

    /// The key of an entry whose key has `N` bytes; `None` when the entry is gone, or has another.
    pub fn key_of<const N: usize>(&self, entry: Entry) -> Option<[u8; N]> {
        let cell = self.entry(entry)?;
        let mut bytes = Vec::with_capacity(N + CACHE_LINE);
        read(&cell.data[Table::<R>::KEY_AT..], &mut bytes);
        let mut number = get(&cell.more);
        for _ in 0..Table::<R>::cells_more(N) {
            let more = self.t.cell(number)?;
            read(&more.data, &mut bytes);
            number = get(&more.more);
        }
        let same = usize::from(Tag::of(cell).key_len) == N;
        bytes.get(..N).filter(|_| same)?.try_into().ok()
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

    /// The entry that was touched next after this one.
    pub fn newer(&self, entry: Entry) -> Option<Entry> {
        self.at(get(&self.entry(entry)?.newer))
    }

    /// The entry in the n-th of the cells that were ever [used](Self::used): to go through all of
    /// them, some at a time.
    pub fn nth(&self, n: u32) -> Option<Entry> {
        self.at(self.t.first.saturating_add(n))
    }

    /// How many cells were ever used.
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

    /// How many cells are left.
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
                // The count of free cells was wrong: something is not as it should be.
                self.whole = false;
                Err(Full)
            }
        }
    }

    fn give_cell(&mut self, number: u32, cell: &Cell) {
        let head = self.t.head();
        set(&cell.next, get(&head.free));
        set(&head.free, number);
        set(&head.free_count, get(&head.free_count) + 1);
    }

    /// Makes all chains anew after a process died in the middle of a change. Entries that were
    /// whole stay; their order of use is lost.
    #[cold]
    fn put_in_order(&mut self) {
        self.whole = false;
        let order = self.order_of_use();
        let (t, head) = (self.t, self.t.head());
        for bucket in 0..t.buckets {
            set(t.bucket(bucket), NONE);
        }
        for word in [&head.newest, &head.oldest, &head.free, &head.free_count, &head.entries] {
            set(word, NONE);
        }
        let fresh = get(&head.fresh).min(t.cells);
        set(&head.fresh, fresh);
        let used = || (t.first..t.first + fresh).filter_map(|n| Some((n, t.cell(n)?)));
        for (_, cell) in used().filter(|(_, cell)| Tag::of(cell).kind == MORE) {
            set(&cell.hash, NONE);
        }
        for (number, cell) in order.into_iter().filter_map(|n| Some((n, t.cell(n)?))) {
            let tag = Tag::of(cell);
            match self.claim(number, cell, tag) {
                true => self.link(number, cell),
                false => Tag { kind: FREE, ..tag }.put(cell),
            }
        }
        for (number, cell) in used() {
            let tag = Tag::of(cell);
            match tag.kind {
                ENTRY => continue,
                MORE if self.at(get(&cell.hash)).is_some() => continue,
                MORE => Tag { kind: FREE, ..tag }.put(cell),
                _ => {}
            }
            self.give_cell(number, cell);
        }
        self.whole = true;
    }

    /// All entries, the oldest first, as far as the chain tells. It is followed from both ends,
    /// since it may be broken in one place. An entry that neither way leads to was being made, or
    /// being made the newest.
    fn order_of_use(&self) -> Vec<u32> {
        let (t, head) = (self.t, self.t.head());
        let fresh = get(&head.fresh).min(t.cells);
        let is_entry = |number| t.cell(number).is_some_and(|cell| Tag::of(cell).kind == ENTRY);
        let mut seen = vec![false; fresh as usize];
        let mut walk = |from: &AtomicU32, next: fn(&Cell) -> &AtomicU32| {
            let (mut found, mut number) = (Vec::new(), get(from));
            while let Some(cell) = t.cell(number)
                && let Some(seen) = seen.get_mut((number - t.first) as usize)
                && is_entry(number)
                && !std::mem::replace(seen, true)
            {
                found.push(number);
                number = get(next(cell));
            }
            found
        };
        let newest = walk(&head.newest, |cell| &cell.older);
        let mut order = walk(&head.oldest, |cell| &cell.newer);
        let others = (t.first..t.first + fresh).zip(&seen).filter(|(_, seen)| !**seen);
        order.extend(newest.into_iter().rev());
        order.extend(others.map(|(number, _)| number).filter(|number| is_entry(*number)));
        order
    }

    /// Whether all cells of an entry's key are there and no other entry's, and hold a key of its
    /// hash; they are its own from then on.
    fn claim(&mut self, entry: u32, cell: &Cell, tag: Tag) -> bool {
        let mut key = Vec::with_capacity(usize::from(tag.key_len) + CACHE_LINE);
        read(&cell.data[Table::<R>::KEY_AT..], &mut key);
        let mut number = get(&cell.more);
        for _ in 0..Table::<R>::cells_more(tag.key_len.into()) {
            match self.t.cell(number) {
                Some(more) if Tag::of(more).kind == MORE && get(&more.hash) == NONE => {
                    set(&more.hash, entry);
                    read(&more.data, &mut key);
                    number = get(&more.more);
                }
                _ => return false,
            }
        }
        key.truncate(tag.key_len.into());
        self.t.key(&key).hash == get(&cell.hash)
    }
}

fn write_value<R: Record>(cell: &Cell, value: R) {
    for (to, word) in cell.data[..R::WORDS].iter().zip(value.to_words()) {
        to.store(word, Ordering::Relaxed);
    }
}

/// The bytes of a key as words, the last one filled up with zeroes.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

fn write(to: &[AtomicU64], bytes: &[u8]) {
    to.iter().zip(words(bytes)).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
}

fn read(data: &[AtomicU64], key: &mut Vec<u8>) {
    data.iter().for_each(|word| key.extend(word.load(Ordering::Relaxed).to_le_bytes()));
}

fn same(data: &[AtomicU64], bytes: &[u8]) -> bool {
    data.iter().zip(words(bytes)).all(|(have, word)| have.load(Ordering::Relaxed) == word)
}

#[cfg(test)]
mod tests;
