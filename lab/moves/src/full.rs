//! Thousands of connections of one kind, with a message a second each, through many reloads and
//! upgrades: what the work promises (docs/RUNNING.md), with each promise checked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rig::helper::Helper;
use rig::options::Options;
use rig::proc::Memory;
use rig::server::{Kind, Server};
use rig::{Outcome, proc, report};

use crate::changes::{Changes, Turns};
use crate::clients::client;
use crate::crowd::Crowd;
use crate::witness::{Asked, Witness};
use crate::{PATIENCE, Ports, Protocol, Tally, at, locked, setup, sorted};

/// The kinds by name.
const KINDS: [(&str, Protocol); 4] = [
    ("tls-ws", Protocol::Tunnel { tls: true }),
    ("tcp-ws", Protocol::Tunnel { tls: false }),
    ("stream-tls", Protocol::Stream),
    ("h2", Protocol::Http2),
];

/// The time in which messages are sent and nothing changes, before and after the changes.
const QUIET: Duration = Duration::from_secs(8);
const SETTLE: Duration = Duration::from_secs(3);

/// The pause between two changes, in which the connections are at rest.
const REST: Duration = Duration::from_millis(400);

/// The longest run; changes that would come later are left out, which fails the load.
const LONGEST: Duration = Duration::from_secs(330);

/// The promises.
const GONE_MS: f64 = 1_000.0;
const TURN_MS: u64 = 4;
const MEMORY_PERCENT: f64 = 5.0;

/// The clients at work.
enum Clients {
    Crowd(mpsc::Receiver<(Tally, u64)>),
    Threads(Vec<JoinHandle<()>>, Arc<Mutex<Tally>>),
}

impl Clients {
    fn start(
        protocol: Protocol,
        ports: &Ports,
        count: usize,
        stop: &Arc<AtomicBool>,
    ) -> Outcome<Clients> {
        if protocol == Protocol::Http2 {
            let tally = Arc::default();
            let second = Duration::from_secs(1);
            let one = |_| client(protocol, second, ports, &tally, stop);
            let threads = (0..count).map(one).collect::<Outcome<_>>()?;
            // Their connections are made meanwhile.
            std::thread::sleep(SETTLE);
            return Ok(Clients::Threads(threads, tally));
        }
        let crowd = Crowd::open(protocol, ports, count)?;
        let (sender, receiver) = mpsc::channel();
        let stop = stop.clone();
        std::thread::spawn(move || crowd.run(&stop, &sender));
        Ok(Clients::Crowd(receiver))
    }

    /// The events, once the clients have ended, and the messages that were not sent in time.
    fn end(self) -> Outcome<(Tally, u64)> {
        match self {
            Clients::Crowd(report) => report.recv().map_err(|_| "the clients panicked".to_string()),
            Clients::Threads(threads, tally) => {
                threads.into_iter().for_each(|thread| drop(thread.join()));
                Ok((std::mem::take(&mut *locked(&tally)), 0))
            }
        }
    }
}

/// Runs the load; gives the promises that were not kept.
pub fn run(options: &Options, kind: Kind, name: &str) -> Outcome<Vec<String>> {
    let known = KINDS.iter().find(|(known, _)| *known == name);
    let names = KINDS.map(|(name, _)| name).join(", ");
    let &(_, protocol) = known.ok_or_else(|| format!("no kind {name:?}: {names}"))?;
    let began = Instant::now();
    let count = options.connections;
    let behind = Helper::bare(options, 1, "floor", &["echo"])?;
    // Each worker has room for all of them, with their connections to the server behind.
    let (setup, ports) = setup(behind.port, behind.port, 2 * count + 2_048)?;
    let (server, _) = Server::start(options, kind, &setup)?;
    let ports = Ports { clear: server.port, ..ports };
    let stop = Arc::new(AtomicBool::new(false));
    let clients = Clients::start(protocol, &ports, count, &stop)?;
    println!("{}: {count} of {name}, opened in {:.1?}", kind.name(), began.elapsed());
    let witness = Witness::start(ports.clear, &stop)?;
    std::thread::sleep(QUIET);
    let mut changes = Changes::new(&server, REST);
    let look = || proc::memory(&server.all_pids());
    let mut memory = vec![look()];
    let mut done = [0, 0];
    for (is_upgrade, wanted) in [options.reloads, options.upgrades].into_iter().enumerate() {
        while done[is_upgrade] < wanted && began.elapsed() < LONGEST {
            done[is_upgrade] += 1;
            match is_upgrade {
                0 => {
                    changes.reload();
                    if done[0] == 1 {
                        std::thread::sleep(SETTLE);
                        memory.push(look());
                    }
                }
                _ => {
                    changes.upgrade();
                    changes.count();
                }
            }
        }
        if is_upgrade == 0 {
            changes.count();
        }
        std::thread::sleep(SETTLE);
        memory.push(look());
    }
    let took = began.elapsed();
    // The clients' own end is in the log as well: thousands of connections in a turn.
    let (turns, longest_turns) = (changes.turns(), changes.longest_turns());
    changes.ends().iter().take(5).for_each(|line| println!("{line}"));
    stop.store(true, Ordering::Relaxed);
    let (tally, late) = clients.end()?;
    let others = witness.end();
    crate::print([(name, &tally)].into_iter());

    let mut verdict = Verdict::default();
    verdict.messages(&tally, late);
    let [reloads, upgrades] = done;
    let text = format!("{reloads} reloads and {upgrades} upgrades in {took:.0?}");
    verdict.is(done == [options.reloads, options.upgrades], text);
    verdict.ends(&changes, count);
    verdict.memory(&memory);
    verdict.turns(turns, &longest_turns);
    let failed = others.iter().filter(|asked| !asked.is_answered).count();
    verdict.is(failed == 0, format!("{failed} of {} other requests failed", others.len()));
    let answered: Vec<_> = others.iter().map(|asked| (asked.at, asked.ms)).collect();
    verdict.latency("other requests", &answered, &changes);
    slowest(&others, &changes);
    verdict.latency("messages", &tally.times, &changes);
    let alerts = server.alerts();
    verdict.is(alerts == 0, format!("{alerts} alerts in the error log"));
    Ok(verdict.missed)
}

/// Prints each promise, and whether it was kept.
#[derive(Default)]
struct Verdict {
    missed: Vec<String>,
}

impl Verdict {
    fn is(&mut self, kept: bool, what: String) {
        println!("{} {what}", if kept { "ok    " } else { "MISSED" });
        if !kept {
            self.missed.push(what);
        }
    }

    fn messages(&mut self, tally: &Tally, late: u64) {
        let Tally { messages, lost, wrong, reconnects, .. } = tally;
        let text = format!(
            "{messages} messages, {lost} lost, {wrong} wrong, {reconnects} reconnects; {late} not \
             sent, because the answer to the one before was late"
        );
        self.is(*messages > 0 && lost + wrong + reconnects == 0, text);
    }

    fn ends(&mut self, changes: &Changes<'_>, count: usize) {
        let times = sorted(changes.times_ms().into_iter());
        let (median, slowest) = (report::median(&times), at(&times, 1.0));
        let stayed = changes.unfinished();
        let late = times.iter().filter(|ms| **ms > GONE_MS).count();
        let text = format!(
            "old workers gone after {median:.0} ms (median), {slowest:.0} ms (longest), {late} of \
             {} times above {GONE_MS:.0} ms; {stayed} times not in {PATIENCE:?}",
            times.len(),
        );
        self.is(stayed == 0 && slowest <= GONE_MS, text);
        let rate = |ms: f64| count as f64 * 1000.0 / ms.max(1.0);
        println!(
            "       {:.0} connections a second (median), {:.0} (slowest); {} moves, {} stayed",
            rate(median),
            rate(slowest),
            changes.moved,
            changes.stayed,
        );
    }

    /// The memory at first, after the first reload, after all of them, and after the upgrades. The
    /// first reload alone may cost some, because the master has read a second configuration, or
    /// give some back: what handshakes needed is not moved.
    fn memory(&mut self, all: &[Memory]) {
        let first = all.get(1).map_or(1, |memory| memory.pss_data.max(1)) as f64;
        let percent = |memory: &Memory| (memory.pss_data as f64 / first - 1.0) * 100.0;
        let each = all.iter().map(|memory| {
            let [data, pss] = [memory.pss_data, memory.pss].map(|b| report::megabytes(b as f64));
            format!("{data} MB ({:+.1} %) of {pss} MB", percent(memory))
        });
        let each: Vec<_> = each.collect();
        let text = format!(
            "PSS without the pages of files, of all PSS: at first, after one reload, after all, \
             after the upgrades: {}",
            each.join(", ")
        );
        self.is(all.iter().skip(1).all(|memory| percent(memory) <= MEMORY_PERCENT), text);
    }

    fn turns(&mut self, [before, since]: [Turns; 2], longest: &[String]) {
        println!("       before the first change: {before}");
        self.is(since.longest_cpu_ms <= TURN_MS, format!("since then: {since}"));
        longest.iter().for_each(|line| println!("       {line}"));
    }

    fn latency(&mut self, who: &str, times: &[(Instant, f64)], changes: &Changes<'_>) {
        let of = |moves: bool| {
            let of = times.iter().filter(move |(at, _)| changes.is_within(*at) == moves);
            sorted(of.map(|(_, ms)| *ms))
        };
        let (calm, moving) = (of(false), of(true));
        let [p99, longest] = [0.99, 1.0].map(|share| [&calm, &moving].map(|of| at(of, share)));
        let text = format!(
            "{who}: p99 {:.1} ms, {:.1} ms while connections move; longest {:.1} ms, {:.1} ms",
            p99[0], p99[1], longest[0], longest[1],
        );
        self.is(p99[1] <= 2.0 * p99[0], text);
    }
}

/// Prints what the slowest of the other requests waited for while connections moved.
fn slowest(others: &[Asked], changes: &Changes<'_>) {
    let mut moving: Vec<_> = others.iter().filter(|asked| changes.is_within(asked.at)).collect();
    moving.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    let part = &moving[..moving.len().div_ceil(100)];
    let mean = |of: fn(&Asked) -> f64| {
        part.iter().map(|asked| of(asked)).sum::<f64>() / part.len().max(1) as f64
    };
    let [ms, cpu_ms, queued_ms] =
        [mean(|asked| asked.ms), mean(|asked| asked.cpu_ms), mean(|asked| asked.queued_ms)];
    println!(
        "       of {} meanwhile, the slowest 1 %: {ms:.1} ms on average, in which their workers \
         had a processor for {cpu_ms:.1} ms and waited {queued_ms:.1} ms for one",
        moving.len(),
    );
    for asked in part.iter().take(3) {
        let since = changes.since(asked.at).unwrap_or_default().as_secs_f64() * 1000.0;
        let Asked { ms, cpu_ms, queued_ms, .. } = asked;
        println!(
            "       {ms:.1} ms ({cpu_ms:.1}, {queued_ms:.1}), {since:.0} ms after a change began"
        );
    }
    println!("       a worker that left had {}; one that came had {}", changes.left, changes.came);
}
