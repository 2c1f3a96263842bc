//! The load of TLS handshakes: connect, shake hands, say goodbye, and wait until the server has
//! closed, over and over, on a number of threads.
//!
//! `handshakes PORT THREADS SECONDS full|resumed`: prints a line of figures as wrk's reports do. A
//! handshake of another kind than the wanted one counts as an error of status.

#![forbid(unsafe_code)]

#[path = "../../../bench/src/tls/client.rs"]
mod client;

use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};

const USAGE: &str = "usage: handshakes PORT THREADS SECONDS full|resumed";

/// Nothing came for so long: nothing will come.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments.iter().filter_map(|a| a.parse().ok()).collect();
    let kind = match arguments.last().map(String::as_str) {
        Some("full") => HandshakeKind::Full,
        Some("resumed") => HandshakeKind::Resumed,
        _ => return usage(),
    };
    let &[port, threads @ 1..=256, seconds] = numbers.as_slice() else { return usage() };
    let (began, length) = (Instant::now(), Duration::from_secs(seconds));
    let run = || run(port as u16, kind, began + length);
    let mut all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let mut all = Counts::default();
        for own in threads.into_iter().filter_map(|thread| thread.join().ok()) {
            all.add(own);
        }
        all
    });
    println!("{}", all.line(began.elapsed()));
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

#[derive(Default)]
struct Counts {
    waits_us: Vec<u64>,
    connect: u64,
    failed: u64,
    other_kind: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.waits_us.extend(other.waits_us);
        self.connect += other.connect;
        self.failed += other.failed;
        self.other_kind += other.other_kind;
    }

    fn line(&mut self, took: Duration) -> String {
        self.waits_us.sort_unstable();
        let count = self.waits_us.len();
        let at = |share: usize| self.waits_us.get(count * share / 100).copied().unwrap_or(0);
        let mean = self.waits_us.iter().sum::<u64>() / count.max(1) as u64;
        let apart = |us: &u64| (*us as f64 - mean as f64).powi(2);
        let variance = self.waits_us.iter().map(apart).sum::<f64>() / count.max(1) as f64;
        let Counts { connect, failed, other_kind, .. } = self;
        format!(
            "RESULT {count} {} 0 {connect} {failed} 0 {other_kind} 0 {} {} {mean} {:.0} {}",
            took.as_micros(),
            at(50),
            at(99),
            variance.sqrt(),
            self.waits_us.last().copied().unwrap_or(0)
        )
    }
}

fn run(port: u16, wanted: HandshakeKind, end: Instant) -> Counts {
    let mut counts = Counts::default();
    let Ok(mut config) = client::config() else { return counts };
    config.resumption = match wanted {
        HandshakeKind::Resumed => Resumption::in_memory_sessions(8),
        _ => Resumption::disabled(),
    };
    let config = Arc::new(config);
    // The first one has nothing to resume.
    let mut first = wanted == HandshakeKind::Resumed;
    while Instant::now() < end {
        let began = Instant::now();
        let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
            counts.connect += 1;
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        match shake_hands(stream, &config) {
            Ok((kind, took)) if kind == wanted => {
                counts.waits_us.push((took - began).as_micros() as u64);
            }
            Ok(_) if first => {}
            Ok(_) => counts.other_kind += 1,
            Err(_) => counts.failed += 1,
        }
        first = false;
    }
    counts
}

/// Gives the kind of the handshake, and when it was over.
fn shake_hands(
    mut stream: TcpStream,
    config: &Arc<ClientConfig>,
) -> io::Result<(HandshakeKind, Instant)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut tls =
        ClientConnection::new(config.clone(), client::name()).map_err(io::Error::other)?;
    while tls.is_handshaking() || tls.wants_write() {
        tls.complete_io(&mut stream)?;
    }
    let over = Instant::now();
    let kind = tls.handshake_kind().ok_or_else(|| io::Error::other("no handshake"))?;
    tls.send_close_notify();
    while tls.wants_write() {
        tls.write_tls(&mut stream)?;
    }
    stream.shutdown(Shutdown::Write)?;
    // The server's tickets, and its end: all that it does for a handshake is done then.
    while tls.read_tls(&mut stream)? > 0 {
        tls.process_new_packets().map_err(io::Error::other)?;
    }
    // What came behind the server's own goodbye.
    let _ = stream.read(&mut [0; 16]);
    Ok((kind, over))
}
