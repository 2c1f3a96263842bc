//! The entries of purges by key, prefix and tag.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::{MarkedPurge, Source, is_later, list};
use crate::index_format::{FileHeader, IndexEntry, IndexFileKind, Record};
use crate::key::Hash;

/// Entries with the dates of their responses.
type Matches = Vec<(Hash, u32)>;

/// A record that a purge is of, as far as it says: its journal's zone, and the entry's version and
/// date.
pub(super) struct Match {
    part: u32,
    version: u32,
    pub date: u32,
}

/// Entries that purges are of, for each of these; and whether
/// the index that has that order (0: none) was there, and whole.
pub fn search(
    folder: &Path,
    order: u64,
    purges: &[MarkedPurge],
) -> io::Result<(Vec<Matches>, bool)> {
    let mut found: Vec<HashMap<Hash, Match>> = purges.iter().map(|_| HashMap::new()).collect();
    let mut whole = order == 0;
    for file in list(folder)? {
        let Ok(header) = file.header else { continue };
        let mut source = match Source::open(&file.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            source => source?,
        };
        let (mut count, mut says) = (0, None);
        source.rest(|record, _| match record {
            Record::Put(e) => {
                count += 1;
                for (purge, found) in purges.iter().zip(&mut found) {
                    look_at(purge, found, header, e);
                }
            }
            Record::End(n) => says = Some(*n),
            _ => {}
        })?;
        if header.kind == IndexFileKind::Index && header.order == order {
            whole = says == Some(count) && source.bad == 0;
        }
    }
    let list = |found: HashMap<Hash, Match>| -> Matches {
        found.into_iter().map(|(hash, found)| (hash, found.date)).collect()
    };
    Ok((found.into_iter().map(list).collect(), whole))
}

/// A record in the order of the files: a purge is of it, or it says that a file of which the purge
/// is has made room for another one.
pub(super) fn look_at(
    purge: &MarkedPurge,
    found: &mut HashMap<Hash, Match>,
    file: FileHeader,
    e: &IndexEntry<'_>,
) {
    let (is_of, part) = (purge.purge().is_of(e.key, e.tags), file.part);
    // The index comes first, with one record for each entry: most records end here.
    if !is_of && file.kind == IndexFileKind::Index {
        return;
    }
    let Some(before) = found.get(&e.hash) else {
        if is_of {
            let IndexEntry { version, date, .. } = *e;
            found.insert(e.hash, Match { part, version, date });
        }
        return;
    };
    let Match { version, date, .. } = *before;
    let old = IndexEntry { version, date, ..*e };
    if is_later((before.part, &old), (part, e)) == Some(true) {
        match is_of {
            true => drop(found.insert(e.hash, Match { part, version: e.version, date: e.date })),
            false => drop(found.remove(&e.hash)),
        }
    }
}
