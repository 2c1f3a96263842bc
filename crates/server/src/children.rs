//! The master's child processes: their table, their start, and their end.

use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use base::log;
use base::log::{Level, Log, os_error};
use engine::{Helper, SLOTS, Stats};
use net::Listeners;
use net::moves::Channel;
use os::limits::Lowered;
use os::process::{Exit, Fork};
use os::signal::Signal;

use crate::relays::Relays;
use crate::watchdog::Stuck;
use crate::worker::{Assignment, Before, FATAL};

/// The kind of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChildKind {
    /// A worker, with its number among the workers.
    Worker(usize),
    /// A process beside the workers.
    Helper(Helper),
    /// The binary that replaces this one. It is independent: signals for workers do not reach it,
    /// and the server's end does not wait for it.
    NewBinary,
}

impl ChildKind {
    /// Its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            ChildKind::Worker(_) => "worker process",
            ChildKind::Helper(Helper::CacheManager) => "cache manager process",
            ChildKind::Helper(Helper::CacheLoader) => "cache loader process",
            ChildKind::Helper(Helper::Acme) => "acme process",
            ChildKind::Helper(Helper::SharedState) => "shared state process",
            ChildKind::NewBinary => "new binary process",
        }
    }
}

/// A child process.
#[derive(Debug)]
pub struct Child {
    /// Its process id.
    pub pid: i32,
    /// Worker, helper or new binary.
    pub kind: ChildKind,
    /// The number of its configuration.
    pub generation: u64,
    /// It was asked to exit.
    pub exiting: bool,
    /// Its loop stands still.
    pub stuck: Option<Stuck>,
    /// A pipe that ends when this worker receives no more datagrams from the common sockets.
    receives: Option<OwnedFd>,
    /// A pipe that ends when this worker leaves and all connections that can move have moved.
    moving: Option<OwnedFd>,
    /// Set while its priority is lower than usual, because its connections move.
    lowered: Option<Lowered>,
    started: Instant,
    /// The number of workers in this seat that ended soon after their start, in a row.
    early_ends: u32,
}

impl Child {
    /// Whether this is a worker that has not closed its pipe yet: its connections may still move.
    fn is_moving(&mut self) -> bool {
        // Workers write nothing to the pipe, so it is readable only when it is closed.
        let ended = |pipe: &OwnedFd| os::fd::wait_readable(pipe, Duration::ZERO);
        self.moving = self.moving.take().filter(|pipe| !ended(pipe));
        self.moving.is_some()
    }
}

/// A child that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its entry in the table.
    pub child: Child,
    /// Its place.
    pub slot: usize,
    /// The manner of its end.
    pub exit: Exit,
}

/// A worker that ends sooner than this after its start has failed at something that is likely to
/// fail again.
const SOON: Duration = Duration::from_secs(1);
/// The longest pause before such a worker's successor is started.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How much lower the priority of a worker is while its connections move, in steps of `nice`: where
/// processors are scarce, it has half as much of them as a worker that serves.
const LOWER_BY: i32 = 3;

/// The time between two looks at workers whose connections move.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

impl Ended {
    /// The pause before its replacement starts: none, unless several in a row ended soon after
    /// their start, which would otherwise keep the machine busy.
    pub fn pause(&self) -> Duration {
        match self.early_ends() {
            0 | 1 => Duration::ZERO,
            n => PAUSE_MAX.min(Duration::from_millis(50) * 2u32.saturating_pow(n)),
        }
    }

    /// The number that ended soon, this one included.
    pub(crate) fn early_ends(&self) -> u32 {
        if self.child.started.elapsed() < SOON { self.child.early_ends + 1 } else { 0 }
    }

    /// It could not even begin, and another would not either.
    pub(crate) fn is_fatal(&self) -> bool {
        self.exit == Exit::Code(FATAL)
    }

    /// Logs its end, in nginx's words.
    pub fn tell(&self, log: &Log) {
        let (name, pid) = (self.child.kind.name(), self.child.pid);
        match self.exit {
            Exit::Signal { signal, core } => {
                let core = if core { " (core dumped)" } else { "" };
                log!(log, Level::Alert, None, "{name} {pid} exited on signal {signal}{core}");
            }
            Exit::Code(code) => {
                log!(log, Level::Notice, None, "{name} {pid} exited with code {code}");
            }
        }
        if self.is_fatal() && matches!(self.child.kind, ChildKind::Worker(_)) {
            log!(
                log,
                Level::Alert,
                None,
                "{name} {pid} exited with fatal code {FATAL} and cannot be respawned"
            );
        }
    }
}

/// The children, by slot. A slot is free again when its child has been reaped.
#[derive(Default)]
pub struct Children {
    list: Vec<Option<Child>>,
    /// New workers receive datagrams, which they hand over to the next ones when they leave.
    pub hands_over: bool,
    /// The same pipes of the workers of the binary that this one replaces.
    pub replaced: Vec<OwnedFd>,
    /// The relays of QUIC.
    pub relays: Relays,
    /// The queue by which live connections move between workers.
    pub moves: Option<Channel>,
}

impl Children {
    /// The living children, as far as is known.
    pub fn all(&self) -> impl Iterator<Item = &Child> {
        self.list.iter().flatten()
    }

    /// The workers among them, with their slots.
    pub(crate) fn workers_by_slot(&mut self) -> impl Iterator<Item = (usize, usize, &mut Child)> {
        self.list.iter_mut().enumerate().filter_map(|(slot, child)| match child {
            Some(child) => match child.kind {
                ChildKind::Worker(index) => Some((slot, index, child)),
                _ => None,
            },
            None => None,
        })
    }

    /// The workers among them.
    pub fn workers(&self) -> impl Iterator<Item = &Child> {
        self.all().filter(|child| matches!(child.kind, ChildKind::Worker(_)))
    }

    /// All but the new binary: signals for workers go to these, and the server's end waits for
    /// them.
    pub fn ours(&self) -> impl Iterator<Item = &Child> {
        self.all().filter(|child| child.kind != ChildKind::NewBinary)
    }

    /// The new binary's process id, if one runs.
    pub(crate) fn new_binary(&self) -> Option<i32> {
        self.all().find(|child| child.kind == ChildKind::NewBinary).map(|child| child.pid)
    }

    /// Workers that are forked from now on hand datagrams over, and reach each other, where some
    /// of these sockets are for datagrams.
    pub fn hand_over(&mut self, listeners: &Listeners) {
        self.hands_over = listeners.have_datagrams();
        let key = listeners.quic_key().filter(|_| listeners.have_quic());
        self.relays.set_key(key.cloned());
    }

    fn free_slot(&mut self) -> Option<usize> {
        if let Some(slot) = self.list.iter().position(Option::is_none) {
            return Some(slot);
        }
        (self.list.len() < SLOTS).then(|| {
            self.list.push(None);
            self.list.len() - 1
        })
    }

    /// Forks. Breaks in the child, with its place. `early_ends` is its predecessor's.
    pub fn spawn(
        &mut self,
        kind: ChildKind,
        generation: u64,
        early_ends: u32,
        log: &Log,
    ) -> ControlFlow<Assignment, bool> {
        let name = kind.name();
        let Some(slot) = self.free_slot() else {
            log!(log, Level::Alert, None, "no more than {SLOTS} processes can be spawned");
            return ControlFlow::Continue(false);
        };
        let is_worker = matches!(kind, ChildKind::Worker(_));
        // Without a pipe the next ones do not wait.
        let pipe = (is_worker && self.hands_over).then(os::fd::pipe).and_then(Result::ok);
        let (receives, receiving) = pipe.unzip();
        let (moves, moving) = is_worker.then(os::fd::pipe).and_then(Result::ok).unzip();
        let inbox = is_worker.then(|| self.relays.prepare(slot, log)).flatten();
        match os::process::fork() {
            Ok(Fork::Child) => {
                let before = self.workers_by_slot().filter(|(_, _, c)| c.generation != generation);
                let before = before.filter_map(|(_, _, child)| child.receives.take()).collect();
                let index = if let ChildKind::Worker(index) = kind { index } else { 0 };
                let helper = if let ChildKind::Helper(helper) = kind { Some(helper) } else { None };
                let binary = std::mem::take(&mut self.replaced);
                let before = Before { configuration: before, binary };
                // A new binary gets them in another way.
                let relays = is_worker.then(|| std::mem::take(&mut self.relays));
                let relay = relays.and_then(|relays| relays.into_worker(index, slot, inbox));
                ControlFlow::Break(Assignment {
                    index,
                    slot,
                    helper,
                    report: None,
                    before,
                    receiving,
                    relay,
                    moves: is_worker.then(|| self.moves.take()).flatten(),
                    moving,
                })
            }
            Ok(Fork::Parent(pid)) => {
                log!(log, Level::Notice, None, "start {name} {pid}");
                let started = Instant::now();
                let child = Child {
                    pid,
                    kind,
                    generation,
                    exiting: false,
                    stuck: None,
                    receives,
                    moving: moves,
                    lowered: None,
                    started,
                    early_ends,
                };
                self.list[slot] = Some(child);
                ControlFlow::Continue(true)
            }
            Err(e) => {
                let e = os_error(&e);
                log!(log, Level::Alert, None, "fork() failed while spawning \"{name}\" {e}");
                self.relays.ended(slot);
                ControlFlow::Continue(false)
            }
        }
    }

    /// Whether workers of generations before this one have connections that may still move.
    pub(crate) fn are_moving(&mut self, generation: u64) -> bool {
        let mut old = self.list.iter_mut().flatten().filter(|c| c.generation < generation);
        old.any(Child::is_moving)
    }

    /// Gives workers whose connections have moved the usual priority again: those connections that
    /// stay are served with it.
    pub(crate) fn raise(&mut self) {
        for child in self.list.iter_mut().flatten().filter(|child| child.lowered.is_some()) {
            // Only one look later: a worker without connections has ended by then. Its end keeps a
            // processor busy for milliseconds, and is to do so at the lower priority.
            let had_moved = child.moving.is_none();
            if !child.is_moving()
                && had_moved
                && let Some(lowered) = child.lowered.take()
            {
                lowered.raise();
            }
        }
    }

    /// The time until [`raise`](Self::raise) is to look again; `None` if no priority is lower.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.all().any(|child| child.lowered.is_some()).then_some(LOOK)
    }

    /// The slots of workers of this generation.
    pub(crate) fn slots_of(&mut self, generation: u64) -> Vec<usize> {
        let all = self.workers_by_slot();
        all.filter(|(.., child)| child.generation == generation).map(|(slot, ..)| slot).collect()
    }

    /// The connections that workers of generations before this one have.
    pub fn left(&mut self, generation: u64, stats: &Stats) -> u64 {
        let old = self.workers_by_slot().filter(|(.., child)| child.generation < generation);
        old.map(|(slot, ..)| stats.active_in(slot)).sum()
    }

    /// The value of the variable for live connections, in a child that was just forked for a new
    /// binary.
    pub(crate) fn moves_for_new_binary(&self) -> Option<String> {
        self.moves.as_ref()?.for_new_binary().ok()
    }

    /// Lets a new binary have the pipes of the workers that receive datagrams; gives their numbers
    /// as text. In a child that was just forked for it.
    pub fn keep_on_exec(&self) -> String {
        let mut numbers = String::new();
        for pipe in self.all().filter_map(|child| child.receives.as_ref()) {
            if os::fd::set_cloexec(pipe, false).is_ok() {
                numbers.push_str(&format!("{};", pipe.as_raw_fd()));
            }
        }
        numbers
    }

    /// Takes one child that has ended; `None` when there is none at the moment.
    pub fn reap(&mut self, log: &Log) -> Option<Ended> {
        loop {
            let (pid, exit) = match os::process::reap() {
                Ok(found) => found?,
                Err(e) => {
                    // No child is left: each that had ended has been taken already.
                    let level = if e.raw_os_error() == Some(os::errno::ECHILD) {
                        Level::Debug
                    } else {
                        Level::Alert
                    };
                    log!(log, level, None, "waitpid() failed {}", os_error(&e));
                    return None;
                }
            };
            let slot = self.list.iter().position(|c| c.as_ref().is_some_and(|c| c.pid == pid));
            if let Some(slot) = slot
                && let Some(child) = self.list[slot].take()
            {
                self.relays.ended(slot);
                return Some(Ended { child, slot, exit });
            }
            log!(log, Level::Notice, None, "unknown process {pid} exited");
        }
    }

    /// Sends a signal to the workers and helpers that `to` picks; a graceful stop only once.
    pub fn signal(&mut self, signal: Signal, to: impl Fn(&Child) -> bool, log: &Log) {
        for child in self.list.iter_mut().flatten() {
            let ours = child.kind != ChildKind::NewBinary;
            if !ours || !to(child) || signal == Signal::QUIT && child.exiting {
                continue;
            }
            if signal != Signal::USR1 {
                child.exiting = true;
            }
            if signal == Signal::QUIT && child.is_moving() {
                child.lowered = Lowered::by(LOWER_BY, child.pid);
            }
            let (pid, number) = (child.pid, signal.0);
            base::debug!(log, log::debug::CORE, None, "kill ({pid}, {number})");
            if let Err(e) = os::signal::kill(pid, signal) {
                let e = os_error(&e);
                log!(log, Level::Alert, None, "kill({pid}, {number}) failed {e}");
            }
        }
    }
}

/// The task of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seat {
    /// The worker of that number.
    Worker(usize),
    /// The helper with that task.
    Helper(Helper),
}

/// Time that a reload waits for new workers to serve before the old ones leave.
const READY_MAX: Duration = Duration::from_secs(10);

/// Processes that were started together.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Started {
    /// The number that serve.
    pub serving: usize,
    /// Their errors before that, a line each.
    pub reasons: Vec<String>,
}

/// Waits until every process with the writing end of a [`Report`](crate::verdict::Report) serves,
/// or has ended.
pub(crate) fn wait_started(pipe: &OwnedFd) -> Started {
    let end = Instant::now() + READY_MAX;
    let mut text = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || !os::fd::wait_readable(pipe, left) {
            break;
        }
        let mut buf = [0; 512];
        match os::fd::read(pipe, &mut buf) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(&buf[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    let text = String::from_utf8_lossy(&text);
    let (serve, reasons): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.is_empty());
    Started { serving: serve.len(), reasons: reasons.into_iter().map(str::to_owned).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(early_ends: u32, exit: Exit, age: Duration) -> Ended {
        let started = Instant::now().checked_sub(age).unwrap();
        let kind = ChildKind::Worker(0);
        let child = Child {
            pid: 77,
            kind,
            generation: 0,
            exiting: false,
            stuck: None,
            receives: None,
            moving: None,
            lowered: None,
            started,
            early_ends,
        };
        Ended { child, slot: 0, exit }
    }

    #[test]
    fn ends_in_nginx_s_words() {
        let (log, lines) = base::log::capture(Level::Notice);
        ended(0, Exit::Signal { signal: 9, core: false }, SOON).tell(&log);
        ended(0, Exit::Signal { signal: 6, core: true }, SOON).tell(&log);
        ended(0, Exit::Code(1), SOON).tell(&log);
        ended(0, Exit::Code(2), SOON).tell(&log);
        let text = lines.take();
        for line in [
            "[alert] P: worker process 77 exited on signal 9",
            "[alert] P: worker process 77 exited on signal 6 (core dumped)",
            "[notice] P: worker process 77 exited with code 1",
            "[alert] P: worker process 77 exited with fatal code 2 and cannot be respawned",
        ] {
            let (level, message) = line.split_once(" P: ").unwrap();
            let found = text.lines().any(|l| l.contains(level) && l.ends_with(message));
            assert!(found, "{line}\n{text}");
        }
    }

    #[test]
    fn workers_that_keep_failing_are_slowed_down() {
        let exit = Exit::Code(1);
        assert_eq!(ended(9, exit, SOON).pause(), Duration::ZERO);
        assert_eq!(ended(0, exit, Duration::ZERO).pause(), Duration::ZERO);
        let second = ended(1, exit, Duration::ZERO).pause();
        assert!(second > Duration::ZERO);
        assert!(ended(2, exit, Duration::ZERO).pause() > second);
        assert_eq!(ended(99, exit, Duration::ZERO).pause(), PAUSE_MAX);
    }

    #[test]
    fn readiness_ends_with_the_last_writer() {
        use crate::verdict::Report;
        let (r, w) = os::fd::pipe().unwrap();
        let (one, two) = (Report::new(os::fd::dup(&w).unwrap()), Report::new(w));
        let log = Log::new(vec![one.clone()]);
        log!(log, Level::Emerg, None, "chdir() failed");
        log!(log, Level::Warn, None, "odd");
        two.serves();
        one.serves();
        log!(log, Level::Emerg, None, "too late");
        let reasons = vec!["[emerg] chdir() failed".to_owned()];
        assert_eq!(wait_started(&r), Started { serving: 2, reasons });
    }
}
