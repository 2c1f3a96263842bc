//! `limit_auth`: a limit on the failed logins of a client, in buckets that leak as those of
//! `limit_req`. A block of 64 bits of IPv6 is a client ([`block_of`]).
//!
//! An attempt counts as failed from its beginning, and is taken back when it is known to be none:
//! many at once are no way around the limit.

use std::net::IpAddr;
use std::rc::Rc;

use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use conf::{ConfError, Node};
use engine::metrics::{Kind, word};
use engine::{Client, Cx, Session, told};
use os::sockaddr::block_of;
use shm::{Entry, Locked, Record};

use super::req::{Answer, Bucket, ask, set_rate, thousandths};
use super::{Counted, Key, Refusing, Zone, define_by, refer};

/// One client's bucket.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Failures(Bucket);

impl Record for Failures {
    const WORDS: usize = Bucket::WORDS;

    fn to_words(self) -> [u64; 4] {
        self.0.to_words()
    }

    fn from_words(words: [u64; 4]) -> Failures {
        Failures(Bucket::from_words(words))
    }
}

impl From<Bucket> for Failures {
    fn from(bucket: Bucket) -> Failures {
        Failures(bucket)
    }
}

impl From<Failures> for Bucket {
    fn from(failures: Failures) -> Bucket {
        failures.0
    }
}

impl Counted for Failures {
    const NAME: &'static str = "limit_auth";
    const KEY_MAX: usize = 16;
    const HELD: bool = false;

    fn kind<S: Session>() -> Kind {
        Kind::LimitAuth
    }

    fn give_back(_: &mut Locked<'_, Failures>, _: Entry) {}
}

/// The zone that logins of a place are held to.
#[derive(Clone)]
struct AuthLimit {
    zone: Rc<Zone<Failures>>,
    /// Thousandths of failures that may be in the bucket.
    burst: i64,
}

engine::settings! {
    /// The `limit_auth` of one block.
    pub struct AuthLimits {
        limit: Option<Option<AuthLimit>>,
        /// The treatment of refused logins.
        pub refusing: Refusing,
    }
}

/// The burst where none is given: mistyped passwords in a row.
const BURST: i64 = 5_000;

/// Reads `limit_auth_zone`.
///
/// # Errors
/// A parameter is wrong or missing, or the zone is defined twice.
pub fn set_zone<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let mut rate = None;
    let key = Key { value: None, text: Bytes::from_static(b"client address") };
    let zone = define_by::<S, Failures>(cx, n, key, &n.args, |word| set_rate(&mut rate, word))?;
    let missing = || format!("\"{}\" must have \"rate\" parameter", n.name.lossy());
    zone.rate.set(rate.ok_or_else(|| ConfError::at(&n.name, missing()))?);
    Ok(())
}

/// Reads `limit_auth` into the [`AuthLimits`] of its block.
///
/// # Errors
/// A parameter is wrong, or the directive is duplicate.
pub fn set_limit<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let (mut zone, mut burst) = (None, BURST);
    let is_off = n.args.len() == 1 && *n.arg(0)? == *"off";
    for word in n.args.iter().filter(|_| !is_off) {
        if let Some(name) = word.bytes().strip_prefix(b"zone=") {
            zone = Some(refer::<S, Failures>(cx, word, name, None)?);
        } else if let Some(text) = word.bytes().strip_prefix(b"burst=") {
            burst = thousandths(word, text, "burst")?;
        } else {
            return Err(ConfError::at(word, format!("invalid parameter \"{}\"", word.lossy())));
        }
    }
    if zone.is_none() && !is_off {
        let message = format!("\"{}\" must have \"zone\" parameter", n.name.lossy());
        return Err(ConfError::at(&n.name, message));
    }
    let limit = &mut cx.loc::<AuthLimits>().limit;
    if limit.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    *limit = Some(zone.map(|zone| AuthLimit { zone, burst }));
    Ok(())
}

/// Too many logins of a client have failed.
#[derive(Debug)]
pub struct TooMany;

impl AuthLimits {
    /// An attempt to log in begins. Refusals are logged, once a minute for a client.
    ///
    /// # Errors
    /// It is to be refused.
    pub fn begin(&self, s: &impl Session) -> Result<Attempt, TooMany> {
        let uncounted = Attempt::default();
        let (Some(Some(limit)), Some(ip)) = (&self.limit, s.address().ip_addr()) else {
            return Ok(uncounted);
        };
        let excess = match limit.begin(ip, now_ms()) {
            Ok(attempt) => {
                limit.zone.count(s, word::PASSED);
                return Ok(attempt);
            }
            Err(excess) => excess,
        };
        let (level, dry_run) = (self.refusing.level(), self.refusing.dry_run());
        limit.zone.count(s, if dry_run { word::REJECTED_DRY_RUN } else { word::REJECTED });
        if let Some(left_out) = told::due(Some(ip), Failures::NAME).filter(|_| s.logs(level)) {
            limit.tell(s, level, excess, (dry_run, left_out));
        }
        if dry_run { Ok(uncounted) } else { Err(TooMany) }
    }
}

impl AuthLimit {
    /// Counts an attempt; where that is too many, gives the excess in thousandths.
    fn begin(&self, ip: IpAddr, now: u64) -> Result<Attempt, i64> {
        let Some(shared) = self.zone.shared.get() else { return Ok(Attempt::default()) };
        let mut text = [0; 16];
        let text = match block_of(ip) {
            IpAddr::V4(ip) => {
                text[..4].copy_from_slice(&ip.octets());
                &text[..4]
            }
            IpAddr::V6(ip) => {
                text = ip.octets();
                &text[..]
            }
        };
        let (key, fits) = (shared.table.key(text), shared.table.fits(text.len()));
        let terms = (self.zone.rate.get(), self.burst);
        match ask(&mut shared.table.lock(), key, fits, terms, now, true) {
            Answer::Over(excess) => Err(excess),
            Answer::Counted { entry, .. } => Ok(Attempt(Some((self.zone.clone(), entry)))),
            Answer::Fits(_) | Answer::NoRoom => Ok(Attempt::default()),
        }
    }

    fn tell(&self, s: &impl Client, level: Level, excess: i64, (dry_run, left_out): (bool, u64)) {
        let dry = if dry_run { ", dry run" } else { "" };
        let (whole, rest) = (excess / 1000, excess % 1000);
        let more = match left_out {
            0 => String::new(),
            n => format!(", {n} more since the last such line"),
        };
        let zone = self.zone.shown();
        s.log(
            level,
            format_args!(
                "limiting logins{dry}, excess: {whole}.{rest:03} by zone \"{zone}\"{more}"
            ),
        );
    }
}

/// An attempt to log in, which does not count where it is dropped: it was a good one, or nobody
/// knows. A good one takes no failures back: whoever has an account could guess for ever else.
#[derive(Default)]
pub struct Attempt(Option<(Rc<Zone<Failures>>, Entry)>);

impl Attempt {
    /// It failed.
    pub fn failed(self, s: &impl Session) {
        if let Some((zone, _)) = &self.0 {
            zone.count(s, word::FAILED);
        }
        self.stays();
    }

    /// It goes on to count.
    fn stays(mut self) {
        self.0 = None;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some((zone, entry)) = self.0.take() else { return };
        let Some(shared) = zone.shared.get() else { return };
        let mut t = shared.table.lock();
        if let Some(Failures(bucket)) = t.value(entry) {
            t.set(entry, Failures(bucket.with_one_less()));
        }
    }
}

#[cfg(test)]
mod tests {
    use shm::Table;

    use super::super::Shared;
    use super::*;

    fn limit(rate: i64, burst: i64) -> AuthLimit {
        let zone = Zone::for_tests(rate);
        let table = Table::new(1 << 16).unwrap();
        let shared = Shared { key: Bytes::new(), table, journal: None };
        assert!(zone.shared.set(Rc::new(shared)).is_ok());
        AuthLimit { zone, burst }
    }

    /// The outcome of an attempt: whether it is let through.
    fn attempt(limit: &AuthLimit, ip: &str, now: u64, good: bool) -> bool {
        match limit.begin(ip.parse().unwrap(), now) {
            Ok(attempt) if good => drop(attempt),
            Ok(attempt) => attempt.stays(),
            Err(_) => return false,
        }
        true
    }

    #[test]
    fn failures_count_and_good_logins_do_not() {
        // One a minute, and two above.
        let (all, t0) = (limit(1000 / 60, 2000), 3_600_000);
        assert!((0..50).all(|_| attempt(&all, "192.0.2.1", t0, true)));
        for _ in 0..3 {
            assert!(attempt(&all, "192.0.2.1", t0, false));
            assert!(attempt(&all, "192.0.2.2", t0, true));
        }
        assert!(!attempt(&all, "192.0.2.1", t0, true), "whoever it is now");
        assert!(attempt(&all, "192.0.2.2", t0, true), "another client");
        assert!(!attempt(&all, "192.0.2.1", t0 + 59_000, true));
        assert!(attempt(&all, "192.0.2.1", t0 + 64_000, true), "it has leaked");
        assert!(attempt(&all, "192.0.2.1", t0 + 64_000, false), "the good one has not filled it");
        assert!(!attempt(&all, "192.0.2.1", t0 + 64_000, true), "nor emptied it");
    }

    #[test]
    fn a_block_of_ipv6_is_a_client() {
        let (all, t0) = (limit(16, 1000), 3_600_000);
        assert!(attempt(&all, "2001:db8::1", t0, false));
        assert!(attempt(&all, "2001:db8::2", t0, false));
        assert!(!attempt(&all, "2001:db8::3:4", t0, true));
        assert!(attempt(&all, "2001:db8:0:1::1", t0, true));
        assert!(attempt(&all, "32.1.13.184", t0, true), "the first bytes are the same");
    }

    #[test]
    fn attempts_under_way_count() {
        let (all, t0) = (limit(16, 1000), 3_600_000);
        let ip: IpAddr = "192.0.2.1".parse().unwrap();
        let begin = || all.begin(ip, t0);
        let (first, second) = (begin().unwrap(), begin().unwrap());
        assert_eq!(begin().err(), Some(2000));
        drop(first);
        let third = begin().unwrap();
        second.stays();
        third.stays();
        assert!(begin().is_err());
    }
}
