//! `shared-faults`: each fault of the engine and of the network, under load. Before it, during it
//! and after it the same load runs, so that latencies compare.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rig::Outcome;
use rig::options::Options;
use rig::report::{self, row};
use rig::server::free_port;
use rustix::process::Signal;

use crate::engine::Engine;
use crate::load::{Counts, Load, slices};
use crate::node::{self, Node};
use crate::path::{Relay, Way};
use crate::{BURST, Bounds, INTERVAL_MS, NODES, PATIENCE, RATE, pass, wait_until};

/// The load on each server: about 1,600 requests a second.
const CONNECTIONS: usize = 16;
const PAUSE_MS: u64 = 10;

/// The fault begins, and ends, so long after the load of that part has begun.
const LEAD_MS: u64 = 1_000;

/// The time over which requests are counted after the return.
const COUNTED: Duration = Duration::from_secs(5);

/// The shortest loads before and after the fault: the servers have to come back, and to be counted.
const BEFORE_S: u64 = 10;
const AFTER_S: u64 = 15;

/// The latency that one in a hundred exceeds, against that of the same load without a fault.
const P99: f64 = 1.1;

/// The parts in which a fault happens.
struct World {
    engine: Engine,
    /// A replica of it.
    other: Engine,
    relay: Relay,
    /// A port at which nothing listens.
    nowhere: u16,
}

struct Fault {
    name: &'static str,
    /// Whether the engine is away: limits are local.
    is_away: bool,
    begin: fn(&mut World) -> Outcome,
    end: fn(&mut World) -> Outcome,
}

const fn fault(
    name: &'static str,
    begin: fn(&mut World) -> Outcome,
    end: fn(&mut World) -> Outcome,
) -> Fault {
    Fault { name, is_away: true, begin, end }
}

fn way(world: &World, way: Way) -> Outcome {
    world.relay.set(way);
    Ok(())
}

fn signal(world: &World, signal: Signal) -> Outcome {
    world.engine.signal(signal);
    Ok(())
}

const FAULTS: &[Fault] = &[
    fault("refused", |w| way(w, Way::Refused), |w| way(w, Way::Open)),
    fault("packets lost", |w| way(w, Way::Silent), |w| way(w, Way::Open)),
    fault("SIGSTOP", |w| signal(w, Signal::STOP), |w| signal(w, Signal::CONT)),
    fault(
        "killed",
        |w| {
            w.engine.kill();
            Ok(())
        },
        |w| w.engine.begin(),
    ),
    Fault {
        name: "emptied",
        is_away: false,
        begin: |w| w.engine.order("FLUSHALL"),
        end: |_| Ok(()),
    },
    fault("3 s slow", |w| way(w, Way::Slow), |w| way(w, Way::Open)),
    fault(
        "read-only",
        |w| w.engine.order(&format!("REPLICAOF 127.0.0.1 {}", w.nowhere)),
        |w| w.engine.order("REPLICAOF NO ONE"),
    ),
    fault(
        "failover",
        |w| {
            w.engine.kill();
            Ok(())
        },
        |w| {
            w.other.order("REPLICAOF NO ONE")?;
            w.relay.lead_to(w.other.port);
            Ok(())
        },
    ),
    fault(
        "no memory",
        |w| w.engine.order("CONFIG SET maxmemory 1"),
        |w| w.engine.order("CONFIG SET maxmemory 0"),
    ),
    fault("garbage", |w| way(w, Way::Garbage), |w| way(w, Way::Open)),
];

/// The figures of a fault.
struct Figures {
    parts: [Counts; 3],
    /// Requests a second that passed during the fault, and after the return.
    during: f64,
    after: f64,
    back: Duration,
    lines: Vec<usize>,
}

pub(crate) fn run(options: &Options) -> Outcome {
    let mut bounds = Bounds::default();
    let columns = ["fault", "r/s during", "after", "back ms", "5xx", "broken", "p99 us", "ratio"];
    let mut rows = vec![columns.into_iter().chain(["lines"]).map(str::to_owned).collect()];
    for (n, fault) in FAULTS.iter().enumerate() {
        if options.only.is_none_or(|only| only == n) {
            let figures = one(options, fault)?;
            rows.push(judge(fault, &figures, &mut bounds));
        }
    }
    report::table(&rows);
    bounds.end()
}

fn one(options: &Options, fault: &Fault) -> Outcome<Figures> {
    let (engine, other) = (Engine::start()?, Engine::start()?);
    other.order(&format!("REPLICAOF 127.0.0.1 {}", engine.port))?;
    wait_until("the replica follows", || engine.run("WAIT 1 1000").is_ok_and(|n| n == ":1"))?;
    let relay = Relay::start(engine.port)?;
    let at = relay.port;
    let mut world = World { engine, other, relay, nowhere: free_port()? };
    let nodes = node::fleet(options, Some([at; NODES]), 1)?;
    let ports = node::ports(&nodes);
    let seconds = options.seconds_or(30);
    let load = |seconds| Load { connections: CONNECTIONS, seconds, pause_ms: PAUSE_MS };
    let lines: Vec<_> = nodes.iter().map(|node| node.lines().len()).collect();
    let before = ended(slices(&ports, load(BEFORE_S.max(seconds.div_ceil(2)))))?;

    let running = slices(&ports, load(seconds));
    pass(LEAD_MS);
    (fault.begin)(&mut world)?;
    pass(INTERVAL_MS);
    let left = (seconds * 1000).saturating_sub(LEAD_MS + 2 * INTERVAL_MS);
    let during = rate(&nodes, Duration::from_millis(left))?;
    let amid = ended(running)?;

    let running = slices(&ports, load(AFTER_S.max(seconds.div_ceil(2))));
    pass(LEAD_MS);
    (fault.end)(&mut world)?;
    let back = wait_until("all are back", || nodes.iter().all(|node| node.is("joined")))?;
    pass(2 * INTERVAL_MS);
    let after = rate(&nodes, COUNTED)?;
    let behind = ended(running)?;
    let counted = nodes.iter().zip(lines).map(|(node, before)| node.lines().len() - before);
    let lines = counted.collect();
    Ok(Figures { parts: [before, amid, behind], during, after, back, lines })
}

fn ended(load: JoinHandle<Outcome<Counts>>) -> Outcome<Counts> {
    load.join().unwrap_or_else(|_| Err("the thread of the load is dead".to_owned()))
}

/// The requests in a second that the servers let pass, over that time.
fn rate(nodes: &[Node], time: Duration) -> Outcome<f64> {
    let sum = || nodes.iter().map(Node::passed).sum::<Option<u64>>().ok_or("no figures");
    let (began, before) = (Instant::now(), sum()?);
    std::thread::sleep(time.min(2 * PATIENCE));
    let passed = sum()?.saturating_sub(before);
    Ok(passed as f64 / began.elapsed().as_secs_f64())
}

/// Whether a rate is that of all, but for so much and for bursts.
fn is_right(rate: f64, wanted: f64, time_s: f64, bursts: f64) -> bool {
    rate <= wanted * 1.05 + bursts * (BURST + 1.0) / time_s && rate >= wanted * 0.95
}

fn judge(fault: &Fault, figures: &Figures, bounds: &mut Bounds) -> Vec<String> {
    let Figures { parts: [before, amid, behind], during, after, back, lines } = figures;
    let all = NODES as f64;
    let wanted = if fault.is_away { RATE * all } else { RATE };
    let name = fault.name;
    let time_s = amid.seconds;
    bounds.check(is_right(*during, wanted, time_s, all), format!("{name}: {during:.1} r/s"));
    let is_sum = is_right(*after, RATE, COUNTED.as_secs_f64(), 0.0);
    bounds.check(is_sum, format!("{name}: {after:.1} r/s after the return"));
    let failed: u64 = [before, amid, behind].iter().map(|counts| counts.failed).sum();
    let broken: u64 = [before, amid, behind].iter().map(|counts| counts.broken).sum();
    bounds.check(failed + broken == 0, format!("{name}: {failed} of 5xx, {broken} broken"));
    let usual = (before.p99_us + behind.p99_us) as f64 / 2.0;
    let ratio = amid.p99_us as f64 / usual.max(1.0);
    bounds.check(ratio <= P99, format!("{name}: p99 is {ratio:.2} of the usual one"));
    let wanted = if fault.is_away { 2 } else { 0 };
    bounds.check(lines.iter().all(|n| *n == wanted), format!("{name}: lines {lines:?}"));
    row([
        name,
        &format!("{during:.1}"),
        &format!("{after:.1}"),
        &format!("{}", back.as_millis()),
        &failed.to_string(),
        &broken.to_string(),
        &amid.p99_us.to_string(),
        &format!("{ratio:.2}"),
        &format!("{lines:?}"),
    ])
}

#[cfg(test)]
mod tests {
    use super::is_right;

    #[test]
    fn bursts_and_a_twentieth_are_forgiven() {
        assert!(is_right(105.0, 100.0, 5.0, 0.0) && is_right(95.0, 100.0, 5.0, 0.0));
        assert!(!is_right(105.1, 100.0, 5.0, 0.0) && !is_right(94.9, 100.0, 5.0, 0.0));
        assert!(is_right(107.0, 100.0, 5.0, 1.0));
    }
}
