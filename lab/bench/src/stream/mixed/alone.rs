//! The clients over UDP and their backends, beside another load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use super::backend::{self, Seen};
use super::counts::Counts;
use super::{Load, Ports, datagrams};
use crate::backends::locked;
use crate::{Outcome, tls};

/// The backends, which last as long as this.
pub struct Behind {
    /// Their ports.
    pub ports: [u16; 2],
    seen: Arc<Seen>,
}

impl Behind {
    pub fn start() -> Outcome<Self> {
        let seen: Arc<Seen> = Arc::default();
        Ok(Self { ports: [backend::datagrams(&seen)?, backend::datagrams(&seen)?], seen })
    }

    /// What was wrong with questions.
    pub fn wrong(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.seen.wrong))
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.seen.end();
    }
}

/// Datagrams so far: questions, answers, those that were lost near kills, others that were lost,
/// and those of them that came too late.
#[derive(Clone, Copy, Default)]
pub struct Numbers {
    pub sent: u64,
    pub answers: u64,
    pub lost_by_kill: u64,
    pub lost: u64,
    pub late: u64,
    pub due_in_peace: u64,
}

/// Clients at work.
pub struct Clients {
    load: Arc<Load>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Starts so many, for a server whose sessions stay and one whose sessions end with an answer.
    pub fn start(
        [kept, answered]: [u16; 2],
        count: u64,
        rest_ms: usize,
        session_base: u64,
    ) -> Outcome<Self> {
        let none = 0;
        let ports = Ports {
            balanced: none,
            half: none,
            tls: none,
            to_tls: none,
            named: none,
            proxied: none,
            kept,
            answered,
        };
        let load = Arc::new(Load {
            ports,
            tls: Arc::new(tls::client::config().map_err(|e| e.to_string())?),
            seed: 1,
            session_base,
            rest_ms,
            counts: Counts::default(),
            over: AtomicBool::new(false),
        });
        let start = |number| {
            let load = Arc::clone(&load);
            std::thread::spawn(move || datagrams::client(&load, number))
        };
        let threads = (0..count).map(start).collect();
        Ok(Self { load, threads })
    }

    /// A worker was killed.
    pub fn killed(&self) {
        locked(&self.load.counts.kills).push(Instant::now());
    }

    /// The server was reloaded.
    pub fn reloaded(&self) {
        locked(&self.load.counts.reloads).push(Instant::now());
    }

    /// What must not be, since the last time.
    pub fn complaints(&self) -> Vec<String> {
        let counts = &self.load.counts;
        let mut all = std::mem::take(&mut *locked(&counts.failures));
        let wrong = std::mem::take(&mut *locked(&counts.wrong));
        all.extend(wrong.into_iter().map(|text| format!("wrong: {text}")));
        all
    }

    /// The counts so far.
    pub fn numbers(&self) -> Numbers {
        let udp = &self.load.counts.udp;
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Numbers {
            sent: of(&udp.sent),
            answers: of(&udp.answers),
            lost_by_kill: of(&udp.lost_by_kill),
            lost: of(&udp.lost_at_reload) + of(&udp.lost_in_peace),
            late: of(&udp.late),
            due_in_peace: of(&udp.due_in_peace),
        }
    }

    /// Ends them.
    pub fn end(&mut self) {
        self.load.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
