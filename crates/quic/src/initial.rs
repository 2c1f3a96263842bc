//! A client's hello, read before its connection is made: the server is chosen by it.

use std::net::SocketAddr;

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

/// Bytes of a token of ours, without addresses and ids: its kind, a time, a tag and a random part.
const TOKEN_LEN: usize = 1 + 8 + 16 + 16;

/// Whether a client's token has the length of one that a Retry packet of ours has: an address with
/// its port, and the id that the client began with. One for a later connection has an address
/// alone, and is shorter.
pub(crate) fn has_retry_token(datagram: &[u8], client: SocketAddr) -> bool {
    let Some(packet) = quic::initial(datagram) else { return false };
    let address = if client.is_ipv4() { 1 + 4 + 2 } else { 1 + 16 + 2 };
    let id = packet.token.len().checked_sub(TOKEN_LEN + address + 1);
    id.is_some_and(|id| (ID_MIN..=ID_MAX).contains(&id))
}

/// The lengths of ids that clients choose (RFC 9000 section 7.2).
const ID_MIN: usize = 8;
const ID_MAX: usize = 20;

/// INVALID_TOKEN of RFC 9000 section 20.1.
const INVALID_TOKEN: u8 = 0x0b;

/// The end of a connection whose client has a token of a Retry packet that cannot be used: it takes
/// no other (RFC 9000 section 8.1.2).
pub(crate) fn invalid_token(datagram: &[u8]) -> Option<Vec<u8>> {
    let packet = quic::initial(datagram)?;
    let keys = tls::quic::initial_keys(packet.version, packet.destination).ok()?;
    // A packet number of four bytes, which is 0; CONNECTION_CLOSE without a reason.
    let (number, frame) = ([0; 4], [0x1c, INVALID_TOKEN, 0, 0]);
    let mut out = vec![0xc3];
    out.extend_from_slice(&packet.version.to_be_bytes());
    for id in [packet.source, packet.destination] {
        out.push(id.len() as u8);
        out.extend_from_slice(id);
    }
    let tag = keys.packet.local.tag_len();
    // It has no token.
    out.extend_from_slice(&[0, (number.len() + frame.len() + tag) as u8]);
    let number_at = out.len();
    out.extend_from_slice(&number);
    let head_len = out.len();
    out.extend_from_slice(&frame);
    out.resize(out.len() + tag, 0);
    keys.packet.local.encrypt(0, &mut out, head_len);
    keys.header.local.encrypt(number_at, &mut out);
    Some(out)
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
