//! `limit_req` for a long time: ten million requests with a million keys over a zone of 10 MB,
//! while workers are killed at random.
//!
//! A thousand keys come again and again, so that they are never the oldest of the full zone: of
//! each, exactly as many requests pass as its bucket lets through. The rest are there to fill the
//! zone and be evicted.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::options::Options;
use crate::server::{Kind, LIMITS, Server, Setup};
use crate::{Outcome, proc};
use testkit::rng::Rng;

const THREADS: u64 = 8;
/// Requests that are sent together.
const BATCH: usize = 64;
const COLD_KEYS: usize = 1_000_000;
const HOT_KEYS: usize = 1_000;
/// One request in this many is for a hot key.
const HOT_SHARE: usize = 10;
/// Requests of a key that pass at once: one, and `burst`.
const AT_ONCE: u64 = 21;
/// Interval between kills of a worker.
const KILL_EVERY: Duration = Duration::from_millis(1500);
/// The limit of an answer, on a machine with other work: a lock that is never released would hold
/// it for longer.
const STALL: Duration = Duration::from_secs(60);

/// The results of the requests for a key.
#[derive(Default)]
struct Key {
    passed: AtomicU64,
    refused: AtomicU64,
    /// Requests of a killed worker: they may have been counted or not.
    lost: AtomicU64,
}

struct Seen {
    hot: Vec<Key>,
    cold: Key,
    left: AtomicU64,
    odd: AtomicU64,
    slowest_ms: AtomicU64,
    over: AtomicBool,
}

impl Seen {
    fn key(&self, hot: Option<usize>) -> &Key {
        hot.and_then(|n| self.hot.get(n)).unwrap_or(&self.cold)
    }
}

/// Runs the load.
pub fn run(options: &Options, _: &str) -> Outcome {
    let setup = Setup { template: LIMITS, connections: 512, ..Setup::default() };
    let (server, _) = Server::start(options, Kind::Weir, &setup)?;
    let seen = Seen {
        hot: (0..HOT_KEYS).map(|_| Key::default()).collect(),
        cold: Key::default(),
        left: AtomicU64::new(options.soak_requests),
        odd: AtomicU64::new(0),
        slowest_ms: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    let began = Instant::now();
    let kills = std::thread::scope(|scope| {
        let kills = scope.spawn(|| kill_workers(&server, &seen));
        let askers: Vec<_> = (0..THREADS)
            .map(|n| {
                scope.spawn({
                    let seen = &seen;
                    let port = server.port;
                    move || ask(port, n, seen)
                })
            })
            .collect();
        let asked: Vec<Outcome> = askers
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err("a thread panicked".into())))
            .collect();
        seen.over.store(true, Ordering::Relaxed);
        let kills = kills.join().unwrap_or(0);
        asked.into_iter().collect::<Outcome>().map(|()| kills)
    })?;
    report(&server, &seen, began.elapsed(), kills)
}

/// Kills one worker after another until all requests are sent; returns the number.
fn kill_workers(server: &Server, seen: &Seen) -> u64 {
    let mut rng = Rng::new(1);
    let mut kills = 0;
    while !seen.over.load(Ordering::Relaxed) {
        std::thread::sleep(KILL_EVERY / 2 + KILL_EVERY * rng.below(100) as u32 / 100);
        let master = server.pid();
        let workers: Vec<u32> = server.pids().into_iter().filter(|pid| *pid != master).collect();
        if !workers.is_empty() {
            proc::signal(workers[rng.below(workers.len())], Signal::KILL);
            kills += 1;
        }
    }
    kills
}

fn ask(port: u16, thread: u64, seen: &Seen) -> Outcome {
    let mut rng = Rng::new(1000 + thread);
    let mut stream = connect(port)?;
    let (mut text, mut input) = (Vec::new(), Vec::new());
    while seen.left.load(Ordering::Relaxed) > 0 {
        text.clear();
        let mut keys = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            let hot = (rng.below(HOT_SHARE) == 0).then(|| rng.below(HOT_KEYS));
            let (kind, n) = match hot {
                Some(n) => ('h', n),
                None => ('c', rng.below(COLD_KEYS)),
            };
            keys.push(hot);
            let line = format!("GET /many?k={kind}{n} HTTP/1.1\r\nHost: a\r\n\r\n");
            text.extend_from_slice(line.as_bytes());
        }
        let began = Instant::now();
        let answered = batch(&mut stream, &text, &mut input, &keys, seen);
        seen.slowest_ms.fetch_max(began.elapsed().as_millis() as u64, Ordering::Relaxed);
        if answered < BATCH {
            keys[answered..].iter().for_each(|hot| count(&seen.key(*hot).lost));
            if began.elapsed() >= STALL {
                return Err(format!("no answer for {STALL:?}: a lock is held"));
            }
            stream = connect(port)?;
        }
        let _ = seen.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(answered as u64))
        });
    }
    Ok(())
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Connects, as soon as that is possible.
pub fn connect(port: u16) -> Outcome<TcpStream> {
    let began = Instant::now();
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => {
                let set = stream.set_nodelay(true);
                set.and_then(|()| stream.set_read_timeout(Some(STALL)))
                    .map_err(|e| e.to_string())?;
                return Ok(stream);
            }
            Err(e) if began.elapsed() > STALL => return Err(format!("connect: {e}")),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Sends a batch; how many of its requests were answered.
fn batch(
    stream: &mut TcpStream,
    text: &[u8],
    input: &mut Vec<u8>,
    keys: &[Option<usize>],
    seen: &Seen,
) -> usize {
    input.clear();
    if stream.write_all(text).is_err() {
        return 0;
    }
    let (mut answered, mut at) = (0, 0);
    let mut buffer = [0; 16 << 10];
    while answered < keys.len() {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(len) => input.extend_from_slice(&buffer[..len]),
        }
        while answered < keys.len()
            && let Some((status, len)) = answer(&input[at..])
        {
            let key = seen.key(keys[answered]);
            match status {
                b"200" => count(&key.passed),
                b"429" => count(&key.refused),
                _ => count(&seen.odd),
            }
            at += len;
            answered += 1;
        }
    }
    answered
}

/// Status and length of the answer at the front, if all of it is there.
pub fn answer(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let name = b"Content-Length: ";
    let at = bytes[..head].windows(name.len()).position(|w| w == name)? + name.len();
    let digits = bytes[at..].iter().take_while(|b| b.is_ascii_digit());
    let body = digits.fold(0, |n, digit| n * 10 + usize::from(digit - b'0'));
    let len = head + 4 + body;
    (bytes.len() >= len).then(|| (&bytes[9..12], len))
}

fn report(server: &Server, seen: &Seen, time: Duration, kills: u64) -> Outcome {
    let sum = |of: fn(&Key) -> &AtomicU64| {
        seen.hot.iter().chain([&seen.cold]).map(|key| of(key).load(Ordering::Relaxed)).sum::<u64>()
    };
    let (passed, refused, lost) = (sum(|k| &k.passed), sum(|k| &k.refused), sum(|k| &k.lost));
    let secs = time.as_secs_f64();
    println!(
        "{} requests in {secs:.0} s: {passed} passed, {refused} refused, {lost} lost with {kills} \
         workers killed; slowest batch {} ms",
        passed + refused,
        seen.slowest_ms.load(Ordering::Relaxed)
    );
    // One more each minute; a key may have been asked for a little before the clock began.
    let most = AT_ONCE + time.as_secs() / 60 + 1;
    let mut wrong = 0;
    let (mut least_seen, mut most_seen) = (u64::MAX, 0);
    for (n, key) in seen.hot.iter().enumerate() {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (passed, refused, lost) = (of(&key.passed), of(&key.refused), of(&key.lost));
        (least_seen, most_seen) = (least_seen.min(passed), most_seen.max(passed));
        let enough = passed + lost >= AT_ONCE || refused == 0;
        if passed > most || !enough {
            wrong += 1;
            if wrong < 10 {
                println!("key h{n}: {passed} passed, {refused} refused, {lost} lost");
            }
        }
    }
    println!(
        "of each of {HOT_KEYS} keys that stayed in the zone {least_seen} to {most_seen} passed; \
         {AT_ONCE} to {most} are right"
    );
    let odd = seen.odd.load(Ordering::Relaxed);
    let alerts = server.alerts_but("exited on signal 9") as u64;
    if wrong + odd + alerts > 0 {
        let m = format!("{wrong} keys are wrong, {odd} odd answers, {alerts} alerts");
        return Err(format!("{m}: {}", server.complaints()));
    }
    Ok(())
}
