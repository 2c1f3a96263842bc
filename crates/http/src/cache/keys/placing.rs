//! Files that are being given their places: for each key one at a time, by any process.
//!
//! Between the last look at what was purged and the moment that the zone knows of a file there is a
//! rename, which a disk may hold up for long. If another response came into its place meanwhile,
//! one from before a purge could replace one from after it. Therefore:
//!
//! ```text
//!  turn ──(not purged by now)──▶ rename ──▶ stored ──▶ the zone tells of the file
//!    │ another has it: wait                   │ purged meanwhile: the file is deleted
//!    ▼                                        ▼
//!  not kept                                 the turn ends
//! ```
//!
//! Files that were purged are deleted in a turn, too: nothing else tells them from those that get
//! their places in that moment.
//!
//! While one has its turn nobody knows which file is in the place, so who opens it compares it with
//! every purge that came since the entry's version. Where a process dies in its turn the entry
//! loses its file: that is met again, and judged, at the next start.

use std::cell::Cell;
use std::rc::Rc;

use proto::cache_index::{self, Record};
use shm::{Entry, Locked, Place, Pushed};

use super::{Count, Evicted, Hash, KNOWN, Keys, Node, PLACING, THERE, TOLD, UNSEEN, now_secs};

/// Who may give a key's file its place.
pub(crate) enum Turn {
    /// The asker.
    Ours(Placing),
    /// Another one does.
    Busy,
    /// Nobody: what is to get it was purged.
    Purged,
    /// Nobody: the zone has no room.
    Full,
}

/// The right to give a key's file its place, given back when dropped.
pub(crate) struct Placing {
    keys: Rc<Keys>,
    hash: Hash,
    note: Cell<Option<Place>>,
    /// The entry is there for this alone.
    made: bool,
    /// A thread may be giving the file its place at this moment.
    under_way: Cell<bool>,
}

impl Keys {
    /// Asks for the right to give a key's file its place. `is_purged` is asked under the lock:
    /// whoever purges afterwards finds what comes of this.
    pub fn turn(
        self: &Rc<Keys>,
        hash: &Hash,
        inactive: u32,
        is_purged: impl FnOnce() -> bool,
        evicted: &mut Vec<Evicted>,
    ) -> Turn {
        let mut t = self.lock();
        if is_purged() {
            return Turn::Purged;
        }
        let found = t.find(self.table.key(hash)).and_then(|e| Some((e, t.value(e)?)));
        let (entry, node) = match found {
            Some(found) => found,
            None => {
                let expire = now_secs().saturating_add(inactive);
                let node = Node { expire, uses: 1, ..Node::default() };
                match self.insert(&mut t, hash, node, evicted) {
                    Some(entry) => (entry, node),
                    None => return Turn::Full,
                }
            }
        };
        if node.has(PLACING) {
            return Turn::Busy;
        }
        match self.begin(&mut t, entry, node, hash, false) {
            Some(placing) => Turn::Ours(placing),
            None => Turn::Busy,
        }
    }

    /// Asks for a turn to delete a file of which the zone does not tell, so that it is not one that
    /// gets its place meanwhile. Busy: there is another one, or will be in a moment.
    pub fn turn_to_delete(self: &Rc<Keys>, hash: &Hash) -> Turn {
        let mut t = self.lock();
        let key = self.table.key(hash);
        let found = t.find(key).and_then(|e| Some((e, t.value(e)?)));
        let (entry, node, made) = match found {
            Some((_, node)) if node.flags & (THERE | PLACING) != 0 => return Turn::Busy,
            Some((entry, node)) => (entry, node, false),
            None => {
                let node = Node { expire: now_secs(), ..Node::default() };
                match t.insert(key, node) {
                    Ok(entry) => (entry, node, true),
                    Err(_) => return Turn::Full,
                }
            }
        };
        self.begin(&mut t, entry, node, hash, made).map_or(Turn::Full, Turn::Ours)
    }

    fn begin(
        self: &Rc<Keys>,
        t: &mut Locked<'_, Node>,
        entry: Entry,
        node: Node,
        hash: &Hash,
        made: bool,
    ) -> Option<Placing> {
        // Noted first: one that dies in between has noted too much. Without a place for the note
        // nobody would give the right back.
        let note = self.placing.note(self.slot.get(), entry)?;
        t.set(entry, Node { flags: node.flags | PLACING, ..node });
        let (note, under_way) = (Cell::new(Some(note)), Cell::new(false));
        Some(Placing { keys: self.clone(), hash: *hash, note, made, under_way })
    }

    /// What a dead process was placing: nobody knows which file is there now.
    pub(super) fn nobody_places(&self, slot: usize) {
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

impl Placing {
    /// A thread begins with it, or came to its end.
    pub fn is_under_way(&self, is: bool) {
        self.under_way.set(is);
    }

    fn find(&self, t: &Locked<'_, Node>) -> Option<(Entry, Node)> {
        let entry = t.find(self.keys.table.key(&self.hash))?;
        Some((entry, t.value(entry)?))
    }

    /// The file is in its place. Gives its version; `None` where it was purged since the turn
    /// began: then the entry has no file, and what is in the place is to be deleted before this is
    /// dropped.
    ///
    /// What a purge came for before this is not taken in, and one that comes later finds it: it is
    /// asked under the lock, and has its version by then. The index is told of it under the lock,
    /// too: what a purge tells of the key afterwards comes behind that.
    pub fn stored(
        &self,
        file: &cache_index::Entry<'_>,
        is_purged: impl FnOnce() -> bool,
    ) -> Option<u32> {
        let keys = &self.keys;
        let version = keys.next_version();
        let mut message = Vec::new();
        Record::Put(cache_index::Entry { version, ..*file }).encode(&mut message);
        let mut t = keys.lock();
        let found = self.find(&t);
        if is_purged() {
            if let Some((entry, node)) = found {
                keys.change(&mut t, entry, &node, Node { error: 0, ..node.without_file() });
            }
            return None;
        }
        let (entry, old) = found?;
        // Told first: an entry is known when the manager may look for it.
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

impl Drop for Placing {
    fn drop(&mut self) {
        if self.under_way.get() {
            // Its task was ended, the thread was not: the file may get its place yet. The process
            // is about to end, and what it has is given back then.
            return;
        }
        let mut t = self.keys.lock();
        if let Some((entry, node)) = self.find(&t) {
            let node = Node { flags: node.flags & !PLACING, ..node };
            match self.made && node == (Node { expire: node.expire, ..Node::default() }) {
                true => t.remove(entry),
                // Somebody asked for it meanwhile.
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
    use crate::cache::keys::{Purged, Visit};
    use shm::ZoneState;

    fn keys(bytes: usize) -> Rc<Keys> {
        let keys = Keys::for_tests(bytes);
        keys.end_loading(true);
        keys
    }

    fn turn(keys: &Rc<Keys>, hash: &Hash) -> Option<Placing> {
        match keys.turn(hash, 60, || false, &mut Vec::new()) {
            Turn::Ours(placing) => Some(placing),
            Turn::Busy => None,
            Turn::Purged | Turn::Full => panic!("not purged, and room for it"),
        }
    }

    fn file(hash: Hash, blocks: u32) -> cache_index::Entry<'static> {
        cache_index::Entry { hash, blocks, key: b"/a", ..cache_index::Entry::default() }
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
        assert!(matches!(purged, Turn::Purged) && keys.totals().entries == 0);
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
        // The entry stays for the turn: nobody else gets one.
        assert!(turn(&keys, &hash).is_none());
        assert_eq!(second.stored(&file(hash, 5), || true), None);
        assert_eq!((version(&keys, &hash), keys.blocks()), (None, 0));
        assert!(turn(&keys, &hash).is_none(), "its file is not deleted yet");
        drop(second);
        assert!(turn(&keys, &hash).is_some());
        // Nor what a purge came for that the file before was not of.
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
            Turn::Ours(placing) => Some(placing),
            Turn::Busy => None,
            Turn::Purged | Turn::Full => panic!("there is room for it"),
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
        let purge = cache_index::Purge { id: 0, time: 5, of: cache_index::Of::Tag, text: b"new" };
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
