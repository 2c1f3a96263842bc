//! `limit_req`: a leaky bucket for each key, in thousandths of a request.

mod strict;
mod sync;

use std::cell::Cell;
use std::rc::Rc;

use base::log::Level;
use base::time::now_ms;
use conf::{ConfError, Node, Word};
use engine::metrics::{Kind, word};
use engine::{Cx, Session};
use fleet::Touched;
use shm::{Entry, Full, Key, Locked, Record};

pub(super) use self::strict::Strict;
use super::{Counted, Refusing, Scratch, Shared, Zone, define, positive, refer};

/// One key's bucket.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Bucket {
    /// The time of the last reckoning, in milliseconds of the monotonic clock.
    last: u64,
    /// The content: thousandths of requests above the rate.
    excess: i64,
}

impl Record for Bucket {
    const WORDS: usize = 2;

    fn to_words(self) -> [u64; 4] {
        [self.last, self.excess as u64, 0, 0]
    }

    fn from_words(words: [u64; 4]) -> Bucket {
        Bucket { last: words[0], excess: words[1] as i64 }
    }
}

impl Counted for Bucket {
    const NAME: &'static str = "limit_req";
    const KEY_MAX: usize = 65535;
    const HELD: bool = false;

    fn kind<S: Session>() -> Kind {
        Kind::LimitReq
    }

    fn give_back(_: &mut Locked<'_, Bucket>, _: Entry, _: Option<&Touched>) {}

    fn share(zone: &Zone<Bucket>, fleet: &fleet::Fleet) {
        if let (Some(_), Some(shared)) = (zone.synced.get(), zone.shared.get()) {
            fleet.add(Rc::new(sync::part(zone, shared.clone())));
        }
    }
}

/// Clocks may differ by a little between processes; after this they have nothing to do with each
/// other.
const CLOCK_JUMP_MS: i64 = 60_000;

impl Bucket {
    /// Milliseconds since the last reckoning.
    fn age(&self, now: u64) -> i64 {
        match now.wrapping_sub(self.last) as i64 {
            ms if ms < -CLOCK_JUMP_MS => 1,
            ms => ms.max(0),
        }
    }

    /// The content with one more request in it; it leaks `rate` thousandths a second.
    pub(super) fn with_one_more(&self, now: u64, rate: i64) -> i64 {
        let leaked = rate.saturating_mul(self.age(now)) / 1000;
        self.excess.saturating_sub(leaked).saturating_add(1000).max(0)
    }

    /// The bucket as if one of the requests in it had not come.
    pub(super) fn with_one_less(self) -> Bucket {
        // The first one of all left it empty.
        Bucket { excess: self.excess.saturating_sub(1000).max(-1000), ..self }
    }

    /// The bucket with that request in it.
    fn reckoned(self, now: u64, excess: i64) -> Bucket {
        Bucket { last: if self.age(now) > 0 { now } else { self.last }, excess }
    }

    /// Says whether the bucket has been empty for a minute, and may go.
    fn is_stale(&self, now: u64, rate: i64) -> bool {
        let age = (now.wrapping_sub(self.last) as i64).saturating_abs();
        age >= CLOCK_JUMP_MS && self.excess <= rate.saturating_mul(age) / 1000
    }
}

/// The answer of a zone to a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// Too many requests: the excess over the rate, in thousandths.
    Over(i64),
    /// It fits, and is in the bucket.
    Counted { excess: i64, entry: Entry },
    /// It fits; other zones are asked before it counts.
    Fits(Entry),
    /// No room for the key.
    NoRoom,
}

/// A record that is a bucket.
pub(super) trait Leaky: Record + From<Bucket> + Into<Bucket> {}

impl<R: Record + From<Bucket> + Into<Bucket>> Leaky for R {}

/// Asks for a request of `key`, with so many thousandths a second and such a burst. With `count` it
/// goes into the bucket.
pub(super) fn ask<R: Leaky>(
    t: &mut Locked<'_, R>,
    key: Key<'_>,
    fits: bool,
    (rate, burst): (i64, i64),
    now: u64,
    count: bool,
) -> Answer {
    if let Some(entry) = t.find(key)
        && let Some(bucket) = t.value(entry)
    {
        t.touch(entry);
        let bucket: Bucket = bucket.into();
        let excess = bucket.with_one_more(now, rate);
        if excess > burst {
            return Answer::Over(excess);
        }
        if !count {
            return Answer::Fits(entry);
        }
        t.set(entry, bucket.reckoned(now, excess).into());
        return Answer::Counted { excess, entry };
    }
    let bucket = Bucket { last: if count { now } else { 0 }, excess: 0 };
    match insert(t, key, fits, bucket, now, rate) {
        Err(Full) => Answer::NoRoom,
        Ok(entry) if count => Answer::Counted { excess: 0, entry },
        Ok(entry) => Answer::Fits(entry),
    }
}

/// Makes an entry; takes out empty ones, and as many of the oldest as room is needed for.
fn insert<R: Leaky>(
    t: &mut Locked<'_, R>,
    key: Key<'_>,
    fits: bool,
    bucket: Bucket,
    now: u64,
    rate: i64,
) -> Result<Entry, Full> {
    drop_stale(t, now, rate);
    let mut made = t.insert(key, bucket.into());
    while made.is_err() && fits {
        let Some(oldest) = t.oldest() else { break };
        t.remove(oldest);
        drop_stale(t, now, rate);
        made = t.insert(key, bucket.into());
    }
    made
}

/// Takes out one or two entries whose buckets have been empty for long.
fn drop_stale<R: Leaky>(t: &mut Locked<'_, R>, now: u64, rate: i64) {
    for _ in 0..2 {
        let stale = |oldest: &Entry| t.value(*oldest).is_none_or(|b| b.into().is_stale(now, rate));
        match t.oldest().filter(stale) {
            Some(oldest) => t.remove(oldest),
            None => return,
        }
    }
}

/// One zone that requests of a place are held to.
#[derive(Clone)]
pub(crate) struct ReqLimit {
    zone: Rc<Zone<Bucket>>,
    /// Thousandths of requests that may be in the bucket.
    burst: i64,
    /// Thousandths of requests that pass without delay.
    delay: i64,
}

engine::settings! {
    /// The `limit_req` directives of one block.
    pub struct ReqLimits {
        limits: Option<Vec<ReqLimit>>,
        /// The treatment of refused requests.
        pub refusing: Refusing,
    }
}

/// Reads `limit_req_zone`.
///
/// # Errors
/// A parameter is wrong, or the zone is defined twice.
pub fn set_zone<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let (mut rate, mut synced, mut terms) = (None, None, strict::Terms::default());
    let zone = define::<S, Bucket>(cx, n, |word| {
        if *word == *"sync" {
            synced = Some(word.clone());
            return Ok(true);
        }
        Ok(terms.read(word)? || set_rate(&mut rate, word)?)
    })?;
    zone.rate.set(rate.unwrap_or(1));
    if let Some(word) = synced {
        cx.env.fleet.check(&word)?;
        let _ = zone.synced.set(word);
    }
    terms.set::<S>(cx, &zone)
}

/// Reads `rate=`, in thousandths a second; false where the word is something else.
pub(super) fn set_rate(rate: &mut Option<i64>, word: &Word) -> Result<bool, ConfError> {
    let Some(text) = word.bytes().strip_prefix(b"rate=") else { return Ok(false) };
    let (number, scale) = match (text.strip_suffix(b"r/s"), text.strip_suffix(b"r/m")) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 60),
        _ => (text, 1),
    };
    let thousandths = positive(number).and_then(|rate| rate.checked_mul(1000));
    let invalid = || ConfError::at(word, format!("invalid rate \"{}\"", word.lossy()));
    *rate = Some(thousandths.ok_or_else(invalid)? / scale);
    Ok(true)
}

/// Reads `burst=` or `delay=` of which `text` is what follows the `=`, in thousandths.
pub(super) fn thousandths(word: &Word, text: &[u8], what: &str) -> Result<i64, ConfError> {
    let invalid = || ConfError::at(word, format!("invalid {what} value \"{}\"", word.lossy()));
    positive(text).and_then(|n| n.checked_mul(1000)).ok_or_else(invalid)
}

/// Reads `limit_req` into the [`ReqLimits`] of its block.
///
/// # Errors
/// A parameter is wrong, or the zone is limited twice in the block.
pub fn set_limit<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let (mut zone, mut burst, mut delay) = (None, 0, 0);
    for word in &n.args {
        if let Some(name) = word.bytes().strip_prefix(b"zone=") {
            zone = Some(refer::<S, Bucket>(cx, word, name, None)?);
        } else if let Some(text) = word.bytes().strip_prefix(b"burst=") {
            burst = thousandths(word, text, "burst")?;
        } else if let Some(text) = word.bytes().strip_prefix(b"delay=") {
            delay = thousandths(word, text, "delay")?;
        } else if *word == *"nodelay" {
            delay = i64::MAX;
        } else {
            return Err(ConfError::at(word, format!("invalid parameter \"{}\"", word.lossy())));
        }
    }
    let Some(zone) = zone else {
        let message = format!("\"{}\" must have \"zone\" parameter", n.name.lossy());
        return Err(ConfError::at(&n.name, message));
    };
    let limits = cx.loc::<ReqLimits>().limits.get_or_insert_default();
    if limits.iter().any(|limit| Rc::ptr_eq(&limit.zone, &zone)) {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    limits.push(ReqLimit { zone, burst, delay });
    Ok(())
}

impl ReqLimits {
    /// The limiter of a place; `None` where nothing is limited.
    pub fn limiter(&self) -> Option<ReqLimiter> {
        let limits = self.limits.clone()?;
        let delay_level = match self.refusing.level() {
            Level::Error => Level::Warn,
            Level::Warn => Level::Notice,
            _ => Level::Info,
        };
        let (refusing, scratch) = (self.refusing, Scratch::default());
        Some(ReqLimiter { limits, refusing, delay_level, scratch })
    }
}

/// The limits of one place, ready to use.
pub struct ReqLimiter {
    limits: Vec<ReqLimit>,
    refusing: Refusing,
    delay_level: Level,
    scratch: Scratch,
}

/// The outcome for a request; with its subrequests it is held to limits once.
#[derive(Default)]
struct ReqOutcome(Cell<Option<&'static str>>);

/// `$limit_req_status`
pub fn status<S: Session>(s: &mut S, out: &mut Vec<u8>) -> bool {
    let text = s.shared::<ReqOutcome>().0.get();
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
    text.is_some()
}

/// The decision of all zones together.
enum Decision {
    /// No zone counts this request.
    Uncounted,
    /// It goes on after a delay; the excess, and the zone that demands it.
    Pass { delay_ms: u64, excess: i64, limit: usize },
    /// It is refused by that zone, with an excess where the reason is not lack of room.
    Refuse { excess: Option<i64>, limit: usize },
}

/// The verdict on a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReqVerdict {
    /// It goes on.
    Pass,
    /// It goes on after this number of milliseconds.
    Delay(u64),
    /// The request is refused with the configured status.
    Refuse,
}

impl ReqLimiter {
    /// The treatment of refused requests.
    pub fn refusing(&self) -> &Refusing {
        &self.refusing
    }

    /// Holds a request to the limits; its outcome is logged, and `$limit_req_status` set.
    pub fn admit<S: Session>(&self, s: &mut S) -> ReqVerdict {
        let known = s.shared::<ReqOutcome>();
        if known.0.get().is_some() {
            return ReqVerdict::Pass;
        }
        let mut key = self.scratch.take();
        let decision = self.decide(s, &mut key, &[]);
        self.scratch.give(key);
        self.conclude(s, decision)
    }

    /// Counts and logs a decision, and remembers it for subrequests.
    fn conclude<S: Session>(&self, s: &mut S, decision: Decision) -> ReqVerdict {
        let passed = ("PASSED", word::PASSED);
        let (zone, outcome, dry_outcome, verdict) = match decision {
            Decision::Uncounted => return ReqVerdict::Pass,
            Decision::Pass { delay_ms: 0, limit, .. } => (limit, passed, passed, ReqVerdict::Pass),
            Decision::Pass { delay_ms, excess, limit } => {
                self.log(s, self.delay_level, ("delaying request", ","), excess, limit);
                let dry = ("DELAYED_DRY_RUN", word::DELAYED_DRY_RUN);
                (limit, ("DELAYED", word::DELAYED), dry, ReqVerdict::Delay(delay_ms))
            }
            Decision::Refuse { excess, limit } => {
                if let Some(excess) = excess {
                    let level = self.refusing.level();
                    self.log(s, level, ("limiting requests", ""), excess, limit);
                }
                let dry = ("REJECTED_DRY_RUN", word::REJECTED_DRY_RUN);
                (limit, ("REJECTED", word::REJECTED), dry, ReqVerdict::Refuse)
            }
        };
        let dry_run = self.refusing.dry_run();
        let (outcome, word) = if dry_run { dry_outcome } else { outcome };
        self.limits[zone].zone.count(s, word);
        s.shared::<ReqOutcome>().0.set(Some(outcome));
        if dry_run { ReqVerdict::Pass } else { verdict }
    }

    /// Holds another piece of the session's work to the limits, one that cannot wait: says whether
    /// it goes on. `$limit_req_status` stays the session's.
    pub fn admit_another<S: Session>(&self, s: &mut S) -> bool {
        let mut key = self.scratch.take();
        let decision = self.decide(s, &mut key, &[]);
        self.scratch.give(key);
        let Decision::Refuse { excess, limit } = decision else { return true };
        if let Some(excess) = excess {
            self.log(s, self.refusing.level(), ("limiting datagrams", ""), excess, limit);
        }
        self.refusing.dry_run()
    }

    /// Asks all zones; only when none refuses does the request count in each.
    /// Strict zones have been asked before, but those in `local`.
    fn decide<S: Session>(&self, s: &mut S, text: &mut Vec<u8>, local: &[usize]) -> Decision {
        let now = now_ms();
        let last = self.limits.len() - 1;
        // With one zone nothing is put here, so nothing is allocated.
        let mut fitting: Vec<(usize, Entry)> = Vec::new();
        let mut counted = None;
        let mut mine = false;
        for (i, limit) in self.limits.iter().enumerate() {
            let Some(shared) = limit.zone.shared.get() else { continue };
            if limit.zone.strict.get().is_some() && !local.contains(&i) {
                continue;
            }
            if !limit.zone.key(s, text) {
                continue;
            }
            let key = shared.table.key(text);
            let fits = shared.table.fits(text.len());
            let mut t = shared.table.lock();
            let answer = ask(&mut t, key, fits, limit.terms(), now, i == last);
            if let Answer::Counted { entry, .. } = answer {
                shared.touch(entry);
            }
            drop(t);
            s.debug(format_args!("limit_req[{i}]: {answer:?}"));
            match answer {
                Answer::Over(excess) => {
                    return Decision::Refuse { excess: Some(excess), limit: i };
                }
                Answer::NoRoom => {
                    let log = base::log::default();
                    let name = limit.zone.shown();
                    base::log!(
                        log,
                        Level::Alert,
                        None,
                        "could not allocate node in limit_req zone \"{name}\""
                    );
                    return Decision::Refuse { excess: None, limit: i };
                }
                Answer::Counted { excess, .. } => counted = Some((i, excess)),
                Answer::Fits(entry) => fitting.push((i, entry)),
            }
            mine = true;
        }
        if !mine {
            return Decision::Uncounted;
        }
        let (mut delay_ms, mut excess, mut limit) = (0, 0, last);
        let mut weigh = |i: usize, found: i64| {
            let ms = self.limits[i].delay_ms(found);
            if ms > delay_ms {
                (delay_ms, excess, limit) = (ms, found, i);
            }
        };
        if let Some((i, found)) = counted {
            weigh(i, found);
        }
        for (i, entry) in fitting.into_iter().rev() {
            if let Some(shared) = self.limits[i].zone.shared.get() {
                weigh(i, self.limits[i].count(shared, entry, now));
            }
        }
        Decision::Pass { delay_ms, excess, limit }
    }

    fn log<S: Session>(
        &self,
        s: &S,
        level: Level,
        (what, comma): (&str, &str),
        excess: i64,
        limit: usize,
    ) {
        if s.logs(level) {
            let dry = if self.refusing.dry_run() { ", dry run" } else { "" };
            let (whole, rest) = (excess / 1000, excess % 1000);
            let zone = self.limits[limit].zone.shown();
            s.log(
                level,
                format_args!("{what}{dry}, excess: {whole}.{rest:03}{comma} by zone \"{zone}\""),
            );
        }
    }
}

impl ReqLimit {
    /// The rate and the burst, as [`ask`] takes them.
    fn terms(&self) -> (i64, i64) {
        (self.zone.rate.get(), self.burst)
    }

    /// The delay of a request that finds `excess` in the bucket, in milliseconds.
    fn delay_ms(&self, excess: i64) -> u64 {
        let above = excess.saturating_sub(self.delay);
        if above <= 0 {
            return 0;
        }
        // A rate below one thousandth a second is none at all.
        (above.saturating_mul(1000) / self.zone.rate.get().max(1)) as u64
    }

    /// Puts a request into a bucket that was asked before, and gives its content.
    fn count(&self, shared: &Shared<Bucket>, entry: Entry, now: u64) -> i64 {
        let mut t = shared.table.lock();
        let Some(bucket) = t.value(entry) else { return 0 };
        let excess = bucket.with_one_more(now, self.zone.rate.get());
        t.set(entry, bucket.reckoned(now, excess));
        shared.touch(entry);
        excess
    }
}

impl Shared<Bucket> {
    /// Under the table's lock: other servers are to hear of a request.
    fn touch(&self, entry: Entry) {
        if let Some(touched) = &self.touched {
            touched.add(entry, 1000);
        }
    }
}

#[cfg(test)]
mod tests;
