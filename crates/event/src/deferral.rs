//! Deferred accepting under load: while many connections come, the kernel keeps each until its
//! client has sent something (`TCP_DEFER_ACCEPT`).
//!
//! A worker that is woken for a new connection finds nothing to receive, and is woken again for the
//! request: with a connection for each request that is a tenth to a fifth of its work. With few
//! connections it does not matter, and they are accepted as they come: a silent client is seen,
//! counted and timed from its beginning.

use std::cell::Cell;
use std::os::fd::BorrowedFd;

/// The length of the window in which connections are counted, in milliseconds.
const WINDOW_MS: u64 = 100;

/// The number of connections in a window from which on accepting is deferred: a thousand per
/// second.
const MANY: u32 = 100;

/// The option is set again after this time: another worker, with few connections, may have cleared
/// it.
const AGAIN_MS: u64 = 1_000;

/// The kernel keeps a connection without a byte until it has repeated its SYN-ACK once, about a
/// second.
const SECONDS: i32 = 1;

/// The recent load of a listening socket.
#[derive(Default)]
pub(crate) struct Deferral {
    window_ms: Cell<u64>,
    accepted: Cell<u32>,
    /// The time of the last setting of the option; `None` while it is off.
    since_ms: Cell<Option<u64>>,
}

/// The change that a socket needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DeferChange {
    Nothing,
    Defer,
    Accept,
}

impl Deferral {
    /// A connection was accepted.
    #[inline]
    pub(crate) fn accepted(&self, fd: BorrowedFd<'_>) {
        let seconds = match self.count(base::time::now_ms()) {
            DeferChange::Nothing => return,
            DeferChange::Defer => SECONDS,
            DeferChange::Accept => 0,
        };
        // A failure costs the saving and nothing else.
        let _ = os::socket::set_defer_accept(fd, seconds);
    }

    fn count(&self, now_ms: u64) -> DeferChange {
        let accepted = self.accepted.get() + 1;
        self.accepted.set(accepted);
        let is_over = now_ms >= self.window_ms.get() + WINDOW_MS;
        if is_over {
            self.window_ms.set(now_ms);
            self.accepted.set(0);
        }
        let since_ms = self.since_ms.get();
        match since_ms {
            None if accepted >= MANY && !is_over => {
                self.since_ms.set(Some(now_ms));
                DeferChange::Defer
            }
            Some(_) if is_over && accepted < MANY => {
                self.since_ms.set(None);
                DeferChange::Accept
            }
            Some(since) if now_ms >= since + AGAIN_MS => {
                self.since_ms.set(Some(now_ms));
                DeferChange::Defer
            }
            _ => DeferChange::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_deferred_and_few_are_not() {
        let deferral = Deferral::default();
        let told = |now_ms: u64, times: u32| -> Vec<DeferChange> {
            let all = (0..times).map(|_| deferral.count(now_ms));
            all.filter(|tell| *tell != DeferChange::Nothing).collect()
        };
        // Few connections, for however long.
        for n in 0..20 {
            assert_eq!(told(1_000 + n * 60, 50), []);
        }
        assert_eq!(told(3_000, 1), [], "a window begins");
        assert_eq!(told(3_010, 99), []);
        assert_eq!(told(3_020, 1), [DeferChange::Defer]);
        assert_eq!(told(3_030, 500), []);
        for n in 1..10 {
            assert_eq!(told(3_020 + n * 100, 200), []);
        }
        assert_eq!(told(4_020, 200), [DeferChange::Defer], "once more");
        assert_eq!(told(4_125, 20), []);
        assert_eq!(told(4_250, 1), [DeferChange::Accept]);
        assert_eq!(told(9_000, 50), []);
    }
}
