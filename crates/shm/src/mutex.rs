//! A lock between processes with a queue of sleepers, which outlives an owner that dies.
//!
//! The word has the layout of the kernel's robust futexes: the owner's process id, a bit for
//! sleepers, a bit for a dead owner. [`lock`] reports the owner's death to the next process that
//! takes the lock, because the guarded data may be half changed; [`try_lock`] does not report it.
//!
//! ```text
//!            take                      sleep
//!   free ───────────▶ owner ──────────────────────▶ owner + SLEEPERS
//!    ▲                  │ release (wakes one)              │
//!    └──────────────────┴──────────────────────────────────┤
//!            take: "abandoned"                             │ the owner is dead
//!   owner ◀──────────────────── ABANDONED ◀────────────────┘ (the master says so,
//!                                                             or a waiter looks)
//! ```

use std::hint;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use os::futex;

/// Somebody sleeps until the lock is free.
const SLEEPERS: u32 = 1 << 31;
/// An owner died with the lock, and no process has taken it since.
const ABANDONED: u32 = 1 << 30;
/// The owner's process id; Linux has none above 2²².
const OWNER: u32 = ABANDONED - 1;

/// Looks before a sleep: the guarded changes take well under a microsecond.
const SPINS: u32 = 200;

/// Sleep before a check that the owner lives. The master, if there is one, frees the lock sooner.
const DOUBT: Duration = Duration::from_millis(20);

/// Takes the lock, waiting as long as it takes. True when an owner died with it.
///
/// A process takes a lock once at a time: one that finds its own id as the owner's has the id of a
/// dead process.
#[inline]
pub(crate) fn lock(word: &AtomicU32) -> bool {
    let me = os::process::id();
    match word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => false,
        Err(_) => contended(word, me),
    }
}

/// Takes the lock if that needs no wait. As with [`lock`], the data may be half changed if an owner
/// died.
pub(crate) fn try_lock(word: &AtomicU32) -> bool {
    try_take(word, os::process::id(), 0).is_some()
}

#[cold]
fn contended(word: &AtomicU32, me: u32) -> bool {
    for _ in 0..SPINS {
        if let Some(abandoned) = try_take(word, me, 0) {
            return abandoned;
        }
        hint::spin_loop();
    }
    loop {
        // A process that slept cannot know whether others still do, and wakes one too many at
        // worst.
        if let Some(abandoned) = try_take(word, me, SLEEPERS) {
            return abandoned;
        }
        let seen = word.load(Ordering::Relaxed);
        let asleep = seen | SLEEPERS;
        if seen & OWNER == 0
            || seen != asleep
                && word
                    .compare_exchange(seen, asleep, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
        {
            continue;
        }
        futex::wait(word, asleep, DOUBT);
        let owner = seen & OWNER;
        if word.load(Ordering::Relaxed) & OWNER == owner && !os::process::exists(owner) {
            free_of(word, owner);
        }
    }
}

/// Takes the lock if it is free or carries this very process's id; returns whether an owner died.
fn try_take(word: &AtomicU32, me: u32, flags: u32) -> Option<bool> {
    let seen = word.load(Ordering::Relaxed);
    let owner = seen & OWNER;
    if owner != 0 && owner != me {
        return None;
    }
    let new = me | seen & SLEEPERS | flags;
    word.compare_exchange(seen, new, Ordering::Acquire, Ordering::Relaxed).ok()?;
    Some(owner == me || seen & ABANDONED != 0)
}

/// Releases the lock. `whole` is false when the guarded data may be half changed.
#[inline]
pub(crate) fn unlock(word: &AtomicU32, whole: bool) {
    let seen = word.swap(if whole { 0 } else { ABANDONED }, Ordering::Release);
    if seen & SLEEPERS != 0 {
        futex::wake_one(word);
    }
}

/// Takes the lock away from a dead process. True when it held it.
pub(crate) fn free_of(word: &AtomicU32, dead: u32) -> bool {
    loop {
        let seen = word.load(Ordering::Relaxed);
        if dead == 0 || seen & OWNER != dead {
            return false;
        }
        let new = ABANDONED | seen & SLEEPERS;
        if word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            futex::wake_one(word);
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_and_given_back() {
        let word = AtomicU32::new(0);
        assert!(!lock(&word));
        assert_eq!(word.load(Ordering::Relaxed), os::process::id());
        unlock(&word, true);
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_comes_after_a_death_is_told() {
        // No process has this id: Linux gives none above 2²².
        let dead = OWNER - 1;
        let word = AtomicU32::new(dead);
        assert!(!free_of(&word, dead - 1));
        assert!(!free_of(&word, 0));
        assert!(free_of(&word, dead));
        assert!(lock(&word));
        unlock(&word, true);
        assert!(!lock(&word));
        unlock(&word, false);
        assert!(lock(&word));
    }

    #[test]
    fn a_waiter_finds_out_by_itself() {
        let word = AtomicU32::new(OWNER - 1);
        assert!(lock(&word));
    }
}
