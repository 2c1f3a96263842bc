//! Resumption through the crate's own sessions: with tickets and from the cache, in both versions,
//! with a client that keeps sessions by peer.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use mem::{Chain, Page};
use weir_tls::certified::Certified;
use weir_tls::{
    ClientConfig, ClientOptions, ClientSessions, Received, ServerConfig, ServerOptions, Session,
    SessionCache, SessionContext, SharedKeys, SharedSessions, Tickets,
};

const VERSIONS: [u16; 2] = [0x0303, 0x0304];
const NAME: &[u8] = b"one.test";
const TIMEOUT_S: u32 = 300;

fn context(text: &str) -> SessionContext {
    SessionContext::new([text.as_bytes()])
}

fn server(version: u16, resume: impl FnOnce(&mut ServerOptions)) -> ServerConfig {
    let chain = vec![include_bytes!("certificates/one.der").to_vec()];
    let certified = Certified::new(chain, include_bytes!("certificates/one.key")).unwrap();
    let (certificates, versions) = (vec![certified], vec![version]);
    let mut options = ServerOptions { certificates, versions, ..ServerOptions::default() };
    resume(&mut options);
    ServerConfig::new(options).unwrap()
}

fn client() -> ClientSessions {
    ClientSessions::new(ClientConfig::new(ClientOptions::default()).unwrap())
}

struct End {
    session: Session,
    input: Page,
    plain: Page,
    out: Chain,
}

impl End {
    fn new(session: Session) -> End {
        End { session, input: Page::new(), plain: Page::new(), out: Chain::new() }
    }

    fn take(&mut self, from: &mut Chain) {
        while let Some(piece) = from.pop_front() {
            self.input.extend_from_slice(piece.memory().unwrap());
        }
        let received = self.session.receive(&mut self.input, &mut self.plain, &mut self.out);
        assert_eq!(received.unwrap(), Received::All);
    }

    fn say(&mut self, text: &[u8]) {
        let mut chain = Chain::new();
        chain.write(text);
        self.session.seal(&mut chain, 1 << 14, self.out.writer_for(1 << 10)).unwrap();
    }
}

/// Connects, and sends a word each way. Whether the session was resumed.
fn connect(server: &ServerConfig, client: &ClientSessions) -> bool {
    let config = client.config(b"127.0.0.1:443", NAME);
    let mut near = End::new(Session::server(server).unwrap());
    let mut far = End::new(Session::client(&config, NAME).unwrap());
    far.take(&mut Chain::new());
    for _ in 0..3 {
        near.take(&mut far.out);
        far.take(&mut near.out);
    }
    far.say(b"question");
    near.take(&mut far.out);
    near.say(b"answer");
    far.take(&mut near.out);
    assert_eq!((near.plain.filled(), far.plain.filled()), (&b"question"[..], &b"answer"[..]));
    let resumed = near.session.take_info().unwrap().is_resumed;
    assert_eq!(far.session.take_info().unwrap().is_resumed, resumed);
    resumed
}

#[test]
fn tickets_of_keys_that_workers_share() {
    for version in VERSIONS {
        let keys = SharedKeys::new().unwrap();
        let of = |keys: &SharedKeys, name| {
            let tickets = Tickets::with_shared(keys, context(name), TIMEOUT_S);
            server(version, |o| o.tickets = Some(tickets))
        };
        let client = client();
        assert!(!connect(&of(&keys, "one"), &client));
        assert!(connect(&of(&keys, "one"), &client));
        assert!(connect(&of(&keys.carried_over(), "one"), &client), "after a reload");
        assert!(!connect(&of(&keys, "other"), &client), "of another server");
        assert!(!connect(&of(&SharedKeys::new().unwrap(), "other"), &client), "after a restart");
    }
}

#[test]
fn sessions_in_a_zone() {
    for version in VERSIONS {
        let zone = SharedSessions::new(b"one", 64 << 10).unwrap();
        let of = |zone: &SharedSessions, name| {
            let cache = SessionCache::shared(zone, context(name), TIMEOUT_S);
            server(version, |o| o.sessions = Some(cache))
        };
        let client = client();
        assert!(!connect(&of(&zone, "one"), &client));
        assert!(connect(&of(&zone, "one"), &client));
        assert!(connect(&of(&zone.carried_over(), "one"), &client), "after a reload");
        assert!(!connect(&of(&zone, "other"), &client), "of another server");
    }
}

/// A record of a hello without one of its extensions, which has no data.
fn without_extension(record: &[u8], number: [u8; 2]) -> Vec<u8> {
    let extension = [number[0], number[1], 0, 0];
    let at = record.windows(4).rposition(|bytes| bytes == extension).unwrap();
    let mut record = [&record[..at], &record[at + 4..]].concat();
    let session_id = usize::from(record[43]);
    let suites = 44 + session_id;
    let compression = suites + 2 + usize::from(record[suites + 1]);
    // The lengths of the record, the message and the extensions.
    for low in [4, 8, compression + 3] {
        let len = u16::from_be_bytes([record[low - 1], record[low]]) - 4;
        record[low - 1..=low].copy_from_slice(&len.to_be_bytes());
    }
    record
}

/// RFC 7627 section 5.3: a session with an extended master secret goes on with one, or not at all.
#[test]
fn a_session_that_would_lose_its_extended_master_secret_is_refused() {
    const EXTENDED_MASTER_SECRET: [u8; 2] = [0, 23];
    let zone = SharedSessions::new(b"one", 64 << 10).unwrap();
    let cache = SessionCache::shared(&zone, context("one"), TIMEOUT_S);
    let (server, client) = (server(0x0303, |o| o.sessions = Some(cache)), client());
    assert!(!connect(&server, &client));
    let config = client.config(b"127.0.0.1:443", NAME);
    let mut far = End::new(Session::client(&config, NAME).unwrap());
    far.take(&mut Chain::new());
    let hello = far.out.pop_front().unwrap();
    let hello = without_extension(hello.memory().unwrap(), EXTENDED_MASTER_SECRET);
    let mut near = End::new(Session::server(&server).unwrap());
    near.input.extend_from_slice(&hello);
    near.session.receive(&mut near.input, &mut near.plain, &mut near.out).unwrap_err();
    let alert = near.out.pop_front().unwrap();
    assert_eq!(alert.memory(), Some(&[21, 3, 3, 0, 2, 2, 40][..]), "handshake_failure");
}

#[test]
fn without_a_cache_and_tickets_nothing_is_resumed() {
    for version in VERSIONS {
        for cache in [None, Some(SessionCache::off()), Some(SessionCache::none())] {
            let (server, client) = (server(version, |o| o.sessions = cache), client());
            assert!(!connect(&server, &client) && !connect(&server, &client));
        }
    }
}
