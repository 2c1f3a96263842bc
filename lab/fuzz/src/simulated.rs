//! The common part of the targets of whole connections: a server under the simulated driver, on a
//! network that is as bad as the input says, with an account of memory.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::OnceLock;

use base::log::{Level, Log, Sink};
use bytes::Bytes;
use engine::{Engine, Seat};
use event::sim::{self, Faults, Plan};
use event::testing::listen;
use event::{ListenOpts, Listener};
use net::ListenSpec;
use net::listeners::Removals;
use net::quic_id::Key;
use net::quic_relay::Relay;
use os::SockAddr;
use os::socket::Kind;
use testkit::Pair;
use testkit::certificates::KeyKind;
use weir_http::engine::HttpEngine;

/// Memory that a connection and its requests may take: over HTTP/2 768 KB of heads, 192 KB of
/// output, the requests to upstreams, and the bytes that are under way.
const MEMORY_MAX: usize = 6 << 20;

/// The same over HTTP/3, with the client's end and what is under way between them: 2 MB that the
/// client has not confirmed, 1 MB that it has not read, heads and tables.
const QUIC_MEMORY_MAX: usize = 16 << 20;

/// Memory that may be left behind all runs, beside the pages of the thread's free list, which has
/// an end of its own, as that of wide pages (416 KB) has.
const LEFT_MAX: usize = 512 << 10;

/// Runs after which everything that stays in the process is there.
const WARM: u32 = 200;

thread_local! {
    static RUNS: Cell<u32> = const { Cell::new(0) };
    static USUAL: Cell<usize> = const { Cell::new(0) };
}

/// The small file.
pub const SMALL: &[u8] = b"a small file\n";

/// The one that is larger than a window.
pub fn large() -> Vec<u8> {
    b"0123456789abcdef".repeat(6_000)
}

/// The server, and what stands around it.
pub struct World {
    /// Its address.
    pub addr: SockAddr,
    /// Where it speaks QUIC, if it does.
    pub quic: Option<SocketAddr>,
    /// Where it expects a server that speaks HTTP/2: it passes `/2/` on to that, and `/2w/` as
    /// WebSocket.
    pub origin: Listener,
    pub memory: Memory,
}

/// Memory that a connection takes.
pub struct Memory {
    before: usize,
    live: fn() -> usize,
    most: usize,
}

impl Memory {
    /// Panics where it is too much.
    pub fn check(&self) {
        let more = (self.live)().saturating_sub(self.before);
        assert!(more < self.most, "{more} bytes for a connection");
    }
}

/// The network by two bytes of the input; whether it has no faults.
pub fn plan(mode: u8, seed: u8) -> (Plan, bool) {
    let faults = [Faults::NONE, Faults::ROUGH, Faults::HOSTILE, Faults::NONE];
    let of = usize::from(mode >> 1 & 3);
    let plan = Plan::new(seed.into(), faults[of]);
    (if mode & 8 == 0 { plan } else { plan.completing() }, matches!(of, 0 | 3))
}

/// Serves the client `play`, to the end of all connections. `live` tells the memory that is
/// allocated.
pub fn run<F: Future<Output = ()> + 'static>(
    plan: Plan,
    live: fn() -> usize,
    play: impl FnOnce(World) -> F + 'static,
) {
    run_with(plan, live, false, play);
}

/// The same with an address of QUIC's: its datagrams go over the loopback, where they arrive in no
/// time, while time is the simulation's.
pub fn run_quic<F: Future<Output = ()> + 'static>(
    plan: Plan,
    live: fn() -> usize,
    play: impl FnOnce(World) -> F + 'static,
) {
    run_with(plan, live, true, play);
}

fn run_with<F: Future<Output = ()> + 'static>(
    plan: Plan,
    live: fn() -> usize,
    is_quic: bool,
    play: impl FnOnce(World) -> F + 'static,
) {
    let ran = sim::run(plan, serve(live, is_quic, play));
    ran.unwrap_or_else(|e| panic!("{plan:?}: {e}"));
    let runs = RUNS.get() + 1;
    RUNS.set(runs);
    let live = live() - mem::pages_kept() * mem::PAGE_SIZE;
    if runs == WARM {
        USUAL.set(live);
    }
    if runs > WARM {
        let left = live.saturating_sub(USUAL.get());
        assert!(left < LEFT_MAX, "{left} bytes are left of {} runs", runs - WARM);
    }
}

/// The folder that is served: of this process, with a small file and one larger than a window.
fn site() -> &'static Path {
    static SITE: OnceLock<PathBuf> = OnceLock::new();
    SITE.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("weir-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        std::fs::write(dir.join("s"), SMALL).expect("a file");
        std::fs::write(dir.join("l"), large()).expect("a file");
        let pair = Pair::own(KeyKind::P256, "a");
        std::fs::write(dir.join("a.pem"), pair.pem()).expect("a file");
        std::fs::write(dir.join("a.key"), pair.key.pem()).expect("a file");
        dir
    })
}

/// Takes all lines of the log, which are formatted, and drops them.
struct Nowhere;

impl Sink for Nowhere {
    fn write_line(&self, _: Level, _: &[u8]) {}

    fn level(&self) -> Level {
        Level::Info
    }
}

/// A socket for datagrams.
fn datagrams() -> std::io::Result<(Listener, SocketAddr)> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    let addr = socket.local_addr()?;
    os::datagram::set_ecn(&socket, false)?;
    os::datagram::set_join(&socket)?;
    Ok((Listener::new(socket.into(), ListenOpts::default()), addr))
}

fn start(is_quic: bool) -> (HttpEngine, SockAddr, Option<SocketAddr>, Listener) {
    let dir = site();
    let (listener, addr) = listen().expect("a listener");
    let (origin, origin_addr) = listen().expect("a listener");
    let (root, port, behind) = (dir.display(), addr.port(), origin_addr.port());
    let quic = match is_quic {
        true => format!(
            "listen 127.0.0.1:2 quic; http3_max_concurrent_streams 20;
             ssl_certificate {root}/a.pem; ssl_certificate_key {root}/a.key;"
        ),
        false => String::new(),
    };
    let text = format!(
        "http {{ upstream behind {{ server 127.0.0.1:{behind} max_fails=0; }}
         server {{ listen 127.0.0.1:1; http2 on; root {root}; access_log off; {quic}
           http2_max_concurrent_streams 20;
           location /u/ {{ proxy_pass http://127.0.0.1:{port}/; }}
           location /t/ {{
               proxy_pass http://127.0.0.1:{port}/;
               proxy_http_version 1.1;
               proxy_request_buffering off;
               proxy_buffering off;
           }}
           location /w/ {{
               proxy_pass http://127.0.0.1:{port}/;
               proxy_http_version 1.1;
               proxy_set_header Upgrade $http_upgrade;
               proxy_set_header Connection upgrade;
           }}
           location /2/ {{ proxy_pass http://behind; proxy_http_version 2; }}
           location /2w/ {{
               proxy_pass http://behind;
               proxy_http_version 2;
               proxy_set_header Upgrade $http_upgrade;
           }}
           location /r {{ limit_rate 1k; alias {root}/l; }}
         }} }}"
    );
    let options = conf::parse::Options::default();
    let tree = conf::parse::parse_bytes(Path::new("t"), Bytes::from(text), &options);
    let log = Log::new(vec![Rc::new(Nowhere)]);
    let mut env = weir_http::LoadEnv::alone(dir, log.clone()).expect("an environment");
    env.connections = 64;
    let tree = tree.expect("a configuration");
    let main = weir_http::build::build(&tree.nodes[0], env, http_modules::MODULES);
    let engine = HttpEngine::new(main.expect("a configuration"));
    let (debug_connections, alone) = (Rc::new([]), event::Gate::new());
    alone.close();
    let relay = is_quic.then(|| Rc::new(Relay::alone(Rc::new(Key::random()))));
    let (moves, removals) = (None, Removals::default());
    let seat = Seat { index: 0, slot: 0, log, debug_connections, alone, relay, moves, removals };
    let (mut quic, mut stream) = (None, Some(listener));
    let open = |spec: ListenSpec| match spec.kind {
        Kind::Stream => stream.take().expect("one address of TCP's"),
        _ => {
            let (socket, at) = datagrams().expect("a socket");
            quic = Some(at);
            socket
        }
    };
    let listeners = engine.listeners().into_iter().map(open).collect();
    engine.start(&seat, listeners).expect("an engine");
    (engine, addr, quic, origin)
}

async fn serve<F: Future<Output = ()>>(
    live: fn() -> usize,
    is_quic: bool,
    play: impl FnOnce(World) -> F,
) {
    let (engine, addr, quic, origin) = start(is_quic);
    let most = if is_quic { QUIC_MEMORY_MAX } else { MEMORY_MAX };
    // The endpoint has its buffers with that.
    event::task::next_turn().await;
    play(World { addr, quic, origin, memory: Memory { before: live(), live, most } }).await;
    engine.quit();
    let (mut waited, mut pause) = (0, 1);
    while !engine.idle() || event::connections_in_use() > 0 {
        assert!(waited < 2_000_000, "a connection is left");
        event::sleep(pause).await;
        waited += pause;
        pause = (pause * 2).min(10_000);
    }
}
