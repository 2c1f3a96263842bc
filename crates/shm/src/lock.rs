//! A lock between processes that names its owner.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Zone;

/// A lock that processes hold one at a time. The word is the owner's process id, 0 when free, so
/// that the master can free the lock of a dead worker ([`ShmLock::free_of`]).
///
/// It has no queue: a process that does not get it tries again later, as accepting does.
/// wants.
#[derive(Debug)]
pub struct ShmLock(Zone);

impl ShmLock {
    /// A free lock in shared memory of its own.
    pub fn new() -> io::Result<ShmLock> {
        Zone::anonymous(size_of::<AtomicU64>()).map(ShmLock)
    }

    fn word(&self) -> &AtomicU64 {
        &self.0.words()[0]
    }

    /// Takes the lock for `pid` when it is free. True, too, when `pid` already holds it.
    pub fn try_lock(&self, pid: u32) -> bool {
        let word = self.word();
        // Looking first keeps the line shared among the processes that only ask.
        match word.load(Ordering::Relaxed) {
            0 => word.compare_exchange(0, pid.into(), Ordering::Acquire, Ordering::Relaxed).is_ok(),
            owner => owner == u64::from(pid),
        }
    }

    /// Releases the lock; nothing happens when `pid` does not hold it.
    pub fn unlock(&self, pid: u32) {
        let _ = self.word().compare_exchange(pid.into(), 0, Ordering::Release, Ordering::Relaxed);
    }

    /// Frees the lock of a dead process. True when it held it.
    pub fn free_of(&self, dead: u32) -> bool {
        self.word().compare_exchange(dead.into(), 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_at_a_time() {
        let lock = ShmLock::new().unwrap();
        assert!(lock.try_lock(10));
        assert!(lock.try_lock(10));
        assert!(!lock.try_lock(11));
        lock.unlock(11);
        assert!(!lock.try_lock(11));
        lock.unlock(10);
        assert!(lock.try_lock(11));
    }

    #[test]
    fn a_dead_owner_is_set_aside() {
        let lock = ShmLock::new().unwrap();
        assert!(!lock.free_of(10));
        assert!(lock.try_lock(10));
        assert!(!lock.free_of(11));
        assert!(lock.free_of(10));
        assert!(lock.try_lock(11));
    }
}
