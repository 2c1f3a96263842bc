//! Deadlines, sleeping, and a limit of time around a future.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use crate::op::wait::Wait;
use crate::runtime::inner::with;
use crate::state::index::NONE;
use crate::state::slot::{Park, Terms};

/// The end of an operation: a moment on the loop's clock, and the span that led to it. Operations
/// that continue after partial success count the span again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline {
    at_ms: u64,
    span_ms: u64,
}

impl Deadline {
    /// No deadline.
    pub const NEVER: Deadline = Deadline { at_ms: u64::MAX, span_ms: u64::MAX };

    /// `ms` milliseconds from the start of the current turn of the loop.
    pub fn in_ms(ms: u64) -> Deadline {
        Deadline { at_ms: base::time::now_ms().saturating_add(ms), span_ms: ms }
    }

    /// A moment in milliseconds of [`base::time::now_ms`].
    pub fn at(at_ms: u64) -> Deadline {
        Deadline { at_ms, span_ms: at_ms.saturating_sub(base::time::now_ms()) }
    }

    /// The earlier one.
    #[must_use]
    pub fn or(self, other: Deadline) -> Deadline {
        if self.at_ms <= other.at_ms { self } else { other }
    }

    /// The same span, counted from now.
    pub fn renewed(self) -> Deadline {
        Deadline::in_ms(self.span_ms)
    }

    /// The moment in milliseconds of [`base::time::now_ms`]; `u64::MAX` for never.
    pub fn at_ms(self) -> u64 {
        self.at_ms
    }

    /// Whether the moment has come.
    pub fn has_passed(self) -> bool {
        self.at_ms <= base::time::now_ms()
    }
}

/// Waits for `ms` milliseconds.
pub fn sleep(ms: u64) -> Sleep {
    sleep_until(Deadline::in_ms(ms))
}

/// Waits until `deadline`.
pub fn sleep_until(deadline: Deadline) -> Sleep {
    Sleep { deadline, wait: Wait::new(), begun: false }
}

/// The future of [`sleep`] and [`sleep_until`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Sleep {
    deadline: Deadline,
    wait: Wait,
    begun: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        with(|inner| match this.wait.poll(inner, cx) {
            Some(polled) => polled.map(|_| ()),
            None if this.begun => Poll::Ready(()),
            None => {
                this.begun = true;
                let deadline_ms = this.deadline.at_ms;
                let terms = Terms { sock: NONE, gate: 0, park: Park::No, deadline_ms };
                this.wait.begin(inner, cx, terms);
                Poll::Pending
            }
        })
    }
}

/// The time allowed by [`timeout`] was over first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out")
    }
}

impl std::error::Error for Elapsed {}

/// Runs `future` for `ms` milliseconds at most; drops it when they are over.
///
/// Operations on sockets have deadlines of their own, which cost less. Do not put this around a
/// recv on a connection that continues: bytes that arrive at that moment may be lost.
pub async fn timeout<F: Future>(ms: u64, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let mut limit = pin!(sleep(ms));
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        limit.as_mut().poll(cx).map(|()| Err(Elapsed))
    })
    .await
}
