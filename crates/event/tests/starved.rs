//! Running out of descriptors. Alone in its process, whose limit it lowers.

use std::net::TcpStream;
use std::os::fd::AsRawFd;

use base::log::Level;
use event::{Loop, Options};
use os::SockAddr;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn accepting_goes_on_when_a_descriptor_is_closed() {
    let (log, lines) = base::log::capture(Level::Crit);
    base::log::set_default(log);
    let mut event_loop = Loop::new(Options::default()).expect("a loop");
    let before = getrlimit(Resource::Nofile);
    event_loop
        .block_on(async move {
            let (listener, addr) = event::testing::listen().expect("a listener");
            let SockAddr::V4(v4) = addr else { panic!("an IPv4 address") };
            let clients: Vec<TcpStream> =
                (0..4).map(|_| TcpStream::connect(v4).expect("connected")).collect();
            let first = listener.accept().await.expect("accepted");
            let second = listener.accept().await.expect("accepted");
            // Two wait in the kernel's queue. No descriptor is left for them.
            // The limit is on their numbers, and some that were inherited may be high: all below
            // the lowest free one are taken.
            let probe = std::fs::File::open("/dev/null").expect("opened");
            let (current, maximum) = (Some(probe.as_raw_fd() as u64), before.maximum);
            drop(probe);
            setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("lowered");
            let starved = event::timeout(50, listener.accept()).await;
            assert!(starved.is_err());
            let (turns, before_ms) = (event::stats().turns, base::time::now_ms());
            let starved = event::timeout(100, listener.accept()).await;
            assert!(starved.is_err());
            let turned = event::stats().turns - turns;
            // Timers alone end the waits, so that turns that a busy machine delays are fewer.
            let passed_ms = base::time::now_ms() - before_ms;
            assert!(turned < passed_ms, "{turned} turns in {passed_ms} ms: it is not left alone");
            // The delay of the resumption is tested on the simulated clock: starved_sim.rs.
            event::spawn(async move {
                event::testing::turns(2).await;
                drop(first);
            });
            let third = listener.accept().await.expect("accepted");
            event::spawn(async move {
                event::testing::turns(2).await;
                drop(third);
            });
            listener.accept().await.expect("accepted");
            drop((second, clients));
        })
        .expect("the loop runs");
    let lines = lines.take();
    assert!(lines.contains("accept4() failed (24: Too many open files)"), "{lines}");
    assert!(lines.lines().count() <= 3, "{lines}");
}
