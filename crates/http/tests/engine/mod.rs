//! The engine alone on a loop of its own, real or simulated, with a client in the same loop.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::rc::Rc;

use base::log::{Level, Log, MemorySink};
use bytes::Bytes;
use engine::{Engine, Seat};
use event::testing::each_driver;
use event::{Deadline, Sock};
use http::engine::HttpEngine;
use http::module::Modules;
use os::SockAddr;
use testkit::Folder;

/// An engine that serves a configuration.
pub struct Served {
    pub addr: SockAddr,
    pub errors: Rc<MemorySink>,
    _engine: HttpEngine,
    /// Its prefix.
    pub folder: Folder,
}

impl Served {
    /// Checks that the error log has said this since it was looked at last.
    #[track_caller]
    pub fn has_logged(&self, text: &str) {
        let log = self.errors.take();
        assert!(log.contains(text), "no \"{text}\" in {log}");
    }
}

/// Starts the engine on `http`, the contents of an `http` block with one server.
pub fn serve(http: &str, modules: Modules) -> Served {
    let folder = Folder::new("engine");
    let text = Bytes::from(format!("http {{ {http} }}"));
    let options = conf::parse::Options::default();
    let tree = conf::parse::parse_bytes(Path::new("test.conf"), text, &options).unwrap();
    let (log, errors): (Log, _) = base::log::capture(Level::Info);
    base::log::set_default(log.clone());
    let env = http::LoadEnv::alone(folder.path(), log.clone()).unwrap();
    let main = match http::build::build(&tree.nodes[0], env, modules) {
        Ok(main) => main,
        Err(e) => panic!("{e}"),
    };
    let (listener, addr) = event::testing::listen().unwrap();
    let engine = HttpEngine::new(main);
    let (debug_connections, alone) = (Rc::from([]), event::Gate::new());
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
    Served { addr, errors, _engine: engine, folder }
}

/// Runs a test on each event driver, with an engine of its own that serves `http`.
pub fn on_each_driver<T: AsyncFn(Served) + Copy + 'static>(
    http: &'static str,
    modules: Modules,
    test: T,
) {
    each_driver(move || async move { test(serve(http, modules)).await });
}

/// Sends `pieces` with a pause between them, and meanwhile receives until the server closes.
pub async fn exchange(served: &Served, pieces: &[&[u8]]) -> String {
    let client = Client::connect(served).await;
    let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
    let sock = client.sock.clone();
    event::spawn(async move {
        for (i, piece) in pieces.iter().enumerate() {
            if i > 0 {
                event::sleep(5).await;
            }
            // The server may close before it has all.
            let _ = send(&sock, piece).await;
        }
    });
    client.rest().await
}

async fn send(sock: &Sock, bytes: &[u8]) -> std::io::Result<()> {
    let mut chain = mem::Chain::new();
    chain.write(bytes);
    sock.send(&mut chain, Deadline::in_ms(10_000)).await
}

/// A client's connection.
pub struct Client {
    sock: Rc<Sock>,
    pending: Vec<u8>,
}

impl Client {
    pub async fn connect(served: &Served) -> Client {
        let sock = Rc::new(event::testing::connect(&served.addr).await.unwrap());
        Client { sock, pending: Vec::new() }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        send(&self.sock, bytes).await.unwrap();
    }

    /// Receives up to and including `end`.
    pub async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = memchr::memmem::find(&self.pending, end.as_bytes()) {
                let rest = self.pending.split_off(at + end.len());
                let text = std::mem::replace(&mut self.pending, rest);
                return String::from_utf8_lossy(&text).into_owned();
            }
            let page = self.sock.recv(1, Deadline::in_ms(10_000)).await.unwrap();
            let so_far = String::from_utf8_lossy(&self.pending);
            assert!(!page.is_empty(), "closed early, after {so_far:?}");
            self.pending.extend_from_slice(&page);
        }
    }

    /// Receives until the server closes.
    pub async fn rest(mut self) -> String {
        while let Ok(page) = self.sock.recv(1, Deadline::in_ms(10_000)).await
            && !page.is_empty()
        {
            self.pending.extend_from_slice(&page);
        }
        String::from_utf8_lossy(&self.pending).into_owned()
    }

    /// Says that nothing more will be sent.
    pub fn finish(&self) {
        self.sock.shutdown_write().unwrap();
    }
}
