//! Strings that are no part of the bytes which came, and of no table.

use std::ops::Range;

use super::{Malformed, huffman};

/// Scratch memory that is kept from one block to the next.
const SCRATCH_KEPT: usize = 512;
/// It grows by this much.
const SCRATCH_STEP: usize = 128;

/// Memory for strings: its bytes are there once and for all, the first `len` are in use.
#[derive(Default)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    len: usize,
}

/// Where a string is.
pub(crate) enum Text<'b> {
    /// A range of bytes that stay where they are.
    Plain(&'b [u8]),
    /// A range of the scratch memory.
    Scratch(Range<usize>),
}

impl Text<'_> {
    /// The string.
    #[inline]
    pub fn of<'a>(&'a self, scratch: &'a Scratch) -> &'a [u8] {
        match self {
            Text::Plain(text) => text,
            Text::Scratch(range) => scratch.get(range),
        }
    }
}

impl Scratch {
    /// Forgets all strings.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The string at a place.
    #[inline]
    pub fn get(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    /// The unused part, of `more` bytes at least.
    fn unused(&mut self, more: usize) -> &mut [u8] {
        let wanted = self.len + more;
        if wanted > self.bytes.len() {
            self.bytes.resize(wanted.next_multiple_of(SCRATCH_STEP), 0);
        }
        &mut self.bytes[self.len..]
    }

    /// Keeps a copy of a string.
    pub fn copy(&mut self, text: &[u8]) -> Range<usize> {
        self.unused(text.len())[..text.len()].copy_from_slice(text);
        self.used(text.len())
    }

    /// Decodes a Huffman-coded string. It takes 8/5 of its encoded length at most.
    fn decode(&mut self, text: &[u8]) -> Result<Range<usize>, Malformed> {
        let len = huffman::decode(text, self.unused(huffman::room(text.len())))?;
        Ok(self.used(len))
    }

    fn used(&mut self, more: usize) -> Range<usize> {
        let start = self.len;
        self.len += more;
        start..self.len
    }

    /// Takes a string of `len` bytes off `input`, and decodes it where it is Huffman-coded.
    #[inline]
    pub fn read<'b>(
        &mut self,
        is_huffman: bool,
        len: usize,
        input: &mut &'b [u8],
    ) -> Result<Text<'b>, Malformed> {
        let (text, rest) = input.split_at_checked(len).ok_or(Malformed::Truncated)?;
        *input = rest;
        if is_huffman { self.decode(text).map(Text::Scratch) } else { Ok(Text::Plain(text)) }
    }

    /// Frees what one block needed and others will hardly need.
    #[inline]
    pub fn shrink(&mut self) {
        if self.bytes.len() > SCRATCH_KEPT {
            *self = Scratch::default();
        }
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}
