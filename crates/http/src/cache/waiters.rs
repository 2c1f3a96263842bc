//! Requests that wait until another one has fetched what they want, or more of it.
//!
//! Those of the worker that fetches are woken by it. Those of other workers hear its bell
//! ([`shm::Bells`]), look which of their keys are not being fetched any more or can be read as they
//! come, and wake the requests that wait for these.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hash as Key;
use std::rc::Rc;

use event::Notify;

use super::key::Hash;
use super::keys::Keys;
use super::streams::Id;

#[derive(Default)]
struct Waiting {
    end: Notify,
    count: Cell<usize>,
}

/// Those that wait, by what they wait for.
type All<K> = RefCell<HashMap<K, Rc<Waiting>>>;

/// The requests of this worker that wait.
#[derive(Default)]
pub(crate) struct Waiters {
    /// For a key.
    ends: All<Hash>,
    /// For more of a response: with how much of it they know.
    more: All<(Id, u64)>,
}

/// Counts a request among those that wait for something.
struct Place<'a, K: Key + Eq> {
    all: &'a All<K>,
    key: K,
    waiting: Rc<Waiting>,
    keys: &'a Keys,
    /// It will be told.
    heard: bool,
}

impl<'a, K: Key + Eq + Clone> Place<'a, K> {
    fn new(all: &'a All<K>, key: K, keys: &'a Keys) -> Place<'a, K> {
        let waiting = all.borrow_mut().entry(key.clone()).or_default().clone();
        waiting.count.set(waiting.count.get() + 1);
        Place { all, key, waiting, keys, heard: keys.begins_waiting() }
    }
}

impl<K: Key + Eq> Drop for Place<'_, K> {
    fn drop(&mut self) {
        let left = self.waiting.count.get() - 1;
        self.waiting.count.set(left);
        if left == 0 {
            let mut all = self.all.borrow_mut();
            if all.get(&self.key).is_some_and(|w| Rc::ptr_eq(w, &self.waiting)) {
                all.remove(&self.key);
            }
        }
        self.keys.stopped_waiting();
    }
}

impl Waiters {
    /// Waits until a key is not being fetched any more, or `ms` milliseconds, or until `is_there`.
    pub async fn wait(&self, keys: &Keys, hash: &Hash, ms: u64, is_there: impl Fn() -> bool) {
        let place = Place::new(&self.ends, *hash, keys);
        // It may have ended before we listened.
        if !keys.is_fetched(hash) || is_there() {
            return;
        }
        let ms = if place.heard { ms } else { ms.min(LOOK_MS) };
        let _ = event::race(place.waiting.end.notified(), event::sleep(ms)).await;
    }

    /// Waits until there is more of a response than `there`, or it is over.
    pub async fn grown(&self, keys: &Keys, id: Id, there: u64) {
        let place = Place::new(&self.more, (id, there), keys);
        if keys.streams.written(id) != Some(there) {
            return;
        }
        let told = place.waiting.end.notified();
        match place.heard {
            true => told.await,
            false => drop(event::race(told, event::sleep(LOOK_MS)).await),
        }
    }

    /// Wakes those that wait for a key.
    pub fn wake(&self, hash: &Hash) {
        let waiting = self.ends.borrow().get(hash).cloned();
        if let Some(waiting) = waiting {
            waiting.end.notify_all();
        }
    }

    /// Wakes all for whom something changed.
    pub fn look(&self, keys: &Keys) {
        let shown = |hash: &Hash| keys.on_its_way(hash).is_some_and(|f| f.number.is_some());
        wake_where(&self.ends, |hash| !keys.is_fetched(hash) || shown(hash));
        wake_where(&self.more, |(id, there)| keys.streams.written(*id) != Some(*there));
    }
}

fn wake_where<K: Key + Eq>(all: &All<K>, is_due: impl Fn(&K) -> bool) {
    let due: Vec<_> =
        all.borrow().iter().filter(|(key, _)| is_due(key)).map(|(_, w)| w.clone()).collect();
    due.iter().for_each(|waiting| waiting.end.notify_all());
}

/// How often a process looks that has no bell, milliseconds.
const LOOK_MS: u64 = 20;
