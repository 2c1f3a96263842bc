//! The end of a connection, as its client is told: a first GOAWAY that rejects nothing, a final
//! one, and the close (RFC 9114 section 5.2).

/// The time between the first GOAWAY and the final one, in milliseconds: requests that a client
/// sent before it read the first one are answered. HTTP/3 has no PING whose answer would tell that
/// it has (RFC 9114 section 5.2).
const ANNOUNCE_MS: u64 = 1_000;

/// The time between the final GOAWAY and the end of a connection without streams, in milliseconds:
/// for streams on their way that are to be rejected, so that the client may send them elsewhere.
const LEAVE_MS: u64 = 1_000;

/// The highest id of a client's stream (RFC 9000 section 2.1): the first GOAWAY rejects none.
pub const LAST_ID: u64 = (1 << 62) - 4;

/// The end of a connection that we have announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// It goes on.
    No,
    /// The client was told at this time, in milliseconds, and its streams are still answered.
    Announced(u64),
    /// The final GOAWAY was sent at this time: streams that follow are rejected.
    Final(u64),
}

impl Leaving {
    /// The time of the next step, in milliseconds.
    pub fn next_ms(self) -> Option<u64> {
        match self {
            Leaving::No => None,
            Leaving::Announced(since_ms) => Some(since_ms + ANNOUNCE_MS),
            Leaving::Final(since_ms) => Some(since_ms + LEAVE_MS),
        }
    }

    /// Whether the next step is due.
    pub fn is_due(self, now_ms: u64) -> bool {
        self.next_ms().is_some_and(|at_ms| now_ms >= at_ms)
    }
}
