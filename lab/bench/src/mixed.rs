//! A little of everything for a long time, to find leaks, hangs and unexpected messages.
//!
//! Clients request small, large and cold files, in memory and through threads, pages with parts,
//! proxied, compressed and listed ones; they upload and delete. One request in four is given up, in
//! each of several ways. Others do the same over HTTP/2, several at once on a connection. Meanwhile
//! the server reloads, its log is rotated, files are dropped from memory, and, with an option,
//! workers are killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::client::{Client, Seen, Site};
use crate::options::Options;
use crate::server::{Server, Setup, free_port};
use crate::{Outcome, h2, proc, report};

/// The configuration; `%MORE%` and `%STREAM%` are further servers.
pub const CONFIG: &str = include_str!("../configs/mixed.conf");
const FORGET_EVERY: Duration = Duration::from_millis(500);
const ROTATE_EVERY: Duration = Duration::from_secs(20);
const KILL_EVERY: Duration = Duration::from_secs(7);

/// The end of every request that is not stuck.
const DRAIN: Duration = Duration::from_secs(90);

/// The quantities that may not grow.
struct State {
    processes: usize,
    descriptors: usize,
    master: proc::Memory,
    workers: proc::Memory,
}

impl State {
    fn of(server: &Server) -> Self {
        let (master, pids) = (server.pid(), server.all_pids());
        let workers: Vec<u32> = pids.iter().copied().filter(|&pid| pid != master).collect();
        Self {
            processes: pids.len(),
            descriptors: proc::descriptors(&pids),
            master: proc::memory(&[master]),
            workers: proc::memory(&workers),
        }
    }

    fn print(&self, when: &str) {
        let mb = |bytes: u64| report::megabytes(bytes as f64);
        println!(
            "{when}: {} processes, {} descriptors; master RSS {} PSS {} dirty {} MB; \
             workers RSS {} PSS {} dirty {} MB",
            self.processes,
            self.descriptors,
            mb(self.master.rss),
            mb(self.master.pss),
            mb(self.master.private_dirty),
            mb(self.workers.rss),
            mb(self.workers.pss),
            mb(self.workers.private_dirty),
        );
    }
}

/// The disturbances of the server.
#[derive(Default)]
struct Done {
    reloads: u32,
    rotations: u32,
    kills: u32,
}

/// Runs it against every real server.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let mut failed = String::new();
    for &kind in options.servers.iter().filter(|k| k.is_real()) {
        println!("\n### {}", kind.name());
        let is_nginx = kind == crate::server::Kind::Nginx;
        let driver = options.driver.as_ref().filter(|_| !is_nginx);
        let h2 = free_port()?;
        let setup = Setup {
            template: CONFIG,
            fill: vec![
                ("%MODE%", "threads".to_string()),
                ("%AUTO%", if is_nginx { "" } else { "aio auto;" }.to_string()),
                ("%USE%", driver.map_or(String::new(), |d| format!("use {d};"))),
                ("%H2_PORT%", h2.to_string()),
                ("%SITE%", String::new()),
                ("%MORE%", String::new()),
                ("%STREAM%", String::new()),
            ],
            cpus: "0,1",
            ..Setup::default()
        };
        let (mut server, _) = Server::start(options, kind, &setup)?;
        if let Err(message) = measure(options, &mut server, h2) {
            println!("{message}");
            failed = format!("{}: {message}", kind.name());
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

/// Warms the server up, loads it, and compares its state after it with that before.
fn measure(options: &Options, server: &mut Server, h2: u16) -> Outcome {
    let site = Arc::new(Site::new(server.root())?);
    // Memory that is taken once is no growth.
    load(options, server, &site, h2, Duration::from_secs(5))?;
    settle(server, options)?;
    let before = State::of(server);
    let began = Instant::now();
    let length = Duration::from_secs(options.mixed_seconds());
    let (seen, done) = load(options, server, &site, h2, length)?;
    let secs = began.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_secs(2));
    let idle = State::of(server);
    settle(server, options)?;
    let after = State::of(server);
    println!(
        "{:.0} s: {} requests, {} given up, {} asked again when a kept connection was closed; \
         {} reloads, {} rotations, {} workers killed",
        secs,
        seen.answered(),
        seen.given_up,
        seen.let_go,
        done.reloads,
        done.rotations,
        done.kills
    );
    println!("statuses: {:?}", seen.statuses);
    println!("by kind: {:?}", seen.kinds);
    println!("failures: {:?}", seen.failures);
    before.print("before");
    idle.print("at rest");
    after.print("after");
    let alerts = alerts(server, done.kills > 0);
    for (line, count) in &alerts {
        println!("log, {count} times: {line}");
    }
    let left = left_behind(server.prefix(), &site);
    let stuck = seen.failures.get("stuck").copied().unwrap_or(0);
    // Connections that workers do not share are closed; a few descriptors come and go.
    let grown = after.descriptors > before.descriptors + 4 || after.processes > before.processes;
    let wrong: u64 = seen.failures.values().sum();
    println!("stuck {stuck}, alerts {}, files left behind {left}", alerts.len());
    // A killed worker takes its clients' requests with it, and the names of uploads.
    let lost_max = u64::from(done.kills) * (options.clients + h2::mixed::LOST_MAX) as u64;
    let lost = wrong > lost_max || left as u64 > lost_max;
    // Whatever was killed.
    let is_false = seen.failures.keys().any(|what| what.ends_with("another body"));
    match is_false || lost || stuck > 0 || !alerts.is_empty() || grown {
        false => Ok(()),
        true => Err("it did not pass: see above".to_string()),
    }
}

/// A reload, and the end of all workers before it.
pub fn settle(server: &mut Server, options: &Options) -> Outcome {
    std::thread::sleep(Duration::from_secs(1));
    let old = server.pids();
    let master = server.pid();
    server.signal(Signal::HUP);
    let began = Instant::now();
    while old.iter().any(|&pid| pid != master && proc::is_there(pid)) {
        if began.elapsed() > DRAIN {
            return Err("workers that were told to leave are still there".to_string());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // The new ones are warmed up, so that all have the memory of a first request.
    for _ in 0..20 * options.clients {
        server.wait_for_answer("localhost", 1, Duration::from_millis(5))?;
    }
    std::thread::sleep(Duration::from_secs(1));
    Ok(())
}

fn load(
    options: &Options,
    server: &Server,
    site: &Arc<Site>,
    h2: u16,
    length: Duration,
) -> Outcome<(Seen, Done)> {
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<JoinHandle<Seen>> = (0..options.clients)
        .map(|n| {
            let client = Client::new(n, server.port, Arc::clone(site), Arc::clone(&stop));
            std::thread::spawn(move || client.run())
        })
        .collect();
    let others = h2::mixed::begin(h2, site, &stop);
    let done = disturb(options, server, site, length);
    stop.store(true, Ordering::Relaxed);
    let mut seen = Seen::default();
    for client in clients {
        seen.add(client.join().map_err(|_| "a client panicked".to_string())?);
    }
    for other in others {
        for what in other.join().map_err(|_| "a client panicked".to_string())? {
            *seen.failures.entry(what).or_default() += 1;
        }
    }
    Ok((seen, done))
}

/// Disturbs the server for `length`.
fn disturb(options: &Options, server: &Server, site: &Site, length: Duration) -> Done {
    let began = Instant::now();
    let reload_every = Duration::from_secs(options.reload_every);
    let mut done = Done::default();
    let mut last = (began, began, began);
    let mut turn = 0_usize;
    while began.elapsed() < length {
        std::thread::sleep(FORGET_EVERY.min(length));
        turn += 1;
        site.forget(turn);
        if !reload_every.is_zero() && last.0.elapsed() >= reload_every {
            last.0 = Instant::now();
            server.signal(Signal::HUP);
            done.reloads += 1;
        }
        if last.1.elapsed() >= ROTATE_EVERY {
            last.1 = Instant::now();
            let log = server.prefix().join("access.log");
            let _ = fs::rename(&log, log.with_extension("old"));
            server.signal(Signal::USR1);
            done.rotations += 1;
        }
        if options.kill_workers && last.2.elapsed() >= KILL_EVERY {
            last.2 = Instant::now();
            proc::signal(server.worker(), Signal::KILL);
            done.kills += 1;
        }
    }
    done
}

/// Unwanted lines of the log, without the parts that vary.
pub fn alerts(server: &Server, killed: bool) -> BTreeMap<String, u64> {
    let log = fs::read(server.prefix().join("error.log")).unwrap_or_default();
    let mut found = BTreeMap::new();
    for line in String::from_utf8_lossy(&log).lines() {
        let bad = ["[alert]", "[emerg]", "[crit]", "panic"].iter().any(|w| line.contains(w));
        if !bad || killed && line.contains("exited on signal 9") {
            continue;
        }
        let text = line.split_once(": ").map_or(line, |(_, text)| text);
        let text: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        *found.entry(text).or_default() += 1;
    }
    found
}

/// Files in folders for temporary files and uploads; all of them should be gone.
fn left_behind(prefix: &Path, site: &Site) -> usize {
    fn count(folder: &Path) -> usize {
        let Ok(entries) = fs::read_dir(folder) else { return 0 };
        let each = entries.flatten().map(|e| match e.file_type() {
            Ok(kind) if kind.is_dir() => count(&e.path()),
            _ => 1,
        });
        each.sum()
    }
    count(&prefix.join("tmp")) + count(&site.uploads())
}
