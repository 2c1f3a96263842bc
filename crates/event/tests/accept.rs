//! Accepting connections.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use base::log::Level;
use event::sim::{Faults, Plan};
use event::task::next_turn;
use event::testing::{connect, listen, turns as turns_pass, until};
use event::{
    AcceptLock, Deadline, DriverKind, Gate, ListenOpts, Listener, Loop, Options, Sock, Wake,
};
use os::SockAddr;

/// Runs the test on every driver over real sockets.
fn run<F: Future<Output = ()> + 'static>(options: impl Fn() -> Options, body: impl Fn() -> F) {
    for driver in event::testing::real_drivers() {
        eprintln!("driver: {}", driver.name());
        let mut event_loop = Loop::new(Options { driver, ..options() }).expect("a loop");
        event_loop.block_on(body()).expect("the loop runs");
    }
}

fn clients(addr: &SockAddr, count: usize) -> Vec<TcpStream> {
    let to = (addr.ip_addr().expect("an IP address"), addr.port());
    (0..count).map(|_| TcpStream::connect(to).expect("connected")).collect()
}

/// Accepts `count` connections; returns in which turns of the loop.
async fn accept_turns(listener: &Listener, count: usize) -> Vec<u64> {
    let mut turns = Vec::new();
    for _ in 0..count {
        listener.accept().await.expect("accepted");
        turns.push(event::stats().turns);
    }
    turns
}

#[test]
fn one_connection_for_each_report() {
    run(Options::default, || async {
        let (listener, addr) = listen().expect("a listener");
        let clients = clients(&addr, 40);
        let mut turns = accept_turns(&listener, clients.len()).await;
        turns.dedup();
        assert_eq!(turns.len(), clients.len());
    });
}

#[test]
fn a_busy_loop_accepts_more_for_each_report() {
    run(Options::default, || async {
        let (listener, addr) = listen().expect("a listener");
        for _ in 0..200 {
            event::spawn(async {
                loop {
                    next_turn().await;
                }
            });
        }
        turns_pass(2).await;
        let clients = clients(&addr, 128);
        let mut turns = accept_turns(&listener, clients.len()).await;
        turns.dedup();
        // One for eight polls, but a 32nd of all connections at most.
        assert!(turns.len() <= 128 / 16 + 1, "{}", turns.len());
    });
}

#[test]
fn multi_accept_takes_all_at_once() {
    run(
        || Options { multi_accept: true, ..Options::default() },
        || async {
            let (listener, addr) = listen().expect("a listener");
            let clients = clients(&addr, 40);
            let mut turns = accept_turns(&listener, clients.len()).await;
            turns.dedup();
            assert_eq!(turns.len(), 1);
        },
    );
}

#[test]
fn so_many_events_come_of_one_wait() {
    // As many turns as it takes connections to be known as readable.
    let turns = |epoll_events: usize| {
        let options = Options { multi_accept: true, epoll_events, ..Options::default() };
        let mut event_loop = Loop::new(options).expect("a loop");
        let ready = Rc::new(RefCell::new(Vec::new()));
        let seen = ready.clone();
        let test = async move {
            let (listener, addr) = listen().expect("a listener");
            let mut clients = clients(&addr, 8);
            for _ in 0..clients.len() {
                let sock = listener.accept().await.expect("accepted").sock;
                let ready = ready.clone();
                event::spawn(async move {
                    let (gate, limit) = (Gate::new(), Deadline::in_ms(10_000));
                    // Readiness may be false.
                    while sock.try_recv().expect("no error").is_none() {
                        sock.readable_or(&gate, limit).await.expect("no error");
                    }
                    ready.borrow_mut().push(event::stats().turns);
                });
            }
            // All have found nothing, and wait.
            turns_pass(2).await;
            clients.iter_mut().for_each(|client| client.write_all(b"x").expect("written"));
            until(|| ready.borrow().len() == clients.len()).await;
        };
        event_loop.block_on(test).expect("the loop runs");
        let mut turns = seen.take();
        turns.dedup();
        turns.len()
    };
    assert_eq!((turns(1), turns(3), turns(512)), (8, 3, 1));
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let (log, lines) = base::log::capture(Level::Alert);
    base::log::set_default(log);
    run(
        || Options { connections: 3, ..Options::default() },
        || async {
            let (listener, addr) = listen().expect("a listener");
            let _clients = clients(&addr, 5);
            let kept = Rc::new(RefCell::new(Vec::new()));
            let own = kept.clone();
            event::spawn(async move {
                while let Ok(accepted) = listener.accept().await {
                    own.borrow_mut().push(accepted);
                }
            });
            until(|| event::stats().accepted == 5).await;
            turns_pass(2).await;
            assert_eq!((kept.borrow().len(), event::connections_in_use()), (3, 3));
        },
    );
    assert!(lines.take().contains("3 worker_connections are not enough"));
}

#[test]
fn only_a_connection_that_waits_makes_others_leave() {
    run(
        || Options { connections: 1, multi_accept: true, ..Options::default() },
        || async {
            let (listener, addr) = listen().expect("a listener");
            let left = Rc::new(Cell::new(false));
            let _first = clients(&addr, 1);
            let parked = listener.accept().await.expect("accepted").sock;
            let leaves = left.clone();
            event::spawn(async move {
                let (gate, limit) = (Gate::new(), Deadline::in_ms(10_000));
                // Readiness may be false.
                while parked.readable_or(&gate, limit).await.expect("no error") == Wake::Ready {
                    assert!(parked.try_recv().expect("no error").is_none());
                }
                leaves.set(true);
            });
            assert!(event::timeout(50, listener.accept()).await.is_err());
            assert!(!left.get());
            let _second = clients(&addr, 1);
            let accepted = event::timeout(10_000, listener.accept()).await;
            accepted.expect("room").expect("accepted");
            assert!(left.get());
        },
    );
}

#[test]
fn a_listener_that_nobody_asks_is_left_alone() {
    run(Options::default, || async {
        let (listener, addr) = listen().expect("a listener");
        let early = clients(&addr, 1);
        listener.accept().await.expect("accepted");
        let late = clients(&addr, 2);
        let turns = event::stats().turns;
        event::sleep(50).await;
        assert!(event::stats().turns - turns < 5);
        listener.pause();
        assert!(event::timeout(50, listener.accept()).await.is_err());
        listener.resume();
        listener.accept().await.expect("accepted");
        drop((early, late));
    });
}

/// A lock that another worker holds while `taken` is set, with a record of its use.
#[derive(Clone, Default)]
struct Lock {
    taken: Rc<Cell<bool>>,
    calls: Rc<RefCell<Vec<&'static str>>>,
}

impl AcceptLock for Lock {
    fn try_lock(&self) -> bool {
        self.calls.borrow_mut().push(if self.taken.get() { "refused" } else { "lock" });
        !self.taken.get()
    }

    fn unlock(&self) {
        self.calls.borrow_mut().push("unlock");
    }
}

/// Delay between attempts to take the accept lock.
const DELAY_MS: u64 = 20;

async fn hold_the_lock(lock: Lock) {
    let (listener, addr) = listen().expect("a listener");
    let _clients = [connect(&addr).await.expect("1"), connect(&addr).await.expect("2")];
    lock.taken.set(true);
    lock.calls.take();
    let before_ms = base::time::now_ms();
    assert!(event::timeout(90, listener.accept()).await.is_err());
    let passed_ms = base::time::now_ms() - before_ms;
    // The turn that ran this far released the lock, if it was in its first part.
    let mut refused = lock.calls.take();
    if refused[0] == "unlock" {
        refused.remove(0);
    }
    assert!(refused.iter().all(|call| *call == "refused"), "{refused:?}");
    // A busy machine delays attempts. It makes none of them more frequent.
    let most = passed_ms / DELAY_MS + 4;
    assert!((1..=most).contains(&(refused.len() as u64)), "{passed_ms} ms: {refused:?}");
    if event::driver_name() == "sim" {
        assert!((3..9).contains(&refused.len()), "{refused:?}");
    }
    lock.taken.set(false);
    let accepted = listener.accept().await.expect("accepted");
    // Still held: accepting runs first.
    let calls = lock.calls.take();
    assert_eq!(calls.last(), Some(&"lock"));
    *lock.calls.borrow_mut() = vec!["lock"];
    drop(accepted);
    turns_pass(3).await;
    let calls = lock.calls.take();
    assert!(calls.len() > 4, "{calls:?}");
    for pair in calls.chunks(2) {
        assert!(matches!(pair, ["lock", "unlock"] | ["lock"]), "{calls:?}");
    }
}

#[test]
fn the_accept_lock_is_taken_before_a_wait_and_given_back_before_other_work() {
    let calm = Plan::new(0, Faults::NONE);
    let simulated = [calm, calm.completing()].map(DriverKind::Sim);
    for driver in event::testing::real_drivers().into_iter().chain(simulated) {
        eprintln!("driver: {}", driver.name());
        let lock = Lock::default();
        let accept_mutex: Option<Box<dyn AcceptLock>> = Some(Box::new(lock.clone()));
        let options =
            Options { driver, accept_mutex, accept_mutex_delay_ms: DELAY_MS, ..Options::default() };
        let mut event_loop = Loop::new(options).expect("a loop");
        event_loop.block_on(hold_the_lock(lock)).expect("the loop runs");
    }
}

/// A worker on a thread of its own, which runs until the other end of `stop` is closed; it sends
/// its thread's number once it listens, and returns how many connections it accepted.
fn worker(fd: OwnedFd, stop: UnixStream, listens: mpsc::Sender<u32>) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut event_loop = Loop::new(Options::default()).expect("a loop");
        let accepted = event_loop.block_on(async move {
            let listener = Listener::new(fd, ListenOpts::default());
            event::spawn(async move {
                while let Ok(accepted) = listener.accept().await {
                    drop(accepted);
                }
            });
            stop.set_nonblocking(true).expect("nonblocking");
            let stop = Sock::from_fd(stop.into());
            turns_pass(2).await;
            listens.send(os::thread::id()).expect("sent");
            stop.closed_by_peer().await.expect("stopped");
            event::stats().accepted
        });
        accepted.expect("the loop runs")
    })
}

#[test]
fn workers_that_share_a_socket_share_the_connections() {
    let any = SockAddr::parse(b"127.0.0.1:0").expect("an address");
    let fd = os::socket::socket(&any, os::socket::Kind::Stream).expect("a socket");
    os::socket::bind(&fd, &any).expect("bound");
    os::socket::listen(&fd, 511).expect("listening");
    let addr = os::socket::local_addr(&fd).expect("an address");
    let (listens, listening) = mpsc::channel();
    let stops = [(); 2].map(|()| UnixStream::pair().expect("a pair"));
    let (workers, stops): (Vec<_>, Vec<_>) = stops
        .into_iter()
        .map(|(stop, other)| {
            (worker(fd.try_clone().expect("cloned"), stop, listens.clone()), other)
        })
        .unzip();
    let threads: Vec<u32> = listening.iter().take(2).collect();
    // One after the other, and each when both workers sleep: the kernel would always choose the
    // same. While a worker is about to sleep, and another process has its processor, the other one
    // would serve all.
    for _ in 0..400 {
        while !threads.iter().all(|thread| os::thread::is_waiting(*thread)) {
            std::thread::yield_now();
        }
        let mut client = clients(&addr, 1).remove(0);
        assert_eq!(client.read(&mut [0; 1]).expect("closed"), 0);
    }
    drop(stops);
    let counts: Vec<u64> =
        workers.into_iter().map(|worker| worker.join().expect("joined")).collect();
    assert_eq!(counts.iter().sum::<u64>(), 400);
    assert!(counts.iter().all(|&count| count >= 100), "{counts:?}");
}

#[test]
fn a_listener_that_is_gone_takes_no_reports_from_others() {
    run(Options::default, || async {
        let any = SockAddr::ip(std::net::Ipv4Addr::LOCALHOST.into(), 0);
        let fd = os::socket::socket(&any, os::socket::Kind::Stream).expect("a socket");
        os::socket::bind(&fd, &any).expect("bound");
        os::socket::listen(&fd, 511).expect("listening");
        let addr = os::socket::local_addr(&fd).expect("an address");
        // As another process has it, which goes on when this one leaves.
        let others = os::fd::dup(&fd).expect("a second descriptor");
        let listener = Rc::new(Listener::new(fd, ListenOpts::default()));
        let accepting = listener.clone();
        let task = event::spawn(async move { drop(accepting.accept().await) });
        turns_pass(2).await;
        event::task::cancel(task);
        drop(listener);
        let _clients = clients(&addr, 2);
        let before = event::stats().turns;
        event::sleep(50).await;
        let turns = event::stats().turns - before;
        assert!(turns < 10, "woken {turns} times for what it does not accept");
        assert!(os::socket::accept(&others).is_ok());
    });
}
