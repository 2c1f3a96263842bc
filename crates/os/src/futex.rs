//! Waiting for a word of shared memory to change.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::thread::{Timespec, futex};

/// Sleeps while `word` holds `expected`, for `limit` at most. It can return early, for a signal or
/// for no reason: the caller looks at the word again. The word may lie in shared memory.
pub fn wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let timeout = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // Woken, changed meanwhile, interrupted, over: all of them mean "look again".
    let _ = futex::wait(word, futex::Flags::empty(), expected, Some(&timeout));
}

/// Wakes one process that sleeps in [`wait`] on this word.
pub fn wake_one(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    /// No test ends by this: it would seem to hang.
    const NEVER: Duration = Duration::from_secs(100 * 24 * 3600);

    #[test]
    fn a_changed_word_does_not_sleep() {
        let word = AtomicU32::new(1);
        wait(&word, 2, NEVER);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let word = AtomicU32::new(0);
        let sleeper = crate::thread::id();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !crate::thread::is_waiting(sleeper) {
                    std::thread::yield_now();
                }
                word.store(1, Ordering::Release);
                wake_one(&word);
            });
            while word.load(Ordering::Acquire) == 0 {
                wait(&word, 0, NEVER);
            }
        });
    }
}
