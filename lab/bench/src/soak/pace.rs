//! The pace of all clients together, and how late this machine wakes those that sleep.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::backends::locked;

/// Requests begin at so many a second, in the order in which clients ask to.
pub struct Pace {
    began: Instant,
    interval_ns: u64,
    next_ns: AtomicU64,
}

impl Pace {
    /// So many a second.
    pub fn new(per_second: u64) -> Self {
        let interval_ns = 1_000_000_000 / per_second.max(1);
        Self { began: Instant::now(), interval_ns, next_ns: AtomicU64::new(0) }
    }

    /// Takes the next turn, and says when it is.
    pub fn turn(&self) -> Instant {
        let now = self.began.elapsed().as_nanos() as u64;
        let taken = |next: u64| Some(next.max(now) + self.interval_ns);
        let turn = self.next_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        self.began + Duration::from_nanos(turn.unwrap_or(now).max(now))
    }

    /// Waits for the next turn.
    pub fn wait(&self) {
        std::thread::sleep(self.turn().saturating_duration_since(Instant::now()));
    }
}

/// The sleeps whose lateness is measured.
const NAP: Duration = Duration::from_millis(50);
/// A delay that is usual, and counts for nothing.
const USUAL: Duration = Duration::from_millis(50);
/// Stalls that are remembered one by one.
const REMEMBERED: usize = 10_000;

/// The machine's stalls: how long this process was not woken although it should have been.
#[derive(Default)]
pub struct Stalls {
    /// When a late sleep ended, and by how much it was late.
    seen: Mutex<VecDeque<(Instant, Duration)>>,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
    over: AtomicBool,
}

impl Stalls {
    /// Starts to measure.
    pub fn watch() -> Arc<Self> {
        let stalls = Arc::new(Self::default());
        let all = Arc::clone(&stalls);
        std::thread::spawn(move || {
            while !all.over.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(NAP);
                let late = before.elapsed().saturating_sub(NAP);
                if late > USUAL {
                    all.add(Instant::now(), late);
                }
            }
        });
        stalls
    }

    fn add(&self, at: Instant, late: Duration) {
        let ns = late.as_nanos() as u64;
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
        let mut seen = locked(&self.seen);
        if seen.len() == REMEMBERED {
            seen.pop_front();
        }
        seen.push_back((at, late));
    }

    /// The sum of all stalls that ended since then.
    pub fn since(&self, since: Instant) -> Duration {
        let seen = locked(&self.seen);
        seen.iter().rev().take_while(|(at, _)| *at >= since).map(|(_, late)| *late).sum()
    }

    /// The sum of all, and the longest.
    pub fn all(&self) -> (Duration, Duration) {
        let of = |ns: &AtomicU64| Duration::from_nanos(ns.load(Ordering::Relaxed));
        (of(&self.total_ns), of(&self.longest_ns))
    }

    /// Ends the measuring.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_apart() {
        let pace = Pace::new(100);
        let began = Instant::now();
        (0..6).for_each(|_| pace.wait());
        assert!(began.elapsed() >= Duration::from_millis(50));
    }

    #[test]
    fn stalls_count_from_a_time_on() {
        let (stalls, second) = (Stalls::default(), Duration::from_secs(1));
        let began = Instant::now();
        (1..=3).for_each(|n| stalls.add(began + second * n, second * n));
        assert_eq!(stalls.since(began + second * 2), second * 5);
        assert_eq!(stalls.all(), (second * 6, second * 3));
    }
}
