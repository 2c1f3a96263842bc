//! Reads the ClientHello from Initial packets before the connection is created, because the virtual
//! server, and so the TLS configuration, is chosen by its server name.

use std::net::SocketAddr;

use bytes::BytesMut;
use proto::quic::{self, Initial, Messages};
use proto::tls_hello::{ClientHello, Malformed, Verdict, parse_message};
use quinn_proto::ConnectionId;
use quinn_proto::crypto::Keys;

/// A complete ClientHello, or the error in it.
pub struct Hello<'a>(pub Result<ClientHello<'a>, Malformed>);

/// A client whose ClientHello may still be incomplete.
pub(crate) struct Greeting {
    id: ConnectionId,
    keys: Keys,
    messages: Messages,
}

/// How much of a ClientHello has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// Incomplete: more packets are needed.
    Part,
    /// Complete, or recognizably malformed.
    Whole,
    /// Not a ClientHello.
    Nothing,
}

/// The destination connection id of an Initial packet, which identifies the connection attempt;
/// `None` if the datagram does not start with an Initial packet.
pub(crate) fn first_id(datagram: &[u8]) -> Option<ConnectionId> {
    let packet = quic::initial(datagram)?;
    Some(ConnectionId::new(packet.destination))
}

/// The length of our tokens without addresses and ids: type, time, tag and nonce.
const TOKEN_LEN: usize = 1 + 8 + 16 + 16;

/// Whether a client's token has the length of a token from one of our Retry packets, which contains
/// the client's address with port and its original connection id. A NEW_TOKEN token contains the
/// address alone and is shorter.
pub(crate) fn has_retry_token(datagram: &[u8], client: SocketAddr) -> bool {
    let Some(packet) = quic::initial(datagram) else { return false };
    let address = if client.is_ipv4() { 1 + 4 + 2 } else { 1 + 16 + 2 };
    let id = packet.token.len().checked_sub(TOKEN_LEN + address + 1);
    id.is_some_and(|id| (ID_MIN..=ID_MAX).contains(&id))
}

/// The lengths of the original connection ids that clients choose (RFC 9000 section 7.2).
const ID_MIN: usize = 8;
const ID_MAX: usize = 20;

/// INVALID_TOKEN of RFC 9000 section 20.1.
const INVALID_TOKEN: u8 = 0x0b;

/// An Initial packet with CONNECTION_CLOSE (INVALID_TOKEN), for a client whose Retry token cannot
/// be used: it accepts no second Retry (RFC 9000 section 8.1.2), so it would wait for a timeout
/// otherwise. `None` if `datagram` is not an Initial packet of the supported version.
pub(crate) fn invalid_token(datagram: &[u8]) -> Option<Vec<u8>> {
    let packet = quic::initial(datagram)?;
    let keys = tls::quic::initial_keys(packet.version, packet.destination).ok()?;
    // A four-byte packet number 0, and CONNECTION_CLOSE without a reason phrase.
    let (number, frame) = ([0; 4], [0x1c, INVALID_TOKEN, 0, 0]);
    let mut out = vec![0xc3];
    out.extend_from_slice(&packet.version.to_be_bytes());
    for id in [packet.source, packet.destination] {
        out.push(id.len() as u8);
        out.extend_from_slice(id);
    }
    let tag = keys.packet.local.tag_len();
    // An empty token, then the length of the rest of the packet.
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
    /// Starts with a client's first datagram, whose connection id yields the Initial keys. `None`
    /// if it is not an Initial packet of the supported version.
    pub fn new(datagram: &[u8]) -> Option<Greeting> {
        let packet = quic::initial(datagram)?;
        let keys = tls::quic::initial_keys(packet.version, packet.destination).ok()?;
        let id = ConnectionId::new(packet.destination);
        Some(Greeting { id, keys, messages: Messages::default() })
    }

    /// The client's original destination connection id.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Adds the CRYPTO data of a datagram's Initial packets and returns how much of the ClientHello
    /// is known. Works on a copy, because quinn-proto decrypts the same datagram again.
    pub fn look(&mut self, mut datagram: &[u8]) -> Known {
        while let Some(packet) = quic::initial(datagram) {
            let (this, rest) = datagram.split_at(packet.end);
            // A datagram may also contain packets of other connection attempts.
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

    /// Calls `see` with the ClientHello. Call it only after [`Greeting::look`] returned
    /// [`Known::Whole`].
    pub fn with_hello<R>(&self, see: impl FnOnce(Hello<'_>) -> R) -> R {
        see(Hello(match parse_message(self.messages.bytes()) {
            Verdict::Hello(hello) => Ok(hello),
            Verdict::Malformed(malformed) => Err(malformed),
            Verdict::Incomplete { .. } | Verdict::NotTls => Err(Malformed::TooLong),
        }))
    }

    /// The decrypted payload of an Initial packet; `None` if authentication fails, so that spoofed
    /// packets are ignored.
    fn open(&self, packet: &[u8], at: &Initial<'_>) -> Option<BytesMut> {
        let mut bytes = BytesMut::from(packet);
        self.keys.header.remote.decrypt(at.number_at, &mut bytes);
        let len = usize::from(bytes.first()? & 3) + 1;
        let mut payload = bytes.split_off(at.number_at + len);
        // The truncated packet number is used as it is: a client's first packet numbers are small,
        // so all of their bytes are present.
        let number = bytes.get(at.number_at..)?.iter().fold(0, |n, &b| n << 8 | u64::from(b));
        self.keys.packet.remote.decrypt(number, &bytes, &mut payload).ok()?;
        Some(payload)
    }
}
