//! Kept connections that come one after the other to idle workers, and then send expensive
//! requests: the worker that accepted a connection serves all of them.
//!
//! The answers are compressed, so that the workers, not the clients on the same processors, limit
//! the rate.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use super::Policy;
use crate::report::{self, median, row};
use crate::server::{Kind, Server};

/// So many that the kernel's choice by addresses and ports is nearly even.
const CLIENTS: usize = 256;

/// Between two connections: long enough for the worker that took one to be idle again.
const APART: Duration = Duration::from_millis(2);

/// The steady pace, as a share of the server's maximum under its best policy.
const SHARE: f64 = 0.7;

/// Nothing came for so long: nothing will come.
const PATIENCE: Duration = Duration::from_secs(20);

const DEAR: &str =
    "GET /dear/text.html HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n";

/// A policy of one server, with a value of each figure for each round.
#[derive(Default)]
pub struct Series {
    rate: Vec<f64>,
    busiest: Vec<f64>,
    mean: Vec<f64>,
    deviation: Vec<f64>,
    errors: u64,
}

/// The clients' results of a round.
#[derive(Default)]
struct Round {
    waits: Vec<Duration>,
    by_worker: BTreeMap<String, usize>,
    errors: u64,
}

/// The clients ask as fast as they are answered.
pub fn saturate(server: &Server, seconds: u32, series: &mut Series) {
    let round = round(server.port, Duration::from_secs(u64::from(seconds)), Duration::ZERO);
    let most = round.by_worker.values().copied().max().unwrap_or(0);
    let all: usize = round.by_worker.values().sum();
    series.rate.push(round.waits.len() as f64 / f64::from(seconds));
    series.busiest.push(100.0 * most as f64 / all.max(1) as f64);
    series.errors += round.errors;
}

/// The clients ask at a steady pace, `rate` a second together.
pub fn pace(server: &Server, seconds: u32, rate: f64, series: &mut Series) {
    let pause = Duration::from_secs_f64(CLIENTS as f64 / rate.max(1.0));
    let round = round(server.port, Duration::from_secs(u64::from(seconds)), pause);
    let ms: Vec<f64> = round.waits.iter().map(|wait| wait.as_secs_f64() * 1e3).collect();
    let (mean, deviation) = super::spread(&ms);
    series.mean.push(mean);
    series.deviation.push(deviation);
    series.errors += round.errors;
}

/// The pace for all policies of one server.
pub fn steady<'a>(all: impl Iterator<Item = (Kind, &'a Series)>, kind: Kind) -> f64 {
    let rates = all.filter(|(k, _)| *k == kind).map(|(_, s)| median(&s.rate));
    SHARE * rates.fold(0.0, f64::max)
}

fn round(port: u16, length: Duration, pause: Duration) -> Round {
    let begin = Instant::now() + APART * CLIENTS as u32 + Duration::from_millis(50);
    let mut all = Round::default();
    std::thread::scope(|scope| {
        let client = |number: usize| {
            scope.spawn(move || {
                std::thread::sleep(APART * number as u32);
                let mut round = Round::default();
                if client(port, number, begin, length, pause, &mut round).is_err() {
                    round.errors += 1;
                }
                round
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        for client in clients {
            let Ok(own) = client.join() else { continue };
            all.waits.extend(own.waits);
            all.errors += own.errors;
            for (worker, count) in own.by_worker {
                *all.by_worker.entry(worker).or_default() += count;
            }
        }
    });
    all
}

fn client(
    port: u16,
    number: usize,
    begin: Instant,
    length: Duration,
    pause: Duration,
    round: &mut Round,
) -> std::io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /pid HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut buffer = vec![0; 64 << 10];
    let len = stream.read(&mut buffer)?;
    let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
    let worker = text.rsplit("\r\n\r\n").next().unwrap_or_default();
    *round.by_worker.entry(worker.to_string()).or_default() += 1;
    std::thread::sleep(begin.saturating_duration_since(Instant::now()));
    // Not all at once where there is a pace.
    std::thread::sleep(pause * number as u32 / CLIENTS as u32);
    let mut next = Instant::now();
    while begin.elapsed() < length {
        let asked = Instant::now();
        stream.write_all(DEAR.as_bytes())?;
        answer(&mut stream, &mut buffer)?;
        round.waits.push(asked.elapsed());
        next += pause;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Reads an answer in the chunked coding to its end.
fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> std::io::Result<()> {
    let mut last = Vec::new();
    loop {
        let len = stream.read(buffer)?;
        if len == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        last.extend_from_slice(&buffer[..len]);
        if last.ends_with(b"\r\n0\r\n\r\n") {
            return Ok(());
        }
        last.drain(..last.len().saturating_sub(7));
    }
}

pub fn print(servers: &[(Server, &Policy, super::Series)]) {
    println!(
        "\n{CLIENTS} kept connections that came one by one, and compressed answers of 100 KB; the \
         mean and its deviation at {:.0} % of the rate:",
        100.0 * SHARE
    );
    let mut rows = vec![row([
        "server",
        "policy",
        "requests/s",
        "busiest worker's connections",
        "paced: mean ms",
        "deviation ms",
        "errors",
    ])];
    for (server, policy, s) in servers {
        let s = &s.kept;
        rows.push(row([
            server.kind.name(),
            policy.name,
            &format!("{:.0}", median(&s.rate)),
            &format!("{:.0} %", median(&s.busiest)),
            &format!("{:.1}", median(&s.mean)),
            &format!("{:.1}", median(&s.deviation)),
            &s.errors.to_string(),
        ]));
    }
    report::table(&rows);
}
