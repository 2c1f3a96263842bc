//! Sessions of `stream` of every kind under reloads and killed workers: every byte is checked.
//!
//! Clients, three of four over TCP, draw their sessions from the seed; the backends are threads
//! here. Both ends derive what they send from the session's number, and compare what comes. So a
//! byte that is wrong, out of order, of another session or one too many shows, and is an error
//! always. A session that is cut, or an answer over UDP that is lost, is an error unless a worker
//! was killed shortly before; some datagrams may be lost at any time ([`LOSS_MAX`]).
//!
//! At the end the server has to be as before: nobody has a session, workers and descriptors are as
//! many, memory is flat ([`GROWTH_MAX`]).

pub mod alone;
mod backend;
mod counts;
mod datagrams;
mod sessions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bare::content;
use rustix::process::Signal;
use rustls::ClientConfig;

pub use self::backend::quiet_port;
use self::backend::{Backend, Seen, Speaks};
use self::counts::Counts;
use super::samples::{self, Sample};
use crate::backends::locked;
use crate::options::Options;
use crate::report;
use crate::server::{Kind, Server, Setup};
use crate::tls::Certificate;
use crate::{Outcome, mixed, proc, tls};
pub use bare::content::{Content, mix};
use testkit::rng::Rng;

const CONFIG: &str = include_str!("../../../configs/stream-mixed.conf");
/// Workers of the configuration.
const WORKERS: usize = 2;
const KILL_EVERY: Duration = Duration::from_secs(7);
/// Sessions run before anything is measured: memory that is taken once is no growth.
const WARM_UP: Duration = Duration::from_secs(5);
/// The longest time that sessions take to end, and leaving workers with them.
const DRAIN: Duration = Duration::from_secs(90);
/// The share of answers over UDP that may be lost away from kills.
const LOSS_MAX: f64 = 0.001;
/// Growth of a worker's and of the master's memory that is allowed: by this share and
/// [`GROWTH_BYTES`], from the first quarter of the samples (medians, without the first tenth) to
/// the last, and from the quiet server before the load to the one after it.
const GROWTH_MAX: f64 = 0.05;
const GROWTH_BYTES: f64 = (1 << 20) as f64;

/// The ports of Weir's servers.
#[derive(Clone, Copy)]
struct Ports {
    balanced: u16,
    half: u16,
    tls: u16,
    to_tls: u16,
    named: u16,
    proxied: u16,
    kept: u16,
    answered: u16,
}

/// What the clients share.
struct Load {
    ports: Ports,
    tls: Arc<ClientConfig>,
    seed: u64,
    /// Sessions of different loads have different numbers.
    session_base: u64,
    /// The longest pause between two turns of a client over UDP, ms.
    rest_ms: usize,
    counts: Counts,
    over: AtomicBool,
}

impl Load {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// The server with all that is behind it.
struct Site {
    server: Server,
    ports: Ports,
    tls: Arc<ClientConfig>,
    seen: Arc<Seen>,
    backends: Vec<Backend>,
    _certificate: Certificate,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.seen.end();
    }
}

/// Runs the load against Weir.
pub fn run(options: &Options, _: &str) -> Outcome {
    let site = start(options)?;
    let length = Duration::from_secs(options.mixed_seconds());
    let (warmed, _) = blow(options, &site, 1 << 56, WARM_UP.min(length), false)?;
    settle(&site)?;
    let before = quiet(&site, "before")?;
    let (load, samples) = blow(options, &site, 2 << 56, length, options.kill_workers)?;
    let open = backend::drained(&site.seen, DRAIN);
    settle(&site)?;
    let after = quiet(&site, "after")?;
    println!();
    load.counts.print();
    let kills = locked(&load.counts.kills).len();
    let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (sessions, received) = load.counts.totals();
    println!(
        "{:.0} s: {sessions} sessions; {} MB to clients and {} MB to backends verified, {} \
         questions over UDP at backends; {} reloads, {kills} workers killed, {} stops of a backend",
        samples.last().map_or(0.0, |sample| sample.at),
        report::megabytes(received as f64),
        report::megabytes(of(&site.seen.bytes) as f64),
        of(&site.seen.datagrams),
        locked(&load.counts.reloads).len(),
        locked(&load.counts.stops).len(),
    );
    let mut bad = judge(&site, &load.counts, open, kills);
    bad.extend(warmed.counts.complaints().map(|text| format!("{text} in the warm-up")));
    bad.extend(compare(&before, &after, &samples));
    if bad.is_empty() { Ok(()) } else { Err(bad.join("; ")) }
}

fn start(options: &Options) -> Outcome<Site> {
    let certificate = Certificate::new(false)?;
    let seen: Arc<Seen> = Arc::default();
    let tls_backend = Speaks::Tls(backend::tls_config(&certificate)?);
    let speaks = [Speaks::Plain, Speaks::Plain, tls_backend.clone(), tls_backend, Speaks::Proxied];
    let backends: Vec<Backend> = (0..)
        .zip(speaks)
        .map(|(n, speaks)| Backend::new(n, speaks, &seen))
        .collect::<Outcome<_>>()?;
    let udp = [backend::datagrams(&seen)?, backend::datagrams(&seen)?];
    let ports = Ports {
        balanced: quiet_port()?,
        half: quiet_port()?,
        tls: quiet_port()?,
        to_tls: quiet_port()?,
        named: quiet_port()?,
        proxied: quiet_port()?,
        kept: quiet_port()?,
        answered: quiet_port()?,
    };
    let path = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
    let driver = options.driver.as_ref();
    let mut fill = vec![
        ("%USE%", driver.map_or(String::new(), |d| format!("use {d};"))),
        ("%CERTIFICATE%", path(certificate.chain())),
        ("%KEY%", path(certificate.key())),
    ];
    let numbers = [
        ("%BALANCED_PORT%", ports.balanced),
        ("%HALF_PORT%", ports.half),
        ("%TLS_PORT%", ports.tls),
        ("%TO_TLS_PORT%", ports.to_tls),
        ("%NAMED_PORT%", ports.named),
        ("%PROXIED_PORT%", ports.proxied),
        ("%KEPT_PORT%", ports.kept),
        ("%ANSWERED_PORT%", ports.answered),
        ("%UDP_BACKEND0%", udp[0]),
        ("%UDP_BACKEND1%", udp[1]),
        ("%BACKEND0%", backends[0].port),
        ("%BACKEND1%", backends[1].port),
        ("%BACKEND2%", backends[2].port),
        ("%BACKEND3%", backends[3].port),
        ("%BACKEND4%", backends[4].port),
    ];
    fill.extend(numbers.map(|(name, port)| (name, port.to_string())));
    // `select` takes no more descriptors.
    let connections = if driver.is_some_and(|d| d == "select") { 900 } else { 4096 };
    let setup = Setup { template: CONFIG, fill, cpus: "0,1", connections, ..Setup::default() };
    let (server, _) = Server::start(options, Kind::Weir, &setup)?;
    let tls = Arc::new(tls::client::config().map_err(|e| e.to_string())?);
    Ok(Site { server, ports, tls, seen, backends, _certificate: certificate })
}

/// Clients for so long, with the disturbances; gives what became of them.
fn blow(
    options: &Options,
    site: &Site,
    session_base: u64,
    length: Duration,
    kills: bool,
) -> Outcome<(Load, Vec<Sample>)> {
    let load = Load {
        ports: site.ports,
        tls: site.tls.clone(),
        seed: options.seed,
        session_base,
        rest_ms: 40,
        counts: Counts::default(),
        over: AtomicBool::new(false),
    };
    let samples = std::thread::scope(|scope| {
        let load = &load;
        for number in 0..options.clients.max(4) as u64 {
            scope.spawn(move || match number % 4 {
                3 => datagrams::client(load, number),
                _ => sessions::client(load, number),
            });
        }
        scope.spawn(move || stop_and_start(load, &site.backends[1]));
        let samples = disturb(options, site, load, length, kills);
        load.over.store(true, Ordering::Relaxed);
        samples
    });
    match locked(&load.counts.failures).iter().find(|text| text.contains("backend's port")) {
        Some(text) => Err(text.clone()),
        None => Ok(()),
    }?;
    Ok((load, samples))
}

/// A backend that comes and goes; in the end it listens.
fn stop_and_start(load: &Load, backend: &Backend) {
    let mut rng = Rng::new(load.seed ^ load.session_base);
    let pause = |rng: &mut Rng, most: usize| {
        let until = Instant::now() + Duration::from_millis(500 + rng.below(most) as u64);
        while Instant::now() < until && !load.is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    while !load.is_over() {
        pause(&mut rng, 5000);
        locked(&load.counts.stops).push(Instant::now());
        backend.stop();
        pause(&mut rng, 3000);
        if let Err(text) = backend.start() {
            locked(&load.counts.failures).push(text);
            return;
        }
    }
}

/// Reloads, kills and samples for so long.
fn disturb(
    options: &Options,
    site: &Site,
    load: &Load,
    length: Duration,
    kills: bool,
) -> Vec<Sample> {
    let began = Instant::now();
    let sample_every = (length / 20).clamp(Duration::from_secs(1), Duration::from_secs(30));
    let reload_every = Duration::from_secs(options.reload_every);
    let mut last = (began, began, began);
    let mut rng = Rng::new(options.seed);
    let mut samples = Vec::new();
    while began.elapsed() < length {
        std::thread::sleep(Duration::from_millis(50));
        if last.0.elapsed() >= sample_every {
            last.0 = Instant::now();
            let sample = Sample::take(&site.server, began);
            if length > WARM_UP {
                let (sessions, _) = load.counts.totals();
                let wrong = locked(&load.counts.wrong).len();
                let failed = locked(&load.counts.failures).len();
                sample.print(&format!("{sessions} sessions, {wrong} wrong, {failed} failed"));
            }
            samples.push(sample);
        }
        if !reload_every.is_zero() && last.1.elapsed() >= reload_every {
            last.1 = Instant::now();
            locked(&load.counts.reloads).push(Instant::now());
            site.server.signal(Signal::HUP);
        }
        if kills && last.2.elapsed() >= KILL_EVERY {
            last.2 = Instant::now();
            let workers = samples::workers(&site.server);
            if !workers.is_empty() {
                locked(&load.counts.kills).push(Instant::now());
                proc::signal(workers[rng.below(workers.len())], Signal::KILL);
            }
        }
    }
    samples
}

/// A reload, and the end of all workers before it.
fn settle(site: &Site) -> Outcome {
    std::thread::sleep(Duration::from_secs(1));
    let old = samples::workers(&site.server);
    site.server.signal(Signal::HUP);
    let began = Instant::now();
    while old.iter().any(|&pid| proc::is_there(pid)) {
        if began.elapsed() > DRAIN {
            return Err("workers that were told to leave are still there".to_string());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(1));
    Ok(())
}

/// The server without any clients: descriptors by worker, and memory.
struct Quiet {
    sample: Sample,
    descriptors: Vec<usize>,
}

fn quiet(site: &Site, when: &str) -> Outcome<Quiet> {
    let workers = samples::workers(&site.server);
    let sample = Sample::take(&site.server, Instant::now());
    let mut descriptors: Vec<usize> =
        workers.iter().map(|&pid| proc::descriptors(&[pid])).collect();
    descriptors.sort_unstable();
    println!(
        "{when}: {} workers with descriptors {descriptors:?}, RSS {} PSS {} MB; master: {} \
         descriptors, RSS {} MB",
        workers.len(),
        report::megabytes(sample.memory.rss as f64),
        report::megabytes(sample.memory.pss as f64),
        sample.master_descriptors,
        report::megabytes(sample.master.rss as f64),
    );
    match workers.len() == WORKERS {
        true => Ok(Quiet { sample, descriptors }),
        false => Err(format!("{} workers instead of {WORKERS}", workers.len())),
    }
}

/// What is wrong with what clients, backends and the server have seen.
fn judge(site: &Site, counts: &Counts, open: u64, kills: usize) -> Vec<String> {
    let mut bad: Vec<String> = counts.complaints().into_iter().collect();
    let wrong = locked(&site.seen.wrong);
    println!("wrong at backends: {}", wrong.len());
    wrong.iter().take(20).for_each(|text| println!("  {text}"));
    if !wrong.is_empty() {
        bad.push(format!("{} wrong at backends", wrong.len()));
    }
    if counts.loss_in_peace() > LOSS_MAX {
        bad.push("too many datagrams lost away from kills".to_string());
    }
    if open > 0 {
        bad.push(format!("{open} sessions of backends are open"));
    }
    bad.extend(samples::sessions_under_way(&site.server));
    let log = std::fs::read(site.server.prefix().join("error.log")).unwrap_or_default();
    let killed = String::from_utf8_lossy(&log).matches("exited on signal 9").count();
    if killed > kills {
        bad.push(format!("{killed} workers exited on signal 9, {kills} were killed"));
    }
    for (line, count) in mixed::alerts(&site.server, kills > 0) {
        bad.push(format!("log, {count} times: {line}"));
    }
    bad
}

/// Whether the server is as it was.
fn compare(before: &Quiet, after: &Quiet, samples: &[Sample]) -> Vec<String> {
    let mut bad = Vec::new();
    let mb = f64::from(1 << 20);
    let workers: Vec<f64> = samples.iter().map(Sample::pss_mean).collect();
    let masters: Vec<f64> = samples.iter().map(|s| s.master.pss as f64).collect();
    let masters_open: Vec<f64> = samples.iter().map(|s| s.master_descriptors as f64).collect();
    let most = |values: &[usize]| values.iter().copied().max().unwrap_or(0);
    let mut grown = |name: &str, has: bool| {
        if has {
            bad.push(format!("{name} grew"));
        }
    };
    let name = "memory of a worker, PSS MB";
    grown(name, samples::has_grown(name, &workers, mb, GROWTH_MAX, GROWTH_BYTES));
    let name = "memory of the master, PSS MB";
    grown(name, samples::has_grown(name, &masters, mb, GROWTH_MAX, GROWTH_BYTES));
    let name = "descriptors of the master";
    grown(name, samples::has_grown(name, &masters_open, 1.0, GROWTH_MAX, 4.0));
    let rise = |from: u64, to: u64| to as f64 > from as f64 * (1.0 + GROWTH_MAX) + GROWTH_BYTES;
    let (from, to) = (&before.sample, &after.sample);
    grown("memory of the quiet workers", rise(from.memory.rss, to.memory.rss));
    grown("memory of the quiet master", rise(from.master.rss, to.master.rss));
    grown("descriptors of a quiet worker", most(&after.descriptors) > most(&before.descriptors));
    grown("descriptors of the quiet master", to.master_descriptors > from.master_descriptors);
    bad
}
