//! The entries and purges that the files of the index tell of at a start.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use super::{MarkedPurge, Source, is_before, list};
use crate::index_format::{BadFile, IndexEntry, IndexFileKind, Purge, Record};
use crate::key::Hash;
use crate::keys::IndexedEntry;

/// The content of the index's files at a start.
#[derive(Default)]
pub(crate) struct IndexAtStart {
    /// Entries, the oldest first.
    pub known: Vec<IndexedEntry>,
    /// Purges that are not done.
    pub marks: Vec<MarkedPurge>,
    /// The time of the last purge that they record, finished or not; 0: there was none.
    pub purged: u32,
    /// There are variants of keys beside their first.
    pub has_variants: bool,
    /// The order of the index: [`FileHeader::order`](crate::index_format::FileHeader::order); 0:
    /// there is none, or it is damaged.
    pub order: u64,
    /// Its damages, for the log.
    pub complaints: Vec<String>,
    /// The last record of each hash in the journals, which are newer than the index.
    newer: HashMap<Hash, Newer>,
    index: Option<Source>,
}

fn known(e: &IndexEntry<'_>) -> IndexedEntry {
    let IndexEntry { hash, blocks, expire, uses, file, .. } = *e;
    IndexedEntry { hash, blocks, expire, uses, file }
}

/// The last record of a hash in a journal.
struct Newer {
    /// The zone of which the journal is: versions of different zones have no order.
    part: u32,
    version: u32,
    /// The entry; `None` where it is gone.
    known: Option<IndexedEntry>,
}

impl IndexAtStart {
    /// A journal of the zone `part` records a file, or a purge of files up to a version. Processes
    /// report in any order: the versions give the order of a zone's records.
    fn is_said(&mut self, part: u32, hash: Hash, version: u32, known: Option<IndexedEntry>) {
        let before = self.newer.get(&hash);
        if before.is_none_or(|b| b.part != part || !is_before(version, b.version)) {
            self.newer.insert(hash, Newer { part, version, known });
        }
    }
}

fn add_mark(marks: &mut Vec<MarkedPurge>, p: &Purge<'_>) {
    if marks.iter().all(|m| m.id != p.id) {
        marks.push(MarkedPurge { id: p.id, time: p.time, of: p.of, text: p.text.to_vec() });
    }
}

impl IndexAtStart {
    /// Reads the journals, in which purges stand, too.
    pub fn begin(folder: &Path) -> io::Result<IndexAtStart> {
        let mut l = IndexAtStart::default();
        let mut cleared = HashSet::new();
        for file in list(folder)? {
            let shown = file.path.display().to_string();
            let header = match file.header {
                Ok(header) => header,
                // Begun, and nothing more.
                Err(BadFile::Damaged) if file.is_kept() => continue,
                Err(BadFile::Version(version)) => {
                    l.complaints.push(format!("\"{shown}\" has version {version}, ignored"));
                    continue;
                }
                Err(BadFile::Foreign | BadFile::Damaged) => {
                    l.complaints.push(format!("\"{shown}\" is damaged, not read"));
                    continue;
                }
            };
            let mut source = Source::open(&file.path)?;
            let each = |record: &Record<'_>, _: &[u8]| match record {
                Record::Put(e) => {
                    l.has_variants |= e.is_variant;
                    l.is_said(header.part, e.hash, e.version, Some(known(e)));
                }
                // A deletion is written once all earlier records of the entry have been read.
                Record::Gone(hash) => {
                    let version = l.newer.get(hash).map_or(0, |before| before.version);
                    let gone = Newer { part: header.part, version, known: None };
                    l.newer.insert(*hash, gone);
                }
                Record::Purged { hash, version, time } => {
                    l.purged = l.purged.max(*time);
                    l.is_said(header.part, *hash, *version, None);
                }
                Record::Mark(p) => {
                    l.purged = l.purged.max(p.time);
                    add_mark(&mut l.marks, p);
                }
                Record::Cleared(id) => {
                    cleared.insert(*id);
                }
                Record::End(_) => {}
            };
            if header.kind == IndexFileKind::Index {
                (l.index, l.order) = (Some(source), header.order);
                continue;
            }
            source.rest(each)?;
            if source.bad > 0 {
                let bad = source.bad;
                l.complaints.push(format!("{bad} bytes of \"{shown}\" are damaged, skipped"));
            }
        }
        l.marks.retain(|mark| !cleared.contains(&mark.id));
        Ok(l)
    }

    /// Reads the index, and puts all entries in order. No more than `most`: the youngest.
    pub fn finish(mut self, most: usize) -> io::Result<IndexAtStart> {
        let mut known_now = Vec::new();
        if let Some(mut source) = self.index.take() {
            let (mut count, mut says) = (0, None);
            let (newer, has_variants) = (&self.newer, &mut self.has_variants);
            source.rest(|record, _| match record {
                Record::Put(e) => {
                    count += 1;
                    *has_variants |= e.is_variant;
                    if newer.is_empty() || !newer.contains_key(&e.hash) {
                        known_now.push(known(e));
                    }
                }
                Record::End(n) => says = Some(*n),
                _ => {}
            })?;
            if says != Some(count) || source.bad > 0 {
                let m = format!("the index is damaged, {count} entries of it are used");
                self.complaints.push(m);
                self.order = 0;
            }
        }
        let newer = std::mem::take(&mut self.newer);
        known_now.extend(newer.into_values().filter_map(|newer| newer.known));
        known_now.sort_unstable_by_key(|one| one.expire);
        let surplus = known_now.len().saturating_sub(most);
        known_now.drain(..surplus);
        self.known = known_now;
        Ok(self)
    }
}
