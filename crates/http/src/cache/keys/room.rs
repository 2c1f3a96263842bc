//! Room that files on their way will take: the sum over all processes counts against the limits of
//! a cache before anything is written, so that many at once do not get beyond them together. And
//! how a file that was written is taken in.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Count, Evicted, Hash, KNOWN, Keys, Node, THERE, UNSEEN, now_secs};

impl Keys {
    fn writing_word(&self) -> &AtomicU64 {
        let words = self.writing.words();
        &words[self.slot.get() % words.len()]
    }

    /// The process of a slot writes nothing: it begins, or is dead.
    pub(super) fn writes_nothing(&self, slot: usize) {
        if let Some(word) = self.writing.words().get(slot) {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Blocks that all processes are about to write, or are writing.
    pub fn writing(&self) -> u64 {
        self.writing.words().iter().map(|word| word.load(Ordering::SeqCst)).sum()
    }
}

/// A file that is in its place.
pub(crate) struct File {
    /// Its size.
    pub blocks: u32,
    /// The index was told of it.
    pub known: bool,
}

impl Keys {
    /// The file of a key is in its place. Gives its version; `None` where the zone has no room for
    /// it, or it was purged, and the file is to be deleted.
    ///
    /// What a purge came for before this is not taken in, and one that comes later finds it: it is
    /// asked under the lock, and has its version by then.
    pub fn stored(
        &self,
        hash: &Hash,
        file: &File,
        inactive: u32,
        is_purged: impl FnOnce() -> bool,
        evicted: &mut Vec<Evicted>,
    ) -> Option<u32> {
        let version = self.next_version();
        let mut t = self.lock();
        if is_purged() {
            return None;
        }
        let expire = now_secs().saturating_add(inactive);
        let found = t.find(self.table.key(hash)).and_then(|e| Some((e, t.value(e)?)));
        let (entry, old) = match found {
            Some(found) => found,
            None => {
                let node = Node { expire, uses: 1, ..Node::default() };
                (self.insert(&mut t, hash, node, evicted)?, node)
            }
        };
        let flags = old.flags & !(KNOWN | UNSEEN) | THERE | if file.known { KNOWN } else { 0 };
        let blocks = file.blocks;
        self.change(&mut t, entry, &old, Node { blocks, version, flags, error: 0, ..old });
        self.count(Count::Fills as usize);
        Some(version)
    }
}

/// Room for a file that is on its way, given back when dropped.
pub(crate) struct Room {
    keys: Rc<Keys>,
    blocks: u64,
}

impl Room {
    /// For nothing yet.
    pub fn new(keys: &Rc<Keys>) -> Room {
        Room { keys: keys.clone(), blocks: 0 }
    }

    /// Whether as much was taken.
    pub fn covers(&self, blocks: u64) -> bool {
        self.blocks >= blocks
    }

    /// Takes as much as makes it `blocks`, whether there is room or not; it never shrinks.
    pub fn grow(&mut self, blocks: u64) {
        let more = blocks.saturating_sub(self.blocks);
        self.keys.writing_word().fetch_add(more, Ordering::SeqCst);
        self.blocks += more;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let word = self.keys.writing_word();
        let less = |now: u64| Some(now.saturating_sub(self.blocks));
        let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::key::Layout;

    fn keys() -> Rc<Keys> {
        let bells = Rc::new(shm::Bells::default());
        let layout = Layout { folder: "/nowhere".into(), levels: [0; 3] };
        Rc::new(Keys::new(65536, layout, bells, 4, 10).unwrap())
    }

    #[test]
    fn what_was_purged_is_not_taken_in() {
        let keys = keys();
        let (hash, file) = ([1; 16], File { blocks: 3, known: true });
        let stored = |purged| keys.stored(&hash, &file, 60, || purged, &mut Vec::new());
        assert_eq!((stored(true), keys.blocks()), (None, 0));
        let version = stored(false).unwrap();
        assert_eq!(keys.blocks(), 3);
        // A mark that comes then is of it.
        assert!(keys.last_version() >= version);
        assert_eq!((stored(true), keys.blocks()), (None, 3));
    }

    #[test]
    fn what_all_processes_write() {
        let keys = keys();
        let mut one = Room::new(&keys);
        one.grow(10);
        one.grow(8);
        assert!(one.covers(10) && !one.covers(11));
        keys.use_slot(2);
        let mut other = Room::new(&keys);
        other.grow(5);
        other.grow(7);
        assert_eq!(keys.writing(), 17);
        drop(other);
        assert_eq!(keys.writing(), 10);
        // The process of the first slot dies: nobody else gives its room back.
        keys.writes_nothing(0);
        assert_eq!(keys.writing(), 0);
        drop(one);
        assert_eq!(keys.writing(), 0);
    }
}
