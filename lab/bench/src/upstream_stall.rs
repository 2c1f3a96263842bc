//! Clients that do not read, beside others on the same connection to a server over HTTP/2: they
//! stall their own streams alone.
//!
//! Rounds with and without them follow each other, in an order that alternates. Ratios are taken
//! within such a pair, and their median decides.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::options::Options;
use crate::report::{self, median, row};
use crate::server::{Kind, Server};
use crate::{Outcome, client, proc, upstream_h2, wrk};

/// Clients that do not read.
const STALLED: usize = 8;
/// Clients that do. Together they are fewer than the streams of a connection.
const CLIENTS: usize = 64;
/// Bytes of the answer that is not read: more than all buffers on the way.
const LONG: u64 = 1 << 30;
/// The time in which buffers fill.
const FILLING: Duration = Duration::from_millis(500);
/// Pairs of rounds for each round asked for.
const PAIRS: usize = 3;
/// The part of their rate that others keep at least.
const KEPT: f64 = 0.95;

/// The figures of rounds.
#[derive(Default)]
struct Figures {
    rate: Vec<f64>,
    cpu_us: Vec<f64>,
    /// Connections to the server behind.
    connections: Vec<f64>,
}

/// Established connections to a port.
fn connections_to(port: u16) -> Outcome<usize> {
    let text = fs::read_to_string("/proc/net/tcp").map_err(|e| e.to_string())?;
    let to = format!(":{port:04X}");
    let is_one = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        words.next().is_some_and(|peer| peer.ends_with(&to)) && words.next() == Some("01")
    };
    Ok(text.lines().filter(is_one).count())
}

/// Begins an answer, and leaves it behind its first bytes.
fn stalled(port: u16) -> Outcome<TcpStream> {
    let begun = client::connect(port, Duration::from_secs(10)).and_then(|mut stream| {
        stream.write_all(b"GET /stalled/long.bin HTTP/1.1\r\nHost: a\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        let is_answer = &head == b"HTTP/1.1 200";
        if is_answer { Ok(stream) } else { Err(std::io::ErrorKind::InvalidData.into()) }
    });
    begun.map_err(|e| format!("a stalled client: {e}"))
}

fn round(server: &Server, seconds: u32, backend: u16, with: bool, to: &mut Figures) -> Outcome {
    let count = if with { STALLED } else { 0 };
    let held: Vec<TcpStream> = (0..count).map(|_| stalled(server.port)).collect::<Outcome<_>>()?;
    std::thread::sleep(FILLING);
    let before = proc::cpu_ns(&server.pids());
    let (port, connections) = (server.port, CLIENTS);
    let (path, pipeline, close, files) = ("/1k.txt", false, false, None);
    let load = wrk::Load { port, path, connections, seconds, pipeline, close, files };
    let result = wrk::run(&load)?;
    let cpu_ns = proc::cpu_ns(&server.pids()) - before;
    if result.failures() > 0 {
        return Err(format!("{} requests failed", result.failures()));
    }
    to.connections.push(connections_to(backend)? as f64);
    drop(held);
    to.rate.push(result.rate());
    to.cpu_us.push(cpu_ns as f64 / 1000.0 / result.requests.max(1) as f64);
    // Sockets and streams of the round go.
    std::thread::sleep(Duration::from_millis(200));
    Ok(())
}

/// Runs the load.
pub fn run(options: &Options) -> Outcome {
    let (backend, h2_port) = upstream_h2::backend(options)?;
    let folder = backend.prefix.join("site/stalled");
    let made = fs::create_dir(&folder).and_then(|()| fs::File::create(folder.join("long.bin")));
    made.and_then(|file| file.set_len(LONG)).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut rows = vec![row(["server", "stalled", "req/s", "CPU us/req", "connections"])];
    let mut ratios = Vec::new();
    let mut worst = f64::INFINITY;
    // nginx has a connection for each request.
    for &kind in options.servers.iter().filter(|k| k.is_real() && **k != Kind::Nginx) {
        let (setup, _) = upstream_h2::setup(kind, "2", h2_port)?;
        let (server, _) = Server::start(options, kind, &setup)?;
        let (mut without, mut with) = (Figures::default(), Figures::default());
        round(&server, 1, h2_port, false, &mut Figures::default())?;
        for n in 0..options.rounds * PAIRS {
            let mut one = |is_with: bool| {
                let to = if is_with { &mut with } else { &mut without };
                round(&server, options.seconds.min(2), h2_port, is_with, to)
            };
            one(n % 2 == 1)?;
            one(n % 2 == 0)?;
        }
        for (stalled, figures) in [("0", &without), (&STALLED.to_string(), &with)] {
            rows.push(row([
                kind.name(),
                stalled,
                &format!("{:.0}", median(&figures.rate)),
                &format!("{:.2}", median(&figures.cpu_us)),
                &format!("{:.0}", median(&figures.connections)),
            ]));
        }
        ratios.push(format!(
            "{} with / without: req/s {}, CPU {}",
            kind.name(),
            report::ratios(&with.rate, &without.rate),
            report::ratios(&with.cpu_us, &without.cpu_us)
        ));
        let kept: Vec<f64> = with.rate.iter().zip(&without.rate).map(|(a, b)| a / b).collect();
        worst = worst.min(median(&kept));
        if median(&with.connections) != 1.0 {
            return Err(format!("{} does not share one connection in most rounds", kind.name()));
        }
    }
    report::table(&rows);
    ratios.iter().for_each(|line| println!("{line}"));
    match worst < KEPT {
        true => Err(format!("others keep {worst:.2} of their rate, less than {KEPT}")),
        false => Ok(()),
    }
}
