//! A new index, made of the old one, the journals and the zone.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::{FOLDER, INDEX, NEW, Source, is_later, list};
use crate::index_format::{FileHeader, IndexEntry, IndexFileKind, ReadStep, Record, read};
use crate::key::Hash;
use crate::keys::ZoneEntry;

/// Entries of a piece of a file, as they stand there.
#[derive(Default)]
pub struct Batch {
    raw: Vec<u8>,
    pub hashes: Vec<Hash>,
    ends: Vec<usize>,
}

impl Batch {
    fn push(&mut self, hash: Hash, raw: &[u8]) {
        self.raw.extend_from_slice(raw);
        self.hashes.push(hash);
        self.ends.push(self.raw.len());
    }
}

/// A new index in the making, of the records in older files whose entries the zone still has.
pub struct Merge {
    folder: PathBuf,
    /// The last record of each hash in the journals, with the zone of its journal.
    newest: HashMap<Hash, (u32, Vec<u8>)>,
    /// The old index.
    index: Option<Source>,
    /// Files that the new index takes the place of.
    old: Vec<PathBuf>,
    fd: OwnedFd,
    header: FileHeader,
    at: u64,
    count: u64,
    ended: bool,
}

impl Merge {
    /// Begins. `except` is the journal that goes on. Journals that other processes keep stay; they
    /// are not read.
    pub fn begin(folder: &Path, header: FileHeader, except: &Path) -> io::Result<Merge> {
        let (mut newest, mut index, mut old) = (HashMap::new(), None, Vec::new());
        for file in list(folder)? {
            let is_journal = file.header.is_ok_and(|h| h.kind == IndexFileKind::Journal);
            let part = file.header.map_or(0, |h| h.part);
            if file.path == except || is_journal && file.is_kept() {
                continue;
            }
            let mut source = Source::open(&file.path)?;
            match is_journal {
                true => source.rest(|record, raw| {
                    if let Record::Put(e) = record {
                        let before = newest.remove(&e.hash);
                        newest.insert(e.hash, later(before, part, e, raw));
                    }
                })?,
                false if file.header.is_ok() => index = Some(source),
                false => {}
            }
            // The index itself is replaced; one that cannot be read is as good as none.
            if file.path.file_name().is_some_and(|name| name != INDEX) {
                old.push(file.path);
            }
        }
        let path = folder.join(FOLDER).join(NEW);
        let _ = fs::remove_file(&path);
        let fd = os::file::create_new(&path, 0o600)?;
        let folder = folder.to_owned();
        let (at, count, ended) = (0, 0, false);
        let mut merge = Merge { folder, newest, index, old, fd, header, at, count, ended };
        merge.write(&header.encode())?;
        Ok(merge)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        os::file::write_all_at(&self.fd, &[bytes], self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Reads the next batch, whose entries are looked up in the zone; `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<Batch>> {
        let mut batch = Batch::default();
        if let Some(index) = &mut self.index {
            let newest = &self.newest;
            let more = index.piece(|record, raw| {
                if let Record::Put(e) = record
                    && !newest.contains_key(&e.hash)
                {
                    batch.push(e.hash, raw);
                }
            })?;
            if !more {
                self.index = None;
            }
            return Ok(Some(batch));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Ok(None);
        }
        let newest = std::mem::take(&mut self.newest);
        newest.iter().for_each(|(hash, (_, raw))| batch.push(*hash, raw));
        Ok(Some(batch))
    }

    /// Writes the entries of a batch that the zone still has, with the zone's values.
    pub fn put(&mut self, batch: &Batch, metas: &[Option<ZoneEntry>]) -> io::Result<()> {
        let mut out = Vec::with_capacity(batch.raw.len());
        let mut start = 0;
        for (end, meta) in batch.ends.iter().zip(metas) {
            let raw = &batch.raw[start..*end];
            start = *end;
            if let (Some(meta), ReadStep::Record(Record::Put(e), _)) = (meta, read(raw, true)) {
                let ZoneEntry { blocks, expire, uses } = *meta;
                Record::Put(IndexEntry { blocks, expire, uses, ..e }).encode(&mut out);
                self.count += 1;
            }
        }
        self.write(&out)
    }

    /// Ends: the new index takes the place of all that it was made of. Gives how large it is.
    pub fn finish(mut self) -> io::Result<u64> {
        let mut end = Vec::new();
        Record::End(self.count).encode(&mut end);
        self.write(&end)?;
        let folder = self.folder.join(FOLDER);
        // When the machine stops during the rename, one of the two files is whole.
        os::file::sync_data(&self.fd)?;
        fs::rename(folder.join(NEW), folder.join(INDEX))?;
        for path in &self.old {
            match fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(self.at)
    }

    /// The order of the new index.
    pub fn order(&self) -> u64 {
        self.header.order
    }
}

/// The later of two records of a hash, `raw` being the one that came last. Where the order is
/// unknown the result has the tags of both, so that a purge of either finds it.
pub(super) fn later(
    before: Option<(u32, Vec<u8>)>,
    part: u32,
    e: &IndexEntry<'_>,
    raw: &[u8],
) -> (u32, Vec<u8>) {
    let last = (part, raw.to_vec());
    let Some(before) = before else { return last };
    let ReadStep::Record(Record::Put(old), _) = read(&before.1, true) else { return last };
    match is_later((before.0, &old), (part, e)) {
        Some(false) => before,
        None if old.tags != e.tags => {
            let mut tags = e.tags.to_vec();
            for tag in old.tags.split(|b| *b == b' ').filter(|tag| !tag.is_empty()) {
                if !e.tags.split(|b| *b == b' ').any(|other| other == tag) {
                    tags.push(b' ');
                    tags.extend_from_slice(tag);
                }
            }
            let mut both = Vec::new();
            Record::Put(IndexEntry { tags: tags.trim_ascii_start(), ..*e }).encode(&mut both);
            // Too many for one record: the last that came.
            if both.is_empty() { last } else { (part, both) }
        }
        _ => last,
    }
}
