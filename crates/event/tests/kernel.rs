//! The loop over real sockets.

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use bytes::Bytes;
use event::testing::{echo, read_to_end, turns, until};
use event::{Deadline, DriverKind, Gate, ListenOpts, Listener, Loop, Notify, Options, Sock, Wake};
use mem::{Chain, Page};
use os::SockAddr;

/// Runs the test on every driver over real sockets.
fn run<F: Future<Output = ()> + 'static>(body: impl Fn() -> F) {
    run_with(Options::default, body);
}

fn run_with<F: Future<Output = ()> + 'static>(options: impl Fn() -> Options, body: impl Fn() -> F) {
    for driver in event::testing::real_drivers() {
        eprintln!("driver: {}", driver.name());
        let mut event_loop = Loop::new(Options { driver, ..options() }).expect("a loop");
        event_loop.block_on(body()).expect("the loop runs");
    }
}

fn listen() -> (Listener, SockAddr) {
    let addr = SockAddr::parse(b"127.0.0.1:0").expect("an address");
    let fd = os::socket::socket(&addr, os::socket::Kind::Stream).expect("a socket");
    os::socket::bind(&fd, &addr).expect("bind");
    os::socket::listen(&fd, 64).expect("listen");
    let addr = os::socket::local_addr(&fd).expect("a local address");
    (Listener::new(fd, ListenOpts::default()), addr)
}

fn pair() -> (Sock, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("nonblocking");
    (Sock::from_fd(ours.into()), theirs)
}

async fn connect(addr: &SockAddr) -> Sock {
    let fd = os::socket::socket(addr, os::socket::Kind::Stream).expect("a socket");
    let sock = Sock::from_fd(fd);
    sock.connect(addr, Deadline::in_ms(5000)).await.expect("connected");
    sock
}

#[test]
fn echo_over_tcp() {
    run(|| async {
        let (listener, addr) = listen();
        event::spawn(async move {
            while let Ok(accepted) = listener.accept().await {
                event::spawn(echo(accepted.sock));
            }
        });
        for n in 0..20u8 {
            let sock = connect(&addr).await;
            let mut chain = Chain::new();
            chain.push_bytes(Bytes::from(vec![n; 100_000]));
            sock.send(&mut chain, Deadline::in_ms(5000)).await.expect("sent");
            sock.shutdown_write().expect("shut down");
            assert_eq!(read_to_end(&sock, 0).await, vec![n; 100_000]);
        }
        assert_eq!(event::connections_in_use(), 0);
        assert_eq!(event::stats().accepted, 20);
    });
}

#[test]
fn deadlines_end_operations() {
    run(|| async {
        let (sock, peer) = pair();
        let start_ms = base::time::exact_ms();
        let error = sock.recv(1, Deadline::in_ms(30)).await.expect_err("nothing came");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(base::time::exact_ms() >= start_ms + 29);
        let error = sock.readable(Deadline::in_ms(0)).await.expect_err("nothing came");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let mut chain = Chain::new();
        chain.push_bytes(Bytes::from(vec![1; 8 << 20]));
        let error = sock.send(&mut chain, Deadline::in_ms(30)).await.expect_err("nobody reads");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(chain.len() < 8 << 20 && !chain.is_empty());
        assert_eq!(event::stats().waiting, 0);
        drop(peer);
        let error = sock.send(&mut chain, Deadline::in_ms(30)).await.expect_err("nobody there");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_slow_reader_gets_everything() {
    run(|| async {
        let (sock, mut peer) = pair();
        let loop_thread = os::thread::id();
        let reader = std::thread::spawn(move || {
            let (mut all, mut part) = (0, vec![0; 65536]);
            loop {
                // It reads when the sender waits, for room or in the end for this thread.
                while !os::thread::is_waiting(loop_thread) {
                    std::thread::yield_now();
                }
                match peer.read(&mut part).expect("read") {
                    0 => return all,
                    n => all += n,
                }
            }
        });
        let file = tempfile(300_000);
        let mut chain = Chain::new();
        chain.write(b"head");
        chain.push_file(file.into(), 1000, 300_000);
        for _ in 0..200 {
            chain.push_bytes(Bytes::from(vec![7; 5000]));
        }
        sock.send(&mut chain, Deadline::in_ms(60_000)).await.expect("sent");
        assert!(chain.is_empty());
        drop(sock);
        // A driver may close with its next turn.
        turns(2).await;
        assert_eq!(reader.join().expect("joined"), 4 + 299_000 + 1_000_000);
    });
}

/// Sends memory without waiting, a file, memory, and as much as there is room for, to a peer that
/// has ended its sending direction, before that or once the socket was full.
async fn send_to_half(
    (ours, theirs): (Sock, Sock),
    len: usize,
    (before, file_first): (bool, bool),
) {
    let limit = || Deadline::in_ms(60_000);
    if before {
        theirs.shutdown_write().expect("shut down");
        assert!(ours.recv(0, limit()).await.expect("received").is_empty());
    }
    let got = Rc::new(Cell::new(None));
    let into = got.clone();
    event::spawn(async move {
        // The sender fills the socket in a few turns.
        turns(8).await;
        if !before {
            theirs.shutdown_write().expect("shut down");
            turns(8).await;
        }
        into.set(Some(read_to_end(&theirs, 0).await.len()));
    });
    let mut chain = Chain::new();
    chain.write(b"head");
    if file_first {
        if !ours.post(&mut chain, limit()) {
            ours.send(&mut chain, limit()).await.expect("the head is sent");
        }
        chain.push_file(tempfile(len as u64).into(), 0, len as u64);
        ours.send(&mut chain, limit()).await.expect("the file is sent");
    }
    chain.push_bytes(Bytes::from(vec![1; len]));
    ours.send(&mut chain, limit()).await.expect("the memory is sent");
    chain.push_bytes(Bytes::from(vec![2; len]));
    while !chain.is_empty() {
        ours.writable(limit()).await.expect("writable");
        ours.try_send(&mut chain, None).expect("sent");
    }
    drop(ours);
    until(|| got.get().is_some()).await;
    assert_eq!(got.get(), Some(4 + len * (2 + usize::from(file_first))));
}

#[test]
fn a_peer_that_sends_no_more_gets_all_however_late_it_reads() {
    run(|| async {
        for order in [(true, true), (true, false), (false, true), (false, false)] {
            let local = event::testing::pair().expect("a pair");
            send_to_half(local, 1 << 20, order).await;
            let (listener, addr) = listen();
            let theirs = connect(&addr).await;
            let ours = listener.accept().await.expect("accepted").sock;
            // More than the buffers of both grow to.
            send_to_half((ours, theirs), 12 << 20, order).await;
        }
    });
}

fn tempfile(len: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    rustix::fs::ftruncate(&fd, len).expect("ftruncate");
    fd
}

#[test]
fn a_truncated_file_is_an_error() {
    run(|| async {
        let (sock, _peer) = pair();
        let mut chain = Chain::new();
        chain.push_file(tempfile(10).into(), 0, 20);
        let sent = sock.send_some(&mut chain, None, Deadline::NEVER).await;
        assert_eq!(sent.expect("the first part"), 10);
        let error = sock.send(&mut chain, Deadline::NEVER).await.expect_err("truncated");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    });
}

#[test]
fn send_some_keeps_to_its_limit() {
    run(|| async {
        let (sock, mut peer) = pair();
        let mut chain = Chain::new();
        chain.write(b"abc");
        chain.push_bytes(Bytes::from_static(b"defg"));
        let sent = sock.send_some(&mut chain, Some(5), Deadline::NEVER).await.expect("sent");
        assert_eq!((sent, chain.len()), (5, 2));
        assert_eq!(sock.try_send(&mut chain, None).expect("sent"), 2);
        let mut got = [0; 7];
        peer.read_exact(&mut got).expect("read");
        assert_eq!(&got, b"abcdefg");
    });
}

#[test]
fn known_to_be_empty_costs_no_call() {
    run(|| async {
        let (sock, mut peer) = pair();
        peer.write_all(b"x").expect("write");
        assert_eq!(&*sock.try_recv().expect("no error").expect("a byte"), b"x");
        // Never registered: the loop cannot know of these bytes, and does not ask.
        peer.write_all(b"y").expect("write");
        assert!(sock.try_recv().expect("no error").is_none());
        sock.readable(Deadline::in_ms(1000)).await.expect("readable");
        assert_eq!(&*sock.try_recv().expect("no error").expect("a byte"), b"y");
        drop(peer);
        let mut page = Page::get(0);
        assert_eq!(sock.recv_into(&mut page, Deadline::in_ms(1000)).await.expect("the end"), 0);
        assert!(sock.peer_closed());
        assert_eq!(sock.try_recv_into(&mut page).expect("still the end"), Some(0));
    });
}

#[test]
fn end_of_stream_behind_data_is_seen() {
    run(|| async {
        let (sock, mut peer) = pair();
        sock.try_recv().expect("nothing yet");
        event::spawn(async move {
            turns(2).await;
            peer.write_all(b"last words").expect("write");
        });
        assert_eq!(read_to_end(&sock, 0).await, b"last words");
    });
}

#[test]
fn parked_connections_wake_for_data_gate_and_want() {
    let options = || Options { connections: 20, ..Options::default() };
    run_with(options, || async {
        let gate = Gate::new();
        let woken = Rc::new(RefCell::new(Vec::new()));
        let mut peers = Vec::new();
        for n in 0..16 {
            let (sock, peer) = pair();
            peers.push(peer);
            let (gate, woken) = (gate.clone(), woken.clone());
            event::spawn(async move {
                sock.try_recv().expect("nothing yet");
                let wake = sock.readable_or(&gate, Deadline::in_ms(10_000)).await;
                woken.borrow_mut().push((n, wake.expect("no error")));
            });
        }
        turns(2).await;
        peers[3].write_all(b"x").expect("write");
        until(|| !woken.borrow().is_empty()).await;
        assert_eq!(woken.take(), [(3, Wake::Ready)]);
        // 15 left of 20: five more leave none, and the oldest go as room gets scarce.
        let more: Vec<_> = (0..5).map(|_| pair()).collect();
        until(|| !woken.borrow().is_empty()).await;
        turns(2).await;
        let reclaimed = woken.take();
        assert_eq!(reclaimed[0], (0, Wake::Reclaim));
        gate.close();
        until(|| reclaimed.len() + woken.borrow().len() == 15).await;
        let at_gate = woken.take();
        assert!(at_gate.len() > 10 && at_gate.iter().all(|(_, wake)| *wake == Wake::Gate));
        until(|| event::connections_in_use() == more.len()).await;
        assert_eq!(event::connections_in_use(), more.len());
    });
}

#[test]
fn dropped_operations_leave_nothing() {
    run(|| async {
        let (sock, mut peer) = pair();
        let sock = Rc::new(sock);
        let before = event::stats().waiting;
        let task = {
            let sock = sock.clone();
            event::spawn(async move {
                let _ = sock.recv(1, Deadline::in_ms(50)).await;
                panic!("was cancelled before");
            })
        };
        turns(2).await;
        let busy = sock.recv(1, Deadline::NEVER).await.expect_err("one waiter each way");
        assert_eq!(busy.kind(), ErrorKind::ResourceBusy);
        event::task::cancel(task);
        until(|| event::stats().waiting == before).await;
        peer.write_all(b"kept").expect("write");
        assert_eq!(&*sock.recv(1, Deadline::in_ms(1000)).await.expect("received"), b"kept");
        assert_eq!(Rc::strong_count(&sock), 1);
    });
}

#[test]
fn a_panic_costs_its_task_alone() {
    let (log, lines) = base::log::capture(base::log::Level::Alert);
    base::log::set_default(log);
    run(|| async {
        let (sock, mut peer) = pair();
        event::spawn(async move {
            let _sock = sock;
            panic!("on purpose");
        });
        // A driver may close with its next turn.
        turns(2).await;
        assert_eq!(peer.read(&mut [0; 1]).expect("closed"), 0);
    });
    assert!(lines.take().contains("panic in a task: on purpose"));
}

#[test]
fn other_threads_wake_tasks() {
    run(|| async {
        let (to_thread, wakers) = std::sync::mpsc::channel::<std::task::Waker>();
        let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (seen, loop_thread) = (done.clone(), os::thread::id());
        let thread = std::thread::spawn(move || {
            let waker = wakers.recv().expect("a waker");
            while !os::thread::is_waiting(loop_thread) {
                std::thread::yield_now();
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            waker.wake();
        });
        let polls = Cell::new(0);
        std::future::poll_fn(|cx| {
            polls.set(polls.get() + 1);
            if seen.load(std::sync::atomic::Ordering::SeqCst) {
                return std::task::Poll::Ready(());
            }
            to_thread.send(cx.waker().clone()).expect("sent");
            std::task::Poll::Pending
        })
        .await;
        assert_eq!(polls.get(), 2);
        thread.join().expect("joined");
    });
}

#[test]
fn notify_passes_words_on() {
    run(|| async {
        let notify = Rc::new(Notify::new());
        notify.notify_one();
        notify.notified().await;
        let woken = Rc::new(Cell::new(0));
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let (notify, woken) = (notify.clone(), woken.clone());
                event::spawn(async move {
                    notify.notified().await;
                    woken.set(woken.get() + 1);
                })
            })
            .collect();
        turns(2).await;
        notify.notify_one();
        // The first was notified but not polled: its notification goes to the second.
        event::task::cancel(tasks[0]);
        turns(2).await;
        assert_eq!(woken.get(), 1);
        notify.notify_all();
        turns(2).await;
        assert_eq!(woken.get(), 2);
    });
}

#[test]
fn who_waited_long_enough_is_not_told() {
    run(|| async {
        let notify = Rc::new(Notify::new());
        assert!(!notify.notified_by(Deadline::in_ms(5)).await);
        // Without waiters nothing is woken, and the next one waits for its own deadline.
        assert_eq!(notify.notify_some(1), 0);
        let other = notify.clone();
        event::spawn(async move { other.notify_one() });
        assert!(notify.notified_by(Deadline::in_ms(10_000)).await);
        assert_eq!(event::stats().waiting, 0);
    });
}

#[test]
fn some_are_woken_and_nothing_is_kept() {
    run(|| async {
        let notify = Rc::new(Notify::new());
        // Without waiters; the next one waits.
        assert_eq!(notify.notify_some(2), 0);
        let woken = Rc::new(RefCell::new(Vec::new()));
        for i in 0..5 {
            let (notify, woken) = (notify.clone(), woken.clone());
            event::spawn(async move {
                notify.notified().await;
                woken.borrow_mut().push(i);
            });
        }
        turns(2).await;
        assert!(woken.borrow().is_empty());
        assert_eq!(notify.notify_some(2), 2);
        turns(2).await;
        assert_eq!(*woken.borrow(), [0, 1]);
        assert_eq!(notify.notify_some(9), 3);
        turns(2).await;
        assert_eq!(*woken.borrow(), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn timeout_drops_what_takes_too_long() {
    run(|| async {
        assert_eq!(event::timeout(1000, async { 5 }).await, Ok(5));
        assert_eq!(event::timeout(10, std::future::pending::<()>()).await, Err(event::Elapsed));
        assert_eq!(event::stats().waiting, 0);
    });
}

#[test]
fn refused_connections_say_so() {
    run(|| async {
        let (listener, addr) = listen();
        drop(listener);
        turns(2).await;
        let fd = os::socket::socket(&addr, os::socket::Kind::Stream).expect("a socket");
        let sock = Sock::from_fd(fd);
        let error = sock.connect(&addr, Deadline::in_ms(1000)).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn drain_takes_what_the_kernel_holds() {
    run(|| async {
        let (listener, addr) = listen();
        let SockAddr::V4(v4) = addr else { panic!("an IPv4 address") };
        listener.pause();
        let clients: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(v4).expect("connected")).collect();
        let drained = listener.drain();
        assert_eq!(drained.len(), clients.len());
    });
}

#[test]
fn a_coarse_clock_moves_in_steps() {
    let options = || Options { timer_resolution_ms: 40, ..Options::default() };
    run_with(options, || async {
        let before = base::time::now_ms();
        for _ in 0..5 {
            event::sleep(1).await;
        }
        // Each sleep ends with a step of the clock, not with its own millisecond.
        let passed = base::time::now_ms() - before;
        assert!(passed >= 5 * 40 - 45, "{passed} ms");
    });
}

/// A kept connection that was idle for so long that a driver may have changed how it waits for it.
#[test]
fn a_long_idle_connection_wakes() {
    let driver = event::DriverKind::Uring;
    let mut event_loop = Loop::new(Options { driver, ..Options::default() }).expect("a loop");
    let body = async {
        let gate = Gate::new();
        let (sock, mut peer) = pair();
        for (words, idle_ms) in [("first", 0), ("second", 0), ("third", 2500), ("fourth", 0)] {
            event::spawn({
                let mut peer = peer.try_clone().expect("cloned");
                async move {
                    event::sleep(idle_ms + 5).await;
                    peer.write_all(words.as_bytes()).expect("written");
                }
            });
            let wake = sock.readable_or(&gate, Deadline::in_ms(10_000)).await;
            assert_eq!(wake.expect("no error"), Wake::Ready);
            let page = sock.recv(1, Deadline::in_ms(1000)).await.expect("received");
            assert_eq!(&*page, words.as_bytes());
        }
        // The same with an end instead of bytes.
        event::spawn(async move {
            event::sleep(2500).await;
            peer.write_all(b"bye").expect("written");
        });
        sock.readable(Deadline::in_ms(10_000)).await.expect("readable");
        assert_eq!(read_to_end(&sock, 0).await, b"bye");
    };
    event_loop.block_on(body).expect("the loop runs");
}

#[test]
fn what_nobody_receives_stays_with_the_peer() {
    run(|| async {
        let (sock, mut peer) = pair();
        peer.write_all(b"x").expect("written");
        assert_eq!(&*sock.recv(1, Deadline::in_ms(1000)).await.expect("received"), b"x");
        // Waiting may begin to receive; it must not go on for ever.
        assert!(sock.readable(Deadline::in_ms(5)).await.is_err());
        peer.set_nonblocking(true).expect("nonblocking");
        let part = vec![7; 64 * 1024];
        let mut sent = 0;
        for _ in 0..200 {
            while let Ok(count) = peer.write(&part) {
                sent += count;
                assert!(sent < 4 << 20, "received without limit");
            }
            turns(1).await;
        }
        drop(peer);
        assert_eq!(read_to_end(&sock, 0).await.len(), sent);
    });
}

#[test]
fn the_last_bytes_arrive_whole() {
    run(|| async {
        // With unread bytes the close is a reset, which must not overtake the bytes.
        for (size, chatter) in [(10, "unread"), (3_000_000, "")] {
            let (listener, addr) = listen();
            let theirs = connect(&addr).await;
            let ours = listener.accept().await.expect("accepted").sock;
            let mut chain = Chain::new();
            chain.push_bytes(Bytes::from_static(chatter.as_bytes()));
            theirs.send(&mut chain, Deadline::in_ms(5000)).await.expect("sent");
            event::spawn(async move {
                let mut chain = Chain::new();
                chain.push_bytes(Bytes::from(vec![7; size]));
                ours.send_last(&mut chain, Deadline::in_ms(5000)).await.expect("sent");
            });
            let mut received = 0;
            while received < size {
                let page = theirs.recv(1, Deadline::in_ms(5000)).await.expect("received");
                assert!(!page.is_empty(), "{received} of {size}");
                received += page.filled().len();
            }
            assert_eq!(received, size);
        }
    });
}

#[test]
fn the_end_comes_with_the_last_bytes() {
    run(|| async {
        let (listener, addr) = listen();
        let theirs = connect(&addr).await;
        let ours = listener.accept().await.expect("accepted").sock;
        let mut chain = Chain::new();
        chain.push_bytes(Bytes::from_static(b"all"));
        ours.send_last(&mut chain, Deadline::in_ms(5000)).await.expect("sent");
        if event::driver_name() == "io_uring" {
            // It closes behind its bytes.
            drop(ours);
        }
        assert_eq!(read_to_end(&theirs, 0).await, b"all");
    });
}

/// A peer that closes while bytes of ours are unread has its kernel send a reset. What it sent
/// before is in our kernel, and a failed send must not hide it: it may be a response.
#[test]
fn what_came_before_a_reset_is_read_behind_a_failed_send() {
    for driver in event::testing::real_drivers() {
        let mut event_loop = Loop::new(Options { driver, ..Options::default() }).expect("a loop");
        // A ring's receive that is with the kernel brings the bytes in a turn.
        let at_once = driver != DriverKind::Uring;
        event_loop.block_on(reads_before_a_reset(at_once)).expect("the loop runs");
    }
}

async fn reads_before_a_reset(at_once: bool) {
    let theirs = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let addr = os::socket::local_addr(&theirs).expect("its address");
    let ours = connect(&addr).await;
    let (mut peer, _) = theirs.accept().expect("accepted");
    let mut unread = Chain::new();
    unread.push_bytes(Bytes::from_static(b"nobody reads this"));
    ours.send(&mut unread, Deadline::in_ms(10_000)).await.expect("sent");
    peer.write_all(b"first").expect("written");
    let mut page = Page::new();
    ours.recv_into(&mut page, Deadline::in_ms(10_000)).await.expect("received");
    // The loop has no turn until the send fails: it learns of nothing.
    peer.write_all(b", last words").expect("written");
    let is_there = || {
        let sent = os::socket::tcp_sent(&peer).expect("Linux 4.19");
        sent.acked >= sent.written
    };
    while !is_there() {
        std::thread::yield_now();
    }
    drop(peer);
    loop {
        let mut more = Chain::new();
        more.push_bytes(Bytes::from_static(b"more"));
        match ours.try_send(&mut more, None) {
            // A ring posts it, and learns of the failure in a turn.
            Ok(_) => turns(1).await,
            Err(_) => break,
        }
    }
    loop {
        match ours.try_recv_into(&mut page) {
            Ok(Some(1..)) => {}
            Ok(None) => {
                // The end comes with the loop's next report.
                let has_all = page.filled() == b"first, last words";
                assert!(has_all || !at_once, "{:?} is read at once", page.filled());
                ours.readable(Deadline::in_ms(10_000)).await.expect("something to read");
            }
            Ok(Some(0)) | Err(_) => break,
        }
    }
    assert_eq!(page.filled(), b"first, last words");
}

/// Another process reads on where this one has stopped: a receive that waits in the kernel must
/// take no byte with it.
#[test]
fn a_socket_that_is_withdrawn_leaves_with_all_its_bytes() {
    run(|| async {
        for (before, behind) in [("", "late"), ("early", "late"), ("early", "")] {
            let (sock, mut theirs) = pair();
            // A new socket counts as readable until it was tried.
            assert!(sock.try_recv().expect("a try").is_none());
            {
                let wait = std::pin::pin!(sock.readable(Deadline::NEVER));
                let dropped = event::race(wait, std::pin::pin!(turns(3))).await;
                assert!(matches!(dropped, event::Either::Second(())), "nothing has arrived");
            }
            theirs.write_all(before.as_bytes()).expect("written");
            turns(3).await;
            sock.withdraw().await.expect("withdrawn");
            // From here on, nothing of this process takes a byte.
            theirs.write_all(behind.as_bytes()).expect("written");
            turns(3).await;
            let mut all = Vec::new();
            while let Some(page) = sock.take_received() {
                all.extend_from_slice(page.filled());
            }
            let other = sock.fd().try_clone_to_owned().expect("a duplicate");
            sock.part();
            drop(sock);
            turns(2).await;
            let mut other = UnixStream::from(other);
            other.write_all(b"still open").expect("written");
            let mut answer = [0; 10];
            theirs.read_exact(&mut answer).expect("the connection is open");
            drop(theirs);
            other.set_nonblocking(false).expect("blocking");
            other.read_to_end(&mut all).expect("the rest");
            assert_eq!(String::from_utf8_lossy(&all), format!("{before}{behind}"));
        }
    });
}

#[test]
fn a_socket_that_is_withdrawn_serves_on_if_it_stays() {
    run(|| async {
        let (sock, mut theirs) = pair();
        for n in 0..3u8 {
            {
                let wait = std::pin::pin!(sock.readable(Deadline::NEVER));
                let _ = event::race(wait, std::pin::pin!(turns(2))).await;
            }
            sock.withdraw().await.expect("withdrawn");
            theirs.write_all(&[n]).expect("written");
            let page = sock.recv(1, Deadline::in_ms(5000)).await.expect("received");
            assert_eq!(page.filled(), [n]);
        }
        // With a reader it is refused.
        let wait = std::pin::pin!(sock.readable(Deadline::NEVER));
        let other = std::pin::pin!(async {
            turns(2).await;
            sock.withdraw().await
        });
        match event::race(wait, other).await {
            event::Either::Second(Err(e)) => assert_eq!(e.kind(), ErrorKind::ResourceBusy),
            _ => panic!("the wait goes on"),
        }
    });
}
