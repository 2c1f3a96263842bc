//! The promises of every transport: see the table of [`super`]. One test for all kinds.

use ::tls::certified::Certified;
use ::tls::{ClientConfig, ClientOptions, ServerConfig, ServerOptions, Session};
use event::testing::{each_driver, pair, real_drivers};
use event::{Deadline, Either, Loop, Options};
use mem::Chain;
use rcgen::{CertificateParams, KeyPair};

use super::*;

pub const SOON: u64 = 10_000;

pub fn of(bytes: &[u8]) -> Chain {
    let mut chain = Chain::new();
    chain.write(bytes);
    chain
}

/// A kind of transport.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Plain,
    Tls,
}

const KINDS: [Kind; 2] = [Kind::Plain, Kind::Tls];

/// Both ends of a connection, the client's first.
pub(crate) async fn transports(kind: Kind) -> (Transport, Transport) {
    let (near, far) = pair().unwrap();
    match kind {
        Kind::Plain => (near.into(), far.into()),
        Kind::Tls => sealed(near, far).await,
    }
}

async fn sealed(near: Sock, far: Sock) -> (Transport, Transport) {
    let (client, server) = sessions(&[]);
    let near = Transport::from(near).with_session(client);
    let far = Transport::from(far).with_session(server);
    let until = Deadline::in_ms(SOON);
    both(near.handshake(until, None), far.handshake(until, None)).await;
    (near, far)
}

/// A client and a server that takes keys of these groups.
pub fn sessions(groups: &[u16]) -> (Session, Session) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().to_vec();
    let options = ServerOptions {
        certificates: vec![Certified::new(vec![certificate], &key.serialize_der()).unwrap()],
        groups: groups.to_vec(),
        ..ServerOptions::default()
    };
    let server = Session::server(&ServerConfig::new(options).unwrap()).unwrap();
    let client = ClientConfig::new(ClientOptions::default()).unwrap();
    (Session::client(&client, b"a.example").unwrap(), server)
}

/// Runs two to their ends.
pub async fn both<A, B>(
    first: impl Future<Output = io::Result<A>>,
    second: impl Future<Output = io::Result<B>>,
) -> (A, B) {
    let (mut first, mut second) = (Box::pin(first), Box::pin(second));
    match event::race(first.as_mut(), second.as_mut()).await {
        Either::First(a) => (a.unwrap(), second.await.unwrap()),
        Either::Second(b) => (first.await.unwrap(), b.unwrap()),
    }
}

/// A test of what only a kernel's socket has: descriptors, files, full buffers.
pub fn each_real_driver<F: Future<Output = ()> + 'static>(body: impl Fn() -> F) {
    for driver in real_drivers() {
        let mut event_loop = Loop::new(Options { driver, ..Options::default() }).unwrap();
        event_loop.block_on(body()).unwrap();
    }
}

/// Sends until `is_full`; gives what is left, and the number of bytes that were taken.
pub fn fill(near: &Transport, is_full: impl Fn(&Chain) -> bool) -> (Chain, u64) {
    let block = vec![b'a'; 1 << 20];
    let (mut chain, mut taken) = (Chain::new(), 0);
    while !is_full(&chain) {
        chain.write(&block);
        taken += near.try_send(&mut chain, None).unwrap() as u64;
    }
    (chain, taken)
}

/// Sends what is left, and counts what the other end gets until then.
pub async fn drain(near: &Transport, far: &Transport, mut left: Chain) -> u64 {
    let sending = async {
        near.flush(Deadline::in_ms(SOON)).await.unwrap();
        assert!(!near.has_unsent());
        near.send(&mut left, Deadline::in_ms(SOON)).await.unwrap();
        near.shutdown_write().unwrap();
        std::future::pending::<()>().await;
    };
    match event::race(sending, to_the_end(far)).await {
        Either::First(()) => unreachable!("it waits for ever"),
        Either::Second(got) => got.len() as u64,
    }
}

pub(crate) async fn to_the_end(transport: &Transport) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let page = transport.recv(1, Deadline::in_ms(SOON)).await.unwrap();
        if page.filled().is_empty() {
            return all;
        }
        all.extend_from_slice(page.filled());
    }
}

#[test]
fn bytes_go_both_ways() {
    for kind in KINDS {
        each_driver(move || async move {
            let (near, far) = transports(kind).await;
            near.send(&mut of(b"question"), Deadline::in_ms(SOON)).await.unwrap();
            let mut page = Page::new();
            while page.filled().len() < 8 {
                assert_ne!(far.recv_into(&mut page, Deadline::in_ms(SOON)).await.unwrap(), 0);
            }
            assert_eq!(page.filled(), b"question");
            far.send_last(&mut of(b"answer"), Deadline::in_ms(SOON)).await.unwrap();
            drop(far);
            assert_eq!(to_the_end(&near).await, b"answer");
            assert!(near.peer_closed());
        });
    }
}

#[test]
fn an_idle_connection_is_quiet_until_something_unasked_arrives() {
    for kind in KINDS {
        each_real_driver(move || async move {
            let (near, far) = transports(kind).await;
            assert!(near.is_quiet(), "before it was ever waited for");
            assert!(near.try_recv().unwrap().is_none());
            assert!(near.is_quiet());
            far.send(&mut of(b"x"), Deadline::in_ms(SOON)).await.unwrap();
            near.readable(Deadline::in_ms(SOON)).await.unwrap();
            assert!(!near.is_quiet());
        });
    }
}

#[test]
fn a_connection_that_its_peer_closed_is_not_quiet() {
    for kind in KINDS {
        each_real_driver(move || async move {
            let (near, far) = transports(kind).await;
            assert!(near.try_recv().unwrap().is_none());
            drop(far);
            near.readable(Deadline::in_ms(SOON)).await.unwrap();
            assert!(!near.is_quiet());
        });
    }
}

#[test]
fn what_was_sent_before_the_end_stays_to_be_read() {
    for kind in KINDS {
        each_driver(move || async move {
            let (near, far) = transports(kind).await;
            far.send(&mut of(b"last words"), Deadline::in_ms(SOON)).await.unwrap();
            far.shutdown_write().unwrap();
            near.closed_by_peer().await.unwrap();
            assert!(near.peer_closed());
            let mut page = Page::new();
            while near.recv_into(&mut page, Deadline::in_ms(SOON)).await.unwrap() > 0 {}
            assert_eq!(page.filled(), b"last words");
        });
    }
}

#[test]
fn a_wait_for_one_ends_with_the_peer_of_another() {
    for kind in KINDS {
        each_driver(move || async move {
            let (server, server_far) = transports(kind).await;
            let (client, client_far) = transports(kind).await;
            assert!(server.try_recv().unwrap().is_none());
            client_far.shutdown_write().unwrap();
            let side = server.readable_while(Some(&client), Deadline::in_ms(SOON)).await.unwrap();
            assert_eq!(side, Side::Other);
            server_far.send(&mut of(b"x"), Deadline::in_ms(SOON)).await.unwrap();
            let side = server.readable_while(None, Deadline::in_ms(SOON)).await.unwrap();
            assert_eq!(side, Side::This);
        });
    }
}
