//! The processor time of stretches. The kernel's clock of a thread takes a system call of nearly a
//! microsecond in a virtual machine, which is longer than many scripts, and the clock on the wall
//! takes a thirtieth of that. So the wall's clock measures short stretches, and a recent reading of
//! the thread's clock, at most [`STALE_USEC`] old, is where longer ones begin.

use std::cell::Cell;
use std::rc::Rc;

/// The longest stretch for which the time on the wall counts, and the greatest age of a reading of
/// the thread's clock, in microseconds. A stretch may count as longer than it was by so much, and
/// never as shorter.
const STALE_USEC: u64 = 1_000;

/// Both clocks of a thread, and the latest reading of the slow one.
pub(crate) struct Clocks {
    wall: fn() -> u64,
    thread: fn() -> u64,
    latest: Cell<Start>,
}

/// The time when a stretch began.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    wall: u64,
    /// At most [`STALE_USEC`] before that time.
    thread: u64,
}

thread_local! {
    static CLOCKS: Rc<Clocks> =
        Rc::new(Clocks::new(os::clock::monotonic_usec, os::clock::thread_usec));
}

impl Clocks {
    /// Those of this thread.
    pub fn of_thread() -> Rc<Clocks> {
        CLOCKS.with(Rc::clone)
    }

    /// Clocks in microseconds: of the wall, and of the thread's time on a processor.
    pub fn new(wall: fn() -> u64, thread: fn() -> u64) -> Clocks {
        Clocks { wall, thread, latest: Cell::new(Start { wall: wall(), thread: thread() }) }
    }

    /// Begins a stretch.
    pub fn start(&self) -> Start {
        let wall = (self.wall)();
        let latest = self.latest.get();
        if wall.saturating_sub(latest.wall) > STALE_USEC {
            return self.read_thread(wall);
        }
        Start { wall, ..latest }
    }

    /// Processor time since a stretch began, in microseconds: at most [`STALE_USEC`] more than it
    /// was, never less. Up to that length the time on the wall counts; a longer stretch counts from
    /// the reading before it.
    pub fn used_usec(&self, start: &Start) -> u64 {
        let wall = (self.wall)();
        let elapsed = wall.saturating_sub(start.wall);
        if elapsed <= STALE_USEC {
            return elapsed;
        }
        let now = self.read_thread(wall);
        elapsed.min(now.thread.saturating_sub(start.thread))
    }

    fn read_thread(&self, wall: u64) -> Start {
        let now = Start { wall, thread: (self.thread)() };
        self.latest.set(now);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::{Clocks, STALE_USEC};
    use std::cell::Cell;

    thread_local! {
        static WALL: Cell<u64> = const { Cell::new(0) };
        static THREAD: Cell<u64> = const { Cell::new(0) };
        static READINGS: Cell<u64> = const { Cell::new(0) };
    }

    /// Time passes, for some of which the thread has a processor.
    fn pass(wall: u64, thread: u64) {
        WALL.set(WALL.get() + wall);
        THREAD.set(THREAD.get() + thread);
    }

    fn clocks() -> Clocks {
        let thread = || {
            READINGS.set(READINGS.get() + 1);
            THREAD.get()
        };
        let clocks = Clocks::new(|| WALL.get(), thread);
        READINGS.set(0);
        clocks
    }

    #[test]
    fn short_stretches_read_the_thread_s_clock_rarely() {
        let clocks = clocks();
        for _ in 0..1_000 {
            let start = clocks.start();
            pass(20, 20);
            assert_eq!(clocks.used_usec(&start), 20);
        }
        // 20 ms have passed.
        assert!((15..=20).contains(&READINGS.get()), "{}", READINGS.get());
    }

    #[test]
    fn time_of_others_does_not_count() {
        let clocks = clocks();
        pass(STALE_USEC, STALE_USEC);
        let start = clocks.start();
        pass(50_000, 3_000);
        let used = clocks.used_usec(&start);
        assert!((3_000..=3_000 + STALE_USEC).contains(&used), "{used}");
        // A stretch that begins after that is measured from there.
        let start = clocks.start();
        pass(50_000, 3_000);
        assert_eq!(clocks.used_usec(&start), 3_000);
    }

    #[test]
    fn a_stretch_has_no_time_from_before_it_began() {
        let clocks = clocks();
        pass(STALE_USEC, STALE_USEC);
        let start = clocks.start();
        pass(2_000, 2_000);
        assert_eq!(clocks.used_usec(&start), 2_000);
    }
}
