//! Packets of a client with frames that no machine would write: before a packet is sealed, its
//! payload is replaced.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use quinn_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    Session,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};

/// Bytes that a packet to be replaced holds: see [`Script::filler`].
const MARK: &[u8] = b"-- the frames of a script --";

/// The frames that take the place of a packet's payload of so many bytes; the rest is padding.
type Next = Box<dyn FnMut(usize) -> Vec<u8> + Send>;

/// Writes the payloads of packets that hold some of its filler.
#[derive(Clone)]
pub struct Script(Arc<Mutex<Next>>);

impl Script {
    /// Each payload is what `next` gives for its length, cut and padded to it.
    pub fn new(next: impl FnMut(usize) -> Vec<u8> + Send + 'static) -> Script {
        Script(Arc::new(Mutex::new(Box::new(next))))
    }

    /// Data of a stream that is never sent: the packets with it are the script's.
    pub fn filler(len: usize) -> Vec<u8> {
        MARK.iter().copied().cycle().take(len.max(2 * MARK.len())).collect()
    }

    fn write(&self, payload: &mut [u8]) {
        if !payload.windows(MARK.len()).any(|bytes| bytes == MARK) {
            return;
        }
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let frames = next(payload.len());
        payload.fill(0);
        let len = frames.len().min(payload.len());
        payload[..len].copy_from_slice(&frames[..len]);
    }

    /// Sessions of this configuration, whose packets it writes.
    pub(super) fn over(&self, config: Arc<dyn ClientConfig>) -> Arc<dyn ClientConfig> {
        Arc::new(Over { config, script: self.clone() })
    }

    fn keys(&self, keys: KeyPair<Box<dyn PacketKey>>) -> KeyPair<Box<dyn PacketKey>> {
        let KeyPair { local, remote } = keys;
        KeyPair { local: Box::new(Tampering { key: local, script: self.clone() }), remote }
    }
}

struct Over {
    config: Arc<dyn ClientConfig>,
    script: Script,
}

impl ClientConfig for Over {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let session = self.config.clone().start_session(version, name, params)?;
        Ok(Box::new(Tampered { session, script: self.script.clone() }))
    }
}

struct Tampered {
    session: Box<dyn Session>,
    script: Script,
}

impl Session for Tampered {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.session.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.session.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.session.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let Keys { header, packet } = self.session.write_handshake(buf)?;
        Some(Keys { header, packet: self.script.keys(packet) })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.session.next_1rtt_keys().map(|keys| self.script.keys(keys))
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session.export_keying_material(output, label, context)
    }
}

struct Tampering {
    key: Box<dyn PacketKey>,
    script: Script,
}

impl PacketKey for Tampering {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let end = buf.len().saturating_sub(self.key.tag_len());
        if let Some(payload) = buf.get_mut(header_len..end) {
            self.script.write(payload);
        }
        self.key.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)
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
