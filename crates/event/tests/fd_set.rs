//! Descriptors that one task waits for together, on every driver over real sockets.

use std::net::UdpSocket;
use std::rc::Rc;

use event::{Deadline, FdSet, Gate, Loop, Member, Options};

fn run<F: Future<Output = ()> + 'static>(body: impl Fn() -> F) {
    for driver in event::testing::real_drivers() {
        eprintln!("driver: {}", driver.name());
        let mut event_loop = Loop::new(Options { driver, ..Options::default() }).expect("a loop");
        event_loop.block_on(body()).expect("the loop runs");
    }
}

/// A member, and a socket that sends to it.
fn member(set: &FdSet, tag: u32) -> (Member, UdpSocket) {
    let [ours, theirs] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    theirs.connect(ours.local_addr().expect("an address")).expect("connected");
    ours.set_nonblocking(true).expect("nonblocking");
    (set.add(ours.into(), tag), theirs)
}

fn receive(member: &Member) -> usize {
    os::datagram::recv(member.fd(), &mut [0; 9]).expect("a datagram").len
}

/// The tags that come within a time.
async fn tags(set: &FdSet, ms: u64) -> Vec<u32> {
    set.ready(&Gate::new(), Deadline::in_ms(ms)).await;
    let mut tags = Vec::new();
    set.take_ready(&mut tags);
    tags.sort_unstable();
    tags.dedup();
    tags
}

#[test]
fn members_are_reported_until_they_are_read() {
    run(|| async {
        let set = FdSet::new();
        let ((a, to_a), (b, to_b)) = (member(&set, 7), member(&set, 9));
        for member in [&a, &b] {
            member.watch().expect("watched");
        }
        to_a.send(b"one").expect("sent");
        assert_eq!(tags(&set, 5000).await, [7]);
        // It was not read: watched again, it is reported again.
        a.watch().expect("watched");
        assert_eq!(tags(&set, 5000).await, [7]);
        a.watch().expect("watched");
        for text in [&b"three"[..], b"four"] {
            to_a.send(text).expect("sent");
        }
        to_b.send(b"x").expect("sent");
        let mut found = (Vec::new(), Vec::new());
        while found.0.len() + found.1.len() < 4 {
            let tags = tags(&set, 5000).await;
            assert!(!tags.is_empty(), "{found:?}");
            for tag in tags {
                let (member, found) =
                    if tag == 7 { (&a, &mut found.0) } else { (&b, &mut found.1) };
                // One at a time.
                found.push(receive(member));
                member.watch().expect("watched");
            }
        }
        assert_eq!(found, (vec![3, 5, 4], vec![1]));
        assert_eq!(tags(&set, 20).await, []);
        assert_eq!(event::connections_in_use(), 0);
    });
}

#[test]
fn what_is_silenced_is_not_reported() {
    run(|| async {
        let set = FdSet::new();
        let (a, to_a) = member(&set, 1);
        a.watch().expect("watched");
        to_a.send(b"one").expect("sent");
        assert_eq!(tags(&set, 5000).await, [1]);
        a.silence();
        // A report that was under way may still come.
        tags(&set, 20).await;
        assert_eq!(tags(&set, 20).await, []);
        a.watch().expect("watched");
        assert_eq!(tags(&set, 5000).await, [1]);
        drop(a);
        tags(&set, 20).await;
        assert_eq!(tags(&set, 20).await, [], "it is gone");
    });
}

#[test]
fn gates_and_wakes_end_the_wait() {
    run(|| async {
        let (set, gate) = (Rc::new(FdSet::new()), Gate::new());
        let (waker, closer) = (set.clone(), gate.clone());
        event::spawn(async move { waker.wake() });
        set.ready(&gate, Deadline::NEVER).await;
        event::spawn(async move { closer.close() });
        set.ready(&gate, Deadline::NEVER).await;
        // A closed one is no reason to wake.
        set.ready(&gate, Deadline::in_ms(5)).await;
        set.wake();
    });
}
