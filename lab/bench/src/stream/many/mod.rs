//! Ten million datagrams over sessions that come and go, then a million connections: the server's
//! memory and descriptors stay as they are. Then a tenth of the datagrams again to a Weir with
//! `worker_connections` for fewer sessions than there would be: sessions end for new ones.
//!
//! Each datagram's answer and each connection's 64 bytes are compared.
//!
//! The rule, for each of the three parts: samples are taken through it; [`WARM_UP`], and the first
//! tenth of them, are warm-up. The median of the workers' memory (RSS, and PSS) in the last quarter
//! of the rest may be above that in the first quarter by [`GROWTH_MAX`] and [`GROWTH_BYTES`], with
//! [`SESSION_BYTES`] for each session that there were more at a time than ever before (a machine
//! with less other work does more, and sessions over UDP stay for a time). The same holds for
//! descriptors beyond those of sessions that are under way, as the API tells, with
//! [`DESCRIPTORS_MAX`] and [`DESCRIPTORS`]. When all sessions are over, workers and master have as
//! many descriptors as before the first.

mod connections;
mod datagrams;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::mixed::quiet_port;
use super::samples::{self, Sample};
use crate::backends::locked;
use crate::options::Options;
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, proc, report};

const CONFIG: &str = include_str!("../../../configs/stream-many.conf");
/// Growth of memory that is allowed from quarter to quarter. Pages that two workers touch for the
/// first time take more than a megabyte, some of them late; 16 bytes lost a session are several.
const GROWTH_MAX: f64 = 0.03;
const GROWTH_BYTES: f64 = (2 << 20) as f64;
/// What a session takes, at most.
const SESSION_BYTES: f64 = 1024.0;
/// Sessions over UDP are as many as there will be after this time.
const WARM_UP: Duration = Duration::from_secs(8);
/// The same for descriptors, with some that come and go.
const DESCRIPTORS_MAX: f64 = 0.03;
const DESCRIPTORS: f64 = 32.0;
/// Sessions that a worker has room for, and how long they stay: there is room for all.
const ROOM: (usize, &str) = (8192, "2s");
/// The same where the driver is `select`, which takes 1,024 descriptors.
const ROOM_OF_SELECT: (usize, &str) = (900, "300ms");
/// The same where there is room for a part of them.
const LITTLE_ROOM: (usize, &str) = (500, "5s");
/// The share of datagrams that may be lost, and where sessions end for new ones: a client's first
/// datagrams may be those of a session that ends.
const LOSS_MAX: f64 = 0.001;
const LOSS_MAX_LITTLE_ROOM: f64 = 0.1;
/// The time in which the last sessions end: `proxy_timeout` and some.
const DRAIN: Duration = Duration::from_secs(20);

/// Failures that are printed.
const SHOWN: u64 = 20;

/// What clients have done so far.
#[derive(Default)]
struct Done {
    /// Datagrams, or connections, that are still to be begun.
    left: AtomicU64,
    answered: AtomicU64,
    lost: AtomicU64,
    late: AtomicU64,
    wrong: AtomicU64,
    /// Answers to a session that had ended for a new one, at a session whose port to the backend
    /// was the other's: the kernel gave a new socket the port of one that was just closed.
    inherited: AtomicU64,
    /// Sessions, each with a source port of its own.
    sessions: AtomicU64,
    over: AtomicBool,
    told: AtomicU64,
}

impl Done {
    /// Prints the first few failures.
    fn tell(&self, what: impl FnOnce() -> String) {
        if self.told.fetch_add(1, Ordering::Relaxed) < SHOWN {
            println!("  {}", what());
        }
    }

    /// Takes some of what is left; gives how many.
    fn take(&self, some: u64) -> u64 {
        let less = |left: u64| Some(left.saturating_sub(some));
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        left.unwrap_or(0).min(some)
    }

    fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

/// What is behind Weir, and where it listens.
struct Ports {
    udp: u16,
    tcp: u16,
    udp_behind: u16,
    tcp_behind: u16,
    /// The backend's account of Weir's ports.
    seen: datagrams::Ports,
}

/// Runs all parts against Weir.
pub fn run(options: &Options, _: &str) -> Outcome {
    let udp_behind = datagrams::Backend::new()?;
    let tcp_behind = connections::Backend::new()?;
    let ports = Ports {
        udp: quiet_port()?,
        tcp: quiet_port()?,
        udp_behind: udp_behind.port,
        tcp_behind: tcp_behind.port,
        seen: udp_behind.ports.clone(),
    };
    let mut bad = Vec::new();
    if options.only.is_none_or(|only| only == 0) {
        bad.extend(with_room(options, &ports)?);
    }
    if options.only.is_none_or(|only| only == 1) {
        bad.extend(with_little_room(options, &ports)?);
    }
    if bad.is_empty() { Ok(()) } else { Err(bad.join("; ")) }
}

/// The first two parts, against one server.
fn with_room(options: &Options, ports: &Ports) -> Outcome<Vec<String>> {
    let is_select = options.driver.as_ref().is_some_and(|driver| driver == "select");
    let room = if is_select { ROOM_OF_SELECT } else { ROOM };
    let server = start(options, ports, room)?;
    let began = Instant::now();
    let before = Sample::take(&server, began);
    before.print("before");
    let count = options.datagrams;
    let mut bad = part(&server, "datagrams", count, LOSS_MAX, datagrams::THREADS, |n, done| {
        let seed = options.seed ^ n << 32;
        datagrams::client(ports.udp, seed, n, Duration::from_secs(1), (&ports.seen, done));
    });
    bad.extend(quiet(&server, &before, began));
    let count = options.stream_connections;
    bad.extend(part(&server, "connections", count, 0.0, connections::THREADS, |n, done| {
        connections::client(ports.tcp, options.seed ^ n << 32, n, done);
    }));
    bad.extend(quiet(&server, &before, began));
    if server.alerts() > 0 {
        bad.push(format!("{} alerts: {}", server.alerts(), server.complaints()));
    }
    Ok(bad)
}

/// The third part, against another one.
fn with_little_room(options: &Options, ports: &Ports) -> Outcome<Vec<String>> {
    let server = start(options, ports, LITTLE_ROOM)?;
    locked(&ports.seen).clear();
    let began = Instant::now();
    let before = Sample::take(&server, began);
    println!();
    before.print("before, with little room");
    let (count, loss, threads) = (options.datagrams / 10, LOSS_MAX_LITTLE_ROOM, datagrams::THREADS);
    let mut bad = part(&server, "datagrams with little room", count, loss, threads, |n, done| {
        let seed = options.seed ^ (n + threads) << 32;
        datagrams::client(ports.udp, seed, n, Duration::from_millis(100), (&ports.seen, done));
    });
    bad.extend(quiet(&server, &before, began));
    if server.alerts_but("worker_connections are not enough") > 0 {
        bad.push(format!("alerts with little room: {}", server.complaints()));
    }
    Ok(bad)
}

fn start(options: &Options, ports: &Ports, room: (usize, &str)) -> Outcome<Server> {
    let driver = options.driver.as_ref();
    let setup = Setup {
        template: CONFIG,
        fill: vec![
            ("%USE%", driver.map_or(String::new(), |d| format!("use {d};"))),
            ("%TIMEOUT%", room.1.to_string()),
            ("%UDP_PORT%", ports.udp.to_string()),
            ("%TCP_PORT%", ports.tcp.to_string()),
            ("%UDP_BACKEND%", ports.udp_behind.to_string()),
            ("%TCP_BACKEND%", ports.tcp_behind.to_string()),
        ],
        cpus: "0,1",
        connections: room.0,
        ..Setup::default()
    };
    let (server, _) = Server::start(options, Kind::Weir, &setup)?;
    std::thread::sleep(Duration::from_secs(1));
    Ok(server)
}

/// Runs clients until all is done, with samples; gives what is wrong.
fn part(
    server: &Server,
    name: &str,
    count: u64,
    loss_max: f64,
    threads: u64,
    client: impl Fn(u64, &Done) + Sync,
) -> Vec<String> {
    println!("\n{count} {name}");
    let done = Done { left: AtomicU64::new(count), ..Done::default() };
    let pids = samples::workers(server);
    let began = Instant::now();
    let samples = std::thread::scope(|scope| {
        let (client, done) = (&client, &done);
        let clients: Vec<_> = (0..threads).map(|n| scope.spawn(move || client(n, done))).collect();
        let sampler = scope.spawn(|| sample(server, count, done, began));
        let panicked = clients.into_iter().filter_map(|client| client.join().err()).count();
        done.wrong.fetch_add(panicked as u64, Ordering::Relaxed);
        done.over.store(true, Ordering::Relaxed);
        sampler.join().unwrap_or_default()
    });
    let seconds = began.elapsed().as_secs_f64();
    let [answered, lost, late, wrong, inherited, sessions] =
        [&done.answered, &done.lost, &done.late, &done.wrong, &done.inherited, &done.sessions]
            .map(Done::of);
    println!(
        "{name}: {answered} answered in {seconds:.0} s, {:.0} a second, over {sessions} source \
         ports; {lost} lost, {late} of them late, {wrong} wrong, {inherited} of an ended session \
         with the same port",
        answered as f64 / seconds
    );
    let mut bad = flat(name, &samples);
    // Where there is room, no session ends before its answers are there.
    let wrong = if loss_max < LOSS_MAX_LITTLE_ROOM { wrong + inherited } else { wrong };
    if wrong > 0 {
        bad.push(format!("{wrong} {name} wrong"));
    }
    if lost as f64 > count as f64 * loss_max {
        bad.push(format!("{lost} {name} lost"));
    }
    if samples::workers(server) != pids {
        bad.push("the workers are others than before".to_string());
    }
    bad
}

/// Takes samples from [`WARM_UP`] on until all is done: one for each hundredth of the work, but not
/// more than two a second.
fn sample(server: &Server, count: u64, done: &Done, began: Instant) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut printed = Instant::now();
    while !done.over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(500));
        if began.elapsed() < WARM_UP {
            continue;
        }
        let so_far = count - Done::of(&done.left);
        if Done::of(&done.left) == 0 || so_far * 100 < samples.len() as u64 * count {
            continue;
        }
        let sample = Sample::take_with_sessions(server, began);
        if samples.is_empty() || printed.elapsed() >= Duration::from_secs(10) {
            printed = Instant::now();
            sample.print(&format!("{so_far} of {count}"));
        }
        samples.push(sample);
    }
    samples
}

/// Prints memory and descriptors, and says what has grown.
fn flat(name: &str, samples: &[Sample]) -> Vec<String> {
    let mb = f64::from(1 << 20);
    let of = |value: fn(&Sample) -> u64| -> Vec<f64> {
        samples.iter().map(|sample| value(sample) as f64).collect()
    };
    let memory = [("RSS", of(|s| s.memory.rss)), ("PSS", of(|s| s.memory.pss))];
    let descriptors = of(|s| s.descriptors as u64);
    let constant = GROWTH_BYTES + SESSION_BYTES * samples::more_at_most(&descriptors);
    let mut bad = Vec::new();
    for (what, values) in memory {
        let what = format!("{name}: the workers' {what}, MB");
        if samples::has_grown(&what, &values, mb, GROWTH_MAX, constant) {
            bad.push(format!("{what}: grew"));
        }
    }
    let what = format!("{name}: the workers' descriptors beyond those of sessions");
    let beyond: Vec<f64> =
        samples.iter().map(|s| s.descriptors as f64 - s.sessions_descriptors as f64).collect();
    if samples::has_grown(&what, &beyond, 1.0, DESCRIPTORS_MAX, DESCRIPTORS) {
        bad.push(format!("{what}: grew"));
    }
    bad
}

/// Waits until the last sessions have ended, and compares descriptors with those at the start.
fn quiet(server: &Server, before: &Sample, began: Instant) -> Vec<String> {
    let waited = Instant::now();
    let open = |sample: &Sample| (sample.descriptors, sample.master_descriptors);
    let mut now = Sample::take(server, began);
    while open(&now) != open(before) && waited.elapsed() < DRAIN {
        std::thread::sleep(Duration::from_millis(200));
        now = Sample::take(server, began);
    }
    now.print(&format!("{:.1} s behind the last", waited.elapsed().as_secs_f64()));
    println!(
        "private memory of the workers: {} MB before, {} MB now",
        report::megabytes(before.memory.private_dirty as f64),
        report::megabytes(now.memory.private_dirty as f64)
    );
    let mut bad: Vec<String> = samples::sessions_under_way(server).into_iter().collect();
    if open(&now) != open(before) {
        let pids = samples::workers(server);
        let each: Vec<usize> = pids.iter().map(|&pid| proc::descriptors(&[pid])).collect();
        bad.push(format!("descriptors are {each:?} and not {} as before", before.descriptors));
    }
    bad
}
