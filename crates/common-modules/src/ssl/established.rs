//! A client's session as variables and access checks see it.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use base::log::Log;
use bytes::Bytes;
use pki::verify::Error;
use pki::x509::Certificate;
use proto::handover::{Handshake, Refusal};
use tls::{Info, Own};
use upstream::names::Lookup;

use super::server::ServerTls;
use super::settings::VerifyClient;

/// A session with a client.
pub struct Established {
    /// The terms that both ends agreed on, once they did.
    info: OnceCell<Info>,
    /// The facts of early data, which comes before.
    early: OnceCell<Info>,
    /// The name of the server in the client's hello.
    pub server_name: Option<Box<[u8]>>,
    /// The hello's message, where variables ask for it.
    pub hello: Option<Box<[u8]>>,
    server: Rc<ServerTls>,
    peer: OnceCell<Peer>,
    /// The answer of OCSP about the client, where it is asked.
    status: OnceCell<Result<(), &'static str>>,
}

/// The client's certificate.
struct Peer {
    /// None where it showed none, or one that cannot be read.
    certificate: Option<Arc<Certificate>>,
    verified: Verified,
}

#[derive(Clone, Copy)]
enum Verified {
    None,
    Good,
    Bad(Error),
    Unreadable,
}

/// Why a client may not enter.
#[derive(Clone, Copy, Debug)]
pub enum NoEntry {
    /// It showed no certificate.
    Missing,
    /// It showed a bad one.
    Bad(u8, &'static str),
    /// It was revoked, or that could not be found out.
    Status(&'static str),
}

impl fmt::Display for NoEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoEntry::Missing => f.write_str("client sent no required SSL certificate"),
            NoEntry::Bad(number, text) => {
                write!(f, "client SSL certificate verify error: ({number}:{text})")
            }
            NoEntry::Status(text) => write!(f, "client SSL certificate verify error: {text}"),
        }
    }
}

/// A session of an engine that TLS may protect.
pub trait Secured {
    /// The client's session; `None` without TLS.
    fn established(&self) -> Option<&Established>;
}

impl Established {
    /// A session that is to be established with a server's configuration.
    pub fn new(server: Rc<ServerTls>) -> Established {
        let (info, early) = (OnceCell::new(), OnceCell::new());
        let (peer, status) = (OnceCell::new(), OnceCell::new());
        Established { info, early, server_name: None, hello: None, server, peer, status }
    }

    /// The session that another process has established, of a client of `server`.
    ///
    /// # Errors
    /// The client has not been asked for the certificate that this configuration wants, or nobody
    /// has asked OCSP responders about it: that takes another handshake.
    pub fn resumed(server: Rc<ServerTls>, of: &Handshake<'_>) -> Result<Established, Refusal> {
        let unasked = server.verify.is_on() && !of.is_asked;
        let unconfirmed = server.looks_up_clients() && of.peer.is_some() && !of.is_confirmed;
        if unasked || unconfirmed {
            return Err(Refusal::Configuration);
        }
        let mut session = Established::new(server);
        session.server_name = of.server_name.map(Box::from);
        session.hello = of.hello.map(Box::from);
        if of.is_confirmed {
            let _ = session.status.set(Ok(()));
        }
        session.established(Info {
            version: of.terms.0,
            suite: of.terms.1,
            group: of.group,
            signed_with: of.schemes.0,
            peer_signed_with: of.schemes.1,
            session_id: of.session_id.to_vec(),
            is_resumed: of.is_resumed,
            has_early_data: of.has_early_data,
            alpn: of.alpn.map(Box::from),
            own: of.own.map(|der| Own::Der(shared(der))),
            peer_certificates: of
                .peer
                .as_ref()
                .map(|chain| chain.iter().map(|der| Box::from(*der)).collect()),
        });
        Ok(session)
    }

    /// Describes the session for another process; `None` if it was not established, or if OCSP
    /// responders know something against the client.
    pub fn described(&self) -> Option<Handshake<'_>> {
        let info = self.info.get()?;
        if let Some(Err(_)) = self.status.get() {
            return None;
        }
        let chain = info.peer_certificates.as_ref();
        Some(Handshake {
            server_name: self.server_name.as_deref(),
            hello: self.hello.as_deref(),
            terms: (info.version, info.suite),
            group: info.group,
            schemes: (info.signed_with, info.peer_signed_with),
            session_id: &info.session_id,
            is_resumed: info.is_resumed,
            has_early_data: info.has_early_data,
            alpn: info.alpn.as_deref(),
            own: info.own_certificate(),
            peer: chain.map(|chain| chain.iter().map(|der| &der[..]).collect()),
            is_asked: self.server.verify.is_on(),
            is_confirmed: self.status.get().is_some(),
        })
    }

    /// The handshake is over.
    pub fn established(&self, info: Info) {
        let _ = self.info.set(info);
    }

    /// The handshake is under way, but early data of the client's is taken.
    pub fn is_early(&self, info: Info) {
        let _ = self.early.set(info);
    }

    /// The terms that both ends agreed on; none before the end of the handshake, unless early data
    /// is taken.
    pub fn info(&self) -> Option<&Info> {
        self.info.get().or(self.early.get())
    }

    /// The client's certificate.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.peer().certificate.as_deref()
    }

    fn peer(&self) -> &Peer {
        self.peer.get_or_init(|| self.verify().0)
    }

    /// Asks OCSP responders for the certificates of a client that was verified, where the server
    /// wants that: before the first request.
    pub async fn look_up(&self, lookup: &Lookup, log: &Log, connection: u64) {
        let Some(clients) = &self.server.client_status else { return };
        let (peer, chain) = self.verify();
        if let Verified::Good = peer.verified {
            let status = clients.check(&chain, lookup, log, connection).await;
            let _ = self.status.set(status);
        }
        let _ = self.peer.set(peer);
    }

    /// The client's certificate, and the verified chain.
    fn verify(&self) -> (Peer, Vec<Arc<Certificate>>) {
        let bad = |verified| (Peer { certificate: None, verified }, Vec::new());
        let Some(chain) = self.info().and_then(|info| info.peer_certificates.as_ref()) else {
            return bad(Verified::None);
        };
        let parse = |der: &[u8]| Certificate::parse(Bytes::copy_from_slice(der)).map(Arc::new);
        let Ok(chain) = chain.iter().map(|der| parse(der)).collect::<Result<Vec<_>, _>>() else {
            return bad(Verified::Unreadable);
        };
        let verdict = self.server.verify.check(&chain);
        let verified = verdict.error().map_or(Verified::Good, Verified::Bad);
        (Peer { certificate: chain.into_iter().next(), verified }, verdict.chain)
    }

    /// Whether the client may enter a server whose `ssl_verify_client` is `mode`.
    ///
    /// # Errors
    /// It may not.
    pub fn admit(&self, mode: VerifyClient) -> Result<(), NoEntry> {
        if mode == VerifyClient::Off {
            return Ok(());
        }
        match self.peer().verified {
            Verified::Good => match self.status.get() {
                Some(Err(text)) => Err(NoEntry::Status(text)),
                _ => Ok(()),
            },
            Verified::None if mode == VerifyClient::On => Err(NoEntry::Missing),
            Verified::None => Ok(()),
            Verified::Bad(e) if mode == VerifyClient::OptionalNoCa && e.is_optional() => Ok(()),
            Verified::Bad(e) => Err(NoEntry::Bad(e.number(), e.text())),
            Verified::Unreadable => Err(NoEntry::Bad(1, UNREADABLE)),
        }
    }

    /// `$ssl_client_verify`
    pub fn verdict(&self) -> String {
        match self.peer().verified {
            Verified::None => "NONE".to_owned(),
            Verified::Good => match self.status.get() {
                Some(Err(text)) => format!("FAILED:{text}"),
                _ => "SUCCESS".to_owned(),
            },
            Verified::Bad(e) => format!("FAILED:{}", e.text()),
            Verified::Unreadable => format!("FAILED:{UNREADABLE}"),
        }
    }
}

const UNREADABLE: &str = "unspecified certificate verification error";

thread_local! {
    static LAST: RefCell<Arc<[u8]>> = RefCell::new(Arc::from([]));
}

/// The certificate, in the memory of the last one if it is the same: those of connections that come
/// one after the other mostly are.
fn shared(der: &[u8]) -> Arc<[u8]> {
    LAST.with_borrow_mut(|last| {
        if **last != *der {
            *last = der.into();
        }
        last.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake() -> Handshake<'static> {
        Handshake {
            server_name: Some(b"a.example"),
            hello: Some(b"hello"),
            terms: (0x0304, 0x1301),
            group: 29,
            schemes: (0x0403, 0x0804),
            session_id: b"id",
            is_resumed: true,
            has_early_data: true,
            alpn: Some(b"h2"),
            own: Some(b"own"),
            peer: Some(vec![b"leaf", b"issuer"]),
            is_asked: true,
            is_confirmed: true,
        }
    }

    fn server(mode: VerifyClient) -> Rc<ServerTls> {
        let mut server = ServerTls::default();
        server.verify.mode = mode;
        Rc::new(server)
    }

    #[test]
    fn a_session_is_the_same_behind_a_move() {
        for mode in [VerifyClient::Off, VerifyClient::On] {
            let sent = Handshake { is_asked: mode == VerifyClient::On, ..handshake() };
            let session = Established::resumed(server(mode), &sent).unwrap();
            assert_eq!(session.described(), Some(sent));
        }
    }

    #[test]
    fn a_client_that_was_not_asked_for_a_certificate_stays_where_none_is_wanted() {
        let sent = Handshake { is_asked: false, peer: None, ..handshake() };
        for mode in [VerifyClient::On, VerifyClient::Optional, VerifyClient::OptionalNoCa] {
            let resumed = Established::resumed(server(mode), &sent);
            assert!(matches!(resumed, Err(Refusal::Configuration)));
        }
        assert!(Established::resumed(server(VerifyClient::Off), &sent).is_ok());
    }

    #[test]
    fn a_session_that_is_not_established_does_not_move() {
        let session = Established::new(server(VerifyClient::Off));
        assert_eq!(session.described(), None);
        let session = Established::resumed(server(VerifyClient::Off), &handshake()).unwrap();
        let revoked = Established { status: OnceCell::from(Err("revoked")), ..session };
        assert_eq!(revoked.described(), None);
    }
}
