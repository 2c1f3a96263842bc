//! The standing of a connection's client among all clients of the loop.

use crate::runtime::inner::{try_with, with};
use crate::sock::Sock;
use crate::state::clients::Standing;
use crate::state::socks::SockKey;

impl Sock {
    /// The place of the connection's client, if a share is `share` connections.
    pub fn standing(&self, share: usize) -> Standing {
        let SockKey { index, .. } = self.0.key;
        let share = u32::try_from(share).unwrap_or(u32::MAX);
        with(|inner| inner.core.socks.clients.standing(index, share))
    }
}

/// There is room: the connections of clients need not be counted.
pub fn forget_standings() {
    let _ = try_with(|inner| inner.core.socks.clients.forget_counts());
}
