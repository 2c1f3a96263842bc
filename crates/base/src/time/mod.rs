//! Time, cached for a turn of the event loop, and its texts.
//!
//! | file | concern |
//! | --- | --- |
//! | this one | the clock of a thread, and texts of the current time |
//! | [`calendar`] | moments taken apart |
//! | [`http_date`] | dates of HTTP |
//!
//! Each thread has its own clock. [`update`] reads the system's clocks and is called once a turn;
//! all other functions read the values it stored. Texts are made when first asked for in a second.
//! A simulation [`pin`]s the clock and moves it by hand.

mod calendar;
mod http_date;

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use calendar::{Civil, days_from_civil, format_utc_ms};
pub use http_date::{
    HTTP_DATE_LEN, format_cookie_date, format_http_date, parse_http_date, parse_http_date_in_form,
};

use calendar::Text;

/// The monotonic clock starts here and not at 0, so that "a while ago" never underflows: a process
/// may take over what another one began years ago. 40 bits have room for 26 years of uptime behind
/// it ([`MONOTONIC_BITS`]); the hour is for times that are cut to 32 bits.
const MONOTONIC_START_MS: u64 = (1 << 38) + 3_600_000;

/// Bits of a time of the monotonic clock in milliseconds, for those that pack it.
pub const MONOTONIC_BITS: u32 = 40;

struct Clock {
    now_ms: Cell<u64>,
    now_us: Cell<u64>,
    unix_ms: Cell<u64>,
    pinned: Cell<bool>,
    http_date: Cell<(u64, [u8; 29])>,
    /// The second of the cached local texts.
    local_secs: Cell<u64>,
    error_log: Cell<[u8; 19]>,
    clf: Cell<[u8; 26]>,
    iso8601: Cell<[u8; 25]>,
    syslog: Cell<[u8; 15]>,
}

const NEVER: u64 = u64::MAX;

thread_local! {
    static CLOCK: Clock = const {
        Clock {
            now_ms: Cell::new(0),
            now_us: Cell::new(0),
            unix_ms: Cell::new(0),
            pinned: Cell::new(false),
            http_date: Cell::new((NEVER, [0; 29])),
            local_secs: Cell::new(NEVER),
            error_log: Cell::new([0; 19]),
            clf: Cell::new([0; 26]),
            iso8601: Cell::new([0; 25]),
            syslog: Cell::new([0; 15]),
        }
    };
}

/// The origin of the monotonic clock. Forked processes share it if the parent read the clock before
/// the fork, so that times in shared memory are comparable.
static START: OnceLock<Instant> = OnceLock::new();

/// The offset of local time from UTC at a moment (Unix seconds), in seconds, east positive.
pub(crate) type ZoneOffset = fn(i64) -> i32;

static ZONE: OnceLock<ZoneOffset> = OnceLock::new();

/// Registers the source of local time; the first registration in the process stays. Without one,
/// local time is UTC.
pub fn set_zone(offset: ZoneOffset) {
    let _ = ZONE.set(offset);
}

/// The offset of local time from UTC in seconds at `unix_secs`.
pub fn zone_offset(unix_secs: i64) -> i32 {
    ZONE.get().map_or(0, |offset| offset(unix_secs))
}

/// Reads the system's clocks, unless this thread's clock is pinned.
pub fn update() {
    CLOCK.with(read_clocks);
}

fn read_clocks(clock: &Clock) {
    if clock.pinned.get() {
        return;
    }
    let us = monotonic_us();
    clock.now_us.set(us);
    clock.now_ms.set(us / 1000);
    // A system clock before 1970 reads as 1970.
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    clock.unix_ms.set(unix.as_millis() as u64);
}

/// Sets this thread's clock by hand and stops [`update`] from reading the system's: virtual time.
pub fn pin(now_ms: u64, unix_ms: u64) {
    CLOCK.with(|clock| {
        clock.pinned.set(true);
        clock.now_ms.set(now_ms);
        clock.now_us.set(now_ms.saturating_mul(1000));
        clock.unix_ms.set(unix_ms);
    });
}

/// Lets the clock follow the system's again.
pub fn unpin() {
    CLOCK.with(|clock| {
        clock.pinned.set(false);
        read_clocks(clock);
    });
}

#[inline]
fn with_clock<T>(get: impl FnOnce(&Clock) -> T) -> T {
    CLOCK.with(|clock| {
        if clock.now_ms.get() == 0 {
            read_clocks(clock);
        }
        get(clock)
    })
}

/// Milliseconds on a clock that never goes back, as of the last [`update`].
#[inline]
pub fn now_ms() -> u64 {
    with_clock(|clock| clock.now_ms.get())
}

/// The same clock in microseconds.
#[inline]
pub fn now_us() -> u64 {
    with_clock(|clock| clock.now_us.get())
}

/// [`now_ms`] read from the system's clock now: for decisions that a cached time makes wrong where
/// a turn lasts long. Costs some 25 ns.
pub fn exact_ms() -> u64 {
    exact_us() / 1000
}

/// The same in microseconds.
pub fn exact_us() -> u64 {
    CLOCK.with(|clock| if clock.pinned.get() { clock.now_us.get() } else { monotonic_us() })
}

/// A moment that is looked at often: [`Limit::is_over`] costs a third of what [`exact_us`] does,
/// because the reading of the system's clock is compared as it is.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// By the system's clock.
    Exact(Instant),
    /// By a pinned clock, in its microseconds.
    Pinned(u64),
}

impl Limit {
    /// The moment in `us` microseconds.
    pub fn in_us(us: u64) -> Limit {
        CLOCK.with(|clock| match clock.pinned.get() {
            true => Limit::Pinned(clock.now_us.get() + us),
            false => Limit::Exact(Instant::now() + Duration::from_micros(us)),
        })
    }

    /// Whether it has come.
    pub fn is_over(self) -> bool {
        match self {
            Limit::Exact(at) => Instant::now() >= at,
            Limit::Pinned(at_us) => CLOCK.with(|clock| clock.now_us.get() >= at_us),
        }
    }
}

fn monotonic_us() -> u64 {
    let start = *START.get_or_init(Instant::now);
    let since = Instant::now().saturating_duration_since(start).as_micros() as u64;
    MONOTONIC_START_MS * 1000 + since
}

/// Milliseconds since 1970 as of the last [`update`].
#[inline]
pub fn unix_ms() -> u64 {
    with_clock(|clock| clock.unix_ms.get())
}

/// Seconds since 1970 as of the last [`update`].
#[inline]
pub fn unix_secs() -> u64 {
    unix_ms() / 1000
}

/// The current time for a `Date` header: `Sun, 06 Nov 1994 08:49:37 GMT`.
#[inline]
pub fn http_date() -> [u8; 29] {
    with_clock(|clock| {
        let secs = clock.unix_ms.get() / 1000;
        let (of, text) = clock.http_date.get();
        if of == secs {
            return text;
        }
        let text = format_http_date(secs as i64);
        clock.http_date.set((secs, text));
        text
    })
}

/// Local time as the error log writes it: `2026/11/20 09:53:24`.
pub(crate) fn error_log_time() -> [u8; 19] {
    local_text(|clock| clock.error_log.get())
}

/// Local time as the common log format writes it: `20/Nov/2026:09:53:24 +0000`.
pub fn clf_time() -> [u8; 26] {
    local_text(|clock| clock.clf.get())
}

/// Local time in ISO 8601: `2026-11-20T09:53:24+00:00`.
pub fn iso8601() -> [u8; 25] {
    local_text(|clock| clock.iso8601.get())
}

/// Local time in RFC 3339, with milliseconds: `2026-11-20T09:53:24.123+00:00`.
pub fn rfc3339_ms() -> [u8; 29] {
    let (text, ms) = (iso8601(), (unix_ms() % 1000) as u32);
    let mut out = [0; 29];
    Text::new(&mut out).put(&text[..19]).put(b".").num(ms, 3).put(&text[19..]);
    out
}

/// Local time as syslog writes it (RFC 3164): `Nov 20 09:53:24`, the day padded with a blank.
pub fn syslog_time() -> [u8; 15] {
    local_text(|clock| clock.syslog.get())
}

fn local_text<T>(get: impl FnOnce(&Clock) -> T) -> T {
    with_clock(|clock| {
        let secs = clock.unix_ms.get() / 1000;
        if clock.local_secs.get() != secs {
            make_local_texts(clock, secs as i64);
            clock.local_secs.set(secs);
        }
        get(clock)
    })
}

fn make_local_texts(clock: &Clock, secs: i64) {
    let offset = zone_offset(secs);
    let t = Civil::from_unix(secs + i64::from(offset));
    let zone = offset.unsigned_abs() / 60;
    let sign: &[u8] = if offset < 0 { b"-" } else { b"+" };
    let month = t.month_name().as_bytes();
    let year = t.year.clamp(0, 9999) as u32;

    let mut error_log = [0; 19];
    let text = Text::new(&mut error_log).num(year, 4).put(b"/").num(t.month, 2).put(b"/");
    text.num(t.day, 2).put(b" ").hms(&t);
    clock.error_log.set(error_log);

    let mut clf = [0; 26];
    let text = Text::new(&mut clf).num(t.day, 2).put(b"/").put(month).put(b"/").num(year, 4);
    text.put(b":").hms(&t).put(b" ").put(sign).num(zone / 60, 2).num(zone % 60, 2);
    clock.clf.set(clf);

    let mut iso8601 = [0; 25];
    let text = Text::new(&mut iso8601).num(year, 4).put(b"-").num(t.month, 2).put(b"-");
    let text = text.num(t.day, 2).put(b"T").hms(&t).put(sign);
    text.num(zone / 60, 2).put(b":").num(zone % 60, 2);
    clock.iso8601.set(iso8601);

    let mut syslog = [0; 15];
    let text = Text::new(&mut syslog).put(month).put(b" ");
    let text = if t.day < 10 { text.put(b" ").num(t.day, 1) } else { text.num(t.day, 2) };
    text.put(b" ").hms(&t);
    clock.syslog.set(syslog);
}

/// The next time at which the local clock shows `secs` seconds since midnight. On days on which the
/// clock is changed, the time that it shows counts.
pub fn next_time_of_day(now: i64, secs: i64) -> i64 {
    next_time_in(|t| i64::from(zone_offset(t)), now, secs)
}

fn next_time_in(zone: impl Fn(i64) -> i64, now: i64, secs: i64) -> i64 {
    const DAY: i64 = 24 * 60 * 60;
    let local = now + zone(now);
    let midnight = local - local.rem_euclid(DAY);
    let at = |day: i64| {
        let shown = midnight + day * DAY + secs;
        shown - zone(shown - zone(shown))
    };
    if at(0) > now { at(0) } else { at(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_time_of_day() {
        for zone in [0, 3600, -19_800] {
            // Noon of a day there.
            let noon = 1_000_000 * 86_400 + 43_200 - zone;
            let next = |secs| next_time_in(|_| zone, noon, secs);
            assert_eq!(next(43_201), noon + 1);
            assert_eq!(next(43_200), noon + 86_400);
            assert_eq!(next(0), noon + 43_200);
        }
    }

    #[test]
    fn the_clock_begins_years_after_its_zero() {
        const YEAR_MS: u64 = 365 * 86_400_000;
        update();
        assert!(now_ms() > 8 * YEAR_MS);
        assert!((now_ms() + 25 * YEAR_MS) >> MONOTONIC_BITS == 0);
        assert!(now_ms() as u32 >= 3_600_000, "no time that is cut is 0 at first");
    }

    const EXAMPLE: i64 = 784_111_777;

    #[test]
    fn limits_are_over_at_their_moment() {
        assert!(Limit::in_us(0).is_over());
        assert!(!Limit::in_us(3_600_000_000).is_over());
        pin(5000, 0);
        let limit = Limit::in_us(2000);
        pin(5001, 0);
        assert!(!limit.is_over());
        pin(5002, 0);
        assert!(limit.is_over());
        unpin();
    }

    #[test]
    fn a_pinned_clock_gives_the_local_texts() {
        set_zone(|_| -(5 * 3600 + 30 * 60));
        pin(5000, EXAMPLE as u64 * 1000 + 250);
        update();
        assert_eq!((now_ms(), unix_ms(), unix_secs()), (5000, 784_111_777_250, 784_111_777));
        assert_eq!(&http_date(), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&error_log_time(), b"1994/11/06 03:19:37");
        assert_eq!(&clf_time(), b"06/Nov/1994:03:19:37 -0530");
        assert_eq!(&iso8601(), b"1994-11-06T03:19:37-05:30");
        assert_eq!(&rfc3339_ms(), b"1994-11-06T03:19:37.250-05:30");
        assert_eq!(&syslog_time(), b"Nov  6 03:19:37");
        pin(6000, EXAMPLE as u64 * 1000 + 1250);
        assert_eq!(&http_date(), b"Sun, 06 Nov 1994 08:49:38 GMT");
        assert_eq!(&error_log_time(), b"1994/11/06 03:19:38");
        unpin();
        assert!(now_ms() >= MONOTONIC_START_MS);
        assert!(unix_secs() > EXAMPLE as u64);
    }
}
