//! The parts of a field section (section 4.5), which a decoder reads.

use super::static_table;
use crate::compression::scratch::{Scratch, Text};
use crate::compression::table::Table;
use crate::compression::{Malformed, integer};

/// The prefix before the field lines, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prefix {
    /// Insertions that must have come (section 4.5.1.1).
    pub required: u64,
    /// The number that indices are relative to (section 4.5.1.2).
    pub base: u64,
}

/// Why a section cannot be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadSection {
    Malformed(Malformed),
    /// A required insert count that no encoder can mean.
    InsertCount,
    /// A base below zero, or beyond anything.
    Base,
    /// An index that the static table has not, or an entry that is gone, or one that the section
    /// did not require.
    Index,
}

impl From<Malformed> for BadSection {
    fn from(malformed: Malformed) -> BadSection {
        BadSection::Malformed(malformed)
    }
}

impl BadSection {
    /// The text for the log.
    #[cold]
    pub fn message(self) -> &'static str {
        match self {
            BadSection::Malformed(Malformed::Truncated | Malformed::CutInteger) => {
                "field section that ends inside a field"
            }
            BadSection::Malformed(Malformed::Integer) => "too large integer in field section",
            BadSection::Malformed(Malformed::Huffman) => "invalid Huffman code in field section",
            BadSection::InsertCount => "invalid required insert count",
            BadSection::Base => "invalid base of field section",
            BadSection::Index => "invalid index in field section",
        }
    }
}

impl Prefix {
    /// Takes the prefix off a section. `inserted` is the number of insertions that came, and
    /// `entries_max` that of entries which fit into the largest table.
    pub fn read(input: &mut &[u8], inserted: u64, entries_max: u64) -> Result<Prefix, BadSection> {
        let encoded = integer::read_long(first(input)?, 8, input)?;
        let required = match encoded {
            0 => 0,
            _ => required(encoded, inserted, entries_max).ok_or(BadSection::InsertCount)?,
        };
        let sign = first(input)?;
        let delta = integer::read_long(sign, 7, input)?;
        let base = match sign & 0x80 {
            0 => required.checked_add(delta),
            _ => required.checked_sub(delta).and_then(|base| base.checked_sub(1)),
        };
        Ok(Prefix { required, base: base.ok_or(BadSection::Base)? })
    }
}

/// The number that `encoded` stands for: it is sent modulo twice the entries of the largest table.
fn required(encoded: u64, inserted: u64, entries_max: u64) -> Option<u64> {
    let range = 2 * entries_max;
    if encoded > range {
        return None;
    }
    let max = inserted + entries_max;
    let wrapped = max / range * range;
    let count = wrapped + encoded - 1;
    let count = if count > max { count.checked_sub(range)? } else { count };
    (count > 0).then_some(count)
}

#[inline]
fn first(input: &mut &[u8]) -> Result<u8, Malformed> {
    let (&first, rest) = input.split_first().ok_or(Malformed::Truncated)?;
    *input = rest;
    Ok(first)
}

/// The tables that a section refers to.
pub(super) struct Tables<'a> {
    pub dynamic: &'a Table<()>,
    /// Insertions that came.
    pub inserted: u64,
    pub prefix: Prefix,
}

type Field<'a> = (&'a [u8], &'a [u8]);

impl<'a> Tables<'a> {
    /// The field of the static table.
    #[inline]
    fn fixed(index: u64) -> Result<Field<'a>, BadSection> {
        static_table::get(index).ok_or(BadSection::Index)
    }

    /// The field behind an index relative to the base.
    fn relative(&self, index: u64) -> Result<Field<'a>, BadSection> {
        let below = self.prefix.base.checked_sub(index).and_then(|n| n.checked_sub(1));
        self.absolute(below)
    }

    /// The field behind an index that counts up from the base.
    fn post_base(&self, index: u64) -> Result<Field<'a>, BadSection> {
        self.absolute(self.prefix.base.checked_add(index))
    }

    /// The entry of a number.
    fn absolute(&self, number: Option<u64>) -> Result<Field<'a>, BadSection> {
        let number = number.filter(|n| *n < self.prefix.required).ok_or(BadSection::Index)?;
        let age = self.inserted.checked_sub(number).and_then(|age| usize::try_from(age).ok());
        age.and_then(|age| self.dynamic.get(age)).ok_or(BadSection::Index)
    }

    /// Takes a field line off `lines`; its strings may lie in `scratch`.
    #[inline]
    pub fn line(
        &self,
        lines: &mut &'a [u8],
        scratch: &mut Scratch,
    ) -> Result<(Text<'a>, Text<'a>), BadSection> {
        let first = first(lines)?;
        if first & 0x80 != 0 {
            let index = integer::read_long(first, 6, lines)?;
            let is_static = first & 0x40 != 0;
            let (name, value) =
                if is_static { Tables::fixed(index)? } else { self.relative(index)? };
            return Ok((Text::Plain(name), Text::Plain(value)));
        }
        self.literal(first, lines, scratch)
    }

    fn literal(
        &self,
        first: u8,
        lines: &mut &'a [u8],
        scratch: &mut Scratch,
    ) -> Result<(Text<'a>, Text<'a>), BadSection> {
        scratch.clear();
        let name = match first {
            0x40.. => {
                let index = integer::read_long(first, 4, lines)?;
                let is_static = first & 0x10 != 0;
                let field = if is_static { Tables::fixed(index)? } else { self.relative(index)? };
                Text::Plain(field.0)
            }
            0x20.. => string(first, 3, lines, scratch)?,
            0x10.. => {
                let index = integer::read_long(first, 4, lines)?;
                let (name, value) = self.post_base(index)?;
                return Ok((Text::Plain(name), Text::Plain(value)));
            }
            _ => Text::Plain(self.post_base(integer::read_long(first, 3, lines)?)?.0),
        };
        let first = self::first(lines)?;
        Ok((name, string(first, 7, lines, scratch)?))
    }
}

fn string<'a>(
    first: u8,
    bits: u32,
    input: &mut &'a [u8],
    scratch: &mut Scratch,
) -> Result<Text<'a>, Malformed> {
    let len = integer::read_long(first, bits, input)?;
    let len = usize::try_from(len).map_err(|_| Malformed::Truncated)?;
    scratch.read(first & 1 << bits != 0, len, input)
}
