//! What a transport promises, of TLS: see the table of [`super`].

use ::tls::certified::Certified;
use ::tls::{ClientConfig, ClientOptions, ServerConfig, ServerOptions, Session};
use event::testing::{each_driver, pair, real_drivers};
use event::{Deadline, Either, Loop, Options};
use mem::Chain;
use rcgen::{CertificateParams, KeyPair};

use super::*;

const SOON: u64 = 10_000;

fn of(bytes: &[u8]) -> Chain {
    let mut chain = Chain::new();
    chain.write(bytes);
    chain
}

/// Both ends of a session, the client's first.
async fn transports() -> (Transport, Transport) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().to_vec();
    let certified = Certified::new(vec![certificate], &key.serialize_der()).unwrap();
    let options = ServerOptions { certificates: vec![certified], ..ServerOptions::default() };
    let server = Session::server(&ServerConfig::new(options).unwrap()).unwrap();
    let client = ClientConfig::new(ClientOptions::default()).unwrap();
    let client = Session::client(&client, b"a.example").unwrap();
    let (near, far) = pair().unwrap();
    let near = Transport::from(near).with_session(client);
    let far = Transport::from(far).with_session(server);
    both(near.handshake(Deadline::in_ms(SOON)), far.handshake(Deadline::in_ms(SOON))).await;
    (near, far)
}

/// Runs two to their ends.
async fn both<A, B>(
    first: impl Future<Output = io::Result<A>>,
    second: impl Future<Output = io::Result<B>>,
) -> (A, B) {
    let (mut first, mut second) = (Box::pin(first), Box::pin(second));
    match event::race(first.as_mut(), second.as_mut()).await {
        Either::First(a) => (a.unwrap(), second.await.unwrap()),
        Either::Second(b) => (first.await.unwrap(), b.unwrap()),
    }
}

fn each_real_driver<F: Future<Output = ()> + 'static>(body: impl Fn() -> F) {
    for driver in real_drivers() {
        let mut event_loop = Loop::new(Options { driver, ..Options::default() }).unwrap();
        event_loop.block_on(body()).unwrap();
    }
}

async fn to_the_end(transport: &Transport) -> Vec<u8> {
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
    each_driver(|| async {
        let (near, far) = transports().await;
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

#[test]
fn tickets_do_not_count_and_bytes_do() {
    each_real_driver(|| async {
        let (near, far) = transports().await;
        // The server's tickets came behind its handshake, or come still.
        assert!(near.is_quiet());
        assert!(near.try_recv().unwrap().is_none());
        assert!(near.is_quiet());
        assert!(far.is_quiet());
        far.send(&mut of(b"x"), Deadline::in_ms(SOON)).await.unwrap();
        near.readable(Deadline::in_ms(SOON)).await.unwrap();
        assert!(!near.is_quiet());
    });
}

#[test]
fn a_connection_that_its_peer_closed_is_not_quiet() {
    each_real_driver(|| async {
        let (near, far) = transports().await;
        assert!(near.try_recv().unwrap().is_none());
        drop(far);
        near.readable(Deadline::in_ms(SOON)).await.unwrap();
        assert!(!near.is_quiet());
    });
}

#[test]
fn the_session_s_end_is_the_peer_s() {
    each_real_driver(|| async {
        let (near, far) = transports().await;
        far.send(&mut of(b"last words"), Deadline::in_ms(SOON)).await.unwrap();
        far.shutdown_write().unwrap();
        assert_eq!(to_the_end(&near).await, b"last words");
        assert!(near.peer_closed());
        // The other direction goes on.
        near.send(&mut of(b"heard"), Deadline::in_ms(SOON)).await.unwrap();
        near.shutdown_write().unwrap();
        assert_eq!(to_the_end(&far).await, b"heard");
    });
}

#[test]
fn more_than_the_page_holds_stays_at_hand() {
    each_driver(|| async {
        let (near, far) = transports().await;
        let bytes: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let receiving = async {
            let mut all = Vec::new();
            while all.len() < bytes.len() {
                // A wait must not sleep over plaintext that was opened already.
                far.readable(Deadline::in_ms(SOON)).await?;
                if let Some(page) = far.try_recv()? {
                    all.extend_from_slice(page.filled());
                }
            }
            Ok(all)
        };
        let sending = async {
            near.send(&mut of(&bytes), Deadline::in_ms(SOON)).await?;
            Ok(())
        };
        let ((), got) = both(sending, receiving).await;
        assert!(got == bytes);
    });
}

#[test]
fn sealed_bytes_are_held_back_when_the_socket_is_full() {
    each_real_driver(|| async {
        let (near, far) = transports().await;
        let block = vec![b'a'; 1 << 20];
        let mut chain = Chain::new();
        let mut taken = 0;
        loop {
            chain.write(&block);
            taken += near.try_send(&mut chain, None).unwrap() as u64;
            if near.has_unsent() {
                break;
            }
        }
        let all = taken + chain.len();
        let sending = async {
            near.flush(Deadline::in_ms(SOON)).await.unwrap();
            assert!(!near.has_unsent());
            near.send(&mut chain, Deadline::in_ms(SOON)).await.unwrap();
            near.shutdown_write().unwrap();
            std::future::pending::<()>().await;
        };
        match event::race(sending, to_the_end(&far)).await {
            Either::First(()) => unreachable!("it waits for ever"),
            Either::Second(got) => assert_eq!(got.len() as u64, all),
        }
    });
}

#[test]
fn files_are_not_sent_and_connections_not_passed() {
    each_real_driver(|| async {
        let (near, far) = transports().await;
        assert!(near.is_tls() && !near.sends_files() && !near.can_be_passed());
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut chain = Chain::new();
        chain.push_file(mem::FileHandle::new(file.into(), 0, false, None), 0, 8);
        let error = near.try_send(&mut chain, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(near.into_fd().unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert!(to_the_end(&far).await.is_empty());
    });
}
