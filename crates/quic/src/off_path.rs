//! Anti-amplification limit for addresses other than the connection's own, to which PATH_RESPONSE
//! frames are sent.
//!
//! The source address of a datagram with PATH_CHALLENGE is not validated: by spoofing it, a client
//! could direct 1,200 bytes at a victim for each 50 bytes that it sends. So an address is sent no
//! more than three times the bytes that were received from it (RFC 9000 section 8.2.2), which
//! quinn-proto does not enforce. Clients that follow the RFC pad these datagrams to 1,200 bytes and
//! get their responses.

use std::net::SocketAddr;

/// The number of addresses that are remembered: the same number of paths to which quinn-proto has
/// responses pending.
const ADDRESSES_MAX: usize = 16;

/// Addresses other than the connection's own, each with the number of bytes that may still be sent
/// to it.
#[derive(Default)]
pub(crate) struct OffPath(Vec<(SocketAddr, u64)>);

impl OffPath {
    /// Records a datagram of `len` bytes from `from`, which allows three times as many to be sent
    /// there. Forgets the oldest address if there are too many.
    pub fn came(&mut self, from: SocketAddr, len: usize) {
        let more = 3 * len as u64;
        if let Some((_, left)) = self.0.iter_mut().find(|(own, _)| *own == from) {
            *left = left.saturating_add(more);
            return;
        }
        if self.0.len() == ADDRESSES_MAX {
            self.0.remove(0);
        }
        self.0.push((from, more));
    }

    /// Whether `len` bytes may be sent to `to`; if so, deducts them.
    pub fn may_send(&mut self, to: SocketAddr, len: usize) -> bool {
        let own = self.0.iter_mut().find(|(own, _)| *own == to);
        let left = own.and_then(|own| Some((own.1.checked_sub(len as u64)?, own)));
        left.map(|(left, own)| own.1 = left).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_three_times_what_came_from_there() {
        let of = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut all = OffPath::default();
        all.came(of(1), 50);
        assert!(!all.may_send(of(1), 1200) && !all.may_send(of(2), 1));
        all.came(of(1), 350);
        assert!(all.may_send(of(1), 1200) && !all.may_send(of(1), 1));
        (2..=17).for_each(|port| all.came(of(port), 1));
        assert!(all.may_send(of(17), 3) && all.may_send(of(2), 3));
        assert_eq!(all.0.len(), ADDRESSES_MAX, "none that is not there has memory");
    }
}
