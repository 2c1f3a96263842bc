//! The clock's own tick, for `timer_resolution`: then only its ticks move the clock.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A descriptor that becomes readable at a fixed interval.
pub(crate) struct Ticker(OwnedFd);

impl Ticker {
    /// A ticker, or none for 0 milliseconds.
    pub(crate) fn new(resolution_ms: u64) -> io::Result<Option<Ticker>> {
        if resolution_ms == 0 {
            return Ok(None);
        }
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let tick = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let span = timespec(resolution_ms);
        let times = Itimerspec { it_interval: span, it_value: span };
        timerfd_settime(&tick, TimerfdTimerFlags::empty(), &times)?;
        Ok(Some(Ticker(tick)))
    }

    /// Takes the ticks that have passed.
    pub(crate) fn take(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Ticker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The limit of a wait: with a ticker the clock stands still between ticks, and no wait may end by
/// it.
pub(crate) fn limit(ticker: Option<&Ticker>, timeout_ms: Option<u64>) -> Option<Timespec> {
    let timeout_ms = match ticker {
        Some(_) => timeout_ms.filter(|&ms| ms == 0),
        None => timeout_ms,
    };
    timeout_ms.map(timespec)
}

/// Milliseconds as a `timespec`, cut to the kernel's range.
fn timespec(ms: u64) -> Timespec {
    Timespec {
        tv_sec: (ms / 1000).min(i32::MAX as u64 / 1000) as i64,
        tv_nsec: (ms % 1000 * 1_000_000) as i64,
    }
}
