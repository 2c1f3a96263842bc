//! Sends that are left to the driver: they keep their order, end with their deadline, and outlive
//! the socket's owner.

use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;

use bytes::Bytes;
use event::testing::{each_driver, pair, read_to_end, real_drivers, turns, until};
use event::{Deadline, DriverKind, Loop, Options, Sock};
use mem::Chain;

const LONG: Deadline = Deadline::NEVER;

fn nothing_is_left() -> bool {
    let stats = event::stats();
    (event::posted(), event::connections_in_use(), stats.waiting) == (0, 0, 0)
}

fn chain(bytes: &[u8]) -> Chain {
    let mut chain = Chain::new();
    // Several pieces, so that a send that falls short ends within one of them.
    for piece in bytes.chunks(bytes.len() / 3 + 1) {
        chain.push_bytes(Bytes::copy_from_slice(piece));
    }
    chain
}

async fn out(sock: &Sock, bytes: &[u8]) {
    let mut chain = chain(bytes);
    if !sock.post(&mut chain, LONG) {
        sock.send(&mut chain, LONG).await.expect("sent");
    }
    assert!(chain.is_empty());
}

fn piece(number: usize) -> Vec<u8> {
    let len = [1, 3000, 900, 16_000, 40_000][number % 5];
    (0..len).map(|at| (at * 7 + number) as u8).collect()
}

#[test]
fn what_is_posted_keeps_its_order_and_comes_before_the_end() {
    each_driver(|| async {
        for end in 0..3 {
            let (ours, theirs) = pair().expect("a pair");
            let ours = Rc::new(ours);
            let sender = ours.clone();
            let sent = event::spawn(async move {
                for number in 0..20 {
                    out(&sender, &piece(number)).await;
                }
                match end {
                    // It closes behind the last piece,
                    0 => drop(sender),
                    // or ends the sending direction, twice to no harm,
                    1 => {
                        sender.shutdown_write().expect("shut down");
                        sender.shutdown_write().expect("shut down");
                    }
                    // or waits until all is sent.
                    _ => {
                        sender.writable(LONG).await.expect("writable");
                        sender.shutdown_write().expect("shut down");
                    }
                }
            });
            let ours = (end != 0).then_some(ours);
            let expected: Vec<u8> = (0..20).flat_map(piece).collect();
            assert!(read_to_end(&theirs, 1).await == expected, "end {end}");
            let mut answer = chain(b"seen");
            theirs.send(&mut answer, LONG).await.ok();
            if let Some(ours) = ours {
                drop(theirs);
                assert_eq!(read_to_end(&ours, 1).await, b"seen");
            }
            event::task::cancel(sent);
        }
        until(nothing_is_left).await;
    });
}

/// Many small answers, more than the buffers of both take, to a peer that ends its sending
/// direction at some moment, and reads late.
async fn answer_half(before: bool) {
    let (listener, addr) = event::testing::listen().expect("a listener");
    let theirs = event::testing::connect(&addr).await.expect("connected");
    let ours = listener.accept().await.expect("accepted").sock;
    if before {
        theirs.shutdown_write().expect("shut down");
        ours.readable(LONG).await.expect("readable");
    }
    let (len, count) = (16_000, 1000);
    let done = Rc::new(Cell::new((0, false)));
    let count_here = done.clone();
    event::spawn(async move {
        // The sender fills the socket in a few turns.
        turns(8).await;
        if !before {
            theirs.shutdown_write().expect("shut down");
        }
        turns(8).await;
        loop {
            let page = theirs.recv(0, LONG).await.expect("received");
            count_here.set((count_here.get().0 + page.len(), page.is_empty()));
            if page.is_empty() {
                return;
            }
        }
    });
    for _ in 0..count {
        let mut chain = chain(&vec![b'.'; len]);
        if !ours.post(&mut chain, LONG) {
            ours.send(&mut chain, LONG).await.expect("sent");
        }
    }
    drop(ours);
    until(|| done.get().1).await;
    assert_eq!(done.get().0, len * count);
}

#[test]
fn answers_to_a_peer_that_sends_no_more_are_not_cut() {
    // It is the kernel's buffers that fill.
    for driver in real_drivers() {
        let mut event_loop = Loop::new(Options { driver, ..Options::default() }).expect("a loop");
        let ran = event_loop.block_on(async {
            answer_half(true).await;
            answer_half(false).await;
        });
        assert!(ran.is_ok(), "on {driver:?}: {ran:?}");
    }
}

/// Posts until a send is on its way that the peer, which does not read, leaves no room for.
async fn fill(sock: &Sock, deadline: Deadline) -> bool {
    let piece = vec![b'.'; 16_000];
    for _ in 0..10_000 {
        if !sock.post(&mut chain(&piece), deadline) {
            if event::posted() == 0 {
                return false;
            }
            // One is on its way: will it land?
            event::sleep(30).await;
            if event::posted() > 0 {
                return true;
            }
        }
    }
    unreachable!("no socket takes all of that")
}

/// `half`: the peer ends its sending direction, so that the kernel does not wait for room.
async fn outlast(half: bool) {
    let (ours, theirs) = pair().expect("a pair");
    if !fill(&ours, Deadline::in_ms(400)).await {
        // A driver that takes no posts.
        return;
    }
    if half {
        theirs.shutdown_write().expect("shut down");
        ours.readable(LONG).await.expect("readable");
    }
    let error = ours.send(&mut chain(b"behind"), Deadline::in_ms(20)).await.expect_err("full");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // The parked task wakes, and finds the connection broken for both directions.
    if half {
        until(|| event::posted() == 0).await;
    }
    while event::posted() > 0 {
        assert!(ours.try_recv().is_ok_and(|page| page.is_none()));
        ours.readable(LONG).await.expect("readable");
    }
    assert!(ours.peer_closed());
    let error = ours.recv(1, LONG).await.expect_err("broken");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert!(ours.send(&mut chain(b"x"), LONG).await.is_err());
    assert!(!ours.post(&mut chain(b"x"), LONG));
    drop((ours, theirs));
    until(nothing_is_left).await;
}

#[test]
fn what_the_peer_does_not_take_ends_with_its_deadline() {
    each_driver(|| async {
        outlast(false).await;
        outlast(true).await;
    });
}

#[test]
fn a_closed_socket_still_sends_what_was_posted() {
    each_driver(|| async {
        let (ours, theirs) = pair().expect("a pair");
        if !fill(&ours, LONG).await {
            return;
        }
        drop(ours);
        turns(8).await;
        assert_eq!(event::posted(), 1, "it is still on its way");
        let all = read_to_end(&theirs, 1).await;
        assert!(all.len() >= 16_000 && all.len() % 16_000 == 0, "{} bytes", all.len());
        until(|| event::posted() == 0 && event::stats().waiting == 0).await;
    });
}

#[test]
fn a_loop_ends_although_a_send_is_on_its_way() {
    for driver in event::testing::drivers() {
        let mut event_loop = Loop::new(Options { driver, ..Options::default() }).expect("a loop");
        let filled = event_loop.block_on(async {
            let (ours, theirs) = pair().expect("a pair");
            let filled = fill(&ours, LONG).await;
            event::spawn(async move {
                let _both = (ours, theirs);
                std::future::pending::<()>().await;
            });
            filled
        });
        let takes = matches!(driver, DriverKind::Uring) && driver.is_available();
        assert!(filled.expect("it runs") || !takes, "{driver:?}");
    }
}
