//! Requests that wait until another one has fetched what they want.
//!
//! Those of the worker that fetches are woken by it. Those of other workers hear its bell
//! ([`shm::Bells`]), look which of their keys are not being fetched any more, and wake the requests
//! that wait for these.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use event::Notify;

use super::key::Hash;
use super::keys::Keys;

#[derive(Default)]
struct Waiting {
    end: Notify,
    count: std::cell::Cell<usize>,
}

/// The requests of this worker that wait, by key.
#[derive(Default)]
pub(crate) struct Waiters(RefCell<HashMap<Hash, Rc<Waiting>>>);

/// Counts a request among those that wait for a key.
struct Place<'a> {
    waiters: &'a Waiters,
    hash: Hash,
    waiting: Rc<Waiting>,
    keys: &'a Keys,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let left = self.waiting.count.get() - 1;
        self.waiting.count.set(left);
        if left == 0 {
            let mut all = self.waiters.0.borrow_mut();
            if all.get(&self.hash).is_some_and(|w| Rc::ptr_eq(w, &self.waiting)) {
                all.remove(&self.hash);
            }
        }
        self.keys.stopped_waiting();
    }
}

impl Waiters {
    /// Waits until a key is not being fetched any more, or `ms` milliseconds.
    pub async fn wait(&self, keys: &Keys, hash: &Hash, ms: u64) {
        let waiting = self.0.borrow_mut().entry(*hash).or_default().clone();
        waiting.count.set(waiting.count.get() + 1);
        let heard = keys.begins_waiting();
        let place = Place { waiters: self, hash: *hash, waiting, keys };
        // It may have ended before we listened.
        if !keys.is_fetched(hash) {
            return;
        }
        let ms = if heard { ms } else { ms.min(LOOK_MS) };
        let _ = event::race(place.waiting.end.notified(), event::sleep(ms)).await;
    }

    /// Wakes those that wait for a key.
    pub fn wake(&self, hash: &Hash) {
        let waiting = self.0.borrow().get(hash).cloned();
        if let Some(waiting) = waiting {
            waiting.end.notify_all();
        }
    }

    /// Wakes all that wait for keys that are not being fetched any more.
    pub fn look(&self, keys: &Keys) {
        let all: Vec<Hash> = self.0.borrow().keys().copied().collect();
        for hash in all.iter().filter(|hash| !keys.is_fetched(hash)) {
            self.wake(hash);
        }
    }
}

/// How often a process looks that has no bell, milliseconds.
const LOOK_MS: u64 = 20;
