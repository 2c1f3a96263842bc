//! `*_cache_path … sync`: purges on one server hold on all.
//!
//! The engine keeps a list of the latest purges by version, and each server the version that it has
//! come to, beside its cache. If purges are missing from the list, because the server was away for
//! too long or the engine was emptied meanwhile, all of the cache is purged.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::call::{Answer, Call};
use crate::node::{Part, PartError, Round};
use crate::scripts::{PURGE, PURGES};
use crate::status::Counter;

/// A purge.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Purge {
    /// Of a key, with its variants.
    Key(Vec<u8>),
    /// Of all keys that begin so.
    Prefix(Vec<u8>),
    /// Of a tag.
    Tag(Vec<u8>),
}

impl Purge {
    /// As it is sent: a letter and the text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (letter, text) = match self {
            Purge::Key(text) => (b'k', text),
            Purge::Prefix(text) => (b'p', text),
            Purge::Tag(text) => (b't', text),
        };
        [&[letter], &text[..]].concat()
    }

    /// The purge of such bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Purge> {
        let (letter, text) = bytes.split_first()?;
        let text = text.to_vec();
        match letter {
            b'k' => Some(Purge::Key(text)),
            b'p' => Some(Purge::Prefix(text)),
            b't' => Some(Purge::Tag(text)),
            _ => None,
        }
    }

    /// Of everything.
    pub fn all() -> Purge {
        Purge::Prefix(Vec::new())
    }
}

/// How far a server has come in the list of the engine.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// The epoch of the list: another one is another list.
    pub epoch: String,
    /// The version of the last purge.
    pub version: u64,
    /// The checksum of that purge as it stands in the list. With another one, the list is that of a
    /// replica that took over without the last purges, and has got others since.
    pub mark: Option<u32>,
}

impl Cursor {
    /// As a line of text.
    pub fn to_text(&self) -> String {
        let mark = self.mark.map(|mark| format!(" {mark}")).unwrap_or_default();
        format!("{} {}{mark}\n", self.version, self.epoch)
    }

    /// The cursor of such a line.
    pub fn from_text(text: &str) -> Option<Cursor> {
        let mut words = text.strip_suffix('\n')?.splitn(3, ' ');
        let (version, epoch) = (words.next()?.parse().ok()?, words.next()?.to_owned());
        let mark = words.next().map(str::parse).transpose().ok()?;
        Some(Cursor { epoch, version, mark })
    }
}

/// A cache.
pub trait Purges {
    /// Purges cannot be sent now: they are to outlive this server.
    fn keep(&self) {}

    /// Appends the purges of this server that were not sent yet, oldest first, about `max` of them.
    fn peek(&self, max: usize, out: &mut Vec<Purge>);

    /// Those that were appended last have been sent.
    fn sent(&self);

    /// The cursor when the process began; `None` if there is none beside the cache.
    fn cursor(&self) -> Option<Cursor>;

    /// Makes purges of other servers, and keeps the cursor when they are made.
    fn perform(&self, purges: Vec<Purge>, cursor: Cursor);
}

/// The purges that the engine keeps of a cache.
const KEPT: usize = 10_000;

/// The purges of one round.
const ROUND_MAX: usize = 500;

/// A server that has heard from the engine so recently has missed no purge when it is emptied,
/// milliseconds.
const FRESH_MS: u64 = 2_000;

/// If the engine has lost its last writes, purges are sent again: those of this time before its
/// last answer, in milliseconds, and the most of them.
const AGAIN_MS: u64 = 10_000;
const AGAIN_MAX: usize = 1_000;

/// A cache that is shared.
pub struct PurgePart<P> {
    name: String,
    purges: P,
    cursor: RefCell<Option<Cursor>>,
    /// Purges that are on their way, and the number of those that were sent before.
    flight: RefCell<(Vec<Purge>, usize)>,
    /// Those of a while, with the time at which they were sent.
    lately: RefCell<VecDeque<(u64, Purge)>>,
    /// Those that the engine has lost.
    again: RefCell<Vec<Purge>>,
    answered_ms: Cell<Option<u64>>,
    has_more: Cell<bool>,
}

impl<P: Purges> PurgePart<P> {
    /// The part of a cache.
    pub fn new(name: &str, purges: P) -> PurgePart<P> {
        let name = format!("cache/{name}");
        PurgePart {
            name,
            purges,
            cursor: RefCell::default(),
            flight: RefCell::default(),
            lately: RefCell::default(),
            again: RefCell::default(),
            answered_ms: Cell::new(None),
            has_more: Cell::new(false),
        }
    }

    fn keys(&self, round: &Round) -> Vec<Vec<u8>> {
        let key = |what| format!("{}:{{c:{}}}:{what}", round.prefix, self.name).into_bytes();
        ["v", "p", "e"].map(key).to_vec()
    }

    fn end_pull(&self, round: &Round, pull: &List<'_>) -> Result<(), PartError> {
        let now = Cursor { epoch: pull.epoch.to_owned(), version: pull.latest, mark: None };
        let before = self.cursor.borrow().clone();
        let was_fresh = self
            .answered_ms
            .replace(Some(round.now_ms))
            .is_some_and(|ms| round.now_ms.saturating_sub(ms) < FRESH_MS);
        let Some(before) = before else {
            // A cache without a past: what was purged until now is not in it.
            return self.reach(Vec::new(), now, false);
        };
        // The list begins with the last purge that was made.
        let last = pull.purges.first().filter(|purge| purge.version == before.version);
        let is_replaced = last.is_some_and(|last| before.mark.is_some_and(|m| m != last.mark));
        let is_other = before.epoch != now.epoch && !before.epoch.is_empty() || is_replaced;
        let is_gap = pull.oldest > before.version.saturating_add(1) && pull.latest > before.version;
        let is_other = is_other || pull.latest < before.version;
        if is_other {
            // Others may not have heard of the last purges of this server before they were lost.
            let lost = self.lately.take().into_iter().map(|(_, purge)| purge);
            self.again.borrow_mut().extend(lost);
            self.has_more.set(true);
        }
        match (is_other, is_gap) {
            (true, _) if was_fresh => self.reach(Vec::new(), Cursor { version: 0, ..now }, true),
            (true, _) | (false, true) => {
                self.purges.perform(vec![Purge::all()], now.clone());
                *self.cursor.borrow_mut() = Some(now);
                Err(PartError::Overrun)
            }
            (false, false) => {
                let new = pull.purges.iter().filter(|purge| purge.version > before.version);
                let others = new.filter(|purge| purge.node != round.node);
                let list: Vec<_> = others.map(|purge| purge.purge.clone()).collect();
                let reached = pull.purges.last();
                let version = reached.map_or(pull.latest, |last| last.version);
                let mark = reached.map_or(before.mark, |last| Some(last.mark));
                round.status.add(Counter::Received, list.len() as u64);
                self.has_more.set(self.has_more.get() || version < pull.latest);
                self.reach(list, Cursor { version, mark, ..now }, true)
            }
        }
    }

    /// The purges that were on their way have come to the engine.
    fn have_sent(&self, now_ms: u64) {
        let (sent, before) = self.flight.take();
        if sent.len() > before {
            self.purges.sent();
        }
        self.again.borrow_mut().clear();
        let mut lately = self.lately.borrow_mut();
        lately.extend(sent.into_iter().map(|purge| (now_ms, purge)));
        // An outage may have been long: what was sent shortly before it is what it may have lost.
        let heard_ms = self.answered_ms.get().unwrap_or(now_ms);
        while lately.len() > AGAIN_MAX
            || lately.front().is_some_and(|(at, _)| heard_ms.saturating_sub(*at) > AGAIN_MS)
        {
            lately.pop_front();
        }
    }

    /// Makes purges, and comes to that cursor.
    fn reach(&self, list: Vec<Purge>, cursor: Cursor, had_one: bool) -> Result<(), PartError> {
        if self.cursor.borrow().as_ref() != Some(&cursor) || !had_one {
            self.purges.perform(list, cursor.clone());
            *self.cursor.borrow_mut() = Some(cursor);
        }
        Ok(())
    }
}

/// The answer to a pull.
struct List<'a> {
    epoch: &'a str,
    latest: u64,
    oldest: u64,
    purges: Vec<Listed<'a>>,
}

/// A purge of the list.
#[derive(PartialEq, Debug)]
struct Listed<'a> {
    version: u64,
    node: &'a str,
    purge: Purge,
    mark: u32,
}

/// Reads a purge of the list: `VERSION NODE TEXT`.
fn listed(answer: &Answer) -> Option<Listed<'_>> {
    let bytes = answer.bytes()?;
    let mut parts = bytes.splitn(3, |b| *b == b' ');
    let mut word = || std::str::from_utf8(parts.next()?).ok();
    let (version, node) = (word()?.parse().ok()?, word()?);
    let purge = Purge::from_bytes(parts.next()?)?;
    Some(Listed { version, node, purge, mark: base::crc::crc32(bytes) })
}

/// Reads the list; `None` if it makes no sense.
fn list(answer: &Answer) -> Option<List<'_>> {
    let (fixed, rest) = answer.list()?.split_at_checked(3)?;
    let epoch = std::str::from_utf8(fixed[0].bytes()?).ok()?;
    // It is a word of the cursor's text.
    if !epoch.bytes().all(|b| b.is_ascii_graphic()) {
        return None;
    }
    let number = |answer: &Answer| u64::try_from(answer.int()?).ok();
    let purges = rest.iter().map(listed).collect::<Option<_>>()?;
    Some(List { epoch, latest: number(&fixed[1])?, oldest: number(&fixed[2])?, purges })
}

impl<P: Purges> Part for PurgePart<P> {
    fn name(&self) -> &str {
        &self.name
    }

    fn definition(&self) -> &str {
        "cache"
    }

    fn ask(&self, round: &Round, out: &mut Vec<Call>) {
        if self.cursor.borrow().is_none() {
            *self.cursor.borrow_mut() = self.purges.cursor();
        }
        let mut own = self.again.borrow().clone();
        let before = own.len();
        self.purges.peek(ROUND_MAX, &mut own);
        self.has_more.set(own.len() - before >= ROUND_MAX);
        *self.flight.borrow_mut() = (own.clone(), before);
        if !own.is_empty() {
            round.status.add(Counter::Sent, own.len() as u64);
            let mut args = vec![round.node.as_bytes().to_vec(), KEPT.to_string().into_bytes()];
            args.extend(own.iter().map(Purge::to_bytes));
            out.push(Call { script: &PURGE, keys: self.keys(round), args });
        }
        let version = self.cursor.borrow().as_ref().map_or(0, |cursor| cursor.version);
        // With the last one that was made, whose mark says whether the list is the same.
        let args = [version.saturating_sub(1).to_string(), (ROUND_MAX + 1).to_string()];
        let args = args.map(String::into_bytes).to_vec();
        out.push(Call { script: &PURGES, keys: self.keys(round), args });
    }

    fn answered(&self, round: &Round, answers: &[Answer]) -> Result<(), PartError> {
        if answers.iter().any(|answer| matches!(answer, Answer::Error(_))) {
            self.unanswered();
            return Err(PartError::Foreign);
        }
        self.have_sent(round.now_ms);
        let pull = answers.last().and_then(list).ok_or(PartError::Malformed)?;
        self.end_pull(round, &pull)
    }

    fn unanswered(&self) {
        self.flight.take();
        self.has_more.set(false);
    }

    fn joined(&self) {
        self.unanswered();
    }

    fn failed(&self) {
        self.purges.keep();
    }

    fn has_more(&self) -> bool {
        self.has_more.get()
    }
}

#[cfg(test)]
#[path = "purges_tests.rs"]
mod tests;
