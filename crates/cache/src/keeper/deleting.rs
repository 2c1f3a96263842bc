//! Deletes the files of purged entries, at a pace that leaves the disk to others.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use base::time::now_ms;
use event::Notify;

use super::Keeper;
use crate::instance::Pace;
use crate::key::Hash;
use crate::manager;
use crate::purge_marks::MarkState;
use crate::purging;

/// Files that are deleted without a pause, where the configuration sets no pace.
const DELETED_AT_ONCE: usize = 16;

/// The pause behind a deletion while the cache is asked, as a multiple of the deletion's own time:
/// with a fiftieth of the time, and the file system's own writes, p99 of other requests stays as it
/// was (docs/CACHE.md has the figures), with a tenth it does not.
const REST: u32 = 49;

/// The same when the cache was not asked for [`IDLE`].
const IDLE_REST: u32 = 9;

/// The time without a request after which a cache counts as idle.
const IDLE: Duration = Duration::from_secs(10);

/// The longest part of a rest between two looks at its conditions.
const LOOK: Duration = Duration::from_secs(1);

/// With more purges than this whose files are not deleted there is no rest: there is room for 1024.
const WAITING_MAX: usize = 128;

/// Files of entries that were purged.
pub(super) struct Deletion {
    pub mark: u64,
    pub id: u64,
    pub files: Vec<Hash>,
    /// The limit of blocks from which on there is no rest: half as much as was purged has come
    /// since, and lies on the disk beside the purged files.
    pub room: u64,
    /// Files of entries that the zone does not have: such a file is left where a process was killed
    /// between taking the entry out and deleting the file, or between the rename and taking the
    /// entry in. There are hardly any.
    pub left: Vec<Hash>,
}

/// The number of requests of a cache, and the time since which it has not changed.
struct Asked {
    times: u64,
    since: Instant,
}

impl Asked {
    /// Whether there was no request for [`IDLE`]; `times` is the number of requests until now.
    fn is_idle(&mut self, times: u64, now: Instant) -> bool {
        if times != self.times {
            *self = Asked { times, since: now };
        }
        now.duration_since(self.since) >= IDLE
    }
}

/// The deletions that are to come, in the order of their marks.
pub(super) struct Deletions {
    all: RefCell<VecDeque<Deletion>>,
    /// There is one.
    stirred: Notify,
    asked: RefCell<Asked>,
}

impl Deletions {
    /// There are none.
    pub fn new() -> Deletions {
        let asked = Asked { times: 0, since: Instant::now() };
        Deletions { all: RefCell::default(), stirred: Notify::new(), asked: RefCell::new(asked) }
    }

    /// Adds one, for which [`Deletions::begin`] is called.
    pub fn add(&self, deletion: Deletion) {
        self.all.borrow_mut().push_back(deletion);
    }

    /// Has deletions begin that were added.
    pub fn begin(&self) {
        self.stirred.notify_all();
    }

    /// Takes the next one; waits for it.
    async fn next(&self) -> Deletion {
        loop {
            let next = self.all.borrow_mut().pop_front();
            match next {
                Some(deletion) => return deletion,
                None => self.stirred.notified().await,
            }
        }
    }
}

impl Keeper {
    /// Deletes the files of purged entries, for ever.
    pub(super) async fn delete(&self) {
        loop {
            let deletion = self.deletions.next().await;
            let Deletion { files, left, room, .. } = &deletion;
            self.delete_some(left, None, *room).await;
            self.delete_some(files, self.cache.settings.purger, *room).await;
            // The index forgets them: a file that is renamed after this, by a process that is
            // killed then, is not trusted at the next start.
            self.gone.borrow_mut().extend(deletion.files.iter().chain(&deletion.left));
            let keys = &self.cache.keys;
            keys.marks.set(deletion.mark, MarkState::Cleared, None);
            self.cleared.borrow_mut().push((deletion.mark, deletion.id));
            self.cache.stirred.notify_all();
        }
    }

    /// Deletes files, at the configured pace or with rests between them ([`Keeper::rest`]).
    async fn delete_some(&self, files: &[Hash], pace: Option<Pace>, room: u64) {
        let at_once = pace.map_or(DELETED_AT_ONCE, |pace| pace.files.clamp(1, 1024) as usize);
        let mut began = now_ms();
        for some in files.chunks(at_once) {
            let from = Instant::now();
            purging::delete_purged(&self.cache, some, Some(&event::pool::default())).await;
            match pace {
                None => self.rest(from.elapsed(), room).await,
                Some(pace) if some.len() == at_once || now_ms() - began >= pace.threshold_ms => {
                    event::sleep(pace.sleep_ms).await;
                    began = now_ms();
                }
                Some(_) => {}
            }
        }
    }

    /// Rests behind a deletion that took so long, so that the disk is there for others; but not
    /// when there are more than `room` blocks of others, or little is free, or many purges wait.
    async fn rest(&self, took: Duration, room: u64) {
        let keys = &self.cache.keys;
        let began = Instant::now();
        loop {
            let is_urgent = self.deletions.all.borrow().len() > WAITING_MAX
                || keys.blocks() > room
                || manager::is_low(&self.cache).await;
            let is_idle = self.deletions.asked.borrow_mut().is_idle(keys.asked(), Instant::now());
            let times = match (is_urgent, is_idle) {
                (true, _) => 0,
                (false, true) => IDLE_REST,
                (false, false) => REST,
            };
            let left = (took * times).saturating_sub(began.elapsed());
            event::sleep((left.min(LOOK).as_millis() as u64).max(1)).await;
            if left <= LOOK {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_idle_when_it_was_not_asked_for_long() {
        let began = Instant::now();
        let mut asked = Asked { times: 5, since: began };
        let mut is_idle = |times, secs| asked.is_idle(times, began + Duration::from_secs(secs));
        assert!(!is_idle(5, 9));
        assert!(is_idle(5, 10));
        assert!(!is_idle(6, 11), "asked again");
        assert!(!is_idle(6, 20));
        assert!(is_idle(6, 21));
    }
}
