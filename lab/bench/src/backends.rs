//! Upstreams under trouble and over time: `backends` kills and restarts them at random and counts
//! the results of requests; `reuse` counts the connections that requests took.
//!
//! The backends are threads here. Each request has a number, which the answer must bear; a POST
//! that a backend saw twice was repeated against the rules.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::server::{Kind, Server, Setup, free_port};
use crate::{Outcome, client};
use testkit::rng::Rng;

const CONFIG: &str = include_str!("../configs/balance.conf");
const CLIENTS: u64 = 24;
/// Interval between disturbances of a backend.
const EVERY: Duration = Duration::from_millis(300);

/// The requests that the backends saw, all together.
#[derive(Default)]
pub struct Seen {
    /// Requests that came whole.
    pub requests: AtomicU64,
    /// Connections that were accepted.
    pub connections: AtomicU64,
    /// The number of times that each POST came.
    pub posts: Mutex<HashMap<u64, u32>>,
    /// The answer to a request of a given number.
    pub answer: Answer,
}

/// A backend's answer.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Answer {
    /// With the number's tag, after a moment.
    #[default]
    Tag,
    /// With its long tag, some of them in pieces.
    LongTag,
    /// Not at all: it closes.
    Close,
}

/// A thread that serves.
pub struct Backend {
    /// Its port on 127.0.0.1.
    pub port: u16,
    alive: Arc<AtomicBool>,
    /// Another handle of each connection, by its number, to break it.
    open: Arc<Mutex<HashMap<u64, TcpStream>>>,
    seen: Arc<Seen>,
}

/// Locks; a thread that panicked changes nothing about it.
pub fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend {
    /// One that listens, and counts there.
    pub fn new(seen: &Arc<Seen>) -> Outcome<Self> {
        let b = Self {
            port: free_port()?,
            alive: Arc::new(AtomicBool::new(false)),
            open: Arc::default(),
            seen: seen.clone(),
        };
        b.start()?;
        Ok(b)
    }

    /// Listens again.
    fn start(&self) -> Outcome {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))
            .and_then(|l| l.set_nonblocking(true).map(|()| l))
            .map_err(|e| format!("a backend's port: {e}"))?;
        self.alive.store(true, Ordering::SeqCst);
        let (alive, open, seen) = (self.alive.clone(), self.open.clone(), self.seen.clone());
        std::thread::spawn(move || {
            while alive.load(Ordering::SeqCst) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let number = seen.connections.fetch_add(1, Ordering::Relaxed);
                if let Ok(copy) = stream.try_clone() {
                    locked(&open).insert(number, copy);
                }
                let (seen, open) = (seen.clone(), open.clone());
                std::thread::spawn(move || {
                    serve(stream, &seen);
                    locked(&open).remove(&number);
                });
            }
        });
        Ok(())
    }

    /// Ends as a process does that is killed: its connections break.
    pub fn kill(&self) {
        self.alive.store(false, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(5));
        for (_, stream) in locked(&self.open).drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads one message: its head as text and its body. Bytes behind it stay in `buf`.
pub fn message(stream: &mut TcpStream, buf: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let mut page = [0; 16 << 10];
    loop {
        if let Some(end) = buf.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buf[..end + 4]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            let whole = end + 4 + length.unwrap_or(0usize);
            if buf.len() >= whole {
                let body = buf[end + 4..whole].to_vec();
                buf.drain(..whole);
                return Some((head, body));
            }
        }
        match stream.read(&mut page) {
            Ok(0) | Err(_) => return None,
            Ok(n) => buf.extend_from_slice(&page[..n]),
        }
    }
}

/// The number in a message's first line: `/n123`.
fn number(head: &str) -> Option<u64> {
    let digits = head.split("/n").nth(1)?;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn serve(mut stream: TcpStream, seen: &Seen) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_nodelay(true);
    let mut buf = Vec::new();
    while let Some((head, body)) = message(&mut stream, &mut buf) {
        let Some(n) = number(&head) else { return };
        seen.requests.fetch_add(1, Ordering::Relaxed);
        if head.starts_with("POST") {
            *locked(&seen.posts).entry(n).or_default() += 1;
            if body != tag(n) {
                return;
            }
        }
        if seen.answer == Answer::Close {
            return;
        }
        if head.contains("pgrade: websocket") {
            return echo(&mut stream, &buf);
        }
        std::thread::sleep(Duration::from_micros(n % 5 * 400));
        let long = seen.answer == Answer::LongTag;
        let text = if long { long_tag(n) } else { tag(n) };
        let mut out =
            format!("HTTP/1.1 200 OK\r\nX-Number: {n}\r\nContent-Length: {}\r\n\r\n", text.len())
                .into_bytes();
        out.extend_from_slice(&text);
        let cut = if long && n % 3 == 0 { out.len() / 2 } else { 0 };
        let first = stream.write_all(&out[..cut]);
        if cut > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        if first.and_then(|()| stream.write_all(&out[cut..])).is_err() {
            return;
        }
    }
}

/// Sends the received bytes back, until the end.
fn echo(stream: &mut TcpStream, begun: &[u8]) {
    let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                Connection: Upgrade\r\n\r\n";
    let mut page = [0; 4096];
    let mut sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(begun));
    while sent.is_ok() {
        let Ok(len @ 1..) = stream.read(&mut page) else { return };
        sent = stream.write_all(&page[..len]);
    }
}

/// The same for answers that are longer: one in 64 is larger than all buffers together.
pub fn long_tag(n: u64) -> Vec<u8> {
    let more = if n.is_multiple_of(64) { 100 } else { 1 };
    tag(n).repeat(more)
}

/// The body of a request's number, and of its answer.
pub fn tag(n: u64) -> Vec<u8> {
    format!("<{n}>").repeat(1 + n as usize % 200).into_bytes()
}

/// The results of requests.
#[derive(Default)]
pub struct Counts {
    pub ok: AtomicU64,
    pub get_lost: AtomicU64,
    pub post_lost: AtomicU64,
    pub mixed: AtomicU64,
}

/// Adds one.
pub fn one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Asks until the time is over.
fn ask(port: u16, client: u64, until: Instant, posts: bool, counts: &Counts) -> Outcome {
    let mut rng = Rng::new(100 + client);
    let connect = || client::connect(port, Duration::from_secs(20)).map_err(|e| e.to_string());
    let (mut stream, mut buf) = (connect()?, Vec::new());
    let mut next = client << 40;
    while Instant::now() < until {
        next += 1;
        let post = posts && rng.below(3) == 0;
        let (method, body) = if post { ("POST", tag(next)) } else { ("GET", Vec::new()) };
        let length =
            if post { format!("Content-Length: {}\r\n", body.len()) } else { String::new() };
        let mut text =
            format!("{method} /n{next} HTTP/1.1\r\nHost: a\r\n{length}\r\n").into_bytes();
        text.extend_from_slice(&body);
        let answer = match stream.write_all(&text) {
            Ok(()) => message(&mut stream, &mut buf),
            Err(_) => None,
        };
        match answer {
            Some((head, body)) if head.starts_with("HTTP/1.1 200") => {
                one(if body == tag(next) { &counts.ok } else { &counts.mixed });
            }
            other => {
                one(if post { &counts.post_lost } else { &counts.get_lost });
                if other.is_none() {
                    (stream, buf) = (connect()?, Vec::new());
                }
            }
        }
        std::thread::sleep(Duration::from_micros(rng.below(2000) as u64));
    }
    Ok(())
}

/// Runs the clients, and `beside` them until they have ended.
pub fn drive(
    port: u16,
    seconds: u32,
    posts: bool,
    counts: &Counts,
    beside: impl Fn(&AtomicBool) + Send + Sync,
) -> Outcome {
    let until = Instant::now() + Duration::from_secs(seconds.into());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let helper = scope.spawn(|| beside(&over));
        let clients: Vec<_> = (1..=CLIENTS)
            .map(|n| scope.spawn(move || ask(port, n, until, posts, counts)))
            .collect();
        let done: Vec<Outcome> = clients
            .into_iter()
            .map(|c| c.join().unwrap_or(Err("a client panicked".to_string())))
            .collect();
        over.store(true, Ordering::SeqCst);
        let _ = helper.join();
        done.into_iter().collect()
    })
}

/// Three servers behind, with connections kept.
pub fn setup(backends: &[Backend], workers: usize, keepalive: &str) -> Setup {
    let ports: Vec<u16> = backends.iter().map(|b| b.port).collect();
    setup_with(&ports, &Terms { workers, keepalive, ..Terms::default() })
}

/// The terms of a server between clients and backends.
pub struct Terms<'a> {
    pub workers: usize,
    pub keepalive: &'a str,
    /// `proxy_http_version`.
    pub version: &'a str,
    /// Its clients may speak HTTP/2.
    pub http2: bool,
    /// Requests of a client's connection.
    pub requests: u64,
}

impl Default for Terms<'_> {
    fn default() -> Self {
        Terms { workers: 2, keepalive: "16", version: "1.1", http2: false, requests: 1_000_000_000 }
    }
}

/// The same with servers behind at these ports.
pub fn setup_with(ports: &[u16], terms: &Terms<'_>) -> Setup {
    let servers: String = ports
        .iter()
        .map(|port| format!("server 127.0.0.1:{port} max_fails=0;\n        "))
        .collect();
    let fill = vec![
        ("%SERVERS%", servers),
        ("%WORKERS%", terms.workers.to_string()),
        ("%KEEPALIVE%", terms.keepalive.to_string()),
        ("%VERSION%", terms.version.to_string()),
        ("%HTTP2_ON%", if terms.http2 { "http2 on;" } else { "" }.to_string()),
        ("%REQUESTS%", terms.requests.to_string()),
    ];
    Setup { template: CONFIG, connections: 4096, fill, cpus: "0-1", ..Setup::default() }
}

pub fn kinds(options: &Options) -> impl Iterator<Item = Kind> + '_ {
    options.servers.iter().copied().filter(|k| k.is_real())
}

/// The requests that the backends saw twice though they may not be repeated.
pub fn twice(seen: &Seen) -> u64 {
    locked(&seen.posts).values().filter(|n| **n > 1).count() as u64
}

/// Kills and restarts all but one of the backends at random; the one that is spared changes.
fn trouble(backends: &[Backend], over: &AtomicBool) {
    let mut rng = Rng::new(7);
    let mut down: Option<usize> = None;
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(EVERY / 2 + EVERY * rng.below(100) as u32 / 100);
        match down.take() {
            Some(i) => {
                // The port may be held a moment by connections that end.
                while !over.load(Ordering::SeqCst) && backends[i].start().is_err() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            None => {
                let i = rng.below(backends.len());
                backends[i].kill();
                down = Some(i);
            }
        }
    }
}

/// Runs the load `backends`.
pub fn run(options: &Options, _: &str) -> Outcome {
    println!("server  keepalive      answered  GET lost  POST lost  POST twice  mixed up");
    let (mut wrong, mut of_nginx, mut lost) = (0, 0, 0);
    for kind in kinds(options) {
        for keepalive in ["16", "16 shared"] {
            if kind == Kind::Nginx && keepalive != "16" {
                continue;
            }
            let seen = Arc::new(Seen::default());
            let backends: Vec<Backend> =
                (0..3).map(|_| Backend::new(&seen)).collect::<Outcome<_>>()?;
            let (server, _) = Server::start(options, kind, &setup(&backends, 2, keepalive))?;
            let counts = Counts::default();
            drive(server.port, options.seconds, true, &counts, |over| trouble(&backends, over))?;
            let twice = twice(&seen);
            let of = |c: &AtomicU64| c.load(Ordering::Relaxed);
            println!(
                "{:<7} {keepalive:<12} {:>10} {:>9} {:>10} {twice:>11} {:>9}",
                kind.name(),
                of(&counts.ok),
                of(&counts.get_lost),
                of(&counts.post_lost),
                of(&counts.mixed)
            );
            if kind == Kind::Nginx {
                of_nginx = of(&counts.get_lost);
            } else {
                wrong += twice + of(&counts.mixed);
                lost = lost.max(of(&counts.get_lost));
            }
        }
    }
    match (wrong, lost > of_nginx) {
        (0, false) => Ok(()),
        (0, true) => Err(format!("{lost} GETs lost, and {of_nginx} by nginx")),
        _ => Err(format!("{wrong} answers mixed up or requests repeated")),
    }
}

/// Runs the load `reuse`.
pub fn reuse(options: &Options, _: &str) -> Outcome {
    println!("server  workers  keepalive     requests  connections  reuse");
    for kind in kinds(options) {
        for workers in [2, 8] {
            for keepalive in ["8", "8 shared"] {
                if kind == Kind::Nginx && keepalive != "8" {
                    continue;
                }
                let seen = Arc::new(Seen::default());
                let backends: Vec<Backend> =
                    (0..3).map(|_| Backend::new(&seen)).collect::<Outcome<_>>()?;
                let (server, _) =
                    Server::start(options, kind, &setup(&backends, workers, keepalive))?;
                let counts = Counts::default();
                drive(server.port, options.seconds, false, &counts, |_| ())?;
                let requests = seen.requests.load(Ordering::Relaxed);
                let connections = seen.connections.load(Ordering::Relaxed);
                let reuse = 100.0 - 100.0 * connections as f64 / requests.max(1) as f64;
                println!(
                    "{:<7} {workers:>7}  {keepalive:<10} {requests:>11} {connections:>12} \
                     {reuse:>5.1}%",
                    kind.name()
                );
            }
        }
    }
    Ok(())
}
