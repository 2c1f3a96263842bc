//! `overload`: as many clients as fit, then enough for twice the limit, then the first ones again.
//!
//! ```text
//!  clients of 80 % of the limit │ clients of 200 % │ those of 80 %
//!  ──── undisturbed rate ───────┴──── goodput ─────┴─ recovery ──▶
//! ```
//!
//! Three limits: `worker_connections`, descriptors, and memory of the control group. Beside them,
//! the status page is asked for every 50 ms, and a page by a new client every 20 ms.

mod clients;

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clients::{Ask, Counts, Crowd};

use crate::cgroup::Group;
use crate::client::connect_from;
use crate::options::Options;
use crate::report::{self, row};
use crate::server::{self, Kind, Server, Setup};
use crate::{Outcome, proc};

const CONFIG: &str = include_str!("../../configs/overload.conf");
const ORIGIN: &str = include_str!("../../configs/overload-origin.conf");

/// The limit on connections or descriptors of the worker.
const PLACES: usize = 1024;
/// The limit on memory, MB, and the clients whose bodies or responses take about all of it.
const MEMORY_MB: usize = 96;
/// The bytes that a slow reader reads.
const LONG: usize = 400 << 10;

/// Before a rate is measured.
const SETTLE: Duration = Duration::from_secs(3);
/// Looks at the recovery, from the moment that the excess has left.
const AFTER: Duration = Duration::from_secs(4);
/// The rate after it is that of so long at least.
const THEN: Duration = Duration::from_secs(4);
const STATUS_EVERY: Duration = Duration::from_millis(50);
const PROBE_EVERY: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(2);

/// The limits of a run that passes.
const GOODPUT: f64 = 0.8;
const STATUS_MAX: Duration = Duration::from_millis(100);
const RECOVERY_MAX: Duration = Duration::from_secs(1);

/// A limit, the requests that press on it, and the clients that would take all of it.
struct Pressure {
    name: &'static str,
    connections: usize,
    descriptors: usize,
    memory_mb: Option<usize>,
    ask: Ask,
    limit: usize,
}

const USUAL: Pressure = Pressure {
    name: "",
    connections: 12_000,
    descriptors: 20_000,
    memory_mb: None,
    ask: Ask::Held,
    limit: PLACES,
};

const PRESSURES: &[Pressure] = &[
    Pressure { name: "connections, files", connections: PLACES, ..USUAL },
    // A request that is passed on takes two places.
    Pressure {
        name: "connections, passed on",
        connections: PLACES,
        ask: Ask::Passed,
        limit: PLACES / 2,
        ..USUAL
    },
    Pressure {
        name: "descriptors, passed on",
        descriptors: PLACES,
        ask: Ask::Passed,
        limit: PLACES / 2,
        ..USUAL
    },
    Pressure {
        name: "memory, uploads",
        memory_mb: Some(MEMORY_MB),
        ask: Ask::Upload,
        limit: 350,
        ..USUAL
    },
    Pressure {
        name: "memory, slow readers",
        memory_mb: Some(MEMORY_MB),
        ask: Ask::SlowRead,
        limit: 320,
        ..USUAL
    },
];

/// Runs each pressure against every real server.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let root = server::new_folder()?;
    let site = root.join("site");
    std::fs::write(site.join("3k"), [b'x'; 3 << 10])
        .and_then(|()| std::fs::write(site.join("small"), "small"))
        .and_then(|()| std::fs::write(site.join("long"), vec![b'x'; LONG]))
        .map_err(|e| format!("{}: {e}", site.display()))?;
    let origin =
        Setup { template: ORIGIN, root: Some(site.clone()), cpus: "1", ..Setup::default() };
    let (origin, _) = Server::start(options, Kind::Nginx, &origin)?;
    let mut rows = vec![row([
        "server",
        "pressure",
        "clients",
        "fit/s",
        "goodput/s",
        "share",
        "503/s",
        "failed/s",
        "status ms",
        "failed",
        "recovery ms",
        "then",
        "worker",
    ])];
    let mut short = Vec::new();
    for (number, pressure) in PRESSURES.iter().enumerate() {
        if options.only.is_some_and(|n| n != number) {
            continue;
        }
        for &kind in options.servers.iter().filter(|kind| kind.is_real()) {
            let seen = press(options, kind, pressure, &site, origin.port)?;
            if kind != Kind::Nginx && !seen.passes() {
                short.push(pressure.name);
            }
            rows.push(seen.row(kind, pressure));
        }
    }
    let _ = std::fs::remove_dir_all(&root);
    report::table(&rows);
    println!(
        "(fit: the rate of the clients that take 80 % of the limit; goodput: answers of twice the \
         limit; status: the slowest of its page, of that without a processor for the worker, and \
         those above 100 ms or without an answer; then: the rate after the recovery, to that of \
         fit)"
    );
    if short.is_empty() { Ok(()) } else { Err(format!("weir under {}", short.join(", "))) }
}

/// The results of a server under a pressure.
struct Seen {
    /// Good answers a second, undisturbed, under pressure, and after it.
    rates: [f64; 3],
    refused: f64,
    failed: f64,
    status: Probed,
    recovery: Duration,
    worker_lost: bool,
}

impl Seen {
    fn passes(&self) -> bool {
        self.rates[1] >= GOODPUT * self.rates[0]
            && self.status.bad == 0
            && self.recovery <= RECOVERY_MAX
            && !self.worker_lost
    }

    fn row(&self, kind: Kind, pressure: &Pressure) -> Vec<String> {
        let [fit, good, then] = self.rates;
        row([
            kind.name(),
            pressure.name,
            &format!("{} -> {}", pressure.limit * 4 / 5, pressure.limit * 2),
            &format!("{fit:.0}"),
            &format!("{good:.0}"),
            &format!("{:.2}", good / fit),
            &format!("{:.0}", self.refused),
            &format!("{:.0}", self.failed),
            &format!(
                "{} ({})",
                self.status.slowest.as_millis(),
                self.status.slowest_queued.as_millis()
            ),
            &format!("{} of {}", self.status.bad, self.status.asked),
            &self.recovery.as_millis().to_string(),
            &format!("{:.2}", then / fit),
            if self.worker_lost { "lost" } else { "stays" },
        ])
    }
}

fn press(
    options: &Options,
    kind: Kind,
    pressure: &Pressure,
    site: &std::path::Path,
    upstream: u16,
) -> Outcome<Seen> {
    let fill = vec![
        ("%UPSTREAM%", upstream.to_string()),
        ("%DESCRIPTORS%", pressure.descriptors.to_string()),
    ];
    let mut setup = Setup {
        template: CONFIG,
        connections: pressure.connections,
        fill,
        root: Some(site.to_path_buf()),
        ..Setup::default()
    };
    let group = match pressure.memory_mb {
        Some(mb) => {
            let group = Group::new("memory", &format!("weir-bench-{}", std::process::id()))?;
            group.set("memory.limit_in_bytes", &(mb << 20).to_string())?;
            setup.groups = vec![group.door()];
            Some(group)
        }
        None => None,
    };
    let (server, _) = Server::start(options, kind, &setup)?;
    let worker = server.worker();
    let length = Duration::from_secs(u64::from(options.seconds));
    let counts = Arc::<Counts>::default();
    let fit = pressure.limit * 4 / 5;
    let base = Crowd::start(server.port, pressure.ask, 0..fit, &counts)?;
    std::thread::sleep(SETTLE);
    let [alone, ..] = over(length, &counts);
    let probe = Prober::start(server.port, worker, "/small", PROBE_EVERY);
    let excess = Crowd::start(server.port, pressure.ask, fit..pressure.limit * 2, &counts)?;
    std::thread::sleep(SETTLE);
    let status = Prober::start(server.port, worker, "/status", STATUS_EVERY);
    let [good, refused, errors, cut, late] = over(length, &counts);
    let status = status.stop();
    excess.leave();
    let left = Instant::now();
    let mut rates = seconds_of(AFTER, &counts);
    let probed = probe.stop();
    let recovery = probed.last_bad.map_or(Duration::ZERO, |at| at.saturating_duration_since(left));
    // Requests take seconds where a client reads slowly, and those that waited end together.
    rates.extend(seconds_of(length.max(THEN), &counts));
    let later = &rates[AFTER.as_secs() as usize..];
    let then = later.iter().sum::<f64>() / later.len() as f64;
    base.leave();
    let worker_lost = server.worker() != worker;
    if options.only.is_some() {
        println!(
            "{}: new clients that failed under pressure: {} of {}; good answers in each second \
             after it: {:.0?}; log:\n{}",
            kind.name(),
            probed.bad,
            probed.asked,
            rates,
            server.complaints()
        );
    }
    drop(server);
    drop(group);
    let failed = errors + cut + late;
    Ok(Seen { rates: [alone, good, then], refused, failed, status, recovery, worker_lost })
}

/// The counts in that time, each a second.
fn over(length: Duration, counts: &Counts) -> [f64; 5] {
    let (before, began) = (counts.now(), Instant::now());
    std::thread::sleep(length);
    let (after, seconds) = (counts.now(), began.elapsed().as_secs_f64());
    std::array::from_fn(|n| (after[n] - before[n]) as f64 / seconds)
}

/// The good answers in each second of that time.
fn seconds_of(length: Duration, counts: &Counts) -> Vec<f64> {
    (0..length.as_secs()).map(|_| over(Duration::from_secs(1), counts)[0]).collect()
}

/// Requests on connections of their own, one after the other at a steady pace.
struct Prober {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Probed>>,
    thread: std::thread::JoinHandle<()>,
}

#[derive(Clone, Copy, Default)]
struct Probed {
    asked: u64,
    /// Without a 200 within [`STATUS_MAX`].
    bad: u64,
    slowest: Duration,
    /// Of the slowest, the time in which the worker could run and had no processor.
    slowest_queued: Duration,
    /// The end of the last bad one.
    last_bad: Option<Instant>,
}

impl Prober {
    fn start(port: u16, worker: u32, path: &'static str, every: Duration) -> Self {
        let (stop, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Probed>>::default());
        let (until, into) = (Arc::clone(&stop), Arc::clone(&seen));
        let thread = std::thread::spawn(move || {
            // It shares a processor with thousands of clients, and measures the server alone.
            proc::pin(1);
            proc::go_first();
            while !until.load(Ordering::Relaxed) {
                let queued_ns = proc::queued_ns(worker);
                let began = Instant::now();
                let good = ask(port, path).unwrap_or(false);
                let took = began.elapsed();
                let queued_ns = proc::queued_ns(worker).saturating_sub(queued_ns);
                if let Ok(mut seen) = into.lock() {
                    seen.asked += 1;
                    if took > seen.slowest {
                        seen.slowest = took;
                        seen.slowest_queued = Duration::from_nanos(queued_ns);
                    }
                    if !good || took > STATUS_MAX {
                        seen.bad += 1;
                        seen.last_bad = Some(Instant::now());
                    }
                }
                std::thread::sleep(every.saturating_sub(began.elapsed()));
            }
        });
        Self { stop, seen, thread }
    }

    fn stop(self) -> Probed {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        self.seen.lock().map(|seen| *seen).unwrap_or_default()
    }
}

fn ask(port: u16, path: &str) -> std::io::Result<bool> {
    let mut stream = connect_from(Ipv4Addr::LOCALHOST, port, PATIENCE)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.starts_with("HTTP/1.1 200 "))
}
