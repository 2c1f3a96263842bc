//! Files that are renamed to their names: for each key one at a time, by any process.
//!
//! Between the last look at the purges and the moment when the zone has the file there is a rename,
//! which a disk may hold up for long. If another response were renamed meanwhile, one from before a
//! purge could replace one from after it. Therefore:
//!
//! ```text
//!  turn ──(not purged by now)──▶ rename ──▶ stored ──▶ the zone tells of the file
//!    │ another has it: wait                   │ purged meanwhile: the file is deleted
//!    ▼                                        ▼
//!  not kept                                 the turn ends
//! ```
//!
//! Purged files are deleted in a turn, too: nothing else tells them from files that are renamed in
//! that moment.
//!
//! During a turn it is unknown which file has the name, so a request that opens it compares it with
//! every purge since the entry's version. Where a process dies in its turn the entry loses its
//! file: the loader meets and judges it at the next start.

use std::cell::Cell;
use std::rc::Rc;

use crate::index_format::{self, Record};
use shm::{Entry, Locked, Place, Pushed};

use super::node::{KNOWN, Node, PLACING, THERE, TOLD, UNSEEN};
use super::{Count, Evicted, Keys, now_secs};
use crate::key::Hash;

/// The answer to a request for a turn.
pub enum RenameTurn {
    /// The caller has the turn.
    Ours(RenameRight),
    /// Another fill has it.
    Busy,
    /// None: the response was purged.
    Purged,
    /// None: the zone has no room.
    Full,
}

/// The right to rename a key's file, given back when dropped.
pub struct RenameRight {
    keys: Rc<Keys>,
    hash: Hash,
    note: Cell<Option<Place>>,
    /// The entry is there for this alone.
    made: bool,
    /// A thread may be renaming the file at this moment.
    under_way: Cell<bool>,
}

impl Keys {
    /// Asks for the right to rename a key's file. `is_purged` is asked under the lock: a later
    /// purge finds the file.
    pub fn turn(
        self: &Rc<Keys>,
        hash: &Hash,
        inactive: u32,
        is_purged: impl FnOnce() -> bool,
        evicted: &mut Vec<Evicted>,
    ) -> RenameTurn {
        let mut t = self.lock();
        if is_purged() {
            return RenameTurn::Purged;
        }
        let found = t.find(self.table.key(hash)).and_then(|e| Some((e, t.value(e)?)));
        let (entry, node) = match found {
            Some(found) => found,
            None => {
                let expire = now_secs().saturating_add(inactive);
                let node = Node { expire, uses: 1, ..Node::default() };
                match self.insert(&mut t, hash, node, evicted) {
                    Some(entry) => (entry, node),
                    None => return RenameTurn::Full,
                }
            }
        };
        if node.has(PLACING) {
            return RenameTurn::Busy;
        }
        match self.begin(&mut t, entry, node, hash, false) {
            Some(placing) => RenameTurn::Ours(placing),
            None => RenameTurn::Busy,
        }
    }

    /// Asks for a turn to delete a file that the zone does not have, so that no file is renamed to
    /// its name meanwhile. Busy: the zone has a file, or will in a moment.
    pub(crate) fn turn_to_delete(self: &Rc<Keys>, hash: &Hash) -> RenameTurn {
        let mut t = self.lock();
        let key = self.table.key(hash);
        let found = t.find(key).and_then(|e| Some((e, t.value(e)?)));
        let (entry, node, made) = match found {
            Some((_, node)) if node.flags & (THERE | PLACING) != 0 => return RenameTurn::Busy,
            Some((entry, node)) => (entry, node, false),
            None => {
                let node = Node { expire: now_secs(), ..Node::default() };
                match t.insert(key, node) {
                    Ok(entry) => (entry, node, true),
                    Err(_) => return RenameTurn::Full,
                }
            }
        };
        self.begin(&mut t, entry, node, hash, made).map_or(RenameTurn::Full, RenameTurn::Ours)
    }

    fn begin(
        self: &Rc<Keys>,
        t: &mut Locked<'_, Node>,
        entry: Entry,
        node: Node,
        hash: &Hash,
        made: bool,
    ) -> Option<RenameRight> {
        // Noted first: a process that dies in between has noted too much. Without a note the right
        // would not be given back.
        let note = self.placing.note(self.slot.get(), entry)?;
        t.set(entry, Node { flags: node.flags | PLACING, ..node });
        let (note, under_way) = (Cell::new(Some(note)), Cell::new(false));
        Some(RenameRight { keys: self.clone(), hash: *hash, note, made, under_way })
    }

    /// The turns of a dead process: it is unknown which file has the name now.
    pub(crate) fn nobody_places(&self, slot: usize) {
        let placed = self.placing.take(slot);
        if placed.is_empty() {
            return;
        }
        let mut t = self.lock();
        for entry in placed {
            if let Some(node) = t.value(entry)
                && node.has(PLACING)
            {
                let to = node.without_file();
                self.change(&mut t, entry, &node, Node { flags: to.flags & !PLACING, ..to });
            }
        }
    }
}

impl RenameRight {
    /// A thread begins with it, or came to its end.
    pub(crate) fn is_under_way(&self, is: bool) {
        self.under_way.set(is);
    }

    fn find(&self, t: &Locked<'_, Node>) -> Option<(Entry, Node)> {
        let entry = t.find(self.keys.table.key(&self.hash))?;
        Some((entry, t.value(entry)?))
    }

    /// The file has its name. Gives its version; `None` where it was purged since the turn began:
    /// then the entry has no file, and the file is to be deleted before this is dropped.
    ///
    /// A response that a purge has covered before this is not taken in, and a later purge finds it:
    /// the purges are asked under the lock, and it has its version by then. It is reported to the
    /// index under the lock, too: the report of a later purge of the key comes behind.
    pub fn stored(
        &self,
        file: &index_format::IndexEntry<'_>,
        is_purged: impl FnOnce() -> bool,
    ) -> Option<u32> {
        let keys = &self.keys;
        let version = keys.next_version();
        let mut message = Vec::new();
        Record::Put(index_format::IndexEntry { version, ..*file }).encode(&mut message);
        let mut t = keys.lock();
        let found = self.find(&t);
        if is_purged() {
            if let Some((entry, node)) = found {
                keys.change(&mut t, entry, &node, Node { error: 0, ..node.without_file() });
            }
            return None;
        }
        let (entry, old) = found?;
        // Reported first: an entry is indexed when the manager may search for it.
        let told = keys.push_news(&message);
        let known = if told == Pushed::Full { 0 } else { KNOWN };
        let flags = old.flags & !(KNOWN | UNSEEN | TOLD) | THERE | known;
        let blocks = file.blocks;
        keys.change(&mut t, entry, &old, Node { blocks, version, flags, error: 0, ..old });
        drop(t);
        keys.has_pushed(told);
        keys.count(Count::Fills as usize);
        Some(version)
    }
}

impl Drop for RenameRight {
    fn drop(&mut self) {
        if self.under_way.get() {
            // The task has ended, the thread has not: the file may get its name yet. The process is
            // about to end, and its rights are given back then.
            return;
        }
        let mut t = self.keys.lock();
        if let Some((entry, node)) = self.find(&t) {
            let node = Node { flags: node.flags & !PLACING, ..node };
            match self.made && node == (Node { expire: node.expire, ..Node::default() }) {
                true => t.remove(entry),
                // A request asked for it meanwhile.
                false => t.set(entry, node),
            }
        }
        drop(t);
        if let Some(note) = self.note.take() {
            self.keys.placing.forget(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Purged, Visit};
    use shm::ZoneState;

    fn keys(bytes: usize) -> Rc<Keys> {
        let keys = Keys::for_tests(bytes);
        keys.end_loading(true);
        keys
    }

    fn turn(keys: &Rc<Keys>, hash: &Hash) -> Option<RenameRight> {
        match keys.turn(hash, 60, || false, &mut Vec::new()) {
            RenameTurn::Ours(placing) => Some(placing),
            RenameTurn::Busy => None,
            RenameTurn::Purged | RenameTurn::Full => panic!("not purged, and room for it"),
        }
    }

    fn file(hash: Hash, blocks: u32) -> index_format::IndexEntry<'static> {
        index_format::IndexEntry { hash, blocks, key: b"/a", ..index_format::IndexEntry::default() }
    }

    fn version(keys: &Keys, hash: &Hash) -> Option<u32> {
        match keys.visit(hash, 1, 60, true, &mut Vec::new()) {
            Visit::There(seen) => Some(seen.version),
            _ => None,
        }
    }

    #[test]
    fn one_at_a_time() {
        let (keys, hash) = (keys(65536), [1; 16]);
        let purged = keys.turn(&hash, 60, || true, &mut Vec::new());
        assert!(matches!(purged, RenameTurn::Purged) && keys.totals().entries == 0);
        let first = turn(&keys, &hash).unwrap();
        assert!(turn(&keys, &hash).is_none() && turn(&keys, &[2; 16]).is_some());
        let stored = first.stored(&file(hash, 3), || false);
        assert_eq!((stored, version(&keys, &hash), keys.blocks()), (stored, stored, 3));
        assert!(stored.is_some() && turn(&keys, &hash).is_none(), "it has not ended");
        // A mark that comes then is of it.
        assert!(Some(keys.last_version()) >= stored);
        drop(first);
        assert!(turn(&keys, &hash).is_some());
        assert!(keys.has_news());
    }

    #[test]
    fn what_was_purged_is_not_taken_in() {
        let (keys, hash) = (keys(65536), [1; 16]);
        turn(&keys, &hash).unwrap().stored(&file(hash, 3), || false).unwrap();
        let second = turn(&keys, &hash).unwrap();
        assert_eq!(keys.purge(&hash), Purged::Out);
        // The entry stays for the turn, and there is no other turn.
        assert!(turn(&keys, &hash).is_none());
        assert_eq!(second.stored(&file(hash, 5), || true), None);
        assert_eq!((version(&keys, &hash), keys.blocks()), (None, 0));
        assert!(turn(&keys, &hash).is_none(), "its file is not deleted yet");
        drop(second);
        assert!(turn(&keys, &hash).is_some());
        // Nor a response covered by a purge that did not cover the file before.
        turn(&keys, &hash).unwrap().stored(&file(hash, 3), || false).unwrap();
        assert_eq!(turn(&keys, &hash).unwrap().stored(&file(hash, 5), || true), None);
        assert_eq!((version(&keys, &hash), keys.blocks()), (None, 0));
    }

    #[test]
    fn the_turn_of_the_dead() {
        let (keys, hash) = (keys(65536), [1; 16]);
        keys.use_slot(2);
        turn(&keys, &hash).unwrap().stored(&file(hash, 3), || false).unwrap();
        let lost = turn(&keys, &hash).unwrap();
        lost.is_under_way(true);
        // Its thread may give the file its place yet.
        drop(lost);
        keys.use_slot(1);
        assert!(turn(&keys, &hash).is_none() && version(&keys, &hash).is_some());
        keys.died(77, 2);
        assert_eq!((version(&keys, &hash), keys.blocks()), (None, 0));
        assert!(turn(&keys, &hash).is_some());
    }

    #[test]
    fn what_is_deleted_is_no_other() {
        let (keys, hash) = (keys(65536), [1; 16]);
        let to_delete = || match keys.turn_to_delete(&hash) {
            RenameTurn::Ours(placing) => Some(placing),
            RenameTurn::Busy => None,
            RenameTurn::Purged | RenameTurn::Full => panic!("there is room for it"),
        };
        let deleting = to_delete().unwrap();
        assert!(turn(&keys, &hash).is_none() && to_delete().is_none());
        drop(deleting);
        assert_eq!(keys.totals().entries, 0);
        let deleting = to_delete().unwrap();
        keys.visit(&hash, 1, 60, false, &mut Vec::new());
        drop(deleting);
        assert_eq!(keys.totals().entries, 1, "somebody asked for it");
        let placing = turn(&keys, &hash).unwrap();
        assert!(to_delete().is_none());
        placing.stored(&file(hash, 3), || false).unwrap();
        drop(placing);
        assert!(to_delete().is_none() && version(&keys, &hash).is_some());
    }

    #[test]
    fn entries_stay_for_their_turn() {
        let (keys, hash) = (keys(65536), [1; 16]);
        let placing = turn(&keys, &hash).unwrap();
        let mut evicted = Vec::new();
        keys.evict(10, |_| true, &mut evicted);
        assert!(evicted.is_empty());
        drop(placing);
        keys.evict(10, |_| true, &mut evicted);
        assert_eq!(evicted, [Evicted { hash, file: false }]);
    }

    #[test]
    fn marks_that_were_settled_are_asked_while_nobody_knows_which_file_is_there() {
        let (keys, hash) = (keys(65536), [1; 16]);
        let seen = || match keys.visit(&hash, 1, 60, true, &mut Vec::new()) {
            Visit::There(seen) => seen,
            visit => panic!("{visit:?}"),
        };
        turn(&keys, &hash).unwrap().stored(&file(hash, 3), || false).unwrap();
        let second = turn(&keys, &hash).unwrap();
        let purge =
            index_format::Purge { id: 0, time: 5, of: index_format::PurgeBy::Tag, text: b"new" };
        let seq = keys.marks.publish(&purge, 7, || keys.last_version()).unwrap();
        keys.marks.settle(seq);
        // The file in the place may be the second one, of which the mark is.
        let (version, settled) = (seen().version, seen().settled);
        assert!(keys.marks.purged(settled, version, 1, b"/a", || b"new".to_vec()));
        second.stored(&file(hash, 3), || false).unwrap();
        drop(second);
        let (version, settled) = (seen().version, seen().settled);
        assert!(!keys.marks.purged(settled, version, 1, b"/a", || b"new".to_vec()));
    }
}
