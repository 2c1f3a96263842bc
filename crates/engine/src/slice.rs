//! The time that a connection may take before others have their turns. Otherwise a client with many
//! expensive requests would delay all others.
//!
//! A connection runs for 150 µs, one of a suspect client (one that was cut off for a flood lately,
//! or has caused many resets) for a fifth of that. The streams of a connection that have become
//! tasks share 150 µs of each turn of the loop.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use base::time::exact_us;

/// The length of a slice, in microseconds: enough for a hundred small files in memory.
const SLICE_US: u64 = 150;

/// The length for a client that floods, or did lately, so that others wait no longer for its frames
/// than for a few requests of each other.
const SLICE_SUSPECT_US: u64 = 30;

/// A connection's share of the worker's time.
#[derive(Clone, Copy, Default)]
pub struct Slice {
    /// The end of the slice, in microseconds of the exact clock; 0 if it has not begun.
    end_us: u64,
}

impl Slice {
    /// Begins the slice, unless it has begun in an earlier turn.
    pub fn begin(&mut self, is_suspect: bool) {
        if self.end_us == 0 {
            self.end_us = exact_us() + if is_suspect { SLICE_SUSPECT_US } else { SLICE_US };
        }
    }

    /// Ends the slice, because others have their turns.
    pub fn end(&mut self) {
        self.end_us = 0;
    }

    /// Whether the time is over and others should have their turns.
    pub fn has_passed(self) -> bool {
        exact_us() >= self.end_us
    }
}

/// The time that the streams of a connection have taken in a turn of the loop.
#[derive(Default)]
pub struct Share {
    turn: Cell<u64>,
    used_us: Cell<u64>,
}

impl Share {
    /// Whether there is time for another one in that turn.
    fn has_time(&self, turn: u64) -> bool {
        if self.turn.replace(turn) != turn {
            self.used_us.set(0);
        }
        self.used_us.get() < SLICE_US
    }

    fn used(&self, us: u64) {
        self.used_us.set(self.used_us.get() + us);
    }
}

/// A stream that is polled only while its connection has time left in a turn. Otherwise a hundred
/// streams that are ready at once would delay the other connections by all of their work.
pub struct InTurn<F> {
    /// The share of its connection.
    pub share: Rc<Share>,
    /// The stream's task.
    pub stream: Pin<Box<F>>,
}

impl<F: Future<Output = ()>> Future for InTurn<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.share.has_time(event::turn()) {
            event::task::wake_in_next_turn(cx.waker());
            return Poll::Pending;
        }
        let began_us = exact_us();
        let polled = self.stream.as_mut().poll(cx);
        self.share.used(exact_us() - began_us);
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_a_share_of_each_turn() {
        let share = Share::default();
        assert!(share.has_time(1));
        share.used(SLICE_US - 1);
        assert!(share.has_time(1));
        share.used(1);
        assert!(!share.has_time(1), "it is used");
        assert!(share.has_time(2), "another turn");
        share.used(1);
        assert!(share.has_time(2));
    }

    #[test]
    fn a_slice_goes_on_until_others_have_theirs() {
        let mut slice = Slice::default();
        base::time::pin(1_000, 1_000);
        slice.begin(false);
        assert!(!slice.has_passed());
        base::time::pin(1_001, 1_000);
        slice.begin(false);
        assert!(slice.has_passed(), "it has begun before");
        slice.end();
        slice.begin(false);
        assert!(!slice.has_passed());
        let usual = slice.end_us;
        slice.end();
        slice.begin(true);
        assert_eq!(usual - slice.end_us, SLICE_US - SLICE_SUSPECT_US, "a suspect's is shorter");
        assert!(!slice.has_passed());
        base::time::unpin();
    }
}
