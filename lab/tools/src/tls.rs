//! The TLS of bare servers: rustls without buffers of its own.

use std::sync::Arc;

use ::aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus, WriteTraffic};
use rustls::{ConnectionTrafficSecrets, ProtocolVersion, ServerConfig, SupportedProtocolVersion};

use crate::Outcome;

const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

/// The most that one turn of a connection writes: a server's first flight, or some answers.
pub const ROOM: usize = 64 * 1024;

/// A server's configuration, from files in PEM.
pub fn config(certificate: &str, key: &str) -> Outcome<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(VERSIONS)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    config.enable_secret_extraction = true;
    Ok(Arc::new(config))
}

/// The state in which a connection encrypts.
pub type Traffic<'a> = WriteTraffic<'a, ServerConnectionData>;

/// A connection's TLS.
pub struct Tls {
    tls: UnbufferedServerConnection,
    /// Bytes that came and are not worked on: a part of a record.
    pub received: Vec<u8>,
}

impl Tls {
    /// That of a connection that was just accepted.
    pub fn new(config: &Arc<ServerConfig>) -> Outcome<Self> {
        let tls = UnbufferedServerConnection::new(config.clone())?;
        Ok(Self { tls, received: Vec::with_capacity(4096) })
    }

    /// Works on what was received: `take` gets each record's content, and `give` encrypts what goes
    /// out behind them once the handshake is done. Gives the bytes written to `out`, and whether
    /// the connection goes on.
    pub fn work(
        &mut self,
        out: &mut [u8],
        mut take: impl FnMut(&[u8]),
        give: impl FnOnce(&mut Traffic<'_>, &mut [u8]) -> Option<usize>,
    ) -> (usize, bool) {
        let (mut read, mut written, mut open) = (0, 0, true);
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.tls.process_tls_records(&mut self.received[read..]);
            let mut more = true;
            match state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    match data.encode(&mut out[written..]) {
                        Ok(len) => written += len,
                        Err(_) => (more, open) = (false, false),
                    }
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let Ok(record) = record else { return (written, false) };
                        discard += record.discard;
                        take(record.payload);
                    }
                }
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let given = give(&mut traffic, &mut out[written..]);
                    written += given.unwrap_or(0);
                    self.received.drain(..read + discard);
                    return (written, given.is_some());
                }
                Ok(ConnectionState::BlockedHandshake) => more = false,
                _ => (more, open) = (false, false),
            }
            read += discard;
            if !more {
                self.received.drain(..read);
                return (written, open);
            }
        }
    }
}

impl Tls {
    /// The client's records and ours behind a handshake of TLS 1.3, and what has come of them.
    pub fn into_records(self) -> Option<((Records, Records), Vec<u8>)> {
        let is_13 = self.tls.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let (secrets, _) = self.tls.dangerous_into_kernel_connection().ok().filter(|_| is_13)?;
        Some(((Records::new(secrets.rx)?, Records::new(secrets.tx)?), self.received))
    }
}

/// The head of a record.
pub const HEAD: usize = 5;
/// Its type and tag, behind the content.
pub const TAIL: usize = 17;
/// The type of records with data.
const DATA: u8 = 23;

/// The records of one direction (RFC 8446 section 5.2), with one of the ciphers of AES.
pub struct Records {
    key: LessSafeKey,
    iv: [u8; 12],
    number: u64,
}

impl Records {
    fn new((number, secrets): (u64, ConnectionTrafficSecrets)) -> Option<Self> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            _ => return None,
        };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref()).ok()?);
        Some(Self { key, iv: iv.as_ref().try_into().ok()?, number })
    }

    /// The next record's nonce.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, of_number) in nonce[4..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= of_number;
        }
        self.number += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Opens the whole records in `bytes`, and moves their content to its begin. Gives how many
    /// bytes they had, and their content; nothing when one is no data.
    pub fn open_all(&mut self, bytes: &mut [u8]) -> Option<(usize, usize)> {
        let (mut read, mut content) = (0, 0);
        while let Some(&head) = bytes[read..].first_chunk::<HEAD>() {
            let (from, len) = (read + HEAD, usize::from(u16::from_be_bytes([head[3], head[4]])));
            let Some(record) = bytes.get_mut(from..from + len) else { break };
            let nonce = self.nonce();
            let opened = self.key.open_in_place(nonce, Aad::from(head), record).ok()?;
            let (kind, data) = opened.split_last()?;
            let data = (*kind == DATA).then_some(data.len())?;
            bytes.copy_within(from..from + data, content);
            (read, content) = (from + len, content + data);
        }
        Some((read, content))
    }

    /// Makes a record of the content that stands in `bytes` behind room for its head, and before
    /// room for its tail.
    pub fn seal<'a>(&mut self, bytes: &'a mut [u8], content: usize) -> Option<&'a [u8]> {
        let [high, low] = ((content + TAIL) as u16).to_be_bytes();
        let (head, end) = ([DATA, 3, 3, high, low], HEAD + content);
        bytes[..HEAD].copy_from_slice(&head);
        bytes[end] = DATA;
        let (nonce, aad) = (self.nonce(), Aad::from(head));
        let plain = &mut bytes[HEAD..=end];
        let tag = self.key.seal_in_place_separate_tag(nonce, aad, plain).ok()?;
        bytes[end + 1..end + TAIL].copy_from_slice(tag.as_ref());
        Some(&bytes[..end + TAIL])
    }
}
