//! Dynamic tables (RFC 7541 sections 2.3.2 and 4, RFC 9204 section 3.2).
//!
//! ```text
//! text   ░░░░ name value name value name value        one string, oldest entry first;
//!        base └─ oldest                               what lies before the oldest is dead
//! cells  [ | | | | | | | ]                            a ring: entry number n in cell n % len
//! ```
//!
//! Entries are numbered as they come. An entry's age is 1 for the newest: its index is its age
//! behind the static table. Numbers and positions wrap; only differences count.

use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that an entry counts beside its text (RFC 7541 section 4.1).
const OVERHEAD: usize = 32;

/// Longer names are shared between the entries that refer to them: a literal of two bytes that
/// takes its name from an entry would copy up to the whole table otherwise.
pub(crate) const NAME_COPIED_MAX: usize = 64;

/// Cells of the first allocation.
const CELLS_MIN: usize = 8;

/// Bytes of text of the first allocation.
const TEXT_MIN: usize = 128;

/// The largest table: positions have 32 bits.
const SIZE_MAX: usize = 1 << 30;

/// A dynamic table; `X` is what the owner keeps for a cell.
pub(crate) struct Table<X> {
    text: Vec<u8>,
    /// Position of the text's first byte.
    base: u32,
    cells: Vec<Cell<X>>,
    /// Number of the next entry.
    next: u32,
    /// Entries present.
    len: u32,
    /// Their size, as RFC 7541 section 4.1 has it.
    size: usize,
    size_max: usize,
    /// Names longer than `NAME_COPIED_MAX`, oldest first, with the numbers of their entries.
    long_names: VecDeque<(u32, Arc<[u8]>)>,
}

#[derive(Clone, Copy, Default)]
struct Cell<X> {
    at: u32,
    name_len: u32,
    value_len: u32,
    extra: X,
}

impl<X> Cell<X> {
    /// Bytes of the name that lie in the table's text.
    fn name_here(&self) -> usize {
        if self.has_long_name() { 0 } else { self.name_len as usize }
    }

    fn has_long_name(&self) -> bool {
        self.name_len as usize > NAME_COPIED_MAX
    }
}

impl<X: Copy + Default> Table<X> {
    pub fn new(size_max: usize) -> Table<X> {
        Table {
            text: Vec::new(),
            base: 0,
            cells: Vec::new(),
            next: 0,
            len: 0,
            size: 0,
            size_max: size_max.min(SIZE_MAX),
            long_names: VecDeque::new(),
        }
    }

    /// Whether a field fits.
    pub fn fits(&self, name: &[u8], value: &[u8]) -> bool {
        name.len() + value.len() + OVERHEAD <= self.size_max
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn size_max(&self) -> usize {
        self.size_max
    }

    /// Numbers of the entries, oldest first.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + use<X> {
        let oldest = self.next.wrapping_sub(self.len);
        (0..self.len).map(move |n| oldest.wrapping_add(n))
    }

    /// The number of the newest entry.
    pub fn newest(&self) -> Option<u32> {
        (self.len > 0).then(|| self.next.wrapping_sub(1))
    }

    /// The age of the entry with this number, if it is present.
    #[inline]
    pub fn age(&self, number: u32) -> Option<usize> {
        let age = self.next.wrapping_sub(number);
        (age.wrapping_sub(1) < self.len).then_some(age as usize)
    }

    /// The word that the owner keeps in the cell that a number or hash falls on; none before any
    /// entry.
    #[inline]
    pub fn extra(&self, number: u32) -> Option<&X> {
        let mask = self.cells.len().wrapping_sub(1);
        self.cells.get(number as usize & mask).map(|cell| &cell.extra)
    }

    #[inline]
    pub(crate) fn extra_mut(&mut self, number: u32) -> Option<&mut X> {
        let mask = self.cells.len().wrapping_sub(1);
        self.cells.get_mut(number as usize & mask).map(|cell| &mut cell.extra)
    }

    /// Name and value of the entry of this age.
    #[inline]
    pub fn get(&self, age: usize) -> Option<(&[u8], &[u8])> {
        if age.wrapping_sub(1) >= self.len as usize {
            return None;
        }
        self.entry(self.next.wrapping_sub(age as u32))
    }

    /// Name and value of a present entry.
    #[inline]
    pub fn entry(&self, number: u32) -> Option<(&[u8], &[u8])> {
        let cell = self.cells.get(number as usize & self.cells.len().wrapping_sub(1))?;
        let text = self.text.get(cell.at.wrapping_sub(self.base) as usize..)?;
        if cell.has_long_name() {
            return Some((self.long_name(number)?, text.get(..cell.value_len as usize)?));
        }
        let (name, rest) = text.split_at_checked(cell.name_len as usize)?;
        Some((name, rest.get(..cell.value_len as usize)?))
    }

    fn long_name(&self, number: u32) -> Option<&Arc<[u8]>> {
        let oldest = self.next.wrapping_sub(self.len);
        let place = |n: u32| n.wrapping_sub(oldest);
        let found = self.long_names.binary_search_by_key(&place(number), |(n, _)| place(*n));
        found.ok().map(|at| &self.long_names[at].1)
    }

    /// The name of the entry of this age, if it is one that entries share.
    pub(crate) fn shared_name(&self, age: usize) -> Option<Arc<[u8]>> {
        let number = self.next.wrapping_sub(age as u32);
        self.long_name(number).cloned()
    }

    /// Inserts a field, evicting the oldest ones that it takes the room of; one that is larger than
    /// the table leaves it empty (RFC 7541 section 4.4). `shared`: the name, where another entry
    /// has it. Says whether the cells moved.
    pub fn insert(&mut self, name: &[u8], value: &[u8], shared: Option<Arc<[u8]>>) -> bool {
        let size = name.len() + value.len() + OVERHEAD;
        if size > self.size_max {
            self.evict_to(0);
            return false;
        }
        self.evict_to(self.size_max - size);
        let mut cell = Cell {
            at: 0,
            name_len: name.len() as u32,
            value_len: value.len() as u32,
            extra: X::default(),
        };
        self.reserve_text(cell.name_here() + value.len());
        let moved = self.len as usize == self.cells.len();
        if moved {
            self.grow_cells();
        }
        cell.at = self.base.wrapping_add(self.text.len() as u32);
        if cell.has_long_name() {
            self.long_names.push_back((self.next, shared.unwrap_or_else(|| Arc::from(name))));
        } else {
            self.text.extend_from_slice(name);
        }
        self.text.extend_from_slice(value);
        let mask = self.cells.len() - 1;
        let place = &mut self.cells[self.next as usize & mask];
        // The owner's part belongs to the cell, not to the entry.
        cell.extra = place.extra;
        *place = cell;
        self.next = self.next.wrapping_add(1);
        self.len += 1;
        self.size += size;
        moved
    }

    /// Puts the newest entry's name into lower case.
    pub(crate) fn lower_newest(&mut self) {
        let number = self.next.wrapping_sub(1);
        let mask = self.cells.len().wrapping_sub(1);
        let Some(cell) = self.cells.get(number as usize & mask) else { return };
        let at = cell.at.wrapping_sub(self.base) as usize;
        let end = at + cell.name_here();
        if let Some(name) = self.text.get_mut(at..end) {
            name.make_ascii_lowercase();
        }
    }

    /// Changes the table's maximum size (RFC 7541 section 4.3). A table of no size holds no memory.
    pub(crate) fn set_size_max(&mut self, size_max: usize) {
        self.size_max = size_max.min(SIZE_MAX);
        self.evict_to(self.size_max);
        if self.size_max == 0 {
            self.free();
        }
    }

    /// Evicts all entries and frees their memory.
    pub fn free(&mut self) {
        self.evict_to(0);
        self.base = self.base.wrapping_add(self.text.len() as u32);
        self.text = Vec::new();
        self.cells = Vec::new();
        self.long_names = VecDeque::new();
    }

    fn evict_to(&mut self, size_max: usize) {
        while self.size > size_max {
            let oldest = self.next.wrapping_sub(self.len);
            let cell = &self.cells[oldest as usize & (self.cells.len() - 1)];
            self.size -= cell.name_len as usize + cell.value_len as usize + OVERHEAD;
            if cell.has_long_name() {
                self.long_names.pop_front();
            }
            self.len -= 1;
        }
    }

    /// Makes room for more text. The text has room for a quarter more than the table's size, so
    /// that moving it to the front pays for itself.
    fn reserve_text(&mut self, more: usize) {
        if more <= self.text.capacity() - self.text.len() {
            return;
        }
        let dead = match self.numbers().next() {
            None => self.text.len(),
            Some(oldest) => {
                let cell = &self.cells[oldest as usize & (self.cells.len() - 1)];
                cell.at.wrapping_sub(self.base) as usize
            }
        };
        let enough = dead >= self.text.capacity() / 4;
        self.text.drain(..dead);
        self.base = self.base.wrapping_add(dead as u32);
        let wanted = self.text.len() + more;
        if !enough || wanted > self.text.capacity() {
            let most = self.size_max + self.size_max / 4;
            let capacity = (self.text.capacity() * 2).clamp(TEXT_MIN, most.max(TEXT_MIN));
            self.text.reserve_exact(capacity.max(wanted) - self.text.len());
        }
    }

    #[cold]
    fn grow_cells(&mut self) {
        let len = (self.cells.len() * 2).max(CELLS_MIN);
        let mut cells = vec![Cell::default(); len];
        for number in self.numbers() {
            cells[number as usize & (len - 1)] =
                self.cells[number as usize & (self.cells.len() - 1)];
        }
        self.cells = cells;
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.text.capacity()
            + self.cells.capacity() * size_of::<Cell<X>>()
            + self.long_names.capacity() * size_of::<(u32, Arc<[u8]>)>()
            + self.long_names.iter().map(|(_, name)| name.len()).sum::<usize>()
    }
}
