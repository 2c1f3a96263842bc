//! `limit_auth`: a limit on the failed logins of a client, in buckets that leak as those of
//! `limit_req`. A block of 64 bits of IPv6 is a client ([`block_of`]).
//!
//! Many attempts at once are no way around the limit. There are two forms, and no one may mix them:
//!
//! - An attempt counts as failed from its beginning ([`AuthLimits::begin`]), and is taken back when
//!   it is known to be none. For logins that are few at a time.
//! - An attempt counts when it has failed ([`AuthLimits::admit`], [`AuthLimits::settle`]). Its
//!   result is only told if the limit allows one more by then. For requests of HTTP: a browser
//!   sends many at once with the right password, and none of them may be refused.

use std::net::IpAddr;
use std::rc::Rc;

use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use conf::{ConfError, Node};
use engine::metrics::{Kind, word};
use engine::{Client, Cx, Session, told};
use fleet::Touched;
use os::sockaddr::block_of;
use shm::{Entry, Locked, Record};

use super::req::{Answer, Bucket, ask, set_rate, thousandths};
use super::{Counted, Key, Refusing, Zone, define_by, refer};

/// One client's bucket.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Failures {
    bucket: Bucket,
    /// A worker has noticed that the client is over the limit. The next attempt that counts begins
    /// anew, because there was room for it.
    is_blocked: bool,
}

impl Record for Failures {
    const WORDS: usize = Bucket::WORDS + 1;

    fn to_words(self) -> [u64; 4] {
        let mut words = self.bucket.to_words();
        words[Bucket::WORDS] = self.is_blocked.into();
        words
    }

    fn from_words(words: [u64; 4]) -> Failures {
        let is_blocked = words[Bucket::WORDS] != 0;
        Failures { bucket: Bucket::from_words(words), is_blocked }
    }
}

impl From<Bucket> for Failures {
    fn from(bucket: Bucket) -> Failures {
        Failures { bucket, is_blocked: false }
    }
}

impl From<Failures> for Bucket {
    fn from(failures: Failures) -> Bucket {
        failures.bucket
    }
}

impl Counted for Failures {
    const NAME: &'static str = "limit_auth";
    const KEY_MAX: usize = 16;
    const HELD: bool = false;

    fn kind<S: Session>() -> Kind {
        Kind::LimitAuth
    }

    fn give_back(_: &mut Locked<'_, Failures>, _: Entry, _: Option<&Touched>) {}
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
pub struct TooMany {
    /// Seconds until another attempt is let through.
    pub retry_s: u64,
}

/// A client is over the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Over {
    /// The bucket's content, in thousandths of failures.
    excess: i64,
    /// Nobody has noticed it before.
    is_first: bool,
}

impl AuthLimits {
    /// Whether there is a limit.
    pub fn is_on(&self) -> bool {
        matches!(self.limit, Some(Some(_)))
    }

    /// The limit, and the client that it is for.
    fn of(&self, s: &impl Session) -> Option<(&AuthLimit, IpAddr)> {
        Some((self.limit.as_ref()?.as_ref()?, s.address().ip_addr()?))
    }

    /// An attempt to log in begins. Refusals are logged, once a minute for a client.
    ///
    /// # Errors
    /// It is to be refused.
    pub fn begin(&self, s: &impl Session) -> Result<Attempt, TooMany> {
        let Some((limit, ip)) = self.of(s) else { return Ok(Attempt::default()) };
        match limit.begin(ip, now_ms()) {
            Ok(attempt) => {
                limit.zone.count(s, word::PASSED);
                Ok(attempt)
            }
            Err(over) => self.refuse(s, (limit, ip), over).map(|()| Attempt::default()),
        }
    }

    /// Asks whether credentials may be checked. Nothing counts yet, except a refusal.
    ///
    /// # Errors
    /// The request is to be refused before anything is checked.
    pub fn admit(&self, s: &impl Session) -> Result<(), TooMany> {
        let Some((limit, ip)) = self.of(s).filter(|_| !self.refusing.dry_run()) else {
            return Ok(());
        };
        match limit.look(ip, now_ms()) {
            Some(over) => self.refuse(s, (limit, ip), over),
            None => Ok(()),
        }
    }

    /// Credentials were checked; those that failed count.
    ///
    /// # Errors
    /// The client must not learn the result, because others of its attempts, which were checked at
    /// the same time, have reached the limit.
    pub fn settle(&self, s: &impl Session, has_failed: bool) -> Result<(), TooMany> {
        let Some((limit, ip)) = self.of(s) else { return Ok(()) };
        let now = now_ms();
        let over = match has_failed {
            true => limit.begin(ip, now).map(Attempt::stays).err(),
            false => limit.look(ip, now),
        };
        if let Some(over) = over {
            return self.refuse(s, (limit, ip), over);
        }
        limit.zone.count(s, word::PASSED);
        if has_failed {
            limit.zone.count(s, word::FAILED);
        }
        Ok(())
    }

    /// Counts a refusal, and logs it if it is the first one of its client since it was blocked, at
    /// most once a minute. In a dry run there is no error.
    fn refuse(
        &self,
        s: &impl Session,
        (limit, ip): (&AuthLimit, IpAddr),
        over: Over,
    ) -> Result<(), TooMany> {
        let (level, dry_run) = (self.refusing.level(), self.refusing.dry_run());
        limit.zone.count(s, if dry_run { word::REJECTED_DRY_RUN } else { word::REJECTED });
        if over.is_first
            && let Some(left_out) = told::due(Some(ip), Failures::NAME).filter(|_| s.logs(level))
        {
            limit.tell(s, level, over.excess, (dry_run, left_out));
        }
        if dry_run { Ok(()) } else { Err(TooMany { retry_s: limit.retry_s(over.excess) }) }
    }
}

/// The text that a client is counted by.
fn text_of(ip: IpAddr) -> ([u8; 16], usize) {
    match block_of(ip) {
        IpAddr::V4(ip) => {
            let mut text = [0; 16];
            text[..4].copy_from_slice(&ip.octets());
            (text, 4)
        }
        IpAddr::V6(ip) => (ip.octets(), 16),
    }
}

impl AuthLimit {
    /// Counts an attempt, if that is not too many.
    fn begin(&self, ip: IpAddr, now: u64) -> Result<Attempt, Over> {
        let Some(shared) = self.zone.shared.get() else { return Ok(Attempt::default()) };
        let (text, len) = text_of(ip);
        let (key, fits) = (shared.table.key(&text[..len]), shared.table.fits(len));
        let terms = (self.zone.rate.get(), self.burst);
        let mut t = shared.table.lock();
        match ask(&mut t, key, fits, terms, now, true) {
            Answer::Over(excess) => {
                let is_first = t.find(key).is_some_and(|entry| blocks(&mut t, entry));
                Err(Over { excess, is_first })
            }
            Answer::Counted { entry, .. } => Ok(Attempt(Some((self.zone.clone(), entry)))),
            Answer::Fits(_) | Answer::NoRoom => Ok(Attempt::default()),
        }
    }

    /// Says whether another failure would be too many. A client without failures needs no entry.
    fn look(&self, ip: IpAddr, now: u64) -> Option<Over> {
        let shared = self.zone.shared.get()?;
        let (text, len) = text_of(ip);
        let key = shared.table.key(&text[..len]);
        let mut t = shared.table.lock();
        let entry = t.find(key)?;
        let excess = t.value(entry)?.bucket.with_one_more(now, self.zone.rate.get());
        (excess > self.burst).then(|| {
            // Where the zone is full, other clients' entries are evicted first.
            t.touch(entry);
            Over { excess, is_first: blocks(&mut t, entry) }
        })
    }

    /// Seconds until the bucket has room again.
    fn retry_s(&self, excess: i64) -> u64 {
        let (surplus, rate) = (excess.saturating_sub(self.burst), self.zone.rate.get());
        u64::try_from(surplus).unwrap_or(0).div_ceil(u64::try_from(rate).unwrap_or(0).max(1)).max(1)
    }

    #[cold]
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

/// Marks a client as blocked. False if it was marked before.
fn blocks(t: &mut Locked<'_, Failures>, entry: Entry) -> bool {
    match t.value(entry) {
        Some(failures) if !failures.is_blocked => {
            t.set(entry, Failures { is_blocked: true, ..failures });
            true
        }
        _ => false,
    }
}

/// An attempt to log in, which does not count where it is dropped: it was a good one, or nobody
/// knows. A good one takes no failures back: whoever has an account could guess for ever else.
#[derive(Default)]
pub struct Attempt(Option<(Rc<Zone<Failures>>, Entry)>);

impl Attempt {
    /// Counts a failure against the client's address.
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
        if let Some(failures) = t.value(entry) {
            let bucket = failures.bucket.with_one_less();
            t.set(entry, Failures { bucket, ..failures });
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
        let shared = Shared { key: Bytes::new(), table, journal: None, touched: None };
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
        assert_eq!(begin().err(), Some(Over { excess: 2000, is_first: true }));
        assert_eq!(begin().err(), Some(Over { excess: 2000, is_first: false }));
        drop(first);
        let third = begin().unwrap();
        second.stays();
        third.stays();
        assert!(begin().is_err());
    }

    #[test]
    fn looking_counts_nothing_until_an_attempt_has_failed() {
        // One a minute, and one above.
        let (all, t0) = (limit(1000 / 60, 1000), 3_600_000);
        let ip: IpAddr = "192.0.2.1".parse().unwrap();
        let fails = |now| all.begin(ip, now).map(Attempt::stays).err();
        assert!((0..50).all(|_| all.look(ip, t0).is_none()));
        let fill = |limit: &AuthLimit| limit.zone.shared.get().unwrap().table.fill().used;
        let empty = fill(&all);
        assert_eq!(fails(t0), None);
        assert!(fill(&all) > empty);
        assert_eq!(all.look(ip, t0), None);
        assert_eq!(fails(t0), None);
        // Blocked, of which the first to notice tells; another failure changes nothing.
        assert_eq!(all.look(ip, t0), Some(Over { excess: 2000, is_first: true }));
        assert_eq!(fails(t0), Some(Over { excess: 2000, is_first: false }));
        assert_eq!(all.look(ip, t0), Some(Over { excess: 2000, is_first: false }));
        assert_eq!((all.retry_s(2000), all.retry_s(1001), all.retry_s(1000)), (63, 1, 1));
        // The time to retry is enough, and the next block is another one.
        assert!(all.look(ip, t0 + 62_000).is_some());
        assert_eq!(all.look(ip, t0 + 63_000), None);
        assert_eq!(fails(t0 + 63_000), None);
        assert!(all.look(ip, t0 + 63_000).is_some_and(|over| over.is_first));
    }

    #[test]
    fn a_full_zone_evicts_the_client_that_failed_longest_ago() {
        let (all, t0) = (limit(16, 1000), 3_600_000);
        let of = |i: u32| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + i));
        let fail = |i: u32| (0..2).for_each(|_| all.begin(of(i), t0).unwrap().stays());
        let has = |i: u32| {
            let (text, len) = text_of(of(i));
            let table = &all.zone.shared.get().unwrap().table;
            table.lock().find(table.key(&text[..len])).is_some()
        };
        fail(0);
        fail(1);
        // The first client tries on, so that the second one's entry is the oldest.
        let mut i = 2;
        while has(1) {
            assert!(all.look(of(0), t0).is_some(), "after {i} clients");
            fail(i);
            i += 1;
            assert!(i < 10_000);
        }
        assert!(all.look(of(0), t0).is_some() && all.look(of(1), t0).is_none());
    }
}
