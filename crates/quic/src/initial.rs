//! A client's hello, read before its connection is made: the server is chosen by it.

use bytes::BytesMut;
use proto::quic::{self, Initial, Messages};
use proto::tls_hello::{ClientHello, Malformed, Verdict, parse_message};
use quinn_proto::ConnectionId;
use quinn_proto::crypto::Keys;

/// The hello of a client.
pub struct Hello<'a>(pub Result<ClientHello<'a>, Malformed>);

/// A client whose hello may not be whole.
pub(crate) struct Greeting {
    id: ConnectionId,
    keys: Keys,
    messages: Messages,
}

/// The state of a client's hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// More is to come.
    Part,
    /// All of it.
    Whole,
    /// Nothing that could be a hello will.
    Nothing,
}

/// The id by which a client names the connection in its first packets, if it is such a one.
pub(crate) fn first_id(datagram: &[u8]) -> Option<ConnectionId> {
    let packet = quic::initial(datagram)?;
    Some(ConnectionId::new(packet.destination))
}

impl Greeting {
    /// Of the client of this datagram's; none where it is no Initial packet of the version that is
    /// spoken.
    pub fn new(datagram: &[u8]) -> Option<Greeting> {
        let packet = quic::initial(datagram)?;
        let keys = tls::quic::initial_keys(packet.version, packet.destination).ok()?;
        let id = ConnectionId::new(packet.destination);
        Some(Greeting { id, keys, messages: Messages::default() })
    }

    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Looks at the packets of a datagram, which is somebody else's to keep.
    pub fn look(&mut self, mut datagram: &[u8]) -> Known {
        while let Some(packet) = quic::initial(datagram) {
            let (this, rest) = datagram.split_at(packet.end);
            if packet.destination == &self.id[..]
                && let Some(payload) = self.open(this, &packet)
                && self.messages.take(&payload).is_err()
            {
                return Known::Nothing;
            }
            datagram = rest;
        }
        match parse_message(self.messages.bytes()) {
            Verdict::Incomplete { .. } => Known::Part,
            Verdict::Hello(_) | Verdict::Malformed(_) => Known::Whole,
            Verdict::NotTls => Known::Nothing,
        }
    }

    /// Lets `see` look at the hello.
    pub fn with_hello<R>(&self, see: impl FnOnce(Hello<'_>) -> R) -> R {
        see(Hello(match parse_message(self.messages.bytes()) {
            Verdict::Hello(hello) => Ok(hello),
            Verdict::Malformed(malformed) => Err(malformed),
            Verdict::Incomplete { .. } | Verdict::NotTls => Err(Malformed::TooLong),
        }))
    }

    /// The payload of a packet; none where it is not the client's.
    fn open(&self, packet: &[u8], at: &Initial<'_>) -> Option<BytesMut> {
        let mut bytes = BytesMut::from(packet);
        self.keys.header.remote.decrypt(at.number_at, &mut bytes);
        let len = usize::from(bytes.first()? & 3) + 1;
        let mut payload = bytes.split_off(at.number_at + len);
        // The first packets of a client have small numbers, all of whose bytes are there.
        let number = bytes.get(at.number_at..)?.iter().fold(0, |n, &b| n << 8 | u64::from(b));
        self.keys.packet.remote.decrypt(number, &bytes, &mut payload).ok()?;
        Some(payload)
    }
}
