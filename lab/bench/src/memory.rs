//! Little memory, or few descriptors: slow clients by the thousand where that does not suffice, and
//! the price of a few of them where it does.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cgroup::Group;
use crate::options::Options;
use crate::report::{self, row};
use crate::server::{self, Kind, Server, Setup};
use crate::{Outcome, proc};

const CONFIG: &str = include_str!("../configs/memory.conf");

/// Clients that have sent half a head.
const HALF_HEADS: usize = 3_500;
/// Clients that read a long answer slowly; every other one of an upstream's.
const SLOW_READERS: usize = 400;
/// The length of their answers, bytes.
const ANSWER: u64 = 8 << 20;
/// Clients that are not slow.
const WITNESSES: usize = 4;

const BEFORE: Duration = Duration::from_secs(2);
const PRESSURE: Duration = Duration::from_secs(8);
/// The rate is measured this long after the slow ones have gone.
const SETTLE: Duration = Duration::from_secs(1);

/// Readers of `slow-readers`.
const FEW: usize = 80;
const LONG: u64 = 50 << 20;

/// A limit; of memory in MB.
#[derive(Clone, Copy)]
enum Limit {
    /// Of each process's address space (`ulimit -v`).
    Space(u64),
    /// Of all processes together, page cache and the kernel's buffers included (a control group).
    Group(u64),
    /// Descriptors of the worker, fewer than there are slow clients (a number, not MB).
    Descriptors(u64),
}

/// The first is the load without a limit.
const LIMITS: &[Limit] = &[
    Limit::Space(0),
    Limit::Space(60),
    Limit::Space(100),
    Limit::Space(134),
    Limit::Group(60),
    Limit::Descriptors(2000),
];

impl Limit {
    fn name(self) -> String {
        match self {
            Limit::Space(0) => "none".to_string(),
            Limit::Space(mb) => format!("ulimit -v {mb} MB"),
            Limit::Group(mb) => format!("group of {mb} MB"),
            Limit::Descriptors(most) => format!("{most} descriptors"),
        }
    }
}

/// A folder with the requested file, and a server that passes it on to others.
struct Upstream {
    server: Server,
    root: PathBuf,
}

impl Upstream {
    fn start(options: &Options, bytes: u64) -> Outcome<Self> {
        let root = server::new_folder()?;
        let written = fs::write(root.join("small.txt"), [b'x'; 1000]).and_then(|()| {
            fs::File::create(root.join("long.bin"))?.set_len(bytes)?;
            fs::create_dir(root.join("passed"))
        });
        written.map_err(|e| format!("{}: {e}", root.display()))?;
        let (server, _) = Server::start(options, Kind::Nginx, &setup(&root, 1, Limit::Space(0)))?;
        Ok(Self { server, root })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn setup(root: &Path, upstream: u16, limit: Limit) -> Setup {
    Setup {
        template: CONFIG,
        fill: vec![
            ("%UPSTREAM%", upstream.to_string()),
            (
                "%DESCRIPTORS%",
                if let Limit::Descriptors(most) = limit { most } else { 20_000 }.to_string(),
            ),
        ],
        root: Some(root.to_path_buf()),
        address_space_kb: match limit {
            Limit::Space(mb) if mb > 0 => Some(mb * 1000),
            _ => None,
        },
        ..Setup::default()
    }
}

/// `memory-short`.
pub fn short(options: &Options, _name: &str) -> Outcome {
    let upstream = Upstream::start(options, ANSWER)?;
    let mut rows = vec![row([
        "server",
        "limit",
        "before/s",
        "beside/s",
        "failed",
        "longest s",
        "after/s",
        "failed",
        "heads cut",
        "readers cut",
        "workers lost",
    ])];
    let limits = LIMITS.iter().enumerate();
    for (_, &limit) in limits.filter(|(at, _)| options.only.is_none_or(|only| only == *at)) {
        for &kind in options.servers.iter().filter(|k| k.is_real()) {
            rows.push(press(options, &upstream, kind, limit)?);
        }
    }
    report::table(&rows);
    println!("(before, beside, after: answers to {WITNESSES} clients, a connection each)");
    Ok(())
}

fn press(options: &Options, upstream: &Upstream, kind: Kind, limit: Limit) -> Outcome<Vec<String>> {
    let mut setup = setup(&upstream.root, upstream.server.port, limit);
    let group = match limit {
        Limit::Group(mb) => {
            let group = Group::new("memory", &format!("weir-bench-{}", std::process::id()))?;
            group.set("memory.limit_in_bytes", &(mb << 20).to_string())?;
            setup.groups = vec![group.door()];
            Some(group)
        }
        Limit::Space(_) | Limit::Descriptors(_) => None,
    };
    let (server, _) = Server::start(options, kind, &setup)?;
    let worker = server.worker();
    let before = watch(server.port, || std::thread::sleep(BEFORE));
    let mut slow = Slow::default();
    let beside = watch(server.port, || {
        slow = Slow::open(server.port, HALF_HEADS, SLOW_READERS);
        slow.dawdle(PRESSURE);
    });
    let (heads, readers) = slow.cut();
    drop(slow);
    std::thread::sleep(SETTLE);
    let after = watch(server.port, || std::thread::sleep(BEFORE));
    let lost = if server.worker() == worker { "none" } else { "yes" };
    let cells = row([
        kind.name(),
        &limit.name(),
        &format!("{:.0}", before.rate()),
        &format!("{:.0}", beside.rate()),
        &beside.failed.to_string(),
        &format!("{:.2}", beside.longest.as_secs_f64()),
        &format!("{:.0}", after.rate()),
        &after.failed.to_string(),
        &heads.to_string(),
        &readers.to_string(),
        lost,
    ]);
    drop(server);
    drop(group);
    Ok(cells)
}

/// Clients that take their time.
#[derive(Default)]
struct Slow {
    heads: Vec<Option<TcpStream>>,
    readers: Vec<Option<TcpStream>>,
}

impl Slow {
    fn open(port: u16, heads: usize, readers: usize) -> Self {
        let head = format!("GET /small.txt HTTP/1.1\r\nHost: a\r\nX-A: {}", "x".repeat(300));
        let ask = |n: usize| match n % 2 {
            0 => "GET /long.bin HTTP/1.1\r\nHost: a\r\n\r\n",
            _ => "GET /passed/long.bin HTTP/1.1\r\nHost: a\r\n\r\n",
        };
        let mut slow = Slow::default();
        for n in 0..heads.max(readers) {
            if n < heads {
                slow.heads.push(client(port, &head));
            }
            if n < readers {
                slow.readers.push(client(port, ask(n)));
            }
        }
        slow
    }

    /// A little of everything, for a while.
    fn dawdle(&mut self, time: Duration) {
        let began = Instant::now();
        let mut buffer = [0; 2048];
        while began.elapsed() < time {
            for reader in &mut self.readers {
                if let Some(stream) = reader
                    && is_over(stream.read(&mut buffer))
                {
                    *reader = None;
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Connections that the server has closed: half heads, readers.
    fn cut(&mut self) -> (usize, usize) {
        let mut buffer = [0; 16];
        for head in &mut self.heads {
            if let Some(stream) = head
                && is_over(stream.read(&mut buffer))
            {
                *head = None;
            }
        }
        let gone = |all: &[Option<TcpStream>]| all.iter().filter(|s| s.is_none()).count();
        (gone(&self.heads), gone(&self.readers))
    }
}

fn is_over(read: std::io::Result<usize>) -> bool {
    match read {
        Ok(n) => n == 0,
        Err(e) => e.kind() != ErrorKind::WouldBlock,
    }
}

fn client(port: u16, ask: &str) -> Option<TcpStream> {
    let address = (Ipv4Addr::LOCALHOST, port).into();
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(3)).ok()?;
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 8192);
    stream.set_nonblocking(true).ok()?;
    stream.write_all(ask.as_bytes()).ok()?;
    Some(stream)
}

/// The witnesses' results.
struct Seen {
    answered: u64,
    failed: u64,
    longest: Duration,
    time: Duration,
}

impl Seen {
    fn rate(&self) -> f64 {
        self.answered as f64 / self.time.as_secs_f64()
    }
}

/// Has witnesses ask for a small file, over and over, while `meanwhile` runs.
fn watch(port: u16, meanwhile: impl FnOnce()) -> Seen {
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Arc<[AtomicU64; 3]> = Arc::default();
    let began = Instant::now();
    let witnesses: Vec<JoinHandle<()>> = (0..WITNESSES)
        .map(|_| {
            let (stop, counts) = (stop.clone(), counts.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    let ok = server::get(port, "localhost", "/small.txt").is_ok();
                    counts[usize::from(!ok)].fetch_add(1, Ordering::Relaxed);
                    let us = asked.elapsed().as_micros() as u64;
                    counts[2].fetch_max(us, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            })
        })
        .collect();
    meanwhile();
    let time = began.elapsed();
    stop.store(true, Ordering::Relaxed);
    for witness in witnesses {
        let _ = witness.join();
    }
    let [answered, failed, longest] = [0, 1, 2].map(|n: usize| counts[n].load(Ordering::Relaxed));
    Seen { answered, failed, longest: Duration::from_micros(longest), time }
}

/// `slow-readers`.
pub fn readers(options: &Options, _name: &str) -> Outcome {
    let upstream = Upstream::start(options, LONG)?;
    let mut rows =
        vec![row(["server", "readers", "at start, KB", "most during, KB", "15 s after, KB"])];
    for &kind in options.servers.iter().filter(|k| k.is_real()) {
        let setup = setup(&upstream.root, upstream.server.port, Limit::Space(0));
        let (server, _) = Server::start(options, kind, &setup)?;
        let dirty = || proc::memory(&[server.worker()]).private_dirty >> 10;
        std::thread::sleep(Duration::from_millis(500));
        let start = dirty();
        let ask = "GET /passed/long.bin HTTP/1.1\r\nHost: a\r\n\r\n";
        let all = (0..FEW).map(|_| client(server.port, ask)).collect();
        let mut readers = Slow { heads: Vec::new(), readers: all };
        let mut most = 0;
        for _ in 0..options.seconds.max(10) {
            readers.dawdle(Duration::from_secs(1));
            most = most.max(dirty());
        }
        drop(readers);
        std::thread::sleep(Duration::from_secs(15));
        rows.push(row([
            kind.name(),
            &FEW.to_string(),
            &start.to_string(),
            &most.to_string(),
            &dirty().to_string(),
        ]));
    }
    report::table(&rows);
    println!("(private dirty memory of the worker)");
    Ok(())
}
