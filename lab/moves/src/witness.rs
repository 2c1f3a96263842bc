//! Short requests on new connections, which the connections that move must not hold up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rig::server::get;
use rig::{Outcome, proc};

/// Threads that ask in turn, so that a slow answer delays no other request.
const THREADS: u32 = 4;

/// The time between two requests of a thread.
const EVERY: Duration = Duration::from_millis(20);

/// A request.
#[derive(Clone, Copy)]
pub struct Asked {
    /// When it was due: it is sent then, whatever became of others.
    pub at: Instant,
    /// The time until its answer, milliseconds.
    pub ms: f64,
    /// The part of it in which the worker that answered had a processor, and the part in which it
    /// could run and had none.
    pub cpu_ms: f64,
    pub queued_ms: f64,
    /// It had an answer, with status 200.
    pub is_answered: bool,
}

/// Times requests. Its threads go before all others, so that what is measured is the server.
pub struct Witness(Vec<JoinHandle<Vec<Asked>>>);

impl Witness {
    pub fn start(port: u16, stop: &Arc<AtomicBool>) -> Outcome<Witness> {
        let began = Instant::now();
        let start = |i| {
            let (stop, first) = (Arc::clone(stop), began + EVERY * i / THREADS);
            Builder::new().spawn(move || ask(port, first, &stop)).map_err(|e| e.to_string())
        };
        Ok(Witness((0..THREADS).map(start).collect::<Outcome<_>>()?))
    }

    /// All requests.
    pub fn end(self) -> Vec<Asked> {
        self.0.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    }
}

fn ask(port: u16, first: Instant, stop: &AtomicBool) -> Vec<Asked> {
    proc::go_first();
    // What each worker has had so far.
    let mut workers: HashMap<u32, (u64, u64)> = HashMap::new();
    let (mut all, mut at) = (Vec::new(), first);
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        workers.retain(|pid, shares| match proc::shares(*pid) {
            Some(now) => {
                *shares = now;
                true
            }
            None => false,
        });
        let answer = get(port, "localhost", "/worker");
        let ms = at.elapsed().as_secs_f64() * 1000.0;
        let mut asked = Asked { at, ms, cpu_ms: 0.0, queued_ms: 0.0, is_answered: answer.is_ok() };
        if let Some(pid) = answer.ok().and_then(|answer| answer.trim().parse().ok()) {
            let now = proc::shares(pid).unwrap_or_default();
            // A worker that was not known has begun since then: all of its time is of this request.
            let before = workers.insert(pid, now).unwrap_or_default();
            let part = |now: u64, before: u64| (now.saturating_sub(before) as f64 / 1e6).min(ms);
            (asked.cpu_ms, asked.queued_ms) = (part(now.0, before.0), part(now.1, before.1));
        }
        all.push(asked);
        at += EVERY;
    }
    all
}
