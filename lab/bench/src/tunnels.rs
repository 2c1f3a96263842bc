//! Reload after reload under proxied requests and long tunnels: failures, the life of tunnels, and
//! whether the state of the backends is kept.
//!
//! One of the backends closes every connection unanswered: with `max_fails=1` and a `fail_timeout`
//! of an hour it is tried once, and never again. For weir, another one is added to an upstream by
//! the API and drained; no reload may bring it back. Every second reload changes a parameter that
//! makes a new zone, the others keep it. Tunnels stay with their workers (`handover off`).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::Outcome;
use crate::backends::{Answer, Backend, Seen, locked, message, tag};
use crate::options::Options;
use crate::server::{Kind, Server, Setup, get};
use testkit::rng::Rng;

const CONFIG: &str = include_str!("../configs/tunnels.conf");
const TUNNELS: u64 = 32;
const CLIENTS: u64 = 16;
const RELOAD_EVERY: Duration = Duration::from_millis(500);
/// `worker_shutdown_timeout`.
const SHUTDOWN: Duration = Duration::from_secs(4);
/// The delay that a tunnel's end may have: a reload takes its time on a busy machine.
const SLACK: Duration = Duration::from_secs(3);
/// Clocks of two processes round differently.
const ROUNDING: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(20);

/// The events of the run.
#[derive(Default)]
struct Log {
    answered: AtomicU64,
    /// A kept connection was closed before the request: asked again on another one.
    again: AtomicU64,
    messages: AtomicU64,
    /// The lives of tunnels, in ms, until the server ended them.
    lives: Mutex<Vec<u128>>,
    /// The times of the reloads.
    reloads: Mutex<Vec<Instant>>,
    /// Failures, in a word or two, with their numbers.
    failures: Mutex<BTreeMap<String, u64>>,
}

impl Log {
    fn failed(&self, what: impl Into<String>) {
        *locked(&self.failures).entry(what.into()).or_default() += 1;
    }
}

/// The backends by purpose.
struct Behind {
    healthy: Vec<Backend>,
    seen: Arc<Seen>,
    failing: Backend,
    failing_seen: Arc<Seen>,
    drained: Backend,
    drained_seen: Arc<Seen>,
}

impl Behind {
    fn new() -> Outcome<Self> {
        let seen = Arc::new(Seen::default());
        let failing_seen = Arc::new(Seen { answer: Answer::Close, ..Seen::default() });
        let drained_seen = Arc::new(Seen::default());
        Ok(Self {
            healthy: (0..3).map(|_| Backend::new(&seen)).collect::<Outcome<_>>()?,
            failing: Backend::new(&failing_seen)?,
            drained: Backend::new(&drained_seen)?,
            seen,
            failing_seen,
            drained_seen,
        })
    }

    /// The configuration; every other generation makes the zone `behind` anew.
    fn setup(&self, kind: Kind, generation: u32) -> Setup {
        let ports: Vec<u16> = self.healthy.iter().map(|b| b.port).collect();
        let list = |end: &str| -> String {
            ports
                .iter()
                .map(|port| format!("server 127.0.0.1:{port} max_fails=0{end};\n"))
                .collect()
        };
        let max_conns = if generation.is_multiple_of(4) { " max_conns=1000" } else { "" };
        let failing = self.failing.port;
        let failing = format!("server 127.0.0.1:{failing} max_fails=1 fail_timeout=1h;\n");
        let (told, api) = if kind == Kind::Nginx {
            ("", "")
        } else {
            (
                "upstream told { zone told 256k; state %PREFIX%/tmp/told.conf; }",
                "location /told/ { proxy_pass http://told; }\nlocation /api { api write=on; }",
            )
        };
        let fill = vec![
            ("%SERVERS%", list(max_conns) + &failing),
            ("%TUNNELS%", list("")),
            ("%TOLD%", told.to_string()),
            ("%API%", api.to_string()),
            ("%STAY%", if kind == Kind::Nginx { "" } else { "handover off;" }.to_string()),
            ("%SHUTDOWN%", SHUTDOWN.as_secs().to_string()),
        ];
        let usual = Setup { template: CONFIG, connections: 4096, cpus: "0-1", ..Setup::default() };
        Setup { generation, fill, ..usual }
    }
}

fn connect(port: u16) -> Outcome<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(|e| e.to_string())?;
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// A request to the API; gives the answer's text.
fn api(port: u16, method: &str, path: &str, body: &str) -> Outcome<String> {
    let mut stream = connect(port)?;
    let len = body.len();
    let head = format!("{method} /api/9/http/upstreams{path} HTTP/1.1\r\nHost: a\r\n");
    let text = format!("{head}Content-Length: {len}\r\nConnection: close\r\n\r\n{body}");
    let mut answer = String::new();
    stream
        .write_all(text.as_bytes())
        .and_then(|()| stream.read_to_string(&mut answer))
        .map_err(|e| format!("the API: {e}"))?;
    if answer.starts_with("HTTP/1.1 20") { Ok(answer) } else { Err(format!("the API: {answer}")) }
}

/// All numbers that stand behind this name in JSON.
fn numbers(text: &str, name: &str) -> Vec<u64> {
    let value = |part: &str| part.split([',', '}']).next()?.trim().parse().ok();
    text.split(&format!("\"{name}\":")).skip(1).filter_map(value).collect()
}

/// Puts two servers into the upstream that the API fills, and drains the second.
fn fill_told(server: &Server, behind: &Behind) -> Outcome {
    let mut last = String::new();
    for backend in [&behind.healthy[0], &behind.drained] {
        let text = format!("{{\"server\":\"127.0.0.1:{}\"}}", backend.port);
        last = api(server.port, "POST", "/told/servers", &text)?;
    }
    let id = numbers(&last, "id").first().copied().ok_or("the API gave no id")?;
    api(server.port, "PATCH", &format!("/told/servers/{id}"), "{\"drain\":true}").map(drop)
}

/// Asks until the failing backend is known, or as long as it should take by far.
fn get_to_know(server: &Server, behind: &Behind) -> Outcome {
    for n in 1..=200 {
        get(server.port, "localhost", &format!("/n{n}")).map_err(|e| format!("first: {e}"))?;
    }
    match behind.failing_seen.requests.load(Ordering::Relaxed) {
        0 => Err("the failing backend was never asked".to_string()),
        _ => Ok(()),
    }
}

/// The result of a request.
enum Answered {
    /// Well; the connection may be kept.
    Well(bool),
    /// The connection ended before the first byte.
    Unanswered,
    /// In another way.
    Badly(String),
}

fn exchange(stream: &mut TcpStream, request: &[u8], n: u64) -> Answered {
    let mut buf = Vec::new();
    let sent = stream.write_all(request);
    match sent.ok().and_then(|()| message(stream, &mut buf)) {
        None if buf.is_empty() => Answered::Unanswered,
        None => Answered::Badly("an answer was cut".to_string()),
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => match body == tag(n) {
            true => Answered::Well(!head.contains("Connection: close")),
            false => Answered::Badly("an answer belongs to another request".to_string()),
        },
        Some((head, _)) => {
            let line = head.lines().next().unwrap_or_default();
            Answered::Badly(format!("an answer was {line:?}"))
        }
    }
}

fn ask(port: u16, client: u64, seen: &Seen, log: &Log, over: &AtomicBool, told: bool) {
    let mut rng = Rng::new(client);
    let mut kept: Option<TcpStream> = None;
    let mut n = client << 32;
    while !over.load(Ordering::Relaxed) {
        n += 1;
        let post = rng.percent(30);
        let path = if told && rng.percent(20) { "/told" } else { "" };
        let body = if post { tag(n) } else { Vec::new() };
        let method = if post { "POST" } else { "GET" };
        let len = body.len();
        let head =
            format!("{method} {path}/n{n} HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n");
        let request = [head.as_bytes(), &body].concat();
        loop {
            let was_kept = kept.is_some();
            let Some(mut stream) = kept.take().or_else(|| connect(port).ok()) else {
                log.failed("a connection was refused");
                break;
            };
            match exchange(&mut stream, &request, n) {
                Answered::Well(keep) => {
                    log.answered.fetch_add(1, Ordering::Relaxed);
                    kept = keep.then_some(stream);
                }
                Answered::Unanswered if was_kept && !locked(&seen.posts).contains_key(&n) => {
                    log.again.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Answered::Unanswered => log.failed(format!("a {method} was lost")),
                Answered::Badly(how) => log.failed(how),
            }
            break;
        }
        std::thread::sleep(Duration::from_micros(rng.below(8000) as u64));
    }
}

const UPGRADE: &[u8] = b"GET /tunnel/n1 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A masked binary frame with a unique number.
fn frame(number: u64) -> [u8; 14] {
    let mut frame = [0x82, 0x88, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0];
    frame[6..].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Opens a tunnel, and when it ends, another one.
fn tunnel(port: u16, client: u64, log: &Log, over: &AtomicBool) {
    let mut number = client << 32;
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let opened = connect(port).and_then(|mut stream| {
            stream.write_all(UPGRADE).map_err(|e| e.to_string())?;
            let (head, _) = message(&mut stream, &mut Vec::new()).ok_or("no answer")?;
            let line = head.lines().next().unwrap_or_default().to_string();
            if line.starts_with("HTTP/1.1 101") { Ok(stream) } else { Err(line) }
        });
        match opened {
            Ok(stream) => live(stream, began, &mut number, log, over),
            Err(e) => log.failed(format!("a tunnel did not open: {e}")),
        }
    }
}

/// Sends message after message until the tunnel ends, and judges its life.
fn live(mut stream: TcpStream, began: Instant, number: &mut u64, log: &Log, over: &AtomicBool) {
    let opened = Instant::now();
    while !over.load(Ordering::Relaxed) {
        *number += 1;
        let (sent, mut back) = (frame(*number), [0; 14]);
        let done = stream.write_all(&sent).and_then(|()| stream.read_exact(&mut back));
        if done.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock) {
            return log.failed("a tunnel stood still");
        }
        if done.is_err() {
            return judge(began, opened, log);
        }
        if back != sent {
            return log.failed("a message came back otherwise");
        }
        log.messages.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(40));
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// A worker accepts before it is told to leave: no tunnel lives shorter than the timeout. The first
/// reload behind its opening reaches its worker at the latest: none lives much longer.
fn judge(began: Instant, opened: Instant, log: &Log) {
    let life = began.elapsed();
    locked(&log.lives).push(life.as_millis());
    if life + ROUNDING < SHUTDOWN {
        log.failed("a tunnel ended before worker_shutdown_timeout");
    }
    let told = locked(&log.reloads).iter().copied().find(|at| *at > opened);
    if told.is_none_or(|at| at.elapsed() > SHUTDOWN + SLACK) {
        log.failed("a tunnel outlived worker_shutdown_timeout");
    }
}

/// Reloads until the time is over.
fn reload(server: &Server, behind: &Behind, log: &Log, length: Duration) -> Outcome {
    let began = Instant::now();
    let mut generation: u32 = 1;
    while began.elapsed() < length {
        std::thread::sleep(RELOAD_EVERY);
        generation += 1;
        if generation.is_multiple_of(2) {
            server.reconfigure(&behind.setup(server.kind, generation))?;
        }
        locked(&log.reloads).push(Instant::now());
        server.signal(Signal::HUP);
    }
    Ok(())
}

/// The API's state at the end: nothing was forgotten, nothing is in progress for ever.
fn check_api(server: &Server, answered: u64, log: &Log) -> Outcome {
    // Tunnels that were closed at the end, and those of leaving workers.
    std::thread::sleep(SHUTDOWN + Duration::from_secs(1));
    let all = api(server.port, "GET", "", "")?;
    let active: u64 = numbers(&all, "active").iter().sum();
    if active > 0 {
        log.failed(format!("{active} exchanges are counted as under way when none is"));
    }
    // Requests of leaving workers behind a new zone are counted in the old one: a few.
    let requests: u64 = numbers(&all, "requests").iter().sum();
    if requests < answered / 10 * 9 {
        log.failed(format!("the zones know of {requests} requests of {answered}"));
    }
    for state in ["\"state\":\"unavail\"", "\"state\":\"draining\""] {
        if !all.contains(state) {
            log.failed(format!("no server is {state} in the end"));
        }
    }
    Ok(())
}

fn under(options: &Options, kind: Kind) -> Outcome<BTreeMap<String, u64>> {
    let behind = Behind::new()?;
    let (server, _) = Server::start(options, kind, &behind.setup(kind, 1))?;
    let has_api = kind != Kind::Nginx;
    if has_api {
        fill_told(&server, &behind)?;
    }
    get_to_know(&server, &behind)?;
    let failing_before = behind.failing_seen.requests.load(Ordering::Relaxed);
    let (log, over) = (Log::default(), AtomicBool::new(false));
    let length = Duration::from_secs(options.tunnel_seconds());
    std::thread::scope(|scope| {
        let (port, log, over, seen) = (server.port, &log, &over, &*behind.seen);
        for n in 1..=CLIENTS {
            scope.spawn(move || ask(port, n, seen, log, over, has_api));
        }
        for n in 1..=TUNNELS {
            scope.spawn(move || tunnel(port, n, log, over));
        }
        let done = reload(&server, &behind, log, length);
        over.store(true, Ordering::Relaxed);
        done
    })?;
    let of = |c: &AtomicU64| c.load(Ordering::Relaxed);
    let failing = of(&behind.failing_seen.requests) - failing_before;
    let drained = of(&behind.drained_seen.requests);
    let twice = locked(&behind.seen.posts).values().filter(|n| **n > 1).count();
    if has_api {
        check_api(&server, of(&log.answered), &log)?;
    }
    for (count, what) in [
        (failing, "a request was sent to a backend that is known to fail"),
        (drained, "a request was sent to a drained backend"),
        (twice as u64, "a POST was repeated"),
        (server.alerts() as u64, "an alert stands in the log"),
    ] {
        if count > 0 {
            *locked(&log.failures).entry(what.to_string()).or_default() += count;
        }
    }
    let mut lives = locked(&log.lives).clone();
    lives.sort_unstable();
    let life = |part: usize| lives.get(part * lives.len().saturating_sub(1) / 2).copied();
    println!(
        "{}: {} reloads, {} requests, {} asked again when a kept connection was closed; \
         {} messages, {} tunnels ended after {} to {} ms (median {})",
        kind.name(),
        locked(&log.reloads).len(),
        of(&log.answered),
        of(&log.again),
        of(&log.messages),
        lives.len(),
        life(0).unwrap_or(0),
        life(2).unwrap_or(0),
        life(1).unwrap_or(0),
    );
    if lives.is_empty() {
        log.failed("no tunnel ended");
    }
    Ok(std::mem::take(&mut locked(&log.failures)))
}

/// Runs the load.
pub fn run(options: &Options, _: &str) -> Outcome {
    let mut wrong = Vec::new();
    for kind in options.servers.iter().copied().filter(|k| k.is_real()) {
        let failures = under(options, kind)?;
        for (what, count) in &failures {
            println!("{}: {count} times: {what}", kind.name());
            if kind != Kind::Nginx {
                wrong.push(format!("{what} ({count})"));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn numbers_behind_a_name() {
        let text = r#"{"a":{"active":3,"x":"active"},"b":[{"active": 40}],"actives":5}"#;
        assert_eq!(numbers(text, "active"), [3, 40]);
        assert_eq!(numbers(text, "none"), [0; 0]);
    }
}
