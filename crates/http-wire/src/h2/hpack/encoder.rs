//! Fields into header blocks (sections 4.2 and 6).
//!
//! Entries are found through chains: a cell of the table's ring holds, beside an entry, the newest
//! entry whose hash falls on that cell, and each entry the next older one of its chain. A chain
//! ends at the first entry that is evicted: all behind it are older still. So an eviction has
//! nothing to mend.
//!
//! Blocks of a connection mostly hold the same fields in the same order. So each entry also names
//! the one that followed it last time, which is tried before anything is hashed.

use super::TABLE_SIZE;
use super::static_table::{self, Known, Policy};
use crate::compression::name::{Name, same_value};
use crate::compression::table::{NAME_COPIED_MAX, Table};
use crate::compression::{integer, literal};

/// A field for the dynamic table (section 6.2.1).
const INDEXED: u8 = 0x40;
/// A field that is not for it (section 6.2.2).
const ONCE: u8 = 0x00;
/// A field that is for no table on any hop (section 6.2.3).
const SECRET: u8 = 0x10;

/// A shorter value of a cookie could be guessed by the size of blocks.
const GUESSED_MAX: usize = 20;

/// Entries of one hash that are compared: their values differ in bytes that are not hashed.
const CHAIN_MAX: usize = 16;

/// Hashes of fields that came once: by their lower bits in sets of four.
type Seen = [[u16; 4]; 16];

/// No entry. The number is used four thousand million entries later; then it costs a comparison.
const NONE: u32 = u32::MAX;

/// Encodes the header blocks of one direction of a connection.
pub struct Encoder {
    table: Table<Link>,
    /// Set when the peer's table is not yet what ours is.
    update: Option<Update>,
    /// The first entry of the last block, and what this block's next one is likely to be.
    first: u32,
    likely: u32,
    /// The last entry of this block.
    last: u32,
    seen: Seen,
    /// A generator's state, to choose which of four hashes goes: in turn, five fields of a response
    /// would drive out one another for ever.
    chance: u8,
    /// Counts changes that later blocks depend on.
    changes: u64,
}

/// An update of the table's size that the next block begins with.
#[derive(Clone, Copy)]
struct Update {
    /// The smallest size since the last block.
    least: usize,
    last: usize,
}

/// An entry's place in its two chains and in blocks, and the heads of the chains whose hashes fall
/// on its cell.
#[derive(Clone, Copy)]
struct Link {
    field_hash: u32,
    name_hash: u32,
    older_field: u32,
    older_name: u32,
    /// The entry that followed it in the last block.
    followed_by: u32,
    newest_field: u32,
    newest_name: u32,
}

impl Default for Link {
    fn default() -> Link {
        Link {
            field_hash: 0,
            name_hash: 0,
            older_field: NONE,
            older_name: NONE,
            followed_by: NONE,
            newest_field: NONE,
            newest_name: NONE,
        }
    }
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

impl Encoder {
    /// An encoder for a peer with the protocol's initial table.
    pub fn new() -> Encoder {
        Encoder {
            table: Table::new(TABLE_SIZE),
            update: None,
            first: NONE,
            likely: NONE,
            last: NONE,
            seen: Seen::default(),
            chance: 0,
            changes: 0,
        }
    }

    /// An encoder for a peer that has had another one, of these [`Encoder::sizes`]. The next block
    /// empties the peer's table.
    pub fn resumed((now, next): (usize, usize)) -> Encoder {
        let (now, last) = (now.min(TABLE_SIZE), next.min(TABLE_SIZE));
        let (table, update) = (Table::new(now), Some(Update { least: 0, last }));
        Encoder { table, update, ..Encoder::new() }
    }

    /// The size that the peer's table has, and the one that the next block gives it.
    pub fn sizes(&self) -> (usize, usize) {
        let now = self.table.size_max();
        (now, self.update.map_or(now, |update| update.last))
    }

    /// Takes the peer's SETTINGS_HEADER_TABLE_SIZE, of which it uses 4096 bytes at most. The next
    /// block begins with the updates that follow from it.
    pub fn set_limit(&mut self, size: usize) {
        let size = size.min(TABLE_SIZE);
        let least = self.update.map_or(self.table.size_max(), |update| update.least);
        self.update = Some(Update { least: least.min(size), last: size });
        self.changes += 1;
    }

    /// Drops the table, to free its memory while the connection is idle. The next block begins
    /// with an update to 0 and another one back. Call it between two blocks.
    pub fn forget(&mut self) {
        if !self.table.is_empty() {
            let last = self.update.map_or(self.table.size_max(), |update| update.last);
            self.update = Some(Update { least: 0, last });
        }
        self.table.free();
        self.changes += 1;
    }

    /// Grows with each change of the state that blocks depend on: while it stays the same, the same
    /// fields make the same block, and a block that leaves it as it was can be sent again.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Begins a block: writes the updates of the table's size that are due.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(update) = self.update.take() {
            self.write_update(update, out);
        }
        (self.likely, self.last) = (self.first, NONE);
    }

    #[cold]
    fn write_update(&mut self, Update { least, last }: Update, out: &mut Vec<u8>) {
        self.changes += 1;
        for size in [least, last] {
            // Forgetting empties the table without a change of its size.
            if size != self.table.size_max() {
                integer::write(0x20, 5, size, out);
                self.table.set_size_max(size);
            }
        }
    }

    /// Writes `:status`; `code` has three digits.
    #[inline]
    pub fn status(&mut self, code: u16, out: &mut Vec<u8>) {
        let index = match code {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digit = |n: u16| b'0' + (code / n % 10) as u8;
                return self.field(b":status", &[digit(100), digit(10), digit(1)], out);
            }
        };
        out.push(0x80 | index);
    }

    /// Writes a field. `name` may have any case; `value` is written as it is. A field that repeats
    /// is indexed, but for credentials and short cookies.
    #[inline]
    pub fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let name = Name::new(name);
        if let Some(age) = self.age_if(self.likely, &name, value) {
            self.last = self.likely;
            self.likely = self.table.extra(self.last).map_or(NONE, |link| link.followed_by);
            return integer::write(0x80, 7, static_table::LEN + age, out);
        }
        self.unlikely_field(&name, value, out);
    }

    /// Writes a field whose value will hardly repeat on this connection: it is not indexed.
    pub fn field_once(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let name = Name::new(name);
        self.literal(ONCE, &name, static_table::find(&name), value, out);
    }

    /// Writes a field with a secret: it is not indexed, and nobody who passes it on may index it.
    pub fn field_secret(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let name = Name::new(name);
        self.literal(SECRET, &name, static_table::find(&name), value, out);
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.table.memory()
    }

    /// Writes a field that is not the one which followed last time.
    fn unlikely_field(&mut self, name: &Name, value: &[u8], out: &mut Vec<u8>) {
        let hash = name.field_hash(value);
        match self.find_field(name, value, hash) {
            Some((number, age)) => {
                self.follow(number);
                integer::write(0x80, 7, static_table::LEN + age, out);
            }
            None => self.new_field(name, value, hash, out),
        }
    }

    /// The age of this entry, if it is this field.
    #[inline]
    fn age_if(&self, number: u32, name: &Name, value: &[u8]) -> Option<usize> {
        let age = self.table.age(number)?;
        let (other, other_value) = self.table.entry(number)?;
        (same_value(value, other_value) && name.is(other)).then_some(age)
    }

    /// The number and the age of the entry that is this field.
    fn find_field(&self, name: &Name, value: &[u8], hash: u32) -> Option<(u32, usize)> {
        let mut number = self.table.extra(hash)?.newest_field;
        for _ in 0..CHAIN_MAX {
            self.table.age(number)?;
            let link = self.table.extra(number)?;
            if link.field_hash == hash
                && let Some(age) = self.age_if(number, name, value)
            {
                return Some((number, age));
            }
            number = link.older_field;
        }
        None
    }

    /// Remembers that this entry follows the last one.
    fn follow(&mut self, number: u32) {
        let place = match self.table.age(self.last) {
            Some(_) => self.table.extra_mut(self.last).map(|link| &mut link.followed_by),
            None => Some(&mut self.first),
        };
        if let Some(place) = place {
            *place = number;
        }
        self.last = number;
        self.likely = self.table.extra(number).map_or(NONE, |link| link.followed_by);
    }

    /// The age of the newest entry with this name.
    fn find_name(&self, name: &Name) -> Option<usize> {
        let hash = name.hash();
        let mut number = self.table.extra(hash)?.newest_name;
        for _ in 0..CHAIN_MAX {
            let age = self.table.age(number)?;
            let link = self.table.extra(number)?;
            if link.name_hash == hash && name.is(self.table.get(age)?.0) {
                return Some(age);
            }
            number = link.older_name;
        }
        None
    }

    /// Writes a field that is not in the dynamic table.
    #[inline(never)]
    fn new_field(&mut self, name: &Name, value: &[u8], hash: u32, out: &mut Vec<u8>) {
        let known = static_table::find(name);
        if let Some(index) = known.and_then(|known| known.with_value(value)) {
            return integer::write(0x80, 7, index, out);
        }
        let policy = known.map_or(Policy::Second, |known| known.policy);
        let kind = match policy {
            // Not SECRET: that is for those who pass fields on, which clients of a server are not.
            Policy::Never => ONCE,
            Policy::NeverShort if value.len() < GUESSED_MAX => ONCE,
            Policy::First if self.is_storable(name, value) => INDEXED,
            Policy::First => ONCE,
            _ if self.is_storable(name, value) && self.came_before(hash) => INDEXED,
            _ => ONCE,
        };
        self.literal(kind, name, known, value, out);
        if kind == INDEXED {
            self.insert(name, value, hash);
        }
    }

    /// Whether the field leaves room for others in the table.
    fn is_storable(&self, name: &Name, value: &[u8]) -> bool {
        name.text.len() <= NAME_COPIED_MAX
            && self.table.fits(name.text, value)
            && name.text.len() + value.len() <= self.table.size_max() / 4 * 3
    }

    /// Whether a field with this hash came before; remembers that it came.
    fn came_before(&mut self, hash: u32) -> bool {
        let (set, mark) = (&mut self.seen[hash as usize % 16], (hash >> 16) as u16);
        let known = set.contains(&mark);
        if !known {
            self.changes += 1;
            self.chance = self.chance.wrapping_mul(5).wrapping_add(3);
            set[usize::from(self.chance >> 6)] = mark;
        }
        known
    }

    fn literal(
        &self,
        kind: u8,
        name: &Name,
        known: Option<Known>,
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        let in_table = || self.find_name(name).map(|age| static_table::LEN + age);
        let bits = if kind == INDEXED { 6 } else { 4 };
        match known.map(|known| known.index).or_else(in_table) {
            Some(index) => integer::write(kind, bits, index, out),
            None => {
                out.push(kind);
                literal::write_name(name.text, out);
            }
        }
        literal::write_value(value, out);
    }

    fn insert(&mut self, name: &Name, value: &[u8], hash: u32) {
        self.changes += 1;
        let moved = self.table.insert(name.text, value, None);
        self.table.lower_newest();
        let Some(newest) = self.table.newest() else { return };
        if let Some(link) = self.table.extra_mut(newest) {
            (link.field_hash, link.name_hash) = (hash, name.hash());
            link.followed_by = NONE;
        }
        if moved {
            self.link_all();
        } else {
            self.link(newest);
        }
        self.follow(newest);
    }

    /// Makes all chains anew: their heads depend on the number of cells.
    #[cold]
    fn link_all(&mut self) {
        for number in self.table.numbers() {
            if let Some(link) = self.table.extra_mut(number) {
                let Link { field_hash, name_hash, followed_by, .. } = *link;
                *link = Link { field_hash, name_hash, followed_by, ..Link::default() };
            }
        }
        for number in self.table.numbers() {
            self.link(number);
        }
    }

    /// Puts an entry at the heads of its chains.
    fn link(&mut self, number: u32) {
        let Some(&Link { field_hash, name_hash, .. }) = self.table.extra(number) else { return };
        let newest = |head: &mut u32| std::mem::replace(head, number);
        let field = self.table.extra_mut(field_hash).map(|link| newest(&mut link.newest_field));
        let name = self.table.extra_mut(name_hash).map(|link| newest(&mut link.newest_name));
        if let (Some(link), Some(field), Some(name)) = (self.table.extra_mut(number), field, name) {
            (link.older_field, link.older_name) = (field, name);
        }
    }
}
