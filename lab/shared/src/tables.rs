//! `shared-tables`: the time from a write on one server until all others have it.

use std::time::{Duration, Instant};

use rig::Outcome;
use rig::options::Options;
use rig::report;

use crate::engine::Engine;
use crate::node;
use crate::{Bounds, INTERVAL_MS, NODES, pass};

/// Writes.
const WRITES: usize = 200;

/// Reading takes time, too: a request to each server.
const SLACK: Duration = Duration::from_millis(20);

pub(crate) fn run(options: &Options) -> Outcome {
    let engine = Engine::start()?;
    let nodes = node::fleet(options, Some([engine.port; NODES]), 1)?;
    let mut times = Vec::new();
    for n in 0..WRITES {
        // Writes come at all moments of an interval.
        pass(n as u64 * 37 % INTERVAL_MS);
        let (writer, path) = (&nodes[n % NODES], format!("/set?k=key{n}&v=value{n}"));
        let wanted = format!("[value{n}]");
        writer.get(&path)?;
        let began = Instant::now();
        let mut others: Vec<_> = (0..NODES).filter(|i| *i != n % NODES).collect();
        while !others.is_empty() {
            let path = format!("/value?k=key{n}");
            others.retain(|i| nodes[*i].get(&path).is_ok_and(|value| value != wanted));
            if began.elapsed() > crate::PATIENCE {
                return Err(format!("key{n} is not on all servers"));
            }
        }
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    let longest = times.last().copied().unwrap_or(0.0);
    let p99 = times[WRITES * 99 / 100];
    println!(
        "{WRITES} writes, until all servers have each: median {:.0} ms, p99 {p99:.0} ms, longest \
         {longest:.0} ms; two intervals are {} ms",
        report::median(&times),
        2 * INTERVAL_MS
    );
    let most = Duration::from_millis(2 * INTERVAL_MS) + SLACK;
    let mut bounds = Bounds::default();
    bounds
        .check(longest <= most.as_secs_f64() * 1000.0, format!("the longest took {longest:.0} ms"));
    bounds.end()
}
