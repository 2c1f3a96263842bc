//! Counters against the access log and the clients: requests over four workers, which are replaced
//! by reloads, and in a second part killed as well.
//!
//! Without kills all three agree to the last request. A request of a killed worker may be answered
//! and not yet counted, or counted and not yet logged: the worker's last requests are counted as
//! lost, and its last lines are missing.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::limit_soak::{answer, connect};
use crate::options::Options;
use crate::server::{Kind, Server, Setup, get};
use crate::{Outcome, proc};
use testkit::rng::Rng;

const CONFIG: &str = include_str!("../configs/counts.conf");
const THREADS: u64 = 8;
/// Requests that are sent together.
const BATCH: u64 = 64;
const RELOAD_EVERY: Duration = Duration::from_millis(2_000);
const KILL_EVERY: Duration = Duration::from_millis(1_300);
/// The limit of waits for the counters and the log to come to rest.
const PATIENCE: Duration = Duration::from_secs(60);

/// The clients' account.
#[derive(Default)]
struct Account {
    left: AtomicU64,
    answered: AtomicU64,
    /// Sent on connections that ended before the answer.
    unanswered: AtomicU64,
    over: AtomicBool,
}

/// The server's account.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    requests: u64,
    under_way: u64,
    responses: u64,
    lost: u64,
    lines: u64,
}

/// Runs the load.
pub fn run(options: &Options, _: &str) -> Outcome {
    part(options, false)?;
    part(options, true)
}

fn part(options: &Options, kills: bool) -> Outcome {
    let setup = Setup { template: CONFIG, connections: 512, cpus: "0,1", ..Setup::default() };
    let (server, _) = Server::start(options, Kind::Weir, &setup)?;
    let account = Account::default();
    account.left.store(options.soak_requests / 2, Ordering::Relaxed);
    let began = Instant::now();
    let (reloads, killed) = std::thread::scope(|scope| {
        let disturbing = scope.spawn(|| disturb(&server, &account, kills));
        let ask = || ask(server.port, &account);
        let askers: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
        let asked = askers
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or(Err("a thread panicked".into())));
        account.over.store(true, Ordering::Relaxed);
        let disturbed = disturbing.join().unwrap_or((0, 0));
        asked.map(|()| disturbed)
    })?;
    let counted = at_rest(&server)?;
    let answered = account.answered.load(Ordering::Relaxed);
    let unanswered = account.unanswered.load(Ordering::Relaxed);
    println!(
        "{:.0} s, {reloads} reloads, {killed} kills: {answered} answered, {unanswered} not; \
         counted {counted:?}",
        began.elapsed().as_secs_f64()
    );
    judge(&counted, answered, unanswered, kills)?;
    match server.alerts_but("signal 9") {
        0 => Ok(()),
        _ => Err(server.complaints()),
    }
}

fn judge(counted: &Counted, answered: u64, unanswered: u64, kills: bool) -> Outcome {
    let Counted { requests, responses, lost, lines, .. } = *counted;
    let is_right = match kills {
        false => [requests, responses, lines] == [answered; 3] && lost == 0,
        true => {
            requests == responses + lost
                && (answered..=answered + unanswered).contains(&requests)
                && lines <= responses
        }
    };
    if is_right { Ok(()) } else { Err("the counters are not those of the requests".to_owned()) }
}

/// Reloads the server, and kills workers if asked to, until all requests are sent; returns how
/// often.
fn disturb(server: &Server, account: &Account, kills: bool) -> (u64, u64) {
    let mut rng = Rng::new(1);
    let (mut reloads, mut killed) = (0, 0);
    let (mut reloaded, mut kill) = (Instant::now(), Instant::now());
    while !account.over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        if reloaded.elapsed() > RELOAD_EVERY {
            server.signal(Signal::HUP);
            (reloads, reloaded) = (reloads + 1, Instant::now());
        }
        if kills && kill.elapsed() > KILL_EVERY {
            let master = server.pid();
            let workers: Vec<u32> =
                server.pids().into_iter().filter(|pid| *pid != master).collect();
            if !workers.is_empty() {
                proc::signal(workers[rng.below(workers.len())], Signal::KILL);
                killed += 1;
            }
            kill = Instant::now();
        }
    }
    (reloads, killed)
}

fn ask(port: u16, account: &Account) -> Outcome {
    let text = b"GET / HTTP/1.1\r\nHost: main.test\r\n\r\n".repeat(BATCH as usize);
    let mut stream = connect(port)?;
    while account.left.load(Ordering::Relaxed) > 0 {
        let answered = batch(&mut stream, &text);
        account.answered.fetch_add(answered, Ordering::Relaxed);
        if answered < BATCH {
            account.unanswered.fetch_add(BATCH - answered, Ordering::Relaxed);
            stream = connect(port)?;
        }
        let _ = account.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(answered))
        });
    }
    Ok(())
}

/// Sends a batch; how many of its requests were answered.
fn batch(stream: &mut TcpStream, text: &[u8]) -> u64 {
    // Answers from before the connection's end are there to be read all the same.
    let _ = stream.write_all(text);
    let (mut input, mut buffer) = (Vec::new(), [0; 16 << 10]);
    let (mut answered, mut at) = (0, 0);
    while answered < BATCH {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(len) => input.extend_from_slice(&buffer[..len]),
        }
        while let Some((b"200", len)) = answer(&input[at..]) {
            (answered, at) = (answered + 1, at + len);
        }
    }
    answered
}

/// The server's account once nothing is under way and no line comes any more.
fn at_rest(server: &Server) -> Outcome<Counted> {
    let began = Instant::now();
    let mut before = count(server)?;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = count(server)?;
        if now == before && now.under_way == 0 {
            return Ok(now);
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("no rest: {now:?}"));
        }
        before = now;
    }
}

fn count(server: &Server) -> Outcome<Counted> {
    let ask = |path: &str| {
        let path = format!("/api/9/{path}");
        get(server.port, "status.test", &path).map_err(|e| format!("{path}: {e}"))
    };
    let zone = ask("http/server_zones/main.test")?;
    let own = ask("weir/server_zones")?;
    let log = fs::read(server.prefix().join("access.log")).map_err(|e| e.to_string())?;
    Ok(Counted {
        requests: number(&zone, "\"requests\":")?,
        under_way: number(&zone, "\"processing\":")?,
        responses: number(&zone, "\"total\":")?,
        lost: number(&own, "\"main.test\":{\"lost\":")?,
        lines: log.iter().filter(|b| **b == b'\n').count() as u64,
    })
}

/// The number behind a text.
fn number(text: &str, behind: &str) -> Outcome<u64> {
    let rest = text.split_once(behind).map(|(_, rest)| rest);
    let digits = rest.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| format!("no {behind} in {text}"))
}
