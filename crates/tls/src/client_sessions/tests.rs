use super::*;
use crate::tests::pair::{self, server};
use crate::{SessionContext, TicketKey, Tickets};
use rustls::HandshakeKind::{Full, Resumed};
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, ServerConfig, SupportedProtocolVersion};

static BOTH: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

fn client(version: &'static SupportedProtocolVersion) -> ClientConfig {
    let config = Arc::new(pair::client(version));
    ClientConfig { named: config.clone(), nameless: config }
}

fn connect(client: &ClientConfig, server: &Arc<ServerConfig>) -> HandshakeKind {
    pair::connect(&client.named, server)
}

fn with_tickets(version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
    let mut server = server(version);
    let keys = vec![TicketKey::from_bytes(&[1; 80]).unwrap()];
    server.ticketer = Tickets::with_keys(keys, SessionContext::new([]), 300).unwrap().producer();
    Arc::new(server)
}

#[test]
fn a_peer_s_session_is_resumed_again_and_again() {
    for version in BOTH {
        let (server, sessions) = (with_tickets(version), ClientSessions::new(client(version)));
        let kinds: Vec<_> =
            (0..6).map(|_| connect(&sessions.config(b"peer", b"one.test"), &server)).collect();
        assert_eq!(kinds, [Full, Resumed, Resumed, Resumed, Resumed, Resumed]);
    }
}

#[test]
fn peers_and_names_are_kept_apart() {
    for version in BOTH {
        let (server, sessions) = (with_tickets(version), ClientSessions::new(client(version)));
        for (peer, name) in [("a", "bc"), ("ab", "c"), ("a", "b"), ("", "abc"), ("abc", "")] {
            let config = || sessions.config(peer.as_bytes(), name.as_bytes());
            assert_eq!(connect(&config(), &server), Full, "{peer} {name}");
            assert_eq!(connect(&config(), &server), Resumed, "{peer} {name}");
        }
    }
}

#[test]
fn the_peers_used_last_are_kept() {
    let (server, sessions) = (with_tickets(&TLS13), ClientSessions::new(client(&TLS13)));
    assert_eq!(connect(&sessions.config(b"first", b""), &server), Full);
    assert_eq!(connect(&sessions.config(b"second", b""), &server), Full);
    for peer in 0..PEERS_MAX as u32 - 1 {
        sessions.config(&peer.to_be_bytes(), b"");
        sessions.config(b"first", b"");
    }
    assert_eq!(sessions.0.peers.lock().unwrap().len(), PEERS_MAX);
    assert_eq!(connect(&sessions.config(b"first", b""), &server), Resumed);
    assert_eq!(connect(&sessions.config(b"second", b""), &server), Full);
}

#[test]
fn few_tickets_are_kept_and_each_is_used_once() {
    let server = with_tickets(&TLS13);
    let store = Arc::new(PeerSessions::default());
    let config = with_store(&client(&TLS13), store.clone());
    let name = ServerName::try_from("one.test").unwrap();
    // Each connection uses one ticket and brings two.
    for _ in 0..6 {
        connect(&config, &server);
    }
    let left = std::iter::from_fn(|| store.take_tls13_ticket(&name)).count();
    assert_eq!(left, TICKETS_MAX);
    assert_eq!(connect(&config, &server), Full);
}
