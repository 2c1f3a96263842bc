//! The watch over workers whose loop stands still: a module that blocks or spins, a disk that does
//! not answer, a stop signal, a bug.
//!
//! ```text
//!          beats ──no beat for STUCK_MS──► stuck: a line in the log; its accept lock is freed;
//!            ▲                               │    a stand-in where only it serves some socket
//!            └────────a beat: a line─────────┤
//!                                            └──worker_watchdog──► killed, unless it is traced
//! ```
//!
//! The master compares the workers' beats (`engine::beat`).
//!
//! - **A stand-in** is a worker with the same number and the same sockets as the stuck one. It is
//!   started only if no other worker can serve these sockets, and not if more than three workers of
//!   one number are stuck, so that a bug cannot make ever more processes. The stuck worker is told
//!   to leave: if its loop runs again, it finishes its connections and exits.
//! - **A worker that beats again** is logged. If it was not told to leave, it continues as before.
//! - **A killed worker** is replaced, as after any other death, unless it has a stand-in. One that
//!   a debugger traces is not killed.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use base::log;
use base::log::{Level, Log, os_error};
use engine::beat::{BEAT_MS, BUSY_BEAT_MS, Beat, Beats, now_ms};
use engine::{Engine, Stats};
use event::Accepted;
use os::signal::Signal;

use crate::children::{Child, Children};

/// A worker counts as stuck after this time without a beat. Together with the interval of beats,
/// this makes a new connection wait for less than 2.2 s.
const STUCK_MS: u64 = 1_500;

/// How often the master checks a stuck worker, in milliseconds.
const LOOK_MS: u64 = 250;

/// A silent worker that is runnable counts as stuck only if it has had this much time on a
/// processor since its last beat. With less, the machine is too busy to run it, and another worker
/// would not run either.
const SPIN_MS: u64 = STUCK_MS / 2;

/// If the master wakes this much later than planned, it was held up itself, and the silence so far
/// says nothing about the workers.
const LATE_MS: u64 = 300;

/// After a worker's death, its io_uring ring can live on for this time, because the kernel closes
/// it later than the descriptors. Until then the kernel may report new connections to that ring
/// alone, so that no other worker wakes.
const RING_MS: u64 = 2_000;

/// If more workers of one number than this are stuck, no further stand-in is started.
const STAND_INS_MAX: usize = 3;

/// The state of a stuck worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stuck {
    /// The time of its last beat.
    since_ms: u64,
    /// It has been killed, or spared because a process traces it.
    judged: bool,
}

/// The master's watch.
pub struct Watchdog {
    beats: &'static Beats,
    stats: Rc<Stats>,
    /// When the master planned its next check.
    planned_ms: Option<u64>,
    /// Silence before this time does not count, because the master was held up.
    since_ms: u64,
    /// Until this time, reports of connections may go to the ring of a dead worker.
    rings_until_ms: u64,
}

/// The settings of a check.
#[derive(Clone, Copy)]
pub struct Terms {
    /// `worker_watchdog`.
    pub kill_ms: u64,
    /// `timer_resolution`: workers beat no more often than this.
    pub resolution_ms: u64,
}

impl Watchdog {
    /// A watch on the workers that write these beats and counters.
    pub fn new(beats: &'static Beats, stats: Rc<Stats>) -> Watchdog {
        Watchdog { beats, stats, planned_ms: None, since_ms: 0, rings_until_ms: 0 }
    }

    /// Forgets a process that has ended.
    pub fn forget(&mut self, slot: usize) {
        self.beats.clear(slot);
        self.rings_until_ms = now_ms() + RING_MS;
    }

    /// The longest time that the master may wait before the next check.
    pub fn limit(&self) -> Option<Duration> {
        self.planned_ms.map(|at| Duration::from_millis(at.saturating_sub(now_ms())))
    }

    /// Stops the watch until the next call of [`Watchdog::look`].
    pub fn rest(&mut self) {
        self.planned_ms = None;
    }

    /// Checks all workers: logs, and kills those that are stuck for too long. Returns the workers
    /// that have been found stuck in this call.
    pub fn look(&mut self, children: &mut Children, terms: Terms, log: &Log) -> Vec<NewlyStuck> {
        let now = now_ms();
        if self.planned_ms.is_some_and(|planned| now > planned + LATE_MS) {
            self.since_ms = now;
        }
        let stuck_after = STUCK_MS + 2 * terms.resolution_ms;
        let (mut found, mut stuck, mut next) = (Vec::new(), 0, u64::MAX);
        for (slot, index, child) in children.workers_by_slot() {
            let Some(beat) = self.beats.last(slot) else {
                // The worker is starting or ending.
                next = next.min(now + STUCK_MS);
                continue;
            };
            let silent_ms = now.saturating_sub(beat.at_ms.max(self.since_ms));
            match child.stuck {
                None if silent_ms < stuck_after => {
                    next = next.min(beat.at_ms.max(self.since_ms) + stuck_after);
                }
                None if lacks_processor(child.pid, beat) => next = next.min(now + LOOK_MS),
                None => {
                    child.stuck = Some(Stuck { since_ms: beat.at_ms, judged: false });
                    let (pid, what) = (child.pid, self.describe(child.pid, slot));
                    let m = format_args!("worker process {pid} stands still for {silent_ms} ms");
                    log!(log, Level::Warn, None, "{m}: {what}");
                    found.push(NewlyStuck { pid, index });
                }
                Some(was) if was.since_ms != beat.at_ms => {
                    child.stuck = None;
                    let (pid, ms) = (child.pid, now.saturating_sub(was.since_ms));
                    log!(log, Level::Warn, None, "worker process {pid} runs again after {ms} ms");
                }
                Some(was) if !was.judged && silent_ms >= terms.kill_ms => {
                    child.stuck = Some(Stuck { judged: true, ..was });
                    self.kill(child, slot, silent_ms, log);
                }
                Some(_) => {}
            }
            if child.stuck.is_some() {
                stuck += 1;
                next = next.min(now + LOOK_MS);
            }
        }
        if now < self.rings_until_ms {
            stuck += 1;
            next = next.min(self.rings_until_ms);
        }
        self.beats.set_stuck(stuck);
        // Workers that beat in the meantime move their limits, so no earlier check is needed.
        self.planned_ms = (next != u64::MAX).then(|| next.max(now + 10));
        found
    }

    fn kill(&self, child: &Child, slot: usize, ms: u64, log: &Log) {
        let (pid, what) = (child.pid, self.describe(child.pid, slot));
        if let Some(tracer) = tracer(pid) {
            let m = "is not killed, because a process traces it";
            log!(log, Level::Warn, None, "worker process {pid} stands still and {m}: {tracer}");
            return;
        }
        let m = format_args!("worker process {pid} stands still for {ms} ms and is killed");
        log!(log, Level::Alert, None, "{m}: {what}");
        if let Err(e) = os::signal::kill(pid, Signal::KILL) {
            log!(log, Level::Alert, None, "kill({pid}, 9) failed {}", os_error(&e));
        }
    }

    /// For the log: the process's state, what the worker did last, and the number of its
    /// connections and requests.
    fn describe(&self, pid: i32, slot: usize) -> String {
        let (state, last) = (state(pid), self.beats.activity(slot));
        let (connections, requests) = self.stats.under_way(slot);
        format!("{state}, last in {last}; {connections} connections, {requests} with a request")
    }
}

/// Whether a worker has not beaten since `beat` only because it got no processor.
fn lacks_processor(pid: i32, beat: Beat) -> bool {
    let can_run = state_of(pid) == Some('R');
    can_run && ran_ms(pid).is_some_and(|ran_ms| beat.ran_since(ran_ms) < SPIN_MS)
}

/// The time that a process's first thread had on a processor (the first field of schedstat, kernel
/// documentation "sched-stats"), milliseconds; `None` where the kernel does not count it.
fn ran_ms(pid: i32) -> Option<u64> {
    let counts = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let ran_ns: u64 = counts.split(' ').next()?.parse().ok()?;
    Some(ran_ns / 1_000_000)
}

/// A worker that was just found to stand still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NewlyStuck {
    /// Its process.
    pub pid: i32,
    /// Its number among the workers.
    pub index: usize,
}

/// Returns two facts: whether another worker of that generation beats; and whether few enough
/// workers with the number `index` are stuck, so that another stand-in may be started.
pub fn counts(children: &Children, index: usize, generation: u64) -> (bool, bool) {
    let of_now = |child: &&Child| child.generation == generation;
    let beats = |child: &Child| child.stuck.is_none() && !child.exiting;
    let others = children.workers().filter(of_now).any(beats);
    let same = |child: &&Child| child.kind == crate::children::ChildKind::Worker(index);
    let stuck = children.workers().filter(same).filter(|child| child.stuck.is_some()).count();
    (others, stuck <= STAND_INS_MAX)
}

/// The letter of a process's state (proc_pid_stat(5)).
fn state_of(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// The kernel's knowledge of a process's state, in words.
fn state(pid: i32) -> String {
    let channel = || {
        let name = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        if name.is_empty() || name == "0" { String::new() } else { format!(" ({name})") }
    };
    match state_of(pid) {
        Some('T') => "stopped by a signal".to_owned(),
        Some('t') => "stopped by a tracer".to_owned(),
        Some('R') => "running on its processor".to_owned(),
        Some('D') => format!("waiting for a device{}", channel()),
        Some('S') => format!("waiting in the kernel{}", channel()),
        Some(other) => format!("in state {other}"),
        None => "in an unknown state".to_owned(),
    }
}

/// The process that traces this one, if any.
fn tracer(pid: i32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok().filter(|&pid| pid != 0)
}

/// A worker's beat: runs as a task until the worker ends. While another worker is stuck, it also
/// accepts from `sockets` without waiting for a report of the event driver, because that report may
/// have gone to the stuck worker's ring. The list is emptied when the worker leaves.
pub async fn beat(beats: &'static Beats, sockets: OwnSockets) {
    loop {
        beats.beat();
        let any_stuck = beats.any_stuck();
        if any_stuck {
            for socket in sockets.borrow().iter() {
                let take = |accepted: Accepted| socket.engine.take(socket.at, accepted);
                net::watchdog::rescue(&socket.fd, format_args!("a stuck worker"), take);
            }
        }
        event::sleep(if any_stuck { BUSY_BEAT_MS } else { BEAT_MS }).await;
    }
}

/// The sockets that a worker accepts from, until it leaves.
pub(crate) type OwnSockets = Rc<RefCell<Vec<OwnSocket>>>;

/// A socket that a worker accepts from.
pub struct OwnSocket {
    /// Its descriptor.
    pub fd: Rc<OwnedFd>,
    /// The engine that serves its connections.
    pub engine: Rc<dyn Engine>,
    /// Its number among the engine's.
    pub at: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child as Process, Command};

    /// A process that ends with its test, also with one that fails.
    struct Started(Process);

    impl Started {
        fn new(program: &str, args: &[&str]) -> (Started, i32) {
            let child = Command::new(program).args(args).spawn().unwrap();
            let pid = i32::try_from(child.id()).unwrap();
            (Started(child), pid)
        }
    }

    impl Drop for Started {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn states_of_processes() {
        let (child, pid) = Started::new("/bin/sleep", &["60"]);
        os::signal::kill(pid, Signal::STOP).unwrap();
        let began = std::time::Instant::now();
        while state(pid) != "stopped by a signal" {
            assert!(began.elapsed().as_secs() < 10, "{}", state(pid));
        }
        assert_eq!(tracer(pid), None);
        drop(child);
        assert_eq!(state(pid), "in an unknown state");
        let own = i32::try_from(std::process::id()).unwrap();
        let here = state(own);
        assert!(here.starts_with("running") || here.starts_with("waiting"), "{here}");
    }

    #[test]
    fn a_silent_worker_that_can_run_is_stuck_once_it_has_run() {
        let (_spins, pid) = Started::new("/bin/sh", &["-c", "while :; do :; done"]);
        let began = std::time::Instant::now();
        let until = |met: &dyn Fn() -> bool| {
            while !met() {
                assert!(began.elapsed().as_secs() < 60, "{}", state(pid));
            }
        };
        // Its libraries come from the disk first, and it sleeps meanwhile.
        let loaded = ran_ms(pid).unwrap() + 100;
        until(&|| ran_ms(pid).unwrap() >= loaded && state_of(pid) == Some('R'));
        let now = || Beat::new(now_ms(), ran_ms(pid).unwrap());
        until(&|| lacks_processor(pid, now()));
        let beat = now();
        until(&|| !lacks_processor(pid, beat));
        assert!(beat.ran_since(ran_ms(pid).unwrap()) >= SPIN_MS);
        os::signal::kill(pid, Signal::STOP).unwrap();
        until(&|| state_of(pid) == Some('T'));
        assert!(!lacks_processor(pid, now()));
    }
}
