//! Entries that leave the zone: the oldest, where there is no room, and those that no request asked
//! for in time.

use shm::{Entry, Locked};

use super::node::{Node, THERE};
use super::{Count, Keys, Word, now_secs};
use crate::key::Hash;

/// A file that is to be deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evicted {
    /// Its name.
    pub hash: Hash,
    /// Whether there is a file at all.
    pub file: bool,
}

/// The sizes of a zone at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Blocks of all files.
    pub blocks: u64,
    pub entries: usize,
    /// See [`Word::Watermark`].
    pub watermark: usize,
}

impl Keys {
    /// Entries in use that are passed over to find one that can go.
    const PASSED_OVER: usize = 20;

    pub(super) fn evict_one(&self, t: &mut Locked<'_, Node>) -> Option<Evicted> {
        let mut at = t.oldest();
        for _ in 0..Self::PASSED_OVER {
            let entry = at?;
            let node = t.value(entry)?;
            if !node.is_busy() {
                return self.remove_entry(t, entry, node);
            }
            at = t.newer(entry);
        }
        None
    }

    pub(super) fn remove_entry(
        &self,
        t: &mut Locked<'_, Node>,
        entry: Entry,
        node: Node,
    ) -> Option<Evicted> {
        let hash = t.key_of(entry)?;
        self.recount(&node, &Node::default());
        t.remove(entry);
        Some(Evicted { hash, file: node.has(THERE) })
    }

    /// Takes out the oldest entries: `count` of them at most, and as long as `more` says so.
    pub fn evict(&self, count: usize, more: impl Fn(&Totals) -> bool, evicted: &mut Vec<Evicted>) {
        let mut t = self.lock();
        for _ in 0..count {
            if !more(&self.totals_of(&t)) {
                return;
            }
            match self.evict_one(&mut t) {
                Some(one) => evicted.push(one),
                None => return,
            }
            self.count(Count::Evictions as usize);
        }
    }

    /// Takes out entries that have expired unused: `count` of them at most. Gives the seconds until
    /// the next one is due; `None` where there is no entry. No entry is left for longer than
    /// `inactive` seconds: where its time lies further in the future, the clock was set back.
    pub fn expire(&self, count: usize, inactive: u32, evicted: &mut Vec<Evicted>) -> Option<u32> {
        let mut t = self.lock();
        let now = now_secs();
        for _ in 0..count {
            let entry = t.oldest()?;
            let mut node = t.value(entry)?;
            if node.expire > now {
                let latest = now.saturating_add(inactive);
                if node.expire > latest {
                    node.expire = latest;
                    t.set(entry, node);
                }
                return Some(node.expire - now);
            }
            if node.is_busy() {
                // It is being fetched: it is not that old.
                node.expire = now.saturating_add(1);
                t.set(entry, node);
                t.touch(entry);
                continue;
            }
            evicted.extend(self.remove_entry(&mut t, entry, node));
            self.count(Count::Expired as usize);
        }
        Some(0)
    }

    pub(super) fn totals_of(&self, t: &Locked<'_, Node>) -> Totals {
        Totals {
            blocks: self.get(Word::Size),
            entries: t.len(),
            watermark: self.get(Word::Watermark) as usize,
        }
    }

    /// The sizes of the zone now.
    pub fn totals(&self) -> Totals {
        self.totals_of(&self.lock())
    }

    /// Blocks of all files, as far as they are known: without the lock.
    pub fn blocks(&self) -> u64 {
        self.get(Word::Size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u32 = 3_600;

    #[test]
    fn entries_expire_though_the_clock_is_set_back() {
        let keys = Keys::for_tests(1 << 20);
        let at = |secs: u64| base::time::pin(1_000_000, secs * 1000);
        let mut evicted = Vec::new();
        at(2_000_000_000);
        assert!(keys.add(&[1; 16], 1, 1, HOUR));
        assert_eq!(keys.expire(9, HOUR, &mut evicted), Some(HOUR));
        // A year back: the hour begins again.
        at(1_968_464_000);
        assert_eq!(keys.expire(9, HOUR, &mut evicted), Some(HOUR));
        at(1_968_464_000 + 3_601);
        assert_eq!((keys.expire(9, HOUR, &mut evicted), evicted.len()), (None, 1));
        base::time::unpin();
    }
}
