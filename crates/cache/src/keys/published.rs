//! Responses on their way that processes show one another: see [`crate::streams`].

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::Keys;
use super::node::AWAITED;
use crate::key::Hash;
use crate::streams;
use base::hash::Table;

/// The keys that this process itself fetches, with the names of its locks.
#[derive(Default)]
pub(crate) struct OwnFetches(RefCell<Table<Hash, u32>>);

impl OwnFetches {
    pub fn begin(&self, hash: &Hash, name: u32) {
        self.0.borrow_mut().insert(*hash, name);
    }

    pub fn has(&self, hash: &Hash, name: u32) -> bool {
        self.0.borrow().get(hash) == Some(&name)
    }

    /// Its time may have been over, and a later one of this process have come.
    pub fn end(&self, hash: &Hash, name: u32) {
        if self.has(hash, name) {
            self.0.borrow_mut().remove(hash);
        }
    }
}

impl Keys {
    /// Whether a request of another process waits for a key.
    pub fn is_awaited(&self, hash: &Hash) -> bool {
        let t = self.lock();
        let node = t.find(self.table.key(hash)).and_then(|entry| t.value(entry));
        node.is_some_and(|node| node.has(AWAITED))
    }

    /// A response of that key that another process fetches, and shows or could show.
    pub fn on_its_way(&self, hash: &Hash) -> Option<streams::LiveStream> {
        self.streams.find(hash).filter(|found| found.owner != self.slot.get())
    }

    /// Asks the process that fetches a response to show it.
    pub fn want(&self, found: &streams::LiveStream) {
        self.streams.want(found.id);
        self.bells.ring_one(found.owner);
    }
}

/// A response that this process fetches, published for other processes.
pub(crate) struct PublishedFill {
    keys: Rc<Keys>,
    id: streams::StreamId,
    pid: u32,
    /// Other processes may read it.
    shown: Cell<bool>,
    over: Cell<bool>,
}

impl PublishedFill {
    /// Makes it known that a response is on its way; `None` where there is no room to do so.
    pub fn new(keys: &Rc<Keys>, hash: &Hash) -> Option<PublishedFill> {
        let pid = std::process::id();
        let id = keys.streams.claim(hash, pid, keys.slot.get())?;
        // A later request finds the response; an earlier one has left its flag with the key.
        if keys.is_awaited(hash) {
            keys.streams.want(id);
        }
        let (shown, over) = (Cell::new(false), Cell::new(false));
        Some(PublishedFill { keys: keys.clone(), id, pid, shown, over })
    }

    /// Whether a request of another process waits for it.
    pub fn is_wanted(&self) -> bool {
        !self.over.get() && self.keys.streams.is_wanted(self.id)
    }

    /// Whether other processes may read it.
    pub fn is_shown(&self) -> bool {
        self.shown.get()
    }

    /// So much of the body is in the file of that number.
    pub fn progress(&self, number: u32, written: u64) {
        match self.shown.replace(true) {
            false => self.keys.streams.show(self.id, self.pid, number, written),
            true => self.keys.streams.progress(self.id, written),
        }
        self.keys.bells.ring(self.keys.slot.get());
    }

    /// Hides it from new readers.
    pub fn hide(&self) {
        self.keys.streams.hide_one(self.id, self.pid);
    }

    /// It is over.
    pub fn end(&self) {
        if !self.over.replace(true) {
            self.keys.streams.end(self.id, self.pid);
            if self.shown.get() {
                self.keys.bells.ring(self.keys.slot.get());
            }
        }
    }
}

impl Drop for PublishedFill {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_fetches_itself() {
        let (mine, hash) = (OwnFetches::default(), crate::key::hash(b"a"));
        assert!(!mine.has(&hash, 1));
        mine.begin(&hash, 1);
        assert!(mine.has(&hash, 1));
        // Another process has taken it since.
        assert!(!mine.has(&hash, 2));
        // So has this one.
        mine.begin(&hash, 3);
        mine.end(&hash, 1);
        assert!(mine.has(&hash, 3));
        mine.end(&hash, 3);
        assert!(!mine.has(&hash, 3));
    }
}
