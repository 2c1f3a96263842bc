//! The verdict on a reload, and the messages that give its reasons.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use base::log::{Form, Level, Sink};
use engine::Stats;
use engine::stats::MoveReport;
use net::moves::{Kind, Stay};

use crate::control::{Answer, Status};

/// The most messages that are kept.
const REASONS_MAX: usize = 100;

/// The outcome of a reload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The new configuration serves.
    Serving,
    /// It was refused before any process knew of it.
    Refused,
    /// None of its workers could start: the old configuration stays.
    RolledBack,
    /// The workers of the running configuration are back after the attempt to change the binary.
    BinaryKept,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Outcome::Serving => "serving",
            Outcome::Refused => "refused",
            Outcome::RolledBack => "rolled-back",
            Outcome::BinaryKept => "binary-kept",
        }
    }
}

/// The verdict on a reload.
#[derive(Debug)]
pub struct Verdict {
    pub outcome: Outcome,
    /// New workers that serve.
    pub serving: usize,
    /// New workers that were to serve.
    pub configured: usize,
}

impl Verdict {
    /// A verdict without new workers.
    pub(crate) fn without_workers(outcome: Outcome) -> Verdict {
        Verdict { outcome, serving: 0, configured: 0 }
    }

    /// The answer to who asked for the reload.
    pub fn answer(&self, generation: u64, reasons: &[String]) -> Answer {
        let status = match self.outcome {
            Outcome::Serving => Status::Ok,
            _ => Status::Refused,
        };
        let mut answer = Answer::new(status)
            .field("outcome", self.outcome.name())
            .field("generation", generation)
            .field("serving", self.serving)
            .field("configured", self.configured);
        answer.body = reasons.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
        answer
    }
}

/// The moves of clients' connections between workers, up to a moment.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Those that left a worker: one may leave several that do not know yet that they leave, too.
    sent: u64,
    /// Those that came to the workers of each slot.
    received: Vec<u64>,
    /// Those that stay, by reason.
    stayed: [u64; Stay::ALL.len()],
}

impl Moved {
    /// Since the server's start.
    pub fn so_far(stats: &Stats) -> Moved {
        let mut sums = Moved { received: stats.received_by_slot(), ..Moved::default() };
        for MoveReport { sent, stayed, .. } in Kind::CLIENTS.map(|kind| stats.moves(kind)) {
            sums.sent += sent;
            sums.stayed.iter_mut().zip(stayed).for_each(|(sum, n)| *sum += n);
        }
        sums
    }

    /// The moves since an earlier time.
    fn since(&self, before: &Moved) -> Moved {
        let less = |now: u64, before: u64| now.saturating_sub(before);
        // Workers may have slots that nobody had used before.
        let of_slot = |slot: usize| before.received.get(slot).copied().unwrap_or(0);
        let received = self.received.iter().enumerate();
        Moved {
            sent: less(self.sent, before.sent),
            received: received.map(|(slot, now)| less(*now, of_slot(slot))).collect(),
            stayed: std::array::from_fn(|i| less(self.stayed[i], before.stayed[i])),
        }
    }

    /// Whether all that has left a worker since then has come to another one.
    pub(crate) fn has_arrived(&self, stats: &Stats) -> bool {
        let since = Moved::so_far(stats).since(self);
        since.sent == since.received.iter().sum::<u64>()
    }

    /// Adds the moves since then to the workers in `slots` to an answer; `left` connections are
    /// still with the old workers.
    pub fn told(&self, stats: &Stats, slots: &[usize], answer: Answer, left: u64) -> Answer {
        let since = Moved::so_far(stats).since(self);
        let moved: u64 = slots.iter().filter_map(|slot| since.received.get(*slot)).sum();
        let reasons = Stay::ALL.iter().zip(since.stayed).filter(|(_, n)| *n > 0);
        let reasons: Vec<String> = reasons.map(|(why, n)| format!("{n} {}", why.name())).collect();
        let answer = answer.field("moved", moved).field("left", left);
        answer.field("stayed", reasons.join(", "))
    }
}

/// A sink that keeps the warnings and errors of a reload, in the master.
#[derive(Default)]
pub struct Reasons {
    lines: RefCell<Vec<String>>,
    open: Cell<bool>,
}

impl Reasons {
    /// Keeps messages from now on.
    pub fn begin(&self) {
        self.lines.borrow_mut().clear();
        self.open.set(true);
    }

    /// Adds a message: `[emerg] MESSAGE`.
    pub fn add(&self, line: &str) {
        let mut lines = self.lines.borrow_mut();
        if self.open.get() && lines.len() < REASONS_MAX {
            lines.push(line.trim_end().to_owned());
        }
    }

    /// Keeps no more messages; returns those kept.
    pub fn end(&self) -> Vec<String> {
        self.open.set(false);
        self.lines.take()
    }
}

impl Sink for Reasons {
    fn write_line(&self, _: Level, line: &[u8]) {
        self.add(&String::from_utf8_lossy(line));
    }

    fn level(&self) -> Level {
        Level::Warn
    }

    fn form(&self) -> Form {
        Form::Bare
    }
}

/// A sink of a child process that reports its errors to the master through a pipe, a line each, and
/// that it serves by an empty line.
#[derive(Debug)]
pub struct Report(RefCell<Option<OwnedFd>>);

impl Report {
    /// Reports by the pipe's writing end.
    pub fn new(pipe: OwnedFd) -> Rc<Report> {
        Rc::new(Report(RefCell::new(Some(pipe))))
    }

    /// This process serves, and reports no more.
    pub fn serves(&self) {
        self.write(b"\n");
        self.0.take();
    }

    fn write(&self, line: &[u8]) {
        if let Some(pipe) = &*self.0.borrow() {
            // The master may be gone. Lines are shorter than PIPE_BUF, and so are never torn.
            let _ = os::file::write(pipe, line);
        }
    }
}

impl Sink for Report {
    fn write_line(&self, _: Level, line: &[u8]) {
        self.write(line);
    }

    fn level(&self) -> Level {
        Level::Error
    }

    fn form(&self) -> Form {
        Form::Bare
    }
}

#[cfg(test)]
mod tests {
    use net::moves::Tally;

    use super::*;

    #[test]
    fn a_connection_that_moves_twice_counts_once() {
        let stats = Stats::new(8).unwrap();
        stats.use_slot(2);
        stats.received(Kind::Session, 0);
        let before = Moved::so_far(&stats);
        assert!(before.has_arrived(&stats));
        // An old worker gives it to another one, which gives it to a new one.
        for (from, to) in [(0, 1), (1, 3)] {
            stats.use_slot(from);
            stats.sent(Kind::Session);
            assert!(!before.has_arrived(&stats));
            stats.use_slot(to);
            stats.received(Kind::Session, 0);
            assert!(before.has_arrived(&stats));
        }
        stats.use_slot(0);
        stats.stayed(Kind::Tunnel, Stay::Off);
        let answer = before.told(&stats, &[2, 3], Answer::new(Status::Ok), 1);
        assert_eq!((answer.number("moved"), answer.number("left")), (1, 1));
        assert_eq!(answer.get("stayed"), Some("1 off"));
    }
}
