//! Reload after reload under TLS: what fails, and how many sessions are resumed, from tickets and
//! from the shared cache.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Certificate, beside, setup};
use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, Setup, free_port};
use crate::{Outcome, storm, wrk};

const CONFIG: &str = include_str!("../../configs/tls-storm.conf");
const CONNECTIONS: usize = 200;

/// Clients of each kind that resume their sessions.
const THREADS: usize = 4;

/// Sessions that are resumed at least, of a hundred.
const RESUMED_MIN: f64 = 99.0;

/// The figures of one server.
struct Figures {
    reloads: u32,
    requests: wrk::Result,
    tickets: wrk::Result,
    cache: wrk::Result,
    alerts: usize,
}

/// Runs the storm against every real server, one after the other.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let mut rows = vec![row([
        "server",
        "reloads",
        "requests",
        "failed",
        "with tickets",
        "resumed",
        "failed",
        "from the cache",
        "resumed",
        "failed",
        "alerts",
    ])];
    let mut wrong = false;
    for &kind in options.servers.iter().filter(|k| k.is_real()) {
        let f = one(options, kind)?;
        let resumed = [&f.tickets, &f.cache].map(resumed);
        let failed = [&f.requests, &f.tickets, &f.cache].map(failed);
        if kind != Kind::Nginx {
            let none = failed.iter().all(|n| *n == 0) && f.alerts == 0;
            wrong |= !none || resumed.iter().any(|share| *share < RESUMED_MIN);
        }
        rows.push(row([
            kind.name(),
            &f.reloads.to_string(),
            &f.requests.requests.to_string(),
            &failed[0].to_string(),
            &f.tickets.requests.to_string(),
            &format!("{:.2} %", resumed[0]),
            &failed[1].to_string(),
            &f.cache.requests.to_string(),
            &format!("{:.2} %", resumed[1]),
            &failed[2].to_string(),
            &f.alerts.to_string(),
        ]));
    }
    report::table(&rows);
    if wrong {
        Err("something failed, or too few sessions were resumed".to_string())
    } else {
        Ok(())
    }
}

/// Handshakes of the other kind are counted as errors of status.
const OTHER_KIND: usize = 4;

fn failed(result: &wrk::Result) -> u64 {
    // Of requests, a status is a failure.
    let other_kind = if result.bytes == 0 { result.errors[OTHER_KIND] } else { 0 };
    result.failures() - other_kind
}

fn resumed(result: &wrk::Result) -> f64 {
    let all = result.requests + result.errors[OTHER_KIND];
    100.0 * result.requests as f64 / all.max(1) as f64
}

fn one(options: &Options, kind: Kind) -> Outcome<Figures> {
    let certificate = Certificate::new(false)?;
    let (mut setup, port) = setup(&certificate, CONFIG, None)?;
    let cache_port = free_port()?;
    setup.fill.push(("%CACHE_PORT%", cache_port.to_string()));
    let setup = Setup { connections: 4096, ..setup };
    let (server, _) = Server::start(options, kind, &setup)?;
    let seconds = options.storm_seconds;
    let shakers = [port, cache_port].map(|port| shaker(options, port, seconds));
    let load = wrk::Load {
        port,
        path: "/1k.txt",
        connections: CONNECTIONS,
        seconds,
        pipeline: false,
        close: false,
        files: None,
    };
    let requests = wrk::start_over_tls(&load)?;
    let reloads = storm::blow(&server, Duration::from_secs(u64::from(seconds)), false);
    let requests = wrk::finish(requests)?;
    let [tickets, cache] = shakers.map(|child| wrk::finish(child?));
    let (tickets, cache) = (tickets?, cache?);
    Ok(Figures { reloads, requests, tickets, cache, alerts: server.alerts() })
}

fn shaker(options: &Options, port: u16, seconds: u32) -> Outcome<std::process::Child> {
    let program = beside(options, "handshakes");
    let numbers = [port.to_string(), THREADS.to_string(), seconds.to_string()];
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).arg(&program).args(numbers).arg("resumed");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|e| format!("{}: {e}", program.display()))
}
