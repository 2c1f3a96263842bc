//! The facts of what is over, and the words that they are counted by.

use shm::CounterRow;

use super::status_zone::ZoneName;
use super::{Metrics, word};

/// A request or a session that is over.
pub struct Ended {
    /// Its time, microseconds.
    pub time_us: u64,
    /// Bytes from the client.
    pub received: u64,
    /// Bytes to the client.
    pub sent: u64,
    /// The word of its status.
    pub code: Option<usize>,
    /// It ended without a response, or before it was served.
    pub discarded: bool,
}

impl Ended {
    /// Counts it.
    pub fn count(&self, counters: &CounterRow<'_>) {
        counters.add(word::DONE, 1);
        counters.add(word::RECEIVED, self.received);
        counters.add(word::SENT, self.sent);
        counters.add(word::TIME_US, self.time_us);
        counters.add(word::of_time(self.time_us), 1);
        if let Some(code) = self.code {
            counters.add(code, 1);
        }
        if self.discarded {
            counters.add(word::DISCARDED, 1);
        }
    }
}

/// An exchange with a server of an upstream that is over; times are milliseconds from its
/// beginning, `None` where it did not come so far.
pub struct Exchanged {
    /// Bytes from the server.
    pub received: u64,
    /// Bytes to the server.
    pub sent: u64,
    /// The time until the connection was there; `None` if there was none.
    pub connect_ms: Option<u64>,
    /// The time until the first byte of the answer, or until its head.
    pub first_ms: Option<u64>,
    /// The time until the end of the answer.
    pub end_ms: Option<u64>,
    /// The word of the response's status.
    pub code: Option<usize>,
}

impl Exchanged {
    /// Counts it.
    pub fn count(&self, counters: &CounterRow<'_>) {
        counters.add(word::RECEIVED, self.received);
        counters.add(word::SENT, self.sent);
        if let Some(ms) = self.connect_ms {
            counters.add(word::CONNECT_US, ms * 1000);
        }
        if let Some(ms) = self.first_ms {
            counters.add(word::HEADER_US, ms * 1000);
            counters.add(word::HEADERS, 1);
            if let Some(code) = self.code {
                counters.add(code, 1);
            }
        }
        if let Some(ms) = self.end_ms {
            counters.add(word::TIME_US, ms * 1000);
            counters.add(word::of_time(ms * 1000), 1);
        }
    }
}

impl Metrics {
    /// Counts a handshake with a client in the zone of its server: whether it resumed a session, or
    /// that it failed.
    pub fn handshake(&self, zone: &ZoneName, outcome: Result<bool, ()>) {
        let ZoneName::Fixed(zone) = zone else { return };
        let row = self.row_of(*zone);
        let Some(counters) = row.and_then(|row| self.counters(row)) else { return };
        counters.add(word::HANDSHAKES, outcome.is_ok().into());
        counters.add(word::SESSION_REUSES, (outcome == Ok(true)).into());
        counters.add(word::HANDSHAKES_FAILED, outcome.is_err().into());
    }
}
