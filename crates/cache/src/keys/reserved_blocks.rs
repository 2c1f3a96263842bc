//! Blocks reserved for files on their way: the sum over all processes counts against the limits of
//! a cache before anything is written, so that many fills at once do not exceed them.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Keys;

impl Keys {
    fn writing_word(&self) -> &AtomicU64 {
        let words = self.writing.words();
        &words[self.slot.get() % words.len()]
    }

    /// The process of a slot writes nothing: it begins, or is dead.
    pub(crate) fn writes_nothing(&self, slot: usize) {
        if let Some(word) = self.writing.words().get(slot) {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Blocks that all processes are about to write, or are writing.
    pub fn writing(&self) -> u64 {
        self.writing.words().iter().map(|word| word.load(Ordering::SeqCst)).sum()
    }
}

/// ReservedBlocks for a file that is on its way, given back when dropped.
pub struct ReservedBlocks {
    keys: Rc<Keys>,
    blocks: u64,
}

impl ReservedBlocks {
    /// For nothing yet.
    pub fn new(keys: &Rc<Keys>) -> ReservedBlocks {
        ReservedBlocks { keys: keys.clone(), blocks: 0 }
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

impl Drop for ReservedBlocks {
    fn drop(&mut self) {
        let word = self.keys.writing_word();
        let less = |now: u64| Some(now.saturating_sub(self.blocks));
        let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_processes_write() {
        let keys = Keys::for_tests(65536);
        let mut one = ReservedBlocks::new(&keys);
        one.grow(10);
        one.grow(8);
        assert!(one.covers(10) && !one.covers(11));
        keys.use_slot(2);
        let mut other = ReservedBlocks::new(&keys);
        other.grow(5);
        other.grow(7);
        assert_eq!(keys.writing(), 17);
        drop(other);
        assert_eq!(keys.writing(), 10);
        // The process of the first slot dies: its blocks are given back.
        keys.writes_nothing(0);
        assert_eq!(keys.writing(), 0);
        drop(one);
        assert_eq!(keys.writing(), 0);
    }
}
