//! A client's session as variables and access checks see it.

use std::cell::OnceCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use base::log::Log;
use bytes::Bytes;
use pki::verify::Error;
use pki::x509::Certificate;
use tls::Info;
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
