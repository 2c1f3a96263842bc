//! Session cache and ticket keys under several processes, some of which are killed.
//!
//! Without the test harness: it has threads, and a process with threads cannot be forked.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use os::process::{Exit, Fork, exit_now, fork, wait_for};
use os::signal::{Signal, kill};
use shm::ZoneState;
use weir_tls::{SessionCache, SessionContext, SharedKeys, SharedSessions, Tickets};

const NOW: u64 = 1_800_000_000;

fn context() -> SessionContext {
    SessionContext::new([b"one".as_slice()])
}

fn child(work: impl FnOnce() -> i32) -> i32 {
    match fork().unwrap() {
        Fork::Parent(pid) => pid,
        Fork::Child => exit_now(work()),
    }
}

fn ends(pids: impl IntoIterator<Item = i32>) -> Vec<Exit> {
    pids.into_iter().map(|pid| wait_for(pid).unwrap()).collect()
}

fn code(exit: &Exit) -> usize {
    match exit {
        Exit::Code(code) => *code as usize,
        other => panic!("{other:?}"),
    }
}

/// Whoever asks first gets a session, and nobody after.
fn each_session_is_taken_once() {
    const SESSIONS: u32 = 240;
    for _ in 0..20 {
        let zone = SharedSessions::new(b"one", 1 << 20).unwrap();
        let cache = SessionCache::shared(&zone, context(), 300);
        for id in 0..SESSIONS {
            assert!(cache.put(NOW, &id.to_be_bytes(), &id.to_be_bytes()));
        }
        let pids = [(); 3].map(|()| {
            child(|| {
                let ids = (0..SESSIONS).map(u32::to_be_bytes);
                ids.filter(|id| cache.take(NOW, id).is_some_and(|session| session == *id)).count()
                    as i32
            })
        });
        assert_eq!(ends(pids).iter().map(code).sum::<usize>(), SESSIONS as usize);
        assert!(zone.is_empty());
    }
}

/// Killed at any moment: what others find is whole.
fn killed_in_the_middle() {
    let zone = SharedSessions::new(b"one", 64 << 10).unwrap();
    let cache = SessionCache::shared(&zone, context(), 300);
    let session = |id: u64| vec![id as u8; (id % 13 * 40) as usize];
    for round in 0..100u64 {
        let pid = child(|| {
            let mut id = 0u64;
            loop {
                cache.put(NOW, &id.to_be_bytes(), &session(id));
                cache.take(NOW, &(id / 2).to_be_bytes());
                id = (id + 1) % 500;
            }
        });
        let until = Instant::now() + Duration::from_micros(500 + round * 37);
        let mut id = 0u64;
        while Instant::now() < until {
            if let Some(found) = cache.get(NOW, &id.to_be_bytes()) {
                assert_eq!(found, session(id), "round {round}");
            }
            id = (id + 1) % 500;
        }
        kill(pid, Signal::KILL).unwrap();
        assert!(matches!(ends([pid])[..], [Exit::Signal { signal: 9, .. }]));
        zone.died(pid.unsigned_abs(), 0);
        assert!(cache.put(NOW, b"mine", b"mine"));
        assert_eq!(cache.take(NOW, b"mine").unwrap(), b"mine");
    }
}

/// A ticket of one process opens in all, also while keys are replaced.
fn tickets_of_all_processes() {
    let keys = SharedKeys::new().unwrap();
    let tickets = Tickets::with_shared(&keys, context(), 10);
    for round in 0..50 {
        let now = NOW + round * 10;
        let (reader, writer) = std::io::pipe().unwrap();
        let pids = [(); 3].map(|()| {
            child(|| {
                let ticket = tickets.seal(now, b"session").unwrap();
                i32::from(std::io::Write::write_all(&mut &writer, &ticket).is_err())
            })
        });
        drop(writer);
        assert_eq!(ends(pids).iter().map(code).sum::<usize>(), 0);
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut &reader, &mut all).unwrap();
        let len = 16 + 12 + 8 + 7 + 16;
        assert_eq!(all.len(), 3 * len);
        for ticket in all.chunks(len) {
            assert_eq!(tickets.open(now, ticket).unwrap(), b"session", "round {round}");
        }
    }
}

fn main() {
    each_session_is_taken_once();
    killed_in_the_middle();
    tickets_of_all_processes();
    println!("test result: ok");
}
