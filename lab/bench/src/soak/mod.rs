//! `soak`: everything at once, for as long as one likes, with a report.
//!
//! ```text
//!  clients ─┬─▶ HTTP/1 ───────────────────────────────────────────┐
//!           ├─▶ stream ──────────────────────────────────────────▶│
//!           ├─▶ stream ── TLS ──▶ HTTP/1 over TLS ────────────────▶│ the site of the mixed load
//!           ├─▶ HTTP/1 ── HTTP/2 ──▶ HTTP/2 to itself ────────────▶│
//!           ├─▶ HTTP/1 and HTTP/2 over TLS, HTTP/2, HTTP/3 ───────▶│
//!           ├─▶ HTTP/3 in early data ── HTTP/1 ───────────────────▶│
//!           ├─▶ telephones: 30 kB/s with pauses of 5 s ────────────┘
//!           ├─▶ gRPC, WebSocket, FastCGI, UDP ▶ servers here
//!           ├─▶ IMAP, IMAP over TLS, SMTP ────▶ an authentication server and mail servers here
//!           ├─▶ two caches, purges ───────────▶ an origin here
//!           ├─▶ a small disk that fills ──────▶ a server here
//!           └─▶ names, a name server that lies ▶ a server here, and a decoy
//! ```
//!
//! Every byte is checked. Clients begin their requests at a pace ([`pace`]); what a disturbance
//! explains is counted, everything else is a finding ([`tally`]).

mod behind;
mod cache;
mod disturb;
mod dns;
mod fastcgi;
mod h3;
mod log;
mod mail;
mod names;
mod pace;
mod page;
mod samples;
mod small_disk;
mod sockets;
mod tally;
mod telephones;
mod visitors;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use os::signal::{Signal, SignalSet};

use self::behind::Behind;
use self::disturb::{Disturber, cycle};
use self::log::Log;
use self::page::Report;
use self::samples::Sample;
use self::small_disk::Disk;
use self::tally::{Results, Tally};
use crate::client::Site;
use crate::h2::Scratch;
use crate::options::Options;
use crate::server::{self, Kind, Server, Setup};
use crate::stream::mixed::{alone, quiet_port};
use crate::tls::Certificate;
use crate::{Outcome, deploy, disk, mixed, proc, report};

const HTTP: &str = include_str!("../../configs/soak-http.conf");
const STREAM: &str = include_str!("../../configs/soak-stream.conf");
const MAIL: &str = include_str!("../../configs/soak-mail.conf");

/// Memory and descriptors that are taken once are no growth.
const WARM_UP: Duration = Duration::from_secs(10);
const TURN: Duration = Duration::from_millis(250);
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// Clients over UDP, and the longest rest of one between two turns, ms.
const UDP_CLIENTS: u64 = 2;
const UDP_REST: usize = 2000;
/// The share of answers over UDP that may be lost away from kills.
const LOSS_MAX: f64 = 0.001;
/// Growth in an hour, MB, that is none, for runs of an hour and more: see [`page::growth`].
const GROWTH_MAX: f64 = 1.0;

/// Weir's ports.
#[derive(Clone, Copy)]
struct Ports {
    h2: u16,
    front: u16,
    tls: u16,
    plain: u16,
    secured: u16,
    direct: u16,
    site_tls: u16,
    early: u16,
    grpc: u16,
    tunnels: u16,
    cache: u16,
    disk: u16,
    names: u16,
    udp: [u16; 2],
    mail: mail::Ports,
}

/// The server with all that is around it. What is dropped first stands first.
struct Place {
    server: Server,
    ports: Ports,
    site: Arc<Site>,
    origin: Arc<cache::Shared>,
    names: Arc<dns::NameServer>,
    decoy: Behind,
    udp: alone::Behind,
    _certificate: Certificate,
    disk: Disk,
    _scratch: Scratch,
}

/// Runs it.
pub fn run(options: &Options, _name: &str) -> Outcome {
    disk::enter()?;
    let ends = SignalSet::new(&[Signal::TERM, Signal::INT]);
    ends.block();
    let place = start(options)?;
    let tally = Tally::new(options.pace);
    // The resolver has to have asked once.
    std::thread::sleep(Duration::from_secs(2));
    let (threads, mut udp) = begin(options, &place, &tally, 1)?;
    std::thread::sleep(WARM_UP);
    end(threads, &mut udp, &tally);
    let mut place = place;
    mixed::settle(&mut place.server, options)?;
    let before = Sample::take(&place.server, tally.began, 0);
    println!("before: {}", before.text());
    tally.stop.store(false, Ordering::Relaxed);
    let mut soak = Soak {
        options,
        place: &place,
        tally: &tally,
        samples: Vec::new(),
        log: Log::new(place.server.prefix().join("error.log")),
        decoy: 0,
        length: Duration::from_secs(options.mixed_seconds()),
        facts: facts(options),
    };
    let (threads, mut udp) = begin(options, &place, &tally, 2)?;
    let ended_early = soak.load(&udp, &ends);
    end(threads, &mut udp, &tally);
    soak.look(&udp);
    let Soak { samples, mut log, facts, length, .. } = soak;
    std::thread::sleep(Duration::from_secs(2));
    let settled = mixed::settle(&mut place.server, options);
    let after = Sample::take(&place.server, tally.began, 0);
    println!("after: {}", after.text());
    log.read(&tally, options.kill_workers);
    let mut bad: Vec<String> = settled.err().into_iter().collect();
    bad.extend(judge(&place, &tally, &udp, (&samples, cycle(length)), &before, &after));
    let results = tally.results();
    summary(&results, &log, &udp);
    let soak =
        Soak { options, place: &place, tally: &tally, samples, log, decoy: 0, length, facts };
    let early = ended_early.then(|| ("ended".to_string(), "early, by a signal".to_string()));
    soak.write(&udp, Some(bad.clone()), early);
    tally.stalls.end();
    if bad.is_empty() { Ok(()) } else { Err(bad.join("; ")) }
}

fn ports() -> Outcome<Ports> {
    Ok(Ports {
        h2: quiet_port()?,
        front: quiet_port()?,
        tls: quiet_port()?,
        plain: quiet_port()?,
        secured: quiet_port()?,
        direct: quiet_port()?,
        site_tls: quiet_port()?,
        early: quiet_port()?,
        grpc: quiet_port()?,
        tunnels: quiet_port()?,
        cache: quiet_port()?,
        disk: quiet_port()?,
        names: quiet_port()?,
        udp: [quiet_port()?, quiet_port()?],
        mail: mail::Ports { imap: quiet_port()?, imaps: quiet_port()?, smtp: quiet_port()? },
    })
}

/// Starts everything but the clients.
fn start(options: &Options) -> Outcome<Place> {
    let (certificate, ports) = (Certificate::new(false)?, ports()?);
    let _scratch = Scratch(server::new_folder()?);
    let folder = &_scratch.0;
    let disk = Disk::mount(folder.join("small"))?;
    let kept = folder.join("kept");
    std::fs::create_dir(&kept)
        .and_then(|()| deploy::give(&kept))
        .map_err(|e| format!("{}: {e}", kept.display()))?;
    let behind = Behind::start(dns::RIGHT, 0)?;
    let named = Behind::start(dns::RIGHT, quiet_port()?)?;
    let decoy = Behind::start(dns::DECOY, named.port)?;
    let (origin, names) = (cache::Shared::new()?, dns::NameServer::start()?);
    let (udp, calls) = (alone::Behind::start()?, behind::calls());
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (chain, key) = (text(&certificate.chain()), text(&certificate.key()));
    let numbers = [
        ("%H2%", ports.h2),
        ("%FRONT%", ports.front),
        ("%TLS%", ports.tls),
        ("%PLAIN%", ports.plain),
        ("%SECURED%", ports.secured),
        ("%EARLY%", ports.early),
        ("%GRPC%", ports.grpc),
        ("%TUNNELS%", ports.tunnels),
        ("%CACHE%", ports.cache),
        ("%DISK%", ports.disk),
        ("%NAMES%", ports.names),
        ("%KEPT_UDP%", ports.udp[0]),
        ("%ANSWERED_UDP%", ports.udp[1]),
        ("%UDP_BACKEND0%", udp.ports[0]),
        ("%UDP_BACKEND1%", udp.ports[1]),
        ("%CALLS%", calls),
        ("%MAIL_AUTH%", mail::authority()),
        ("%IMAP%", ports.mail.imap),
        ("%IMAPS%", ports.mail.imaps),
        ("%SMTP%", ports.mail.smtp),
        ("%FASTCGI%", fastcgi::responder()?),
        ("%BEHIND%", behind.port),
        ("%NAMED%", named.port),
        ("%ORIGIN%", origin.port()),
        ("%DNS%", names.port),
        ("%H2_PORT%", ports.direct),
    ];
    let listen = format!(
        "listen 127.0.0.1:{0} ssl http2 backlog=4096; listen 127.0.0.1:{0} quic; http3 on; \
         ssl_certificate {chain}; ssl_certificate_key {key}; ssl_session_cache shared:site:1m;",
        ports.site_tls
    );
    let driver = options.driver.as_ref();
    let mut fill = vec![
        ("%MODE%", "threads".to_string()),
        ("%AUTO%", "aio auto;".to_string()),
        ("%USE%", driver.map_or(String::new(), |d| format!("use {d};"))),
        ("%SITE%", listen),
        ("%MORE%", HTTP.to_string()),
        ("%STREAM%", [STREAM, MAIL].concat()),
        ("%CERTIFICATE%", chain),
        ("%KEY%", key),
        ("%SMALL%", text(&disk.folder)),
        ("%KEPT%", text(&kept)),
    ];
    fill.extend(numbers.map(|(name, port)| (name, port.to_string())));
    let setup = Setup { template: mixed::CONFIG, fill, cpus: "0,1", ..Setup::default() };
    let (server, _) = Server::start(options, Kind::Weir, &setup)?;
    let site = Arc::new(Site::new(server.root())?.lightened());
    let _certificate = certificate;
    Ok(Place { server, ports, site, origin, names, decoy, udp, _certificate, disk, _scratch })
}

/// Starts all clients.
fn begin(
    options: &Options,
    place: &Place,
    tally: &Arc<Tally>,
    load: u64,
) -> Outcome<(Vec<JoinHandle<()>>, alone::Clients)> {
    let Place { server, ports, site, .. } = place;
    let ways = [
        (server.port, "HTTP/1"),
        (ports.plain, "HTTP/1 by stream"),
        (ports.secured, "HTTP/1 by stream over TLS"),
        (ports.front, "HTTP/1 by HTTP/2"),
    ];
    let (direct, site_tls, grpc) = (ports.direct, ports.site_tls, ports.grpc);
    let mut threads = Vec::new();
    let only = |kind: usize| options.only.is_none_or(|only| only == kind);
    if only(0) {
        threads.extend(visitors::begin_mixed(options.clients, &ways, site, tally));
    }
    for (n, way) in ways.iter().enumerate() {
        if options.only == Some(n + 1) {
            threads.extend(visitors::begin_mixed(options.clients, &[*way], site, tally));
        }
    }
    if only(5) {
        threads.extend(visitors::begin_h2(direct, site_tls, grpc, site, tally)?);
    }
    if only(6) {
        threads.extend(visitors::begin_tls(site_tls, site, tally)?);
    }
    if only(7) {
        threads.extend(telephones::begin(server.port, site, tally));
        threads.extend(sockets::begin(ports.tunnels, tally));
        threads.extend(fastcgi::begin(ports.tunnels, tally));
    }
    if only(8) {
        threads.extend(cache::begin(ports.cache, &place.origin, tally));
    }
    if only(9) {
        threads.extend(small_disk::begin(ports.disk, &place.disk.folder, tally));
    }
    if only(10) {
        threads.extend(names::begin(ports.names, &place.names, tally));
    }
    if only(11) {
        threads.extend(h3::begin(site_tls, ports.early, site, tally));
    }
    if only(12) {
        threads.extend(mail::begin(ports.mail, tally)?);
    }
    let udp = alone::Clients::start(ports.udp, UDP_CLIENTS, UDP_REST, load << 56)?;
    Ok((threads, udp))
}

fn end(threads: Vec<JoinHandle<()>>, udp: &mut alone::Clients, tally: &Tally) {
    tally.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        if thread.join().is_err() {
            tally.finding("a client panicked".to_string());
        }
    }
    udp.end();
}

/// A run.
struct Soak<'a> {
    options: &'a Options,
    place: &'a Place,
    tally: &'a Tally,
    samples: Vec<Sample>,
    log: Log,
    /// Requests at the decoy that are findings already.
    decoy: u64,
    length: Duration,
    facts: Vec<(String, String)>,
}

impl Soak<'_> {
    /// Disturbs the server for as long as the run takes; whether a signal ended it early.
    fn load(&mut self, udp: &alone::Clients, ends: &SignalSet) -> bool {
        let began = Instant::now();
        let sample_every =
            (self.length / 60).clamp(Duration::from_secs(2), Duration::from_secs(20));
        let (mut sampled, mut reported) = (began, began);
        let (server, tally) = (&self.place.server, self.tally);
        let mut disturber = Disturber::new(self.options, server, tally, udp, self.length);
        let mut turn = 0;
        while began.elapsed() < self.length {
            if os::signal::wait(ends, Some(TURN)).is_some() {
                println!("a signal ends it early");
                return true;
            }
            turn += 1;
            if turn % 2 == 0 {
                self.place.site.forget(turn);
            }
            disturber.turn(&mut self.log);
            self.look(udp);
            if sampled.elapsed() >= sample_every {
                sampled = Instant::now();
                disturber.check();
                self.sample();
            }
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                self.write(udp, None, None);
            }
        }
        false
    }

    /// Takes what others have found.
    fn look(&mut self, udp: &alone::Clients) {
        self.log.read(self.tally, self.options.kill_workers);
        names::check(&self.place.decoy, &mut self.decoy, self.tally);
        for text in udp.complaints().into_iter().chain(self.place.udp.wrong()) {
            self.tally.finding(format!("UDP: {text}"));
        }
    }

    fn sample(&mut self) {
        let right = self.tally.results().rows.values().map(|row| row.right).sum();
        let sample = Sample::take(&self.place.server, self.tally.began, right);
        println!("{}", sample.text());
        self.samples.push(sample);
    }

    fn write(
        &self,
        udp: &alone::Clients,
        verdict: Option<Vec<String>>,
        more: Option<(String, String)>,
    ) {
        let Some(path) = &self.options.report else { return };
        let results = self.tally.results();
        let (stalls, longest) = self.tally.stalls.all();
        let mut facts = self.facts.clone();
        facts.extend(
            [
                ("seconds so far", format!("{:.0}", self.tally.began.elapsed().as_secs_f64())),
                (
                    "stalls of the machine",
                    format!(
                        "{:.1} s in all, the longest {:.2} s",
                        stalls.as_secs_f64(),
                        longest.as_secs_f64()
                    ),
                ),
                ("processor time", processor_time(&self.place.server)),
                ("lines of the error log", format!("{:?}", self.log.levels)),
                ("findings", results.findings_all.to_string()),
            ]
            .map(|(name, value)| (name.to_string(), value)),
        );
        facts.extend(more);
        let report = Report {
            facts,
            results: &results,
            samples: &self.samples,
            cycle: cycle(self.length),
            others: vec![("UDP", udp_text(udp))],
            log: self.log.lines.iter().map(|(line, count)| (line.clone(), *count)).collect(),
            verdict,
        };
        if let Err(message) = page::write(path, &report) {
            println!("no report: {message}");
        }
    }
}

/// The time on processors of the server and of this program.
fn processor_time(server: &Server) -> String {
    let secs = |pids: &[u32]| pids.iter().map(|&pid| proc::cpu_secs_of_all(pid)).sum::<f64>();
    let server = secs(&server.pids());
    let own = secs(&[std::process::id()]);
    format!("{server:.0} s of the server, {own:.0} s of this program")
}

fn udp_text(udp: &alone::Clients) -> String {
    let n = udp.numbers();
    format!(
        "{} questions, {} answers right; lost {} near kills, {} else ({} of all came too late), of \
         {} that were due near no kill",
        n.sent, n.answers, n.lost_by_kill, n.lost, n.late, n.due_in_peace
    )
}

/// What stays the same.
fn facts(options: &Options) -> Vec<(String, String)> {
    let said = |command: &mut Command| {
        let output = command.output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).trim().to_string();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    let version = said(Command::new(&options.weir).arg("-v"));
    let commit = said(Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR")]).args([
        "log",
        "-1",
        "--format=%h %cd %s",
    ]));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let unknown = || "unknown".to_string();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    [
        ("version", version.unwrap_or_else(unknown)),
        ("commit of the tree at the start", commit.unwrap_or_else(unknown)),
        ("begun", said(&mut Command::new("date")).unwrap_or_else(unknown)),
        ("machine", format!("{cpus} CPUs, kernel {}", kernel.trim())),
        ("command line", arguments.join(" ")),
        ("clients of the mixed load", options.clients.to_string()),
        ("pace", format!("{} requests a second", options.pace)),
        ("event method", options.driver.clone().unwrap_or_else(|| "the usual one".to_string())),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .to_vec()
}

/// Why it does not pass.
fn judge(
    place: &Place,
    tally: &Tally,
    udp: &alone::Clients,
    (samples, cycle): (&[Sample], Duration),
    before: &Sample,
    after: &Sample,
) -> Vec<String> {
    let mut bad = Vec::new();
    let results = tally.results();
    if results.findings_all > 0 {
        bad.push(format!("{} findings", results.findings_all));
    }
    let n = udp.numbers();
    if n.lost as f64 > n.due_in_peace as f64 * LOSS_MAX + n.late as f64 + 3.0 {
        bad.push(format!("{} datagrams lost away from kills", n.lost));
    }
    for ((name, from), (_, to)) in before.kinds().into_iter().zip(after.kinds()) {
        if to.processes > from.processes.max(1) {
            bad.push(format!("{name}: {} processes instead of {}", to.processes, from.processes));
        }
        // Connections that are kept, and a helper that was about to leave.
        if to.descriptors > from.descriptors + 6 {
            let (from, to) = (from.descriptors, to.descriptors);
            bad.push(format!("{name}: {to} descriptors instead of {from}"));
        }
    }
    let kills = results.disturbances.get("killed worker").copied().unwrap_or(0) as usize;
    let left = small_disk::count(&place.server.prefix().join("tmp"))
        + small_disk::count(&place.site.uploads())
        + place.disk.left();
    println!("files left behind: {left}; workers killed: {kills}");
    // A killed worker leaves the files that it had open, by their names.
    if left > kills * 40 {
        bad.push(format!("{left} files left behind"));
    }
    let hours = samples.last().map_or(0.0, |s| s.at) / 3600.0;
    if hours >= 1.0 {
        for (n, name) in ["the master", "a worker", "a helper"].into_iter().enumerate() {
            let points = samples.iter().filter_map(|s| Some((s.at, s.kinds()[n].1.each_mb()?)));
            let points: Vec<(f64, f64)> = points.collect();
            if let Some(growth) =
                page::growth(&points, cycle.as_secs_f64()).filter(|g| *g > GROWTH_MAX)
            {
                bad.push(format!("memory of {name} grows by {growth:.2} MB an hour"));
            }
        }
    }
    bad
}

/// The summary on the output.
fn summary(results: &Results, log: &Log, udp: &alone::Clients) {
    let mut rows = vec![report::row(["by", "right", "given up", "explained", "failed"])];
    for (name, row) in &results.rows {
        let sum = |counts: &std::collections::BTreeMap<String, u64>| counts.values().sum::<u64>();
        let numbers = [row.right, row.given_up, sum(&row.explained), sum(&row.failed)];
        let cells = numbers.map(|n| n.to_string());
        rows.push([vec![(*name).to_string()], cells.to_vec()].concat());
    }
    println!();
    report::table(&rows);
    println!("UDP: {}", udp_text(udp));
    for (name, row) in results.rows.iter().filter(|(_, row)| !row.failed.is_empty()) {
        println!("failed: {name}: {:?}", row.failed);
    }
    println!("disturbances: {:?}", results.disturbances);
    if let Some(slow) = results.slowest.first() {
        println!("slowest answer: {} ms, {}", slow.ms, slow.event.text);
    }
    println!("lines of the error log: {:?}", log.levels);
    log.lines.iter().for_each(|(line, count)| println!("log, {count} times: {line}"));
}
