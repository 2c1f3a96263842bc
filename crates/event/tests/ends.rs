//! The end of a stream that comes together with its last bytes: it is reported as the bytes are,
//! and not when the driver happens to look at the socket again.

use std::cell::RefCell;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use event::testing::{real_drivers, turns, until};
use event::{Deadline, Loop, Options, Sock};

/// The bytes that were received, and how it ended: with an error or without.
#[derive(Default)]
struct Read {
    bytes: Vec<u8>,
    ended: Option<Result<(), std::io::ErrorKind>>,
}

async fn read(sock: Rc<Sock>, into: Rc<RefCell<Read>>) {
    loop {
        match sock.recv(1, Deadline::NEVER).await {
            Ok(page) if !page.is_empty() => into.borrow_mut().bytes.extend_from_slice(&page),
            end => return into.borrow_mut().ended = Some(end.map(drop).map_err(|e| e.kind())),
        }
    }
}

/// A reader, and a peer outside of the loop that sends some bytes, and later the last ones together
/// with the end, between two turns of the loop. `waits`: the reader is there when they come;
/// otherwise it comes back for them after more pieces than a driver keeps for it.
async fn ends<P: Write + AsFd>(ours: OwnedFd, mut peer: P, reset: bool, waits: bool) {
    rustix::io::ioctl_fionbio(&ours, true).expect("a nonblocking socket");
    let sock = Rc::new(Sock::from_fd(ours));
    let seen = Rc::new(RefCell::new(Read::default()));
    let reader = event::spawn(read(sock.clone(), seen.clone()));
    // Drivers may wait in another way after the first bytes, and again after the second ones.
    for so_far in 1..4 {
        peer.write_all(b".").expect("sent");
        until(|| seen.borrow().bytes.len() == so_far).await;
        turns(2).await;
    }
    if !waits {
        event::task::cancel(reader);
        for _ in 0..10 {
            peer.write_all(b",").expect("sent");
            turns(2).await;
        }
    }
    peer.write_all(b"last").expect("sent");
    if reset {
        os::socket::set_reset_on_close(&peer).expect("an option");
    }
    drop(peer);
    if !waits {
        event::spawn(read(sock.clone(), seen.clone()));
    }
    turns(40).await;
    let seen = seen.borrow();
    let expected: &[u8] = if waits { b"...last" } else { b"...,,,,,,,,,,last" };
    assert_eq!(seen.bytes, expected);
    assert!(matches!(seen.ended, Some(ended) if ended.is_err() == reset), "{:?}", seen.ended);
}

async fn both_ways<P: Write + AsFd>(pair: impl Fn() -> (OwnedFd, P), reset: bool) {
    for waits in [true, false] {
        let (ours, peer) = pair();
        ends(ours, peer, reset, waits).await;
    }
}

/// On every driver over real sockets; tells all that fail.
fn on_each<F: Future<Output = ()> + 'static>(body: impl Fn() -> F) {
    let fails = |driver: &event::DriverKind| {
        let event_loop = Loop::new(Options { driver: *driver, ..Options::default() });
        event_loop.and_then(|mut event_loop| event_loop.block_on(body())).is_err()
    };
    let failed: Vec<_> = real_drivers().into_iter().filter(fails).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

fn tcp() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let ours = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    (ours.into(), listener.accept().expect("accepted").0)
}

#[test]
fn the_end_of_a_unix_stream_is_seen_with_its_last_bytes() {
    let pair = || {
        let (ours, peer) = UnixStream::pair().expect("a pair");
        (ours.into(), peer)
    };
    on_each(|| both_ways(pair, false));
}

#[test]
fn the_reset_of_a_unix_stream_is_seen_with_its_last_bytes() {
    let pair = || {
        let (mut ours, peer) = UnixStream::pair().expect("a pair");
        // The peer has not read it when it closes.
        ours.write_all(b"unread").expect("sent");
        (ours.into(), peer)
    };
    on_each(|| both_ways(pair, true));
}

#[test]
fn the_end_of_a_tcp_stream_is_seen_with_its_last_bytes() {
    on_each(|| both_ways(tcp, false));
}

#[test]
fn the_reset_of_a_tcp_stream_is_seen_with_its_last_bytes() {
    on_each(|| async {
        let (ours, peer) = tcp();
        // Where it comes before the reader, the ring may find it seconds later.
        ends(ours, peer, true, true).await;
    });
}
