//! The files of the index, in the hidden folder of a cache's: listed, read and written. For
//! threads.
//!
//! `entries` holds all entries of the moment it was written; journals hold the changes since. A
//! process that keeps the index has its journal locked, so that other processes of a server that
//! takes over leave it alone.

mod journal;
mod merge;
mod search;
mod source;
mod start;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::index_format::{BadFile, FileHeader, IndexEntry, IndexFileKind, Purge, PurgeBy};

pub(crate) use self::journal::Journal;
pub(crate) use self::merge::Merge;
pub(crate) use self::search::search;
use self::source::Source;
pub(crate) use self::start::IndexAtStart;

/// The folder's name: a count of a cache's files leaves it out.
pub(crate) const FOLDER: &str = ".weir.index";
const INDEX: &str = "entries";
const NEW: &str = "entries.new";
const JOURNAL: &str = "journal.";

/// A purge that owns its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkedPurge {
    pub id: u64,
    pub time: u32,
    pub of: PurgeBy,
    pub text: Vec<u8>,
}

impl MarkedPurge {
    /// As it stands in files.
    pub fn purge(&self) -> Purge<'_> {
        Purge { id: self.id, time: self.time, of: self.of, text: &self.text }
    }
}

/// A file that is there.
#[derive(Debug)]
pub struct IndexFile {
    pub path: PathBuf,
    pub header: Result<FileHeader, BadFile>,
}

impl IndexFile {
    /// Whether a process keeps it.
    pub fn is_kept(&self) -> bool {
        os::file::open(&self.path).is_ok_and(|fd| os::file::try_lock(fd).is_err())
    }

    fn order(&self) -> (bool, u64) {
        let header = self.header.as_ref().ok();
        (header.is_none_or(|h| h.kind == IndexFileKind::Journal), header.map_or(0, |h| h.order))
    }
}

/// The files of the index in a cache's folder, in the order in which they count: the index first.
pub fn list(folder: &Path) -> io::Result<Vec<IndexFile>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder.join(FOLDER)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name != INDEX && !name.starts_with(JOURNAL) {
            continue;
        }
        let path = entry.path();
        let header = match Source::open(&path) {
            Ok(source) => source.header,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        found.push(IndexFile { path, header });
    }
    found.sort_by_key(IndexFile::order);
    Ok(found)
}

/// Whether a version is an earlier one than another of the same zone.
fn is_before(version: u32, other: u32) -> bool {
    version == 0 || other.wrapping_sub(version).cast_signed() > 0
}

/// Whether the second of two records of a hash, each with its journal's zone, is of a later file.
/// Workers report side by side, so the order of their records says nothing. `None`: unknown.
fn is_later(first: (u32, &IndexEntry<'_>), second: (u32, &IndexEntry<'_>)) -> Option<bool> {
    let ((part, old), (other, new)) = (first, second);
    if part == other && old.version != 0 && new.version != 0 {
        return Some(is_before(old.version, new.version));
    }
    (old.date != new.date).then_some(old.date < new.date)
}

/// Whether a server that began later keeps an index here: it writes it from now on.
pub fn is_taken_over(folder: &Path, part: u32) -> io::Result<bool> {
    let is_later = |h: FileHeader| {
        h.kind == IndexFileKind::Journal && h.part.wrapping_sub(part).cast_signed() > 0
    };
    Ok(list(folder)?.iter().any(|file| file.header.is_ok_and(is_later) && file.is_kept()))
}

/// The files that keepers have left that are gone: their journals, and the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub journals: usize,
    pub journal_bytes: u64,
    pub index_bytes: u64,
}

/// Measures what is left in the folder of a cache's.
pub fn left(folder: &Path) -> io::Result<Left> {
    let mut left = Left::default();
    for file in list(folder)? {
        let Ok(bytes) = fs::metadata(&file.path).map(|metadata| metadata.len()) else { continue };
        if file.header.is_ok_and(|h| h.kind == IndexFileKind::Index) {
            left.index_bytes = bytes;
        } else if !file.is_kept() {
            left.journals += 1;
            left.journal_bytes += bytes;
        }
    }
    Ok(left)
}

/// The order of the index that is there; 0 is none.
pub fn order_of(folder: &Path) -> u64 {
    let path = folder.join(FOLDER).join(INDEX);
    let header = Source::open(&path).ok().and_then(|source| source.header.ok());
    header.map_or(0, |h| h.order)
}
