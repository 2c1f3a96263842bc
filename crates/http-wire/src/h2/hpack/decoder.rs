//! Header blocks into fields (sections 3 and 6).

use std::ops::Range;
use std::sync::Arc;

use super::{HpackError, TABLE_SIZE, static_table};
use crate::compression::literal::HUFFMAN;
use crate::compression::scratch::{self, Scratch};
use crate::compression::table::{NAME_COPIED_MAX, Table};
use crate::compression::{Malformed, huffman, integer};

/// Updates of the table's size that a block can begin with: the smallest and the last one.
const UPDATES_MAX: u32 = 2;

/// Decodes the header blocks of one direction of a connection.
pub struct Decoder {
    table: Table<()>,
    /// The size that we announced in SETTINGS_HEADER_TABLE_SIZE.
    size_max: usize,
    /// The strings of the present field that are no part of the block or of a table.
    scratch: Scratch,
    /// Counts changes of the table.
    changes: u64,
}

/// Names and values of a table.
pub type Entries<'a> = Vec<(&'a [u8], &'a [u8])>;

/// Where a string of a literal is.
enum Text<'b> {
    Static(&'static [u8]),
    Block(&'b [u8]),
    Scratch(Range<usize>),
    /// The name of an entry, by its age.
    Entry(usize),
    Shared(Arc<[u8]>),
}

struct Literal<'b> {
    name: Text<'b>,
    value: Text<'b>,
}

impl Decoder {
    /// `size_max`: what we announced in SETTINGS_HEADER_TABLE_SIZE. The table has the protocol's
    /// 4096 bytes until the peer says otherwise.
    pub fn new(size_max: usize) -> Decoder {
        Decoder { table: Table::new(TABLE_SIZE), size_max, scratch: Scratch::default(), changes: 0 }
    }

    /// The decoder of a peer whose table has these fields, the oldest first, and `table_size` bytes
    /// of room; otherwise as [`Decoder::new`].
    pub fn resumed<'a>(
        size_max: usize,
        table_size: usize,
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Decoder {
        let mut decoder = Decoder::new(size_max);
        decoder.table.set_size_max(table_size.min(size_max));
        for (name, value) in fields {
            decoder.table.insert(name, value, None);
        }
        decoder
    }

    /// The room of the table, and its fields, the oldest first, for [`Decoder::resumed`].
    pub fn table(&self) -> (usize, Entries<'_>) {
        let mut fields: Vec<_> = (1..).map_while(|age| self.table.get(age)).collect();
        fields.reverse();
        (self.table.size_max(), fields)
    }

    /// Decodes a whole header block, calling `field` with each name and value in order. After an
    /// error the decoder is of no use: the connection ends with COMPRESSION_ERROR.
    ///
    /// The time it takes, beside that of `field`, is proportional to the block's length.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let mut input = block;
        self.read_updates(&mut input)?;
        while let Some((&first, rest)) = input.split_first() {
            input = rest;
            if first & 0x80 != 0 {
                let index = integer::read(first, 7, &mut input)?;
                let (name, value) = self.entry(index)?;
                field(name, value);
            } else {
                let indexed = first & 0x40 != 0;
                let literal = self.read_literal(first, indexed, &mut input)?;
                field(self.text(&literal.name), self.text(&literal.value));
                if indexed {
                    self.insert(literal);
                }
            }
        }
        self.scratch.shrink();
        Ok(())
    }

    /// Looks at the beginning of a block whose rest did not come yet: an integer that is too large
    /// is a fault whatever follows it.
    pub fn check_begun(block: &[u8]) -> Result<(), HpackError> {
        match walk(block, |_| {}) {
            Err(Malformed::Truncated | Malformed::CutInteger) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Grows with each change of the table: while it stays the same, the same block has the same
    /// fields.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.table.memory() + self.scratch.memory()
    }

    /// Reads the updates of the table's size that a block begins with.
    #[inline]
    fn read_updates(&mut self, input: &mut &[u8]) -> Result<(), HpackError> {
        for nth in 0.. {
            let Some((&first, rest)) = input.split_first() else { break };
            if first & 0xe0 != 0x20 {
                break;
            }
            if nth == UPDATES_MAX {
                return Err(HpackError::UpdateMisplaced);
            }
            *input = rest;
            let size = integer::read(first, 5, input)?;
            if size > self.size_max {
                return Err(HpackError::UpdateTooLarge);
            }
            self.table.set_size_max(size);
            self.changes += 1;
        }
        Ok(())
    }

    #[inline]
    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        static_table::get(index)
            .or_else(|| self.table.get(index.wrapping_sub(static_table::LEN)))
            .ok_or(HpackError::Index)
    }

    /// Reads a literal whose first byte is taken already.
    #[inline(never)]
    fn read_literal<'b>(
        &mut self,
        first: u8,
        indexed: bool,
        input: &mut &'b [u8],
    ) -> Result<Literal<'b>, HpackError> {
        if first & 0xe0 == 0x20 {
            return Err(HpackError::UpdateMisplaced);
        }
        self.scratch.clear();
        let name = match integer::read(first, if indexed { 6 } else { 4 }, input)? {
            0 => self.read_string(input)?,
            index => self.read_name(index, indexed)?,
        };
        Ok(Literal { name, value: self.read_string(input)? })
    }

    /// The name of an entry. Where a new entry gets it, it must outlive the old one, which may be
    /// evicted for the new one (section 4.4).
    fn read_name(&mut self, index: usize, indexed: bool) -> Result<Text<'static>, HpackError> {
        if let Some((name, _)) = static_table::get(index) {
            return Ok(Text::Static(name));
        }
        let age = index.wrapping_sub(static_table::LEN);
        let (name, _) = self.table.get(age).ok_or(HpackError::Index)?;
        if !indexed {
            return Ok(Text::Entry(age));
        }
        if name.len() <= NAME_COPIED_MAX {
            return Ok(Text::Scratch(self.scratch.copy(name)));
        }
        self.table.shared_name(age).map(Text::Shared).ok_or(HpackError::Index)
    }

    fn read_string<'b>(&mut self, input: &mut &'b [u8]) -> Result<Text<'b>, HpackError> {
        let (&first, rest) = input.split_first().ok_or(HpackError::Truncated)?;
        *input = rest;
        let len = integer::read(first, 7, input)?;
        Ok(match self.scratch.read(first & HUFFMAN != 0, len, input)? {
            scratch::Text::Plain(text) => Text::Block(text),
            scratch::Text::Scratch(range) => Text::Scratch(range),
        })
    }

    fn text<'a>(&'a self, text: &'a Text) -> &'a [u8] {
        match text {
            Text::Entry(age) => self.table.get(*age).unwrap_or_default().0,
            text => text.outside(&self.scratch),
        }
    }

    fn insert(&mut self, literal: Literal) {
        let (Literal { name, value }, scratch) = (literal, &self.scratch);
        let shared = match &name {
            Text::Shared(name) => Some(name.clone()),
            _ => None,
        };
        let (name, value) = (name.outside(scratch), value.outside(scratch));
        self.table.insert(name, value, shared);
        self.changes += 1;
    }
}

impl Text<'_> {
    /// A string that does not lie in the table.
    fn outside<'a>(&'a self, scratch: &'a Scratch) -> &'a [u8] {
        match self {
            Text::Static(text) | Text::Block(text) => text,
            Text::Scratch(range) => scratch.get(range),
            Text::Shared(name) => name,
            Text::Entry(_) => &[],
        }
    }
}

/// Goes over the fields of a block without a look at their contents; `field` is given each one as
/// it stands there, and each update of the table's size.
fn walk(block: &[u8], mut field: impl FnMut(Range<usize>)) -> Result<(), Malformed> {
    fn text(input: &mut &[u8]) -> Result<(), Malformed> {
        let (&first, rest) = input.split_first().ok_or(Malformed::Truncated)?;
        *input = rest;
        let len = integer::read(first, 7, input)?;
        *input = input.get(len..).ok_or(Malformed::Truncated)?;
        Ok(())
    }
    let mut input = block;
    while let Some((&first, rest)) = input.split_first() {
        let start = block.len() - input.len();
        input = rest;
        let (bits, is_literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let index = integer::read(first, bits, &mut input)?;
        if is_literal {
            if index == 0 {
                text(&mut input)?;
            }
            text(&mut input)?;
        }
        field(start..block.len() - input.len());
    }
    Ok(())
}

/// Whether a field is `:path` with a value of its own, and enters no table: its name is one of the
/// two entries of the static table that have it.
fn is_literal_path(first: u8) -> bool {
    first & 0xe0 == 0 && matches!(first & 0x0f, 4 | 5)
}

/// The place in a block of its only `:path` that is a literal and enters no table, as clients
/// write it.
pub fn literal_path(block: &[u8]) -> Option<Range<usize>> {
    let mut paths = 0;
    let mut found = None;
    let walked = walk(block, |field| {
        if block.get(field.start).is_some_and(|first| is_literal_path(*first)) {
            paths += 1;
            found = Some(field);
        }
    });
    found.filter(|_| walked.is_ok() && paths == 1)
}

/// Appends the value of such a `:path`, which is all of `field`. `None`: it is none.
pub fn read_literal_path(field: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let [name, first, input @ ..] = field else { return None };
    let mut text = input;
    let len = integer::read(*first, 7, &mut text).ok()?;
    if !is_literal_path(*name) || len != text.len() {
        return None;
    }
    if first & HUFFMAN == 0 {
        out.extend_from_slice(text);
        return Some(());
    }
    let start = out.len();
    out.resize(start + huffman::room(len), 0);
    let len = huffman::decode(text, &mut out[start..]).ok()?;
    out.truncate(start + len);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_path_is_found_and_read() {
        // GET, then a path with Huffman's code or as it is, then a field with a name of its own.
        let plain = [&[0x04, 2][..], b"/a"].concat();
        let coded = [0x15, 0x82, 0x60, 0x1f];
        for (path, text) in [(&plain[..], &b"/a"[..]), (&coded[..], b"/0")] {
            let block = [&[0x82][..], path, &[0x00, 1, b'n', 1, b'v']].concat();
            let found = literal_path(&block).unwrap();
            assert_eq!(found, 1..1 + path.len());
            let mut out = b"GET ".to_vec();
            let read = read_literal_path(&block[found], &mut out);
            let mut fields = Vec::new();
            Decoder::new(TABLE_SIZE).decode(&block, |_, v| fields.push(v.to_vec())).unwrap();
            assert_eq!((read, &out[4..]), (Some(()), &fields[1][..]));
            assert_eq!(fields[1], text);
        }
    }

    #[test]
    fn other_paths_are_left_to_the_decoder() {
        let plain = [&[0x04, 2][..], b"/a"].concat();
        let indexed = [&[0x44, 2][..], b"/a"].concat();
        let named = [&[0x00, 5][..], b":path", &[2], b"/a"].concat();
        for block in [&plain.repeat(2)[..], &indexed, &named, &[0x84], &plain[..3], b""] {
            assert_eq!(literal_path(block), None, "{block:?}");
        }
        let mut out = Vec::new();
        let mut is_read = |field: &[u8]| read_literal_path(field, &mut out).is_some();
        let long = [&plain[..], b"b"].concat();
        for field in [&long[..], &plain[..3], &indexed, &[0x04], b"", &[0x04, 0x81, 0x00]] {
            assert!(!is_read(field), "{field:?}");
        }
        assert!(is_read(&plain));
    }

    #[test]
    fn long_names_are_shared() {
        // A name of 65 bytes, then two fields of two bytes that have the same.
        let block = [&[0x40, 65][..], &[b'n'; 65], &[0, 0x7e, 0, 0x7e, 0]].concat();
        let mut decoder = Decoder::new(TABLE_SIZE);
        assert_eq!(decoder.decode(&block, |name, _| assert_eq!(name, [b'n'; 65])), Ok(()));
        let name = |age| decoder.table.shared_name(age).map(|name| name.as_ptr());
        assert!(name(1).is_some() && name(1) == name(2) && name(2) == name(3));
        assert_eq!(name(4), None);
    }
}
