//! Ten million datagrams over sessions that come and go, then a million connections: the server's
//! memory and descriptors stay as they are.
//!
//! Each datagram's answer and each connection's 64 bytes are compared. New source ports come all
//! the time, and sessions over UDP stay for seconds, so that `worker_connections` are always used
//! up and sessions end for new ones.
//!
//! The rule, for each of the two parts: samples are taken through the run, the first tenth is
//! warm-up. The median of the workers' memory (RSS, and PSS) in the last quarter of the rest may be
//! above that in the first quarter by [`GROWTH_MAX`] and [`GROWTH_BYTES`], and the descriptors by
//! [`DESCRIPTORS_MAX`]. When all sessions are over, workers and master have as many descriptors as
//! before the first.

mod connections;
mod datagrams;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::samples::{self, Sample};
use crate::options::Options;
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, proc, report};

const CONFIG: &str = include_str!("../../../configs/stream-many.conf");
/// Growth of memory that is allowed from quarter to quarter.
const GROWTH_MAX: f64 = 0.03;
const GROWTH_BYTES: f64 = 512.0 * 1024.0;
/// The same for descriptors, with some that come and go.
const DESCRIPTORS_MAX: f64 = 0.03;
const DESCRIPTORS: f64 = 32.0;
/// Sessions over UDP that a worker has room for: fewer than come in `proxy_timeout`.
const CONNECTIONS: usize = 900;
/// The share of datagrams that may be lost.
const LOSS_MAX: f64 = 0.001;
/// The time in which the last sessions end: `proxy_timeout` and some.
const DRAIN: Duration = Duration::from_secs(20);

/// What clients have done so far.
#[derive(Default)]
struct Done {
    /// Datagrams, or connections, that are still to be begun.
    left: AtomicU64,
    answered: AtomicU64,
    lost: AtomicU64,
    late: AtomicU64,
    wrong: AtomicU64,
    /// Sessions, each with a source port of its own.
    sessions: AtomicU64,
    over: AtomicBool,
}

impl Done {
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

/// Runs both parts against one Weir.
pub fn run(options: &Options, _: &str) -> Outcome {
    let datagrams_behind = datagrams::Backend::new()?;
    let connections_behind = connections::Backend::new()?;
    let [udp, tcp] = [super::mixed::quiet_port()?, super::mixed::quiet_port()?];
    let driver = options.driver.as_ref();
    let setup = Setup {
        template: CONFIG,
        fill: vec![
            ("%USE%", driver.map_or(String::new(), |d| format!("use {d};"))),
            ("%UDP_PORT%", udp.to_string()),
            ("%TCP_PORT%", tcp.to_string()),
            ("%UDP_BACKEND%", datagrams_behind.port.to_string()),
            ("%TCP_BACKEND%", connections_behind.port.to_string()),
        ],
        cpus: "0,1",
        connections: CONNECTIONS,
        ..Setup::default()
    };
    let (server, _) = Server::start(options, Kind::Weir, &setup)?;
    std::thread::sleep(Duration::from_secs(1));
    let began = Instant::now();
    let before = Sample::take(&server, began);
    before.print("before");
    let mut bad = Vec::new();
    let seed = options.seed;
    bad.extend(part(&server, "datagrams", options.datagrams, datagrams::THREADS, |n, done| {
        datagrams::client(udp, seed ^ n << 32, n, done)
    }));
    bad.extend(quiet(&server, &before, began));
    let count = options.stream_connections;
    bad.extend(part(&server, "connections", count, connections::THREADS, |n, done| {
        connections::client(tcp, seed ^ n << 32, n, done)
    }));
    bad.extend(quiet(&server, &before, began));
    if server.alerts() > 0 {
        bad.push(format!("{} alerts: {}", server.alerts(), server.complaints()));
    }
    if bad.is_empty() { Ok(()) } else { Err(bad.join("; ")) }
}

/// Runs clients until all is done, with samples; gives what is wrong.
fn part(
    server: &Server,
    name: &str,
    count: u64,
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
    let [answered, lost, late, wrong, sessions] =
        [&done.answered, &done.lost, &done.late, &done.wrong, &done.sessions].map(Done::of);
    println!(
        "{name}: {answered} answered in {seconds:.0} s, {:.0} a second, over {sessions} source \
         ports; {lost} lost, {late} of them late, {wrong} wrong",
        answered as f64 / seconds
    );
    let mut bad = flat(name, &samples);
    if wrong > 0 {
        bad.push(format!("{wrong} {name} wrong"));
    }
    if lost as f64 > count as f64 * LOSS_MAX || name == "connections" && lost > 0 {
        bad.push(format!("{lost} {name} lost"));
    }
    if samples::workers(server) != pids {
        bad.push("the workers are others than before".to_string());
    }
    bad
}

/// Takes samples until all is done: one for each hundredth of the work, but not more than two a
/// second.
fn sample(server: &Server, count: u64, done: &Done, began: Instant) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut printed = Instant::now();
    while !done.over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(500));
        let so_far = count - Done::of(&done.left);
        if Done::of(&done.left) == 0 || so_far * 100 < samples.len() as u64 * count {
            continue;
        }
        let sample = Sample::take(server, began);
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
    let mut bad = Vec::new();
    for (what, values) in memory {
        let what = format!("{name}: the workers' {what}, MB");
        if samples::has_grown(&what, &values, mb, GROWTH_MAX, GROWTH_BYTES) {
            bad.push(format!("{what}: grew"));
        }
    }
    let what = format!("{name}: the workers' descriptors");
    let values = of(|s| s.descriptors as u64);
    if samples::has_grown(&what, &values, 1.0, DESCRIPTORS_MAX, DESCRIPTORS) {
        bad.push(format!("{what}: grew"));
    }
    bad
}

/// Waits until the last sessions have ended, and compares descriptors with those at the start.
fn quiet(server: &Server, before: &Sample, began: Instant) -> Option<String> {
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
    let pids = samples::workers(server);
    (open(&now) != open(before)).then(|| {
        let each: Vec<usize> = pids.iter().map(|&pid| proc::descriptors(&[pid])).collect();
        format!("descriptors are {each:?} and not {} as before", before.descriptors)
    })
}
