//! Adobe's HTTP Dynamic Streaming: fragments of a segment (`filmSeg1.f4f`), found by its index
//! (`filmSeg1.f4x`).
//!
//! The index is a box `afra` ("fragment random access", Adobe Flash Video File Format 10.1, section
//! 2.11.6) whose global entries have the place of each fragment. There the segment has four boxes,
//! which are the fragment:
//!
//! ```text
//!  filmSeg1.f4x: afra: (segment 1, fragment 1, offset) (segment 1, fragment 2, offset) ...
//!                                              │                               └──────┐
//!  filmSeg1.f4f:                               afra │ abst │ moof │ mdat │ afra │ abst │ ...
//! ```

use std::ops::Range;

use crate::Fault;
use crate::atom::{HEADER_MAX, Header, atoms};

/// Boxes of a fragment, at most: these four, and some that others may add.
const BOXES_MAX: usize = 16;

/// A fragment's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    /// The number of its segment.
    pub segment: u32,
    /// Its own number.
    pub fragment: u32,
    /// The bytes of the name that are not in that of the segment: `-Frag7`.
    pub suffix_len: usize,
}

impl Name {
    /// Reads the end of a name: `filmSeg1-Frag7`.
    pub fn parse(name: &[u8]) -> Option<Name> {
        let (rest, fragment) = number_behind(name, b"-Frag")?;
        let (_, segment) = number_behind(rest, b"Seg")?;
        Some(Name { segment, fragment, suffix_len: name.len() - rest.len() })
    }
}

/// The number at the end of a text, and what stands before the word before it.
fn number_behind<'a>(text: &'a [u8], word: &[u8]) -> Option<(&'a [u8], u32)> {
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, digits) = text.split_at(text.len() - digits);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((rest.strip_suffix(word)?, number))
}

/// Reads numbers in the order of the network.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take(&mut self, bytes: usize) -> Result<u64, Fault> {
        let (number, rest) = self.0.split_at_checked(bytes).ok_or(CUT)?;
        self.0 = rest;
        Ok(number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Fault> {
        self.0 = self.0.get(bytes..).ok_or(CUT)?;
        Ok(())
    }
}

const CUT: Fault = Fault::OfFile(std::borrow::Cow::Borrowed("f4f afra box is too small"));

/// The place of a fragment in its segment, from the content of an index; `None` if the index does
/// not have it.
///
/// # Errors
/// A contradiction in the index.
pub fn find(index: &[u8], name: &Name) -> Result<Option<u64>, Fault> {
    let mut has_index = false;
    for atom in atoms(index) {
        let atom = atom?;
        if &atom.name != b"afra" {
            continue;
        }
        has_index = true;
        if let Some(at) = find_in(atom.data, name)? {
            return Ok(Some(at));
        }
    }
    if has_index { Ok(None) } else { Err(Fault::in_file("no f4f afra box was found")) }
}

fn find_in(afra: &[u8], name: &Name) -> Result<Option<u64>, Fault> {
    let mut fields = Fields(afra);
    // Version and flags.
    fields.skip(4)?;
    let flags = fields.take(1)?;
    let (id_len, offset_len) =
        (if flags & 0x80 != 0 { 4 } else { 2 }, if flags & 0x40 != 0 { 8 } else { 4 });
    // The time scale.
    fields.skip(4)?;
    let local = fields.take(4)? as usize;
    fields.skip(local.checked_mul(8 + offset_len).ok_or(CUT)?)?;
    if flags & 0x20 == 0 {
        return Ok(None);
    }
    let entry_len = 8 + 2 * id_len + 2 * offset_len;
    let global = fields.take(4)? as usize;
    let entries = fields.0.get(..global.checked_mul(entry_len).ok_or(CUT)?).ok_or(CUT)?;
    for entry in entries.chunks_exact(entry_len) {
        let mut fields = Fields(entry);
        fields.skip(8)?;
        let (segment, fragment) = (fields.take(id_len)?, fields.take(id_len)?);
        if (segment, fragment) == (name.segment.into(), name.fragment.into()) {
            return fields.take(offset_len).map(Some);
        }
    }
    Ok(None)
}

/// Finds the end of a fragment that begins at a place of a segment: the end of its `mdat`.
pub struct Extent {
    start: u64,
    pos: u64,
    file_len: u64,
    boxes: usize,
}

impl Extent {
    /// # Errors
    /// The place is outside of the file.
    pub fn new(start: u64, file_len: u64) -> Result<Extent, Fault> {
        if start >= file_len {
            return Err(Fault::of_file(format!("f4f fragment is outside of the file:{start}")));
        }
        Ok(Extent { start, pos: start, file_len, boxes: 0 })
    }

    /// The bytes that are needed next.
    pub fn wanted(&self) -> Range<u64> {
        self.pos..self.file_len.min(self.pos + HEADER_MAX as u64)
    }

    /// Takes these bytes, and gives the fragment's place once it is known.
    ///
    /// # Errors
    /// No fragment is there.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Range<u64>>, Fault> {
        let header = Header::read(bytes, self.file_len - self.pos)?;
        let header = header.ok_or(Fault::of_file("f4f fragment has no mdat box"))?;
        if self.boxes == 0 && &header.name != b"afra" {
            return Err(Fault::of_file("f4f fragment does not begin with an afra box"));
        }
        self.boxes += 1;
        self.pos += header.size;
        if &header.name == b"mdat" {
            return Ok(Some(self.start..self.pos));
        }
        if self.boxes == BOXES_MAX || self.pos == self.file_len {
            return Err(Fault::of_file("f4f fragment has no mdat box"));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atom::{copy, write};

    #[test]
    fn names_of_fragments() {
        let name = |segment, fragment, suffix_len| Some(Name { segment, fragment, suffix_len });
        assert_eq!(Name::parse(b"/v/filmSeg1-Frag7"), name(1, 7, 6));
        assert_eq!(Name::parse(b"Seg10-Frag1234"), name(10, 1234, 9));
        assert_eq!(Name::parse(b"aSeg2Seg1-Frag4294967295"), name(1, u32::MAX, 15));
        for other in [
            "film",
            "filmSeg1",
            "filmSeg1-Frag",
            "filmSeg-Frag1",
            "filmSeg1-Frag1.f4f",
            "filmSeg1-frag1",
            "filmSeg1Frag1",
            "filmSeg1-Frag4294967296",
            "filmSeg1-Frag-1",
            "",
        ] {
            assert_eq!(Name::parse(other.as_bytes()), None, "{other}");
        }
    }

    /// An index; each entry is segment, fragment and offset.
    fn index(flags: u8, local: u32, entries: &[(u32, u32, u64)]) -> Vec<u8> {
        let (is_long_id, is_long_offset) = (flags & 0x80 != 0, flags & 0x40 != 0);
        let mut out = Vec::new();
        write(&mut out, b"afra", |out| {
            out.extend_from_slice(&[0, 0, 0, 0, flags, 0, 0, 3, 0xe8]);
            out.extend_from_slice(&local.to_be_bytes());
            let offset_len = if is_long_offset { 8 } else { 4 };
            out.resize(out.len() + local as usize * (8 + offset_len), 9);
            out.extend_from_slice(&(entries.len() as u32).to_be_bytes());
            for (segment, fragment, offset) in entries {
                out.extend_from_slice(&[7; 8]);
                for id in [segment, fragment] {
                    let bytes = id.to_be_bytes();
                    out.extend_from_slice(if is_long_id { &bytes } else { &bytes[2..] });
                }
                let bytes = offset.to_be_bytes();
                out.extend_from_slice(if is_long_offset { &bytes } else { &bytes[4..] });
                out.resize(out.len() + offset_len, 0);
            }
        });
        out
    }

    fn name(segment: u32, fragment: u32) -> Name {
        Name { segment, fragment, suffix_len: 0 }
    }

    #[test]
    fn an_index_has_the_places_of_fragments() {
        let entries = [(1, 1, 0), (1, 2, 500), (2, 1, 70_000)];
        for flags in [0x20, 0x60, 0xa0, 0xe0] {
            for local in [0, 3] {
                let index = index(flags, local, &entries);
                for (segment, fragment, offset) in entries {
                    assert_eq!(find(&index, &name(segment, fragment)), Ok(Some(offset)));
                }
                assert_eq!(find(&index, &name(2, 2)), Ok(None));
            }
        }
        let plain = index(0, 0, &[]);
        assert_eq!(find(&plain, &name(1, 1)), Ok(None));
        let big = index(0xe0, 0, &[(1, 1, u64::MAX)]);
        assert_eq!(find(&big, &name(1, 1)), Ok(Some(u64::MAX)));
    }

    #[test]
    fn an_index_that_is_cut_or_lies_is_a_fault() {
        let whole = index(0xe0, 1, &[(1, 1, 5)]);
        for len in 8..whole.len() {
            let mut cut = whole[..len].to_vec();
            cut[..4].copy_from_slice(&(len as u32).to_be_bytes());
            assert!(find(&cut, &name(1, 1)).is_err(), "{len}");
        }
        // The numbers of local and global entries.
        for count in [17, 37] {
            let mut lying = whole.clone();
            lying[count..][..4].copy_from_slice(&[0xff; 4]);
            assert!(find(&lying, &name(1, 1)).is_err());
        }
        let other =
            index(0x20, 0, &[]).iter().map(|b| if *b == b'a' { b'x' } else { *b }).collect();
        let other: Vec<u8> = other;
        let fault = find(&other, &name(1, 1)).unwrap_err();
        assert_eq!(fault.named("F").to_string(), "no f4f afra box was found in \"F\"");
        assert!(find(b"text", &name(1, 1)).is_err());
    }

    /// Finds the end of a fragment.
    fn extent(file: &[u8], start: u64) -> Result<Range<u64>, String> {
        let told = |fault: Fault| fault.named("F").to_string();
        let mut extent = Extent::new(start, file.len() as u64).map_err(told)?;
        loop {
            let wanted = extent.wanted();
            let bytes = &file[wanted.start as usize..wanted.end as usize];
            if let Some(range) = extent.feed(bytes).map_err(told)? {
                return Ok(range);
            }
        }
    }

    #[test]
    fn a_fragment_ends_with_its_data() {
        let mut file = b"12345".to_vec();
        for name in [b"afra", b"abst", b"moof", b"mdat", b"afra"] {
            copy(&mut file, name, Some(b"data"));
        }
        assert_eq!(extent(&file, 5), Ok(5..53));
        assert_eq!(extent(&file[..53], 5), Ok(5..53));
        let none = "\"F\" f4f fragment has no mdat box";
        assert_eq!(extent(&file, 53), Err(none.to_owned()));
        let begin = "\"F\" f4f fragment does not begin with an afra box";
        assert_eq!(extent(&file, 17), Err(begin.to_owned()));
        assert_eq!(
            extent(&file, 65),
            Err("\"F\" f4f fragment is outside of the file:65".to_owned())
        );
        assert_eq!(extent(&file[..52], 5), Err("\"F\" mp4 atom too large:12".to_owned()));
        let mut endless = Vec::new();
        (0..100).for_each(|_| copy(&mut endless, b"afra", Some(b"")));
        assert_eq!(extent(&endless, 0), Err(none.to_owned()));
    }
}
