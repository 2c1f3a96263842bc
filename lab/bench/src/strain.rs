//! `strain`: clients that want to hold the server up, and slow ones that do not.
//!
//! First clients that let bytes drip, with telephones beside them: when is each ended? Then 1,200
//! heads that stay half sent, from one address and from many, with 512 connections of the worker:
//! how many of the requests of others are answered meanwhile, to the rate before, and how fast?
//! Last every fifth accept of the worker fails for want of descriptors (`strace` injects that): how
//! long does a new connection wait?

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::client::connect_from;
use crate::options::Options;
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, proc};

const CONFIG: &str = include_str!("../configs/strain.conf");

/// Weir's limits: 240 B/s of a body with pauses of 10 s, 4 kB/s of a response with pauses of 30 s.
/// A full receive buffer opens its window again only once a sixteenth of it is free, which is up to
/// 400 KB: for a telephone that reads 30 kB/s, bytes move every 13 s.
const RATES: &str = "client_body_min_rate 240 10s; send_min_rate 4k 30s;";

/// So long is looked at a client that drips: longer than the limits and what the kernel holds.
const LOOK: Duration = Duration::from_secs(60);
const HALF_HEADS: usize = 1_200;
/// The limit of an answer.
const PATIENCE: Duration = Duration::from_secs(2);
const WITNESSED: Duration = Duration::from_secs(5);
const LONG: u64 = 8 << 20;
/// The limit of a wait while accepting fails now and then.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The manner in which a client drips.
#[derive(Clone, Copy)]
enum Drip {
    /// Sends a body: the head's field, the bytes after each pause.
    Body(&'static str, &'static [u8], Duration),
    /// Reads so many bytes after each pause.
    Read(usize, Duration),
}

const SECOND: Duration = Duration::from_secs(1);

/// Each with whether it is to be ended.
const DRIPS: &[(&str, Drip, bool)] = &[
    ("body of 1 B/s", Drip::Body("Content-Length: 100000", b"x", SECOND), true),
    ("chunk extension", Drip::Body("Transfer-Encoding: chunked", b";a=b", SECOND), true),
    ("reader of 1,500 B/s", Drip::Read(1_500, SECOND), true),
    ("the same in bursts of 4 s", Drip::Read(6_000, Duration::from_secs(4)), true),
    ("telephone: 30 kB/s, pauses of 5 s", Drip::Read(150_000, Duration::from_secs(5)), false),
    (
        "the same, sending",
        Drip::Body("Content-Length: 4000000", &[b'x'; 150_000], Duration::from_secs(5)),
        false,
    ),
];

/// Runs it against every real server.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let mut failed = Vec::new();
    for &kind in options.servers.iter().filter(|kind| kind.is_real()) {
        println!("\n### {}", kind.name());
        let is_weir = kind != Kind::Nginx;
        let rates = if is_weir { RATES } else { "" };
        let fill = vec![("%RATES%", rates.to_string())];
        let setup = Setup { template: CONFIG, connections: 512, fill, ..Setup::default() };
        let (server, _) = Server::start(options, kind, &setup)?;
        std::fs::File::create(server.root().join("long.bin"))
            .and_then(|file| file.set_len(LONG))
            .map_err(|e| e.to_string())?;
        let runs = |part| options.only.is_none_or(|only| only == part);
        let wrong = (runs(0) && drips(server.port))
            | (runs(1) && half_heads(&server)?)
            | (runs(2) && few_descriptors(&server)?);
        if wrong && is_weir {
            failed.push(kind.name());
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("{} did not stand", failed.join(", "))) }
}

/// All of them at once; whether one did not end as it should.
fn drips(port: u16) -> bool {
    let ends: Vec<Option<Duration>> = std::thread::scope(|scope| {
        let all: Vec<_> =
            DRIPS.iter().map(|(_, drip, _)| scope.spawn(|| drip_on(port, *drip))).collect();
        all.into_iter().map(|thread| thread.join().unwrap_or(None)).collect()
    });
    let mut wrong = false;
    for ((name, _, due), end) in DRIPS.iter().zip(&ends) {
        let told = end.map_or("goes on".to_string(), |t| format!("ended {:.1} s", t.as_secs_f64()));
        println!("{name:<36}{told}");
        wrong |= end.is_some() != *due;
    }
    wrong
}

/// The time after which the server has ended it; none where it has not, or has answered whole.
fn drip_on(port: u16, drip: Drip) -> Option<Duration> {
    let mut stream = connect_from(Ipv4Addr::LOCALHOST, port, PATIENCE).ok()?;
    stream.set_read_timeout(None).ok()?;
    let began = Instant::now();
    match drip {
        Drip::Body(field, bytes, pause) => {
            let head = format!("POST /body HTTP/1.1\r\nHost: localhost\r\n{field}\r\n\r\n1");
            stream.write_all(head.as_bytes()).ok()?;
            stream.set_read_timeout(Some(pause)).ok()?;
            while began.elapsed() < LOOK {
                let sent = stream.write_all(bytes);
                let silent =
                    stream.read(&mut [0; 64]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
                if sent.is_err() || !silent {
                    return Some(began.elapsed());
                }
            }
            None
        }
        Drip::Read(len, pause) => {
            stream.write_all(b"GET /long.bin HTTP/1.0\r\n\r\n").ok()?;
            let mut page = vec![0; len];
            while began.elapsed() < LOOK {
                if broken(&stream) {
                    return Some(began.elapsed());
                }
                let mut left = len;
                while left > 0 {
                    match stream.read(&mut page[..left]) {
                        Ok(0) => return None,
                        Ok(n) => left -= n,
                        Err(_) => return Some(began.elapsed()),
                    }
                }
                std::thread::sleep(pause);
            }
            None
        }
    }
}

/// Whether the server has given the connection up, though bytes of it are still to be read.
fn broken(stream: &TcpStream) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&zero)).is_ok_and(|n| n > 0)
}

/// From one address and from many; whether too few of the others were served.
fn half_heads(server: &Server) -> Outcome<bool> {
    let port = server.port;
    let many: Vec<Ipv4Addr> = (0..HALF_HEADS as u32)
        .map(|n| Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 1).to_bits() + n))
        .collect();
    let mut wrong = false;
    let cpu_ns = || proc::cpu_ns(&server.pids());
    let (idle, before) = (cpu_ns(), witness(port)?);
    let idle = cpu_ns() - idle;
    println!(
        "{:<36}{} answered, half of them within {} us; {:.1} us of the server's for each",
        "no half heads",
        before.answered,
        before.median.as_micros(),
        idle as f64 / 1e3 / before.asked.max(1) as f64
    );
    for (name, addresses) in [("one address", &many[..1]), ("many addresses", &many[..])] {
        let (stop, begun) = (AtomicBool::new(false), AtomicU64::new(0));
        let (seen, begun, used) = std::thread::scope(|scope| {
            scope.spawn(|| attack(port, addresses, &stop, &begun));
            std::thread::sleep(SECOND);
            let (before, used) = (begun.load(Ordering::Relaxed), cpu_ns());
            let seen = witness(port);
            stop.store(true, Ordering::Relaxed);
            (seen, begun.load(Ordering::Relaxed) - before, cpu_ns() - used)
        });
        let seen = seen?;
        let rate = seen.answered * 100 / before.answered.max(1);
        println!(
            "{:<36}{rate} % of the rate without, {} of {} answered, half of them within {} us, \
             the slowest after {} ms; {} half heads a second, {:.1} us of the server's for each",
            format!("1,200 half heads, {name}"),
            seen.answered,
            seen.asked,
            seen.median.as_micros(),
            seen.slowest.as_millis(),
            begun / WITNESSED.as_secs(),
            // Those of the witness are taken to cost what they did.
            (used as f64 - idle as f64 * seen.asked as f64 / before.asked.max(1) as f64)
                / 1e3
                / begun.max(1) as f64
        );
        wrong |= rate < 90;
    }
    Ok(wrong)
}

/// Every fifth call of accept fails; whether a new connection waited for too long.
fn few_descriptors(server: &Server) -> Outcome<bool> {
    let worker = server.worker().to_string();
    let inject = ["-e", "trace=accept4", "-e", "inject=accept4:error=EMFILE:when=5+5"];
    let mut command = Command::new("strace");
    command.args(["-qq", "-o", "/dev/null", "-p", &worker]).args(inject);
    let Ok(mut strace) = command.stdin(Stdio::null()).spawn() else {
        println!("accepting that fails is left out: no strace");
        return Ok(false);
    };
    std::thread::sleep(SECOND);
    let runs = strace.try_wait().is_ok_and(|ended| ended.is_none());
    let seen = witness(server.port);
    proc::signal(strace.id(), Signal::TERM);
    let _ = strace.wait();
    let Witnessed { answered, asked, slowest, .. } = seen?;
    if !runs {
        return Err("strace could not attach to the worker".to_string());
    }
    println!(
        "{:<36}{answered} of {asked} answered, the slowest after {} ms",
        "every fifth accept fails",
        slowest.as_millis()
    );
    Ok(answered < asked || slowest > PAUSE_MAX)
}

/// Keeps so many half heads, and begins another one for each that was closed.
fn attack(port: u16, addresses: &[Ipv4Addr], stop: &AtomicBool, begun: &AtomicU64) {
    let mut held: Vec<Option<TcpStream>> = (0..HALF_HEADS).map(|_| None).collect();
    while !stop.load(Ordering::Relaxed) {
        for (n, place) in held.iter_mut().enumerate() {
            if place.as_ref().is_none_or(broken) {
                *place = connect_from(addresses[n % addresses.len()], port, PATIENCE).ok();
                if let Some(stream) = place {
                    let _ = stream.write_all(b"GET /return HTTP/1.1\r\nHo");
                    begun.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[derive(Default)]
struct Witnessed {
    answered: u64,
    asked: u64,
    median: Duration,
    slowest: Duration,
}

/// A request on a connection of its own, again and again. It shares a processor with those that
/// attack, and goes before them: what they take of the server's is to be seen alone.
fn witness(port: u16) -> Outcome<Witnessed> {
    let thread = std::thread::spawn(move || {
        proc::pin(1);
        proc::go_first();
        let (mut seen, mut all) = (Witnessed::default(), Vec::new());
        let began = Instant::now();
        while began.elapsed() < WITNESSED {
            let one = Instant::now();
            let mut text = String::new();
            let answer =
                connect_from(Ipv4Addr::LOCALHOST, port, PATIENCE).and_then(|mut stream| {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.write_all(b"GET /return HTTP/1.0\r\n\r\n")?;
                    stream.read_to_string(&mut text)
                });
            seen.answered += u64::from(answer.is_ok() && text.starts_with("HTTP/1.1 200 "));
            all.push(one.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
        all.sort();
        seen.asked = all.len() as u64;
        seen.median = all.get(all.len() / 2).copied().unwrap_or_default();
        seen.slowest = all.last().copied().unwrap_or_default();
        seen
    });
    thread.join().map_err(|_| "the witness ended early".to_string())
}
