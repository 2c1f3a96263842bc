//! The results of all clients: what was right, what a disturbance explains, and what is a finding.
//!
//! A wrong byte is a finding always. What was lost is one unless a worker was killed while it was
//! under way or shortly before. What did not move is one unless the machine itself stood still for
//! a good part of that time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::pace::{Pace, Stalls};
use crate::backends::locked;
use crate::client::Watch;

/// The limit of a client's waits.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Waits of less than this, stalls of the machine left out, are none.
const STUCK: Duration = Duration::from_secs(90);
/// A kill explains what was lost when it came so long before its beginning, or since.
const NEAR: Duration = Duration::from_secs(3);
/// Findings and disturbances that are kept with their texts.
const KEPT: usize = 300;
/// The slowest answers that are kept.
const SLOWEST: usize = 20;

/// The requests of a kind of client.
#[derive(Clone, Default)]
pub struct Row {
    pub right: u64,
    /// The right ones by what they were.
    pub kinds: BTreeMap<String, u64>,
    pub given_up: u64,
    /// Lost, and explained by a disturbance.
    pub explained: BTreeMap<String, u64>,
    /// Findings.
    pub failed: BTreeMap<String, u64>,
}

/// Something at a time.
#[derive(Clone)]
pub struct Event {
    /// Seconds from the beginning.
    pub at: f64,
    pub text: String,
}

/// An answer and the time that it took.
#[derive(Clone)]
pub struct Slow {
    pub ms: u64,
    pub event: Event,
}

#[derive(Clone, Default)]
pub struct Results {
    pub rows: BTreeMap<&'static str, Row>,
    pub findings: Vec<Event>,
    pub findings_all: u64,
    pub slowest: Vec<Slow>,
    /// Disturbances by kind.
    pub disturbances: BTreeMap<&'static str, u64>,
    /// The last ones.
    pub events: VecDeque<Event>,
}

/// Stretches of time in which something is allowed.
#[derive(Default)]
pub struct Periods(Mutex<VecDeque<(Instant, Option<Instant>)>>);

impl Periods {
    pub fn begin(&self) {
        let mut all = locked(&self.0);
        if all.len() == KEPT {
            all.pop_front();
        }
        all.push_back((Instant::now(), None));
    }

    pub fn end(&self) {
        if let Some(last) = locked(&self.0).back_mut() {
            last.1.get_or_insert_with(Instant::now);
        }
    }

    /// One that is over at once.
    pub fn moment(&self) {
        self.begin();
        self.end();
    }

    /// Whether any of them ended behind that time, or goes on.
    pub fn reaches(&self, time: Option<Instant>) -> bool {
        let Some(time) = time else { return false };
        locked(&self.0).iter().rev().any(|(_, end)| end.is_none_or(|end| end >= time))
    }
}

/// What everybody shares.
pub struct Tally {
    pub began: Instant,
    pub pace: Pace,
    pub stalls: Arc<Stalls>,
    pub stop: Arc<AtomicBool>,
    /// Kills of workers.
    pub kills: Periods,
    /// The small disk is full.
    pub full: Periods,
    results: Mutex<Results>,
}

/// The kind of a fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Wrong,
    Stuck,
    Lost,
}

impl Fault {
    fn of(what: &str) -> Self {
        match () {
            () if what.contains("another body") || what.contains("wrong") => Self::Wrong,
            () if what.contains("stuck") => Self::Stuck,
            () => Self::Lost,
        }
    }
}

impl Tally {
    pub fn new(per_second: u64) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            pace: Pace::new(per_second),
            stalls: Stalls::watch(),
            stop: Arc::default(),
            kills: Periods::default(),
            full: Periods::default(),
            results: Mutex::default(),
        })
    }

    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps, and wakes early when it is over.
    pub fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    pub fn results(&self) -> Results {
        locked(&self.results).clone()
    }

    fn event(&self, text: String) -> Event {
        Event { at: self.began.elapsed().as_secs_f64(), text }
    }

    /// Notes a disturbance.
    pub fn disturbed(&self, kind: &'static str, more: &str) {
        let text = if more.is_empty() { kind.to_string() } else { format!("{kind}: {more}") };
        let event = self.event(text);
        let mut results = locked(&self.results);
        *results.disturbances.entry(kind).or_default() += 1;
        if results.events.len() == KEPT {
            results.events.pop_front();
        }
        results.events.push_back(event);
    }

    /// Notes a finding that belongs to no request.
    pub fn finding(&self, text: String) {
        let event = self.event(text);
        let mut results = locked(&self.results);
        results.findings_all += 1;
        if results.findings.len() < KEPT {
            println!("FINDING at {:.1} s: {}", event.at, event.text);
            results.findings.push(event);
        }
    }

    fn right(&self, protocol: &'static str, since: Instant, what: &str) {
        let ms = since.elapsed().as_millis() as u64;
        let mut results = locked(&self.results);
        let row = results.rows.entry(protocol).or_default();
        row.right += 1;
        match row.kinds.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(row.kinds.insert(what.to_string(), 1)),
        }
        let least = results.slowest.last().map_or(0, |slow| slow.ms);
        if ms > least || results.slowest.len() < SLOWEST {
            let event = self.event(format!("{protocol}: {what}"));
            let place = results.slowest.partition_point(|slow| slow.ms >= ms);
            results.slowest.insert(place, Slow { ms, event });
            results.slowest.truncate(SLOWEST);
        }
    }

    fn fault(&self, lane: &Lane, since: Instant, (what, request): (&str, &str), allowed: bool) {
        let protocol = lane.protocol;
        let waited = since.elapsed();
        let stalled = self.stalls.since(since);
        let before = since.checked_sub(NEAR * 3).map_or(stalled, |time| self.stalls.since(time));
        let near = since.checked_sub(NEAR + before);
        let is_explained = match Fault::of(what) {
            Fault::Wrong => false,
            Fault::Stuck => waited.saturating_sub(stalled) < STUCK,
            Fault::Lost => allowed || self.kills.reaches(near),
        };
        let mut results = locked(&self.results);
        let row = results.rows.entry(protocol).or_default();
        let counts = if is_explained { &mut row.explained } else { &mut row.failed };
        *counts.entry(what.to_string()).or_default() += 1;
        drop(results);
        if !is_explained {
            let (waited, stalled) = (waited.as_secs_f64(), stalled.as_secs_f64());
            let text =
                format!("{protocol}: {what} ({waited:.3} s, {stalled:.3} s of stalls) {request}");
            self.finding(text);
        }
    }
}

/// A kind of client, which counts there.
#[derive(Clone)]
pub struct Lane {
    pub tally: Arc<Tally>,
    pub protocol: &'static str,
}

impl Lane {
    pub fn new(tally: &Arc<Tally>, protocol: &'static str) -> Self {
        Self { tally: Arc::clone(tally), protocol }
    }

    /// A fault of a request that needs no more words.
    pub fn fault(&self, since: Instant, what: &str) {
        self.tally.fault(self, since, (what, ""), false);
    }

    /// A fault that something else than a kill explains, if `allowed`.
    pub fn fault_unless(&self, allowed: bool, since: Instant, what: &str) {
        self.tally.fault(self, since, (what, ""), allowed);
    }
}

impl Watch for Lane {
    fn pace(&self) {
        self.tally.pace.wait();
    }

    fn right(&self, since: Instant, what: &str) {
        self.tally.right(self.protocol, since, what);
    }

    fn given_up(&self, _since: Instant) {
        locked(&self.tally.results).rows.entry(self.protocol).or_default().given_up += 1;
    }

    fn fault(&self, since: Instant, what: &str, request: &str) {
        self.tally.fault(self, since, (what, request), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_explain_what_was_lost_and_no_wrong_byte() {
        let tally = Tally::new(1000);
        let lane = Lane::new(&tally, "test");
        let failed = || tally.results().findings_all;
        lane.fault(Instant::now(), "cut");
        assert_eq!(failed(), 1);
        tally.kills.moment();
        lane.fault(Instant::now(), "cut");
        assert_eq!(failed(), 1, "near a kill");
        lane.fault(Instant::now(), "file: another body");
        assert_eq!(failed(), 2);
        lane.fault(Instant::now(), "stuck");
        assert_eq!(failed(), 2, "it was not long enough");
        lane.fault(Instant::now() + NEAR * 2, "cut");
        assert_eq!(failed(), 3, "long after a kill");
    }

    #[test]
    fn periods_reach_to_their_end() {
        let periods = Periods::default();
        let before = Instant::now();
        assert!(!periods.reaches(Some(before)));
        periods.begin();
        assert!(periods.reaches(Some(before + Duration::from_secs(99))));
        periods.end();
        assert!(periods.reaches(Some(before)));
        assert!(!periods.reaches(Some(before + Duration::from_secs(99))));
    }
}
