//! The handshake within QUIC (RFC 9001): what quinn-proto asks of TLS, by rustls and with the
//! certificates, verification and sessions of a server's configuration.

mod paths;
mod session;

use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::hmac;
use quinn_proto::ConnectionId;
use quinn_proto::crypto::{
    self, HandshakeTokenKey, HeaderKey, HmacKey, KeyPair, Keys, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{Connection, HeaderProtectionKey, ServerConnection, Suite, Version};

pub use paths::PathWatch;

use crate::ServerConfig;
use crate::error::Error;
use crate::record::alert;
use session::Session;

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

/// The keys that hide the heads of packets, ours and the client's, as quinn-proto takes them.
fn header_keys(
    local: Box<dyn HeaderProtectionKey>,
    remote: Box<dyn HeaderProtectionKey>,
) -> KeyPair<Box<dyn HeaderKey>> {
    KeyPair { local: Box::new(local), remote: Box::new(remote) }
}

fn keys_of(keys: rustls::quic::Keys) -> Keys {
    Keys {
        header: header_keys(keys.local.header, keys.remote.header),
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
    /// The library's; or the alert that ends each handshake, and the reason.
    inner: Result<Arc<rustls::ServerConfig>, (u8, String)>,
}

/// Ends handshakes with this alert: for clients that no server takes.
pub fn refusal(alert: u8, why: String) -> Arc<dyn crypto::ServerConfig> {
    Arc::new(QuicConfig { inner: Err((alert, why)) })
}

impl ServerConfig {
    /// The same for clients over QUIC, which choose one of these protocols; none where TLS 1.3 is
    /// off.
    pub fn quic(&self, alpn: &[&[u8]]) -> Option<Arc<QuicConfig>> {
        if !self.has_13() {
            return None;
        }
        let mut inner = (*self.clone().for_13(false).inner).clone();
        inner.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        // QUIC counts early data itself, and has no records of it to pass over (RFC 9001 section
        // 4.6.1).
        inner.max_early_data_size = if self.has_early_data { u32::MAX } else { 0 };
        Some(Arc::new(QuicConfig { inner: Ok(Arc::new(inner)) }))
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
        let begin = |inner: Arc<rustls::ServerConfig>| {
            let mut told = Vec::new();
            params.write(&mut told);
            let begun = ServerConnection::new(inner, Version::V1, told);
            begun.map_err(|e| (alert::INTERNAL_ERROR, Error::rustls(&e).to_string()))
        };
        let begun = self.inner.clone().and_then(begin);
        Box::new(Session::new(begun.map(Connection::Server)))
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
