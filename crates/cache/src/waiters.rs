//! Requests that wait until another one has fetched their response, or more of it.
//!
//! The waiters of the worker that fetches are woken by it. Other workers hear its bell
//! ([`shm::Bells`]), look which of their keys are not being fetched any more or can be read as they
//! come, and wake the requests that wait for these.
//!
//! There may be thousands of them, and answering them all takes longer than other connections
//! should wait for the worker. So a few are woken, and each of them wakes another one when its turn
//! comes: between two such batches the worker serves everything else, including the file of the
//! very response, which requests of other workers wait for.

use std::cell::{Cell, RefCell};
use std::hash::Hash as Key;
use std::rc::Rc;

use base::hash::Table;
use event::{Deadline, Notify};

use crate::fill::Fill;
use crate::key::Hash;
use crate::keys::Keys;
use crate::streams::StreamId;

/// Requests that are woken at once. The loop runs the tasks of such a batch for some rounds before
/// it looks for other events: that is well below a millisecond.
const AT_ONCE: usize = 16;

#[derive(Default)]
struct Waiting {
    end: Notify,
    count: Cell<usize>,
    /// Waiters that are still to be woken, at most.
    owed: Cell<usize>,
    /// The response that came last for the waiters.
    fill: RefCell<Option<Rc<Fill>>>,
    /// The number of responses that came.
    came: Cell<u64>,
}

impl Waiting {
    /// Wakes all that wait, some of them at once.
    fn wake(&self) {
        let all = self.count.get();
        let woken = self.end.notify_some(AT_ONCE);
        self.owed.set(if woken < AT_ONCE { 0 } else { all.saturating_sub(woken) });
    }

    /// One that was woken goes on, and the next one is woken.
    fn pass_on(&self) {
        let owed = self.owed.get();
        if owed > 0 {
            let woken = self.end.notify_some(1);
            self.owed.set(if woken == 0 { 0 } else { owed - 1 });
        }
    }
}

/// The waiters by their keys.
type All<K> = RefCell<Table<K, Rc<Waiting>>>;

/// The requests of this worker that wait.
#[derive(Default)]
pub struct Waiters {
    /// For a key.
    ends: All<Hash>,
    /// For more of a response: with how much of it they know.
    more: All<(StreamId, u64)>,
}

/// Counts a request among those that wait for something.
struct Waiter<'a, K: Key + Eq> {
    all: &'a All<K>,
    key: K,
    waiting: Rc<Waiting>,
    keys: &'a Keys,
    /// A bell will wake it.
    heard: bool,
}

impl<'a, K: Key + Eq + Clone> Waiter<'a, K> {
    fn new(all: &'a All<K>, key: K, keys: &'a Keys) -> Waiter<'a, K> {
        let waiting = all.borrow_mut().entry(key.clone()).or_default().clone();
        waiting.count.set(waiting.count.get() + 1);
        Waiter { all, key, waiting, keys, heard: keys.begins_waiting() }
    }
}

impl<K: Key + Eq> Drop for Waiter<'_, K> {
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
    /// Gives the response that came for it meanwhile, where this worker fetched it.
    pub async fn wait(
        &self,
        keys: &Keys,
        hash: &Hash,
        ms: u64,
        is_there: impl Fn() -> bool,
    ) -> Option<Rc<Fill>> {
        let waiter = Waiter::new(&self.ends, *hash, keys);
        // It may have ended before we listened.
        if !keys.is_fetched(hash) || is_there() {
            return None;
        }
        let waiting = &*waiter.waiting;
        let before = waiting.came.get();
        let ms = if waiter.heard { ms } else { ms.min(LOOK_MS) };
        if waiting.end.notified_by(Deadline::in_ms(ms)).await {
            waiting.pass_on();
        }
        // One that was there before is that of a fetch for which this request did not wait.
        waiting.fill.borrow().clone().filter(|_| waiting.came.get() != before)
    }

    /// Waits until there is more of a response than `there`, or it is over.
    pub async fn grown(&self, keys: &Keys, id: StreamId, there: u64) {
        let waiter = Waiter::new(&self.more, (id, there), keys);
        if keys.streams.written(id) != Some(there) {
            return;
        }
        let until = if waiter.heard { Deadline::NEVER } else { Deadline::in_ms(LOOK_MS) };
        let _told = waiter.waiting.end.notified_by(until).await;
        waiter.waiting.pass_on();
    }

    /// Wakes those that wait for a key.
    pub fn wake(&self, hash: &Hash) {
        let waiting = self.ends.borrow().get(hash).cloned();
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// The same, as there is a response for them.
    pub(crate) fn wake_for(&self, hash: &Hash, fill: &Rc<Fill>) {
        if let Some(waiting) = self.ends.borrow().get(hash) {
            *waiting.fill.borrow_mut() = Some(fill.clone());
            waiting.came.set(waiting.came.get() + 1);
        }
        self.wake(hash);
    }

    /// The number of turns of the loop until all waiters of a key are woken, at most.
    pub fn turns(&self, hash: &Hash) -> usize {
        let owed = self.ends.borrow().get(hash).map_or(0, |waiting| waiting.owed.get());
        owed.div_ceil(AT_ONCE)
    }

    /// The response that came for a key is not for waiters that have not been woken yet.
    pub fn forget(&self, hash: &Hash) {
        if let Some(waiting) = self.ends.borrow().get(hash) {
            *waiting.fill.borrow_mut() = None;
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
    due.iter().for_each(|waiting| waiting.wake());
}

/// The pause between two looks of a process without a bell, milliseconds.
const LOOK_MS: u64 = 20;
