use event::testing::{each_driver, pair, real_drivers};
use event::{Deadline, Loop, Options};
use mem::Chain;

use super::*;

const SOON: u64 = 10_000;

fn of(bytes: &[u8]) -> Chain {
    let mut chain = Chain::new();
    chain.write(bytes);
    chain
}

fn transports() -> (Transport, Transport) {
    let (near, far) = pair().unwrap();
    (near.into(), far.into())
}

/// A test of what only a kernel's socket has: descriptors, files, full buffers.
fn each_real_driver<F: Future<Output = ()> + 'static>(body: impl Fn() -> F) {
    for driver in real_drivers() {
        let mut event_loop = Loop::new(Options { driver, ..Options::default() }).unwrap();
        event_loop.block_on(body()).unwrap();
    }
}

#[test]
fn a_plain_transport_costs_a_word_more_than_its_socket() {
    assert_eq!(size_of::<Transport>(), size_of::<Sock>() + size_of::<usize>());
}

#[test]
fn bytes_go_both_ways() {
    each_driver(|| async {
        let (near, far) = transports();
        near.send(&mut of(b"question"), Deadline::in_ms(SOON)).await.unwrap();
        let mut page = Page::new();
        while page.filled().len() < 8 {
            assert_ne!(far.recv_into(&mut page, Deadline::in_ms(SOON)).await.unwrap(), 0);
        }
        assert_eq!(page.filled(), b"question");
        far.send_last(&mut of(b"answer"), Deadline::in_ms(SOON)).await.unwrap();
        drop(far);
        let mut text = Vec::new();
        loop {
            let page = near.recv(1, Deadline::in_ms(SOON)).await.unwrap();
            if page.filled().is_empty() {
                break;
            }
            text.extend_from_slice(page.filled());
        }
        assert_eq!(text, b"answer");
    });
}

#[test]
fn an_idle_connection_is_quiet_until_something_unasked_arrives() {
    each_real_driver(|| async {
        let (near, far) = transports();
        assert!(near.is_quiet(), "before it was ever waited for");
        assert!(near.try_recv().unwrap().is_none());
        assert!(near.is_quiet());
        far.send(&mut of(b"x"), Deadline::in_ms(SOON)).await.unwrap();
        near.readable(Deadline::in_ms(SOON)).await.unwrap();
        assert!(!near.is_quiet());
    });
}

#[test]
fn a_connection_that_its_peer_closed_is_not_quiet() {
    each_real_driver(|| async {
        let (near, far) = transports();
        assert!(near.try_recv().unwrap().is_none());
        drop(far);
        near.readable(Deadline::in_ms(SOON)).await.unwrap();
        assert!(!near.is_quiet());
    });
}

/// A waiter on an idle connection is not needed for its state to be known.
#[test]
fn quiet_is_asked_of_the_kernel_where_the_driver_keeps_no_watch() {
    for driver in real_drivers() {
        let mut event_loop = Loop::new(Options { driver, ..Options::default() }).unwrap();
        let body = async {
            if !event::looks_only_for_waiters() {
                return;
            }
            let (near, far) = transports();
            assert!(near.try_recv().unwrap().is_none());
            far.send(&mut of(b"x"), Deadline::in_ms(SOON)).await.unwrap();
            assert!(!near.is_quiet());
        };
        event_loop.block_on(body).unwrap();
    }
}

#[test]
fn what_was_sent_before_the_end_stays_to_be_read() {
    each_driver(|| async {
        let (near, far) = transports();
        far.send(&mut of(b"last words"), Deadline::in_ms(SOON)).await.unwrap();
        far.shutdown_write().unwrap();
        near.closed_by_peer().await.unwrap();
        assert!(near.peer_closed());
        let mut page = Page::new();
        while near.recv_into(&mut page, Deadline::in_ms(SOON)).await.unwrap() > 0 {}
        assert_eq!(page.filled(), b"last words");
    });
}

#[test]
fn a_wait_for_one_ends_with_the_peer_of_another() {
    each_driver(|| async {
        let (server, server_far) = transports();
        let (client, client_far) = transports();
        assert!(server.try_recv().unwrap().is_none());
        client_far.shutdown_write().unwrap();
        let side = server.readable_while(Some(&client), Deadline::in_ms(SOON)).await.unwrap();
        assert_eq!(side, Side::Other);
        server_far.send(&mut of(b"x"), Deadline::in_ms(SOON)).await.unwrap();
        let side = server.readable_while(None, Deadline::in_ms(SOON)).await.unwrap();
        assert_eq!(side, Side::This);
    });
}

#[test]
fn nothing_is_held_back_even_when_the_socket_is_full() {
    each_real_driver(|| async {
        let (near, far) = transports();
        let block = vec![b'a'; 1 << 20];
        let mut chain = Chain::new();
        let mut taken = 0;
        loop {
            chain.write(&block);
            taken += near.try_send(&mut chain, None).unwrap() as u64;
            if !chain.is_empty() {
                break;
            }
        }
        // Bytes that the kernel did not take are in the chain, and nowhere else.
        assert!(!near.has_unsent());
        near.flush(Deadline::in_ms(SOON)).await.unwrap();
        let all = taken + chain.len();
        let sending = async {
            near.send(&mut chain, Deadline::in_ms(SOON)).await.unwrap();
            near.shutdown_write().unwrap();
            std::future::pending::<()>().await;
        };
        let receiving = async {
            let mut got = 0;
            loop {
                match far.recv(1, Deadline::in_ms(SOON)).await.unwrap().filled().len() as u64 {
                    0 => return got,
                    n => got += n,
                }
            }
        };
        match event::race(sending, receiving).await {
            event::Either::First(()) => unreachable!("it waits for ever"),
            event::Either::Second(got) => assert_eq!(got, all),
        }
    });
}

#[test]
fn a_part_of_a_file_is_sent_as_it_is() {
    each_real_driver(|| async {
        let (near, far) = transports();
        assert!(near.sends_files());
        let dir = std::env::temp_dir().join(format!("weir-transport-{}", std::process::id()));
        std::fs::write(&dir, b"0123456789").unwrap();
        let file = std::fs::File::open(&dir).unwrap();
        std::fs::remove_file(&dir).unwrap();
        let mut chain = of(b"head ");
        chain.push_file(mem::FileHandle::new(file.into(), 0, false, None), 2, 8);
        near.send(&mut chain, Deadline::in_ms(SOON)).await.unwrap();
        near.shutdown_write().unwrap();
        let mut page = Page::new();
        while far.recv_into(&mut page, Deadline::in_ms(SOON)).await.unwrap() > 0 {}
        assert_eq!(page.filled(), b"head 234567");
    });
}

#[test]
fn a_passed_connection_goes_on_elsewhere() {
    each_real_driver(|| async {
        let (near, far) = transports();
        assert!(near.can_be_passed());
        let elsewhere = Transport::from(Sock::from_fd(near.into_fd().unwrap()));
        elsewhere.send(&mut of(b"here"), Deadline::in_ms(SOON)).await.unwrap();
        let page = far.recv(16, Deadline::in_ms(SOON)).await.unwrap();
        assert_eq!(page.filled(), b"here");
    });
}
