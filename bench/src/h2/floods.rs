//! Attacks from one connection at a time, beside a well-behaved client.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use bare::attacks::h2::{ATTACKS, Attack, Attacker};
use testkit::h2::kind;

use super::prompt_setup;
use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Server, Setup};
use crate::tls::Certificate;
use crate::{Outcome, proc, proxied};
use testkit::h2::scan::{self as client, Scan};

/// Between two requests of the well-behaved client.
pub const PACE: Duration = Duration::from_millis(2);
/// Between two connections of the attacker.
const BREAK: Duration = Duration::from_millis(10);

/// The well-behaved client's view, and the server's cost, of a stretch of time.
pub struct Stretch {
    /// The 99th percentile of its latencies.
    pub p99_us: f64,
    /// Its requests that failed.
    pub failed: usize,
    /// CPUs busy with the server.
    pub cpu: f64,
    /// Memory of the worker at most.
    pub memory: u64,
}

/// The attacker's view.
#[derive(Default)]
struct Felt {
    sent: u64,
    connections: u32,
    /// How and when the first connection was ended.
    end: Option<(String, Duration)>,
}

/// Runs every attack against every real server, each on a server of its own.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let certificate = Certificate::new(false)?;
    let backend = proxied::files(options)?;
    let mut rows = vec![row([
        "attack",
        "server",
        "sent MB",
        "first cut off",
        "after",
        "connections",
        "CPU alone",
        "with",
        "memory MB",
        "p99 us alone",
        "with",
        "failed",
        "log lines",
        "above info",
    ])];
    let chosen = |n: usize| options.only.is_none_or(|only| only == n);
    for (_, attack) in ATTACKS.iter().enumerate().filter(|(n, _)| chosen(*n)) {
        for &kind in options.servers.iter().filter(|k| k.is_real()) {
            let (mut setup, ports) = prompt_setup(kind, &certificate, backend.port)?;
            setup.fill.retain(|(name, _)| !["%LOG_LEVEL%", "%SEND_TIMEOUT%"].contains(name));
            setup.fill.push(("%LOG_LEVEL%", "info".to_string()));
            // Attacks that hold streams and do nothing more are ended by this alone.
            setup.fill.push(("%SEND_TIMEOUT%", "1s".to_string()));
            rows.push(one(options, kind, &setup, ports.clear, attack)?);
        }
    }
    report::table(&rows);
    println!("(CPU: of one; memory: growth of the worker's; failed: of the well-behaved client)");
    Ok(())
}

fn one(
    options: &Options,
    kind: crate::server::Kind,
    setup: &Setup,
    port: u16,
    attack: &Attack,
) -> Outcome<Vec<String>> {
    let (server, _) = Server::start(options, kind, setup)?;
    let time = Duration::from_secs(options.seconds.into());
    let stretch = |time| stretch(&server, time, |until| witness(port, until));
    stretch(Duration::from_millis(300))?;
    let before = anonymous(server.worker());
    let lines = log_lines(&server);
    let alone = stretch(time)?;
    let (count, counted) = mpsc::channel();
    let (with, (all, above), felt) = std::thread::scope(|scope| {
        let until = Instant::now() + time;
        let attacker = scope.spawn(move || assail(port, attack, until, &counted));
        let with = stretch(time);
        let lines = log_lines(&server);
        // What the server writes about the attacker's own end is no part of it.
        let _ = count.send(());
        (with, lines, attacker.join().map_err(|_| "the attacker panicked".to_string()))
    });
    let (with, felt) = (with?, felt?);
    let (end, after) = match &felt.end {
        Some((how, after)) => (how.clone(), format!("{} ms", after.as_millis())),
        None => ("no".to_string(), String::new()),
    };
    let (all, above) = (all - lines.0, above - lines.1);
    Ok(row([
        attack.name,
        kind.name(),
        &report::megabytes(felt.sent as f64),
        &end,
        &after,
        &felt.connections.to_string(),
        &format!("{:.2}", alone.cpu),
        &format!("{:.2}", with.cpu),
        &report::megabytes(with.memory.saturating_sub(before) as f64),
        &format!("{:.0}", alone.p99_us),
        &format!("{:.0}", with.p99_us),
        &(alone.failed + with.failed).to_string(),
        &all.to_string(),
        &above.to_string(),
    ]))
}

/// The lines of the error log, and those of them of a level above `info`.
pub fn log_lines(server: &Server) -> (usize, usize) {
    let log = std::fs::read(server.prefix().join("error.log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let is_below = |line: &&str| line.contains("[info]") || line.contains("[debug]");
    (log.lines().count(), log.lines().filter(|line| !is_below(line)).count())
}

/// Memory of a process that is no file's.
pub fn anonymous(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kb = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kb.unwrap_or(0) * 1024
}

/// A well-behaved client for that time, with a look at the server all the while.
pub fn stretch(
    server: &Server,
    time: Duration,
    witness: impl FnOnce(Instant) -> (Vec<u64>, usize) + Send,
) -> Outcome<Stretch> {
    let pids = server.pids();
    let worker = server.worker();
    let (began, cpu) = (Instant::now(), proc::cpu_ns(&pids));
    let (memory, (mut latencies, failed)) = std::thread::scope(|scope| {
        let witness = scope.spawn(move || witness(began + time));
        let looks = scope.spawn(|| {
            proc::pin(1);
            let mut memory = 0;
            while began.elapsed() < time {
                memory = anonymous(worker).max(memory);
                std::thread::sleep(Duration::from_millis(20));
            }
            memory
        });
        let felt = witness.join().map_err(|_| "the well-behaved client panicked".to_string())?;
        let memory = looks.join().map_err(|_| "the look at the server panicked".to_string())?;
        Ok::<_, String>((memory, felt))
    })?;
    let cpu = (proc::cpu_ns(&pids) - cpu) as f64 / began.elapsed().as_nanos() as f64;
    latencies.sort_unstable();
    let at = (latencies.len() * 99 / 100).min(latencies.len().saturating_sub(1));
    let p99_us = latencies.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1000.0);
    Ok(Stretch { p99_us, failed, cpu, memory })
}

/// Asks at its pace; gives the latencies in nanoseconds, and how many requests failed.
fn witness(port: u16, until: Instant) -> (Vec<u64>, usize) {
    proc::pin(1);
    proc::go_first();
    let (mut latencies, mut failed) = (Vec::new(), 0);
    while Instant::now() < until {
        let (mut scan, mut id) = (Scan::default(), 1);
        let connected = client::connect(port).and_then(|mut stream| {
            std::io::Write::write_all(&mut stream, &client::start(&[]))?;
            Ok(stream)
        });
        let Ok(mut stream) = connected else {
            failed += 1;
            std::thread::sleep(PACE);
            continue;
        };
        while Instant::now() < until {
            let began = Instant::now();
            let answer = client::ask(&mut stream, &mut scan, id, "/1k.txt");
            if !answer.is_ok_and(|length| length == 1024) {
                failed += 1;
                break;
            }
            latencies.push(began.elapsed().as_nanos() as u64);
            id += 2;
            std::thread::sleep(PACE.saturating_sub(began.elapsed()));
        }
    }
    (latencies, failed)
}

/// Attacks over one connection after the other, as long as each is let. The last one stays open
/// until the lines of the log are `counted`.
fn assail(port: u16, attack: &Attack, until: Instant, counted: &mpsc::Receiver<()>) -> Felt {
    // The well-behaved client is on the same processor, and goes before.
    proc::pin(1);
    proc::be_nice();
    let mut felt = Felt::default();
    while Instant::now() < until {
        let began = Instant::now();
        let Ok(mut attacker) = Attacker::new(port, attack, until) else {
            std::thread::sleep(BREAK);
            continue;
        };
        felt.connections += 1;
        let told = Mutex::new(None);
        let mut ended = false;
        let Ok(mut reading) = attacker.socket().try_clone() else { break };
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                if attack.reads {
                    proc::be_nice();
                    read(&mut reading, until, &told, began);
                }
            });
            ended = attacker.run(attack) && Instant::now() < until;
            if Instant::now() >= until {
                let _ = counted.recv();
            }
            if ended || Instant::now() >= until {
                let _ = attacker.socket().shutdown(std::net::Shutdown::Write);
            }
            let _ = reader.join();
        });
        felt.sent += attacker.sent;
        let after = began.elapsed();
        if !attack.reads {
            // The part that it has never read tells why.
            read(&mut reading, Instant::now() + Duration::from_millis(50), &told, began);
        }
        let told = told.into_inner().unwrap_or_default();
        let told_to_go = told.as_ref().filter(|(how, _)| how.starts_with("GOAWAY"));
        felt.end = felt.end.or(match (ended, attack.reads) {
            (_, true) => told.or(ended.then(|| ("closed".to_string(), after))),
            (true, false) => Some((told_to_go.map_or("closed", |(how, _)| how).to_string(), after)),
            // The server has ended it, and goes on taking what comes; or nothing of that end
            // reaches a client that reads nothing.
            (false, false) => told.as_ref().map(|(how, _)| (format!("{how}, unseen"), after)),
        });
        std::thread::sleep(BREAK.saturating_sub(began.elapsed()));
    }
    felt
}

/// Reads to the end of the connection or of the time, and tells the first sign of the end.
fn read(
    socket: &mut TcpStream,
    until: Instant,
    told: &Mutex<Option<(String, Duration)>>,
    began: Instant,
) {
    let mut scan = Scan::default();
    let mut buffer = vec![0; 65_536];
    // The end of the attack is the attacker's own.
    let tell = |how: String| {
        if let (true, Ok(mut told)) = (Instant::now() < until, told.lock()) {
            told.get_or_insert((how, began.elapsed()));
        }
    };
    let _ = socket.set_read_timeout(Some(Duration::from_millis(20)));
    while Instant::now() < until {
        match socket.read(&mut buffer) {
            Ok(0) => {
                tell("closed".to_string());
                let _ = socket.shutdown(std::net::Shutdown::Both);
                return;
            }
            Ok(length) => scan.feed(&buffer[..length], |frame| {
                if frame.kind == kind::GOAWAY {
                    tell(format!("GOAWAY {}", name(frame.number(4))));
                }
            }),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => {
                tell("reset".to_string());
                return;
            }
        }
    }
}

/// An error code's name, in short.
fn name(code: u32) -> String {
    let names = [
        "NO_ERROR",
        "PROTOCOL",
        "INTERNAL",
        "FLOW_CONTROL",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION",
        "CONNECT",
        "CALM",
    ];
    names.get(code as usize).map_or_else(|| code.to_string(), ToString::to_string)
}
