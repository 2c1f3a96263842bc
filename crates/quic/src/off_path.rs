//! The allowance for addresses that a connection is not at: answers to PATH_CHALLENGE.
//!
//! Such a datagram says where it came from, and nobody has proved it: a client could have a victim
//! get 1,200 bytes for each 50 that it sends. So an address gets no more than three times as much
//! as came from there (RFC 9000 section 8.2.2), which quinn-proto does not see to. Clients that
//! keep to the RFC send such questions in datagrams of 1,200 bytes, and get their answers.

use std::net::SocketAddr;

/// Addresses that are remembered: quinn-proto answers as many at once.
const ADDRESSES_MAX: usize = 16;

/// The addresses beside the connection's own, each with the bytes that may be sent there.
#[derive(Default)]
pub(crate) struct OffPath(Vec<(SocketAddr, u64)>);

impl OffPath {
    /// A datagram of `len` bytes came from an address.
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

    /// Whether `len` bytes may be sent to an address; counts them.
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
