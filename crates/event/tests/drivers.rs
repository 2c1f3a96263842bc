//! The behaviour of every driver: the kernel's and the simulated one, with and without faults.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::Rc;

use bytes::Bytes;
use event::testing::{connect, each_driver, echo, listen, pair, read_to_end, turns, until};
use event::{Deadline, Either, Gate, Side, Sock, Wake};
use mem::Chain;

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + n / 251 + seed) as u8).collect()
}

fn nothing_is_left() -> bool {
    event::connections_in_use() == 0 && event::stats().waiting == 0
}

#[test]
fn many_connections_echo() {
    each_driver(|| async {
        let (listener, addr) = listen().expect("a listener");
        let server = event::spawn(async move {
            while let Ok(accepted) = listener.accept().await {
                event::spawn(echo(accepted.sock));
            }
        });
        let left = Rc::new(Cell::new(8));
        for n in 0..8 {
            let (left, addr) = (left.clone(), addr.clone());
            event::spawn(async move {
                let sock = Rc::new(connect(&addr).await.expect("connected"));
                let sent = pattern(20_000, n);
                let (writer, bytes) = (sock.clone(), Bytes::from(sent.clone()));
                event::spawn(async move {
                    let mut chain = Chain::new();
                    chain.push_bytes(bytes);
                    writer.send(&mut chain, Deadline::in_ms(60_000)).await.expect("sent");
                    writer.shutdown_write().expect("shut down");
                });
                assert!(read_to_end(&sock, 0).await == sent, "connection {n}");
                left.set(left.get() - 1);
            });
        }
        until(|| left.get() == 0).await;
        event::task::cancel(server);
        until(nothing_is_left).await;
    });
}

#[test]
fn files_and_memory_arrive_in_order() {
    let content = pattern(50_000, 3);
    let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    assert_eq!(rustix::io::pwrite(&file, &content, 0).expect("written"), content.len());
    let file = mem::FileHandle::from(file);
    each_driver(|| {
        let (content, file) = (content.clone(), file.clone());
        async move {
            let (ours, theirs) = pair().expect("a pair");
            let expected =
                [&b"head"[..], &content[100..40_000], b"middle", &content, b"end"].concat();
            let reader = Rc::new(RefCell::new(Vec::new()));
            let into = reader.clone();
            event::spawn(async move { *into.borrow_mut() = read_to_end(&theirs, 0).await });
            let mut chain = Chain::new();
            chain.write(b"head");
            chain.push_file(file.clone(), 100, 40_000);
            chain.push_bytes(Bytes::from_static(b"middle"));
            chain.push_file(file, 0, 50_000);
            chain.write(b"end");
            while !chain.is_empty() {
                let limit = Some(7000);
                let sent = ours.send_some(&mut chain, limit, Deadline::in_ms(60_000)).await;
                assert!((1..=7000).contains(&sent.expect("sent")));
            }
            drop(ours);
            until(|| !reader.borrow().is_empty()).await;
            assert!(*reader.borrow() == expected);
        }
    });
}

#[test]
fn deadlines_hold() {
    each_driver(|| async {
        let (ours, theirs) = pair().expect("a pair");
        let before = base::time::now_ms();
        let error = ours.recv(1, Deadline::in_ms(100)).await.expect_err("nothing came");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(base::time::now_ms() - before >= 100);
        let mut chain = Chain::new();
        chain.push_bytes(Bytes::from(vec![0; 4 << 20]));
        let error = ours.send(&mut chain, Deadline::in_ms(100)).await.expect_err("nobody reads");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(theirs);
        let sent = ours.send(&mut chain, Deadline::in_ms(1000)).await;
        assert!(sent.is_err(), "nobody is there");
    });
}

/// Lets `ms` milliseconds pass on the loop's clock, which the test moves by hand where the driver
/// does not: a busy machine would make the time longer.
async fn pass(ms: u64) {
    if event::driver_name() == "sim" {
        return event::sleep(ms).await;
    }
    base::time::pin(base::time::now_ms() + ms, base::time::unix_ms() + ms);
    turns(1).await;
}

#[test]
fn a_steady_reader_renews_the_deadline() {
    each_driver(|| async {
        let (ours, theirs) = pair().expect("a pair");
        let before_ms = base::time::now_ms();
        event::spawn(async move {
            while theirs.recv(1, Deadline::NEVER).await.is_ok_and(|page| !page.is_empty()) {
                pass(10).await;
            }
        });
        let mut chain = Chain::new();
        chain.push_bytes(Bytes::from(vec![0; 2 << 20]));
        // The whole takes longer; each step of progress, a third of the socket's buffer, far less.
        ours.send(&mut chain, Deadline::in_ms(700)).await.expect("progress all the time");
        assert!(base::time::now_ms() >= before_ms + 800, "the deadline was not renewed");
        if event::driver_name() != "sim" {
            base::time::unpin();
        }
    });
}

#[test]
fn parked_connections_wake() {
    each_driver(|| async {
        let gate = Gate::new();
        let (ours, theirs) = pair().expect("a pair");
        assert!(ours.try_recv().expect("no error").is_none());
        event::spawn(async move {
            turns(2).await;
            let mut chain = Chain::new();
            chain.write(b"GET");
            theirs.send(&mut chain, Deadline::NEVER).await.expect("sent");
            std::future::pending::<()>().await;
        });
        let mut all = Vec::new();
        while all.len() < 3 {
            // Readiness may be false; it only has to come.
            let wake = ours.readable_or(&gate, Deadline::in_ms(60_000)).await;
            assert_eq!(wake.expect("no error"), Wake::Ready);
            all.extend_from_slice(&ours.try_recv().expect("no error").unwrap_or_default());
        }
        assert_eq!(all, b"GET");
        let closing = gate.clone();
        event::spawn(async move {
            turns(20).await;
            closing.close();
        });
        loop {
            match ours.readable_or(&gate, Deadline::in_ms(60_000)).await.expect("no error") {
                Wake::Gate => break,
                _ => assert!(ours.try_recv().expect("no error").is_none()),
            }
        }
        gate.closed().await;
    });
}

#[test]
fn the_peers_end_is_told() {
    each_driver(|| async {
        let (ours, theirs) = pair().expect("a pair");
        event::spawn(async move {
            turns(2).await;
            let mut chain = Chain::new();
            chain.write(b"bye");
            theirs.send(&mut chain, Deadline::NEVER).await.expect("sent");
        });
        ours.closed_by_peer().await.expect("told");
        assert!(ours.peer_closed());
        assert_eq!(read_to_end(&ours, 0).await, b"bye");
    });
}

/// Waits past false readiness: of sockets that were never tried, and of the simulation.
async fn side(sock: &Sock, other: &Sock, ms: u64) -> Result<(Side, Vec<u8>), ErrorKind> {
    let until = Deadline::in_ms(ms);
    loop {
        let side = sock.readable_while(Some(other), until).await.map_err(|e| e.kind())?;
        match (side, sock.try_recv().expect("no error")) {
            (Side::This, None) => {}
            (side, page) => return Ok((side, page.unwrap_or_default().to_vec())),
        }
    }
}

/// Bytes of one of two sockets, and which it was. Waits past false readiness as above.
async fn either(one: &Sock, two: &Sock, ms: u64) -> Result<(Side, Vec<u8>), ErrorKind> {
    let until = Deadline::in_ms(ms);
    loop {
        let side = one.either_readable(two, until).await.map_err(|e| e.kind())?;
        let sock = if side == Side::This { one } else { two };
        if let Some(page) = sock.try_recv().expect("no error") {
            return Ok((side, page.to_vec()));
        }
    }
}

#[test]
fn one_wait_is_the_reader_of_two_sockets() {
    each_driver(|| async {
        let ((one, first), (two, second)) = (pair().expect("a pair"), pair().expect("a pair"));
        assert_eq!(either(&one, &two, 5).await, Err(ErrorKind::TimedOut));
        let mut chain = Chain::new();
        for _ in 0..3 {
            chain.write(b"2");
            second.send(&mut chain, Deadline::NEVER).await.expect("sent");
            assert_eq!(either(&one, &two, 60_000).await, Ok((Side::Other, b"2".to_vec())));
            chain.write(b"1");
            first.send(&mut chain, Deadline::NEVER).await.expect("sent");
            assert_eq!(either(&one, &two, 60_000).await, Ok((Side::This, b"1".to_vec())));
        }
        // A wait that is given up leaves both sockets to others.
        assert!(event::timeout(5, either(&one, &two, 60_000)).await.is_err());
        assert_eq!(either(&two, &one, 5).await, Err(ErrorKind::TimedOut));
        drop(second);
        assert_eq!(either(&one, &two, 60_000).await, Ok((Side::Other, Vec::new())));
    });
}

#[test]
fn one_wait_looks_at_two_sockets() {
    each_driver(|| async {
        let ((near, upstream), (ours, client)) = (pair().expect("a pair"), pair().expect("a pair"));
        assert_eq!(side(&near, &ours, 5).await, Err(ErrorKind::TimedOut));
        let mut chain = Chain::new();
        chain.write(b"request");
        // The wait is not for bytes of the other peer.
        client.send(&mut chain, Deadline::NEVER).await.expect("sent");
        assert!(event::timeout(200, side(&near, &ours, 60_000)).await.is_err());
        assert_eq!(read_some(&ours, 7).await, b"request");
        chain.write(b"a");
        upstream.send(&mut chain, Deadline::NEVER).await.expect("sent");
        assert_eq!(side(&near, &ours, 60_000).await, Ok((Side::This, b"a".to_vec())));
        // The first watcher is woken by either; others by their own socket alone.
        let told = Rc::new(Cell::new(false));
        let (ours, told_here) = (Rc::new(ours), told.clone());
        let also = ours.clone();
        event::spawn(async move {
            assert_eq!(side(&near, &also, 60_000).await, Ok((Side::Other, Vec::new())));
            // Known from now on.
            assert_eq!(side(&near, &also, 60_000).await, Ok((Side::Other, Vec::new())));
            told_here.set(true);
            drop(upstream);
        });
        turns(2).await;
        let (own, _peer) = pair().expect("a pair");
        assert_eq!(side(&own, &ours, 5).await, Err(ErrorKind::TimedOut));
        drop(client);
        until(|| told.get()).await;
    });
}

async fn read_some(sock: &Sock, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        all.extend_from_slice(&sock.recv(1, Deadline::in_ms(60_000)).await.expect("received"));
    }
    all
}

#[test]
fn a_wait_that_is_given_up_loses_nothing() {
    each_driver(|| async {
        let (ours, theirs) = pair().expect("a pair");
        let sent = pattern(5000, 9);
        let bytes = Bytes::from(sent.clone());
        event::spawn(async move {
            let mut chain = Chain::new();
            for at in (0..bytes.len()).step_by(500) {
                chain.push_bytes(bytes.slice(at..at + 500));
                theirs.send(&mut chain, Deadline::NEVER).await.expect("sent");
                event::sleep(7).await;
            }
        });
        let mut all = Vec::new();
        let mut given_up = 0;
        while all.len() < sent.len() {
            match event::timeout(1, ours.readable(Deadline::NEVER)).await {
                Ok(ready) => ready.expect("readable"),
                Err(event::Elapsed) => given_up += 1,
            }
            let page = ours.try_recv().expect("received");
            all.extend_from_slice(&page.unwrap_or_default());
        }
        assert!(all == sent && given_up > 0);
    });
}

#[test]
fn sockets_close_while_operations_are_under_way() {
    each_driver(|| async {
        let (ours, theirs) = pair().expect("a pair");
        let task = event::spawn(async move {
            let _ = ours.recv(1, Deadline::NEVER).await;
        });
        turns(2).await;
        assert_eq!(event::connections_in_use(), 2);
        event::task::cancel(task);
        assert_eq!(read_to_end(&theirs, 0).await, b"");
        assert_eq!(event::connections_in_use(), 1);
        // Its own wait has ended, and with the descriptor the other's operation.
        assert_eq!(event::stats().waiting, 0);
        drop(theirs);
        // The driver's operation does not stop the next one.
        let (ours, theirs) = pair().expect("a pair");
        let mut chain = Chain::new();
        chain.push_bytes(Bytes::from(vec![1; 4 << 20]));
        let given_up = event::timeout(50, theirs.send(&mut chain, Deadline::NEVER)).await;
        assert!(given_up.is_err());
        drop(theirs);
        while ours.recv(1, Deadline::in_ms(60_000)).await.is_ok_and(|page| !page.is_empty()) {}
        drop(ours);
        until(nothing_is_left).await;
    });
}

#[test]
fn the_first_to_end_wins() {
    each_driver(|| async {
        let (ours, theirs) = pair().expect("a pair");
        event::spawn(async move {
            turns(2).await;
            drop(theirs);
        });
        let ended = event::race(ours.closed_by_peer(), event::sleep(60_000)).await;
        assert!(matches!(ended, Either::First(Ok(()))));
        let ended = event::race(std::future::pending::<()>(), event::sleep(1)).await;
        assert_eq!(ended, Either::Second(()));
        assert_eq!(event::stats().waiting, 0);
    });
}

thread_local! {
    static GONE: Rc<event::Notify> = Rc::new(event::Notify::new());
}

/// Bytes with a destructor that uses the loop.
struct Watched;

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        b"watched"
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        GONE.with(|gone| gone.notify_one());
    }
}

#[test]
fn pieces_may_use_the_loop_when_they_go() {
    each_driver(|| async {
        let (ours, theirs) = pair().expect("a pair");
        let told = Rc::new(Cell::new(false));
        let tell = told.clone();
        event::spawn(async move {
            GONE.with(Rc::clone).notified().await;
            tell.set(true);
        });
        let mut chain = Chain::new();
        chain.push_bytes(Bytes::from_owner(Watched));
        ours.send(&mut chain, Deadline::in_ms(60_000)).await.expect("sent");
        drop(theirs);
        until(|| told.get()).await;
    });
}
