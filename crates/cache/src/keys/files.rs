//! The files of entries: met, opened, renewed, gone, and not to be used any more.

use std::sync::atomic::Ordering;

use super::node::{Node, PLACING, THERE, UNSEEN};
use super::{Keys, Word, now_secs};
use crate::key::Hash;

impl Keys {
    /// A file was opened of which no version was known, and is known again by `file`: gives the
    /// version that it has from now on; 0 where another one came into its place, or it was purged,
    /// which is asked under the lock.
    pub fn opened(
        &self,
        hash: &Hash,
        blocks: u32,
        file: u32,
        is_purged: impl FnOnce() -> bool,
    ) -> u32 {
        self.found(hash, |node| {
            let is_it = node.file_version() == 0 && !is_purged();
            is_it.then(|| Node { blocks, ..node.seen(file) })
        })
    }

    /// The same for a file whose header was rewritten by the holder of its turn.
    pub fn renewed(&self, hash: &Hash, blocks: u32, is_purged: impl FnOnce() -> bool) -> u32 {
        self.found(hash, |node| {
            let flags = node.flags & !UNSEEN | THERE;
            (!is_purged()).then_some(Node { blocks, flags, ..node })
        })
    }

    fn found(&self, hash: &Hash, change: impl FnOnce(Node) -> Option<Node>) -> u32 {
        let version = self.next_version();
        let mut t = self.lock();
        let Some(entry) = t.find(self.table.key(hash)) else { return 0 };
        let Some(old) = t.value(entry) else { return 0 };
        let Some(node) = change(old) else { return 0 };
        self.change(&mut t, entry, &old, Node { version, ..node });
        version
    }

    /// There is no file although the zone said so, when it was of that version. Whether that is
    /// news.
    pub fn gone(&self, hash: &Hash, version: u32) -> bool {
        let mut t = self.lock();
        let found = t.find(self.table.key(hash)).and_then(|e| Some((e, t.value(e)?)));
        let Some((entry, node)) =
            found.filter(|(_, n)| n.has(THERE) && n.file_version() == version)
        else {
            return false;
        };
        self.change(&mut t, entry, &node, node.without_file());
        true
    }

    /// The loader met a file, which is known again by `file`. False where there is no room for it.
    pub fn add(&self, hash: &Hash, blocks: u32, file: u32, inactive: u32) -> bool {
        let mut t = self.lock();
        let expire = now_secs().saturating_add(inactive);
        let key = self.table.key(hash);
        let found = t.find(key).and_then(|entry| Some((entry, t.value(entry)?)));
        let done = match found {
            Some((_, node)) if node.has(THERE) && !node.has(UNSEEN) => true,
            // The process that renames it takes it in.
            Some((_, node)) if node.has(PLACING) => true,
            Some((entry, node)) => {
                self.change(&mut t, entry, &node, Node { blocks, ..node.seen(file) });
                true
            }
            None => {
                let node = Node { blocks, expire, uses: 1, flags: THERE, ..Node::default() };
                let added = t.insert(key, node).is_ok();
                match added {
                    true => self.recount(&Node::default(), &node),
                    false => {
                        let len = t.len() as u64;
                        let mark = (len - len / 8).max(1);
                        self.word(Word::Watermark).store(mark, Ordering::Relaxed);
                    }
                }
                added
            }
        };
        drop(t);
        self.word(Word::Loaded).fetch_add(1, Ordering::Relaxed);
        done
    }

    /// The response of a key is not to be used any more, nor one that is on its way to be joined:
    /// its file is to be deleted. Whether there was one.
    pub fn invalidate(&self, hash: &Hash) -> bool {
        self.streams.hide(hash);
        let mut t = self.lock();
        let Some(entry) = t.find(self.table.key(hash)) else { return false };
        let Some(node) = t.value(entry) else { return false };
        self.change(&mut t, entry, &node, Node { error: 0, ..node.without_file() });
        node.has(THERE)
    }

    /// A number that no other variants of any key have.
    pub fn new_family(&self) -> u64 {
        base::time::unix_ms() << 24 | u64::from(self.next_version() & 0xff_ffff)
    }
}
