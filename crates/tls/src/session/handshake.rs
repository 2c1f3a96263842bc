//! The handshake, driven through rustls's unbuffered interface.

use std::sync::Arc;

use mem::{Buf, Chain, Page};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::sign::CertifiedKey;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{CommonState, HandshakeKind};

use super::origin::Captured;
use super::traffic::{Kernel, Traffic};
use crate::error::Error;
use crate::record::kind;
use crate::signatures;
use crate::{ClientConfig, Info, Own, ServerConfig};

/// A session whose handshake is under way.
pub(super) struct Handshake {
    connection: Connection,
    record_size: usize,
    has_early_data: bool,
    signed_with: u16,
    peer_signed_with: u16,
    own: Option<Arc<CertifiedKey>>,
    session_id: Vec<u8>,
    secrets: Captured,
}

enum Connection {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

impl Handshake {
    pub fn server(config: &ServerConfig) -> Result<Handshake, Error> {
        let connection = UnbufferedServerConnection::new(Arc::clone(&config.inner))
            .map_err(|e| Error::rustls(&e))?;
        Ok(Handshake::new(Connection::Server(connection), config.record_size))
    }

    pub fn client(config: &ClientConfig, name: &[u8]) -> Result<Handshake, Error> {
        let name = std::str::from_utf8(name).ok().and_then(|name| ServerName::try_from(name).ok());
        // Without a name that may be sent (an address, an odd one): the handshake has none either.
        let (name, config) = match name {
            Some(name) => (name.to_owned(), &config.named),
            None => (
                ServerName::IpAddress(std::net::IpAddr::from([0, 0, 0, 0]).into()),
                &config.nameless,
            ),
        };
        let connection = UnbufferedClientConnection::new(Arc::clone(config), name)
            .map_err(|e| Error::rustls(&e))?;
        Ok(Handshake::new(Connection::Client(connection), crate::record::MAX_PLAIN))
    }

    fn new(connection: Connection, record_size: usize) -> Handshake {
        let (has_early_data, session_id) = (false, Vec::new());
        let (signed_with, peer_signed_with) = (0, 0);
        Handshake {
            connection,
            record_size,
            has_early_data,
            signed_with,
            peer_signed_with,
            own: None,
            session_id,
            secrets: Captured::default(),
        }
    }

    /// Goes on with the bytes that are there. Says whether the handshake is at its end.
    pub fn receive(
        &mut self,
        input: &mut Page,
        plain: &mut Page,
        out: &mut Chain,
    ) -> Result<bool, Error> {
        signatures::forget();
        Captured::forget();
        let is_first = self.session_id.is_empty();
        let done = match &mut self.connection {
            Connection::Server(c) => drive(c, input, plain, out, &mut self.has_early_data),
            Connection::Client(c) => drive(c, input, plain, out, &mut self.has_early_data),
        };
        if is_first && let Some(id) = out.front().and_then(Buf::memory).and_then(session_id) {
            self.session_id = id;
        }
        self.secrets.absorb();
        let (own, peer) = signatures::made();
        self.signed_with = if own == 0 { self.signed_with } else { own };
        self.peer_signed_with = if peer == 0 { self.peer_signed_with } else { peer };
        self.own = signatures::own().or(self.own.take());
        done
    }

    /// The established session.
    pub fn finish(self) -> Result<Traffic, Error> {
        let info = self.info()?;
        let (secrets, kernel) = match self.connection {
            Connection::Server(connection) => {
                let (secrets, kernel) =
                    connection.dangerous_into_kernel_connection().map_err(|e| Error::rustls(&e))?;
                (secrets, Kernel::Server(kernel))
            }
            Connection::Client(connection) => {
                let (secrets, kernel) =
                    connection.dangerous_into_kernel_connection().map_err(|e| Error::rustls(&e))?;
                (secrets, Kernel::Client(kernel))
            }
        };
        Traffic::new(info, secrets, self.secrets, kernel, self.record_size)
    }

    fn common(&self) -> &CommonState {
        match &self.connection {
            Connection::Server(connection) => connection,
            Connection::Client(connection) => connection,
        }
    }

    fn info(&self) -> Result<Info, Error> {
        let common = self.common();
        let (Some(version), Some(suite)) =
            (common.protocol_version(), common.negotiated_cipher_suite())
        else {
            return Err(Error::internal("the handshake is not finished"));
        };
        Ok(Info {
            version: version.into(),
            suite: suite.suite().into(),
            group: common.negotiated_key_exchange_group().map_or(0, |group| group.name().into()),
            signed_with: self.signed_with,
            peer_signed_with: self.peer_signed_with,
            own: self.own.clone().map(Own::Key),
            session_id: self.session_id.clone(),
            is_resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
            has_early_data: self.has_early_data,
            alpn: common.alpn_protocol().map(Box::from),
            peer_certificates: common
                .peer_certificates()
                .map(|chain| chain.iter().map(|c| Box::from(&c[..])).collect()),
        })
    }
}

/// The two ends in rustls, whose types differ.
trait Process {
    type Data;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// Takes early data; the bytes of the input that are used up.
    fn early(state: ConnectionState<'_, '_, Self::Data>, plain: &mut Page) -> Result<usize, Error>;

    fn is_handshaking(&self) -> bool;

    fn has_output(&self) -> bool;
}

impl Process for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }

    fn early(state: ConnectionState<'_, '_, Self::Data>, plain: &mut Page) -> Result<usize, Error> {
        let mut used = 0;
        if let ConnectionState::ReadEarlyData(mut early) = state {
            while let Some(record) = early.next_record() {
                let record = record.map_err(|e| Error::rustls(&e))?;
                plain.extend_from_slice(record.payload);
                used += record.discard;
            }
        }
        Ok(used)
    }

    fn is_handshaking(&self) -> bool {
        CommonState::is_handshaking(self)
    }

    fn has_output(&self) -> bool {
        CommonState::wants_write(self)
    }
}

impl Process for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }

    fn early(_: ConnectionState<'_, '_, Self::Data>, _: &mut Page) -> Result<usize, Error> {
        Ok(0)
    }

    fn is_handshaking(&self) -> bool {
        CommonState::is_handshaking(self)
    }

    fn has_output(&self) -> bool {
        CommonState::wants_write(self)
    }
}

/// Runs the machine until it needs more bytes (`false`) or the handshake is at its end (`true`).
fn drive<C: Process>(
    connection: &mut C,
    input: &mut Page,
    plain: &mut Page,
    out: &mut Chain,
    has_early_data: &mut bool,
) -> Result<bool, Error> {
    loop {
        let UnbufferedStatus { mut discard, state } = connection.process(input.filled_mut());
        let mut done = None;
        match state {
            Err(error) => {
                input.consume(discard);
                let before = out.len();
                flush(connection, input, out);
                if let Some(alert) = Error::better_alert(&error) {
                    change_alert(out, alert);
                }
                return Err(match out.len() == before {
                    true => Error::unsent(&error),
                    false => Error::rustls(&error),
                });
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                encode(|into| data.encode(into), out)?;
            }
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(|e| Error::rustls(&e))?;
                    plain.extend_from_slice(record.payload);
                    discard += record.discard;
                }
            }
            Ok(state @ ConnectionState::ReadEarlyData(_)) => {
                *has_early_data = true;
                discard += C::early(state, plain)?;
            }
            Ok(ConnectionState::BlockedHandshake) => done = Some(false),
            Ok(ConnectionState::WriteTraffic(_)) => done = Some(true),
            // The peer ends what has hardly begun.
            Ok(_) => return Err(Error::told("the peer closed the session in the handshake")),
        }
        input.consume(discard);
        if let Some(done) = done {
            return Ok(done && !connection.is_handshaking());
        }
    }
}

/// Takes what rustls has for the peer after an error, the alert last. It may still know of messages
/// in the input, which therefore has to be there; without output it would read on.
fn flush<C: Process>(connection: &mut C, input: &mut Page, out: &mut Chain) {
    while connection.has_output() {
        let UnbufferedStatus { discard, state } = connection.process(input.filled_mut());
        let encoded = match state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => encode(|into| data.encode(into), out),
            _ => return,
        };
        input.consume(discard);
        if encoded.is_err() {
            return;
        }
    }
}

/// Changes the alert at the end, if it is in the clear: in TLS 1.3 it may be sealed already.
fn change_alert(out: &mut Chain, alert: u8) {
    if let Some([kind::ALERT, 3, _, 0, 2, _, description]) = out.writer_for(0).last_chunk_mut::<7>()
    {
        *description = alert;
    }
}

fn encode(
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
    out: &mut Chain,
) -> Result<(), Error> {
    let size = match encode(&mut []) {
        Err(EncodeError::InsufficientSize(size)) => size.required_size,
        _ => return Ok(()),
    };
    let out = out.writer_for(size);
    let begin = out.len();
    out.resize(begin + size, 0);
    let written = encode(out.get_mut(begin..).unwrap_or_default());
    out.truncate(begin + *written.as_ref().unwrap_or(&0));
    written.map(drop).map_err(|e| Error::internal(e.to_string()))
}

/// The session's name in a ServerHello at the beginning of the server's records: its id in TLS 1.2,
/// where it has one, else its random bytes.
fn session_id(records: &[u8]) -> Option<Vec<u8>> {
    const SERVER_HELLO: u8 = 2;
    let [kind::HANDSHAKE, _, _, _, _, SERVER_HELLO, _, _, _, _, _, hello @ ..] = records else {
        return None;
    };
    let (random, behind) = hello.split_at_checked(32)?;
    let (&len, behind) = behind.split_first()?;
    let id = behind.get(..usize::from(len))?;
    // In TLS 1.3 the id is the client's, given back, and `supported_versions` follows.
    let is_13 = memchr::memmem::find(behind, &[0, 43, 0, 2, 3, 4]).is_some();
    Some(if is_13 || id.is_empty() { random } else { id }.to_vec())
}
