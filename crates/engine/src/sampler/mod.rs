//! The writer of the history: from the counters at two moments to the values of a step.
//!
//! The values of an upstream are the sums of its servers' *growth*, and those of the whole server
//! the sums of its virtual servers'. A server that is removed, drained or set down therefore never
//! makes the rate of its upstream jump, as the difference of two sums would. A series that is new,
//! or was away, begins with its second sample: its counters may be older than itself.

mod counts;

use std::collections::HashMap;
use std::time::Duration;

use shm::StepTime;

pub use counts::Counts;

use crate::history::{
    Event, EventKind, History, PeerState, STEP_MS, SeriesKind, SeriesName, Severity,
};

/// The most events of servers from one sample; the rest become one event.
const EVENTS_AT_ONCE: usize = 20;

/// A thing with counters, as it is at the moment of a sample.
pub struct Seen {
    /// Its name.
    pub name: SeriesName,
    /// The series that it is a part of, which has no counters of its own.
    pub part_of: Option<SeriesName>,
    /// Its counters.
    pub counts: Counts,
    /// Work in progress.
    pub active: u64,
    /// Its state. `Absent` stands for one that only workers know: it is taken from the counters.
    pub state: PeerState,
    /// Of a server that failures keep out: since when, on the clock of the sample, if it is known.
    pub out_since_ms: Option<u64>,
}

/// A series in the sampler's memory.
struct Past {
    /// Its row, if there is room for it.
    row: Option<usize>,
    counts: Counts,
    state: PeerState,
    /// The number of the last sample that had it.
    sample: u64,
}

/// A sum of parts in a sample.
#[derive(Default)]
struct Sum {
    growth: Counts,
    active: u64,
}

/// The sampler. It belongs to the one process that writes the history.
#[derive(Default)]
pub struct Sampler {
    past: HashMap<SeriesName, Past>,
    /// The rows of sums.
    sums: HashMap<SeriesName, (Option<usize>, u64)>,
    /// The time of the last sample.
    last_ms: Option<u64>,
    sample: u64,
}

impl Sampler {
    /// The time until the next sample; `None` before the first one.
    pub fn wait(&self, now_ms: u64) -> Option<Duration> {
        let next = self.last_ms? + STEP_MS;
        Some(Duration::from_millis(next.saturating_sub(now_ms)))
    }

    /// Forgets the past: the next sample is the first one again.
    pub fn stop(&mut self) {
        self.last_ms = None;
        self.past.clear();
    }

    /// Takes a sample: a step of the history, but for the first sample, which only begins.
    /// `connections` are those open.
    pub fn take(&mut self, history: &History, now_ms: u64, connections: u64, all: Vec<Seen>) {
        self.sample += 1;
        let mut sums: Vec<(SeriesName, Sum)> = vec![(SeriesName::total(), Sum::default())];
        let mut at: HashMap<SeriesName, usize> = HashMap::from([(SeriesName::total(), 0)]);
        let (mut changed, mut points) = (Vec::new(), Vec::new());
        for seen in all {
            let Some(growth) = self.growth(&seen, &mut changed) else { continue };
            if let Some(whole) = seen.part_of {
                let i = *at.entry(whole).or_insert_with_key(|whole| {
                    sums.push((whole.clone(), Sum::default()));
                    sums.len() - 1
                });
                sums[i].1.growth.add(&growth.0);
                sums[i].1.active += seen.active;
            }
            points.push((seen.name, growth.0.point(seen.active, growth.1)));
        }
        sums[0].1.active = connections;
        let before = self.last_ms.replace(now_ms);
        let Some(length_ms) = before.map(|before| now_ms.saturating_sub(before)) else { return };
        for (name, sum) in sums {
            let point = sum.growth.point(sum.active, PeerState::Up);
            let (row, sample) = self
                .sums
                .entry(name)
                .or_insert_with_key(|name| (history.line.assign(&name.encode()), 0));
            *sample = self.sample;
            if let Some(row) = row {
                history.line.put(*row, point.to_cell());
            }
        }
        // The search for a row is long where there is none: one in a sample is enough.
        let mut has_room = true;
        for (name, point) in points {
            let Some(past) = self.past.get_mut(&name) else { continue };
            if past.row.is_none() && has_room {
                past.row = history.line.assign(&name.encode());
                has_room = past.row.is_some();
            }
            if let Some(row) = past.row {
                history.line.put(row, point.to_cell());
            }
        }
        history.line.publish(StepTime { end_ms: now_ms, length_ms });
        self.past.retain(|_, past| past.sample == self.sample);
        self.sums.retain(|_, (_, sample)| *sample == self.sample);
        report(history, now_ms, &changed);
    }

    /// The growth of a series since the last sample and its state; `None` if this is its first.
    fn growth(&mut self, seen: &Seen, changed: &mut Vec<Change>) -> Option<(Counts, PeerState)> {
        let Some(past) = self.past.get_mut(&seen.name) else {
            let state = if seen.state == PeerState::Absent { PeerState::Up } else { seen.state };
            let (counts, sample) = (seen.counts.clone(), self.sample);
            self.past.insert(seen.name.clone(), Past { row: None, counts, state, sample });
            return None;
        };
        let growth = seen.counts.since(&past.counts);
        let state = match seen.state {
            PeerState::Absent if growth.unavailable > 0 => PeerState::Unavail,
            PeerState::Absent => PeerState::Up,
            known => known,
        };
        let was = std::mem::replace(&mut past.state, state);
        (past.counts, past.sample) = (seen.counts.clone(), self.sample);
        if was != state {
            let since_ms = seen.out_since_ms.filter(|_| state.has_failed());
            changed.push(Change { name: seen.name.clone(), was, state, since_ms });
        }
        Some((growth, state))
    }
}

/// A server of an upstream whose state changed.
struct Change {
    name: SeriesName,
    was: PeerState,
    state: PeerState,
    since_ms: Option<u64>,
}

impl Change {
    /// Its severity, and the words behind the server's name.
    fn words(&self) -> (Severity, &'static str) {
        match (self.was, self.state) {
            (_, PeerState::Unavail) => (Severity::Bad, "fails and is out of rotation"),
            (_, PeerState::Unhealthy) => (Severity::Bad, "fails its health checks"),
            (_, PeerState::Down) => (Severity::Info, "was set down"),
            (_, PeerState::Draining) => (Severity::Info, "is draining"),
            (_, PeerState::Checking) => (Severity::Info, "is checked before its first request"),
            (was, _) if was.has_failed() => (Severity::Good, "is back"),
            _ => (Severity::Info, "is up"),
        }
    }
}

/// Notes the changes of servers as events.
fn report(history: &History, at_ms: u64, changed: &[Change]) {
    let is_peer = |change: &&Change| {
        matches!(change.name.kind, SeriesKind::HttpPeer | SeriesKind::StreamPeer)
    };
    let kind = EventKind::Peer;
    for (i, change) in changed.iter().filter(is_peer).enumerate() {
        if i == EVENTS_AT_ONCE {
            let text = format!("{} more servers changed", changed.len() - i);
            let severity = Severity::Warn;
            history.note(&Event { at_ms, kind, severity, subject: b"", text: text.as_bytes() });
            return;
        }
        let (severity, words) = change.words();
        let name = String::from_utf8_lossy(&change.name.name).into_owned();
        let (upstream, address) = name.split_once('\0').unwrap_or(("", &name));
        let (subject, text) =
            (format!("{upstream} {address}"), format!("{address} of {upstream} {words}"));
        let (subject, text) = (subject.as_bytes(), text.as_bytes());
        // No more than a step ago: otherwise it is another failure's.
        let since_ms = change.since_ms.filter(|since| since + STEP_MS * 2 > at_ms);
        let at_ms = since_ms.unwrap_or(at_ms).min(at_ms);
        history.note(&Event { at_ms, kind, severity, subject, text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Point, SERIES_MAX, STEPS};
    use crate::metrics::word;

    fn name(kind: SeriesKind, name: &str) -> SeriesName {
        SeriesName { kind, name: name.as_bytes().to_vec() }
    }

    fn upstream() -> SeriesName {
        name(SeriesKind::HttpUpstream, "app")
    }

    fn counts(done: u64, errors_5xx: u64) -> Counts {
        let mut counts = Counts { done, errors_5xx, ..Counts::default() };
        counts.times[word::bucket(2_000)] = done;
        counts
    }

    fn peer(address: &str, done: u64, state: PeerState) -> Seen {
        Seen {
            name: name(SeriesKind::HttpPeer, &format!("app\0{address}")),
            part_of: Some(upstream()),
            counts: counts(done, 0),
            active: 1,
            state,
            out_since_ms: None,
        }
    }

    /// A sampler on a clock that only the test moves.
    struct Simulated {
        history: History,
        sampler: Sampler,
        now_ms: u64,
    }

    impl Simulated {
        fn new() -> Simulated {
            let history = History::new().unwrap();
            Simulated { history, sampler: Sampler::default(), now_ms: 1_000 }
        }

        fn step(&mut self, all: Vec<Seen>) {
            self.now_ms += STEP_MS;
            self.sampler.take(&self.history, self.now_ms, 9, all);
        }

        fn points(&self, wanted: &SeriesName) -> Vec<Point> {
            let (history, steps) = (&self.history, self.history.steps());
            let rows = (0..history.rows()).filter_map(|row| history.series(row, steps.clone()));
            rows.into_iter().find(|series| series.name == *wanted).unwrap().points
        }

        fn done(&self, wanted: &SeriesName) -> Vec<u32> {
            self.points(wanted).iter().map(|point| point.done).collect()
        }

        fn texts(&self) -> Vec<String> {
            let text = |event: &Event<'_>| String::from_utf8_lossy(event.text).into_owned();
            let numbers = self.history.event_numbers();
            numbers.filter_map(|number| self.history.event(number, text)).collect()
        }
    }

    #[test]
    fn a_server_that_leaves_does_not_spoil_its_upstream_s_rate() {
        let mut s = Simulated::new();
        let up = PeerState::Up;
        s.step(vec![peer("a", 1_000_000, up), peer("b", 5, up)]);
        assert!(s.history.steps().is_empty());
        s.step(vec![peer("a", 1_000_100, up), peer("b", 15, up)]);
        // Drained, set down, removed, and added again with its old counters.
        s.step(vec![peer("a", 1_000_100, PeerState::Draining), peer("b", 25, up)]);
        s.step(vec![peer("a", 1_000_100, PeerState::Down), peer("b", 35, up)]);
        s.step(vec![peer("b", 45, up)]);
        s.step(vec![peer("a", 1_000_100, up), peer("b", 55, up)]);
        s.step(vec![peer("a", 1_000_103, up), peer("b", 65, up)]);
        assert_eq!(s.done(&upstream()), [110, 10, 10, 10, 10, 13]);
        // A reset by the API, and a worker's death that took nothing.
        s.step(vec![peer("a", 2, up), peer("b", 75, up)]);
        assert_eq!(s.done(&upstream())[6], 12);
        let states: Vec<PeerState> =
            s.points(&peer("a", 0, up).name).iter().map(|p| p.state).collect();
        assert_eq!(states[..4], [up, PeerState::Draining, PeerState::Down, PeerState::Absent]);
        let texts = s.texts();
        assert_eq!(texts, ["a of app is draining", "a of app was set down"]);
    }

    #[test]
    fn the_total_is_the_sum_of_virtual_servers() {
        let mut s = Simulated::new();
        let server = |name: &str, done, errors| Seen {
            name: super::tests::name(SeriesKind::HttpServer, name),
            part_of: Some(SeriesName::total()),
            counts: counts(done, errors),
            active: 2,
            state: PeerState::Up,
            out_since_ms: None,
        };
        s.step(vec![server("a", 0, 0), server("b", 50, 7)]);
        s.step(vec![server("a", 30, 3), server("b", 60, 8)]);
        let total = s.points(&SeriesName::total())[0];
        assert_eq!((total.done, total.errors_5xx, total.active), (40, 4, 9));
        assert_eq!(total.heat, [0, 0, 40, 0, 0, 0, 0, 0, 0, 0]);
        // 1.953 to 2.322 ms is the bucket of 2 ms.
        assert!((1_953..=2_322).contains(&total.p99_us), "{}", total.p99_us);
        assert_eq!(s.history.step(0), StepTime { end_ms: s.now_ms, length_ms: STEP_MS });
    }

    #[test]
    fn failures_are_events_once() {
        let mut s = Simulated::new();
        let (up, out) = (PeerState::Up, PeerState::Unhealthy);
        for state in [up, up, out, out, up] {
            s.step(vec![peer("a", 0, state)]);
        }
        assert_eq!(s.texts(), ["a of app fails its health checks", "a of app is back"]);
        // The time of a failure is known, if it was in this step.
        let time = |out_since_ms| {
            let mut s = Simulated::new();
            s.step(vec![peer("a", 0, up)]);
            s.step(vec![Seen { out_since_ms, ..peer("a", 0, out) }]);
            s.step(vec![Seen { out_since_ms, ..peer("a", 0, out) }]);
            s.history.event(0, |event| event.at_ms).unwrap()
        };
        assert_eq!(
            [None, Some(3), Some(20_500), Some(99_999)].map(time),
            [21_000, 21_000, 20_500, 21_000]
        );
        // Without a zone only workers know the state: failures show in the counters.
        let mut s = Simulated::new();
        for unavailable in [0, 0, 1, 2, 2] {
            let mut seen = peer("a", 0, PeerState::Absent);
            seen.counts.unavailable = unavailable;
            s.step(vec![seen]);
        }
        assert_eq!(s.texts(), ["a of app fails and is out of rotation", "a of app is back"]);
        let mut s = Simulated::new();
        let all = |state| (0..1_000).map(|n| peer(&n.to_string(), 0, state)).collect();
        s.step(all(up));
        s.step(all(out));
        assert_eq!(s.texts().len(), EVENTS_AT_ONCE + 1);
        assert_eq!(s.texts()[EVENTS_AT_ONCE], "980 more servers changed");
    }

    #[test]
    fn an_hour_is_kept_and_series_are_bounded() {
        let mut s = Simulated::new();
        // Servers that come and go for longer than an hour.
        for round in 0..STEPS as u64 * 2 {
            let of = |n: u64| peer(&format!("{}", round / 3 * 10 + n), round, PeerState::Up);
            s.step((0..10).map(of).collect());
        }
        assert_eq!(s.history.steps().count(), STEPS);
        assert_eq!(s.history.rows(), SERIES_MAX);
        assert_eq!(s.points(&SeriesName::total()).len(), STEPS);
        assert!(s.sampler.past.len() <= 10);
        let wide: Vec<Seen> =
            (0..3_000).map(|n| peer(&format!("wide {n}"), 5, PeerState::Up)).collect();
        s.step(wide);
        let wide = (0..3_000).map(|n| peer(&format!("wide {n}"), 6, PeerState::Up)).collect();
        s.step(wide);
        // Servers without a row of their own still count in their upstream.
        assert_eq!(s.done(&upstream()).last(), Some(&3_000));
    }

    #[test]
    fn the_next_sample_is_due_a_step_later() {
        let mut s = Simulated::new();
        assert_eq!(s.sampler.wait(0), None);
        s.step(Vec::new());
        assert_eq!(s.sampler.wait(s.now_ms + 1), Some(Duration::from_millis(STEP_MS - 1)));
        assert_eq!(s.sampler.wait(s.now_ms + 2 * STEP_MS), Some(Duration::ZERO));
        s.sampler.stop();
        assert_eq!(s.sampler.wait(s.now_ms), None);
    }
}
