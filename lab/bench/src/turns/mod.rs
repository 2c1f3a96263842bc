//! The longest turn of the event loop that each kind of work causes, and how long another client
//! of the same worker waits meanwhile.
//!
//! Each kind of work meets newly started servers, once each, because a second request finds caches
//! filled. The loop's own clock counts milliseconds; the witness, a client that asks for two bytes
//! over and over, measures to the microsecond, but waits up to two turns. Both also count the time
//! in which the worker had no processor. So its loop's thread has real-time priority where that is
//! allowed, and the shortest of the rounds counts: what the work itself causes is in all of them.

mod png;
mod works;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, Setup, free_port};
use crate::tls::Certificate;
use crate::{Outcome, proc};
use works::{Ask, Work};

const CONFIG: &str = include_str!("../../configs/turns.conf");

/// A turn that takes longer holds up other clients noticeably.
const LIMIT_MS: f64 = 4.0;

/// Between two requests of the witness.
const PAUSE: Duration = Duration::from_micros(200);

/// The longest time that work may take as a whole.
const PATIENCE: Duration = Duration::from_secs(60);

/// Milliseconds of one round, or the least of several.
#[derive(Clone, Copy)]
struct Figures {
    /// The longest turn in the log; 0: none that the loop's clock saw.
    turn: f64,
    /// The longest wait of the witness.
    wait: f64,
    /// The work's own duration.
    took: f64,
}

impl Figures {
    fn least(self, other: Self) -> Self {
        Self {
            turn: self.turn.min(other.turn),
            wait: self.wait.min(other.wait),
            took: self.took.min(other.took),
        }
    }

    /// Whether a turn took longer than the limit. The loop's figure may be a millisecond too high,
    /// so the witness decides; but a wait without a long turn was several turns.
    fn exceeds(&self, limit_ms: f64) -> bool {
        self.turn >= limit_ms && self.wait > limit_ms
    }
}

/// Runs every kind of work.
pub fn run(options: &Options, _: &str) -> Outcome {
    let mut rows = vec![row(["work", "longest turn ms", "another waits ms", "took ms", "verdict"])];
    let mut wrong = Vec::new();
    let works = works::works();
    let chosen = |n: usize| options.only.is_none_or(|only| only == n);
    for work in works.iter().enumerate().filter(|(n, _)| chosen(*n)).map(|(_, work)| work) {
        let certificate = Certificate::new(work.rsa)?;
        let rounds = (0..options.rounds).map(|_| one(options, work, &certificate));
        let rounds: Vec<Figures> = match rounds.collect::<Outcome<_>>() {
            Ok(rounds) => rounds,
            Err(message) => {
                println!("{}: {message}", work.name);
                wrong.push(work.name);
                continue;
            }
        };
        let Some(figures) = rounds.into_iter().reduce(Figures::least) else { continue };
        let verdict = match work.known {
            Some((limit_ms, reason)) if !figures.exceeds(limit_ms) => format!("known: {reason}"),
            None if !figures.exceeds(LIMIT_MS) => "passes".to_string(),
            _ => {
                wrong.push(work.name);
                "TOO LONG".to_string()
            }
        };
        rows.push(row([
            work.name,
            &match figures.turn {
                0.0 => "-".to_string(),
                turn => format!("{turn:.0}"),
            },
            &format!("{:.2}", figures.wait),
            &format!("{:.1}", figures.took),
            &verdict,
        ]));
    }
    report::table(&rows);
    println!("(the least of {} rounds; the loop's clock counts milliseconds)", options.rounds);
    match wrong.as_slice() {
        [] => Ok(()),
        names => Err(format!("failed, or turns above {LIMIT_MS} ms: {}", names.join("; "))),
    }
}

/// Has a new server do the work once.
fn one(options: &Options, work: &Work, certificate: &Certificate) -> Outcome<Figures> {
    let tls_port = free_port()?;
    let fill = vec![
        ("%HTTP%", work.http.clone()),
        ("%SERVER%", work.server.clone()),
        ("%CERTIFICATE%", certificate.chain().to_string_lossy().into_owned()),
        ("%KEY%", certificate.key().to_string_lossy().into_owned()),
        ("%TLS_PORT%", tls_port.to_string()),
    ];
    let setup = Setup { template: CONFIG, fill, ..Setup::default() };
    let site = crate::server::new_folder()?;
    let scratch = crate::h2::Scratch(site);
    crate::server::write_files(&scratch.0)?;
    let root = scratch.0.join("site");
    (work.files)(&root).map_err(|e| format!("files: {e}"))?;
    let body = fs::read(root.join("body")).unwrap_or_default();
    let setup = Setup { root: Some(root), ..setup };
    let (server, _) = Server::start(options, Kind::Weir, &setup)?;
    hurry(server.worker());
    let log = server.prefix().join("error.log");
    let logged = fs::read_to_string(&log).unwrap_or_default().len();
    let is_done = AtomicBool::new(false);
    let port = server.port;
    let (took, wait) = std::thread::scope(|scope| {
        let witness = scope.spawn(|| witness(port, &is_done));
        let began = Instant::now();
        let done = request(&server, work, &body, tls_port);
        let took = began.elapsed();
        // The turn that finished the work is logged by the next one.
        std::thread::sleep(Duration::from_millis(30));
        is_done.store(true, Ordering::Relaxed);
        let wait = witness.join().map_err(|_| "the witness panicked".to_string())?;
        done.map(|()| (took, wait))
    })?;
    let text = fs::read_to_string(&log).unwrap_or_default();
    let turn = longest_turn(text.get(logged..).unwrap_or_default());
    let [took, wait] = [took, wait].map(|time| time.as_secs_f64() * 1e3);
    Ok(Figures { turn, wait, took })
}

/// Gives a worker's loop priority over everything else on its processor, but not the threads that
/// it starts.
fn hurry(worker: u32) {
    let mut command = Command::new("chrt");
    command.args(["--reset-on-fork", "-f", "-p", "5", &worker.to_string()]);
    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// Requests two bytes over and over until the work is done; gives the longest wait.
fn witness(port: u16, is_done: &AtomicBool) -> Duration {
    proc::pin(1);
    proc::go_first();
    let mut longest = Duration::ZERO;
    let mut kept: Option<TcpStream> = None;
    while !is_done.load(Ordering::Relaxed) {
        let began = Instant::now();
        let stream = kept.take().or_else(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok());
        // A worker that a reload retires closes its connection: the next request has another one.
        if let Some(mut stream) = stream
            && stream.write_all(b"GET /return HTTP/1.1\r\nHost: localhost\r\n\r\n").is_ok()
            && stream.read(&mut [0; 1024]).is_ok_and(|len| len > 0)
        {
            longest = longest.max(began.elapsed());
            kept = Some(stream);
        }
        std::thread::sleep(PAUSE);
    }
    longest
}

/// Requests the work, and waits until it is done.
fn request(server: &Server, work: &Work, body: &[u8], tls_port: u16) -> Outcome {
    let port = server.port;
    let answer = match work.ask {
        Ask::Get(path, header, status) => {
            exchange(port, &format!("GET {path} HTTP/1.1\r\n{header}"), b"", status)
        }
        Ask::Post(path) => exchange(port, &format!("POST {path} HTTP/1.1\r\nX: y"), body, 201),
        Ask::Handshake => handshake(tls_port),
        Ask::Reload => reload(server),
    }?;
    match answer.len() >= work.bytes {
        true => Ok(()),
        false => Err(format!("{} bytes are no such response", answer.len())),
    }
}

/// Sends a request on a connection of its own, and reads the response to its end.
fn exchange(port: u16, head: &str, body: &[u8], status: u16) -> Outcome<Vec<u8>> {
    let failed = |e: std::io::Error| format!("{head}: {e}");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let rest = format!("Host: localhost\r\nConnection: close\r\nContent-Length: {}", body.len());
    stream.write_all(format!("{head}\r\n{rest}\r\n\r\n").as_bytes()).map_err(failed)?;
    stream.write_all(body).map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(failed)?;
    let first = String::from_utf8_lossy(&answer[..answer.len().min(300)]);
    match first.starts_with(&format!("HTTP/1.1 {status} ")) {
        true => Ok(answer),
        false => Err(format!("{head}: not a {status}: {first}")),
    }
}

/// A full handshake.
fn handshake(port: u16) -> Outcome<Vec<u8>> {
    let config = crate::tls::client::config().map_err(|e| e.to_string())?;
    let failed = |e: std::io::Error| format!("handshake: {e}");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let client = rustls::ClientConnection::new(config.into(), crate::tls::client::name());
    let mut tls = client.map_err(|e| e.to_string())?;
    while tls.is_handshaking() || tls.wants_write() {
        tls.complete_io(&mut stream).map_err(failed)?;
    }
    Ok(Vec::new())
}

/// Reloads, and waits until another worker has responded and the old one is gone.
fn reload(server: &Server) -> Outcome<Vec<u8>> {
    let (old, began) = (server.worker(), Instant::now());
    server.signal(Signal::HUP);
    while proc::is_there(old) {
        if began.elapsed() > PATIENCE {
            return Err("the old worker does not end".to_string());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    exchange(server.port, "GET /return HTTP/1.1\r\nX: y", b"", 200)
}

/// The longest of the turns in an error log, in milliseconds.
fn longest_turn(log: &str) -> f64 {
    let turns = log.lines().filter_map(|line| {
        let rest = line.split_once("a turn of the event loop took ")?.1;
        rest.split_once(" ms")?.0.parse::<f64>().ok()
    });
    turns.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::{Figures, longest_turn};

    #[test]
    fn the_longest_turn_of_a_log_is_read() {
        let log = "2026/01/01 [warn] 7#7: a turn of the event loop took 8 ms, in which nothing\n\
            2026/01/01 [warn] 7#7: a turn of the event loop took 12 ms, in which nothing\nx 99 ms";
        assert_eq!(longest_turn(log), 12.0);
        assert_eq!(longest_turn("x"), 0.0);
    }

    #[test]
    fn the_witness_decides_where_the_clock_is_too_coarse() {
        let exceeds = |turn, wait| Figures { turn, wait, took: 0.0 }.exceeds(4.0);
        assert!(!exceeds(0.0, 9.0), "no turn was long");
        assert!(!exceeds(4.0, 3.0), "a tick fell into a short turn");
        assert!(exceeds(4.0, 5.0) && !exceeds(8.0, 1.0));
    }
}
