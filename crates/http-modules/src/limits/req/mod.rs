//! `limit_req`: a leaky bucket for each key, in thousandths of a request.

use std::cell::Cell;
use std::rc::Rc;

use base::log::Level;
use base::time::now_ms;
use conf::table::{Args, Contexts, Directive};
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, PhaseHandler, Pipeline, Scope, Step, Verdict};
use http::request::Request;
use http::vars::VarDef;
use shm::{Entry, Full, Key, Locked, Record, Table};

use super::{Counted, Refusing, Scratch, Zone, Zones, define, map_zones, positive, refer};

/// The module's table.
pub static MODULE: Module = Module {
    name: "limit_req",
    directives: DIRECTIVES,
    variables: &[VarDef::new("limit_req_status", status_variable)],
    confs: &[ConfType::of::<Zones<Bucket>>(Scope::Main), ConfType::of::<ReqConf>(Scope::Location)],
    init: Some(map_zones::<Bucket>),
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "limit_req_zone",
        Contexts::HTTP,
        Args::T3,
        "",
        "A zone that counts requests by a key, and how many a second or a minute it lets through.",
        limit_req_zone,
    ),
    directive(
        "limit_req",
        HSL,
        Args::T123,
        "",
        "Holds requests to a zone's rate; up to `burst` above it wait, the first `delay` do not.",
        limit_req,
    ),
    directive(
        "limit_req_log_level",
        HSL,
        Args::T1,
        "error",
        "At which level refused requests are logged; delayed ones are one level below.",
        |cx, n| cx.loc::<ReqConf>().refusing.set_log_level(n),
    ),
    directive(
        "limit_req_status",
        HSL,
        Args::T1,
        "503",
        "The status of refused requests.",
        |cx, n| cx.loc::<ReqConf>().refusing.set_status(n),
    ),
    directive(
        "limit_req_dry_run",
        HSL,
        Args::FLAG,
        "off",
        "Counts and logs, and lets all requests through.",
        |cx, n| cx.loc::<ReqConf>().refusing.set_dry_run(n),
    ),
];

/// One key's bucket.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Bucket {
    /// When it was last reckoned, in milliseconds of the monotonic clock.
    last: u64,
    /// What is in it: thousandths of requests above the rate.
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

    fn give_back(_: &mut Locked<'_, Bucket>, _: Entry) {}
}

/// Clocks may differ by a little between processes; after this they have nothing to do with each
/// other.
const CLOCK_JUMP_MS: i64 = 60_000;

impl Bucket {
    /// Milliseconds since it was last reckoned.
    fn age(&self, now: u64) -> i64 {
        match now.wrapping_sub(self.last) as i64 {
            ms if ms < -CLOCK_JUMP_MS => 1,
            ms => ms.max(0),
        }
    }

    /// What is in it when one more request comes: it leaks `rate` thousandths a second.
    fn with_one_more(&self, now: u64, rate: i64) -> i64 {
        let leaked = rate.saturating_mul(self.age(now)) / 1000;
        self.excess.saturating_sub(leaked).saturating_add(1000).max(0)
    }

    /// The bucket with that request in it.
    fn reckoned(self, now: u64, excess: i64) -> Bucket {
        Bucket { last: if self.age(now) > 0 { now } else { self.last }, excess }
    }

    /// Empty for a minute: as good as none.
    fn is_stale(&self, now: u64, rate: i64) -> bool {
        let age = (now.wrapping_sub(self.last) as i64).saturating_abs();
        age >= CLOCK_JUMP_MS && self.excess <= rate.saturating_mul(age) / 1000
    }
}

/// What a zone says to a request.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// Too many: so much more than the rate.
    Over(i64),
    /// It fits, and is in the bucket.
    Counted(i64),
    /// It fits; other zones are asked before it counts.
    Fits(Entry),
    /// No room for the key.
    NoRoom,
}

/// Asks for a request of `key`. With `count` it goes into the bucket.
fn ask(
    t: &mut Locked<'_, Bucket>,
    key: Key<'_>,
    fits: bool,
    limit: &Limit,
    now: u64,
    count: bool,
) -> Answer {
    let rate = limit.zone.rate.get();
    if let Some(entry) = t.find(key)
        && let Some(bucket) = t.value(entry)
    {
        t.touch(entry);
        let excess = bucket.with_one_more(now, rate);
        if excess > limit.burst {
            return Answer::Over(excess);
        }
        if !count {
            return Answer::Fits(entry);
        }
        t.set(entry, bucket.reckoned(now, excess));
        return Answer::Counted(excess);
    }
    let bucket = Bucket { last: if count { now } else { 0 }, excess: 0 };
    match insert(t, key, fits, bucket, now, rate) {
        Err(Full) => Answer::NoRoom,
        Ok(_) if count => Answer::Counted(0),
        Ok(entry) => Answer::Fits(entry),
    }
}

/// Makes an entry; takes out those that are empty, and as many of the oldest as it needs room for.
fn insert(
    t: &mut Locked<'_, Bucket>,
    key: Key<'_>,
    fits: bool,
    bucket: Bucket,
    now: u64,
    rate: i64,
) -> Result<Entry, Full> {
    drop_stale(t, now, rate);
    let mut made = t.insert(key, bucket);
    while made.is_err() && fits {
        let Some(oldest) = t.oldest() else { break };
        t.remove(oldest);
        drop_stale(t, now, rate);
        made = t.insert(key, bucket);
    }
    made
}

/// Takes out one or two entries that are as good as none.
fn drop_stale(t: &mut Locked<'_, Bucket>, now: u64, rate: i64) {
    for _ in 0..2 {
        let stale = |oldest: &Entry| t.value(*oldest).is_none_or(|b| b.is_stale(now, rate));
        match t.oldest().filter(stale) {
            Some(oldest) => t.remove(oldest),
            None => return,
        }
    }
}

/// One zone that requests of a location are held to.
#[derive(Clone)]
struct Limit {
    zone: Rc<Zone<Bucket>>,
    /// Thousandths of requests that may be in the bucket.
    burst: i64,
    /// Thousandths of requests that pass without delay.
    delay: i64,
}

#[derive(Default)]
struct ReqConf {
    limits: Option<Vec<Limit>>,
    refusing: Refusing,
}

impl Conf for ReqConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.limits.is_none() {
            self.limits.clone_from(&prev.limits);
        }
        self.refusing.merge(&prev.refusing);
        Ok(())
    }
}

fn limit_req_zone(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (mut rate, mut scale) = (1, 1);
    let zone = define::<Bucket>(cx, n, |word| {
        let Some(text) = word.bytes().strip_prefix(b"rate=") else { return Ok(false) };
        let number = match (text.strip_suffix(b"r/s"), text.strip_suffix(b"r/m")) {
            (Some(number), _) => number,
            (_, Some(number)) => {
                scale = 60;
                number
            }
            _ => text,
        };
        rate = positive(number)
            .and_then(|rate| rate.checked_mul(1000))
            .ok_or_else(|| ConfError::at(word, format!("invalid rate \"{}\"", word.lossy())))?;
        Ok(true)
    })?;
    zone.rate.set(rate / scale);
    Ok(())
}

fn limit_req(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (mut zone, mut burst, mut delay) = (None, 0, 0);
    for word in &n.args {
        let number = |text: &[u8], what: &str| {
            let invalid = || format!("invalid {what} value \"{}\"", word.lossy());
            let n = positive(text).and_then(|n| n.checked_mul(1000));
            n.ok_or_else(|| ConfError::at(word, invalid()))
        };
        if let Some(name) = word.bytes().strip_prefix(b"zone=") {
            zone = Some(refer::<Bucket>(cx, word, name, None)?);
        } else if let Some(text) = word.bytes().strip_prefix(b"burst=") {
            burst = number(text, "burst")?;
        } else if let Some(text) = word.bytes().strip_prefix(b"delay=") {
            delay = number(text, "delay")?;
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
    let limits = cx.loc::<ReqConf>().limits.get_or_insert_default();
    if limits.iter().any(|limit| Rc::ptr_eq(&limit.zone, &zone)) {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    limits.push(Limit { zone, burst, delay });
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<ReqConf>();
    let Some(limits) = conf.limits.clone() else { return Ok(()) };
    p.preaccess.push(Box::new(LimitReq {
        limits,
        refusing: conf.refusing,
        delay_level: match conf.refusing.level() {
            Level::Error => Level::Warn,
            Level::Warn => Level::Notice,
            _ => Level::Info,
        },
        scratch: Scratch::default(),
    }));
    Ok(())
}

struct LimitReq {
    limits: Vec<Limit>,
    refusing: Refusing,
    delay_level: Level,
    scratch: Scratch,
}

/// What became of a request; with its subrequests it is held to limits once.
#[derive(Default)]
struct Outcome(Cell<Option<&'static str>>);

fn status_variable(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let text = r.shared::<Outcome>().0.get();
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
    text.is_some()
}

/// What all zones together decide.
enum Decision {
    /// No zone counts this request.
    NotMine,
    /// It goes on after so many milliseconds; the excess and the zone that said so.
    Pass { delay_ms: u64, excess: i64, limit: usize },
    /// It is refused by that zone, with an excess where the reason is not lack of room.
    Refuse { excess: Option<i64>, limit: usize },
}

impl PhaseHandler for LimitReq {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let known = r.shared::<Outcome>();
        if known.0.get().is_some() {
            return Step::Now(Verdict::Next);
        }
        let mut key = self.scratch.take();
        let decision = self.decide(r, &mut key);
        self.scratch.give(key);
        let dry_run = self.refusing.dry_run();
        let (outcome, dry_outcome, verdict) = match decision {
            Decision::NotMine => return Step::Now(Verdict::Next),
            Decision::Pass { delay_ms: 0, .. } => ("PASSED", "PASSED", Verdict::Next),
            Decision::Pass { delay_ms, excess, limit } => {
                self.tell(r, self.delay_level, "delaying request", excess, ",", limit);
                if !dry_run {
                    known.0.set(Some("DELAYED"));
                    return Step::Wait(Box::pin(async move {
                        r.pause(delay_ms).await.err().unwrap_or(Verdict::Next)
                    }));
                }
                ("DELAYED", "DELAYED_DRY_RUN", Verdict::Next)
            }
            Decision::Refuse { excess, limit } => {
                if let Some(excess) = excess {
                    self.tell(r, self.refusing.level(), "limiting requests", excess, "", limit);
                }
                ("REJECTED", "REJECTED_DRY_RUN", self.refusing.verdict())
            }
        };
        known.0.set(Some(if dry_run { dry_outcome } else { outcome }));
        Step::Now(verdict)
    }
}

impl LimitReq {
    /// Asks all zones; only when none refuses does the request count in each.
    fn decide(&self, r: &mut Request, text: &mut Vec<u8>) -> Decision {
        let now = now_ms();
        let last = self.limits.len() - 1;
        // With one zone nothing is put here, so nothing is allocated.
        let mut fitting: Vec<(usize, Entry)> = Vec::new();
        let mut counted = None;
        let mut mine = false;
        for (i, limit) in self.limits.iter().enumerate() {
            let Some(shared) = limit.zone.shared.get() else { continue };
            if !limit.zone.key(r, text) {
                continue;
            }
            let key = shared.table.key(text);
            let fits = shared.table.fits(text.len());
            let answer = ask(&mut shared.table.lock(), key, fits, limit, now, i == last);
            r.debug(format_args!("limit_req[{i}]: {answer:?}"));
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
                Answer::Counted(excess) => counted = Some((i, excess)),
                Answer::Fits(entry) => fitting.push((i, entry)),
            }
            mine = true;
        }
        if !mine {
            return Decision::NotMine;
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
                weigh(i, self.limits[i].count(&shared.table, entry, now));
            }
        }
        Decision::Pass { delay_ms, excess, limit }
    }

    fn tell(&self, r: &Request, level: Level, what: &str, excess: i64, comma: &str, limit: usize) {
        if r.logs(level) {
            let dry = if self.refusing.dry_run() { ", dry run" } else { "" };
            let (whole, rest) = (excess / 1000, excess % 1000);
            let zone = self.limits[limit].zone.shown();
            r.log(
                level,
                format_args!("{what}{dry}, excess: {whole}.{rest:03}{comma} by zone \"{zone}\""),
            );
        }
    }
}

impl Limit {
    /// How long a request waits that finds so much in the bucket.
    fn delay_ms(&self, excess: i64) -> u64 {
        let above = excess.saturating_sub(self.delay);
        if above <= 0 {
            return 0;
        }
        // A rate below one thousandth a second is none at all.
        (above.saturating_mul(1000) / self.zone.rate.get().max(1)) as u64
    }

    /// Puts a request into a bucket that was asked before; what is in it then.
    fn count(&self, table: &Table<Bucket>, entry: Entry, now: u64) -> i64 {
        let mut t = table.lock();
        let Some(bucket) = t.value(entry) else { return 0 };
        let excess = bucket.with_one_more(now, self.zone.rate.get());
        t.set(entry, bucket.reckoned(now, excess));
        excess
    }
}

#[cfg(test)]
mod tests;
