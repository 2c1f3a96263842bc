//! Memory that all workers and engines share whatever the configuration: the counters of
//! `stub_status`, each worker's reports of its loop and pools, the numbers of connections, slow and
//! failed requests, and the clients that are logged in full.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::atomic::Ordering;

use net::moves::{Kind, Stay, Tally};
use shm::{Counters, Line, Zone};

use crate::flight::Recorder;
use crate::history::History;
use crate::live_debug::LiveDebug;

/// One counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Field {
    /// Connections accepted.
    Accepted,
    /// Connections that got a task.
    Handled,
    /// Client requests.
    Requests,
    /// Connections open now.
    Active,
    /// Connections whose request head is being read.
    Reading,
    /// Connections whose request is being answered.
    Writing,
    /// Connections without a request: new ones, and kept ones between two.
    Waiting,
}

/// The counters of work under way, which are void when a worker died.
pub const UNDER_WAY: [usize; 4] = [
    Field::Active as usize,
    Field::Reading as usize,
    Field::Writing as usize,
    Field::Waiting as usize,
];

/// The lines of a worker's reports: of its loop, of its overload, the others of its pools.
const LINES: usize = 32;

/// The fields in the line of a worker's loop.
#[derive(Clone, Copy)]
enum OfLoop {
    Pid,
    Tasks,
    LongestMs,
    // The fields from here on only grow, whichever worker has the line.
    Turns,
    Polls,
    BusyMs,
    WaitMs,
    Dropped,
}

/// The fields in the line of a worker's overload: see [`crate::overload`].
#[derive(Clone, Copy)]
pub(crate) enum OfOverload {
    /// The step that holds.
    Step,
    // The fields from here on only grow, whichever worker has the line.
    /// Beginnings of the first step.
    Closes,
    /// Beginnings of the second.
    Sheds,
    /// Beginnings of the third.
    Refusals,
    /// Connections that were closed.
    Closed,
    /// Requests and sessions that were refused.
    Refused,
    /// Connections that were accepted although others were refused.
    Preferred,
    /// Busy connections that were closed for these.
    Displaced,
}

/// The fields in the line of a pool.
#[derive(Clone, Copy)]
enum OfPool {
    /// A hash of its name.
    Name,
    Queued,
    Running,
    LongestUs,
    Done,
    Refused,
}

/// The report of one worker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerReport {
    /// Its number among the master's processes.
    pub slot: usize,
    /// Its process.
    pub pid: u64,
    /// Its open connections.
    pub active: u64,
    /// The connections without a request.
    pub waiting: u64,
    /// Connections that were accepted in its place.
    pub accepted: u64,
    /// Those of the accepted connections that got a task.
    pub handled: u64,
    /// Requests in its place.
    pub requests: u64,
    /// Of these, under way.
    pub writing: u64,
    /// Tasks of its loop.
    pub tasks: u64,
    /// The longest run of its loop between two waits, milliseconds.
    pub longest_turn_ms: u64,
}

/// The work of all loops, of workers included that have ended.
#[derive(Clone, Copy, Debug)]
pub struct WorkReport {
    /// Turns of the worker's event loop.
    pub turns: u64,
    /// Tasks polled.
    pub polls: u64,
    /// Milliseconds of work.
    pub busy_ms: u64,
    /// Milliseconds of waiting.
    pub wait_ms: u64,
    /// Log lines that were dropped.
    pub dropped: u64,
}

/// The overload of all workers, of those included that have ended.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct OverloadReport {
    /// The furthest step of those that hold: 0 for none, to 3.
    pub step: u64,
    /// Beginnings of the three steps.
    pub begun: [u64; 3],
    /// Connections that were closed to make room.
    pub closed: u64,
    /// Requests and sessions that were refused.
    pub refused: u64,
    /// Connections that were accepted although others were refused.
    pub preferred: u64,
    /// Busy connections that were closed for these.
    pub displaced: u64,
}

/// The work, done and waiting, of the workers' pools of one name.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct PoolReport {
    /// Tasks that wait for a thread.
    pub queued: u64,
    /// Tasks that run.
    pub running: u64,
    /// Tasks that ended.
    pub done: u64,
    /// Tasks that were refused.
    pub refused: u64,
    /// The longest time that a task has waited for a thread, microseconds.
    pub longest_wait_us: u64,
}

/// The fields in the line of a kind of connection: those that moved, each once; those that went,
/// and came, each time; and from [`STAYED`] on those that stayed, by reason.
const MOVED: usize = 0;
const SENT: usize = 1;
const RECEIVED: usize = 2;
const STAYED: usize = 3;
const _: () = assert!(STAYED + Stay::ALL.len() <= shm::LINE_FIELDS);

/// The moves of connections of a kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct MoveReport {
    /// Connections that came from another process, each once however often it has moved.
    pub moved: u64,
    /// The number of times that one went to another process.
    pub sent: u64,
    /// The number of times that one came from another process.
    pub received: u64,
    /// Connections that stayed with a worker that left, by reason ([`Stay::ALL`]).
    pub stayed: [u64; Stay::ALL.len()],
}

impl Tally for Stats {
    fn sent(&self, kind: Kind) {
        self.count_move(kind, SENT);
    }

    fn received(&self, kind: Kind, moved_in: u64) {
        self.count_move(kind, RECEIVED);
        if moved_in != self.run {
            self.count_move(kind, MOVED);
        }
    }

    fn stayed(&self, kind: Kind, why: Stay) {
        self.count_move(kind, STAYED + why as usize);
    }
}

/// The counters, made before the fork; each worker writes its own lines.
pub struct Stats {
    /// Slow and failed requests.
    pub flight: Recorder,
    /// An hour of history.
    pub history: History,
    /// Clients that are logged in full for a while.
    pub live_debug: LiveDebug,
    counters: Counters,
    /// [`LINES`] of each worker.
    reports: Counters,
    /// A line for each kind of connection that moves, of each worker.
    moves: Counters,
    /// The values of growing counters at this worker's last report.
    reported: RefCell<Vec<u64>>,
    numbers: Zone,
    slot: Cell<usize>,
    began_ms: u64,
    run: u64,
}

impl Stats {
    /// Counters for `slots` processes.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(slots: usize) -> io::Result<Stats> {
        let slots = slots.max(1);
        let (counters, reports) = (Counters::new(slots)?, Counters::new(slots * LINES)?);
        let (numbers, reported) = (Zone::anonymous(64)?, RefCell::default());
        let moves = Counters::new(slots * Kind::ALL.len())?;
        let began_ms = base::time::unix_ms();
        Ok(Stats {
            flight: Recorder::new()?,
            history: History::new()?,
            live_debug: LiveDebug::new()?,
            counters,
            reports,
            moves,
            reported,
            numbers,
            slot: Cell::new(0),
            began_ms,
            run: began_ms << 20 | u64::from(std::process::id()),
        })
    }

    /// The time when all counters were 0, milliseconds since 1970: the start of the master.
    pub fn began_ms(&self) -> u64 {
        self.began_ms
    }

    /// Names the run of the master that these counters belong to, unlike those of binaries before
    /// and after it; never 0.
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Takes the line of this process's slot; a predecessor's work under way is cleared.
    pub fn use_slot(&self, slot: usize) {
        self.slot.set(slot);
        self.counters.use_slot(slot);
        // Each engine of a worker takes the slot; the first has reported by then.
        if self.lines(slot).0.get(OfLoop::Pid as usize) != u64::from(std::process::id()) {
            self.counters.clear(slot, &UNDER_WAY);
            self.clear_reports(slot);
        }
    }

    /// The slots up to the last one that a process has used. The lines of later slots take no
    /// memory until somebody reads them.
    fn slots(&self) -> std::ops::Range<usize> {
        0..self.counters.used()
    }

    /// Clears the reports of work that ended with its worker.
    fn clear_reports(&self, slot: usize) {
        let (of_loop, pools) = self.lines(slot);
        for field in [OfLoop::Pid, OfLoop::Tasks, OfLoop::LongestMs] {
            of_loop.set(field as usize, 0);
        }
        self.overload_line(slot).set(OfOverload::Step as usize, 0);
        for line in pools {
            for field in [OfPool::Queued, OfPool::Running, OfPool::LongestUs] {
                line.set(field as usize, 0);
            }
        }
    }

    fn lines(&self, slot: usize) -> (&Line, impl Iterator<Item = &Line>) {
        let first = slot * LINES;
        (self.reports.line(first), (first + 2..first + LINES).map(|i| self.reports.line(i)))
    }

    fn overload_line(&self, slot: usize) -> &Line {
        self.reports.line(slot * LINES + 1)
    }

    /// The step of this worker's overload that holds now.
    pub(crate) fn set_overload(&self, step: u64) {
        self.overload_line(self.slot.get()).set(OfOverload::Step as usize, step);
    }

    /// Adds to a counter of this worker's overload.
    pub(crate) fn count_overload(&self, field: OfOverload, n: u64) {
        self.overload_line(self.slot.get()).add(field as usize, n);
    }

    fn move_line(&self, slot: usize, kind: Kind) -> &Line {
        self.moves.line(slot * Kind::ALL.len() + kind as usize)
    }

    fn count_move(&self, kind: Kind, field: usize) {
        self.move_line(self.slot.get(), kind).add(field, 1);
    }

    /// The open connections of the process in this slot.
    pub fn active_in(&self, slot: usize) -> u64 {
        self.counters.line(slot).get(Field::Active as usize)
    }

    /// The clients' connections that came from other workers to those of each slot.
    pub fn received_by_slot(&self) -> Vec<u64> {
        let in_slot = |slot| Kind::CLIENTS.map(|kind| self.move_line(slot, kind).get(RECEIVED));
        self.slots().map(|slot| in_slot(slot).iter().sum()).collect()
    }

    /// The moves of connections of a kind, since the start.
    pub fn moves(&self, kind: Kind) -> MoveReport {
        let sum = |field: usize| {
            let all = self.slots().map(|slot| self.move_line(slot, kind).get(field));
            all.fold(0, u64::wrapping_add)
        };
        MoveReport {
            moved: sum(MOVED),
            sent: sum(SENT),
            received: sum(RECEIVED),
            stayed: Stay::ALL.map(|why| sum(STAYED + why as usize)),
        }
    }

    /// The overload of all workers.
    pub fn overload(&self) -> OverloadReport {
        let all = |field: OfOverload| {
            self.slots().map(move |slot| self.overload_line(slot).get(field as usize))
        };
        let sum = |field| all(field).fold(0, u64::wrapping_add);
        OverloadReport {
            step: all(OfOverload::Step).max().unwrap_or(0),
            begun: [OfOverload::Closes, OfOverload::Sheds, OfOverload::Refusals].map(sum),
            closed: sum(OfOverload::Closed),
            refused: sum(OfOverload::Refused),
            preferred: sum(OfOverload::Preferred),
            displaced: sum(OfOverload::Displaced),
        }
    }

    /// Writes this worker's report: its loop, the log lines it has dropped, and its pools, as far
    /// as there are lines for them.
    pub fn report<'a>(
        &self,
        stats: &event::Stats,
        dropped: u64,
        pools: impl Iterator<Item = (&'a str, event::pool::Counters)>,
    ) {
        let (line, lines) = self.lines(self.slot.get());
        line.set(OfLoop::Pid as usize, std::process::id().into());
        line.set(OfLoop::Tasks as usize, stats.tasks as u64);
        line.set(OfLoop::LongestMs as usize, stats.longest_turn_ms);
        let mut reported = self.reported.borrow_mut();
        let mut place = 0;
        let mut grown = |line: &Line, field: usize, n: u64| {
            if reported.len() <= place {
                reported.resize(place + 1, 0);
            }
            // A pool of another configuration may stand where this one stood.
            line.add(field, n.saturating_sub(std::mem::replace(&mut reported[place], n)));
            place += 1;
        };
        for (field, n) in [
            (OfLoop::Turns, stats.turns),
            (OfLoop::Polls, stats.polls),
            (OfLoop::BusyMs, stats.busy_ms),
            (OfLoop::WaitMs, stats.wait_ms),
            (OfLoop::Dropped, dropped),
        ] {
            grown(line, field as usize, n);
        }
        for (line, (name, counters)) in lines.zip(pools) {
            let name = name_hash(name);
            if line.get(OfPool::Name as usize) != name {
                line.set(OfPool::Name as usize, name);
                line.set(OfPool::Done as usize, 0);
                line.set(OfPool::Refused as usize, 0);
            }
            line.set(OfPool::Queued as usize, counters.queued as u64);
            line.set(OfPool::Running as usize, counters.running as u64);
            line.set(OfPool::LongestUs as usize, counters.longest_wait_us);
            grown(line, OfPool::Done as usize, counters.done);
            grown(line, OfPool::Refused as usize, counters.refused);
        }
    }

    /// The reports of all workers.
    pub fn workers(&self) -> Vec<WorkerReport> {
        let report = |slot| {
            let line = self.lines(slot).0;
            let counters = self.counters.line(slot);
            let counted = |field: Field| counters.get(field as usize);
            WorkerReport {
                slot,
                waiting: counted(Field::Waiting),
                accepted: counted(Field::Accepted),
                handled: counted(Field::Handled),
                requests: counted(Field::Requests),
                writing: counted(Field::Writing),
                pid: line.get(OfLoop::Pid as usize),
                active: counted(Field::Active),
                tasks: line.get(OfLoop::Tasks as usize),
                longest_turn_ms: line.get(OfLoop::LongestMs as usize),
            }
        };
        self.slots().map(report).filter(|worker| worker.pid != 0).collect()
    }

    /// The work of all loops.
    pub fn work(&self) -> WorkReport {
        let sum = |field: OfLoop| {
            let all = self.slots().map(|slot| self.lines(slot).0.get(field as usize));
            all.fold(0, u64::wrapping_add)
        };
        WorkReport {
            turns: sum(OfLoop::Turns),
            polls: sum(OfLoop::Polls),
            busy_ms: sum(OfLoop::BusyMs),
            wait_ms: sum(OfLoop::WaitMs),
            dropped: sum(OfLoop::Dropped),
        }
    }

    /// The work of the workers' pools of that name.
    pub fn pool(&self, name: &str) -> PoolReport {
        let name = name_hash(name);
        let mut report = PoolReport::default();
        for slot in self.slots() {
            if self.lines(slot).0.get(OfLoop::Turns as usize) == 0 {
                continue;
            }
            for line in self.lines(slot).1 {
                if line.get(OfPool::Name as usize) == name {
                    report.queued += line.get(OfPool::Queued as usize);
                    report.running += line.get(OfPool::Running as usize);
                    report.done += line.get(OfPool::Done as usize);
                    report.refused += line.get(OfPool::Refused as usize);
                    let longest = line.get(OfPool::LongestUs as usize);
                    report.longest_wait_us = report.longest_wait_us.max(longest);
                }
            }
        }
        report
    }

    /// The open connections of the worker with that slot, and those whose requests are being read
    /// or answered.
    pub fn under_way(&self, slot: usize) -> (u64, u64) {
        let get = |field: Field| self.counters.line(slot).get(field as usize);
        (get(Field::Active), get(Field::Reading) + get(Field::Writing))
    }

    /// The line that this process writes: its slot among the master's processes.
    pub fn slot(&self) -> usize {
        self.slot.get()
    }

    /// Clears the work that a dead worker left under way.
    pub fn worker_died(&self, slot: usize) {
        self.counters.clear(slot, &UNDER_WAY);
        self.clear_reports(slot);
    }

    /// Adds to this worker's counter.
    #[inline]
    pub fn add(&self, field: Field, n: u64) {
        self.counters.line(self.slot.get()).add(field as usize, n);
    }

    /// Takes from this worker's counter.
    #[inline]
    pub fn sub(&self, field: Field, n: u64) {
        self.counters.line(self.slot.get()).sub(field as usize, n);
    }

    /// Counts one in this worker's counter while the result lives, whatever way it ends: a panic
    /// drops it as well.
    pub fn gauge(&self, field: Field) -> Gauge<'_> {
        let line = self.counters.line(self.slot.get());
        line.add(field as usize, 1);
        Gauge { line, field: Cell::new(field) }
    }

    /// The sum over all workers.
    pub fn sum(&self, field: Field) -> u64 {
        self.counters.sum(field as usize)
    }

    /// In the master: a process takes the place of one that ended.
    pub fn count_respawn(&self) {
        if let Some(n) = self.numbers.words().get(1) {
            n.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of processes that took the place of others.
    pub fn respawned(&self) -> u64 {
        self.numbers.words().get(1).map_or(0, |n| n.load(Ordering::Relaxed))
    }

    /// The next connection's number.
    pub fn next_connection(&self) -> u64 {
        match self.numbers.words().first() {
            Some(n) => n.fetch_add(1, Ordering::Relaxed) + 1,
            None => 0,
        }
    }
}

/// Never 0, which stands for no pool.
fn name_hash(name: &str) -> u64 {
    u64::from(base::murmur2::murmur2(name.as_bytes())) << 1 | 1
}

/// One in a counter: see [`Stats::gauge`].
#[must_use = "it counts while it lives"]
pub struct Gauge<'a> {
    /// Looked up once: a request counts here five times.
    line: &'a Line,
    field: Cell<Field>,
}

impl Gauge<'_> {
    /// Counts in another counter from now on.
    #[inline]
    pub fn becomes(&self, field: Field) {
        self.line.sub(self.field.replace(field) as usize, 1);
        self.line.add(field as usize, 1);
    }
}

impl Drop for Gauge<'_> {
    fn drop(&mut self) {
        self.line.sub(self.field.get() as usize, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::pool::Counters as OfPools;

    #[test]
    fn a_panic_takes_a_request_out_of_its_counter() {
        let stats = Stats::new(1).unwrap();
        let kept = stats.gauge(Field::Writing);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let writing = stats.gauge(Field::Reading);
            writing.becomes(Field::Writing);
            assert_eq!(stats.sum(Field::Writing), 1, "a panic of the test");
        }));
        assert!(ended.is_err());
        assert_eq!((stats.sum(Field::Writing), stats.sum(Field::Reading)), (1, 0));
        drop(kept);
        assert_eq!(stats.sum(Field::Writing), 0);
    }

    #[test]
    fn a_connection_counts_once_however_often_it_moves() {
        let stats = Stats::new(2).unwrap();
        // Accepted here; back from another worker; from another binary.
        for moved_in in [0, stats.run(), stats.run(), stats.run() + 1] {
            stats.received(Kind::Idle, moved_in);
        }
        stats.use_slot(1);
        stats.sent(Kind::Idle);
        let report = MoveReport { moved: 2, sent: 1, received: 4, ..MoveReport::default() };
        assert_eq!(stats.moves(Kind::Idle), report);
        assert_eq!(stats.moves(Kind::Tunnel), MoveReport::default());
    }

    #[test]
    fn slots_that_nobody_used_are_not_read() {
        let stats = Stats::new(1024).unwrap();
        assert_eq!(stats.slots(), 0..1024);
        for slot in [5, 2] {
            stats.use_slot(slot);
            stats.sent(Kind::Session);
        }
        assert_eq!(stats.slots(), 0..6);
        assert_eq!((stats.moves(Kind::Session).sent, stats.received_by_slot().len()), (2, 6));
    }

    #[test]
    fn reports_of_a_dead_worker_are_cleared() {
        let stats = Stats::new(3).unwrap();
        let of_loop = |turns, longest_turn_ms| event::Stats {
            turns,
            longest_turn_ms,
            ..event::Stats::default()
        };
        let pool = |queued, done| OfPools { queued, done, ..OfPools::default() };
        stats.use_slot(1);
        stats.report(&of_loop(5, 7), 2, [("a", pool(3, 10)), ("b", pool(0, 1))].into_iter());
        stats.report(&of_loop(8, 7), 2, [("a", pool(1, 15)), ("b", pool(0, 1))].into_iter());
        assert_eq!((stats.work().turns, stats.work().dropped), (8, 2));
        assert_eq!((stats.pool("a").queued, stats.pool("a").done), (1, 15));
        assert_eq!(stats.pool("b").done, 1);
        assert_eq!(stats.pool("c"), PoolReport::default());
        let workers = stats.workers();
        assert_eq!((workers.len(), workers[0].longest_turn_ms), (1, 7));
        stats.set_overload(2);
        stats.count_overload(OfOverload::Sheds, 3);
        stats.count_overload(OfOverload::Refused, 4);
        let begun = [0, 3, 0];
        let overload = OverloadReport { step: 2, begun, refused: 4, ..OverloadReport::default() };
        assert_eq!(stats.overload(), overload);
        stats.worker_died(1);
        assert_eq!(stats.overload(), OverloadReport { step: 0, ..overload });
        assert!(stats.workers().is_empty());
        assert_eq!((stats.pool("a").queued, stats.pool("a").done), (0, 15));
        assert_eq!(stats.work().turns, 8);
    }
}
