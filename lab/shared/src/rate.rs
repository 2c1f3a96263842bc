//! `shared-rate`: three servers, one key, 100 requests a second for all; and what that costs,
//! beside the same servers that share nothing.

use rig::options::Options;
use rig::report::{self, row};
use rig::{Outcome, proc};

use crate::engine::Engine;
use crate::load::{self, Load};
use crate::node::{self, Node};
use crate::{BURST, Bounds, NODES, RATE};

/// Connections of the load on each server.
const CONNECTIONS: usize = 8;

/// The rate of all may be so much off.
const EXACT: f64 = 0.05;

/// The CPU time of a request against that without sharing.
const COST: f64 = 1.05;

pub(crate) fn run(options: &Options) -> Outcome {
    let engine = Engine::start()?;
    let shared = node::fleet(options, Some([engine.port; NODES]), 1)?;
    let alone = node::fleet(options, None, 1)?;
    let mut bounds = Bounds::default();
    let seconds = options.seconds_or(60);
    let load = Load { connections: CONNECTIONS, seconds };
    let counts = load::run(&node::ports(&shared), load)?;
    let rate = counts.passed as f64 / counts.seconds;
    println!(
        "{NODES} servers of two workers, one key, {RATE} r/s with a burst of {BURST}: {rate:.1} \
         r/s passed in {:.1} s, of {:.0} requests a second; {} of 5xx, {} broken",
        counts.seconds,
        counts.requests as f64 / counts.seconds,
        counts.failed,
        counts.broken,
    );
    let is_exact = (rate - RATE).abs() <= RATE * EXACT;
    bounds.check(is_exact, format!("{rate:.1} r/s passed instead of {RATE}"));
    bounds.check(counts.failed + counts.broken == 0, "requests failed".to_owned());
    let waits: Vec<_> = shared.iter().map(|node| node.number("waits")).collect();
    println!("requests that waited for Redis: {waits:?}");
    bounds.check(waits.iter().all(|n| *n == Some(0)), "requests waited".to_owned());
    cost(options, &mut bounds, &shared, &alone)?;
    bounds.end()
}

/// Rounds of both fleets in turn.
fn cost(options: &Options, bounds: &mut Bounds, shared: &[Node], alone: &[Node]) -> Outcome {
    let seconds = u64::from(options.seconds);
    let load = Load { connections: CONNECTIONS, seconds };
    let mut rounds: [Vec<[f64; 2]>; 2] = Default::default();
    for _ in 0..options.rounds {
        for (nodes, figures) in [shared, alone].into_iter().zip(&mut rounds) {
            let pids: Vec<u32> = nodes.iter().flat_map(|node| node.server.pids()).collect();
            let before = proc::cpu_ns(&pids);
            let counts = load::run(&node::ports(nodes), load)?;
            let cpu_us = (proc::cpu_ns(&pids) - before) as f64 / 1000.0;
            let requests = counts.requests.max(1) as f64;
            figures.push([cpu_us / requests, requests / counts.seconds]);
        }
    }
    let column = |of: &[[f64; 2]], n: usize| of.iter().map(|figures| figures[n]).collect();
    let cpu: [Vec<f64>; 2] = rounds.each_ref().map(|of| column(of, 0));
    let rate: [Vec<f64>; 2] = rounds.each_ref().map(|of| column(of, 1));
    let mut rows = vec![row(["servers", "requests/s", "CPU us/request"])];
    for (n, name) in ["with sync", "without"].into_iter().enumerate() {
        let [rate, cpu] = [&rate[n], &cpu[n]].map(|of| report::median(of));
        rows.push(row([name, &format!("{rate:.0}"), &format!("{cpu:.2}")]));
    }
    report::table(&rows);
    println!("with sync / without: CPU {}", report::ratios(&cpu[0], &cpu[1]));
    let each: Vec<f64> = cpu[0].iter().zip(&cpu[1]).map(|(of, to)| of / to).collect();
    let ratio = report::median(&each);
    bounds.check(ratio <= COST, format!("a request costs {ratio:.3} of that without sync"));
    Ok(())
}
