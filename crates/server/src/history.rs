//! The history as the master keeps it: which counters a sample has, and the events that the master
//! knows of. [`engine::sampler`] has the rest.
//!
//! The master samples because it lives as long as the server, whatever happens to workers, and
//! serves no clients that a sample could delay. It waits for no worker: a list of servers whose
//! lock is taken is read in its last state.

use std::collections::HashMap;
use std::time::Duration;

use engine::Metrics;
use engine::beat::now_ms;
use engine::history::{Event, EventKind, History, PeerState, SeriesKind, SeriesName, Severity};
use engine::metrics::Kind;
use engine::sampler::{Counts, Sampler, Seen};
use engine::stats::{Field, Stats};
use os::process::Exit;
use upstream::api;
use upstream::directives::AllGroups;
use upstream::peer::word;

use crate::children::{ChildKind, Ended};
use crate::load::Cycle;
use crate::master::Master;
use crate::verdict::{Outcome, Verdict};

/// More zones of a kind than these are sampled after the servers of upstreams, so that names from
/// clients do not take all rows of the history.
const ZONES_FIRST: usize = 200;

/// The number of samples from one look at the certificates to the next: five minutes.
const CERTIFICATES_EVERY: u64 = 30;

const DAY_S: i64 = 86_400;

/// A certificate's end is an event this number of days before.
const WARN_DAYS: [i64; 2] = [14, 2];

/// The sampler of a server, and the certificates that it knows.
#[derive(Default)]
pub struct Samples {
    sampler: Sampler,
    /// Samples so far.
    count: u64,
    /// The generation whose certificates were looked at.
    generation: u64,
    certificates: HashMap<String, Option<i64>>,
}

impl Samples {
    /// The time until the next sample; `None` where nothing is counted.
    pub fn wait(&self) -> Option<Duration> {
        self.sampler.wait(now_ms())
    }

    /// Takes a sample if one is due.
    pub fn look(&mut self, cycle: &Cycle, stats: &Stats, generation: u64) {
        if !cycle.metrics.is_on() {
            self.sampler.stop();
            return;
        }
        let now_ms = now_ms();
        if self.sampler.wait(now_ms).is_some_and(|wait| !wait.is_zero()) {
            return;
        }
        self.sampler.take(&stats.history, now_ms, stats.sum(Field::Active), all(&cycle.metrics));
        if self.count.is_multiple_of(CERTIFICATES_EVERY) || self.generation != generation {
            self.generation = generation;
            let engines = cycle.engines.iter().flat_map(|engine| engine.certificates());
            let now = base::time::unix_secs().cast_signed();
            self.certificates(&stats.history, engines.collect(), now);
        }
        self.count += 1;
    }

    /// Compares the certificates with those at the last look: renewals, and ends that are near.
    fn certificates(&mut self, history: &History, all: Vec<(String, Option<i64>)>, now: i64) {
        let before = std::mem::take(&mut self.certificates);
        for (name, until) in all {
            if let Some((severity, what)) = judged(before.get(&name), until, now) {
                note(
                    history,
                    EventKind::Certificate,
                    severity,
                    &name,
                    &format!("certificate {name} {what}"),
                );
            }
            self.certificates.insert(name, until);
        }
    }
}

/// The news about a certificate with this end. `before` is the end at the last look.
fn judged(
    before: Option<&Option<i64>>,
    until: Option<i64>,
    now: i64,
) -> Option<(Severity, String)> {
    let until = until?;
    let before = before.copied().flatten();
    if before.is_some_and(|before| before < until) {
        return Some((Severity::Good, "was renewed".to_owned()));
    }
    // The looks are five minutes apart: an end that is this near was not yet at the last one.
    let was = now - (CERTIFICATES_EVERY * engine::history::STEP_MS / 1000).cast_signed();
    let passed =
        |limit_s: i64| until - now < limit_s && (before.is_none() || until - was >= limit_s);
    if passed(0) {
        return Some((Severity::Bad, "has expired".to_owned()));
    }
    let [soon, very_soon] = WARN_DAYS.map(|days| passed(days * DAY_S));
    let days = (until - now) / DAY_S;
    let severity = if days < WARN_DAYS[1] { Severity::Bad } else { Severity::Warn };
    (soon || very_soon).then(|| (severity, format!("expires in {days} days")))
}

/// Adds an event that happens now.
pub fn note(history: &History, kind: EventKind, severity: Severity, subject: &str, text: &str) {
    let (at_ms, subject, text) = (now_ms(), subject.as_bytes(), text.as_bytes());
    history.note(&Event { at_ms, kind, severity, subject, text });
}

/// All counters of a configuration now. The first ones get rows of the history first.
fn all(metrics: &Metrics) -> Vec<Seen> {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for (kind, series) in [
        (Kind::HttpServer, SeriesKind::HttpServer),
        (Kind::StreamServer, SeriesKind::StreamServer),
        (Kind::Location, SeriesKind::Location),
    ] {
        let zones = metrics.zones(kind);
        let to = if zones.len() <= ZONES_FIRST { &mut first } else { &mut last };
        let is_whole = kind == Kind::HttpServer;
        to.extend(zones.iter().map(|zone| {
            let reading = zone.read();
            Seen {
                name: SeriesName { kind: series, name: zone.name().to_vec() },
                part_of: is_whole.then(SeriesName::total),
                counts: Counts::of(&reading, false),
                active: reading.get(engine::metrics::word::PROCESSING),
                state: PeerState::Up,
                out_since_ms: None,
            }
        }));
    }
    for part in metrics.parts::<AllGroups>() {
        let is_http = part.kind == Kind::HttpPeer;
        part.groups().for_each(|group| peers(&mut first, &group, is_http));
    }
    first.append(&mut last);
    first
}

fn peers(out: &mut Vec<Seen>, group: &upstream::Group, is_http: bool) {
    let (kind, of) = match is_http {
        true => (SeriesKind::HttpPeer, SeriesKind::HttpUpstream),
        false => (SeriesKind::StreamPeer, SeriesKind::StreamUpstream),
    };
    let upstream = group.shown();
    let is_shared = group.servers.is_shared();
    let offset_ms = base::time::unix_ms().saturating_sub(now_ms());
    for peer in group.servers.lists_at_once().all() {
        let (reading, out_since) = (peer.reading(), peer.get(word::OUT_SINCE));
        // Without a zone, each worker has a state of its own.
        let state = match api::state(peer) {
            "up" if !is_shared => PeerState::Absent,
            state => PeerState::of(state),
        };
        out.push(Seen {
            name: SeriesName { kind, name: [&upstream, &b"\0"[..], &peer.name].concat() },
            part_of: Some(SeriesName { kind: of, name: upstream.to_vec() }),
            counts: Counts::of(&reading, true),
            active: peer.active(&reading),
            state,
            out_since_ms: (out_since > 0).then(|| out_since.saturating_sub(offset_ms)),
        });
    }
}

/// The events that the master knows of.
impl Master {
    /// Takes a sample if one is due.
    pub fn sample(&mut self) {
        let generation = self.generation();
        let stats = self.loader.lasting.stats.clone();
        self.samples.look(&self.cycle, &stats, generation);
    }

    /// Adds an event, if the history is kept.
    pub fn note(&self, kind: EventKind, severity: Severity, text: &str) {
        if self.cycle.metrics.is_on() {
            note(&self.loader.lasting.stats.history, kind, severity, "", text);
        }
    }

    /// A process ended with a failure, although the master did not ask it to.
    pub(crate) fn note_end(&self, ended: &Ended) {
        if ended.child.exiting || ended.child.kind == ChildKind::NewBinary {
            return;
        }
        let (name, pid) = (ended.child.kind.name(), ended.child.pid);
        let how = match ended.exit {
            Exit::Code(0) => return,
            Exit::Code(code) => format!("exited with code {code}"),
            Exit::Signal { signal, .. } => format!("was killed by signal {signal}"),
        };
        self.note(EventKind::Worker, Severity::Bad, &format!("{name} {pid} {how}"));
    }

    /// A reload is over.
    pub(crate) fn note_reload(&self, verdict: &Verdict) {
        let generation = self.generation();
        let (severity, text) = match verdict.outcome {
            Outcome::Serving if verdict.serving < verdict.configured => {
                (Severity::Warn, format!("configuration {generation} serves, but not all workers"))
            }
            Outcome::Serving => (Severity::Info, format!("configuration {generation} serves")),
            Outcome::Refused => (Severity::Bad, "the new configuration was refused".to_owned()),
            Outcome::RolledBack => {
                (Severity::Bad, "no worker could start: the old configuration stays".to_owned())
            }
            Outcome::BinaryKept => (Severity::Info, "this binary serves again".to_owned()),
        };
        self.note(EventKind::Reload, severity, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_certificates_are_told_once() {
        let now = 1_000_000_000;
        let news = |before: Option<i64>, left: i64| {
            let text = judged(before.map(Some).as_ref(), Some(now + left), now);
            text.map(|(_, text)| text).unwrap_or_default()
        };
        let days = |days: i64, s: i64| days * DAY_S + s;
        for (left, text) in [
            (days(14, 1), ""),
            (days(14, -1), "expires in 13 days"),
            (days(13, 0), ""),
            (days(2, -1), "expires in 1 days"),
            (days(1, 0), ""),
            (-1, "has expired"),
            (-900, ""),
        ] {
            assert_eq!(news(Some(now + left), left), text, "{left}");
        }
        // The first look tells all that is near, a renewal is told whatever is left.
        assert_eq!(news(None, days(5, 9)), "expires in 5 days");
        assert_eq!(news(None, -900), "has expired");
        assert_eq!(news(None, days(50, 0)), "");
        assert_eq!(news(Some(now + 5), days(90, 0)), "was renewed");
        assert_eq!(judged(None, None, now).map(|(_, text)| text), None);
    }
}
