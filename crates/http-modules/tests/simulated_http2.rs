//! Connections over HTTP/2 on every driver: the kernel's, and simulations with faults. Requests go
//! in pieces of chance; connections are cut behind each byte, given up at any moment, and dropped
//! with their loop. Responses are the right ones or are cut off, other connections go on, and
//! nothing is left: no connection, no task, no memory.

#![allow(clippy::unwrap_used, clippy::panic)]

mod simulation;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use bytes::Bytes;
use engine::Engine;
use event::sim::{self, Faults, Plan};
use event::testing::{connect, each_driver, listen, until};
use event::{Deadline, Notify, Sock};
use http::engine::HttpEngine;
use mem::Chain;
use os::SockAddr;
use simulation::{Chance, Clients, Ending, SMALL, large};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use testkit::Folder;
use testkit::h2::{Client, Ended, Frame, Options, Response, Wire, code, flag, kind, setting};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// The memory that threads and their output may take, in bytes: less than a stream each.
const SLACK: usize = 4_000;

const LARGE: u32 = 100_000;

fn site(test: &str) -> Folder {
    simulation::site(test, &large(LARGE))
}

/// One test at a time: memory is counted.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

thread_local! {
    /// Panics on this thread: the loop catches those of tasks.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.with(|panics| panics.set(panics.get() + 1));
            before(info);
        }));
    });
}

/// A server on a socket of the current loop, which is its own upstream as well.
fn start(dir: &Path) -> (HttpEngine, SockAddr) {
    count_panics();
    let (listener, addr) = listen().expect("a listener");
    let (root, port) = (dir.display(), addr.port());
    let text = format!(
        "server {{ listen 127.0.0.1:1; http2 on; root {root}; access_log off;
           keepalive_requests 100000; keepalive_timeout 100d;
           keepalive_time 100d;
           location /up/ {{ proxy_pass http://127.0.0.1:{port}/; }}
           location /streamed/ {{
               proxy_pass http://127.0.0.1:{port}/;
               proxy_http_version 1.1;
               proxy_request_buffering off;
               proxy_buffering off;
           }}
         }}"
    );
    (simulation::serve(dir, &text, listener, |_| {}), addr)
}

/// Bytes on their way to the server.
#[derive(Default)]
struct Out {
    bytes: RefCell<Vec<u8>>,
    more: Notify,
}

/// A client in memory, and the socket that carries its bytes.
struct Peer {
    client: Client,
    sock: Rc<Sock>,
    out: Rc<Out>,
    _sending: Ending,
}

async fn send(sock: &Sock, bytes: &[u8]) -> Option<()> {
    let mut chain = Chain::new();
    chain.push_bytes(Bytes::copy_from_slice(bytes));
    sock.send(&mut chain, Deadline::in_ms(60_000)).await.ok()
}

async fn send_pieces(sock: Rc<Sock>, out: Rc<Out>, mut chance: Chance) -> Option<()> {
    loop {
        let bytes = out.bytes.take();
        if bytes.is_empty() {
            out.more.notified().await;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, later) = rest.split_at((1 + chance.below(60) as usize).min(rest.len()));
            send(&sock, piece).await?;
            rest = later;
            if chance.below(3) == 0 {
                event::sleep(chance.below(4)).await;
            }
        }
    }
}

impl Peer {
    async fn connect(addr: &SockAddr, options: Options, chance: Chance) -> Option<Peer> {
        let sock = Rc::new(connect(addr).await.ok()?);
        let out = Rc::new(Out::default());
        let sending = send_pieces(sock.clone(), out.clone(), chance);
        let sending = Ending(event::spawn(async move {
            let _ = sending.await;
        }));
        let client = Client::over(Wire::memory(), options);
        Some(Peer { client, sock, out, _sending: sending })
    }

    fn push(&mut self) {
        let sent = self.client.wire().take_sent();
        if !sent.is_empty() {
            self.out.bytes.borrow_mut().extend_from_slice(&sent);
            self.out.more.notify_one();
        }
    }

    /// Receives once; `None` at the end of the connection.
    async fn hear(&mut self) -> Option<()> {
        self.push();
        let page = self.sock.recv(1, Deadline::in_ms(60_000)).await.ok()?;
        if page.is_empty() {
            self.client.wire().end(Ended::Closed);
            self.client.take_given();
            return None;
        }
        self.client.wire().give(&page);
        self.client.take_given();
        self.push();
        Some(())
    }

    /// The whole response of a stream; `None` where the connection ends before it.
    async fn response(&mut self, stream: u32) -> Option<Response> {
        loop {
            if let Some(response) = self.client.so_far(stream).filter(|r| r.is_over()) {
                return Some(response.clone());
            }
            self.hear().await?;
        }
    }

    /// Whether the server has said that a stream is not answered.
    fn was_told_to_retry(&self, stream: u32) -> bool {
        self.client.goaways().last().is_some_and(|last| last.last_stream < stream)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Ask {
    Small,
    Large,
    Missing,
    Body,
    Proxied,
    ProxiedBody,
    Streamed,
}

const ASKS: [Ask; 7] = [
    Ask::Small,
    Ask::Large,
    Ask::Missing,
    Ask::Body,
    Ask::Proxied,
    Ask::ProxiedBody,
    Ask::Streamed,
];

fn ask(client: &mut Client, ask: Ask, size: usize) -> u32 {
    let body = vec![b'b'; size];
    match ask {
        Ask::Small => client.start("GET", "/small.txt", &[], b""),
        Ask::Large => client.start("GET", "/large.bin", &[("priority", "i")], b""),
        Ask::Missing => client.start("GET", "/missing", &[], b""),
        Ask::Body => client.start("POST", "/small.txt", &[], &body),
        Ask::Proxied => client.start("GET", "/up/large.bin", &[], b""),
        Ask::ProxiedBody => client.start("POST", "/up/small.txt", &[], &body),
        Ask::Streamed => client.start("POST", "/streamed/small.txt", &[], &body),
    }
}

fn check(ask: Ask, response: &Response) {
    let (status, body) = (response.status, &response.body[..]);
    match ask {
        Ask::Small => assert_eq!((status, body), (200, SMALL)),
        Ask::Large | Ask::Proxied => {
            assert!(status == 200 && body == large(LARGE), "{ask:?}: another body, {status}");
        }
        Ask::Missing => assert_eq!(status, 404),
        Ask::Body | Ask::ProxiedBody | Ask::Streamed => assert_eq!(status, 405, "{ask:?}"),
    }
}

/// The parts of the world that hold in a scenario.
#[derive(Clone, Copy)]
struct World {
    connections_hold: bool,
    /// The time after which the server leaves.
    leaves_ms: Option<u64>,
}

const STEADY: World = World { connections_hold: true, leaves_ms: None };

/// Streams of chance, some of which are reset. `None` where the connection broke.
async fn client(addr: SockAddr, seed: u64, world: World) -> Option<()> {
    let mut chance = Chance::new(seed);
    let window = [65_535, 2_000, 20_000][chance.below(3) as usize];
    let options = Options::default().set(setting::INITIAL_WINDOW_SIZE, window);
    let mut peer = Peer::connect(&addr, options, Chance::new(seed + 1_000_000)).await?;
    for _ in 0..=chance.below(2) {
        let mut asked = Vec::new();
        for _ in 0..=chance.below(7) {
            let what = ASKS[chance.below(7) as usize];
            let stream = ask(&mut peer.client, what, 1 + chance.below(8_000) as usize);
            asked.push((what, stream));
            match chance.below(6) {
                0 => peer.client.send_frame(&Frame::ping([7; 8])),
                1 => peer.client.send_frame(&Frame::priority_update(stream, "u=1, i")),
                2 => peer.hear().await?,
                _ => {}
            }
        }
        for (_, stream) in asked.extract_if(.., |_| chance.below(6) == 0).collect::<Vec<_>>() {
            for _ in 0..chance.below(4) {
                peer.hear().await?;
            }
            peer.client.reset(stream, code::CANCEL);
        }
        for (what, stream) in asked {
            match peer.response(stream).await {
                // The upstream has left, too.
                Some(response) if response.status == 502 && world.leaves_ms.is_some() => {}
                Some(response) if world.connections_hold => check(what, &response),
                Some(_) => {}
                None if peer.was_told_to_retry(stream) => return Some(()),
                None => return None,
            }
        }
        event::sleep(chance.below(200)).await;
    }
    Some(())
}

/// Waits until the server is left without connections.
async fn end(engine: HttpEngine) {
    engine.quit();
    // A connection that was left would keep it from that.
    until(|| engine.idle() && event::connections_in_use() == 0).await;
    assert_eq!(PANICS.get(), 0, "panics");
}

/// Clients to their end; the server leaves in the midst of that, where it is to.
async fn serve_clients(dir: PathBuf, seed: u64, world: World) {
    let (engine, addr) = start(&dir);
    let clients = Clients::start((0..4).map(|i| {
        let addr = addr.clone();
        async move {
            let whole = client(addr, seed * 100 + i, world).await.is_some();
            // A client that comes when the server has left is not accepted.
            let must = world.connections_hold && world.leaves_ms.is_none();
            assert!(whole || !must, "a connection broke");
        }
    }));
    if let Some(ms) = world.leaves_ms {
        event::sleep(ms).await;
        engine.quit();
    }
    clients.over().await;
    end(engine).await;
}

#[test]
fn streams_come_whole_on_every_driver() {
    let _alone = alone();
    let dir = site("whole");
    each_driver(move || serve_clients(dir.to_path_buf(), 1, STEADY));
}

#[test]
fn nothing_is_left_when_connections_break() {
    let _alone = alone();
    let dir = site("breaks");
    let world = World { connections_hold: false, leaves_ms: None };
    for seed in 0..15 {
        let plan = Plan::new(seed, Faults::HOSTILE);
        for plan in [plan, plan.completing()] {
            let run = serve_clients(dir.to_path_buf(), seed + 3, world);
            sim::run(plan, run).unwrap_or_else(|e| panic!("{plan:?}: {e}"));
        }
    }
}

#[test]
fn a_worker_that_leaves_answers_what_it_has_begun() {
    let _alone = alone();
    let dir = site("leaves");
    for seed in 0..10 {
        let plan = Plan::new(seed, Faults::ROUGH);
        for plan in [plan, plan.completing()] {
            let world = World { connections_hold: true, leaves_ms: Some(seed * 80) };
            let run = serve_clients(dir.to_path_buf(), seed + 60, world);
            sim::run(plan, run).unwrap_or_else(|e| panic!("{plan:?}: {e}"));
        }
    }
}

/// Bytes of a client with all kinds of frames.
fn script() -> Vec<u8> {
    let options = Options::default().set(setting::INITIAL_WINDOW_SIZE, 5_000);
    let mut client = Client::over(Wire::memory(), options);
    client.start("GET", "/small.txt", &[], b"");
    let streamed = client.open("POST", "/streamed/small.txt", &[], false);
    client.data(streamed, b"first", false);
    let head = client.head("GET", "/large.bin", &[("priority", "u=2")]);
    let large = client.next_stream();
    let (a, b) = head.split_at(20);
    client.send_frames(&Frame::headers_in_parts(large, &[a, b, b""], true));
    client.send_frame(&Frame::new(kind::DATA, flag::PADDED, streamed, b"\x03more\0\0\0"));
    client.send_frame(&Frame::priority_update(large, "i"));
    client.send_frame(&Frame::priority(large, streamed, true, 9));
    let given_up = client.start("GET", "/up/large.bin", &[], b"");
    client.grant(0, 100_000);
    client.reset(given_up, code::CANCEL);
    client.send_frame(&Frame::ping(*b"question"));
    let up = client.open("POST", "/up/small.txt", &[("content-length", "8")], false);
    client.data(up, b"the body", true);
    client.grant(large, 2_000);
    client.data(streamed, b"last", true);
    client.wire().take_sent()
}

/// The end of a client whose bytes stop.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// It goes away at once.
    Close,
    /// It says that it is done, and reads what comes.
    Finish,
    /// It goes away with a reset.
    Reset,
    /// It reads and sends nothing more.
    FallSilent,
}

async fn cut(addr: &SockAddr, bytes: &[u8], how: Cut) -> Option<()> {
    let sock = connect(addr).await.ok()?;
    send(&sock, bytes).await?;
    match how {
        Cut::Close => {}
        Cut::Finish => {
            sock.shutdown_write().ok()?;
            while !sock.recv(1, Deadline::in_ms(600_000)).await.ok()?.is_empty() {}
        }
        Cut::Reset => sock.reset(),
        Cut::FallSilent => event::sleep(400_000).await,
    }
    Some(())
}

async fn cuts(dir: PathBuf, step: usize) {
    let (engine, addr) = start(&dir);
    let mut neighbour = Peer::connect(&addr, Options::default(), Chance::new(1)).await.unwrap();
    let small = ask(&mut neighbour.client, Ask::Small, 0);
    check(Ask::Small, &neighbour.response(small).await.unwrap());
    let usual = event::connections_in_use();
    let script = script();
    for at in (0..=script.len()).step_by(step) {
        for how in [Cut::Close, Cut::Finish, Cut::Reset, Cut::FallSilent] {
            let (mine, theirs) = (addr.clone(), script[..at].to_vec());
            let victim = event::spawn(async move {
                let _ = cut(&mine, &theirs, how).await;
            });
            let _victim = Ending(victim);
            let stream = ask(&mut neighbour.client, Ask::Small, 0);
            let response = neighbour.response(stream).await;
            let Some(response) = response else {
                panic!("the neighbour's connection ended at {at}, {how:?}");
            };
            check(Ask::Small, &response);
            let (mut waited, mut pause) = (0, 1);
            while event::connections_in_use() > usual {
                assert!(waited < 1_000_000, "a connection is left of {at} bytes, {how:?}");
                event::sleep(pause).await;
                waited += pause;
                pause = (pause * 2).min(10_000);
            }
        }
    }
    drop(neighbour);
    end(engine).await;
}

#[test]
fn a_connection_cut_behind_any_byte_harms_no_other() {
    let _alone = alone();
    let dir = site("cuts");
    let calm = Plan::new(0, Faults::NONE);
    let rough = Plan::new(1, Faults::ROUGH);
    for (plan, step) in [(calm, 1), (calm.completing(), 5), (rough, 37), (rough.completing(), 41)] {
        sim::run(plan, cuts(dir.to_path_buf(), step)).unwrap_or_else(|e| panic!("{plan:?}: {e}"));
    }
}

/// Streams under way for some time, which ends with the loop, or with connections given up.
async fn interrupted(dir: PathBuf, moment: u64, given_up: bool) {
    let (engine, addr) = start(&dir);
    let mine = addr.clone();
    let victim = Ending(event::spawn(async move {
        let Some(mut peer) = Peer::connect(&mine, Options::default(), Chance::new(7)).await else {
            return;
        };
        let streams: Vec<u32> = ASKS.iter().map(|a| ask(&mut peer.client, *a, 3_000)).collect();
        for stream in streams {
            if peer.response(stream).await.is_none() {
                return;
            }
        }
    }));
    event::sleep(moment / 3 * 10).await;
    for _ in 0..moment % 3 {
        event::task::yield_now().await;
    }
    if given_up {
        engine.quit();
        engine.force();
        let mut waited = 0;
        while !engine.idle() {
            assert!(waited < 1_000, "something goes on");
            event::sleep(10).await;
            waited += 10;
        }
        drop(victim);
        end(engine).await;
    }
}

#[test]
fn a_connection_may_be_dropped_at_any_moment() {
    let _alone = alone();
    let dir = site("dropped");
    let run = |moment: u64| {
        for given_up in [true, false] {
            let plan = Plan::new(moment, Faults::ROUGH);
            let plan = if moment.is_multiple_of(2) { plan } else { plan.completing() };
            let dir = dir.to_path_buf();
            let ran = std::thread::spawn(move || {
                count_panics();
                let ran = sim::run(plan, interrupted(dir, moment, given_up));
                assert_eq!(PANICS.get(), 0, "panics");
                ran.map_err(|e| e.to_string())
            });
            let ran = ran.join().unwrap_or_else(|_| Err("a panic".to_owned()));
            ran.unwrap_or_else(|e| panic!("{plan:?}: {e}"));
        }
    };
    (0..150).for_each(run);
    let before = live();
    (0..15).map(|n| n * 10).for_each(run);
    let more = live().saturating_sub(before);
    assert!(more < SLACK, "{more} bytes are left of 30 runs");
}
