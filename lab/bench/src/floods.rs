//! Attacks from one client at a time, beside a well-behaved one: what the loads `h2-floods` and
//! `h3-floods` share.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, proc};

/// Between two requests of the well-behaved client.
const PACE: Duration = Duration::from_millis(2);

/// A protocol with its attacks.
pub trait Flood: Sync {
    /// The attack of one connection.
    type Attack: Sync + 'static;
    /// All of them, with their names.
    const ATTACKS: &'static [Self::Attack];
    /// The heading of what an attacker has sent.
    const SENT: &'static str;
    /// A well-behaved client.
    type Client: Client;

    /// The name of an attack.
    fn name(attack: &Self::Attack) -> &'static str;

    /// A server's setup, and the port on which it speaks the protocol.
    fn setup(&self, kind: Kind) -> Outcome<(Setup, u16)>;

    /// Attacks over one connection after the other, as long as each is let. The last one stays open
    /// until the lines of the log are `counted`.
    fn assail(
        port: u16,
        attack: &Self::Attack,
        until: Instant,
        counted: &mpsc::Receiver<()>,
    ) -> Felt;
}

/// A well-behaved client over a connection.
pub trait Client: Sized {
    /// Connects; `None` where that fails.
    fn connect(port: u16) -> Option<Self>;

    /// Asks for a file of 1 KB; says whether it came.
    fn ask(&mut self) -> bool;
}

/// The attacker's view.
#[derive(Default)]
pub struct Felt {
    /// The things sent so far, as the table shows them.
    pub sent: String,
    /// Its connections.
    pub connections: u32,
    /// How and when the first of them was ended.
    pub end: Option<(String, Duration)>,
}

/// The well-behaved client's view, and the server's cost, of a stretch of time.
struct Stretch {
    /// The 99th percentile of its latencies.
    p99_us: f64,
    /// The longest of them.
    longest_us: f64,
    /// Its requests that failed.
    failed: usize,
    /// CPUs busy with the server.
    cpu: f64,
    /// Memory of the worker at most.
    memory: u64,
}

/// Runs every attack of a protocol against every real server, each on a server of its own.
pub fn run<F: Flood>(options: &Options, flood: &F) -> Outcome {
    let mut rows = vec![row([
        "attack",
        "server",
        F::SENT,
        "first cut off",
        "after",
        "connections",
        "CPU alone",
        "with",
        "memory MB",
        "p99 us alone",
        "with",
        "longest us alone",
        "with",
        "failed",
        "log lines",
        "above info",
    ])];
    let chosen = |n: usize| options.only.is_none_or(|only| only == n);
    for (_, attack) in F::ATTACKS.iter().enumerate().filter(|(n, _)| chosen(*n)) {
        for &kind in options.servers.iter().filter(|k| k.is_real()) {
            rows.push(one(options, kind, flood, attack)?);
        }
    }
    report::table(&rows);
    println!("(CPU: of one; memory: growth of the worker's; failed: of the well-behaved client)");
    Ok(())
}

fn one<F: Flood>(
    options: &Options,
    kind: Kind,
    flood: &F,
    attack: &F::Attack,
) -> Outcome<Vec<String>> {
    let (setup, port) = flood.setup(kind)?;
    let (server, _) = Server::start(options, kind, &setup)?;
    let time = Duration::from_secs(options.seconds.into());
    let stretch = |time| stretch::<F::Client>(&server, port, time);
    stretch(Duration::from_millis(300))?;
    let before = anonymous(server.worker());
    let lines = log_lines(&server);
    let alone = stretch(time)?;
    let (count, counted) = mpsc::channel();
    let (with, (all, above), felt) = std::thread::scope(|scope| {
        let until = Instant::now() + time;
        let attacker = scope.spawn(move || {
            // The well-behaved client is on the same processor, and goes before.
            proc::pin(1);
            proc::be_nice();
            F::assail(port, attack, until, &counted)
        });
        let with = stretch(time);
        let lines = log_lines(&server);
        // What the server writes about the attacker's own end is no part of it.
        let _ = count.send(());
        (with, lines, attacker.join().map_err(|_| "the attacker panicked".to_string()))
    });
    let (with, felt) = (with?, felt?);
    let (end, after) = match &felt.end {
        Some((how, after)) => (how.clone(), format!("{} ms", after.as_millis())),
        None => ("no".to_string(), String::new()),
    };
    let (all, above) = (all - lines.0, above - lines.1);
    Ok(row([
        F::name(attack),
        kind.name(),
        &felt.sent,
        &end,
        &after,
        &felt.connections.to_string(),
        &format!("{:.2}", alone.cpu),
        &format!("{:.2}", with.cpu),
        &report::megabytes(with.memory.saturating_sub(before) as f64),
        &format!("{:.0}", alone.p99_us),
        &format!("{:.0}", with.p99_us),
        &format!("{:.0}", alone.longest_us),
        &format!("{:.0}", with.longest_us),
        &(alone.failed + with.failed).to_string(),
        &all.to_string(),
        &above.to_string(),
    ]))
}

/// The lines of the error log, and those of them of a level above `info`.
fn log_lines(server: &Server) -> (usize, usize) {
    let log = std::fs::read(server.prefix().join("error.log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let is_below = |line: &&str| line.contains("[info]") || line.contains("[debug]");
    (log.lines().count(), log.lines().filter(|line| !is_below(line)).count())
}

/// Memory of a process that is no file's.
fn anonymous(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kb = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kb.unwrap_or(0) * 1024
}

/// A well-behaved client for that time, with a look at the server all the while.
fn stretch<C: Client>(server: &Server, port: u16, time: Duration) -> Outcome<Stretch> {
    let pids = server.pids();
    let worker = server.worker();
    let (began, cpu) = (Instant::now(), proc::cpu_ns(&pids));
    let (memory, (mut latencies, failed)) = std::thread::scope(|scope| {
        let witness = scope.spawn(move || witness::<C>(port, began + time));
        let looks = scope.spawn(|| {
            proc::pin(1);
            let mut memory = 0;
            while began.elapsed() < time {
                memory = anonymous(worker).max(memory);
                std::thread::sleep(Duration::from_millis(20));
            }
            memory
        });
        let felt = witness.join().map_err(|_| "the well-behaved client panicked".to_string())?;
        let memory = looks.join().map_err(|_| "the look at the server panicked".to_string())?;
        Ok::<_, String>((memory, felt))
    })?;
    let cpu = (proc::cpu_ns(&pids) - cpu) as f64 / began.elapsed().as_nanos() as f64;
    latencies.sort_unstable();
    let at = (latencies.len() * 99 / 100).min(latencies.len().saturating_sub(1));
    let p99_us = latencies.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1000.0);
    let longest_us = latencies.last().map_or(f64::NAN, |ns| *ns as f64 / 1000.0);
    Ok(Stretch { p99_us, longest_us, failed, cpu, memory })
}

/// Asks at its pace; gives the latencies in nanoseconds, and how many requests failed.
fn witness<C: Client>(port: u16, until: Instant) -> (Vec<u64>, usize) {
    proc::pin(1);
    proc::go_first();
    let (mut latencies, mut failed) = (Vec::new(), 0);
    while Instant::now() < until {
        let Some(mut client) = C::connect(port) else {
            failed += 1;
            std::thread::sleep(PACE);
            continue;
        };
        while Instant::now() < until {
            let began = Instant::now();
            if !client.ask() {
                failed += 1;
                break;
            }
            latencies.push(began.elapsed().as_nanos() as u64);
            std::thread::sleep(PACE.saturating_sub(began.elapsed()));
        }
    }
    (latencies, failed)
}
