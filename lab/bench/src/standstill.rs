//! `standstill`: one of two workers is stopped by a signal, or spins, under clients that make a
//! connection for each request: how long new connections wait, what the other worker's clients
//! notice, and when another worker is there.
//!
//! A spinning worker has an endless loop written behind the system call that it waits in: that
//! works for every server alike, and needs root.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::accept::POLICIES;
use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, Setup, get};
use crate::{Outcome, proc};

const CONFIG: &str = include_str!("../configs/standstill.conf");

/// Clients, each with a request every [`PAUSE`].
const CLIENTS: usize = 64;
const PAUSE: Duration = Duration::from_millis(100);
const BEFORE: Duration = Duration::from_secs(5);
/// Weir's limit, and how long is looked after the standstill began.
const WATCHDOG: &str = "worker_watchdog 6s;";
const AFTER: Duration = Duration::from_secs(10);
/// A request without an answer ends after this time ([`get`]).
const FAILED: Duration = Duration::from_secs(5);

/// A worker that spins is stuck once it has had so much of a processor, with some to spare. Where
/// the machine was too busy for that, nothing is known of the watch.
const SPIN: Duration = Duration::from_millis(1_000);

/// The limit of a new connection's wait.
const WAIT_MAX: Duration = Duration::from_millis(2_200);

/// `jmp` to itself.
const ENDLESS: &[u8] = if cfg!(target_arch = "x86_64") {
    &[0xEB, 0xFE]
} else {
    // aarch64: `b .`
    &[0x00, 0x00, 0x00, 0x14]
};

#[derive(Clone, Copy)]
enum How {
    Stopped,
    Spinning,
}

/// Runs every policy of every server, stopped and spinning.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let mut rows = vec![row([
        "server",
        "listeners",
        "worker",
        "longest ms",
        "failed",
        "p99 before",
        "p99 after",
        "noticed ms",
        "replaced ms",
        "ran ms",
    ])];
    let mut wrong = Vec::new();
    for (number, policy) in POLICIES.iter().enumerate() {
        if options.only.is_some_and(|n| n != number) {
            continue;
        }
        for &kind in options.servers.iter().filter(|kind| kind.is_real()) {
            if kind == Kind::Nginx && policy.own {
                continue;
            }
            for (how, name) in [(How::Stopped, "stopped"), (How::Spinning, "spins")] {
                let watchdog = if kind == Kind::Nginx { "" } else { WATCHDOG };
                let fill = vec![
                    ("%MUTEX%", policy.mutex.to_string()),
                    ("%LISTEN%", policy.listen.to_string()),
                    ("%WATCHDOG%", watchdog.to_string()),
                ];
                let setup = Setup { template: CONFIG, fill, cpus: "0,1", ..Setup::default() };
                let (server, _) = Server::start(options, kind, &setup)?;
                let seen = stand_still(&server, how)?;
                if kind != Kind::Nginx && !seen.passes() {
                    wrong.push(format!("{}, {} that {name}", kind.name(), policy.name));
                }
                rows.push(seen.row(kind, policy.name, name));
            }
        }
    }
    report::table(&rows);
    println!(
        "(longest: of requests that began after the standstill; p99, ms: of answers by the other \
         worker; noticed: the line of the log; replaced: another worker has answered; ran: the \
         time on a processor of the one that spins; below {} ms nothing is known of the watch)",
        SPIN.as_millis()
    );
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// An answer: when it was asked for, the time it took, the worker that gave it.
struct Answer {
    at: Instant,
    took: Duration,
    worker: Option<u32>,
}

struct Seen {
    longest: Duration,
    failed: usize,
    /// Milliseconds, before and after.
    p99: [f64; 2],
    noticed: Option<Duration>,
    replaced: Option<Duration>,
    /// The time on a processor of a worker that spins, until it was replaced or the run's end.
    ran: Option<Duration>,
}

impl Seen {
    fn passes(&self) -> bool {
        let [before, after] = self.p99;
        self.longest <= WAIT_MAX
            && self.failed == 0
            && after <= 2.0 * before + 1.0
            && (self.lacked_processor() || self.noticed.is_some() && self.replaced.is_some())
    }

    fn lacked_processor(&self) -> bool {
        self.ran.is_some_and(|ran| ran < SPIN)
    }

    fn row(&self, kind: Kind, policy: &str, how: &str) -> Vec<String> {
        let ms = |time: Option<Duration>| {
            time.map_or("never".to_string(), |time| time.as_millis().to_string())
        };
        row([
            kind.name(),
            policy,
            how,
            &self.longest.as_millis().to_string(),
            &self.failed.to_string(),
            &format!("{:.2}", self.p99[0]),
            &format!("{:.2}", self.p99[1]),
            &ms(self.noticed),
            &ms(self.replaced),
            &self.ran.map_or("-".to_string(), |ran| ran.as_millis().to_string()),
        ])
    }
}

fn stand_still(server: &Server, how: How) -> Outcome<Seen> {
    let worker = server.worker();
    let old = server.pids();
    let end = Instant::now() + BEFORE + AFTER;
    let port = server.port;
    let log = server.prefix().join("error.log");
    let (answers, began, noticed, ran) = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || client(port, number, end))).collect();
        std::thread::sleep(BEFORE);
        match how {
            How::Stopped => proc::signal(worker, Signal::STOP),
            How::Spinning => spin(worker)?,
        }
        let began = Instant::now();
        let (mut noticed, mut ran_ns) = (None, 0);
        let before_ns = proc::cpu_ns(&[worker]);
        while Instant::now() < end {
            // Nothing once it is gone.
            ran_ns = proc::cpu_ns(&[worker]).saturating_sub(before_ns).max(ran_ns);
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            if noticed.is_none() && text.contains(&format!("{worker} stands still")) {
                noticed = Some(began.elapsed());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let answers: Vec<Answer> =
            clients.into_iter().filter_map(|client| client.join().ok()).flatten().collect();
        Ok::<_, String>((answers, began, noticed, Duration::from_nanos(ran_ns)))
    })?;
    // It can be ended again.
    proc::signal(worker, Signal::CONT);
    if matches!(how, How::Spinning) {
        proc::signal(worker, Signal::KILL);
    }
    let new = |answer: &&Answer| answer.at > began;
    let p99 = |of: &dyn Fn(&&Answer) -> bool| {
        let by_other =
            |a: &&Answer| a.worker.is_some_and(|pid| pid != worker && old.contains(&pid));
        let mut ms: Vec<f64> = answers
            .iter()
            .filter(|a| by_other(a) && of(a))
            .map(|a| a.took.as_secs_f64() * 1e3)
            .collect();
        ms.sort_by(f64::total_cmp);
        ms.get(ms.len() * 99 / 100).copied().unwrap_or(f64::NAN)
    };
    let by_new = |a: &&Answer| a.worker.is_some_and(|pid| !old.contains(&pid));
    let gone = !proc::is_running(worker) || server.kind == Kind::Nginx;
    let replaced = answers.iter().filter(by_new).map(|a| a.at + a.took).min();
    Ok(Seen {
        longest: answers.iter().filter(new).map(|a| a.took).max().unwrap_or_default(),
        failed: answers.iter().filter(new).filter(|a| a.worker.is_none()).count(),
        p99: [p99(&|a| a.at + a.took < began), p99(&new)],
        noticed,
        ran: matches!(how, How::Spinning).then_some(ran),
        replaced: replaced.filter(|_| gone).map(|at| at.saturating_duration_since(began)),
    })
}

fn client(port: u16, number: usize, end: Instant) -> Vec<Answer> {
    std::thread::sleep(PAUSE * number as u32 / CLIENTS as u32);
    let mut all = Vec::new();
    // What waits at the end may wait for as long as it takes to see that it fails.
    while Instant::now() < end {
        let at = Instant::now();
        let worker = get(port, "localhost", "/pid").ok().and_then(|pid| pid.trim().parse().ok());
        let took = if worker.is_some() { at.elapsed() } else { at.elapsed().max(FAILED) };
        all.push(Answer { at, took, worker });
        std::thread::sleep(PAUSE.saturating_sub(at.elapsed()));
    }
    all
}

/// Has a process loop for ever once its system call returns.
fn spin(pid: u32) -> Outcome {
    let began = Instant::now();
    let path = format!("/proc/{pid}/mem");
    let memory = std::fs::File::options().write(true).open(&path);
    let memory = memory.map_err(|e| format!("{path}: {e}"))?;
    while began.elapsed() < Duration::from_secs(2) {
        let text = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        // "running" has no address.
        let at = text.trim().rsplit(" 0x").next().filter(|_| text.contains(" 0x"));
        if let Some(at) = at.and_then(|at| u64::from_str_radix(at, 16).ok()) {
            return memory.write_all_at(ENDLESS, at).map_err(|e| format!("{path}: {e}"));
        }
    }
    Err(format!("process {pid} waits in no system call"))
}
