//! The facts of an established session.

use std::sync::Arc;

use rustls::sign::CertifiedKey;

/// The terms that both ends agreed on, and the certificates that the peer showed.
#[derive(Clone, Debug, Default)]
pub struct Info {
    /// The version's number: 0x0303 for TLS 1.2.
    pub version: u16,
    /// The cipher suite's number.
    pub suite: u16,
    /// The number of the group of the key exchange; 0 where none took place.
    pub group: u16,
    /// The signature scheme of our own signature; 0 where there is none.
    pub signed_with: u16,
    /// The signature scheme of the peer's; 0 where there is none.
    pub peer_signed_with: u16,
    /// Names the session: the id of TLS 1.2, or the server's random bytes.
    pub session_id: Vec<u8>,
    /// An earlier session was resumed.
    pub is_resumed: bool,
    /// The client sent data before the handshake was at its end.
    pub has_early_data: bool,
    /// The protocol chosen by ALPN.
    pub alpn: Option<Box<[u8]>>,
    /// The certificate that we chose for the peer.
    pub own: Option<Own>,
    /// The certificates that the peer sent, its own first, in DER.
    pub peer_certificates: Option<Box<[Box<[u8]>]>>,
}

/// Our own certificate.
#[derive(Clone, Debug)]
pub enum Own {
    /// With its key and its chain.
    Key(Arc<CertifiedKey>),
    /// In DER: another process has shown it.
    Der(Arc<[u8]>),
}

impl Info {
    /// Whether it is TLS 1.3.
    pub fn is_13(&self) -> bool {
        self.version == 0x0304
    }

    /// The certificate that a server chose for the client, in DER.
    pub fn own_certificate(&self) -> Option<&[u8]> {
        match self.own.as_ref()? {
            Own::Key(key) => key.cert.first().map(|certificate| &certificate[..]),
            Own::Der(der) => Some(der),
        }
    }

    /// The version as OpenSSL writes it: `TLSv1.3`.
    pub fn version_name(&self) -> &'static str {
        if self.is_13() { "TLSv1.3" } else { "TLSv1.2" }
    }
}
