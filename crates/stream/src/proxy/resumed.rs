//! A TCP session on its way between processes, as plain data.

use bytes::Bytes;
use net::Transport;
use net::relay::Resting;
use upstream::lease::Occupied;

/// A session that another process began, and that goes on in this one.
pub(crate) struct Resumed {
    /// The connection to its server.
    pub(super) server: Transport,
    pub(super) rest: Rest,
    /// The group that the server was of.
    pub(super) group: Bytes,
    /// Its place among the server's sessions, if the configuration has that server.
    pub(super) place: Option<Occupied>,
}

/// A session at rest: all of its relay but the two connections.
pub(crate) struct Rest {
    pub up: Resting,
    pub down: Resting,
    /// The end was forwarded: to the server, to the client.
    pub closed: [bool; 2],
    /// Bytes moved last, in milliseconds of [`base::time::now_ms`].
    pub moved_ms: u64,
}
