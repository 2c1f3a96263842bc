use std::collections::HashMap;

use super::merge::later;
use super::search::look_at;
use super::*;
use crate::index_format::{ReadStep, Record, read};
use testkit::Folder;

fn raw(date: u32, tags: &[u8]) -> Vec<u8> {
    let key = b"/a";
    let mut out = Vec::new();
    Record::Put(IndexEntry { date, key, tags, ..IndexEntry::default() }).encode(&mut out);
    out
}

#[test]
fn journals_of_one_millisecond() {
    let folder = Folder::new("index");
    let journals: Vec<_> = (0..3).map(|_| Journal::create(&folder, 7, 1).unwrap().path).collect();
    let listed = list(&folder).unwrap();
    let orders: Vec<u64> = listed.iter().map(|l| l.header.unwrap().order).collect();
    assert_eq!(orders, [7, 8, 9]);
    assert_eq!(listed.into_iter().map(|l| l.path).collect::<Vec<_>>(), journals);
}

fn entry(date: u32, version: u32, tags: &'static [u8]) -> IndexEntry<'static> {
    IndexEntry { hash: [1; 16], date, version, key: b"/a", tags, ..IndexEntry::default() }
}

#[test]
fn what_a_purge_is_of() {
    let index = FileHeader { kind: IndexFileKind::Index, order: 1, part: 1 };
    let journal = |part| FileHeader { kind: IndexFileKind::Journal, order: 2, part };
    let purge = MarkedPurge { id: 1, time: 9, of: PurgeBy::Tag, text: b"old".to_vec() };
    let of = |records: &[(FileHeader, IndexEntry<'_>)]| {
        let mut found = HashMap::new();
        records.iter().for_each(|(file, e)| look_at(&purge, &mut found, *file, e));
        found.values().map(|found| found.date).collect::<Vec<_>>()
    };
    let (old, new) = (entry(5, 3, b"old"), entry(6, 4, b"new"));
    assert_eq!(of(&[(index, old)]), [5]);
    assert!(of(&[(index, old), (journal(1), new)]).is_empty());
    assert_eq!(of(&[(index, new), (journal(1), old)]), [5], "it may be of another zone");
    // A record that comes late is not later for that.
    let late = entry(5, 2, b"new");
    assert_eq!(of(&[(journal(1), old), (journal(1), late)]), [5]);
    assert_eq!(of(&[(journal(1), old), (journal(1), entry(7, 8, b"old"))]), [7]);
    // Zones have versions of their own; where the order is unknown, both are covered.
    assert!(of(&[(journal(1), old), (journal(2), entry(6, 1, b"new"))]).is_empty());
    assert_eq!(of(&[(journal(1), old), (journal(2), entry(5, 9, b"new"))]), [5]);
}

#[test]
fn what_journals_say_at_last() {
    let hash = [1; 16];
    let put = |version, blocks| Record::Put(IndexEntry { blocks, ..entry(1, version, b"") });
    let purged = |version| Record::Purged { hash, version, time: 7 };
    let u = u32::MAX;
    // Blocks of the entry, or 0.
    for (journals, blocks) in [
        (vec![vec![put(3, 1), put(2, 2)]], 1),
        (vec![vec![put(u, 1), put(1, 2)]], 2),
        (vec![vec![put(3, 1), purged(4), put(5, 2)]], 2),
        (vec![vec![purged(4), put(5, 2), put(3, 1)]], 2),
        (vec![vec![purged(4), put(3, 1)]], 0),
        (vec![vec![put(5, 1), purged(4)]], 1),
        (vec![vec![purged(4), put(0, 1)]], 0),
        (vec![vec![put(5, 1), Record::Gone(hash)]], 0),
        // Another server's.
        (vec![vec![put(5, 1)], vec![purged(1)]], 0),
        (vec![vec![purged(9)], vec![put(1, 1)]], 1),
    ] {
        let folder = Folder::new("said");
        for (part, records) in journals.iter().enumerate() {
            let mut journal = Journal::create(&folder, 7 + part as u64, part as u32).unwrap();
            let mut bytes = Vec::new();
            records.iter().for_each(|record| record.encode(&mut bytes));
            journal.append(&bytes, true).unwrap();
        }
        let loaded = IndexAtStart::begin(&folder).unwrap();
        let has_purges = journals.iter().flatten().any(|r| matches!(r, Record::Purged { .. }));
        assert_eq!(loaded.purged, if has_purges { 7 } else { 0 });
        let known = loaded.finish(10).unwrap().known;
        assert_eq!(known.iter().map(|known| known.blocks).sum::<u32>(), blocks, "{journals:?}");
    }
}

#[test]
fn the_later_of_two_records() {
    let both = |one: &[u8], other: &[u8]| match read(other, true) {
        ReadStep::Record(Record::Put(e), _) => later(Some((1, one.to_vec())), 1, &e, other).1,
        step => panic!("{step:?}"),
    };
    assert_eq!(both(&raw(5, b"a"), &raw(6, b"b")), raw(6, b"b"));
    assert_eq!(both(&raw(6, b"b"), &raw(5, b"a")), raw(6, b"b"));
    assert_eq!(both(&raw(6, b"a b"), &raw(6, b"c b")), raw(6, b"c b a"));
    assert_eq!(both(&raw(6, b"a"), &raw(6, b"")), raw(6, b"a"));
    assert_eq!(both(&raw(6, b""), &raw(6, b"a")), raw(6, b"a"));
    let long = |b: u8| vec![b; 10_000];
    assert_eq!(both(&raw(6, &long(b'a')), &raw(6, &long(b'b'))), raw(6, &long(b'b')));
}
