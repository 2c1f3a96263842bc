//! What the index of a cache and its zone have to do with each other.
//!
//! The zone is the truth about which entries there are, the index about their keys and tags. Each
//! process tells what it keeps through a ring of its own; the process that keeps the index reads
//! them all. An entry with a file is *known* once the index was told of its key: the others are
//! counted, and their files are read for that.

use std::sync::atomic::Ordering;

use proto::cache_index;
use shm::Pushed;

use super::{Count, KNOWN, Keys, Node, THERE, TOLD, UNSEEN, Word, now_secs};
use crate::cache::key::Hash;
use crate::cache::marks::Mark;

/// An entry as the index tells of it at a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub hash: Hash,
    pub blocks: u32,
    /// Tells the order of use.
    pub expire: u32,
    pub uses: u16,
    /// By what the file is known again: [`cache_index::Entry::file`].
    pub file: u32,
}

/// What the zone knows of an entry that the index tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub blocks: u32,
    pub expire: u32,
    pub uses: u16,
}

/// An entry whose file was purged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purged {
    /// It was there, and is not any more.
    Out,
    /// There is none with a file.
    Nothing,
    /// There is one that is younger than the purge.
    Younger,
}

impl Keys {
    /// Tells the index something, without waiting. False where there is no room for it.
    pub fn tell_index(&self, record: &cache_index::Record<'_>) -> bool {
        let mut message = Vec::new();
        record.encode(&mut message);
        let pushed = self.push_news(&message);
        self.has_pushed(pushed);
        pushed != Pushed::Full
    }

    /// The same of a record as it stands in files, before [`Keys::has_pushed`].
    pub(super) fn push_news(&self, message: &[u8]) -> Pushed {
        self.rings.push(self.slot.get(), message)
    }

    /// Rings for what was pushed. Not to be called under the lock.
    pub(super) fn has_pushed(&self, pushed: Pushed) {
        if pushed == Pushed::First {
            self.bells.ring(self.slot.get());
        }
    }

    /// Takes what all processes told: the bytes, and what [`Keys::index_has`] is to be told.
    pub fn for_index(&self, out: &mut Vec<u8>) -> Vec<(usize, u64)> {
        let slots = 0..self.rings.slots();
        let full = slots.filter(|slot| !self.rings.is_empty(*slot));
        full.map(|slot| (slot, self.rings.peek(slot, out))).collect()
    }

    /// The index has what was taken.
    pub fn index_has(&self, taken: &[(usize, u64)]) {
        taken.iter().for_each(|(slot, at)| self.rings.taken(*slot, *at));
    }

    /// Whether a process has told the index anything that was not taken.
    pub fn has_news(&self) -> bool {
        (0..self.rings.slots()).any(|slot| !self.rings.is_empty(slot))
    }

    /// The last version given.
    pub fn last_version(&self) -> u32 {
        self.word(Word::Version).load(Ordering::SeqCst) as u32
    }

    /// Entries that the index tells of, the oldest first.
    pub fn add_known(&self, list: &[Known], inactive: u32) {
        let mut t = self.lock();
        let expire = now_secs().saturating_add(inactive);
        let mut added = 0;
        for one in list {
            let key = self.table.key(&one.hash);
            let found = t.find(key).and_then(|entry| Some((entry, t.value(entry)?)));
            let flags = THERE | KNOWN | UNSEEN | TOLD;
            let (blocks, version) = (one.blocks, one.file);
            match found {
                // A request was here before.
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

    /// How many entries there is room for.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// How many entries the index told of.
    pub fn indexed(&self) -> u64 {
        self.get(Word::Indexed)
    }

    /// How many entries have files whose keys the index does not know.
    pub fn unknown(&self) -> u64 {
        self.get(Word::Unknown)
    }

    /// Goes through the table from a place on, some entries at a time, and gives those that
    /// `wanted` takes. `None` for the place is the end.
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

    /// Some of the entries whose keys the index does not know, with their versions.
    pub fn some_unknown(&self, from: &mut Option<u32>) -> Vec<(Hash, u32)> {
        self.some(from, |_, node| node.is_unknown())
    }

    /// The key of an entry's file of that version was told to the index.
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

    /// Whether a file that was there before this start, fetched then, is not to be believed: the
    /// index does not tell of it, or of another one, and it may have been in its place behind the
    /// back of a purge. `file` is by what it is known again.
    pub fn is_distrusted(&self, hash: &Hash, date: i64, file: u32) -> bool {
        if date > i64::from(self.marks.distrusted()) {
            return false;
        }
        let t = self.lock();
        let node = t.find(self.table.key(hash)).and_then(|entry| t.value(entry));
        !node.is_some_and(|node| node.is_told_of(file) || node.file_version() != 0)
    }

    /// Tells the index that a key was purged, when its entry is out; false where there is no room
    /// for that. What gets a version from now on is not meant.
    pub fn tell_purged(&self, hash: &Hash) -> bool {
        let (version, time) = (self.next_version(), now_secs());
        self.marks.purge_at(time);
        self.tell_index(&cache_index::Record::Purged { hash: *hash, version, time })
    }

    /// Asks for all that was told to be on the disk. Gives what [`Keys::is_sure`] is to be asked
    /// with.
    pub fn want_sure(&self) -> u64 {
        let number = self.word(Word::SureWanted).fetch_add(1, Ordering::SeqCst) + 1;
        self.ring();
        number
    }

    /// Whether that was written, or could not be.
    pub fn is_sure(&self, number: u64) -> bool {
        self.word(Word::SureDone).load(Ordering::SeqCst) >= number
    }

    /// For who writes: up to where it is wanted, if that is not done.
    pub fn sure_wanted(&self) -> Option<u64> {
        let wanted = self.word(Word::SureWanted).load(Ordering::SeqCst);
        (!self.is_sure(wanted)).then_some(wanted)
    }

    /// All that was told before is on the disk, or cannot be written.
    pub fn has_written(&self, wanted: Option<u64>, failed: bool) {
        self.word(Word::Unwritten).store(failed.into(), Ordering::SeqCst);
        if let Some(wanted) = wanted {
            self.word(Word::SureDone).fetch_max(wanted, Ordering::SeqCst);
            self.ring();
        }
    }

    /// Whether the disk did not take what was written last.
    pub fn is_unwritten(&self) -> bool {
        self.word(Word::Unwritten).load(Ordering::SeqCst) != 0
    }

    /// A purge at that time that is done, as the index is told of it.
    pub fn purge_records(&self, time: u32) -> [cache_index::Record<'static>; 2] {
        // Those of marks have their numbers in the low half.
        let id = u64::from(self.id) << 32;
        let purge = cache_index::Purge { id, time, of: cache_index::Of::Key, text: b"" };
        [cache_index::Record::Mark(purge), cache_index::Record::Cleared(id)]
    }

    /// The index has lost what it knew of these keys.
    pub fn are_unknown(&self, list: &[Hash]) {
        let mut t = self.lock();
        for hash in list {
            let found = t.find(self.table.key(hash)).and_then(|e| Some((e, t.value(e)?)));
            if let Some((entry, node)) = found {
                let to = Node { flags: node.flags & !KNOWN, ..node };
                self.change(&mut t, entry, &node, to);
            }
        }
    }

    /// The index has lost all of it, some entries at a time.
    pub fn some_are_unknown(&self, from: &mut Option<u32>) {
        let list: Vec<Hash> =
            self.some(from, |_, node| node.has(KNOWN)).into_iter().map(|(hash, _)| hash).collect();
        self.are_unknown(&list);
    }

    /// Takes out some of the entries that the index told of and whose files nobody has seen, once
    /// all files were seen.
    pub fn drop_unseen(&self, from: &mut Option<u32>) -> u64 {
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

    /// What the zone knows of entries with files; `None` of those that have none.
    pub fn metas(&self, list: &[Hash]) -> Vec<Option<Meta>> {
        let t = self.lock();
        let meta = |hash: &Hash| {
            let node = t.value(t.find(self.table.key(hash))?)?;
            let Node { blocks, expire, uses, .. } = node;
            node.has(THERE).then_some(Meta { blocks, expire, uses })
        };
        list.iter().map(meta).collect()
    }

    /// Purges the entry of a hash: its file is to be deleted.
    pub fn purge(&self, hash: &Hash) -> Purged {
        self.purge_if(hash, |_| true)
    }

    /// The same for a mark, if the entry is as old as that; `date` is when its response was fetched
    /// as far as the index knows.
    pub fn purge_for(&self, hash: &Hash, mark: &Mark, date: u32) -> Purged {
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
            // Who fetches it goes on; whether that is kept is another question.
            true => self.change(&mut t, entry, &node, Node { error: 0, ..node.without_file() }),
            false => drop(self.remove_entry(&mut t, entry, node)),
        }
        if !node.has(THERE) {
            return Purged::Nothing;
        }
        self.count(Count::Purged as usize);
        Purged::Out
    }

    /// Begins to keep the index for the process `pid`; false where another does so.
    pub fn begin_keeping(&self, pid: u32) -> bool {
        let word = self.word(Word::Keeper);
        word.compare_exchange(0, pid.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Keeps it no more.
    pub fn end_keeping(&self) {
        self.word(Word::Keeper).store(0, Ordering::Release);
    }

    /// Which index tells of the known entries, by its order; 0: there is none that has to.
    pub fn index_order(&self) -> u64 {
        self.get(Word::Index)
    }

    /// Another one does from now on.
    pub fn set_index_order(&self, order: u64) {
        self.word(Word::Index).store(order, Ordering::Relaxed);
    }

    /// Whether a new index is to be made soon: the one that was read is damaged.
    pub fn is_merge_wanted(&self) -> bool {
        self.index_order() == 0 && self.indexed() > 0 && self.unknown() == 0
    }

    /// There is a variant of a key beside its first.
    pub fn has_variant(&self) {
        self.word(Word::Variants).store(1, Ordering::SeqCst);
    }

    /// Whether there may be one.
    pub fn may_have_variants(&self) -> bool {
        self.word(Word::Variants).load(Ordering::SeqCst) != 0
    }

    /// Purges that were not done when the server ended are known.
    pub fn is_marked(&self) -> bool {
        self.is_warm() || self.word(Word::Marked).load(Ordering::SeqCst) != 0
    }

    /// They are from now on.
    pub fn marked(&self) {
        self.word(Word::Marked).store(1, Ordering::SeqCst);
        self.bells.ring(self.slot.get());
    }

    /// Whether what the index told of is in the zone: before, nobody can look for a purge's
    /// entries.
    pub fn is_read(&self) -> bool {
        self.is_warm() || self.word(Word::Read).load(Ordering::SeqCst) != 0
    }

    /// It is from now on.
    pub fn read(&self) {
        self.word(Word::Read).store(1, Ordering::SeqCst);
        self.bells.ring(self.slot.get());
    }

    /// Wakes other processes that listen.
    pub fn ring(&self) {
        self.bells.ring(self.slot.get());
    }

    /// A descriptor that tells when this process is rung for.
    pub fn hear(&self) -> Option<std::os::fd::OwnedFd> {
        self.bells.hear(self.slot.get()).ok().flatten()
    }

    /// This process wants to be rung for, or not any more.
    pub fn listen(&self, on: bool) {
        self.bells.listen(self.slot.get(), on);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::keys::Turn;

    fn known(hash: Hash, file: u32) -> Known {
        Known { hash, blocks: 1, expire: 9, uses: 1, file }
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
        // Who opened it at the same time gets no version, nor who did so before a purge.
        assert_eq!(keys.opened(&[4; 16], 1, 8, || false), 0);
        assert_eq!(keys.opened(&[1; 16], 1, 7, || true), 0);
        // What is met later is what was opened.
        assert!(keys.add(&[4; 16], 1, 9, 60) && keys.add(&[3; 16], 1, 9, 60));
        assert_eq!(keys.unknown(), 2);
        unknown.iter().for_each(|(hash, version)| keys.is_known(hash, *version));
        assert_eq!(keys.unknown(), 0);
    }

    #[test]
    fn what_is_to_be_on_the_disk() {
        let keys = Keys::for_tests(65536);
        assert_eq!(keys.sure_wanted(), None);
        let (first, second) = (keys.want_sure(), keys.want_sure());
        let wanted = keys.sure_wanted();
        let third = keys.want_sure();
        keys.has_written(wanted, true);
        let sure = || [first, second, third].map(|number| keys.is_sure(number));
        assert_eq!((sure(), keys.is_unwritten()), ([true, true, false], true));
        keys.has_written(keys.sure_wanted(), false);
        assert_eq!((sure(), keys.is_unwritten()), ([true; 3], false));
        assert_eq!(keys.sure_wanted(), None);
    }

    #[test]
    fn what_is_not_believed_at_a_start() {
        let keys = Keys::for_tests(65536);
        let [told, met, fetched, unheard, other] = [1, 2, 3, 4, 5].map(|n| [n; 16]);
        keys.add_known(&[told, other].map(|hash| known(hash, 7)), 60);
        [told, met].iter().for_each(|hash| assert!(keys.add(hash, 1, 7, 60)));
        let file =
            cache_index::Entry { hash: fetched, key: b"/a", ..cache_index::Entry::default() };
        match keys.turn(&fetched, 60, || false, &mut Vec::new()) {
            Turn::Ours(placing) => placing.stored(&file, || false).unwrap(),
            _ => panic!("nobody else has it"),
        };
        let all = [told, met, fetched, unheard];
        let distrusted = |date| all.map(|hash| keys.is_distrusted(&hash, date, 7));
        assert_eq!(distrusted(1), [false; 4], "nothing was purged");
        keys.marks.distrust(100);
        assert_eq!(distrusted(100), [false, true, false, true]);
        assert_eq!(distrusted(101), [false; 4]);
        // Before it was met, a file is compared with what the index tells of.
        assert_eq!([7, 8].map(|file| keys.is_distrusted(&other, 100, file)), [false, true]);
        // One that the index told of is not any more when it is gone.
        assert_eq!(keys.purge(&told), Purged::Out);
        assert_eq!(distrusted(100), [true, true, false, true]);
        keys.marks.purge_at(101);
        assert_eq!((keys.marks.last_time(), keys.marks.distrusted()), (101, 100));
    }
}
