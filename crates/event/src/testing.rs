//! For tests: one body, run on every driver that the machine has.

use std::future::Future;
use std::io;

use mem::Chain;
use os::SockAddr;

use crate::driver::{Driver, DriverKind};
use crate::runtime::inner::with;
use crate::runtime::task::next_turn;
use crate::sim::{Faults, Plan};
use crate::{Deadline, ListenOpts, Listener, Loop, Options, Sock};

/// Simulations that [`each_driver`] runs with faults, each with a seed of its own.
const SEEDS: u64 = 12;

/// The drivers over real sockets.
pub fn real_drivers() -> Vec<DriverKind> {
    let all = [DriverKind::Epoll, DriverKind::Uring, DriverKind::Poll, DriverKind::Select];
    all.into_iter().filter(|driver| driver.is_available()).collect()
}

/// Every driver: the kernel's, a simulation without faults, and simulations with the faults that do
/// not break connections.
pub fn drivers() -> Vec<DriverKind> {
    let calm = Plan::new(0, Faults::NONE);
    let rough = (1..=SEEDS).map(|seed| Plan::new(seed, Faults::ROUGH));
    let simulated = std::iter::once(calm).chain(rough).flat_map(|plan| [plan, plan.completing()]);
    real_drivers().into_iter().chain(simulated.map(DriverKind::Sim)).collect()
}

/// Runs the test that `body` makes on every driver.
///
/// # Panics
/// When it fails on one of them; the message names the driver, and the seed of a simulation.
pub fn each_driver<F: Future<Output = ()> + 'static>(body: impl Fn() -> F) {
    for driver in drivers() {
        let ran = Loop::new(Options { driver, ..Options::default() })
            .and_then(|mut event_loop| event_loop.block_on(body()));
        assert!(ran.is_ok(), "on {driver:?}: {ran:?}");
    }
}

/// A listener on a free port of the loopback, and its address.
///
/// # Errors
/// The system's.
pub fn listen() -> io::Result<(Listener, SockAddr)> {
    let any = SockAddr::ip(std::net::Ipv4Addr::LOCALHOST.into(), 0);
    let fd = os::socket::socket(&any, os::socket::Kind::Stream)?;
    os::socket::bind(&fd, &any)?;
    os::socket::listen(&fd, 511)?;
    let addr = os::socket::local_addr(&fd)?;
    Ok((Listener::new(fd, ListenOpts::default()), addr))
}

/// A connection to `addr`.
///
/// # Errors
/// The system's, or `TimedOut` after ten seconds.
pub async fn connect(addr: &SockAddr) -> io::Result<Sock> {
    let sock = Sock::from_fd(os::socket::socket(addr, os::socket::Kind::Stream)?);
    sock.connect(addr, Deadline::in_ms(10_000)).await?;
    Ok(sock)
}

/// Two sockets that are connected to each other.
///
/// # Errors
/// The system's.
pub fn pair() -> io::Result<(Sock, Sock)> {
    let (a, b) = std::os::unix::net::UnixStream::pair()?;
    a.set_nonblocking(true)?;
    b.set_nonblocking(true)?;
    let (a, b) = (Sock::from_fd(a.into()), Sock::from_fd(b.into()));
    with(|inner| {
        if let Driver::Sim(sim) = &mut inner.driver {
            sim.net.link(a.0.key, b.0.key);
        }
    });
    Ok((a, b))
}

/// The limit of [`until`], in milliseconds of the loop's clock. It only ends a test that would
/// hang, and is far beyond any delay of a busy machine.
const PATIENCE_MS: u64 = 300_000;

/// Waits until `is_so` holds. Asks once a turn, at most each millisecond.
///
/// # Panics
/// After five minutes of the loop's clock; the message names the caller.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let limit = Deadline::in_ms(PATIENCE_MS);
        while !is_so() {
            assert!(!limit.has_passed(), "not so after {PATIENCE_MS} ms: {caller}");
            crate::sleep(1).await;
        }
    }
}

/// Has the loop run for `count` turns: all tasks that were ready have run, and the driver has
/// looked at its sockets as often.
pub async fn turns(count: u32) {
    for _ in 0..count {
        next_turn().await;
    }
}

/// Receives until the end of the stream, with a pause behind each piece: a sender is ahead of the
/// reader then.
///
/// # Panics
/// When receiving fails.
pub async fn read_to_end(sock: &Sock, pause_ms: u64) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let page = sock.recv(0, Deadline::in_ms(60_000)).await.expect("a test's stream");
        if page.is_empty() {
            return all;
        }
        all.extend_from_slice(&page);
        if pause_ms > 0 {
            crate::sleep(pause_ms).await;
        }
    }
}

/// Sends back what comes, until the end of the stream.
///
/// # Panics
/// When receiving or sending fails.
pub async fn echo(sock: Sock) {
    let mut out = Chain::new();
    loop {
        let page = sock.recv(1, Deadline::in_ms(60_000)).await.expect("a test's stream");
        if page.is_empty() {
            return;
        }
        out.push(page.into());
        sock.send(&mut out, Deadline::in_ms(60_000)).await.expect("a test's stream");
    }
}

/// Runs for that long without a wait.
pub fn compute(time: std::time::Duration) {
    let began = std::time::Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}
