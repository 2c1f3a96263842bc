use event::testing::{pair, real_drivers, turns};
use event::{Deadline, Loop, Options};

use super::contract_tests::{SOON, drain, each_real_driver, fill, of};
use super::*;

fn transports() -> (Transport, Transport) {
    let (near, far) = pair().unwrap();
    (near.into(), far.into())
}

#[test]
fn a_plain_transport_costs_what_its_socket_does() {
    assert_eq!(size_of::<Transport>(), size_of::<Sock>());
}

/// A waiter on an idle connection is not needed for its state to be known.
#[test]
fn quiet_is_asked_of_the_kernel_where_the_driver_keeps_no_watch() {
    for driver in real_drivers() {
        let mut event_loop = Loop::new(Options { driver, ..Options::default() }).unwrap();
        let body = async {
            let (near, far) = transports();
            far.send(&mut of(b"answer"), Deadline::in_ms(SOON)).await.unwrap();
            let mut page = Page::new();
            near.recv_into(&mut page, Deadline::in_ms(SOON)).await.unwrap();
            assert!(near.is_quiet(), "all was received");
            far.send(&mut of(b"x"), Deadline::in_ms(SOON)).await.unwrap();
            turns(1).await;
            assert!(!near.is_quiet(), "bytes that nobody asked for: {}", event::driver_name());

            let (near, far) = transports();
            far.send(&mut of(b"answer"), Deadline::in_ms(SOON)).await.unwrap();
            near.recv_into(&mut page, Deadline::in_ms(SOON)).await.unwrap();
            drop(far);
            // A driver may close with its next turn.
            turns(2).await;
            assert!(!near.is_quiet(), "the peer is gone: {}", event::driver_name());
        };
        event_loop.block_on(body).unwrap();
    }
}

#[test]
fn nothing_is_held_back_even_when_the_socket_is_full() {
    each_real_driver(|| async {
        let (near, far) = transports();
        let (left, taken) = fill(&near, |left| !left.is_empty());
        // Bytes that the kernel did not take are in the chain, and nowhere else.
        assert!(!near.has_unsent());
        let all = taken + left.len();
        assert_eq!(drain(&near, &far, left).await, all);
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
