//! One server's part in the fleet: collects calls, judges answers, and knows the state of the
//! connection.
//!
//! ```text
//!            joined()                 failed()
//!  Starting ─────────▶ Joined ◀──────────────────▶ Away
//!     └────────────────────── failed() ─────────────┘
//! ```
//!
//! Each change of state is one log line; a failure in the state Away is none.

use std::collections::HashMap;
use std::rc::Rc;

use base::log::Level;

use crate::call::{Answer, Call};
use crate::clock::EngineClock;
use crate::scripts::HELLO;
use crate::settings::Settings;
use crate::status::{Counter, State, Status};

/// The circumstances of a round.
pub struct Round<'a> {
    /// Milliseconds of the monotonic clock: when the round was begun.
    pub now_ms: u64,
    /// `interval=`
    pub interval_ms: u64,
    /// `timeout=`
    pub timeout_ms: u64,
    /// `prefix=`
    pub prefix: &'a str,
    /// This server's name on the engine: no other one has it.
    pub node: &'a str,
    /// The counters.
    pub status: &'a Status,
    /// The engine's clock less our monotonic one, milliseconds, once it is known.
    pub(crate) offset_ms: Option<i64>,
}

impl Round<'_> {
    /// The engine's time at a moment of the monotonic clock, milliseconds since 1970; `None` before
    /// the first answer.
    pub fn engine_ms(&self, now_ms: u64) -> Option<u64> {
        let ms = now_ms.cast_signed().saturating_add(self.offset_ms?);
        Some(u64::try_from(ms).unwrap_or(0))
    }
}

/// Why a part could not make use of its answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PartError {
    /// They make no sense.
    Malformed,
    /// Keys belong to another program.
    Foreign,
    /// Purges of others were missed, and the whole cache is purged instead.
    Overrun,
}

/// A zone that is shared. The calls of a round and their answers belong together by order.
pub trait Part {
    /// The zone's name.
    fn name(&self) -> &str;

    /// What the zone is, as all servers of a fleet have it: two fleets with one prefix are noticed
    /// by it. It holds no line feed.
    fn definition(&self) -> &str;

    /// Adds the calls of a round.
    fn ask(&self, round: &Round, out: &mut Vec<Call>);

    /// The engine's answers to those calls.
    ///
    /// # Errors
    /// They could not be used.
    fn answered(&self, round: &Round, answers: &[Answer]) -> Result<(), PartError>;

    /// There will be no answers; the engine may have run the calls.
    fn unanswered(&self);

    /// The engine's answers in a round that failed, because one of all its answers is an error of
    /// the whole engine. A call whose own answer is an error did not run.
    fn refused(&self, _: &Round, _: &[Answer]) {
        self.unanswered();
    }

    /// The engine did not answer, or no connection to it could be made.
    fn failed(&self) {}

    /// There is a new connection, maybe to another engine.
    fn joined(&self);

    /// The last round left something: the next one is to follow at once.
    fn has_more(&self) -> bool {
        false
    }
}

/// Why a round failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The reason, for the log.
    pub reason: String,
    /// The connection is of no use any more.
    pub reconnect: bool,
}

/// The interval of announcements, in milliseconds.
const HELLO_MS: u64 = 1_000;

/// Errors of an engine that will stay while this connection does: another one may have become the
/// primary.
const OTHER_ENGINE: [&str; 5] = ["READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH"];

/// Other errors that concern the whole engine, or the account there. All that are in neither list
/// are of one key: another program has written it.
const WHOLE_ENGINE: [&str; 9] =
    ["OOM", "NOPERM", "ACL", "MISCONF", "BUSY", "NOREPLICAS", "TRYAGAIN", "MOVED", "NOSCRIPT"];

/// Whether an error has one of these codes. Older engines put an error of a script behind words of
/// their own.
fn has_code(error: &str, codes: &[&str]) -> bool {
    error.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| codes.contains(&word))
}

/// See the head of the file.
pub struct Node {
    settings: Settings,
    status: Rc<Status>,
    parts: Vec<Rc<dyn Part>>,
    id: String,
    /// The text that announces this server to the others.
    announcement: String,
    /// The definition of each zone here.
    definitions: HashMap<String, String>,
    hello_ms: Option<u64>,
    clock: EngineClock,
    begun_ms: u64,
    /// The round that is out begins with an announcement.
    greets: bool,
    /// The calls of each part in the round that is out.
    spans: Vec<usize>,
    /// The part's answers could not be used last time.
    odd: Vec<bool>,
    /// The peer that seems to be of another fleet, and the zone.
    stranger: Option<(String, String)>,
    lines: Vec<(Level, String)>,
}

impl Node {
    /// A server with that name, unique among all, and that host name.
    pub fn new(
        settings: Settings,
        status: Rc<Status>,
        parts: Vec<Rc<dyn Part>>,
        (id, host): (String, &str),
    ) -> Node {
        let definitions: HashMap<_, _> = parts
            .iter()
            .map(|part| (part.name().to_owned(), fingerprint(part.definition())))
            .collect();
        let mut zones: Vec<_> =
            definitions.iter().map(|(zone, of)| format!(" {zone}={of}")).collect();
        zones.sort();
        let host: String = host.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
        let announcement = format!("{id} {host}{}", zones.concat());
        let odd = vec![false; parts.len()];
        status.set_state(State::Starting, base::time::now_ms(), "");
        Node {
            settings,
            status,
            parts,
            id,
            announcement,
            definitions,
            hello_ms: None,
            clock: EngineClock::default(),
            begun_ms: 0,
            greets: false,
            spans: Vec::new(),
            odd,
            stranger: None,
            lines: Vec::new(),
        }
    }

    /// The lines for the log since the last call.
    pub fn lines(&mut self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.lines)
    }

    fn with<T>(&self, f: impl FnOnce(&Round) -> T) -> T {
        f(&Round {
            now_ms: self.begun_ms,
            interval_ms: self.settings.interval_ms,
            timeout_ms: self.settings.timeout_ms,
            prefix: &self.settings.prefix,
            node: &self.id,
            status: &self.status,
            offset_ms: self.clock.offset_ms(),
        })
    }

    /// A connection has been made.
    pub fn joined(&mut self) {
        self.hello_ms = None;
        self.parts.iter().for_each(|part| part.joined());
    }

    /// Begins a round: the calls for the engine.
    pub fn begin(&mut self, now_ms: u64) -> Vec<Call> {
        self.begun_ms = now_ms;
        let mut calls = Vec::new();
        // A round that writes nothing could succeed on an engine that takes no writes.
        self.greets = self.status.state() != State::Joined
            || self.hello_ms.is_none_or(|ms| now_ms.saturating_sub(ms) >= HELLO_MS);
        if self.greets {
            self.hello_ms = Some(now_ms);
            let keys = vec![format!("{}:nodes", self.settings.prefix).into_bytes()];
            let args = vec![self.announcement.clone().into_bytes(), self.id.clone().into_bytes()];
            calls.push(Call { script: &HELLO, keys, args });
        }
        let mut spans = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let before = calls.len();
            self.with(|round| part.ask(round, &mut calls));
            spans.push(calls.len() - before);
        }
        self.spans = spans;
        calls
    }

    /// Ends a round with the answers to its calls, or the reason that there are none. Returns
    /// whether the connection can stay.
    pub fn end(
        &mut self,
        now_ms: u64,
        round_us: u64,
        outcome: Result<Vec<Answer>, Failure>,
    ) -> bool {
        let judged = match outcome {
            Ok(answers) => match self.judge(&answers) {
                None => Ok(answers),
                Some(failure) => {
                    self.refused(&answers);
                    Err(failure)
                }
            },
            Err(failure) => {
                self.parts.iter().for_each(|part| part.unanswered());
                Err(failure)
            }
        };
        let answers = match judged {
            Ok(answers) => answers,
            Err(failure) => {
                self.failed(now_ms, &failure.reason);
                return !failure.reconnect;
            }
        };
        if answers.is_empty() {
            // Nothing was asked: nobody knows whether the engine would have answered.
            return true;
        }
        self.status.add(Counter::Rounds, 1);
        self.status.answered(now_ms, round_us);
        self.now_joined(now_ms);
        let mut rest = &answers[..];
        if self.greets
            && let Some((first, others)) = rest.split_first()
        {
            let engine_ms = first.list().and_then(|list| list.first()?.int());
            if let Some(ms) = engine_ms {
                self.clock.heard(self.begun_ms, now_ms, ms);
            }
            self.hear(first);
            rest = others;
        }
        for (i, count) in std::mem::take(&mut self.spans).into_iter().enumerate() {
            let (own, others) = rest.split_at(count.min(rest.len()));
            rest = others;
            let part = self.parts[i].clone();
            let used = self.with(|round| part.answered(round, own));
            self.tell_odd(i, used);
        }
        true
    }

    /// Finds the error that concerns more than a zone. That of the announcement does: without it,
    /// the engine's time is not known.
    fn judge(&self, answers: &[Answer]) -> Option<Failure> {
        if answers.len() != self.count() {
            let reason = "it answers other than asked".to_owned();
            return Some(Failure { reason, reconnect: true });
        }
        let error = answers.iter().enumerate().find_map(|(n, answer)| {
            let Answer::Error(text) = answer else { return None };
            let is_whole = self.greets && n == 0
                || has_code(text, &OTHER_ENGINE)
                || has_code(text, &WHOLE_ENGINE);
            is_whole.then_some(text)
        });
        let text = error?;
        Some(Failure { reason: plain(text), reconnect: has_code(text, &OTHER_ENGINE) })
    }

    /// The number of calls in the round that is out.
    fn count(&self) -> usize {
        usize::from(self.greets) + self.spans.iter().sum::<usize>()
    }

    /// Tells each part which of its calls ran, in a round that failed.
    fn refused(&self, answers: &[Answer]) {
        if answers.len() != self.count() {
            return self.parts.iter().for_each(|part| part.unanswered());
        }
        let mut rest = &answers[usize::from(self.greets)..];
        for (part, count) in self.parts.iter().zip(&self.spans) {
            let (own, others) = rest.split_at(*count);
            rest = others;
            self.with(|round| part.refused(round, own));
        }
    }

    /// The round failed, or no connection could be made.
    pub fn failed(&mut self, now_ms: u64, reason: &str) {
        self.status.add(Counter::Failures, 1);
        self.parts.iter().for_each(|part| part.failed());
        if self.status.state() == State::Away {
            return;
        }
        if self.status.state() == State::Joined {
            self.status.add(Counter::Fallbacks, 1);
        }
        let reason = plain(reason);
        self.status.set_state(State::Away, now_ms, &reason);
        let engine = self.settings.shown();
        let told = "limits hold for this server alone, tables keep what they have";
        self.lines.push((Level::Warn, format!("shared state: {engine} is away: {reason}; {told}")));
    }

    fn now_joined(&mut self, now_ms: u64) {
        let engine = self.settings.shown();
        let line = match self.status.state() {
            State::Joined => return,
            State::Away => {
                let s = now_ms.saturating_sub(self.status.since_ms()) as f64 / 1000.0;
                format!("shared state: {engine} is back after {s:.1} s")
            }
            State::Off | State::Starting => {
                let (prefix, id) = (&self.settings.prefix, &self.id);
                format!("shared state: joined {engine} with prefix \"{prefix}\" as {id}")
            }
        };
        self.status.set_state(State::Joined, now_ms, "");
        self.lines.push((Level::Notice, line));
    }

    fn tell_odd(&mut self, i: usize, used: Result<(), PartError>) {
        let is_odd = matches!(used, Err(PartError::Malformed | PartError::Foreign));
        if used == Err(PartError::Malformed) {
            self.status.add(Counter::Malformed, 1);
        }
        let is_overrun = used == Err(PartError::Overrun);
        if std::mem::replace(&mut self.odd[i], is_odd) == is_odd && !is_overrun {
            return;
        }
        let (zone, prefix) = (self.parts[i].name(), &self.settings.prefix);
        if is_overrun {
            let what = format!("purges of \"{zone}\" were missed");
            let m = format!("shared state: {what}: all of it is purged");
            self.lines.push((Level::Warn, m));
            return;
        }
        let line = match used {
            Ok(()) => (Level::Notice, format!("shared state: zone \"{zone}\" is shared again")),
            Err(e) => {
                let why = match e {
                    PartError::Malformed => "the engine's answers make no sense",
                    _ => "another program has keys of its name",
                };
                let where_ = format!("zone \"{zone}\" with prefix \"{prefix}\"");
                (Level::Error, format!("shared state: {where_} is not shared: {why}"))
            }
        };
        self.lines.push(line);
    }

    /// Whether the next round is to follow at once. A part whose answers could not be used waits.
    pub fn has_more(&self) -> bool {
        self.parts.iter().zip(&self.odd).any(|(part, is_odd)| !is_odd && part.has_more())
    }

    /// Reads the announcements of all servers.
    fn hear(&mut self, answer: &Answer) {
        let list = answer.list().and_then(|list| list.get(1)).and_then(Answer::list);
        let texts = list.into_iter().flatten().filter_map(|answer| answer.bytes());
        let texts: Vec<_> = texts.map(String::from_utf8_lossy).collect();
        let (mut hosts, mut stranger) = (Vec::new(), None);
        for text in &texts {
            let mut words = text.split(' ');
            let (Some(id), Some(host)) = (words.next(), words.next()) else { continue };
            hosts.push(host);
            let other = words.find(|word| {
                let Some((zone, of)) = word.rsplit_once('=') else { return false };
                self.definitions.get(zone).is_some_and(|own| own != of)
            });
            if let Some((zone, _)) = other.and_then(|word| word.rsplit_once('='))
                && id != self.id
            {
                stranger = Some((host.to_owned(), zone.to_owned()));
            }
        }
        self.status.set_peers(hosts.len() as u64, &hosts.join(" "));
        if self.stranger == stranger {
            return;
        }
        if let Some((host, zone)) = &stranger {
            let (host, zone, prefix) = (plain(host), plain(zone), &self.settings.prefix);
            let m = format!(
                "shared state: zone \"{zone}\" is defined otherwise on {host}: if that is another \
                 fleet, it needs a prefix of its own (here \"{prefix}\")"
            );
            self.lines.push((Level::Warn, m));
        }
        self.stranger = stranger;
    }
}

/// A short text for a definition.
fn fingerprint(definition: &str) -> String {
    format!("{:08x}", base::crc::crc32(definition.as_bytes()))
}

/// A foreign text for a log line: one line of printable characters, not long.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(160).collect()
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
