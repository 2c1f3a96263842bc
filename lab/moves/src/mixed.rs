//! All kinds at once, a few hundred connections of each, served by threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rig::options::Options;
use rig::server::{Kind, Server};
use rig::{Outcome, proc, report};

use crate::changes::Changes;
use crate::clients::{client, echo};
use crate::witness::Witness;
use crate::{PATIENCE, Ports, Protocol, Tally, locked, percentiles, setup};

/// Connections of each kind.
const EACH_MAX: usize = 200;

/// The pause of a client between two messages.
const PAUSE: Duration = Duration::from_millis(50);

/// The pause between two reloads, in which nothing happens.
const REST: Duration = Duration::from_millis(500);

const KINDS: [(&str, Protocol); 5] = [
    ("WebSocket, TLS", Protocol::Tunnel { tls: true }),
    ("tunnel, clear", Protocol::Tunnel { tls: false }),
    ("stream, TLS", Protocol::Stream),
    ("HTTP/1 kept, TLS", Protocol::Http1),
    ("HTTP/2, TLS", Protocol::Http2),
];

/// Runs the load; gives what the server has missed.
pub fn run(options: &Options, kind: Kind) -> Outcome<Vec<String>> {
    let (setup, ports) = setup(echo(true)?, echo(false)?, 12_288)?;
    let (server, _) = Server::start(options, kind, &setup)?;
    let ports = Ports { clear: server.port, ..ports };
    let each = options.clients.min(EACH_MAX);
    let stop = Arc::new(AtomicBool::new(false));
    let tallies: Vec<Arc<Mutex<Tally>>> = KINDS.iter().map(|_| Arc::default()).collect();
    let mut threads = Vec::new();
    for ((_, protocol), tally) in KINDS.iter().zip(&tallies) {
        for _ in 0..each {
            threads.push(client(*protocol, PAUSE, &ports, tally, &stop)?);
        }
    }
    let witness = Witness::start(ports.clear, &stop)?;
    std::thread::sleep(2 * REST);
    let before = proc::memory(&server.all_pids()).pss;
    let mut changes = Changes::new(&server, REST);
    for _ in 0..options.reloads {
        changes.reload();
    }
    changes.count();
    for _ in 0..options.upgrades {
        changes.upgrade();
        changes.reload();
        changes.count();
    }
    let after = proc::memory(&server.all_pids()).pss;
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    let others = witness.end();
    println!("{}:", kind.name());
    let tallies: Vec<_> = tallies.iter().map(|tally| locked(tally)).collect();
    crate::print(KINDS.iter().zip(&tallies).map(|((name, _), tally)| (*name, &**tally)));
    let mut missed = Vec::new();
    if tallies.iter().any(|t| t.lost + t.wrong > 0 || t.messages == 0) {
        missed.push("messages were lost or wrong".to_string());
    }
    let times = changes.times_ms();
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let (all, left) = (each * KINDS.len(), changes.unfinished());
    if left > 0 {
        missed.push(format!("old workers stayed {left} times"));
    }
    println!(
        "{all} connections, {} reloads, {} upgrades with a reload each; old workers gone after \
         {:.0} ms (median), {slowest:.0} ms (longest), {left} times not in {PATIENCE:?}",
        options.reloads,
        options.upgrades,
        report::median(&times),
    );
    println!(
        "moved {} times, in the slowest change {:.0} connections a second; {}; other requests: {}; \
         PSS {} MB before, {} MB after",
        changes.moved,
        all as f64 * 1000.0 / slowest.max(1.0),
        changes.turns()[1],
        percentiles(others.iter().map(|asked| asked.ms)),
        report::megabytes(before as f64),
        report::megabytes(after as f64),
    );
    Ok(missed)
}
