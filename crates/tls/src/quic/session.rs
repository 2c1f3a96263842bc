//! The server's end of a handshake, as quinn-proto drives it.

use std::any::Any;
use std::io;
use std::sync::Arc;

use quinn_proto::crypto::{self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::quic::{Connection, KeyChange, Secrets, Version};
use rustls::sign::CertifiedKey;
use rustls::{HandshakeKind, ProtocolVersion};

use super::paths::{PathWatch, Space, Watched};
use super::{header_keys, initial_suite, keys_of};
use crate::error::Error;
use crate::record::alert;
use crate::{Info, Own, signatures};

/// The library's keys for packets of ours, and of the client's.
type PacketKeys = (Box<dyn rustls::quic::PacketKey>, Box<dyn rustls::quic::PacketKey>);

/// The server's end of a handshake.
pub(super) struct Session {
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

impl Session {
    /// Keys whose packets are looked at.
    fn watched(&self, (local, remote): PacketKeys, space: Space) -> KeyPair<Box<dyn PacketKey>> {
        let watched =
            |key| Box::new(Watched { key, space, watch: self.watch.clone() }) as Box<dyn PacketKey>;
        KeyPair { local: watched(local), remote: watched(remote) }
    }

    pub fn new(inner: Result<Connection, (u8, String)>) -> Session {
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
            own: self.own.clone().map(Own::Key),
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
        let (keys, space) = match change? {
            KeyChange::Handshake { keys } => (keys, Space::Handshake),
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                (keys, Space::Data)
            }
        };
        Some(Keys {
            header: header_keys(keys.local.header, keys.remote.header),
            packet: self.watched((keys.local.packet, keys.remote.packet), space),
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        Some(self.watched((keys.local, keys.remote), Space::Data))
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
