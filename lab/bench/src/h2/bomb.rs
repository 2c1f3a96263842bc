//! Requests whose fields are small on the wire and large in memory, on streams that cannot be
//! answered: the memory that they hold.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::h2::{Frame, flag, indexed, kind, literal_indexed, setting};

use super::setup;
use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server};
use crate::tls::Certificate;
use crate::{Outcome, proc};
use testkit::h2::scan::{self as client, Scan};

const CONNECTIONS: usize = 10;
const STREAMS: u32 = 100;
/// Settings that keep every body back.
const SHUT: &[(u16, u32)] = &[(setting::INITIAL_WINDOW_SIZE, 0)];

/// A field that goes into the dynamic table once, and how often each request refers to it.
struct Bomb {
    name: &'static str,
    field: &'static str,
    value: usize,
    references: usize,
}

const BOMBS: [Bomb; 4] = [
    Bomb { name: "900 fields of 34 bytes", field: "x", value: 33, references: 900 },
    // These are joined, too.
    Bomb { name: "900 cookies of 34 bytes", field: "cookie", value: 28, references: 900 },
    Bomb { name: "7 fields of 4 KB", field: "x", value: 4000, references: 7 },
    Bomb { name: "900 fields of 4 KB", field: "x", value: 4000, references: 900 },
];

/// The responses of all streams.
#[derive(Default)]
struct Answers {
    heads: usize,
    resets: usize,
    goaways: usize,
    closed: usize,
}

/// Measures every real server with every bomb.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let certificate = Certificate::new(false)?;
    let mut rows = vec![row([
        "each request has",
        "server",
        "sent KB",
        "held MB",
        "KB a stream",
        "after they left MB",
        "answers held back",
        "resets",
        "GOAWAY",
        "closed",
    ])];
    for bomb in &BOMBS {
        for &kind in options.servers.iter().filter(|k| k.is_real()) {
            rows.push(one(options, kind, &certificate, bomb)?);
        }
    }
    report::table(&rows);
    println!(
        "({CONNECTIONS} connections of {STREAMS} streams; private dirty memory of the worker)"
    );
    Ok(())
}

fn one(
    options: &Options,
    kind: Kind,
    certificate: &Certificate,
    bomb: &Bomb,
) -> Outcome<Vec<String>> {
    let (setup, ports) = setup(kind, certificate, 9)?;
    let (server, _) = Server::start(options, kind, &setup)?;
    let port = ports.clear;
    // Pools and tables for ordinary requests are no part of it.
    let failed = |e: std::io::Error| format!("{}: {e}", kind.name());
    let mut usual = client::connect(port).map_err(failed)?;
    usual.write_all(&client::start(&[])).map_err(failed)?;
    client::ask(&mut usual, &mut Scan::default(), 1, "/1k.txt").map_err(failed)?;
    let before = settled(&server);
    let (mut sent, mut held) = (0, Vec::new());
    for _ in 0..CONNECTIONS {
        let (stream, length) = drop_one(port, bomb).map_err(failed)?;
        sent += length;
        held.push(stream);
    }
    let answers = held.iter_mut().map(answers).collect::<Vec<_>>();
    let sum = |of: fn(&Answers) -> usize| answers.iter().map(of).sum::<usize>().to_string();
    let growth = settled(&server).saturating_sub(before) as f64;
    drop(held);
    std::thread::sleep(Duration::from_secs(2));
    let after = settled(&server).saturating_sub(before) as f64;
    let streams = CONNECTIONS as f64 * f64::from(STREAMS);
    Ok(row([
        bomb.name,
        kind.name(),
        &(sent / 1024).to_string(),
        &report::megabytes(growth),
        &format!("{:.1}", growth / 1024.0 / streams),
        &report::megabytes(after),
        &sum(|a| a.heads),
        &sum(|a| a.resets),
        &sum(|a| a.goaways),
        &sum(|a| a.closed),
    ]))
}

/// The worker's memory after a moment of rest.
fn settled(server: &Server) -> u64 {
    std::thread::sleep(Duration::from_millis(300));
    proc::memory(&[server.worker()]).private_dirty
}

/// Sends all requests of a connection; gives their bytes. A server may end the connection before.
fn drop_one(port: u16, bomb: &Bomb) -> std::io::Result<(TcpStream, usize)> {
    let mut stream = client::connect(port)?;
    stream.set_write_timeout(Some(Duration::from_secs(2)))?;
    let mut sent = 0;
    let mut send = |bytes: &[u8]| {
        sent += bytes.len();
        stream.write_all(bytes)
    };
    send(&client::start(SHUT))?;
    let head = client::head("GET", "/1k.txt");
    for n in 0..STREAMS {
        let field = match n {
            0 => literal_indexed(bomb.field, vec![b'v'; bomb.value]),
            _ => indexed(62),
        };
        let more = indexed(62).repeat(bomb.references - 1);
        let block = [&head[..], &field, &more].concat();
        if send(&Frame::headers(2 * n + 1, block, true).encode()).is_err() {
            break;
        }
    }
    Ok((stream, sent))
}

/// Reads what comes until nothing more does.
fn answers(stream: &mut TcpStream) -> Answers {
    let (mut scan, mut answers) = (Scan::default(), Answers::default());
    let mut buffer = [0; 16_384];
    let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        match stream.read(&mut buffer) {
            Ok(0) => {
                answers.closed = 1;
                break;
            }
            Ok(length) => scan.feed(&buffer[..length], |frame| match frame.kind {
                kind::HEADERS if frame.flags & flag::END_STREAM == 0 => answers.heads += 1,
                kind::RST_STREAM => answers.resets += 1,
                kind::GOAWAY => answers.goaways += 1,
                _ => {}
            }),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
            Err(_) => {
                answers.closed = 1;
                break;
            }
        }
    }
    answers
}
