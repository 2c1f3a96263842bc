//! Accepting: the policies for listening sockets of several workers, with all of them well and with
//! one that is stuck from time to time.
//!
//! A worker is stuck because a signal stops it, which works for every server alike. The requests
//! that it has accepted by then wait for it under every policy.

mod kept;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::options::Options;
use crate::report::{self, median, row};
use crate::server::{Kind, Server, Setup, get};
use crate::{Outcome, proc, wrk};

const CONFIG: &str = include_str!("../../configs/accept.conf");

/// Clients, each of which makes a connection for a request, one after the other.
const CLIENTS: usize = 64;

/// The pause between two requests of a client: together they stay far below a server's maximum.
const PAUSE: Duration = Duration::from_millis(100);

/// A worker is stopped for so long, of every five times that.
const STOP: Duration = Duration::from_secs(1);

/// A request that takes longer has waited for a worker.
const LONG: Duration = Duration::from_millis(100);

/// A way to share the accepting among workers.
pub struct Policy {
    pub name: &'static str,
    pub mutex: &'static str,
    pub listen: &'static str,
    /// Weir's own.
    pub own: bool,
}

/// All of them.
pub const POLICIES: &[Policy] = &[
    Policy { name: "shared", mutex: "off", listen: "", own: false },
    Policy { name: "accept_mutex", mutex: "on", listen: "", own: false },
    Policy { name: "reuseport", mutex: "off", listen: "reuseport", own: false },
    Policy { name: "steered", mutex: "off", listen: "reuseport=steered", own: true },
];

/// A policy of one server, with a value of each figure for each round.
#[derive(Default)]
struct Series {
    rate: Vec<f64>,
    p99: Vec<f64>,
    longest_us: Vec<f64>,
    loaded: Vec<f64>,
    loaded_deviation: Vec<f64>,
    mean: Vec<f64>,
    deviation: Vec<f64>,
    spread: Vec<f64>,
    errors: u64,
    /// With a worker that is stuck now and then.
    asked: usize,
    long: usize,
    longest: Duration,
    kept: kept::Series,
}

/// Measures every policy of every server.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let mut servers = Vec::new();
    for &kind in options.servers.iter().filter(|kind| kind.is_real()) {
        for (number, policy) in POLICIES.iter().enumerate() {
            if kind == Kind::Nginx && policy.own || options.only.is_some_and(|n| n != number) {
                continue;
            }
            let fill = vec![
                ("%MUTEX%", policy.mutex.to_string()),
                ("%LISTEN%", policy.listen.to_string()),
            ];
            let setup = Setup { template: CONFIG, fill, cpus: "0,1", ..Setup::default() };
            let (server, _) = Server::start(options, kind, &setup)?;
            servers.push((server, policy, Series::default()));
        }
    }
    for _ in 0..options.rounds {
        for (server, _, series) in &mut servers {
            saturate(options, server, series)?;
        }
        pace(options.seconds, &mut servers);
    }
    dear(options, &mut servers);
    for (server, _, series) in &mut servers {
        with_one_stuck(server, series);
    }
    print(&servers);
    Ok(())
}

/// Kept connections with dear requests.
fn dear(options: &Options, servers: &mut [(Server, &Policy, Series)]) {
    for _ in 0..options.rounds {
        for (server, _, series) in &mut *servers {
            kept::saturate(server, options.seconds, &mut series.kept);
        }
    }
    let paces: Vec<f64> = servers
        .iter()
        .map(|(server, ..)| {
            kept::steady(servers.iter().map(|(s, _, x)| (s.kind, &x.kept)), server.kind)
        })
        .collect();
    for _ in 0..options.rounds {
        for ((server, _, series), pace) in servers.iter_mut().zip(&paces) {
            kept::pace(server, options.seconds, *pace, &mut series.kept);
        }
    }
}

/// As many connections as the server takes, and which worker got how many of some others meanwhile.
fn saturate(options: &Options, server: &Server, series: &mut Series) -> Outcome {
    let load = wrk::Load {
        port: server.port,
        path: "/",
        connections: CLIENTS,
        seconds: options.seconds,
        pipeline: false,
        close: true,
        files: None,
    };
    let wrk = wrk::start(&load)?;
    let mut by_worker = BTreeMap::new();
    let end = Instant::now() + Duration::from_secs(u64::from(options.seconds));
    while Instant::now() < end {
        if let Ok(pid) = get(server.port, "localhost", "/pid") {
            *by_worker.entry(pid).or_insert(0usize) += 1;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let result = wrk::finish(wrk)?;
    let asked: usize = by_worker.values().sum();
    let most = by_worker.values().copied().max().unwrap_or(0);
    series.rate.push(result.rate());
    series.loaded.push(result.mean_us as f64);
    series.loaded_deviation.push(result.deviation_us as f64);
    series.p99.push(result.p99_us as f64);
    series.longest_us.push(result.longest_us as f64);
    series.spread.push(100.0 * most as f64 / asked.max(1) as f64);
    series.errors += result.failures();
    Ok(())
}

/// Requests at a steady pace, to all servers in turn: a disturbance of the machine hits all alike.
fn pace(seconds: u32, servers: &mut [(Server, &Policy, Series)]) {
    let ports: Vec<u16> = servers.iter().map(|(server, ..)| server.port).collect();
    let all = Duration::from_secs(u64::from(seconds)) * ports.len() as u32;
    let asked = clients(&ports, all, || ());
    for ((.., series), asked) in servers.iter_mut().zip(asked) {
        let us: Vec<f64> = asked.waits.iter().map(|wait| wait.as_secs_f64() * 1e6).collect();
        let (mean, deviation) = spread(&us);
        series.mean.push(mean);
        series.deviation.push(deviation);
        series.errors += asked.failed;
    }
}

/// The same of one server, while one of its workers is stopped now and then.
fn with_one_stuck(server: &Server, series: &mut Series) {
    let worker = server.worker();
    let asked = clients(&[server.port], 2 * STOP * 5, || {
        for _ in 0..2 {
            std::thread::sleep(STOP * 2);
            proc::signal(worker, Signal::STOP);
            std::thread::sleep(STOP);
            proc::signal(worker, Signal::CONT);
            std::thread::sleep(STOP * 2);
        }
    });
    for asked in asked {
        series.asked += asked.waits.len();
        series.long += asked.waits.iter().filter(|wait| **wait > LONG).count();
        series.longest = asked.waits.iter().copied().max().unwrap_or_default();
        series.errors += asked.failed;
    }
}

/// The mean, and the deviation from it.
fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

/// The durations of requests to a server, and the number that failed.
#[derive(Default)]
struct Asked {
    waits: Vec<Duration>,
    failed: u64,
}

/// All clients, for so long, while something is done.
fn clients(ports: &[u16], length: Duration, meanwhile: impl FnOnce()) -> Vec<Asked> {
    let end = Instant::now() + length;
    let mut all: Vec<Asked> = ports.iter().map(|_| Asked::default()).collect();
    std::thread::scope(|scope| {
        let client = |number: usize| {
            scope.spawn(move || {
                // They do not all ask at once.
                std::thread::sleep(PAUSE * number as u32 / CLIENTS as u32);
                client(ports, number, end)
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        meanwhile();
        for own in clients.into_iter().filter_map(|client| client.join().ok()) {
            for (all, own) in all.iter_mut().zip(own) {
                all.waits.extend(own.waits);
                all.failed += own.failed;
            }
        }
    });
    all
}

/// Asks one server after the other, each client beginning with another one.
fn client(ports: &[u16], number: usize, end: Instant) -> Vec<Asked> {
    let mut all: Vec<Asked> = ports.iter().map(|_| Asked::default()).collect();
    let mut turn = number;
    while Instant::now() < end {
        let began = Instant::now();
        let which = turn % ports.len();
        match get(ports[which], "localhost", "/") {
            Ok(_) => all[which].waits.push(began.elapsed()),
            Err(_) => all[which].failed += 1,
        }
        turn += 1;
        std::thread::sleep(PAUSE.saturating_sub(began.elapsed()));
    }
    all
}

fn print(servers: &[(Server, &Policy, Series)]) {
    let mut rows = vec![row([
        "server",
        "policy",
        "requests/s",
        "mean us",
        "deviation us",
        "p99 us",
        "longest ms",
        "busiest worker",
        "paced: mean us",
        "deviation us",
        "errors",
    ])];
    for (server, policy, s) in servers {
        rows.push(row([
            server.kind.name(),
            policy.name,
            &format!("{:.0}", median(&s.rate)),
            &format!("{:.0}", median(&s.loaded)),
            &format!("{:.0}", median(&s.loaded_deviation)),
            &format!("{:.0}", median(&s.p99)),
            &report::longest(&s.longest_us),
            &format!("{:.0} %", median(&s.spread)),
            &format!("{:.0}", median(&s.mean)),
            &format!("{:.0}", median(&s.deviation)),
            &s.errors.to_string(),
        ]));
    }
    report::table(&rows);
    kept::print(servers);
    println!("\none worker stopped for 1 s of every 5, over 10 s:");
    let mut rows = vec![row(["server", "policy", "requests", "over 100 ms", "longest ms"])];
    for (server, policy, s) in servers {
        rows.push(row([
            server.kind.name(),
            policy.name,
            &s.asked.to_string(),
            &s.long.to_string(),
            &s.longest.as_millis().to_string(),
        ]));
    }
    report::table(&rows);
}
