//! Sessions with upstreams, to be resumed by later connections (`proxy_ssl_session_reuse`).

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mem::Lru;
use rustls::NamedGroup;
use rustls::client::Tls13ClientSessionValue;
use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue};
use rustls::pki_types::ServerName;

use crate::ClientConfig;

/// Peers that sessions are kept of.
const PEERS_MAX: usize = 256;

/// TLS 1.3 tickets of one peer. Each serves one connection, which brings new ones.
const TICKETS_MAX: usize = 4;

/// The sessions of one client configuration. They are kept by peer and by name, so that no server
/// is offered the session of another, and no certificate stands for a name that it was not checked
/// for. After a fork each worker has its own.
#[derive(Clone)]
pub struct ClientSessions(Arc<Shared>);

struct Shared {
    config: ClientConfig,
    peers: Mutex<Lru<ClientConfig>>,
}

impl ClientSessions {
    /// No sessions yet. The configuration's own memory of sessions is not used.
    pub fn new(config: ClientConfig) -> ClientSessions {
        ClientSessions(Arc::new(Shared { config, peers: Mutex::default() }))
    }

    /// The configuration for a connection to a peer (its address) under a name. It resumes what
    /// earlier connections to the same two have left.
    pub fn config(&self, peer: &[u8], name: &[u8]) -> ClientConfig {
        let mut key = Vec::with_capacity(8 + peer.len() + name.len());
        key.extend_from_slice(&(peer.len() as u64).to_be_bytes());
        key.extend_from_slice(peer);
        key.extend_from_slice(name);
        let mut peers = self.0.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = peers.get(&key) {
            return config.clone();
        }
        let config = with_store(&self.0.config, Arc::new(PeerSessions::default()));
        peers.insert(&key, config.clone());
        if peers.len() > PEERS_MAX {
            peers.pop_oldest();
        }
        config
    }
}

fn with_store(config: &ClientConfig, store: Arc<PeerSessions>) -> ClientConfig {
    let with = |config: &rustls::ClientConfig| {
        let mut config = config.clone();
        config.resumption = Resumption::store(store.clone());
        Arc::new(config)
    };
    ClientConfig { named: with(&config.named), nameless: with(&config.nameless) }
}

impl fmt::Debug for ClientSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSessions")
    }
}

/// The sessions with one peer under one name.
#[derive(Default)]
struct PeerSessions(Mutex<Sessions>);

#[derive(Default)]
struct Sessions {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl PeerSessions {
    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PeerSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerSessions")
    }
}

/// A store of one peer and name is asked for no other.
impl ClientSessionStore for PeerSessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.lock().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.lock().tls12 = Some(session);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().tls12.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.lock().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let tickets = &mut self.lock().tickets;
        if tickets.len() == TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(ticket);
    }

    /// The newest: it is valid for longest.
    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.lock().tickets.pop_back()
    }
}

#[cfg(test)]
mod tests;
