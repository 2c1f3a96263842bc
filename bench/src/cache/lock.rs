//! `cache-lock`: a thousand clients ask at once for what is not there, and its origin takes 300 ms.
//! One request may reach the origin; what counts is how long after the end of its answer the last
//! client has its own.
//!
//! The clients are one thread with an epoll, so that they do not stand in their own way: 1,000
//! answers of 1 KB take it a few milliseconds, which are part of what is measured.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::origin::{Manner, Origin};
use super::{PATIENCE, connect, setup};
use crate::options::Options;
use crate::report::{self, median, row};
use crate::server::{Kind, Server};
use crate::{Outcome, server};

const CLIENTS: usize = 1000;
const BODY: usize = 1024;
/// A waiter is to be answered that long after the fill.
const GOAL_MS: f64 = 10.0;

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
        "worst round",
    ])];
    let mut failed = Vec::new();
    for &kind in options.servers.iter().filter(|k| k.is_real()) {
        for workers in [1, 2, 4] {
            let rounds = measure(options, kind, workers)?;
            let of = |f: fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(f).collect() };
            let last = of(|r| r.max);
            let worst = last.iter().copied().fold(0.0, f64::max);
            let fetches = rounds.iter().map(|r| r.fetches).max().unwrap_or(0);
            rows.push(row([
                kind.name(),
                &workers.to_string(),
                &rounds.len().to_string(),
                &fetches.to_string(),
                &format!("{:.1}", median(&of(|r| r.p50))),
                &format!("{:.1}", median(&of(|r| r.p99))),
                &format!("{:.1}", median(&last)),
                &format!("{worst:.1}"),
            ]));
            if kind != Kind::Nginx && (fetches != 1 || median(&last) > GOAL_MS) {
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
    let manner = Manner { delay: Duration::from_millis(300), ..Manner::plain(|_, _| BODY) };
    let origin = Origin::start(manner)?;
    let folder = server::new_folder()?;
    let directives = "proxy_cache_lock on; proxy_cache_lock_timeout 20s; proxy_cache_lock_age 20s;";
    let setup = setup(workers, origin.port, &folder.join("kept"), "10m", directives);
    let (server, _) = Server::start(options, kind, &setup)?;
    let rounds = (0..options.rounds).map(|n| round(&server, &origin, n, workers > 1)).collect();
    drop(server);
    let _ = std::fs::remove_dir_all(folder);
    rounds
}

fn round(server: &Server, origin: &Origin, number: usize, shares: bool) -> Outcome<Round> {
    let fail = |what: &str, e: std::io::Error| format!("{what}: {e}");
    let mut streams = Vec::with_capacity(CLIENTS);
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| fail("epoll", e.into()))?;
    for i in 0..CLIENTS {
        let stream = connect(server.port).map_err(|e| fail("connect", e))?;
        let data = epoll::EventData::new_u64(i as u64);
        let wanted = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&queue, &stream, data, wanted).map_err(|e| fail("epoll", e.into()))?;
        stream.set_nonblocking(true).map_err(|e| fail("fcntl", e))?;
        streams.push(stream);
    }
    let before = origin.seen.fetches.load(std::sync::atomic::Ordering::Acquire);
    let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", number + 1);
    for stream in &mut streams {
        stream.write_all(request.as_bytes()).map_err(|e| fail("send", e))?;
    }
    let ends = answers(&queue, &streams, shares)?;
    let last = origin.seen.last();
    let mut ms: Vec<f64> =
        ends.iter().map(|end| end.saturating_duration_since(last).as_secs_f64() * 1e3).collect();
    ms.sort_by(f64::total_cmp);
    let fetches = origin.seen.fetches.load(std::sync::atomic::Ordering::Acquire) - before;
    Ok(Round { fetches, p50: ms[CLIENTS / 2], p99: ms[CLIENTS * 99 / 100], max: ms[CLIENTS - 1] })
}

/// When each of them had its answer. `shares`: the server uses the processor of the clients, too.
fn answers(
    queue: impl std::os::fd::AsFd,
    streams: &[TcpStream],
    shares: bool,
) -> Outcome<Vec<Instant>> {
    let mut got = vec![Vec::<u8>::new(); streams.len()];
    let mut ends = Vec::with_capacity(streams.len());
    let mut events = Vec::with_capacity(256);
    let mut page = vec![0; 16 << 10];
    let began = Instant::now();
    while ends.len() < streams.len() {
        if began.elapsed() > PATIENCE {
            return Err(format!("{} clients are not answered", streams.len() - ends.len()));
        }
        events.clear();
        // From the first answer on it does not sleep where a processor is its own: to wake it is
        // work for who answers.
        let wait = if ends.is_empty() || shares { 1 } else { 0 };
        let wait = Timespec { tv_sec: wait, tv_nsec: 0 };
        match epoll::wait(&queue, spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(format!("epoll: {e}")),
        }
        for event in &events {
            let i = event.data.u64() as usize;
            let n = match rustix::net::recv(&streams[i], &mut page, RecvFlags::empty()) {
                Ok((_, 0)) => return Err("an answer was cut".to_string()),
                Ok((_, n)) => n,
                Err(Errno::AGAIN) => continue,
                Err(e) => return Err(format!("recv: {e}")),
            };
            got[i].extend_from_slice(&page[..n]);
            // The body is longer than any head: where it is whole, all is.
            if let Some(at) = got[i].windows(4).position(|w| w == b"\r\n\r\n")
                && got[i].len() >= at + 4 + BODY
            {
                if !got[i].starts_with(b"HTTP/1.1 200 ") {
                    let line = String::from_utf8_lossy(&got[i][..40]).into_owned();
                    return Err(format!("another answer: {line}"));
                }
                ends.push(Instant::now());
            }
        }
    }
    Ok(ends)
}
