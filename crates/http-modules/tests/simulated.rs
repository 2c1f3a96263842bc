//! The connection code itself, on every driver: the kernel's, and simulations with faults. Clients
//! send pipelined requests in pieces of chance, or go away half-way; what they get must be what
//! they asked for, in order, and nothing may be left behind.

#![allow(clippy::unwrap_used, clippy::panic)]

mod simulation;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use engine::Engine;
use event::sim::{self, Faults, Plan};
use event::testing::{connect, each_driver, listen, until};
use event::{Deadline, Sock};
use http::engine::HttpEngine;
use mem::Chain;
use os::SockAddr;
use simulation::{Chance, Clients, SMALL, large};
use testkit::Folder;

const LARGE: u32 = 200_000;

fn site(test: &str) -> Folder {
    simulation::site(test, &large(LARGE))
}

/// Builds the engine for a configuration and starts it on a socket of the current loop.
fn start(dir: &Path, extra: &str) -> (HttpEngine, SockAddr) {
    let (listener, addr) = listen().expect("a listener");
    let root = dir.display();
    let text = format!(
        "server {{ listen 127.0.0.1:1; root {root}; access_log off; keepalive_requests 100000;
           {extra} }}"
    );
    (simulation::serve(dir, &text, listener, |_| {}), addr)
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Ask {
    Small,
    Large,
    Missing,
    SizedBody,
    ChunkedBody,
}

fn request(ask: Ask, last: bool) -> Vec<u8> {
    let (method, path, rest) = match ask {
        Ask::Small => ("GET", "/small.txt", "\r\n".to_owned()),
        Ask::Large => ("GET", "/large.bin", "\r\n".to_owned()),
        Ask::Missing => ("GET", "/missing", "\r\n".to_owned()),
        Ask::SizedBody => ("POST", "/small.txt", "Content-Length: 5\r\n\r\nabcde".to_owned()),
        Ask::ChunkedBody => (
            "POST",
            "/small.txt",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned(),
        ),
    };
    let close = if last { "Connection: close\r\n" } else { "" };
    format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{close}{rest}").into_bytes()
}

/// Splits one response off the front of `got`: status and body.
fn response(got: &mut Vec<u8>) -> Option<(u16, Vec<u8>)> {
    let end = got.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(got[..end].to_vec()).unwrap();
    let status = head.get(9..12).and_then(|s| s.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status line in {head:?}"));
    let length = head.lines().find_map(|l| l.strip_prefix("Content-Length: ")).unwrap();
    let length: usize = length.parse().unwrap();
    if got.len() < end + length {
        return None;
    }
    let body = got[end..end + length].to_vec();
    got.drain(..end + length);
    Some((status, body))
}

fn check(ask: Ask, status: u16, body: &[u8], steady: bool) {
    match ask {
        // 500: a file that was cut to nothing before its first byte was read.
        _ if !steady => assert!(matches!(status, 200 | 404 | 405 | 500), "{status}"),
        Ask::Small => assert_eq!((status, body), (200, SMALL)),
        Ask::Large => {
            assert!(status == 200 && body == large(LARGE), "the large file came differently")
        }
        Ask::Missing => assert_eq!(status, 404),
        Ask::SizedBody | Ask::ChunkedBody => assert_eq!(status, 405),
    }
}

/// One client: a pipeline of requests in pieces. `None` when the connection broke.
async fn client(addr: SockAddr, seed: u64, steady: bool) -> Option<()> {
    let mut chance = Chance::new(seed);
    let sock = connect(&addr).await.ok()?;
    let count = 1 + chance.below(6);
    let asks: Vec<Ask> = (0..count)
        .map(|_| match chance.below(6) {
            0 => Ask::Large,
            1 => Ask::Missing,
            2 => Ask::SizedBody,
            3 => Ask::ChunkedBody,
            _ => Ask::Small,
        })
        .collect();
    let bytes: Vec<u8> =
        asks.iter().enumerate().flat_map(|(i, a)| request(*a, i + 1 == asks.len())).collect();
    let sock = Rc::new(sock);
    let writer = sock.clone();
    let pieces = Chance::new(chance.below(u64::MAX));
    let _sending = Ending(event::spawn(async move {
        let _ = send_pieces(&writer, &bytes, pieces).await;
    }));
    let mut got = Vec::new();
    let mut answered = 0;
    while answered < asks.len() {
        let page = sock.recv(1, Deadline::in_ms(60_000)).await.ok()?;
        if page.is_empty() {
            return None;
        }
        got.extend_from_slice(&page);
        while let Some((status, body)) = response(&mut got) {
            check(asks[answered], status, &body, steady);
            answered += 1;
        }
    }
    assert!(got.is_empty(), "bytes behind the last response");
    // The last request asked for the end of the connection.
    let end = sock.recv(1, Deadline::in_ms(60_000)).await.ok()?;
    assert!(end.is_empty(), "the connection was to be closed");
    Some(())
}

/// A task that goes with whoever started it.
struct Ending(event::TaskId);

impl Drop for Ending {
    fn drop(&mut self) {
        event::task::cancel(self.0);
    }
}

async fn send_pieces(sock: &Sock, bytes: &[u8], mut chance: Chance) -> Option<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = (1 + chance.below(60) as usize).min(rest.len());
        let mut chain = Chain::new();
        chain.push_bytes(Bytes::copy_from_slice(&rest[..n]));
        sock.send(&mut chain, Deadline::in_ms(60_000)).await.ok()?;
        rest = &rest[n..];
        if chance.below(3) == 0 {
            event::sleep(chance.below(4)).await;
        }
    }
    Some(())
}

/// The parts of the world that a scenario leaves intact.
#[derive(Clone, Copy)]
struct World {
    connections_hold: bool,
    files_stay: bool,
}

const STEADY: World = World { connections_hold: true, files_stay: true };
const BREAKING: World = World { connections_hold: false, files_stay: true };
const CHANGING: World = World { connections_hold: true, files_stay: false };

impl World {
    /// Whether every client must get to its end. A body that was cut short breaks its connection.
    fn is_steady(self) -> bool {
        self.connections_hold && self.files_stay
    }
}

/// Runs some clients to their end, then checks that the server is left without connections.
async fn serve_clients(dir: PathBuf, extra: &'static str, seed: u64, world: World) {
    let (engine, addr) = start(&dir, extra);
    let clients = (0..8).map(|i| {
        let addr = addr.clone();
        async move {
            let whole = client(addr, seed * 100 + i, world.files_stay).await.is_some();
            assert!(whole || !world.is_steady(), "a connection broke");
        }
    });
    Clients::start(clients).over().await;
    engine.quit();
    // A connection that was left would keep it from that.
    until(|| engine.idle() && event::connections_in_use() == 0).await;
}

#[test]
fn pipelines_are_answered_in_order_on_every_driver() {
    let dir = site("pipelines");
    each_driver(move || serve_clients(dir.to_path_buf(), "sendfile on;", 1, STEADY));
}

#[test]
fn without_sendfile_the_same() {
    let dir = site("memory");
    each_driver(move || serve_clients(dir.to_path_buf(), "sendfile off;", 2, STEADY));
}

#[test]
fn nothing_is_left_behind_when_connections_break() {
    let dir = site("breaks");
    for seed in 0..40 {
        for plan in
            [Plan::new(seed, Faults::HOSTILE), Plan::new(seed, Faults::HOSTILE).completing()]
        {
            let run = serve_clients(dir.to_path_buf(), "sendfile on;", seed + 3, BREAKING);
            sim::run(plan, run).unwrap_or_else(|e| panic!("{plan:?}: {e}"));
        }
    }
}

/// A file that is cut short while it is being sent: the response cannot be finished, so that
/// nothing may follow it on the connection.
async fn truncated(dir: PathBuf, extra: &'static str) {
    let (engine, addr) = start(&dir, extra);
    let path = dir.join("large.bin");
    // More than the buffers of two sockets hold.
    let len = if event::driver_name() == "sim" { 400_000 } else { 40_000_000 };
    std::fs::write(&path, vec![b'x'; len]).unwrap();
    let sock = connect(&addr).await.expect("a connection");
    let mut asks = request(Ask::Large, false);
    asks.extend(request(Ask::Small, true));
    let mut chain = Chain::new();
    chain.push_bytes(Bytes::from(asks));
    sock.send(&mut chain, Deadline::in_ms(60_000)).await.expect("sent");
    let mut got = Vec::new();
    while !got.windows(4).any(|w| w == b"\r\n\r\n") {
        let page = sock.recv(1, Deadline::in_ms(60_000)).await.expect("a beginning");
        got.extend_from_slice(&page);
    }
    std::fs::write(&path, b"").unwrap();
    while let Ok(page) = sock.recv(1, Deadline::in_ms(60_000)).await {
        if page.is_empty() {
            break;
        }
        got.extend_from_slice(&page);
    }
    assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n"));
    let head = got.windows(4).position(|w| w == b"\r\n\r\n").expect("a head") + 4;
    assert!(got[head..].iter().all(|b| *b == b'x'), "something followed a short body");
    assert!(got.len() < head + len);
    engine.quit();
    until(|| engine.idle()).await;
}

#[test]
fn nothing_follows_a_body_that_was_cut_short() {
    let dir = site("truncated");
    for extra in ["sendfile on;", "sendfile off;"] {
        let dir = dir.to_path_buf();
        each_driver(move || truncated(dir.to_path_buf(), extra));
    }
}

#[test]
fn files_that_change_underneath_break_no_framing() {
    let dir = site("changing");
    let (writing, stop) = (dir.to_path_buf(), Arc::new(AtomicBool::new(false)));
    let stopped = stop.clone();
    let writer = std::thread::spawn(move || {
        let mut n = 0;
        while !stopped.load(Ordering::Relaxed) {
            n = (n + 7919) % 30_000;
            std::fs::write(writing.join("small.txt"), vec![b'y'; n]).unwrap();
            std::fs::write(writing.join("large.bin"), vec![b'z'; n * 20]).unwrap();
        }
    });
    for seed in 0..30 {
        for extra in ["sendfile on;", "sendfile off;"] {
            let calm = Plan::new(seed, Faults::NONE);
            let rough = Plan::new(seed, Faults::ROUGH);
            for plan in [calm, calm.completing(), rough, rough.completing()] {
                let run = serve_clients(dir.to_path_buf(), extra, seed, CHANGING);
                sim::run(plan, run).unwrap_or_else(|e| panic!("{plan:?}: {e}"));
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}
