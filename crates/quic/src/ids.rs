//! Connection ids. Their bytes encode the process and socket that own the connection, so that the
//! kernel's socket filter and other workers can route datagrams.

use std::time::Duration;

use net::quic_id::{Id, Key, LEN, Place};
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

/// Generates the connection ids of this process.
pub(crate) struct Ids {
    pub key: Key,
    pub place: Place,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let random = os::random::number().to_ne_bytes();
        ConnectionId::new(&Id::new(&self.key, self.place, random).0)
    }

    fn validate(&self, _: &ConnectionId) -> Result<(), InvalidCid> {
        // Every id passes: packets with the id of an ended process are to be answered with a
        // stateless reset.
        Ok(())
    }

    fn cid_len(&self) -> usize {
        LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The destination connection id of the first packet in a datagram; `None` if it does not have the
/// length of our ids. A short header does not contain the length, so there the next `LEN` bytes are
/// returned.
pub(crate) fn id_of(datagram: &[u8]) -> Option<&[u8]> {
    let at = match datagram.first()? & 0x80 {
        0 => 1,
        _ if usize::from(*datagram.get(5)?) == LEN => 6,
        _ => return None,
    };
    datagram.get(at..at + LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_in_both_forms() {
        let id: Vec<u8> = (0..16).collect();
        let short = [&[0x40][..], &id, &[9; 4]].concat();
        let long = [&[0xc0, 0, 0, 0, 1, 16][..], &id, &[9; 4]].concat();
        assert_eq!((id_of(&short), id_of(&long)), (Some(&id[..]), Some(&id[..])));
        let other = [&[0xc0, 0, 0, 0, 1, 15][..], &id].concat();
        assert_eq!((id_of(&other), id_of(&short[..16]), id_of(&long[..21])), (None, None, None));
        assert_eq!(id_of(&[]), None);
    }
}
