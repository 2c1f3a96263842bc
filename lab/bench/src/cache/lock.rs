//! `cache-lock`: a thousand clients request the same missing object at once, and its origin takes
//! 300 ms. One request may reach the origin; the result is the time between the end of its answer
//! and the last client's answer.
//!
//! Real clients are other machines, but here they share the server's two processors. So they do as
//! little as possible while answers arrive: one thread asks its epoll for the sockets that have
//! received something, takes the time behind that call for all of them, and reads and compares the
//! answers when all are there. A time is never earlier than the arrival, and later by the pause
//! between two looks at most ([`PAUSE`], where the server needs both processors) and by the
//! thread's own wait for a processor. It begins before the origin writes, too: the time of the
//! origin, a thread of this program, and of the server's reaction is part of it.
//!
//! Each client has had an answer on its connection a moment before, as clients of kept connections
//! have. So its system acknowledges received bytes some time later, and not at once, as on a new
//! connection; over the loopback that is a third of all work for an answer, and done by the
//! server's processor, in the middle of its sending.
//!
//! The *floor* has the thousand requests and their answer in memory, and sends it to one after the
//! other on a signal: no server with one worker can be faster.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::origin::{Manner, Origin};
use super::{PATIENCE, setup};
use crate::client::connect;
use crate::options::Options;
use crate::report::{self, median, row};
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, server};

const CLIENTS: usize = 1000;
const BODY: usize = 1024;
/// A waiter is to be answered that long after the fill.
const GOAL_MS: f64 = 10.0;
const DELAY: Duration = Duration::from_millis(300);
/// The pause between two looks for arrivals, where the server uses all processors.
const PAUSE: Duration = Duration::from_micros(250);

/// A round's figures, milliseconds after the last write of the origin.
struct Round {
    fetches: u64,
    p50: f64,
    p99: f64,
    max: f64,
}

/// Runs the load.
pub fn run(options: &Options, _: &str) -> Outcome {
    let mut rows = vec![row([
        "server",
        "workers",
        "rounds",
        "fetches a round",
        "p50 ms",
        "p99 ms",
        "last ms",
        "best round",
        "worst round",
    ])];
    let mut failed = Vec::new();
    for &kind in &options.servers {
        let all: &[usize] = if kind.is_real() { &[1, 2, 4] } else { &[1] };
        for &workers in all {
            let rounds = measure(options, kind, workers)?;
            let of = |f: fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(f).collect() };
            let last = of(|r| r.max);
            let worst = last.iter().copied().fold(0.0, f64::max);
            let best = last.iter().copied().fold(f64::MAX, f64::min);
            let fetches = rounds.iter().map(|r| r.fetches).max().unwrap_or(0);
            rows.push(row([
                kind.name(),
                &workers.to_string(),
                &rounds.len().to_string(),
                &fetches.to_string(),
                &format!("{:.1}", median(&of(|r| r.p50))),
                &format!("{:.1}", median(&of(|r| r.p99))),
                &format!("{:.1}", median(&last)),
                &format!("{best:.1}"),
                &format!("{worst:.1}"),
            ]));
            let is_ours = !matches!(kind, Kind::Nginx | Kind::Floor);
            if is_ours && (fetches != 1 || median(&last) > GOAL_MS) {
                failed.push(format!("{} with {workers} workers", kind.name()));
            }
        }
    }
    report::table(&rows);
    println!("(ms after the origin's last write began; medians of rounds)");
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("over {GOAL_MS} ms or more than one fetch: {}", failed.join(", "))),
    }
}

fn measure(options: &Options, kind: Kind, workers: usize) -> Outcome<Vec<Round>> {
    let manner = Manner { delay: DELAY, ..Manner::plain(|_, _| BODY) };
    let origin = Origin::start(manner)?;
    let folder = server::new_folder()?;
    let directives = "proxy_cache_lock on; proxy_cache_lock_timeout 20s; proxy_cache_lock_age 20s;";
    let mut setup = match kind {
        Kind::Floor => Setup { holds: true, ..Setup::default() },
        _ => setup(workers, origin.port, &folder.join("kept"), "10m", directives),
    };
    for (name, value) in &mut setup.fill {
        // Workers that are left alone gather where the client is, when others have the other one.
        if *name == "%WORKERS%" {
            value.push_str("; worker_cpu_affinity auto");
        }
    }
    let (server, _) = Server::start(options, kind, &setup)?;
    // A thread of its own, as it stays on a processor.
    let round = |n| -> Outcome<Round> {
        let asking = || round(&server, &origin, n, workers > 1);
        std::thread::scope(|scope| scope.spawn(asking).join().map_err(|_| "a client panicked")?)
    };
    let rounds = (0..options.rounds).map(round).collect();
    drop(server);
    let _ = std::fs::remove_dir_all(folder);
    rounds
}

fn round(server: &Server, origin: &Origin, number: usize, shares: bool) -> Outcome<Round> {
    let fail = |what: &str, e: std::io::Error| format!("{what}: {e}");
    if !shares {
        // The server has the first processor.
        let mut cpus = CpuSet::new();
        cpus.set(1);
        sched_setaffinity(None, &cpus).map_err(|e| fail("sched_setaffinity", e.into()))?;
    }
    let before = origin.seen.fetches.load(Ordering::Acquire);
    let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", number + 1);
    let mut streams = Vec::with_capacity(CLIENTS);
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| fail("epoll", e.into()))?;
    for i in 0..CLIENTS {
        let mut stream = connect(server.port, PATIENCE).map_err(|e| fail("connect", e))?;
        first_answer(&mut stream).map_err(|e| fail("a first answer", e))?;
        stream.set_nonblocking(true).map_err(|e| fail("fcntl", e))?;
        let data = epoll::EventData::new_u64(i as u64);
        let wanted = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&queue, &stream, data, wanted).map_err(|e| fail("epoll", e.into()))?;
        stream.write_all(request.as_bytes()).map_err(|e| fail("send", e))?;
        streams.push(stream);
    }
    let told = match server.kind {
        Kind::Floor => Some(tell_floor(server.port).map_err(|e| fail("the floor", e))?),
        _ => None,
    };
    let ends = answers(&queue, &streams, shares)?;
    let last = told.unwrap_or_else(|| origin.seen.last());
    let mut ms: Vec<f64> =
        ends.iter().map(|end| end.saturating_duration_since(last).as_secs_f64() * 1e3).collect();
    ms.sort_by(f64::total_cmp);
    let fetches = origin.seen.fetches.load(Ordering::Acquire) - before;
    Ok(Round { fetches, p50: ms[CLIENTS / 2], p99: ms[CLIENTS * 99 / 100], max: ms[CLIENTS - 1] })
}

/// Requests a cached object. The answer is small, and comes in one piece.
fn first_answer(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"GET /return HTTP/1.1\r\nHost: a\r\n\r\n")?;
    let mut page = [0; 4096];
    match stream.read(&mut page)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Makes the floor answer, once all requests are there. Returns the time.
fn tell_floor(port: u16) -> std::io::Result<Instant> {
    let mut stream = connect(port, PATIENCE)?;
    std::thread::sleep(DELAY);
    let now = Instant::now();
    stream.write_all(b"GET /go HTTP/1.1\r\nHost: a\r\n\r\n")?;
    Ok(now)
}

/// When each of them had its answer. `shares`: the server uses the processor of the clients, too.
fn answers(
    queue: impl std::os::fd::AsFd,
    streams: &[TcpStream],
    shares: bool,
) -> Outcome<Vec<Instant>> {
    let mut ends: Vec<Option<Instant>> = vec![None; streams.len()];
    let mut answers = vec![Vec::new(); streams.len()];
    let (mut arrived, mut whole) = (0, 0);
    let mut events = Vec::with_capacity(streams.len());
    let began = Instant::now();
    while whole < streams.len() {
        if began.elapsed() > PATIENCE {
            return Err(format!("{} clients are not answered", streams.len() - whole));
        }
        events.clear();
        // It sleeps in the call only before the first answer: waking it is work for the server.
        let wait = Timespec { tv_sec: i64::from(arrived == 0), tv_nsec: 0 };
        match epoll::wait(&queue, spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(format!("epoll: {e}")),
        }
        let now = Instant::now();
        for event in &events {
            // An answer that comes in several pieces is there with the last of them.
            arrived += usize::from(ends[event.data.u64() as usize].replace(now).is_none());
        }
        if arrived == streams.len() {
            whole = 0;
            for (stream, answer) in streams.iter().zip(&mut answers) {
                whole += usize::from(is_whole(stream, answer)?);
            }
        } else if shares {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(ends.into_iter().flatten().collect())
}

/// Reads the received bytes; returns whether they are a whole good answer.
fn is_whole(stream: &TcpStream, answer: &mut Vec<u8>) -> Outcome<bool> {
    let mut page = [0; 4096];
    loop {
        match rustix::net::recv(stream, &mut page, RecvFlags::empty()) {
            Ok((_, 0)) => return Err("an answer was cut".to_string()),
            Ok((_, n)) => answer.extend_from_slice(&page[..n]),
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(e) => return Err(format!("recv: {e}")),
        }
    }
    let Some(at) = answer.windows(4).position(|w| w == b"\r\n\r\n") else { return Ok(false) };
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        let line = String::from_utf8_lossy(&answer[..answer.len().min(40)]).into_owned();
        return Err(format!("another answer: {line}"));
    }
    match answer.len() - (at + 4) {
        ..BODY => Ok(false),
        BODY => Ok(true),
        _ => Err("more than an answer came".to_string()),
    }
}
