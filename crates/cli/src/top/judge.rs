//! The rates between two samples, and what is wrong with them.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use engine::metrics::word::quantile_us;

use super::sample::{Function, Sample, Server, Worker};

/// The samples that quantiles are made of.
const WINDOW: usize = 10;

/// A server is slow whose answers begin so late on average, microseconds. How long they last is
/// the clients' affair as well, and streams of events last for hours.
const SLOW_US: u64 = 1_000_000;

/// A server is slower than it was if its answers begin later than this, and so many times as late
/// as before.
const SLOWER_US: u64 = 200_000;
const SLOWER_TIMES: u64 = 5;

/// A server that was faster than this, and begins no answer for a second, has stopped.
const STOPPED_US: u64 = 500_000;
const STOPPED_AFTER: Duration = Duration::from_millis(900);

/// The state of the watched server at a moment.
#[derive(Debug)]
pub(crate) struct View {
    /// The counters.
    pub(crate) sample: Sample,
    /// Requests a second.
    pub(crate) rate: f64,
    /// Slow and failed requests since the sample before.
    pub(crate) slow: u64,
    /// The servers of upstreams, the worst first.
    pub(crate) servers: Vec<Judged>,
    /// The workers with their requests a second.
    pub(crate) workers: Vec<(Worker, f64)>,
    /// The functions of scripts, those first that take the most time.
    pub(crate) functions: Vec<Busy>,
    /// The faults found, the worst first.
    pub(crate) troubles: Vec<String>,
}

/// A function of scripts, by what it did since the sample before.
#[derive(Debug)]
pub(crate) struct Busy {
    /// Its counters.
    pub(crate) function: Function,
    /// Calls a second.
    pub(crate) rate: f64,
    /// Calls that failed.
    pub(crate) failures: u64,
    /// The share of one processor that it took.
    pub(crate) share: f64,
}

/// A server of an upstream.
#[derive(Debug)]
pub(crate) struct Judged {
    /// Its counters.
    pub(crate) server: Server,
    /// Exchanges a second.
    pub(crate) rate: f64,
    /// The share of those that failed.
    pub(crate) errors: f64,
    /// Half of the latest times are not above this, microseconds; `None` without any, or beyond
    /// the last bound.
    pub(crate) p50_us: Option<u64>,
    /// The same for 99 of 100.
    pub(crate) p99_us: Option<u64>,
    /// It has times at all.
    pub(crate) is_timed: bool,
    /// Its fault, in words.
    pub(crate) trouble: Option<Trouble>,
}

impl Judged {
    /// The worse of two servers comes first, then the busier one.
    pub(crate) fn worse_than(&self, other: &Judged) -> Ordering {
        let rank = |judged: &Judged| (judged.trouble, judged.rate);
        rank(other).partial_cmp(&rank(self)).unwrap_or(Ordering::Equal)
    }
}

/// A server's fault. The later ones are worse.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub(crate) enum Trouble {
    /// Its exchanges take that long, microseconds.
    Slow(u64),
    /// This share of them fails.
    Fails(f64),
    /// It answers none of the requests, although there are many.
    Stopped(u64),
    /// It is asked no more.
    Out,
}

/// The past of a server, as far as it was seen.
#[derive(Default)]
struct Past {
    /// The usual time until an answer, microseconds.
    usual_us: Option<u64>,
    /// Since when it ends nothing though something waits for an answer.
    waits: Duration,
}

/// The samples so far.
pub(crate) struct Watch {
    window: VecDeque<Sample>,
    past: HashMap<(String, String, String), Past>,
}

impl Watch {
    /// A watch that begins with this sample.
    pub(crate) fn new(first: Sample) -> Watch {
        Watch { window: VecDeque::from([first]), past: HashMap::new() }
    }

    /// The state at the next sample.
    pub(crate) fn next(&mut self, now: Sample) -> View {
        let before = self.window.back().cloned().unwrap_or_else(|| now.clone());
        let first = self.window.front().cloned().unwrap_or_else(|| now.clone());
        let elapsed = now.at.saturating_duration_since(before.at);
        let seconds = elapsed.as_secs_f64().max(0.001);
        let mut servers: Vec<Judged> = now
            .servers
            .iter()
            .map(|server| {
                let (last, oldest) = (of(&before, server), of(&first, server));
                self.judge(server, &last, &oldest, elapsed)
            })
            .collect();
        servers.sort_by(Judged::worse_than);
        let workers = workers(&now, &before, seconds);
        let functions = functions(&now, &before, seconds);
        let troubles = troubles(&now, &before, &servers);
        let rate = now.requests().saturating_sub(before.requests()) as f64 / seconds;
        let slow = now.slow.saturating_sub(before.slow);
        self.window.push_back(now.clone());
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
        View { sample: now, rate, slow, servers, workers, functions, troubles }
    }

    fn judge(&mut self, now: &Server, last: &Server, oldest: &Server, elapsed: Duration) -> Judged {
        let (engine, group, address) = now.key();
        let key = (engine.to_owned(), group.to_owned(), address.to_owned());
        let past = self.past.entry(key).or_default();
        let done = now.done.saturating_sub(last.done);
        let fails = now.fails.saturating_sub(last.fails);
        let heads = now.heads.saturating_sub(last.heads);
        let mean_us = now.head_us.saturating_sub(last.head_us).checked_div(heads);
        let waiting = |server: &Server| server.active.saturating_sub(server.answering);
        let waits = done == 0 && waiting(now) > 0 && waiting(last) > 0;
        past.waits = if waits { past.waits + elapsed } else { Duration::ZERO };
        let errors = fails as f64 / done.max(1) as f64;
        let trouble = if !matches!(&*now.state, "up" | "draining" | "checking" | "-") {
            Some(Trouble::Out)
        } else if past.waits >= STOPPED_AFTER && past.usual_us.is_some_and(|us| us < STOPPED_US) {
            Some(Trouble::Stopped(waiting(now)))
        } else if errors >= 0.01 {
            Some(Trouble::Fails(errors))
        } else {
            mean_us.filter(|us| is_slow(*us, past.usual_us)).map(Trouble::Slow)
        };
        // The usual time follows slowly, and not at all while something is wrong.
        if let (Some(us), None) = (mean_us, trouble) {
            past.usual_us = Some(past.usual_us.map_or(us, |usual| (usual * 7 + us) / 8));
        }
        let times = between(&now.times, &oldest.times);
        Judged {
            server: now.clone(),
            rate: done as f64 / elapsed.as_secs_f64().max(0.001),
            errors,
            p50_us: quantile_us(&times, 0.5),
            p99_us: quantile_us(&times, 0.99),
            is_timed: times.iter().any(|n| *n > 0),
            trouble,
        }
    }
}

fn is_slow(us: u64, usual_us: Option<u64>) -> bool {
    let slower = |usual: u64| us >= SLOWER_US && us >= usual.saturating_mul(SLOWER_TIMES);
    us >= SLOW_US || usual_us.is_some_and(slower)
}

/// The same server in an earlier sample; as it is now where it is new, so that nothing has changed.
fn of(sample: &Sample, server: &Server) -> Server {
    let known = sample.servers.iter().find(|known| known.key() == server.key());
    known.unwrap_or(server).clone()
}

/// Times that were added. Counters that began anew have all of theirs.
fn between(now: &[u64], before: &[u64]) -> Vec<u64> {
    let anew = now.iter().zip(before).any(|(now, before)| now < before);
    let added = now.iter().zip(before).map(|(now, before)| if anew { *now } else { now - before });
    added.collect()
}

fn workers(now: &Sample, before: &Sample, seconds: f64) -> Vec<(Worker, f64)> {
    let rate = |worker: &Worker| {
        let last = before.workers.iter().find(|last| last.pid == worker.pid);
        let requests = last.map_or(worker.requests, |last| last.requests);
        worker.requests.saturating_sub(requests) as f64 / seconds
    };
    now.workers.iter().map(|worker| (worker.clone(), rate(worker))).collect()
}

fn functions(now: &Sample, before: &Sample, seconds: f64) -> Vec<Busy> {
    let busy = |function: &Function| {
        let last = before.functions.iter().find(|last| last.key() == function.key());
        // Counters that began anew have all of theirs.
        let last = last.filter(|last| last.calls <= function.calls).cloned().unwrap_or_default();
        Busy {
            function: function.clone(),
            rate: (function.calls - last.calls) as f64 / seconds,
            failures: function.failures.saturating_sub(last.failures),
            share: function.usec.saturating_sub(last.usec) as f64 / 1e6 / seconds,
        }
    };
    let mut all: Vec<Busy> = now.functions.iter().map(busy).collect();
    all.sort_by(|a, b| b.share.total_cmp(&a.share).then(b.function.usec.cmp(&a.function.usec)));
    all
}

fn troubles(now: &Sample, before: &Sample, servers: &[Judged]) -> Vec<String> {
    let mut all = Vec::new();
    if now.shared_state.starts_with("away") {
        all.push(format!("shared state is {}", now.shared_state));
    }
    for worker in now.workers.iter().filter(|worker| worker.is_still()) {
        let seconds = worker.silent_ms as f64 / 1000.0;
        all.push(format!("worker {} stands still for {seconds:.1} s", worker.pid));
    }
    for Judged { server, trouble, .. } in servers {
        let Some(trouble) = trouble else { continue };
        let name = format!("{} of {}", server.address, server.group);
        all.push(match trouble {
            Trouble::Slow(us) => format!("{name} takes {}", super::show::time(*us)),
            Trouble::Fails(share) => format!("{name} fails {:.0} %", share * 100.0),
            Trouble::Stopped(n) => format!("{name} has stopped answering, {n} wait"),
            Trouble::Out => format!("{name} is {}", server.state),
        });
    }
    if now.dropped > before.dropped {
        all.push(format!("{} log lines were dropped", now.dropped - before.dropped));
    }
    if now.respawned > before.respawned {
        all.push(format!("{} processes had to be replaced", now.respawned - before.respawned));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::metrics::word::{BUCKETS, bucket};
    use std::time::Instant;

    fn server(done: u64, each_us: u64) -> Server {
        let mut times = vec![0; BUCKETS];
        times[bucket(each_us)] = done;
        Server {
            engine: "http".to_owned(),
            group: "app".to_owned(),
            address: "10.0.0.1:80".to_owned(),
            state: "up".to_owned(),
            done,
            heads: done,
            head_us: done * each_us,
            times,
            ..Server::default()
        }
    }

    fn sample(at: Instant, second: u64, server: Server) -> Sample {
        Sample {
            at: at + Duration::from_secs(second),
            version: String::new(),
            generation: 0,
            is_counted: true,
            dropped: 0,
            respawned: 0,
            slow: 0,
            shared_state: String::new(),
            workers: Vec::new(),
            servers: vec![server],
            functions: Vec::new(),
        }
    }

    /// The sentence after each of some seconds with these counters.
    fn watched(servers: Vec<Server>) -> Vec<String> {
        let start = Instant::now();
        let mut all = servers.into_iter().zip(0..).map(|(s, second)| sample(start, second, s));
        let mut watch = Watch::new(all.next().unwrap());
        all.map(|sample| watch.next(sample).troubles.join("; ")).collect()
    }

    #[test]
    fn a_server_that_was_made_slow_is_named() {
        let fast = server(1000, 2_000);
        let mut slow = server(1000, 2_000);
        (slow.done, slow.heads, slow.head_us) = (1002, 1002, slow.head_us + 600_000);
        slow.times[bucket(300_000)] += 2;
        let said = watched(vec![server(0, 2_000), fast, slow.clone(), slow]);
        assert_eq!(said, ["", "10.0.0.1:80 of app takes 300 ms", ""]);
        // A server that was never faster is no news below a second.
        assert_eq!(watched(vec![server(0, 300_000), server(9, 300_000)]), [""]);
        let said = watched(vec![server(0, 2_000_000), server(9, 2_000_000)]);
        assert_eq!(said, ["10.0.0.1:80 of app takes 2.0 s"]);
    }

    #[test]
    fn a_server_that_stops_is_named_before_its_exchanges_end() {
        let waiting = |n| Server { active: n, ..server(100, 2_000) };
        let said = watched(vec![server(0, 2_000), waiting(1), waiting(3), waiting(5)]);
        assert_eq!(
            said[1..],
            [
                "10.0.0.1:80 of app has stopped answering, 3 wait".to_owned(),
                "10.0.0.1:80 of app has stopped answering, 5 wait".to_owned()
            ]
        );
        // Streams of events, and WebSockets, do not wait.
        let streaming = |n| Server { active: n, answering: n, ..server(100, 2_000) };
        let said = watched(vec![server(0, 2_000), streaming(1), streaming(3), streaming(5)]);
        assert_eq!(said, ["", "", ""]);
        let mixed = |n: u64| Server { active: n + 2, answering: 2, ..server(100, 2_000) };
        let said = watched(vec![server(0, 2_000), mixed(1), mixed(3)]);
        assert_eq!(said[1], "10.0.0.1:80 of app has stopped answering, 3 wait");
        // Long exchanges may be what it is for.
        let quiet = Server { active: 1, ..server(0, 2_000) };
        assert_eq!(watched(vec![quiet.clone(), quiet.clone(), quiet]), ["", ""]);
    }

    #[test]
    fn failures_and_states() {
        let failing = Server { fails: 5, ..server(10, 2_000) };
        let down = Server { state: "unhealthy".to_owned(), ..failing.clone() };
        let said = watched(vec![server(0, 2_000), failing, down]);
        assert_eq!(said, ["10.0.0.1:80 of app fails 50 %", "10.0.0.1:80 of app is unhealthy"]);
    }

    #[test]
    fn quantiles_are_of_the_window() {
        let start = Instant::now();
        let mut watch = Watch::new(sample(start, 0, server(100, 60_000_001)));
        let view = watch.next(sample(start, 2, {
            let mut later = server(100, 60_000_001);
            later.done = 200;
            (later.times[bucket(100)], later.times[bucket(10_000)]) = (98, 2);
            later
        }));
        let judged = &view.servers[0];
        assert_eq!((judged.p50_us, judged.p99_us), (Some(93), Some(9_645)));
        assert!((judged.rate - 50.0).abs() < 0.1);
    }
}
