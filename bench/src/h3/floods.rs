//! Attacks from one client at a time, beside a well-behaved one.

use std::time::{Duration, Instant};

use bare::attacks::h3::{ATTACKS, Attack, Attacker};
use testkit::h3::Client;

use super::setup;
use crate::h2::floods::{PACE, anonymous, log_lines, stretch};
use crate::helper::Helper;
use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, Setup, free_port, new_folder};
use crate::tls::Certificate;
use crate::{Outcome, proc};

/// The attacker's view.
#[derive(Default)]
struct Felt {
    connections: u32,
    batches: u64,
    /// How and when the first connection was ended.
    end: Option<(String, Duration)>,
}

/// Runs every attack against every real server, each on a server of its own.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let certificate = Certificate::new(false)?;
    let backend = free_port()?;
    let arguments = [backend.to_string(), "sink".to_string()];
    let _backend = Helper::start(1, &options.floor, &arguments, backend, new_folder()?)?;
    let mut rows = vec![row([
        "attack",
        "server",
        "first cut off",
        "after",
        "connections",
        "batches",
        "CPU alone",
        "with",
        "memory MB",
        "p99 us alone",
        "with",
        "failed",
        "log lines",
    ])];
    let chosen = |n: usize| options.only.is_none_or(|only| only == n);
    for (_, attack) in ATTACKS.iter().enumerate().filter(|(n, _)| chosen(*n)) {
        for &kind in options.servers.iter().filter(|k| k.is_real()) {
            let (setup, port) = setup(&certificate, backend, kind != Kind::Nginx)?;
            rows.push(one(options, kind, &setup, port, attack)?);
        }
    }
    report::table(&rows);
    println!("(CPU: of one; memory: growth of the worker's; failed: of the well-behaved client)");
    Ok(())
}

fn one(
    options: &Options,
    kind: Kind,
    setup: &Setup,
    port: u16,
    attack: &Attack,
) -> Outcome<Vec<String>> {
    let (server, _) = Server::start(options, kind, setup)?;
    let time = Duration::from_secs(options.seconds.into());
    let stretch = |time| stretch(&server, time, |until| witness(port, until));
    stretch(Duration::from_millis(300))?;
    let before = anonymous(server.worker());
    let lines = log_lines(&server).0;
    let alone = stretch(time)?;
    let (with, felt) = std::thread::scope(|scope| {
        let until = Instant::now() + time;
        let attacker = scope.spawn(move || assail(port, attack, until));
        let with = stretch(time);
        (with, attacker.join().map_err(|_| "the attacker panicked".to_string()))
    });
    let (with, felt) = (with?, felt?);
    let (end, after) = match &felt.end {
        Some((how, after)) => (how.clone(), format!("{} ms", after.as_millis())),
        None => ("no".to_string(), String::new()),
    };
    Ok(row([
        attack.name,
        kind.name(),
        &end,
        &after,
        &felt.connections.to_string(),
        &felt.batches.to_string(),
        &format!("{:.2}", alone.cpu),
        &format!("{:.2}", with.cpu),
        &report::megabytes(with.memory.saturating_sub(before) as f64),
        &format!("{:.0}", alone.p99_us),
        &format!("{:.0}", with.p99_us),
        &(alone.failed + with.failed).to_string(),
        &(log_lines(&server).0 - lines).to_string(),
    ]))
}

/// Asks at its pace; gives the latencies in nanoseconds, and how many requests failed.
fn witness(port: u16, until: Instant) -> (Vec<u64>, usize) {
    proc::pin(1);
    proc::go_first();
    let (mut latencies, mut failed) = (Vec::new(), 0);
    while Instant::now() < until {
        let mut client = Client::connect(port, "localhost");
        while Instant::now() < until {
            let began = Instant::now();
            let response = client.get("/1k.txt");
            if response.status != 200 || response.body.len() != 1024 {
                failed += 1;
                break;
            }
            latencies.push(began.elapsed().as_nanos() as u64);
            std::thread::sleep(PACE.saturating_sub(began.elapsed()));
        }
        client.quic().close(0x100);
    }
    (latencies, failed)
}

/// Attacks over one connection after the other, as long as each is let.
fn assail(port: u16, attack: &Attack, until: Instant) -> Felt {
    // The well-behaved client is on the same processor, and goes before.
    proc::pin(1);
    proc::be_nice();
    let mut felt = Felt::default();
    while Instant::now() < until {
        let began = Instant::now();
        let mut attacker = Attacker::new(port, attack);
        felt.connections += 1;
        let end = attacker.run(attack, until);
        felt.batches += attacker.batches;
        felt.end = felt.end.or(end.map(|how| (how, began.elapsed())));
    }
    felt
}
