//! Requests that ask for a key.

use std::sync::atomic::Ordering;

use shm::{Entry, Locked};

use super::node::{FAILED, NOT_STORED, Node, PLACING, THERE, USES_MAX};
use super::{Evicted, Keys, Word, now_secs};
use crate::key::Hash;

/// The answer to a request for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visit {
    /// A status is kept instead of a response.
    Error(u16),
    /// There is a file.
    There(Seen),
    /// There is none. `maybe`: but that is not certain, as the folder was not read yet.
    Absent {
        /// See above.
        maybe: bool,
        /// It was not asked for often enough to be kept.
        scarce: bool,
        /// The latest response was not stored: waiting for the next one would be in vain.
        not_stored: bool,
    },
    /// The zone is full, and nothing in it can go.
    Full,
}

/// The zone's values of a file before it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Its version; 0: found out when it is opened.
    pub version: u32,
    /// Purges that came later may be of it: [`PurgeMarks::settled`].
    pub settled: u64,
}

impl Keys {
    /// A request asks for a key. `again`: it did so before, and is not counted twice. What had to
    /// go to make room is added to `evicted`.
    pub fn visit(
        &self,
        hash: &Hash,
        min_uses: u16,
        inactive: u32,
        again: bool,
        evicted: &mut Vec<Evicted>,
    ) -> Visit {
        let key = self.table.key(hash);
        // Asked before the entry: a mark that is settled later may cover a file that is renamed
        // meanwhile.
        let settled = self.marks.settled();
        let mut t = self.lock();
        let now = now_secs();
        let expire = now.saturating_add(inactive);
        let maybe = self.get(Word::Warm) == 0;
        let absent = |node: &Node| {
            // A file that is being renamed is not met before it is taken in.
            let maybe = maybe && !node.has(PLACING);
            let not_stored = node.error == NOT_STORED;
            Visit::Absent { maybe, scarce: node.uses < min_uses, not_stored }
        };
        let found = t.find(key).and_then(|entry| Some((entry, t.value(entry)?)));
        if let Some((entry, mut node)) = found {
            if !again {
                node.uses = (node.uses + 1).min(USES_MAX);
            }
            node.expire = expire;
            if node.error != 0 && node.error_until < now {
                node.error = 0;
            }
            t.set(entry, node);
            t.touch(entry);
            return match node {
                Node { error, .. } if error > FAILED => Visit::Error(error),
                _ if node.has(THERE) => {
                    let version = node.file_version();
                    // It may be another file already, covered by purges that did not cover this
                    // one.
                    let settled = if node.has(PLACING) { 0 } else { settled };
                    Visit::There(Seen { version, settled })
                }
                _ => absent(&node),
            };
        }
        let node = Node { expire, uses: 1, ..Node::default() };
        match self.insert(&mut t, hash, node, evicted) {
            Some(_) => absent(&node),
            None => Visit::Full,
        }
    }

    /// Makes an entry, in the place of the oldest ones where there is no room.
    pub(super) fn insert(
        &self,
        t: &mut Locked<'_, Node>,
        hash: &Hash,
        node: Node,
        evicted: &mut Vec<Evicted>,
    ) -> Option<Entry> {
        let key = self.table.key(hash);
        if let Ok(entry) = t.insert(key, node) {
            return Some(entry);
        }
        let len = t.len() as u64;
        self.word(Word::Watermark).store((len - len / 8).max(1), Ordering::Relaxed);
        evicted.push(self.evict_one(t)?);
        t.insert(key, node).ok()
    }
}
