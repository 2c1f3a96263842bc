//! The outcome of sending a batch, and how often the log has it.

use std::cell::Cell;

use crate::otlp::Partial;

/// Time between two lines about the same, milliseconds.
const TELL_MS: u64 = 60_000;

/// A collector took a batch, perhaps with a part of it left out.
pub type Taken = Option<Partial>;

/// A batch that was not taken.
#[derive(Debug)]
pub struct Failure {
    /// For the log.
    pub message: String,
    /// It may be sent again; the collector may have said after how many milliseconds.
    pub retry: Retry,
}

/// Whether a batch may be sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// It would fail again.
    Never,
    /// After a while.
    Later,
    /// After this time at the earliest, milliseconds.
    After(u64),
}

impl Failure {
    pub fn later(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), retry: Retry::Later }
    }

    pub fn never(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), retry: Retry::Never }
    }
}

/// Lets one line a minute into the log.
#[derive(Default)]
pub struct Told(Cell<Option<u64>>);

impl Told {
    pub fn may_tell(&self) -> bool {
        let now = base::time::now_ms();
        let may = self.0.get().is_none_or(|last| now.saturating_sub(last) >= TELL_MS);
        if may {
            self.0.set(Some(now));
        }
        may
    }
}
