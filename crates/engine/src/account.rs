//! What logs and counters report of a request: its start, the times of its phases, the bytes sent,
//! and its place among the requests in progress of a zone.

use std::rc::Rc;

use crate::Metrics;
use crate::metrics::{CounterRow, RowId, word};

/// The account of one request.
#[derive(Default)]
pub struct Account {
    /// The time when its first byte was read: milliseconds since 1970; 0 before.
    pub start_ms: u64,
    /// The same on the monotonic clock, microseconds.
    start_mono_us: u64,
    /// Its times so far.
    pub times: PhaseTimes,
    /// Bytes of its response handed to the kernel or its chain, head included.
    pub bytes_sent: u64,
    /// The head's part of them.
    pub header_bytes: u64,
    /// Counted as under way in its server's zone.
    pub counted: Option<Counted>,
}

impl Account {
    /// For the next request, which sets its start itself.
    pub fn reset(&mut self) {
        self.times = PhaseTimes::default();
        self.counted = None;
        self.unsend();
    }

    /// The request begins now: its first byte was read.
    pub fn start(&mut self) {
        self.start_ms = base::time::unix_ms();
        self.start_mono_us = base::time::now_us();
    }

    /// Another process has begun the request.
    pub fn resume(&mut self, start_ms: u64, elapsed_us: u64, sent: (u64, u64)) {
        self.start_ms = start_ms;
        self.start_mono_us = base::time::now_us().saturating_sub(elapsed_us);
        (self.bytes_sent, self.header_bytes) = sent;
    }

    /// Milliseconds since the request's first byte.
    pub fn elapsed_ms(&self) -> u64 {
        base::time::now_ms().saturating_sub(self.start_mono_us / 1000)
    }

    /// The same in microseconds, as far as the loop's clock tells: 0 within a turn.
    pub fn elapsed_us(&self) -> u64 {
        base::time::now_us().saturating_sub(self.start_mono_us)
    }

    /// Leaves the request out of the counters of its zones.
    pub fn leave_uncounted(&mut self) {
        self.counted.take().as_mut().and_then(Counted::end);
    }

    /// The response's head was sent.
    #[inline]
    pub fn head_sent(&mut self, bytes: u64) {
        self.header_bytes = bytes;
        self.bytes_sent += bytes;
    }

    /// Bytes were sent that are neither the first head nor the body's: heads of frames, trailers.
    pub fn framing_sent(&mut self, bytes: u64) {
        self.bytes_sent += bytes;
        self.header_bytes += bytes;
    }

    /// The body's bytes that were sent, for logging.
    pub fn body_bytes_sent(&self) -> u64 {
        self.bytes_sent.saturating_sub(self.header_bytes)
    }

    /// The response was taken back: nothing of it was sent.
    pub fn unsend(&mut self) {
        (self.bytes_sent, self.header_bytes) = (0, 0);
    }
}

/// The times of a request, microseconds.
#[derive(Clone, Copy, Debug)]
pub struct PhaseTimes {
    /// From its first byte until its head was there.
    pub head_us: u64,
    /// Waits of the phases before the content.
    pub access_us: u64,
    /// From its first byte until its response could be sent; `u64::MAX` before.
    pub ready_us: u64,
}

impl Default for PhaseTimes {
    fn default() -> PhaseTimes {
        PhaseTimes { head_us: 0, access_us: 0, ready_us: u64::MAX }
    }
}

/// A request counted as under way. One that is dropped before its end, as after a panic, is lost.
pub struct Counted {
    /// The counters.
    pub metrics: Rc<Metrics>,
    /// Its zone.
    pub row: RowId,
    /// It was subtracted.
    pub is_over: bool,
}

impl Counted {
    /// It is not under way any more; returns the counters of its zone.
    pub fn end(&mut self) -> Option<CounterRow<'_>> {
        let is_over = std::mem::replace(&mut self.is_over, true);
        let counters = self.metrics.counters(self.row).filter(|_| !is_over)?;
        counters.sub(word::PROCESSING, 1);
        Some(counters)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(counters) = self.end() {
            counters.add(word::LOST, 1);
        }
    }
}
