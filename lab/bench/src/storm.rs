//! Reload after reload under load, and a binary upgrade in the middle: failures.
//!
//! `wrk` makes the load and counts its failures; beside it, a few clients of our own send one
//! request after another and record each failure as seen from outside.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, proc, wrk};

const CONNECTIONS: usize = 200;
const RELOAD_EVERY: Duration = Duration::from_millis(200);
const WITNESSES: usize = 8;

/// A witness's results, by kind, `"answered"` among them.
type Seen = BTreeMap<&'static str, u64>;

/// Runs the storm against every real server, one after the other.
pub fn run(options: &Options, name: &str) -> Outcome {
    let mut rows = vec![row([
        "server",
        "requests",
        "reloads",
        "connect",
        "read",
        "write",
        "timeout",
        "status",
        "processes",
        "descriptors",
        "PSS MB",
        "alerts",
    ])];
    let mut notes = Vec::new();
    for &kind in options.servers.iter().filter(|k| k.is_real()) {
        let storm = storm(options, kind, name == "storm-upgrade")?;
        notes.push(format!("{}: witnesses saw {:?}", kind.name(), storm.seen));
        rows.push(storm.row(kind));
    }
    report::table(&rows);
    println!("(processes, descriptors and memory: before -> 10 s after the storm)");
    for note in notes {
        println!("{note}");
    }
    Ok(())
}

struct Storm {
    result: wrk::Result,
    reloads: u32,
    before: State,
    after: State,
    seen: Seen,
    alerts: usize,
}

/// The quantities that may not grow.
struct State {
    processes: usize,
    descriptors: usize,
    pss: u64,
}

impl State {
    fn of(server: &Server) -> Self {
        let pids = server.all_pids();
        Self {
            processes: pids.len(),
            descriptors: proc::descriptors(&pids),
            pss: proc::memory(&pids).pss,
        }
    }
}

impl Storm {
    fn row(&self, kind: Kind) -> Vec<String> {
        let (b, a) = (&self.before, &self.after);
        let [connect, read, write, timeout, status] = self.result.errors.map(|n| n.to_string());
        row([
            kind.name(),
            &self.result.requests.to_string(),
            &self.reloads.to_string(),
            &connect,
            &read,
            &write,
            &timeout,
            &status,
            &format!("{} -> {}", b.processes, a.processes),
            &format!("{} -> {}", b.descriptors, a.descriptors),
            &format!("{} -> {}", report::megabytes(b.pss as f64), report::megabytes(a.pss as f64)),
            &self.alerts.to_string(),
        ])
    }
}

fn storm(options: &Options, kind: Kind, upgrade: bool) -> Outcome<Storm> {
    let seconds = options.storm_seconds;
    let setup = Setup { daemon: upgrade, connections: 4096, ..Setup::default() };
    let (server, _) = Server::start(options, kind, &setup)?;
    let load = wrk::Load {
        port: server.port,
        path: "/1k.txt",
        connections: CONNECTIONS,
        seconds,
        pipeline: false,
        close: false,
        files: None,
    };
    wrk::run(&wrk::Load { seconds: 2, ..load })?;
    std::thread::sleep(Duration::from_secs(1));
    let before = State::of(&server);
    let stop = Arc::new(AtomicBool::new(false));
    let witnesses: Vec<JoinHandle<Seen>> = (0..WITNESSES)
        .map(|_| {
            let (port, stop) = (server.port, Arc::clone(&stop));
            std::thread::spawn(move || witness(port, &stop))
        })
        .collect();
    let child = wrk::start(&wrk::Load { seconds, ..load })?;
    let reloads = blow(&server, Duration::from_secs(u64::from(seconds)), upgrade);
    let result = wrk::finish(child)?;
    stop.store(true, Ordering::Relaxed);
    let mut seen = Seen::new();
    for witness in witnesses {
        for (what, count) in witness.join().map_err(|_| "a witness panicked".to_string())? {
            *seen.entry(what).or_default() += count;
        }
    }
    // Leaving workers get the time they are given.
    std::thread::sleep(Duration::from_secs(10));
    let after = State::of(&server);
    Ok(Storm { result, reloads, before, after, seen, alerts: server.alerts() })
}

/// Reloads until shortly before the load ends; gives how often.
pub fn blow(server: &Server, length: Duration, mut upgrade: bool) -> u32 {
    let began = Instant::now();
    let end = length.saturating_sub(Duration::from_millis(500));
    let mut reloads = 0;
    while began.elapsed() < end {
        std::thread::sleep(RELOAD_EVERY);
        if upgrade && began.elapsed() > length / 2 {
            upgrade = false;
            if let Err(message) = replace(server) {
                println!("{}: {message}", server.kind.name());
            }
        }
        server.signal(Signal::HUP);
        reloads += 1;
    }
    reloads
}

/// The binary upgrade as an operator does it: USR2, wait for the new master, QUIT to the old.
fn replace(server: &Server) -> Outcome {
    let old = server.pid();
    // A reload that is under way ends first, as an operator would let it.
    std::thread::sleep(Duration::from_secs(1));
    proc::signal(old, Signal::USR2);
    let began = Instant::now();
    while server.pid() == old || proc::tree(server.pid()).len() < 2 {
        if began.elapsed() > Duration::from_secs(5) {
            return Err(format!("no new master after USR2: {}", server.complaints()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    proc::signal(old, Signal::QUIT);
    Ok(())
}

/// Sends one request after another on kept connections and counts how they end.
fn witness(port: u16, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::new();
    let mut kept: Option<TcpStream> = None;
    while !stop.load(Ordering::Relaxed) {
        // Slower than the load: an idle moment is when a leaving worker closes.
        std::thread::sleep(Duration::from_millis(20));
        let outcome = match kept.take() {
            Some(stream) => Ok(stream),
            None => connect(port),
        };
        let outcome = outcome.map_err(|_| "not connected").and_then(ask);
        let what = match outcome {
            Ok((stream, true)) => {
                kept = Some(stream);
                "answered"
            }
            Ok((_, false)) => "answered",
            Err(what) => what,
        };
        *seen.entry(what).or_default() += 1;
    }
    seen
}

fn connect(port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// One request; gives whether the connection may be kept, or how it failed.
fn ask(mut stream: TcpStream) -> Result<(TcpStream, bool), &'static str> {
    let request = b"GET /1k.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).map_err(|e| failure(e.kind(), false))?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let head = answer.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
        if let Some(head) = head
            && answer.len() >= head + 1024
        {
            let text = String::from_utf8_lossy(&answer[..head]);
            if !text.starts_with("HTTP/1.1 200") {
                return Err("another status");
            }
            return Ok((stream, !text.contains("Connection: close")));
        }
        match stream.read(&mut buffer) {
            Ok(0) if answer.is_empty() => return Err("closed unanswered"),
            Ok(0) => return Err("cut"),
            Ok(len) => answer.extend_from_slice(&buffer[..len]),
            Err(e) => return Err(failure(e.kind(), !answer.is_empty())),
        }
    }
}

fn failure(kind: ErrorKind, begun: bool) -> &'static str {
    match kind {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe if begun => "reset in the answer",
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "reset unanswered",
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "timed out",
        _ => "another error",
    }
}
