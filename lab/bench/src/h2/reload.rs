//! Reload after reload under clients with many streams at once: what becomes of each stream.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use testkit::h2::{Frame, code, flag, kind, setting};

use super::prompt_setup;
use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server};
use crate::tls::Certificate;
use crate::{Outcome, proc, storm};
use testkit::h2::scan::{self as client, Scan, Seen};

const CONNECTIONS: usize = 8;
const STREAMS: usize = 32;
/// One request in so many is for the large file.
const LARGE_EVERY: u32 = 8;
const FILES: [(&str, usize); 2] = [("/1k.txt", 1 << 10), ("/100k.bin", 100 << 10)];
/// Bytes of a connection after which its window is given back.
const REFILL: u32 = 1 << 30;

macro_rules! counts {
    ($($(#[doc = $doc:literal])* $name:ident: $title:literal,)*) => {
        /// The ends of streams and connections.
        #[derive(Default)]
        struct Counts { $($(#[doc = $doc])* $name: AtomicU64,)* }

        impl Counts {
            const TITLES: &'static [&'static str] = &[$($title),*];

            fn all(&self) -> Vec<u64> {
                vec![$(self.$name.load(Ordering::Relaxed)),*]
            }
        }
    };
}

counts! {
    connections: "connections",
    answered: "answered",
    /// Above GOAWAY's last stream, or refused: asked again.
    retried: "told to retry",
    /// Up to GOAWAY's last stream, and not answered.
    lost: "lost",
    /// The connection ended without GOAWAY.
    cut: "cut",
    reset: "reset",
    wrong: "wrong",
    hung: "hung",
    refused: "not connected",
}

impl Counts {
    fn failures(&self) -> u64 {
        let each = [&self.lost, &self.cut, &self.reset, &self.wrong, &self.hung, &self.refused];
        each.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

fn add(to: &AtomicU64, count: usize) {
    to.fetch_add(count as u64, Ordering::Relaxed);
}

/// Runs against every real server, one after the other.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let certificate = Certificate::new(false)?;
    let mut titles = row(["server", "reloads"]);
    titles.extend(Counts::TITLES.iter().map(ToString::to_string));
    titles.extend(row(["processes", "alerts"]));
    let mut rows = vec![titles];
    let mut wrong = false;
    let time = Duration::from_secs(options.storm_seconds.into());
    for &kind in options.servers.iter().filter(|k| k.is_real()) {
        let (setup, ports) = prompt_setup(kind, &certificate, 9)?;
        let (server, _) = Server::start(options, kind, &setup)?;
        let processes = server.all_pids().len();
        let counts = Counts::default();
        let until = Instant::now() + time;
        let reloads = std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| clients(scope, ports.clear, until, &counts));
            }
            storm::blow(&server, time, false)
        });
        // The last workers to leave have a second for it.
        std::thread::sleep(Duration::from_secs(3));
        let alerts = server.alerts();
        let mut cells = row([kind.name(), &reloads.to_string()]);
        cells.extend(counts.all().iter().map(ToString::to_string));
        cells.push(format!("{processes} -> {}", server.all_pids().len()));
        cells.push(alerts.to_string());
        rows.push(cells);
        wrong |= kind != Kind::Nginx && (counts.failures() > 0 || alerts > 0);
    }
    report::table(&rows);
    if wrong { Err("streams failed".to_string()) } else { Ok(()) }
}

/// One connection after the other: the next begins when the server tells the last to go, which a
/// thread of its own brings to its end.
fn clients<'s>(scope: &'s Scope<'s, '_>, port: u16, until: Instant, counts: &'s Counts) {
    proc::pin(1);
    while Instant::now() < until {
        let Ok(mut client) = Client::new(port, counts) else {
            add(&counts.refused, 1);
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        add(&counts.connections, 1);
        if client.run(until) == Next::Drain {
            scope.spawn(move || client.run(until));
        }
    }
}

/// The next step of a connection.
#[derive(PartialEq, Eq)]
enum Next {
    /// To be read to the end of its streams.
    Drain,
    Nothing,
}

/// A stream that is not answered yet.
struct Waiting {
    ok: bool,
    missing: usize,
}

struct Client<'s> {
    socket: TcpStream,
    scan: Scan,
    waiting: BTreeMap<u32, Waiting>,
    next_stream: u32,
    /// The last stream of GOAWAY.
    last_stream: Option<u32>,
    /// Bytes since the connection's window was given back.
    used: u32,
    counts: &'s Counts,
}

impl<'s> Client<'s> {
    fn new(port: u16, counts: &'s Counts) -> Result<Self> {
        let mut socket = client::connect(port)?;
        socket.write_all(&client::start(&[(setting::INITIAL_WINDOW_SIZE, 1 << 20)]))?;
        let (scan, waiting) = (Scan::default(), BTreeMap::new());
        Ok(Self { socket, scan, waiting, next_stream: 1, last_stream: None, used: 0, counts })
    }

    /// Asks and reads until the server tells to go; called again, until all is answered.
    fn run(&mut self, until: Instant) -> Next {
        let draining = self.last_stream.is_some();
        let mut buffer = vec![0; 65_536];
        loop {
            let open = self.last_stream.is_none() && Instant::now() < until;
            if open {
                // A failure shows when reading, behind what the server said before.
                let _ = self.ask();
            } else if self.waiting.is_empty() {
                return Next::Nothing;
            }
            if self.last_stream.is_some() && !draining {
                return Next::Drain;
            }
            match self.socket.read(&mut buffer) {
                Ok(0) => return self.ended(),
                Ok(length) => self.take(&buffer[..length]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    add(&self.counts.hung, self.waiting.len().max(1));
                    return Next::Nothing;
                }
                Err(_) => return self.ended(),
            }
        }
    }

    /// Keeps the number of streams.
    fn ask(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        while self.waiting.len() < STREAMS {
            let id = self.next_stream;
            let (path, length) = FILES[usize::from((id / 2).is_multiple_of(LARGE_EVERY))];
            bytes.extend(Frame::headers(id, client::head("GET", path), true).encode());
            self.waiting.insert(id, Waiting { ok: false, missing: length });
            self.next_stream += 2;
        }
        if self.used > REFILL {
            bytes.extend(Frame::window_update(0, self.used).encode());
            self.used = 0;
        }
        self.socket.write_all(&bytes)
    }

    fn take(&mut self, bytes: &[u8]) {
        let mut scan = std::mem::take(&mut self.scan);
        let mut answers = Vec::new();
        scan.feed(bytes, |frame| self.frame(frame, &mut answers));
        self.scan = scan;
        let _ = self.socket.write_all(&answers);
    }

    fn frame(&mut self, frame: Seen<'_>, answers: &mut Vec<u8>) {
        let counts = self.counts;
        match frame.kind {
            kind::SETTINGS if frame.flags & flag::ACK == 0 => {
                answers.extend(Frame::settings_ack().encode());
            }
            kind::PING if frame.flags & flag::ACK == 0 => {
                answers.extend(Frame::new(kind::PING, flag::ACK, 0, frame.payload).encode());
            }
            kind::GOAWAY => {
                let last = frame.number(0) & 0x7fff_ffff;
                self.last_stream = Some(last);
                let above = self.waiting.split_off(&(last.saturating_add(1)));
                add(&counts.retried, above.len());
            }
            kind::RST_STREAM if self.waiting.remove(&frame.stream).is_some() => {
                let refused = frame.number(0) == code::REFUSED_STREAM;
                add(if refused { &counts.retried } else { &counts.reset }, 1);
            }
            kind::HEADERS | kind::DATA => {
                let Some(waiting) = self.waiting.get_mut(&frame.stream) else { return };
                waiting.ok |= frame.is_ok();
                if frame.kind == kind::DATA {
                    let length = frame.payload.len();
                    self.used += length as u32;
                    waiting.ok &= length <= waiting.missing;
                    waiting.missing = waiting.missing.saturating_sub(length);
                }
                if frame.ends_stream() {
                    let whole = waiting.ok && waiting.missing == 0;
                    self.waiting.remove(&frame.stream);
                    add(if whole { &counts.answered } else { &counts.wrong }, 1);
                }
            }
            _ => {}
        }
    }

    /// Counts what the connection's end leaves unanswered.
    fn ended(&mut self) -> Next {
        let told = self.last_stream.is_some();
        let left = self.waiting.len();
        add(if told { &self.counts.lost } else { &self.counts.cut }, left);
        Next::Nothing
    }
}
