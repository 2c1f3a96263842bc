//! Handshakes whose signatures are made in a pool.

use std::sync::mpsc::{Sender, channel};

use event::testing::{each_driver, pair, until};
use event::{Deadline, Pool, TaskError};

use super::contract_tests::{SOON, both, each_real_driver, of, sessions, to_the_end};
use super::*;

/// Group 24: P-384, for which clients have no key at hand.
const P384: u16 = 24;

/// A pool whose one thread is busy until the sender is dropped.
fn busy_pool(max_queue: usize) -> (Pool, Sender<()>) {
    let pool = Pool::new("busy", 1, max_queue);
    let ((begin, begun), (busy, end)) = (channel(), channel());
    let work = move || {
        begin.send(()).unwrap();
        let _: Result<(), _> = end.recv();
    };
    pool.detach(work).unwrap();
    begun.recv().unwrap();
    (pool, busy)
}

async fn wait_for_tasks(pool: &Pool, count: u64) {
    until(|| pool.counters().done >= count).await;
}

/// A connection whose server's end has the client's hello; the server takes keys of these groups.
async fn greeted(groups: &[u16]) -> (Transport, Transport) {
    let ((near, far), (client, server)) = (pair().unwrap(), sessions(groups));
    let near = Transport::from(near).with_session(client);
    let far = Transport::awaiting_tls(far);
    let until = Deadline::in_ms(SOON);
    {
        let client = Box::pin(near.handshake(until, None));
        match event::race(client, far.first(until)).await {
            event::Either::First(done) => panic!("the client's end was {done:?}"),
            event::Either::Second(first) => assert_eq!(first.unwrap(), First::Hello),
        }
    }
    far.go_sealed(server);
    (near, far)
}

/// The outcome of a handshake at the server's end, with a busy pool.
async fn fault(pool: &Pool, ms: u64) -> io::Error {
    let (_near, far) = greeted(&[]).await;
    far.handshake(Deadline::in_ms(ms), Some(pool)).await.unwrap_err()
}

#[test]
fn hellos_are_answered_by_the_pool() {
    each_driver(|| async {
        // Without a key of the server's group the client says hello twice.
        for (groups, hellos) in [(&[][..], 1), (&[P384], 2)] {
            let (near, far) = greeted(groups).await;
            let (pool, until) = (Pool::new("sign", 1, 1), Deadline::in_ms(SOON));
            both(near.handshake(until, None), far.handshake(until, Some(&pool))).await;
            assert_eq!(pool.counters().done, hellos);
            assert!(far.take_session_info().is_some());
            far.send(&mut of(b"hello"), until).await.unwrap();
            far.shutdown_write().unwrap();
            assert_eq!(to_the_end(&near).await, b"hello");
        }
    });
}

#[test]
fn a_pool_that_is_busy_for_too_long_ends_the_handshake() {
    each_real_driver(|| async {
        let (pool, busy) = busy_pool(1);
        let error = fault(&pool, 1).await;
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.get_ref().is_some_and(|e| e.is::<Overdue>()), "{error:?}");
        // The step is taken all the same, and its session is dropped there.
        drop(busy);
        wait_for_tasks(&pool, 2).await;
    });
}

#[test]
fn a_full_queue_ends_the_handshake() {
    each_real_driver(|| async {
        let (pool, _busy) = busy_pool(0);
        let error = fault(&pool, SOON).await;
        let task = error.get_ref().and_then(|e| e.downcast_ref::<TaskError>());
        assert_eq!(task, Some(&TaskError::QueueFull));
    });
}

#[test]
fn a_connection_may_end_while_the_pool_has_its_session() {
    each_real_driver(|| async {
        let (pool, busy) = busy_pool(1);
        let (near, far) = greeted(&[]).await;
        let until = Deadline::in_ms(SOON);
        let begun = event::ready_now(Box::pin(far.handshake(until, Some(&pool)))).await;
        assert!(begun.is_none());
        assert!(far.try_recv().is_err() && far.try_send(&mut of(b"x"), None).is_err());
        drop(far);
        assert!(to_the_end(&near).await.is_empty());
        drop(busy);
        wait_for_tasks(&pool, 2).await;
    });
}
