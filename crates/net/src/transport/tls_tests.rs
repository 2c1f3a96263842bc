//! The promises of a transport, for TLS: see the table of [`super`].

use event::Deadline;
use event::testing::each_driver;

use super::contract_tests::{Kind, SOON, both, drain, each_real_driver, fill, of, to_the_end};
use super::*;

async fn transports() -> (Transport, Transport) {
    super::contract_tests::transports(Kind::Tls).await
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
        let (left, taken) = fill(&near, |_| near.has_unsent());
        let all = taken + left.len();
        assert_eq!(drain(&near, &far, left).await, all);
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
