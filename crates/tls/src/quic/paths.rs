//! The facts about a client's address in the packets of its connection: quinn-proto does not tell.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use proto::quic::{PathFrame, path_frames};
use quinn_proto::crypto::{CryptoError, PacketKey};

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

/// The packets that a key is for, as far as they say something of paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Space {
    /// Those of the handshake: a client that seals one has got ours.
    Handshake,
    /// Those behind it, in which the frames about paths are.
    Data,
}

/// A key of packets that a [`PathWatch`] looks at.
pub(super) struct Watched {
    /// Ours seal, the client's open.
    pub key: Box<dyn rustls::quic::PacketKey>,
    pub space: Space,
    pub watch: Arc<PathWatch>,
}

impl Watched {
    fn looks_at_frames(&self) -> bool {
        self.space == Space::Data && self.watch.is_on()
    }
}

impl PacketKey for Watched {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        if self.looks_at_frames() {
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
        if self.space == Space::Handshake {
            self.watch.is_proved.store(true, Ordering::Relaxed);
        } else if self.looks_at_frames() {
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
