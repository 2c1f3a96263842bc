//! The result of exporting a batch, and the rate limit of log messages.

use std::cell::Cell;

use crate::otlp::Partial;

/// The minimum time between two log lines about the same failure, in milliseconds.
const TELL_MS: u64 = 60_000;

/// The collector accepted a batch; `Some` if it rejected a part of it or sent a message.
pub type Taken = Option<Partial>;

/// A batch was not accepted.
#[derive(Debug)]
pub struct Failure {
    /// The text for the log.
    pub message: String,
    /// Whether and when to retry.
    pub retry: Retry,
}

/// Whether to retry a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// Retrying is useless.
    Never,
    /// After the usual back-off.
    Later,
    /// After the delay that the collector requested, in milliseconds.
    After(u64),
}

impl Failure {
    /// A failure that may be retried.
    pub fn later(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), retry: Retry::Later }
    }

    /// A permanent failure.
    pub fn never(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), retry: Retry::Never }
    }
}

/// Limits a log message to one per [`TELL_MS`].
#[derive(Default)]
pub struct Told(Cell<Option<u64>>);

impl Told {
    /// Whether to log now.
    pub(crate) fn may_tell(&self) -> bool {
        let now = base::time::now_ms();
        let may = self.0.get().is_none_or(|last| now.saturating_sub(last) >= TELL_MS);
        if may {
            self.0.set(Some(now));
        }
        may
    }
}
