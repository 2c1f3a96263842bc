//! Ranges of IPv4 addresses, while a block is read.
//!
//! nginx keeps ranges in blocks of 65536 addresses, and what may cut into what is decided in each
//! block by itself; so it is here, for the same files to be right and wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use conf::{ConfError, Word};

use super::flat::Flat;
use net::ip::parse_ipv4;

/// Addresses of one block, by their lower halves, with their value.
#[derive(Clone, Copy)]
struct Piece {
    start: u16,
    end: u16,
    value: u32,
}

/// Ranges so far: in each block in order and apart.
#[derive(Default)]
pub(super) struct Ranges(BTreeMap<u16, Vec<Piece>>);

/// The range that another one may not be added for.
#[derive(Debug)]
pub(super) struct Overlap(Ipv4Addr, Ipv4Addr);

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

/// Reads `10.0.0.0-10.0.0.255`.
pub(super) fn parse(word: &Word) -> Result<(u32, u32), ConfError> {
    let text = word.bytes();
    let range = memchr::memchr(b'-', text).and_then(|dash| {
        let start = parse_ipv4(&text[..dash])?.to_bits();
        let end = parse_ipv4(&text[dash + 1..])?.to_bits();
        (start <= end).then_some((start, end))
    });
    range.ok_or_else(|| ConfError::at(word, format!("invalid range \"{}\"", word.lossy())))
}

/// The parts of a range, block by block.
fn parts(start: u32, end: u32) -> impl Iterator<Item = (u16, u16, u16)> {
    let (first, last) = ((start >> 16) as u16, (end >> 16) as u16);
    (first..=last).map(move |block| {
        let from = if block == first { start as u16 } else { 0 };
        let to = if block == last { end as u16 } else { u16::MAX };
        (block, from, to)
    })
}

impl Ranges {
    /// Adds a range; gives the old value where it was there already.
    pub fn add(&mut self, start: u32, end: u32, value: u32) -> Result<Option<u32>, Overlap> {
        let mut old = None;
        for (block, start, end) in parts(start, end) {
            let pieces = self.0.entry(block).or_default();
            let replaced = add_piece(pieces, Piece { start, end, value }).map_err(|p| {
                let address = |low: u16| Ipv4Addr::from(u32::from(block) << 16 | u32::from(low));
                Overlap(address(p.start), address(p.end))
            })?;
            old = replaced.or(old);
        }
        Ok(old)
    }

    /// Deletes a range that was added as it is, or the parts that other ranges left of one; false
    /// where some block had no such range.
    pub fn delete(&mut self, start: u32, end: u32) -> bool {
        let mut all = true;
        for (block, start, end) in parts(start, end) {
            let pieces = self.0.entry(block).or_default();
            match pieces.iter().position(|p| p.start == start && p.end == end) {
                Some(at) => drop(pieces.remove(at)),
                None => all = false,
            }
        }
        all
    }

    /// The list for look-ups; `default` is the value outside of all ranges.
    pub fn flat(self, default: u32) -> Flat<u32> {
        let mut flat = Flat::new(default);
        for (block, pieces) in self.0 {
            for p in pieces {
                let address = |low: u16| u32::from(block) << 16 | u32::from(low);
                flat.change(address(p.start), p.value);
                if let Some(next) = address(p.end).checked_add(1) {
                    flat.change(next, default);
                }
            }
        }
        flat.finish();
        flat
    }
}

/// Adds a piece to a block: beside the others, in place of an equal one, or inside of one. The
/// error is the piece that it would cut in another way.
fn add_piece(pieces: &mut Vec<Piece>, new: Piece) -> Result<Option<u32>, Piece> {
    let at = pieces.partition_point(|p| p.end < new.start);
    let Some(&old) = pieces.get(at).filter(|p| p.start <= new.end) else {
        pieces.insert(at, new);
        return Ok(None);
    };
    if (old.start, old.end) == (new.start, new.end) {
        pieces[at] = new;
        return Ok(Some(old.value));
    }
    if new.start < old.start || new.end > old.end {
        // nginx looks from the end, and names the last one that is in the way.
        let last = pieces.partition_point(|p| p.start <= new.end);
        return Err(pieces[last - 1]);
    }
    let before = (old.start < new.start).then(|| Piece { end: new.start - 1, ..old });
    let after = (old.end > new.end).then(|| Piece { start: new.end + 1, ..old });
    let parts = before.into_iter().chain([new]).chain(after);
    pieces.splice(at..=at, parts);
    Ok(None)
}
