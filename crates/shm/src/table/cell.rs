//! The cells of a table: their layout in the zone, and the bytes in them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::zone::Shared;

/// No cell: number 0 is the head.
pub(super) const NONE: u32 = 0;

/// Words of a cell that hold the value and the first bytes of the key.
pub(super) const DATA: usize = 5;

#[repr(C, align(64))]
pub(super) struct Cell {
    /// The key's hash; during a repair, the entry that has claimed this cell.
    pub(super) hash: AtomicU32,
    /// The next entry of the bucket; the next free cell.
    pub(super) next: AtomicU32,
    pub(super) newer: AtomicU32,
    pub(super) older: AtomicU32,
    /// The first cell with more of the key; in such a cell, the next one.
    pub(super) more: AtomicU32,
    /// The cell's kind, its generation, and the length of the key: see [`Tag`].
    pub(super) tag: AtomicU32,
    pub(super) data: [AtomicU64; DATA],
}

/// The first cell.
#[repr(C, align(64))]
pub(super) struct Head {
    pub(super) lock: AtomicU32,
    pub(super) newest: AtomicU32,
    pub(super) oldest: AtomicU32,
    /// Cells that were freed.
    pub(super) free: AtomicU32,
    pub(super) free_count: AtomicU32,
    /// The first cell that was never used, as a number of cells from the first: memory is touched
    /// late.
    pub(super) fresh: AtomicU32,
    pub(super) entries: AtomicU32,
    rest: [AtomicU32; 9],
}

// SAFETY: atomics only, 24 + 40 bytes: no padding. Any bits are values.
unsafe impl Shared for Cell {}
// SAFETY: sixteen atomics of four bytes: no padding. Any bits are values.
unsafe impl Shared for Head {}

/// The kind of a cell, its generation, and the length of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tag {
    pub(super) kind: u8,
    pub(super) generation: u8,
    pub(super) key_len: u16,
}

pub(super) const FREE: u8 = 0;
pub(super) const ENTRY: u8 = 1;
pub(super) const MORE: u8 = 2;

impl Tag {
    pub(super) fn of(cell: &Cell) -> Tag {
        let [kind, generation, a, b] = cell.tag.load(Ordering::Relaxed).to_le_bytes();
        Tag { kind, generation, key_len: u16::from_le_bytes([a, b]) }
    }

    /// Written last when an entry is made and first when it is removed: before and after, a repair
    /// takes the cell for free.
    pub(super) fn put(self, cell: &Cell) {
        let [a, b] = self.key_len.to_le_bytes();
        fence(Ordering::Release);
        cell.tag.store(u32::from_le_bytes([self.kind, self.generation, a, b]), Ordering::Relaxed);
        fence(Ordering::Release);
    }
}

pub(super) fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

pub(super) fn set(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Relaxed);
}

/// A word of up to eight bytes, filled up with zeroes.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

pub(super) fn write(to: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks();
    for (to, bytes) in to.iter().zip(whole) {
        to.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if let Some(to) = to.get(whole.len()).filter(|_| !rest.is_empty()) {
        to.store(word(rest), Ordering::Relaxed);
    }
}

pub(super) fn read(data: &[AtomicU64], key: &mut Vec<u8>) {
    let from = key.len();
    key.resize(from + data.len() * 8, 0);
    for (to, word) in key[from..].as_chunks_mut().0.iter_mut().zip(data) {
        *to = word.load(Ordering::Relaxed).to_le_bytes();
    }
}

/// Whether the words are these bytes, as far as there are both.
pub(super) fn same(data: &[AtomicU64], bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks();
    let is = |have: &AtomicU64, word| have.load(Ordering::Relaxed) == word;
    data.iter().zip(whole).all(|(have, bytes)| is(have, u64::from_le_bytes(*bytes)))
        && (rest.is_empty() || data.get(whole.len()).is_none_or(|have| is(have, word(rest))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_any_length_are_written_read_and_compared() {
        let bytes: Vec<u8> = (1..=24).collect();
        for len in 0..=24 {
            let data: [AtomicU64; 3] = Default::default();
            write(&data, &bytes[..len]);
            let mut back = vec![99];
            read(&data, &mut back);
            assert_eq!((back.len(), back[0], &back[1..=len]), (25, 99, &bytes[..len]));
            assert!(back[len + 1..].iter().all(|byte| *byte == 0), "{back:?}");
            assert!(same(&data, &bytes[..len]));
            for at in 0..len {
                let mut other = bytes[..len].to_vec();
                other[at] ^= 0x80;
                assert!(!same(&data, &other), "byte {at} of {len}");
            }
        }
        // The rest of a longer key is in other cells.
        let data: [AtomicU64; 1] = Default::default();
        write(&data, &bytes[..12]);
        assert!(same(&data, &bytes[..8]) && same(&data, &bytes[..12]) && !same(&data, &[0; 12]));
    }
}
