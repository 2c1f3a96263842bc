//! The parts that tests on the loop of a simulation share: files to serve, an engine, and chance.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part")]

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use base::log::{Level, capture};
use bytes::Bytes;
use engine::{Engine, Seat};
use event::task::{self, TaskId};
use event::{Listener, Notify};
use http::LoadEnv;
use http::engine::HttpEngine;
use testkit::Folder;

pub const SMALL: &[u8] = b"a small file\n";

/// A folder with `small.txt` and with a larger file, `large.bin`.
pub fn site(test: &str, large: &[u8]) -> Folder {
    let dir = Folder::new(test);
    dir.write("small.txt", SMALL);
    dir.write("large.bin", large);
    dir
}

/// The content of a file of this length.
pub fn large(len: u32) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// Starts an engine for an `http` block on a socket of the current loop. `change` gets what the
/// block is loaded with.
pub fn serve(
    dir: &Path,
    http: &str,
    listener: Listener,
    change: impl FnOnce(&mut LoadEnv),
) -> HttpEngine {
    let options = conf::parse::Options::default();
    let text = Bytes::from(format!("http {{ {http} }}"));
    let tree = conf::parse::parse_bytes(Path::new("t"), text, &options).unwrap();
    let (log, _) = capture(Level::Emerg);
    let mut env = LoadEnv::alone(dir, log.clone()).unwrap();
    env.connections = 512;
    change(&mut env);
    let main = http::build::build(&tree.nodes[0], env, weir_http_modules::MODULES).unwrap();
    let engine = HttpEngine::new(main);
    let (debug_connections, alone) = (Rc::new([]), event::Gate::new());
    let seat = Seat {
        index: 0,
        slot: 0,
        log,
        debug_connections,
        alone,
        relay: None,
        moves: None,
        removals: Default::default(),
    };
    engine.start(&seat, vec![listener]).unwrap();
    engine
}

/// Clients, each in a task of its own. A panic ends its task alone, so that those are counted that
/// get to their end.
pub struct Clients {
    left: Left,
    passed: Rc<Cell<usize>>,
    begun: usize,
}

/// The number of clients whose tasks have not ended, and the word that one has.
type Left = Rc<(Cell<usize>, Notify)>;

/// A client's task has not ended.
struct Alive(Left);

impl Drop for Alive {
    fn drop(&mut self) {
        let (count, ended) = &*self.0;
        count.set(count.get() - 1);
        ended.notify_one();
    }
}

impl Clients {
    /// Begins them.
    pub fn start(clients: impl IntoIterator<Item = impl Future<Output = ()> + 'static>) -> Clients {
        let (left, passed) = (Left::default(), Rc::new(Cell::new(0)));
        let mut begun = 0;
        for client in clients {
            begun += 1;
            left.0.set(begun);
            let (alive, passed) = (Alive(left.clone()), passed.clone());
            event::spawn(async move {
                let _alive = alive;
                client.await;
                passed.set(passed.get() + 1);
            });
        }
        Clients { left, passed, begun }
    }

    /// Waits until all are over.
    pub async fn over(self) {
        let (count, ended) = &*self.left;
        while count.get() > 0 {
            ended.notified().await;
        }
        assert_eq!(self.passed.get(), self.begun, "clients that got what they asked for");
    }
}

/// A small generator, so that each seed is a scenario of its own.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A task that goes with the value that started it.
pub struct Ending(pub TaskId);

impl Drop for Ending {
    fn drop(&mut self) {
        task::cancel(self.0);
    }
}
