//! `shared-faults`: each fault of the engine and of the network, under load. A fault begins and
//! ends several times in a run, so that latencies with and without it are of the same minutes.
//!
//! - The load is an open loop far from saturation ([`crate::open`]). At saturation a latency says
//!   how many clients there are, and not how long a request takes.
//! - Latencies are those of many keys, none of which has too many requests. Of one busy key, three
//!   times as many requests pass during an outage, and a response of 1 KB takes longer than a
//!   refusal; that load is for the sums.
//! - All that is no server is on CPU 1: relays, engines, the load, this program.

use std::time::{Duration, Instant};

use rig::options::Options;
use rig::report::{self, median, row};
use rig::server::free_port;
use rig::{Outcome, proc};
use rustix::process::Signal;

use crate::engine::Engine;
use crate::node::{self, Node};
use crate::open::{Flow, Open, Sample, percentile};
use crate::path::{Relay, Way};
use crate::{BURST, Bounds, INTERVAL_MS, NODES, RATE, pass, wait_until};

/// Requests a second to each server whose latency counts, and the number of their keys.
const KEYED: u32 = 1_000;
const KEYS: usize = 100;

/// Requests a second to each server with one key: enough for a limit that is local.
const ONE_KEY: u32 = 150;

/// Connections for each of both, so that all workers have some.
const CONNECTIONS: usize = 8;

/// The load before the first part that counts.
const WARM_UP_MS: u64 = 2_000;

/// The length of a part: without the fault, or with it.
const PART: Duration = Duration::from_secs(5);

/// The latency that one in a hundred exceeds is taken of each slice of a part, and the median of
/// all slices counts: another program that has the processor for a moment, or the machine below,
/// slows down the requests of some slices and would decide over the p99 of all requests.
const SLICE_US: u64 = 500_000;

/// That latency against the one of the same load without a fault.
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

/// The replica takes over, and the engine becomes a replica of it.
fn fail_over(world: &mut World) -> Outcome {
    world.other.order("REPLICAOF NO ONE")?;
    world.relay.lead_to(world.other.port);
    std::mem::swap(&mut world.engine, &mut world.other);
    world.other.begin()?;
    follow(&world.other, &world.engine)
}

/// Makes one the replica of the other.
fn follow(replica: &Engine, primary: &Engine) -> Outcome {
    replica.order(&format!("REPLICAOF 127.0.0.1 {}", primary.port))?;
    let follows = || primary.run("WAIT 1 1000").is_ok_and(|n| n == ":1");
    wait_until("the replica follows", follows).map(drop)
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
        fail_over,
    ),
    fault(
        "no memory",
        |w| w.engine.order("CONFIG SET maxmemory 1"),
        |w| w.engine.order("CONFIG SET maxmemory 0"),
    ),
    fault("garbage", |w| way(w, Way::Garbage), |w| way(w, Way::Open)),
    // How far two parts of one run differ without any fault.
    Fault { name: "none", is_away: false, begin: |_| Ok(()), end: |_| Ok(()) },
];

/// A time with or without the fault, microseconds of the load.
#[derive(Clone, Copy)]
struct Part {
    from_us: u64,
    until_us: u64,
    /// CPU time of all servers, microseconds a second.
    cpu_us: f64,
    /// The time in which a loop of theirs could run and another had the CPU, microseconds a second.
    queued_us: f64,
}

/// The figures of a fault.
struct Figures {
    samples: Vec<Sample>,
    without: Vec<Part>,
    with: Vec<Part>,
    /// Requests a second that passed in each part: during the fault, and after the return.
    during: Vec<f64>,
    after: Vec<f64>,
    /// The longest time until all servers were back.
    back: Duration,
    lines: Vec<usize>,
    /// Requests that waited for the engine.
    waits: u64,
}

pub(crate) fn run(options: &Options) -> Outcome {
    // Threads and programs that begin from here on stay there; servers have a CPU of their own.
    proc::pin(1);
    let mut bounds = Bounds::default();
    let columns = ["fault", "r/s during", "after", "back ms", "5xx", "broken", "waits", "lines"];
    let more = [
        "CPU us/s",
        "queued us/s",
        "p50 us",
        "of all",
        "p99 us",
        "ratio",
        "in pairs",
        "noise",
        "late us",
    ];
    let mut rows = vec![columns.into_iter().chain(more).map(str::to_owned).collect()];
    for (n, fault) in FAULTS.iter().enumerate() {
        if options.only.is_none_or(|only| only == n) {
            let figures = one(options, fault)?;
            rows.push(judge(fault, &figures, &mut bounds));
        }
    }
    report::table(&rows);
    bounds.end()
}

fn flows(nodes: &[Node]) -> Vec<Flow> {
    let keyed: Vec<_> = (0..KEYS).map(|n| format!("/keyed?k={n}")).collect();
    let flow = |port, rate, paths| Flow { port, rate, connections: CONNECTIONS, paths };
    let ports = node::ports(nodes);
    let counted = ports.iter().map(|port| flow(*port, KEYED, keyed.clone()));
    let others = ports.iter().map(|port| flow(*port, ONE_KEY, vec!["/1k.txt".to_owned()]));
    counted.chain(others).collect()
}

fn one(options: &Options, fault: &Fault) -> Outcome<Figures> {
    let (engine, other) = (Engine::start()?, Engine::start()?);
    follow(&other, &engine)?;
    let relay = Relay::start(engine.port)?;
    let at = relay.port;
    let mut world = World { engine, other, relay, nowhere: free_port()? };
    let nodes = node::fleet(options, Some([at; NODES]), 1)?;
    let count = || nodes.iter().map(|node| node.lines().len()).collect::<Vec<_>>();
    let lines_before = count();
    let open = Open::start(flows(&nodes))?;
    pass(WARM_UP_MS);
    let (mut without, mut with, mut during, mut after) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut back = Duration::ZERO;
    for _ in 0..options.seconds_or(30).div_ceil(PART.as_secs()).max(2) {
        let begun = Begun::new(&nodes, &open);
        after.push(rate(&nodes, PART)?);
        without.push(begun.end(&nodes, &open));

        let (begun, lines) = (Begun::new(&nodes, &open), count());
        (fault.begin)(&mut world)?;
        pass(INTERVAL_MS);
        during.push(rate(&nodes, PART)?);
        (fault.end)(&mut world)?;
        if fault.is_away {
            // Of its log, because requests for the status would be load.
            let are_back = || count().iter().zip(&lines).all(|(now, then)| *now >= then + 2);
            back = back.max(wait_until("all are back", are_back)?);
        }
        pass(2 * INTERVAL_MS);
        with.push(begun.end(&nodes, &open));
    }
    let samples = open.finish()?;
    let lines = count().iter().zip(lines_before).map(|(now, then)| now - then).collect();
    let waits = nodes.iter().map(|node| node.number("waits")).sum::<Option<u64>>();
    let waits = waits.ok_or("no figures")?;
    Ok(Figures { samples, without, with, during, after, back, lines, waits })
}

/// A part that has begun.
struct Begun {
    from_us: u64,
    cpu_ns: u64,
    queued_ns: u64,
}

impl Begun {
    fn new(nodes: &[Node], open: &Open) -> Begun {
        Begun { from_us: open.now_us(), cpu_ns: cpu_ns(nodes), queued_ns: queued_ns(nodes) }
    }

    fn end(self, nodes: &[Node], open: &Open) -> Part {
        let until_us = open.now_us();
        let seconds = (until_us - self.from_us) as f64 / 1e6;
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / 1e3 / seconds;
        Part {
            from_us: self.from_us,
            until_us,
            cpu_us: rate(self.cpu_ns, cpu_ns(nodes)),
            queued_us: rate(self.queued_ns, queued_ns(nodes)),
        }
    }
}

fn pids(nodes: &[Node]) -> Vec<u32> {
    nodes.iter().flat_map(|node| node.server.pids()).collect()
}

fn cpu_ns(nodes: &[Node]) -> u64 {
    proc::cpu_ns(&pids(nodes))
}

fn queued_ns(nodes: &[Node]) -> u64 {
    pids(nodes).into_iter().map(proc::queued_ns).sum()
}

/// The requests in a second that the servers let pass of one key, over that time.
fn rate(nodes: &[Node], time: Duration) -> Outcome<f64> {
    let sum = || nodes.iter().map(Node::passed).sum::<Option<u64>>().ok_or("no figures");
    let (began, before) = (Instant::now(), sum()?);
    std::thread::sleep(time);
    let passed = sum()?.saturating_sub(before);
    Ok(passed as f64 / began.elapsed().as_secs_f64())
}

/// Whether a rate is that of all, but for so much and for bursts.
fn is_right(rate: f64, wanted: f64, time_s: f64, bursts: f64) -> bool {
    rate <= wanted * 1.05 + bursts * (BURST + 1.0) / time_s && rate >= wanted * 0.95
}

/// The latencies of requests that were due in some parts, of those that count.
fn latencies<'a>(samples: &[Sample], parts: impl Iterator<Item = &'a Part>) -> Vec<u64> {
    let parts: Vec<_> = parts.map(|part| part.from_us..part.until_us).collect();
    let counts =
        |one: &&Sample| one.flow < NODES && parts.iter().any(|part| part.contains(&one.due_us));
    samples.iter().filter(counts).map(|one| one.latency_us).collect()
}

/// A latency of some parts.
fn latency<'a>(samples: &[Sample], parts: impl Iterator<Item = &'a Part>, per_mille: usize) -> f64 {
    percentile(&mut latencies(samples, parts), per_mille).max(1) as f64
}

/// The median of the p99 of all slices of some parts, microseconds.
fn p99<'a>(samples: &[Sample], parts: impl Iterator<Item = &'a Part>) -> f64 {
    let slices = parts.flat_map(|part| {
        let begins =
            (part.from_us..part.until_us.saturating_sub(SLICE_US)).step_by(SLICE_US as usize);
        begins.map(|from_us| Part { from_us, until_us: from_us + SLICE_US, ..*part })
    });
    let each = slices.map(|slice| latency(samples, std::iter::once(&slice), 990));
    median(&each.collect::<Vec<_>>())
}

fn judge(fault: &Fault, figures: &Figures, bounds: &mut Bounds) -> Vec<String> {
    let Figures { samples, without, with, back, lines, waits, .. } = figures;
    let name = fault.name;
    let (during, after) = (median(&figures.during), median(&figures.after));
    let all = NODES as f64;
    let wanted = if fault.is_away { RATE * all } else { RATE };
    let part_s = PART.as_secs_f64();
    bounds.check(is_right(during, wanted, part_s, all), format!("{name}: {during:.1} r/s"));
    let is_sum = is_right(after, RATE, part_s, 0.0);
    bounds.check(is_sum, format!("{name}: {after:.1} r/s after the return"));
    let failed = samples.iter().filter(|one| one.status >= 500).count();
    let broken = samples.iter().filter(|one| one.status == 0).count();
    bounds.check(failed + broken == 0, format!("{name}: {failed} of 5xx, {broken} broken"));
    bounds.check(*waits == 0, format!("{name}: {waits} requests waited for Redis"));
    let two = INTERVAL_MS * 2;
    let is_back = back.as_millis() <= u128::from(two);
    bounds.check(is_back, format!("{name}: back after {} ms", back.as_millis()));
    let pairs = with.len();
    let wanted = if fault.is_away { 2 * pairs } else { 0 };
    bounds.check(lines.iter().all(|n| *n == wanted), format!("{name}: lines {lines:?}"));

    let p99 = [without, with].map(|parts| p99(samples, parts.iter()));
    let [p99_all, p50] =
        [990, 500].map(|n| [without, with].map(|parts| latency(samples, parts.iter(), n)));
    let ratio = p99[1] / p99[0];
    bounds.check(ratio <= P99, format!("{name}: p99 is {ratio:.2} of that without it"));
    let each = |parts: &[Part]| -> Vec<f64> {
        parts.iter().map(|part| self::p99(samples, std::iter::once(part))).collect()
    };
    // Every second part without the fault, against the others.
    let half = |from| self::p99(samples, without.iter().skip(from).step_by(2));
    let noise = half(1) / half(0);
    let of = |take: fn(&Part) -> f64| {
        [without, with].map(|parts| median(&parts.iter().map(take).collect::<Vec<_>>()))
    };
    let (cpu, queued) = (of(|part| part.cpu_us), of(|part| part.queued_us));
    let mut late: Vec<_> = samples.iter().map(|one| one.late_us).collect();
    row([
        name,
        &format!("{during:.1}"),
        &format!("{after:.1}"),
        &format!("{}", back.as_millis()),
        &failed.to_string(),
        &broken.to_string(),
        &waits.to_string(),
        &format!("{lines:?}"),
        &format!("{:.0} {:.0}", cpu[0], cpu[1]),
        &format!("{:.0} {:.0}", queued[0], queued[1]),
        &format!("{:.0} {:.0}", p50[0], p50[1]),
        &format!("{:.0} {:.0}", p99_all[0], p99_all[1]),
        &format!("{:.0} {:.0}", p99[0], p99[1]),
        &format!("{ratio:.2}"),
        &report::ratios(&each(with), &each(without)),
        &format!("{noise:.2}"),
        &percentile(&mut late, 990).to_string(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_and_a_twentieth_are_forgiven() {
        assert!(is_right(105.0, 100.0, 5.0, 0.0) && is_right(95.0, 100.0, 5.0, 0.0));
        assert!(!is_right(105.1, 100.0, 5.0, 0.0) && !is_right(94.9, 100.0, 5.0, 0.0));
        assert!(is_right(107.0, 100.0, 5.0, 1.0));
    }

    #[test]
    fn a_slow_slice_does_not_decide() {
        let one = |due_us: u64| {
            let latency_us = if due_us / SLICE_US == 1 { 9_000 } else { 100 };
            Sample { flow: 0, due_us, latency_us, late_us: 0, status: 200 }
        };
        let samples: Vec<_> = (0..50).map(|n| one(n * SLICE_US / 10)).collect();
        let part = Part { from_us: 0, until_us: 5 * SLICE_US + 1, cpu_us: 0.0, queued_us: 0.0 };
        assert_eq!(p99(&samples, [part].iter()), 100.0);
        assert_eq!(latency(&samples, [part].iter(), 990), 9_000.0);
    }

    #[test]
    fn latencies_are_those_of_their_parts_and_of_many_keys() {
        let one =
            |flow, due_us| Sample { flow, due_us, latency_us: due_us, late_us: 0, status: 200 };
        let samples = [one(0, 5), one(NODES, 6), one(0, 10), one(1, 20), one(2, 29), one(0, 30)];
        let part = |from_us, until_us| Part { from_us, until_us, cpu_us: 0.0, queued_us: 0.0 };
        let parts = [part(0, 10), part(20, 30)];
        assert_eq!(latencies(&samples, parts.iter()), [5, 20, 29]);
    }
}
