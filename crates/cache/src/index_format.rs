//! The index of a cache: the format of its file and of its journal. docs/CACHE.md describes both
//! for other programs; a change here changes [`VERSION`] and that page.
//!
//! ```text
//!  file:    0 magic "weir\r\nci"   8 version   12 kind   16 order   24 part   28 CRC-32 of 0..28
//!  record:  0 sync  2 kind  3 zero  4 length of what follows  8 CRC-32 of 2..8 and of that
//! ```
//!
//! Numbers are little-endian. Each record is independent: a file may end in the middle of one, and
//! behind a damaged one, reading continues at the next.

use self::Record::{Cleared, End, Gone, Mark, Purged, Put};
use base::crc::Crc32;
use memchr::memmem;

const MAGIC: &[u8; 8] = b"weir\r\nci";
/// The version of the format.
pub const VERSION: u32 = 2;
/// Bytes of a file's header.
pub const FILE_HEADER: usize = 32;
/// Bytes before the content of a record.
const RECORD_HEADER: usize = 12;
const SYNC: [u8; 2] = [0xC5, 0x1D];
/// Bytes of an entry's record before its key.
const ENTRY: usize = 46;
/// Longest key that a record can have.
pub const KEY_MAX: usize = 32 << 10;
/// Most bytes that the tags of an entry may take.
pub(crate) const TAGS_MAX: usize = 16 << 10;
/// Longest record.
const RECORD_MAX: usize = 64 << 10;

/// The kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexFileKind {
    /// All that was known at a moment.
    Index,
    /// Changes since the index.
    Journal,
}

/// The start of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileHeader {
    /// Index or journal.
    pub kind: IndexFileKind,
    /// The time when the server began to write it, milliseconds since 1970: journals are read in
    /// this order.
    pub order: u64,
    /// Its number among the files of that order.
    pub part: u32,
}

/// Why a file is not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadFile {
    /// It is shorter than a header, or its header is damaged.
    Damaged,
    /// It is another program's.
    Foreign,
    /// The file has another version of the format.
    Version(u32),
}

impl FileHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; FILE_HEADER] {
        let mut out = [0; FILE_HEADER];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let kind: u32 = match self.kind {
            IndexFileKind::Index => 1,
            IndexFileKind::Journal => 2,
        };
        out[12..16].copy_from_slice(&kind.to_le_bytes());
        out[16..24].copy_from_slice(&self.order.to_le_bytes());
        out[24..28].copy_from_slice(&self.part.to_le_bytes());
        let sum = checksum(&[&out[..28]]);
        out[28..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the header of a file, of which `bytes` is the beginning.
    ///
    /// # Errors
    /// See [`BadFile`].
    pub fn decode(bytes: &[u8]) -> Result<FileHeader, BadFile> {
        let Some(bytes) = bytes.get(..FILE_HEADER) else { return Err(BadFile::Damaged) };
        if &bytes[..8] != MAGIC {
            return Err(BadFile::Foreign);
        }
        if u32_at(bytes, 8) != VERSION {
            return Err(BadFile::Version(u32_at(bytes, 8)));
        }
        let kind = match u32_at(bytes, 12) {
            1 => IndexFileKind::Index,
            2 => IndexFileKind::Journal,
            _ => return Err(BadFile::Damaged),
        };
        if checksum(&[&bytes[..28]]) != u32_at(bytes, 28) {
            return Err(BadFile::Damaged);
        }
        Ok(FileHeader { kind, order: u64_at(bytes, 16), part: u32_at(bytes, 24) })
    }
}

/// A file of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexEntry<'a> {
    /// Its name.
    pub hash: [u8; 16],
    /// Its size in blocks of the file system.
    pub blocks: u32,
    /// The time when the unused entry expires, seconds since 1970: gives the order of use.
    pub expire: u32,
    /// When the response was fetched, seconds since 1970.
    pub date: u32,
    /// The version of the file of that name: versions grow while the zone of a journal ([part])
    /// lives, and wrap around. 0: not known.
    ///
    /// [part]: FileHeader::part
    pub version: u32,
    /// A checksum of the file's metadata, to recognise it by; 0: not known.
    pub file: u32,
    /// The number of its uses.
    pub uses: u16,
    /// It is a variant of its key (`Vary`), and not the first.
    pub is_variant: bool,
    /// The key in full, so that prefixes can be purged.
    pub key: &'a [u8],
    /// Its tags, with a space between two.
    pub tags: &'a [u8],
}

/// The target of a purge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PurgeBy {
    /// A key, with all variants.
    Key,
    /// Keys that begin so.
    Prefix,
    /// All responses with a tag.
    Tag,
}

/// A purge of several responses, as it stands in the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Purge<'a> {
    /// Its name.
    pub id: u64,
    /// The time of the purge, seconds since 1970: responses fetched later stay.
    pub time: u32,
    /// Its target.
    pub of: PurgeBy,
    /// The key, the prefix or the tag.
    pub text: &'a [u8],
}

impl Purge<'_> {
    /// Whether it covers an entry with that key and those tags.
    pub fn is_of(&self, key: &[u8], tags: &[u8]) -> bool {
        match self.of {
            PurgeBy::Key => key == self.text,
            PurgeBy::Prefix => key.starts_with(self.text),
            PurgeBy::Tag => tags.split(|b| *b == b' ').any(|tag| tag == self.text),
        }
    }
}

/// One change of the index, as it stands in the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// There is such a file.
    Put(IndexEntry<'a>),
    /// There is none of that name any more.
    Gone([u8; 16]),
    /// A key was purged.
    Purged {
        /// Its file's name.
        hash: [u8; 16],
        /// Files up to that version are invalid.
        version: u32,
        /// The time of the purge, seconds since 1970.
        time: u32,
    },
    /// Entries are to go.
    Mark(Purge<'a>),
    /// The purge of that name is done, files and all.
    Cleared(u64),
    /// So many entries stand before: the last record of an index.
    End(u64),
}

impl IndexEntry<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hash);
        for n in [self.blocks, self.expire, self.date, self.version, self.file] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&self.uses.to_le_bytes());
        out.extend_from_slice(&[u8::from(self.is_variant), 0]);
        out.extend_from_slice(&(self.tags.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.key.len() as u32).to_le_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.tags);
    }
}

impl Record<'_> {
    /// Appends the record to `out`. Of a key or a text that is too long nothing is appended.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&SYNC);
        out.extend_from_slice(&[0; RECORD_HEADER - SYNC.len()]);
        let kind = match self {
            Put(e) => {
                e.encode(out);
                1
            }
            Gone(hash) => {
                out.extend_from_slice(hash);
                2
            }
            Mark(p) => {
                out.extend_from_slice(&p.id.to_le_bytes());
                out.extend_from_slice(&p.time.to_le_bytes());
                let of = match p.of {
                    PurgeBy::Key => 0,
                    PurgeBy::Prefix => 1,
                    PurgeBy::Tag => 2,
                };
                out.push(of);
                out.extend_from_slice(p.text);
                3
            }
            Cleared(n) => {
                out.extend_from_slice(&n.to_le_bytes());
                4
            }
            End(n) => {
                out.extend_from_slice(&n.to_le_bytes());
                5
            }
            Purged { hash, version, time } => {
                out.extend_from_slice(hash);
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&time.to_le_bytes());
                6
            }
        };
        let len = out.len() - start - RECORD_HEADER;
        let too_long = match self {
            Put(e) => e.key.len() > KEY_MAX || e.tags.len() > TAGS_MAX,
            _ => len > RECORD_MAX,
        };
        if too_long {
            out.truncate(start);
            return;
        }
        let record = &mut out[start..];
        record[2] = kind;
        record[4..8].copy_from_slice(&(len as u32).to_le_bytes());
        let sum = checksum(&[&record[2..8], &record[RECORD_HEADER..]]);
        record[8..12].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The result of reading one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadStep<'a> {
    /// A record, with its length in bytes.
    Record(Record<'a>, usize),
    /// So many bytes are no record.
    Bad(usize),
    /// More bytes are needed; at the end of a file, it was cut off here.
    More,
}

/// Reads the record at the start of `bytes`. `last`: the file ends behind them.
pub fn read(bytes: &[u8], last: bool) -> ReadStep<'_> {
    if bytes.is_empty() {
        return ReadStep::More;
    }
    if !bytes.starts_with(&SYNC[..bytes.len().min(SYNC.len())]) {
        return ReadStep::Bad(to_next(bytes));
    }
    let whole = bytes.get(4..8).map(|_| u32_at(bytes, 4) as usize);
    if whole.is_some_and(|len| len > RECORD_MAX) {
        return ReadStep::Bad(to_next(bytes));
    }
    let Some(record) = whole.and_then(|len| bytes.get(..RECORD_HEADER + len)) else {
        // The length itself may be damaged: other records may lie within it.
        return if last && bytes.len() > SYNC.len() {
            ReadStep::Bad(to_next(bytes))
        } else {
            ReadStep::More
        };
    };
    let says = &record[RECORD_HEADER..];
    if checksum(&[&record[2..8], says]) != u32_at(record, 8) {
        return ReadStep::Bad(to_next(bytes));
    }
    match decode(record[2], says) {
        Some(decoded) => ReadStep::Record(decoded, record.len()),
        None => ReadStep::Bad(record.len()),
    }
}

/// The distance to the next place where a record may begin.
fn to_next(bytes: &[u8]) -> usize {
    match memmem::find(&bytes[1..], &SYNC) {
        Some(at) => 1 + at,
        // The last byte may be the first of the next one.
        None if bytes.len() > 1 && bytes.ends_with(&SYNC[..1]) => bytes.len() - 1,
        None => bytes.len(),
    }
}

fn decode(kind: u8, says: &[u8]) -> Option<Record<'_>> {
    Some(match kind {
        1 => {
            let fixed = says.get(..ENTRY)?;
            let tags_len = usize::from(u16::from_le_bytes([fixed[40], fixed[41]]));
            let key_len = u32_at(fixed, 42) as usize;
            let (key, tags) = says[ENTRY..].split_at_checked(key_len)?;
            if tags.len() != tags_len || key_len > KEY_MAX || tags_len > TAGS_MAX {
                return None;
            }
            Put(IndexEntry {
                hash: fixed[..16].try_into().ok()?,
                blocks: u32_at(fixed, 16),
                expire: u32_at(fixed, 20),
                date: u32_at(fixed, 24),
                version: u32_at(fixed, 28),
                file: u32_at(fixed, 32),
                uses: u16::from_le_bytes([fixed[36], fixed[37]]),
                is_variant: fixed[38] != 0,
                key,
                tags,
            })
        }
        2 => Gone(says.try_into().ok()?),
        3 => {
            let (fixed, text) = says.split_at_checked(13)?;
            let of = match fixed[12] {
                0 => PurgeBy::Key,
                1 => PurgeBy::Prefix,
                2 => PurgeBy::Tag,
                _ => return None,
            };
            Mark(Purge { id: u64_at(fixed, 0), time: u32_at(fixed, 8), of, text })
        }
        4 if says.len() == 8 => Cleared(u64_at(says, 0)),
        5 if says.len() == 8 => End(u64_at(says, 0)),
        6 if says.len() == 24 => Purged {
            hash: says[..16].try_into().ok()?,
            version: u32_at(says, 16),
            time: u32_at(says, 20),
        },
        _ => return None,
    })
}

fn checksum(parts: &[&[u8]]) -> u32 {
    let mut sum = Crc32::new();
    parts.iter().for_each(|part| sum.update(part));
    sum.finish()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut out = [0; 4];
    out.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(out)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>(n: u8, key: &'a [u8], tags: &'a [u8]) -> IndexEntry<'a> {
        let (blocks, expire, date, uses) = (7, 1_800_000_000, 1_790_000_000, 3);
        let (hash, version, file, is_variant) = ([n; 16], 70_000, u32::MAX - 1, n == 2);
        IndexEntry { hash, blocks, expire, date, version, file, uses, is_variant, key, tags }
    }

    fn some() -> Vec<Record<'static>> {
        vec![
            Mark(Purge { id: 9, time: 5, of: PurgeBy::Prefix, text: b"http://a/" }),
            Put(entry(1, b"http://a/1", b"red green")),
            Put(entry(2, b"", b"")),
            Gone([1; 16]),
            Purged { hash: [3; 16], version: u32::MAX, time: 1_790_000_001 },
            Put(entry(3, b"http://a/3", b"blue")),
            Cleared(9),
            End(3),
        ]
    }

    /// All records in some bytes, and the number of damaged bytes.
    fn all(mut bytes: &[u8]) -> (Vec<Record<'_>>, usize) {
        let (mut found, mut bad) = (Vec::new(), 0);
        loop {
            match read(bytes, true) {
                ReadStep::Record(record, len) => {
                    found.push(record);
                    bytes = &bytes[len..];
                }
                ReadStep::Bad(len) => {
                    bad += len;
                    bytes = &bytes[len..];
                }
                ReadStep::More => return (found, bad + bytes.len()),
            }
        }
    }

    fn written(records: &[Record<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        records.iter().for_each(|r| r.encode(&mut out));
        out
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = written(&some());
        assert_eq!(all(&bytes), (some(), 0));
        // In pieces: nothing is made of half a record.
        for end in 0..bytes.len() {
            match read(&bytes[..end], false) {
                ReadStep::More => {}
                ReadStep::Record(record, len) => {
                    assert!(record == some()[0] && len <= end);
                    break;
                }
                ReadStep::Bad(_) => panic!("bad at {end}"),
            }
        }
    }

    #[test]
    fn a_torn_end_costs_the_last_record_alone() {
        let bytes = written(&some());
        let last = written(&some()[7..]).len();
        for cut in 1..last {
            let (found, bad) = all(&bytes[..bytes.len() - cut]);
            assert_eq!((found, bad), (some()[..7].to_vec(), last - cut));
        }
        // Records that a later process appended behind a torn one are read.
        let mut torn = bytes[..bytes.len() - 3].to_vec();
        torn.extend_from_slice(&bytes);
        let (found, bad) = all(&torn);
        assert_eq!((found.len(), bad), (15, last - 3));
    }

    #[test]
    fn damage_costs_the_record_it_is_in() {
        let bytes = written(&some());
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x41;
            let (found, bad) = all(&bytes);
            assert_eq!(found.len(), 7, "byte {at}");
            assert!(bad > 0 && found.iter().all(|r| some().contains(r)), "byte {at}");
        }
    }

    #[test]
    fn files_of_others() {
        let header = FileHeader { kind: IndexFileKind::Journal, order: 1_790_000_000_123, part: 4 };
        let bytes = header.encode();
        assert_eq!(FileHeader::decode(&bytes), Ok(header));
        assert_eq!(FileHeader::decode(&bytes[..31]), Err(BadFile::Damaged));
        assert_eq!(FileHeader::decode(&[b'x'; 64]), Err(BadFile::Foreign));
        let mut newer = bytes;
        newer[8] = 3;
        assert_eq!(FileHeader::decode(&newer), Err(BadFile::Version(3)));
        for at in 12..FILE_HEADER {
            let mut bad = bytes;
            bad[at] ^= 1;
            assert_eq!(FileHeader::decode(&bad), Err(BadFile::Damaged), "byte {at}");
        }
    }

    #[test]
    fn what_purges_are_of() {
        let is_of =
            |of, text: &[u8]| Purge { id: 0, time: 0, of, text }.is_of(b"/a/b", b"red rose");
        assert!(
            is_of(PurgeBy::Key, b"/a/b")
                && !is_of(PurgeBy::Key, b"/a/")
                && !is_of(PurgeBy::Key, b"/a/bc")
        );
        assert!(
            is_of(PurgeBy::Prefix, b"/a/")
                && is_of(PurgeBy::Prefix, b"")
                && !is_of(PurgeBy::Prefix, b"/b")
        );
        assert!(
            is_of(PurgeBy::Tag, b"rose")
                && !is_of(PurgeBy::Tag, b"ros")
                && !is_of(PurgeBy::Tag, b"RED")
        );
    }

    #[test]
    fn too_long_is_not_written() {
        let long = vec![b'x'; KEY_MAX + 1];
        assert_eq!(written(&[Put(entry(1, &long, b"")), End(1)]), written(&[End(1)]));
        let longest = vec![b'x'; KEY_MAX];
        assert_eq!(all(&written(&[Put(entry(1, &longest, &longest[..TAGS_MAX]))])).1, 0);
    }
}
