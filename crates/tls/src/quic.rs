//! The handshake within QUIC (RFC 9001): what quinn-proto asks of TLS, by rustls and with the
//! certificates, verification and sessions of a server's configuration.

use std::any::Any;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::hmac;
use bytes::BytesMut;
use proto::quic::{PathFrame, path_frames};
use quinn_proto::crypto::{
    self, CryptoError, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey, HmacKey, KeyPair,
    Keys, PacketKey, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{Connection, KeyChange, Secrets, ServerConnection, Suite, Version};
use rustls::sign::CertifiedKey;
use rustls::{HandshakeKind, ProtocolVersion};

use crate::error::Error;
use crate::record::alert;
use crate::{Info, ServerConfig, signatures};

/// The only version that is spoken, RFC 9000's.
pub const VERSION: u32 = 1;

/// The key and nonce of tags of Retry packets (RFC 9001 section 5.8).
const RETRY_KEY: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
const RETRY_NONCE: [u8; 12] =
    [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];

/// The suite of Initial packets.
fn initial_suite() -> Option<Suite> {
    TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite())
}

fn keys_of(keys: rustls::quic::Keys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(keys.local.header),
            remote: Box::new(keys.remote.header),
        },
        packet: KeyPair {
            local: Box::new(keys.local.packet),
            remote: Box::new(keys.remote.packet),
        },
    }
}

/// The keys of Initial packets to and from a client that chose this id (RFC 9001 section 5.2).
///
/// # Errors
/// It is not the version that is spoken here.
pub fn initial_keys(version: u32, id: &[u8]) -> Result<Keys, UnsupportedVersion> {
    match initial_suite() {
        Some(suite) if version == VERSION => {
            Ok(keys_of(suite.keys(id, rustls::Side::Server, Version::V1)))
        }
        _ => Err(UnsupportedVersion),
    }
}

/// The tag of a Retry packet (RFC 9001 section 5.8).
fn retry_tag(id: &[u8], packet: &[u8]) -> [u8; 16] {
    let mut text = Vec::with_capacity(1 + id.len() + packet.len());
    text.push(id.len() as u8);
    text.extend_from_slice(id);
    text.extend_from_slice(packet);
    let nonce = Nonce::assume_unique_for_key(RETRY_NONCE);
    let key = UnboundKey::new(&AES_128_GCM, &RETRY_KEY).map(LessSafeKey::new);
    let sealed =
        key.and_then(|key| key.seal_in_place_separate_tag(nonce, Aad::from(&text), &mut []));
    let mut tag = [0; 16];
    // A tag that could not be made is refused by the client.
    if let Ok(made) = sealed {
        tag.copy_from_slice(made.as_ref());
    }
    tag
}

/// The key of tokens that prove a client's address, made of a secret.
pub fn token_key(secret: &[u8]) -> Arc<dyn HandshakeTokenKey> {
    Arc::new(Salt::new(HKDF_SHA256, b"weir quic token").extract(secret))
}

/// The key of tokens of stateless resets, made of a secret.
pub fn reset_key(secret: &[u8]) -> Arc<dyn HmacKey> {
    let of = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let own = hmac::sign(&of, b"weir quic stateless reset");
    Arc::new(hmac::Key::new(hmac::HMAC_SHA256, own.as_ref()))
}

/// A server's configuration for clients over QUIC.
pub struct QuicConfig {
    inner: Arc<rustls::ServerConfig>,
}

impl ServerConfig {
    /// The same for clients over QUIC, which choose one of these protocols; none where TLS 1.3 is
    /// off.
    pub fn quic(&self, alpn: &[&[u8]]) -> Option<Arc<QuicConfig>> {
        if !self.has_13() {
            return None;
        }
        let mut inner = (*self.clone().for_13().inner).clone();
        inner.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        // QUIC counts early data itself, and has no records of it to pass over (RFC 9001 section
        // 4.6.1).
        inner.max_early_data_size = if self.has_early_data { u32::MAX } else { 0 };
        Some(Arc::new(QuicConfig { inner: Arc::new(inner) }))
    }
}

impl crypto::ServerConfig for QuicConfig {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        initial_keys(version, id)
    }

    fn retry_tag(&self, _: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        retry_tag(id, packet)
    }

    fn start_session(
        self: Arc<Self>,
        _: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let mut told = Vec::new();
        params.write(&mut told);
        let begun = ServerConnection::new(self.inner.clone(), Version::V1, told);
        let begun = begun.map(Connection::Server);
        let begun = begun.map_err(|e| (alert::INTERNAL_ERROR, Error::rustls(&e).to_string()));
        Box::new(Session::new(begun))
    }
}

/// A configuration whose handshakes end with an alert: for clients that no server takes.
struct Refusal {
    alert: u8,
    why: String,
}

/// Ends handshakes with this alert.
pub fn refusal(alert: u8, why: String) -> Arc<dyn crypto::ServerConfig> {
    Arc::new(Refusal { alert, why })
}

impl crypto::ServerConfig for Refusal {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        initial_keys(version, id)
    }

    fn retry_tag(&self, _: u32, id: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        retry_tag(id, packet)
    }

    fn start_session(self: Arc<Self>, _: u32, _: &TransportParameters) -> Box<dyn crypto::Session> {
        Box::new(Session::new(Err((self.alert, self.why.clone()))))
    }
}

/// A look at the frames about paths of a connection: quinn-proto does not tell when a client has
/// proved the address that it has moved to. It costs one test a packet where nobody looks.
#[derive(Debug, Default)]
pub struct PathWatch {
    is_on: AtomicBool,
    /// A packet came that only somebody who got one of ours can seal.
    is_proved: AtomicBool,
    seen: Mutex<PathsSeen>,
}

/// The frames that were seen, newest last.
#[derive(Debug, Default)]
struct PathsSeen {
    challenges: Vec<[u8; 8]>,
    responses: Vec<[u8; 8]>,
}

/// The frames of each kind that are kept.
const PATHS_KEPT: usize = 8;

impl PathWatch {
    /// Begins to look, or ends to.
    pub fn turn(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = PathsSeen::default();
    }

    /// Whether somebody looks.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Whether a packet of the handshake came: the client has the address that it sends from (RFC
    /// 9000 section 8.1).
    pub fn is_proved(&self) -> bool {
        self.is_proved.load(Ordering::Relaxed)
    }

    /// Takes the challenges that were sent since the last call.
    pub fn challenges(&self) -> Vec<[u8; 8]> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut seen.challenges)
    }

    /// Takes the responses that came since the last call.
    pub fn responses(&self) -> Vec<[u8; 8]> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut seen.responses)
    }

    /// Looks at a packet of ours: what counts there are challenges, in a client's the responses.
    #[cold]
    fn look(&self, payload: &[u8], is_ours: bool) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        path_frames(payload, |frame| {
            let (kept, data) = match frame {
                PathFrame::Challenge(data) if is_ours => (&mut seen.challenges, data),
                PathFrame::Response(data) if !is_ours => (&mut seen.responses, data),
                _ => return,
            };
            if kept.len() == PATHS_KEPT {
                kept.remove(0);
            }
            kept.push(data);
        });
    }
}

/// Keys of packets whose payloads are looked at.
struct Watched {
    /// Ours seal, the client's open.
    key: Box<dyn rustls::quic::PacketKey>,
    watch: Arc<PathWatch>,
}

impl PacketKey for Watched {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        if self.watch.is_on() {
            let payload = header_len..buf.len().saturating_sub(self.key.tag_len());
            self.watch.look(buf.get(payload).unwrap_or_default(), true);
        }
        self.key.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        PacketKey::decrypt(&self.key, packet, header, payload)?;
        if self.watch.is_on() {
            self.watch.look(payload, false);
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

/// The key that opens a client's packets of the handshake.
struct Proving {
    key: Box<dyn rustls::quic::PacketKey>,
    watch: Arc<PathWatch>,
}

impl PacketKey for Proving {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.key.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        PacketKey::decrypt(&self.key, packet, header, payload)?;
        self.watch.is_proved.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

/// The server's end of a handshake.
struct Session {
    /// Looks at frames about paths.
    watch: Arc<PathWatch>,
    /// The client's early data was taken.
    has_early_data: bool,
    /// The library's, or the alert that ends it, and the reason.
    inner: Result<Connection, (u8, String)>,
    /// The secrets of the next keys.
    next: Option<Secrets>,
    /// The facts of the session were announced.
    is_told: bool,
    signed_with: u16,
    peer_signed_with: u16,
    own: Option<Arc<CertifiedKey>>,
    session_id: Vec<u8>,
}

/// An alert as an error of the connection (RFC 9001 section 4.8).
fn alerted(alert: u8, reason: String) -> TransportError {
    TransportError { code: TransportErrorCode::crypto(alert), frame: None, reason }
}

/// A key as quinn-proto takes it.
fn header(key: Box<dyn rustls::quic::HeaderProtectionKey>) -> Box<dyn HeaderKey> {
    Box::new(key)
}

impl Session {
    /// Keys whose packets are looked at.
    fn watched(
        &self,
        local: Box<dyn rustls::quic::PacketKey>,
        remote: Box<dyn rustls::quic::PacketKey>,
    ) -> KeyPair<Box<dyn PacketKey>> {
        let watched =
            |key| Box::new(Watched { key, watch: self.watch.clone() }) as Box<dyn PacketKey>;
        KeyPair { local: watched(local), remote: watched(remote) }
    }

    fn new(inner: Result<Connection, (u8, String)>) -> Session {
        Session {
            watch: Arc::default(),
            has_early_data: false,
            inner,
            next: None,
            is_told: false,
            signed_with: 0,
            peer_signed_with: 0,
            own: None,
            session_id: Vec::new(),
        }
    }

    fn info(&self) -> Option<Info> {
        let inner = self.inner.as_ref().ok()?;
        let is_early = inner.is_handshaking();
        let suite = inner.negotiated_cipher_suite().filter(|_| !is_early || self.has_early_data)?;
        Some(Info {
            version: inner.protocol_version().unwrap_or(ProtocolVersion::TLSv1_3).into(),
            suite: suite.suite().into(),
            group: inner.negotiated_key_exchange_group().map_or(0, |group| group.name().into()),
            signed_with: self.signed_with,
            peer_signed_with: self.peer_signed_with,
            own: self.own.clone(),
            session_id: self.session_id.clone(),
            is_resumed: inner.handshake_kind() == Some(HandshakeKind::Resumed),
            has_early_data: is_early,
            alpn: inner.alpn_protocol().map(Box::from),
            peer_certificates: inner
                .peer_certificates()
                .map(|chain| chain.iter().map(|c| Box::from(&c[..])).collect()),
        })
    }
}

impl crypto::Session for Session {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        let side = match side {
            Side::Client => rustls::Side::Client,
            Side::Server => rustls::Side::Server,
        };
        let suite = initial_suite().expect("the library has the suite of Initial packets");
        keys_of(suite.keys(id, side, Version::V1))
    }

    /// The session's [`Info`].
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.info().map(|info| Box::new(info) as Box<dyn Any>)
    }

    /// The session's [`PathWatch`].
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.watch.clone()))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.inner.as_ref().ok()?.zero_rtt_keys()?;
        Some((Box::new(keys.header), Box::new(keys.packet)))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.inner.as_ref().is_ok_and(|inner| inner.is_handshaking())
    }

    fn read_handshake(&mut self, messages: &[u8]) -> Result<bool, TransportError> {
        let inner = match &mut self.inner {
            Ok(inner) => inner,
            Err((alert, why)) => return Err(alerted(*alert, why.clone())),
        };
        signatures::forget();
        let read = inner.read_hs(messages);
        let (own, peer) = signatures::made();
        self.signed_with = if own == 0 { self.signed_with } else { own };
        self.peer_signed_with = if peer == 0 { self.peer_signed_with } else { peer };
        self.own = signatures::own().or(self.own.take());
        if let Err(e) = read {
            let sent = inner.alert().map(u8::from);
            let alert = Error::better_alert(&e).or(sent).unwrap_or(alert::INTERNAL_ERROR);
            return Err(alerted(alert, Error::rustls(&e).to_string()));
        }
        self.has_early_data |= inner.zero_rtt_keys().is_some();
        let is_known = self.has_early_data || !inner.is_handshaking();
        Ok(is_known && !std::mem::replace(&mut self.is_told, true))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let told = self.inner.as_ref().ok().and_then(|inner| inner.quic_transport_parameters());
        let read = |told| TransportParameters::read(Side::Server, &mut io::Cursor::new(told));
        Ok(told.map(read).transpose()?)
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let inner = self.inner.as_mut().ok()?;
        let begin = out.len();
        let change = inner.write_hs(out);
        if self.session_id.is_empty() {
            self.session_id = random_of(out.get(begin..).unwrap_or_default());
        }
        Some(match change? {
            KeyChange::Handshake { keys } => {
                let (header, remote) = (
                    KeyPair {
                        local: header(keys.local.header),
                        remote: header(keys.remote.header),
                    },
                    Proving { key: keys.remote.packet, watch: self.watch.clone() },
                );
                let local = Box::new(keys.local.packet) as Box<dyn PacketKey>;
                Keys { header, packet: KeyPair { local, remote: Box::new(remote) } }
            }
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                let header = KeyPair {
                    local: header(keys.local.header),
                    remote: header(keys.remote.header),
                };
                Keys { header, packet: self.watched(keys.local.packet, keys.remote.packet) }
            }
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        Some(self.watched(keys.local, keys.remote))
    }

    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        // A server gets none.
        false
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let inner = self.inner.as_ref().map_err(|_| ExportKeyingMaterialError)?;
        let exported = inner.export_keying_material(output, label, Some(context));
        exported.map(drop).map_err(|_| ExportKeyingMaterialError)
    }
}

/// The random bytes of a ServerHello in front; none if it is another message.
fn random_of(messages: &[u8]) -> Vec<u8> {
    const SERVER_HELLO: u8 = 2;
    match messages {
        [SERVER_HELLO, _, _, _, _, _, hello @ ..] => hello.get(..32).unwrap_or_default().to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn_proto::crypto::ServerConfig as _;

    /// RFC 9001 appendix A.4: the tag of its Retry packet.
    #[test]
    fn the_tag_of_a_retry_packet() {
        let config = crate::ServerConfig::new(crate::ServerOptions::default()).unwrap();
        let config = config.quic(&[b"h3"]).unwrap();
        let id = ConnectionId::new(&[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]);
        let packet = [
            0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x08, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62,
            0xb5, 0x74, 0x6f, 0x6b, 0x65, 0x6e,
        ];
        let tag = [
            0x04, 0xa2, 0x65, 0xba, 0x2e, 0xff, 0x4d, 0x82, 0x90, 0x58, 0xfb, 0x3f, 0x0f, 0x24,
            0x96, 0xba,
        ];
        assert_eq!(config.retry_tag(VERSION, &id, &packet), tag);
    }

    #[test]
    fn other_versions_have_no_keys() {
        assert!(initial_keys(VERSION, b"12345678").is_ok());
        assert!(initial_keys(0xff00_001d, b"12345678").is_err());
    }

    #[test]
    fn without_tls_13_there_is_no_quic() {
        let options = crate::ServerOptions { versions: vec![0x0303], ..Default::default() };
        assert!(crate::ServerConfig::new(options).unwrap().quic(&[b"h3"]).is_none());
    }
}
