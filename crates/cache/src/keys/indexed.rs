//! The entries of a zone as the index has them.
//!
//! The zone is the truth about which entries exist, the index about their keys and tags. Each
//! process reports its entries through a ring of its own; the keeper of the index reads them all.
//! An entry with a file is *indexed* once its key was reported: the others are counted, and their
//! files are read for that.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use crate::index_format;
use shm::Pushed;

use super::node::{KNOWN, Node, THERE, TOLD, UNSEEN};
use super::{Count, Keys, Word, now_secs};
use crate::key::Hash;
use crate::purge_marks::PurgeMark;

/// An entry of the index at a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IndexedEntry {
    pub hash: Hash,
    pub blocks: u32,
    /// The order of use.
    pub expire: u32,
    pub uses: u16,
    /// The fingerprint of its file: [`index_format::IndexEntry::file`].
    pub file: u32,
}

/// The values of an entry in the zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ZoneEntry {
    pub blocks: u32,
    pub expire: u32,
    pub uses: u16,
}

/// An entry whose file was purged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purged {
    /// It was there, and is not any more.
    Out,
    /// There is none with a file.
    Nothing,
    /// There is one that is younger than the purge.
    Younger,
}

impl Keys {
    /// Reports a record to the index, without waiting. False where the ring is full.
    pub(crate) fn tell_index(&self, record: &index_format::Record<'_>) -> bool {
        let mut message = Vec::new();
        record.encode(&mut message);
        let pushed = self.push_news(&message);
        self.has_pushed(pushed);
        pushed != Pushed::Full
    }

    /// The same of a record in its format for files, before [`Keys::has_pushed`].
    pub(crate) fn push_news(&self, message: &[u8]) -> Pushed {
        self.rings.push(self.slot.get(), message)
    }

    /// Rings the keeper's bell for pushed news. Not to be called under the lock.
    pub(crate) fn has_pushed(&self, pushed: Pushed) {
        if pushed == Pushed::First {
            self.bells.ring(self.slot.get());
        }
    }

    /// Takes the news of all processes: the bytes, and the positions for [`Keys::index_has`].
    pub(crate) fn for_index(&self, out: &mut Vec<u8>) -> Vec<(usize, u64)> {
        let slots = 0..self.rings.slots();
        let full = slots.filter(|slot| !self.rings.is_empty(*slot));
        full.map(|slot| (slot, self.rings.peek(slot, out))).collect()
    }

    /// The index has the news up to these positions.
    pub(crate) fn index_has(&self, taken: &[(usize, u64)]) {
        taken.iter().for_each(|(slot, at)| self.rings.taken(*slot, *at));
    }

    /// Whether a ring has news that were not taken.
    pub fn has_news(&self) -> bool {
        (0..self.rings.slots()).any(|slot| !self.rings.is_empty(slot))
    }

    /// The last version given.
    pub(crate) fn last_version(&self) -> u32 {
        self.word(Word::Version).load(Ordering::SeqCst) as u32
    }

    /// Adds entries of the index, the oldest first.
    pub(crate) fn add_known(&self, list: &[IndexedEntry], inactive: u32) {
        let mut t = self.lock();
        let expire = now_secs().saturating_add(inactive);
        let mut added = 0;
        for one in list {
            let key = self.table.key(&one.hash);
            let found = t.find(key).and_then(|entry| Some((entry, t.value(entry)?)));
            let flags = THERE | KNOWN | UNSEEN | TOLD;
            let (blocks, version) = (one.blocks, one.file);
            match found {
                // A request was faster.
                Some((_, node)) if node.has(THERE) => {}
                Some((entry, node)) => {
                    let flags = node.flags | flags;
                    self.change(&mut t, entry, &node, Node { blocks, version, flags, ..node });
                    added += 1;
                }
                None => {
                    let uses = one.uses.max(1);
                    let node = Node { blocks, expire, version, uses, flags, ..Node::default() };
                    if t.insert(key, node).is_err() {
                        break;
                    }
                    self.recount(&Node::default(), &node);
                    added += 1;
                }
            }
        }
        drop(t);
        self.word(Word::Indexed).fetch_add(added, Ordering::Relaxed);
    }

    /// The number of entries that the zone has room for.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// The number of entries that came from the index.
    pub fn indexed(&self) -> u64 {
        self.get(Word::Indexed)
    }

    /// The number of entries with files that are not in the index.
    pub fn unknown(&self) -> u64 {
        self.get(Word::Unknown)
    }

    /// Goes through the table from an index on, some entries at a time, and gives those that
    /// `wanted` takes. `None` for the index is the end.
    fn some(
        &self,
        from: &mut Option<u32>,
        mut wanted: impl FnMut(Hash, &Node) -> bool,
    ) -> Vec<(Hash, u32)> {
        /// Entries that are looked at under one lock.
        const AT_ONCE: u32 = 1024;
        let t = self.lock();
        let Some(at) = *from else { return Vec::new() };
        let mut found = Vec::new();
        for number in at..at.saturating_add(AT_ONCE) {
            if let Some(entry) = t.nth(number)
                && let (Some(hash), Some(node)) = (t.key_of(entry), t.value(entry))
                && wanted(hash, &node)
            {
                found.push((hash, node.file_version()));
            }
        }
        let next = at.saturating_add(AT_ONCE);
        *from = (next < t.used()).then_some(next);
        found
    }

    /// Some of the entries with files that are not in the index, with their versions.
    pub(crate) fn some_unknown(&self, from: &mut Option<u32>) -> Vec<(Hash, u32)> {
        self.some(from, |_, node| node.is_unknown())
    }

    /// The key of an entry's file of that version was reported to the index.
    pub fn is_known(&self, hash: &Hash, version: u32) {
        let mut t = self.lock();
        let found = t.find(self.table.key(hash)).and_then(|e| Some((e, t.value(e)?)));
        if let Some((entry, node)) = found
            && node.has(THERE)
            && node.file_version() == version
        {
            let to = Node { flags: node.flags | KNOWN, ..node };
            self.change(&mut t, entry, &node, to);
        }
    }

    /// Whether a file from before this start is not to be trusted: the index has no such file, and
    /// it may have been renamed unseen by a purge. `date` is the time of its fetch, `file` its
    /// fingerprint.
    pub(crate) fn is_distrusted(&self, hash: &Hash, date: i64, file: u32) -> bool {
        if date > i64::from(self.marks.distrusted()) {
            return false;
        }
        let t = self.lock();
        let node = t.find(self.table.key(hash)).and_then(|entry| t.value(entry));
        !node.is_some_and(|node| node.is_told_of(file) || node.file_version() != 0)
    }

    /// Reports the purge of a key whose entry is out; false where the ring is full. Files that get
    /// a version from now on are not covered.
    pub(crate) fn tell_purged(&self, hash: &Hash) -> bool {
        let (version, time) = (self.next_version(), now_secs());
        self.marks.purge_at(time);
        self.tell_index(&index_format::Record::Purged { hash: *hash, version, time })
    }

    /// Requests a flush of all news to the disk. Gives its number, for [`Keys::is_flushed`].
    pub(crate) fn request_flush(&self) -> u64 {
        let number = self.word(Word::FlushesRequested).fetch_add(1, Ordering::SeqCst) + 1;
        self.ring();
        number
    }

    /// Whether the flush of that number is done, or has failed.
    pub(crate) fn is_flushed(&self, number: u64) -> bool {
        self.word(Word::FlushesDone).load(Ordering::SeqCst) >= number
    }

    /// The number of the last flush requested, if it is not done: for the keeper.
    pub(crate) fn flush_requested(&self) -> Option<u64> {
        let wanted = self.word(Word::FlushesRequested).load(Ordering::SeqCst);
        (!self.is_flushed(wanted)).then_some(wanted)
    }

    /// The flushes up to `requested` are done, or have failed.
    pub(crate) fn set_flushed(&self, wanted: Option<u64>, failed: bool) {
        self.word(Word::JournalFailed).store(failed.into(), Ordering::SeqCst);
        if let Some(wanted) = wanted {
            self.word(Word::FlushesDone).fetch_max(wanted, Ordering::SeqCst);
            self.ring();
        }
    }

    /// Whether the last write to the journal failed.
    pub(crate) fn journal_failed(&self) -> bool {
        self.word(Word::JournalFailed).load(Ordering::SeqCst) != 0
    }

    /// The records of a finished purge at that time.
    pub(crate) fn purge_records(&self, time: u32) -> [index_format::Record<'static>; 2] {
        // The names of marks have their numbers in the low half.
        let id = u64::from(self.id) << 32;
        let purge = index_format::Purge { id, time, of: index_format::PurgeBy::Key, text: b"" };
        [index_format::Record::Mark(purge), index_format::Record::Cleared(id)]
    }

    /// The index has lost these entries.
    pub(crate) fn are_unknown(&self, list: &[Hash]) {
        let mut t = self.lock();
        for hash in list {
            let found = t.find(self.table.key(hash)).and_then(|e| Some((e, t.value(e)?)));
            if let Some((entry, node)) = found {
                let to = Node { flags: node.flags & !KNOWN, ..node };
                self.change(&mut t, entry, &node, to);
            }
        }
    }

    /// The index has lost all entries; some at a time.
    pub(crate) fn some_are_unknown(&self, from: &mut Option<u32>) {
        let list: Vec<Hash> =
            self.some(from, |_, node| node.has(KNOWN)).into_iter().map(|(hash, _)| hash).collect();
        self.are_unknown(&list);
    }

    /// Takes out some of the entries that came from the index and whose files the loader has not
    /// met, once it has met all files.
    pub(crate) fn drop_unseen(&self, from: &mut Option<u32>) -> u64 {
        let list = self.some(from, |_, node| node.has(UNSEEN));
        let mut t = self.lock();
        let mut gone = 0;
        for (hash, _) in list {
            let found = t.find(self.table.key(&hash)).and_then(|e| Some((e, t.value(e)?)));
            let Some((entry, node)) = found.filter(|(_, node)| node.has(UNSEEN)) else { continue };
            gone += 1;
            match node.is_in_use() {
                true => self.change(&mut t, entry, &node, node.without_file()),
                false => drop(self.remove_entry(&mut t, entry, node)),
            }
        }
        gone
    }

    /// The values of entries with files; `None` for entries without one.
    pub(crate) fn metas(&self, list: &[Hash]) -> Vec<Option<ZoneEntry>> {
        let t = self.lock();
        let meta = |hash: &Hash| {
            let node = t.value(t.find(self.table.key(hash))?)?;
            let Node { blocks, expire, uses, .. } = node;
            node.has(THERE).then_some(ZoneEntry { blocks, expire, uses })
        };
        list.iter().map(meta).collect()
    }

    /// Purges the entry of a hash; its file is to be deleted.
    pub fn purge(&self, hash: &Hash) -> Purged {
        self.purge_if(hash, |_| true)
    }

    /// The same for a mark, if the entry is as old as that; `date` is when its response was fetched
    /// as far as the index knows.
    pub(crate) fn purge_for(&self, hash: &Hash, mark: &PurgeMark, date: u32) -> Purged {
        self.purge_if(hash, |node| mark.is_as_old(node.file_version(), date.into()))
    }

    fn purge_if(&self, hash: &Hash, is_of: impl Fn(&Node) -> bool) -> Purged {
        self.streams.hide(hash);
        let mut t = self.lock();
        let found = t.find(self.table.key(hash)).and_then(|e| Some((e, t.value(e)?)));
        let Some((entry, node)) = found.filter(|(_, node)| node.has(THERE) || node.error != 0)
        else {
            return Purged::Nothing;
        };
        if !is_of(&node) {
            return Purged::Younger;
        }
        match node.is_in_use() {
            // The fetch goes on; whether its response is kept is decided at its end.
            true => self.change(&mut t, entry, &node, Node { error: 0, ..node.without_file() }),
            false => drop(self.remove_entry(&mut t, entry, node)),
        }
        if !node.has(THERE) {
            return Purged::Nothing;
        }
        self.count(Count::Purged as usize);
        Purged::Out
    }

    /// Takes the index for the process `pid`; false where another one keeps it.
    pub(crate) fn begin_keeping(&self, pid: u32) -> bool {
        let word = self.word(Word::Keeper);
        word.compare_exchange(0, pid.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Gives the index back.
    pub(crate) fn end_keeping(&self) {
        self.word(Word::Keeper).store(0, Ordering::Release);
    }

    /// The order of the index that has the indexed entries; 0: there is none.
    pub(crate) fn index_order(&self) -> u64 {
        self.get(Word::Index)
    }

    /// Another index has them from now on.
    pub(crate) fn set_index_order(&self, order: u64) {
        self.word(Word::Index).store(order, Ordering::Relaxed);
    }

    /// Whether a new index is to be made soon: the one that was read is damaged.
    pub(crate) fn is_merge_wanted(&self) -> bool {
        self.index_order() == 0 && self.indexed() > 0 && self.unknown() == 0
    }

    /// There is a variant of a key beside its first.
    pub(crate) fn has_variant(&self) {
        self.word(Word::Variants).store(1, Ordering::SeqCst);
    }

    /// Whether there may be one.
    pub(crate) fn may_have_variants(&self) -> bool {
        self.word(Word::Variants).load(Ordering::SeqCst) != 0
    }

    /// Whether the purges that were unfinished when the server ended are known.
    pub(crate) fn is_marked(&self) -> bool {
        self.is_warm() || self.word(Word::Marked).load(Ordering::SeqCst) != 0
    }

    /// Unfinished purges are known from now on.
    pub fn marked(&self) {
        self.word(Word::Marked).store(1, Ordering::SeqCst);
        self.bells.ring(self.slot.get());
    }

    /// Whether the zone has the index's entries: before, the entries of a purge cannot be searched.
    pub fn is_read(&self) -> bool {
        self.is_warm() || self.word(Word::Read).load(Ordering::SeqCst) != 0
    }

    /// The zone has the index's entries from now on.
    pub fn read(&self) {
        self.word(Word::Read).store(1, Ordering::SeqCst);
        self.bells.ring(self.slot.get());
    }

    /// Wakes other processes that listen.
    pub fn ring(&self) {
        self.bells.ring(self.slot.get());
    }

    /// A descriptor that becomes readable when another process wakes this one, if it has a bell.
    ///
    /// # Errors
    /// The system's, when descriptors run out.
    pub fn hear(&self) -> io::Result<Option<OwnedFd>> {
        self.bells.hear(self.slot.get())
    }

    /// Whether other processes are to wake this one.
    pub fn listen(&self, on: bool) {
        self.bells.listen(self.slot.get(), on);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::RenameTurn;

    fn known(hash: Hash, file: u32) -> IndexedEntry {
        IndexedEntry { hash, blocks: 1, expire: 9, uses: 1, file }
    }

    #[test]
    fn files_that_are_others_than_the_index_tells_of() {
        let keys = Keys::for_tests(65536);
        let list: Vec<_> = (1..=4).map(|n| known([n; 16], 7)).collect();
        keys.add_known(&list, 60);
        assert_eq!(keys.unknown(), 0);
        // Met by the loader, or opened first.
        assert!(keys.add(&[1; 16], 1, 7, 60) && keys.add(&[2; 16], 1, 8, 60));
        let versions = [(3, 7), (4, 8)].map(|(n, file)| keys.opened(&[n; 16], 1, file, || false));
        assert_eq!(keys.unknown(), 2);
        let unknown = keys.some_unknown(&mut Some(0));
        assert_eq!(unknown, [([2; 16], 0), ([4; 16], versions[1])]);
        // A second opener gets no version, nor one that opened before a purge.
        assert_eq!(keys.opened(&[4; 16], 1, 8, || false), 0);
        assert_eq!(keys.opened(&[1; 16], 1, 7, || true), 0);
        // The loader meets the file that was opened.
        assert!(keys.add(&[4; 16], 1, 9, 60) && keys.add(&[3; 16], 1, 9, 60));
        assert_eq!(keys.unknown(), 2);
        unknown.iter().for_each(|(hash, version)| keys.is_known(hash, *version));
        assert_eq!(keys.unknown(), 0);
    }

    #[test]
    fn what_is_to_be_on_the_disk() {
        let keys = Keys::for_tests(65536);
        assert_eq!(keys.flush_requested(), None);
        let (first, second) = (keys.request_flush(), keys.request_flush());
        let wanted = keys.flush_requested();
        let third = keys.request_flush();
        keys.set_flushed(wanted, true);
        let sure = || [first, second, third].map(|number| keys.is_flushed(number));
        assert_eq!((sure(), keys.journal_failed()), ([true, true, false], true));
        keys.set_flushed(keys.flush_requested(), false);
        assert_eq!((sure(), keys.journal_failed()), ([true; 3], false));
        assert_eq!(keys.flush_requested(), None);
    }

    #[test]
    fn what_is_not_believed_at_a_start() {
        let keys = Keys::for_tests(65536);
        let [told, met, fetched, unheard, other] = [1, 2, 3, 4, 5].map(|n| [n; 16]);
        keys.add_known(&[told, other].map(|hash| known(hash, 7)), 60);
        [told, met].iter().for_each(|hash| assert!(keys.add(hash, 1, 7, 60)));
        let file = index_format::IndexEntry {
            hash: fetched,
            key: b"/a",
            ..index_format::IndexEntry::default()
        };
        match keys.turn(&fetched, 60, || false, &mut Vec::new()) {
            RenameTurn::Ours(placing) => placing.stored(&file, || false).unwrap(),
            _ => panic!("nobody else has it"),
        };
        let all = [told, met, fetched, unheard];
        let distrusted = |date| all.map(|hash| keys.is_distrusted(&hash, date, 7));
        assert_eq!(distrusted(1), [false; 4], "nothing was purged");
        keys.marks.distrust(100);
        assert_eq!(distrusted(100), [false, true, false, true]);
        assert_eq!(distrusted(101), [false; 4]);
        // Before it was met, a file is compared with the index's fingerprint.
        assert_eq!([7, 8].map(|file| keys.is_distrusted(&other, 100, file)), [false, true]);
        // An entry that came from the index loses that when it is gone.
        assert_eq!(keys.purge(&told), Purged::Out);
        assert_eq!(distrusted(100), [true, true, false, true]);
        keys.marks.purge_at(101);
        assert_eq!((keys.marks.last_time(), keys.marks.distrusted()), (101, 100));
    }
}
