//! The right to fetch a key, and the rights of a process that dies.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use base::time::now_ms;
use shm::{Entry, Locked, Place, ZoneState};

use super::node::{AWAITED, FAILED, Node, UPDATING};
use super::{Evicted, Keys, Word, now_secs, secs, until};
use crate::key::Hash;

/// The answer to a request for the right to fetch an entry.
pub enum FetchLock {
    /// The request has the right.
    Ours(Hold),
    /// Another request has it, for at most this number of milliseconds from now.
    Theirs(u64),
}

/// The right to fetch an entry; given back when dropped.
pub struct Hold {
    keys: Rc<Keys>,
    hash: Hash,
    name: u32,
    place: Option<Place>,
    /// Wakes the waiters of this process when it is given back.
    told: Rc<dyn Fn(&Hash)>,
    /// The status to leave in the entry.
    leave: Cell<Option<(u16, i64)>>,
}

impl Keys {
    /// Requests the right to fetch an absent response; others respect it for `age_ms`. `None` if
    /// the zone has no room for the key.
    pub fn try_lock(
        self: &Rc<Keys>,
        hash: &Hash,
        age_ms: u64,
        inactive: u32,
        told: &Rc<dyn Fn(&Hash)>,
        evicted: &mut Vec<Evicted>,
    ) -> Option<FetchLock> {
        let mut t = self.lock();
        let found = t.find(self.table.key(hash)).and_then(|e| Some((e, t.value(e)?)));
        let (entry, mut node) = match found {
            Some(found) => found,
            // It went since it was visited.
            None => {
                let expire = now_secs().saturating_add(inactive);
                let node = Node { expire, uses: 1, ..Node::default() };
                (self.insert(&mut t, hash, node, evicted)?, node)
            }
        };
        let left = until(node.lock);
        if node.has(UPDATING) && left > 0 {
            if !self.mine.has(hash, node.lock) {
                node.flags |= AWAITED;
                t.set(entry, node);
            }
            return Some(FetchLock::Theirs(left));
        }
        Some(FetchLock::Ours(self.take(&mut t, entry, node, hash, age_ms, told)))
    }

    /// Requests the right to fetch a stale response again. `None` if another request has it,
    /// however long ago it began, or if the entry is gone.
    pub fn try_renew(
        self: &Rc<Keys>,
        hash: &Hash,
        age_ms: u64,
        told: &Rc<dyn Fn(&Hash)>,
    ) -> Option<Hold> {
        let mut t = self.lock();
        let entry = t.find(self.table.key(hash))?;
        let node = t.value(entry)?;
        match node.has(UPDATING) {
            true => None,
            false => Some(self.take(&mut t, entry, node, hash, age_ms, told)),
        }
    }

    fn take(
        self: &Rc<Keys>,
        t: &mut Locked<'_, Node>,
        entry: Entry,
        mut node: Node,
        hash: &Hash,
        age_ms: u64,
        told: &Rc<dyn Fn(&Hash)>,
    ) -> Hold {
        node.flags |= UPDATING;
        // Half of the range of 32 bits is 24 days.
        node.lock = (now_ms() as u32).wrapping_add(age_ms.min(i32::MAX as u64) as u32);
        t.set(entry, node);
        self.mine.begin(hash, node.lock);
        Hold {
            keys: self.clone(),
            hash: *hash,
            name: node.lock,
            place: self.journal.note(self.slot.get(), entry),
            told: told.clone(),
            leave: Cell::new(None),
        }
    }

    /// Whether a key is being fetched, and the right is still respected.
    pub fn is_fetched(&self, hash: &Hash) -> bool {
        let t = self.lock();
        let node = t.find(self.table.key(hash)).and_then(|entry| t.value(entry));
        node.is_some_and(|node| node.has(UPDATING) && until(node.lock) > 0)
    }

    /// Whether the latest fetch for the key of a stored response failed.
    pub fn has_failed(&self, hash: &Hash) -> bool {
        let t = self.lock();
        let node = t.find(self.table.key(hash)).and_then(|entry| t.value(entry));
        node.is_some_and(|node| node.error == FAILED && node.error_until >= now_secs())
    }

    fn release(&self, hash: &Hash, name: u32, leave: Option<(u16, i64)>) {
        let mut t = self.lock();
        let Some(entry) = t.find(self.table.key(hash)) else { return };
        let Some(mut node) = t.value(entry) else { return };
        let awaited = node.has(AWAITED);
        // Its time was over, and another took it.
        if node.has(UPDATING) && node.lock == name {
            node.flags &= !(UPDATING | AWAITED);
        }
        if let Some((status, until)) = leave {
            node.leave(status, secs(until));
        }
        t.set(entry, node);
        drop(t);
        if awaited {
            self.bells.ring(self.slot.get());
        }
    }
}

impl Hold {
    /// The key that it is of.
    pub fn hash(&self) -> &Hash {
        &self.hash
    }

    /// Leaves a status behind that is answered until then, seconds since 1970.
    pub fn leave_error(&self, status: u16, until: i64) {
        self.leave.set(Some((status, until)));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.keys.mine.end(&self.hash, self.name);
        self.keys.release(&self.hash, self.name, self.leave.take());
        if let Some(place) = self.place.take() {
            self.keys.journal.forget(place);
        }
        (self.told)(&self.hash);
    }
}

impl Keys {
    /// Leaves a status behind that is answered until then, where no right to fetch was asked for.
    pub fn leave_error(&self, hash: &Hash, status: u16, until: i64) {
        let mut t = self.lock();
        let Some(entry) = t.find(self.table.key(hash)) else { return };
        if let Some(mut node) = t.value(entry) {
            node.leave(status, secs(until));
            t.set(entry, node);
        }
    }
}

impl Node {
    /// Leaves a status behind, or a mark, which does not take the place of a status.
    fn leave(&mut self, status: u16, until: u32) {
        let is_free = self.error <= FAILED || self.error_until < now_secs();
        if status > FAILED || is_free {
            self.error = status;
            self.error_until = until;
        }
    }
}

impl ZoneState for Keys {
    fn fill(&self) -> Option<shm::Fill> {
        Some(self.table.fill())
    }

    fn died(&self, pid: u32, slot: usize) {
        self.table.free_of(pid);
        self.writes_nothing(slot);
        self.nobody_places(slot);
        let shown = self.streams.died(pid);
        let held = self.journal.take(slot);
        if shown && held.is_empty() {
            self.bells.ring(usize::MAX);
        }
        if !held.is_empty() {
            let mut t = self.lock();
            for entry in held {
                if let Some(node) = t.value(entry) {
                    t.set(entry, Node { flags: node.flags & !(UPDATING | AWAITED), ..node });
                }
            }
            drop(t);
            self.bells.ring(usize::MAX);
        }
        let loading = self.word(Word::Loading);
        let _ = loading.compare_exchange(pid.into(), 0, Ordering::AcqRel, Ordering::Relaxed);
        let keeper = self.word(Word::Keeper);
        let _ = keeper.compare_exchange(pid.into(), 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}
