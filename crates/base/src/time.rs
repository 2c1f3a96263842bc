//! Time, cached for a turn of the event loop, and its texts.
//!
//! Each thread has its own clock. [`update`] reads the system's clocks and is called once a turn;
//! all other functions read the values it stored. Texts are made when first asked for in a second.
//! A simulation [`pin`]s the clock and moves it by hand.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Bytes of `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const HTTP_DATE_LEN: usize = 29;

/// The monotonic clock starts here and not at 0, so that "a while ago" never underflows.
const MONOTONIC_START_MS: u64 = 3_600_000;

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
pub type ZoneOffset = fn(i64) -> i32;

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

/// A moment in milliseconds since 1970, as `2026-11-20T09:53:24.123Z`.
pub fn format_utc_ms(unix_ms: u64) -> String {
    let t = Civil::from_unix((unix_ms / 1000) as i64);
    let Civil { year, month, day, hour, min, sec, .. } = t;
    let ms = unix_ms % 1000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{min:02}:{sec:02}.{ms:03}Z")
}

/// Local time as the error log writes it: `2026/11/20 09:53:24`.
pub fn error_log_time() -> [u8; 19] {
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
    let month = MONTHS[usize::from(t.month) - 1];
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

/// Writes fixed-width text into an array that is exactly long enough.
struct Text<'a> {
    rest: &'a mut [u8],
}

impl<'a> Text<'a> {
    fn new(buf: &'a mut [u8]) -> Text<'a> {
        Text { rest: buf }
    }

    fn put(self, bytes: &[u8]) -> Text<'a> {
        let (here, rest) = self.rest.split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        Text { rest }
    }

    fn num(self, value: impl Into<u32>, digits: usize) -> Text<'a> {
        let mut value = value.into();
        let (here, rest) = self.rest.split_at_mut(digits);
        for byte in here.iter_mut().rev() {
            *byte = b'0' + (value % 10) as u8;
            value /= 10;
        }
        Text { rest }
    }

    fn hms(self, t: &Civil) -> Text<'a> {
        self.num(t.hour, 2).put(b":").num(t.min, 2).put(b":").num(t.sec, 2)
    }
}

const WEEK: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// A moment taken apart by the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year, astronomically counted (0 is 1 BC).
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub min: u8,
    /// 0 to 59; leap seconds do not exist in Unix time.
    pub sec: u8,
    /// 0 is Sunday.
    pub weekday: u8,
    /// 0 is the first of January.
    pub yearday: u16,
}

impl Civil {
    /// Takes apart seconds since 1970. Add [`zone_offset`] first for local time.
    pub fn from_unix(unix_secs: i64) -> Civil {
        let days = unix_secs.div_euclid(86_400);
        let rest = unix_secs.rem_euclid(86_400);
        // Years begin in March here, so that the leap day is the last day of the year; an era is
        // 400 years, after which the calendar repeats.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * march_month + 2) / 5 + 1) as u8;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 } as u8;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Civil {
            year,
            month,
            day,
            hour: (rest / 3600) as u8,
            min: (rest / 60 % 60) as u8,
            sec: (rest % 60) as u8,
            weekday: (days + 4).rem_euclid(7) as u8,
            yearday: (days - days_from_civil(year, 1, 1)) as u16,
        }
    }

    /// `Jan` to `Dec`.
    pub fn month_name(&self) -> &'static str {
        const NAMES: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        NAMES[usize::from(self.month - 1) % 12]
    }
}

/// Days since 1970-01-01 of a date in the Gregorian calendar.
pub fn days_from_civil(year: i64, month: u8, day: u8) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = (i64::from(month) + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The text of a moment for HTTP headers: `Sun, 06 Nov 1994 08:49:37 GMT`. Years outside 0 to 9999
/// are shown as the nearest one inside.
pub fn format_http_date(unix_secs: i64) -> [u8; 29] {
    LAST_DATES.with(|dates| {
        let at = &dates[unix_secs.rem_euclid(DATES as i64) as usize];
        let (moment, text) = at.get();
        if moment == unix_secs {
            return text;
        }
        let text = make_http_date(unix_secs);
        if (0..YEAR_10000).contains(&unix_secs) {
            at.set((unix_secs, text));
        }
        text
    })
}

/// The first second of the year 10000, which the text has no room for.
const YEAR_10000: i64 = 253_402_300_800;

/// Moments whose text is kept: each has its place by the last digit of its seconds, which the text
/// shows as well.
const DATES: usize = 10;

thread_local! {
    /// The moments written last. A file that is served again and again has one, and so has a
    /// response that a server gives again and again: it is read, and written in our own form.
    static LAST_DATES: [Cell<(i64, [u8; 29])>; DATES] =
        const { [const { Cell::new((i64::MIN, [0; 29])) }; DATES] };
}

/// The moment of a text that was written a short while ago.
fn known_http_date(text: &[u8]) -> Option<i64> {
    let digit = text.get(24)?.wrapping_sub(b'0');
    LAST_DATES.with(|dates| {
        let (moment, known) = dates.get(usize::from(digit))?.get();
        (known == *text).then_some(moment)
    })
}

fn make_http_date(unix_secs: i64) -> [u8; 29] {
    let t = Civil::from_unix(unix_secs);
    let year = t.year.clamp(0, 9999) as u32;
    let mut out = [0; 29];
    let text = Text::new(&mut out).put(WEEK[usize::from(t.weekday)]).put(b", ").num(t.day, 2);
    let text = text.put(b" ").put(MONTHS[usize::from(t.month) - 1]).put(b" ").num(year, 4);
    text.put(b" ").hms(&t).put(b" GMT");
    out
}

/// The text of a moment for cookies: `Sun, 06-Nov-94 08:49:37 GMT`. From 2038 on the year has four
/// digits: browsers read two digits as a year of the last century.
pub fn format_cookie_date(unix_secs: i64) -> Vec<u8> {
    let mut text = format_http_date(unix_secs).to_vec();
    text[7] = b'-';
    text[11] = b'-';
    if Civil::from_unix(unix_secs).year <= 2037 {
        text.drain(12..14);
    }
    text
}

/// Reads any of the three dates of RFC 9110, 5.6.7:
/// `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT`, `Sun Nov  6 08:49:37 1994`.
///
/// As in nginx, the name of the weekday is ignored, as is everything behind the time of day
/// (browsers have sent `; length=` there), and two-digit years below 70 are of this century.
pub fn parse_http_date(text: &[u8]) -> Option<i64> {
    known_http_date(text).or_else(|| read_http_date(text))
}

/// The same, and whether the text is the one that [`format_http_date`] makes of the moment.
pub fn parse_http_date_in_form(text: &[u8]) -> Option<(i64, bool)> {
    if let Some(known) = known_http_date(text) {
        return Some((known, true));
    }
    let moment = read_http_date(text)?;
    Some((moment, format_http_date(moment)[..] == *text))
}

fn read_http_date(text: &[u8]) -> Option<i64> {
    let name_end = text.iter().position(|&byte| byte == b',' || byte == b' ')?;
    let mut at = Cursor { rest: &text[name_end + 1..] };
    at.blanks();
    let (year, month, day, (hour, min, sec));
    if text[name_end] == b' ' {
        month = at.month()?;
        at.expect(b' ')?;
        at.blanks();
        day = at.one_or_two()?;
        at.expect(b' ')?;
        (hour, min, sec) = at.time_of_day()?;
        at.expect(b' ')?;
        year = at.digits(4)?;
    } else {
        day = at.digits(2)?;
        let separator = at.any()?;
        month = at.month()?;
        at.expect(separator)?;
        year = match separator {
            b' ' => at.digits(4)?,
            b'-' => match at.digits(2)? {
                short @ 0..70 => short + 2000,
                short => short + 1900,
            },
            _ => return None,
        };
        at.expect(b' ')?;
        (hour, min, sec) = at.time_of_day()?;
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last_day = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=last_day).contains(&day) || hour > 23 || min > 59 || sec > 59 {
        return None;
    }
    let days = days_from_civil(i64::from(year), month, day as u8);
    Some(days * 86_400 + i64::from(hour * 3600 + min * 60 + sec))
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn any(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.any()? == byte).then_some(())
    }

    fn blanks(&mut self) {
        while let [b' ', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn digits(&mut self, count: usize) -> Option<u32> {
        let (digits, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        crate::ascii::parse_u64(digits).map(|value| value as u32)
    }

    fn one_or_two(&mut self) -> Option<u32> {
        match self.rest {
            [_, b'0'..=b'9', ..] => self.digits(2),
            _ => self.digits(1),
        }
    }

    fn month(&mut self) -> Option<u8> {
        let (name, rest) = self.rest.split_at_checked(3)?;
        self.rest = rest;
        // Caches take dates in letters of any case (RFC 9111 section 4.2).
        let at = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(name));
        at.map(|index| index as u8 + 1)
    }

    fn time_of_day(&mut self) -> Option<(u32, u32, u32)> {
        let hour = self.digits(2)?;
        self.expect(b':')?;
        let min = self.digits(2)?;
        self.expect(b':')?;
        Some((hour, min, self.digits(2)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: i64 = 784_111_777;

    #[test]
    fn the_three_dates_of_rfc_9110() {
        assert_eq!(&format_http_date(EXAMPLE), b"Sun, 06 Nov 1994 08:49:37 GMT");
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov 06 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:37 GMT; length=7",
        ] {
            let is_ours = text == "Sun, 06 Nov 1994 08:49:37 GMT";
            let found = parse_http_date_in_form(text.as_bytes());
            assert_eq!(found, Some((EXAMPLE, is_ours)), "{text}");
            assert_eq!(parse_http_date(text.as_bytes()), Some(EXAMPLE), "{text}");
        }
    }

    #[test]
    fn broken_dates_are_refused() {
        for text in [
            "",
            ",",
            " ",
            "Sun",
            "Sun, ",
            "Sun, 06 Nov 1994",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 00 Feb 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 06 Nox 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06-Nov 94 08:49:37 GMT",
            "Sun Nov  6 08:49:37",
            "Sun Nov x6 08:49:37 1994",
        ] {
            assert_eq!(parse_http_date(text.as_bytes()), None, "{text}");
            assert_eq!(parse_http_date_in_form(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn dates_round_trip_over_four_centuries() {
        // A step of 7 days and some hours meets every weekday's change, month's end and leap rule.
        let mut secs = days_from_civil(1970, 1, 1) * 86_400;
        let mut before = None;
        while secs < days_from_civil(2401, 1, 1) * 86_400 {
            let text = format_http_date(secs);
            assert_eq!(read_http_date(&text), Some(secs));
            assert_eq!(parse_http_date(&text), Some(secs));
            assert_eq!(parse_http_date_in_form(&text), Some((secs, true)));
            assert_eq!(format_http_date(secs), text);
            let civil = Civil::from_unix(secs);
            assert_eq!(
                days_from_civil(civil.year, civil.month, civil.day),
                secs.div_euclid(86_400)
            );
            if let Some(before) = before {
                assert_ne!(before, text);
            }
            before = Some(text);
            secs += 7 * 86_400 + 40_001;
        }
    }

    #[test]
    fn calendar_facts() {
        let epoch = Civil::from_unix(0);
        assert_eq!((epoch.year, epoch.month, epoch.day, epoch.weekday), (1970, 1, 1, 4));
        let before = Civil::from_unix(-1);
        assert_eq!((before.year, before.month, before.day, before.hour), (1969, 12, 31, 23));
        let leap = Civil::from_unix(951_782_400);
        assert_eq!((leap.year, leap.month, leap.day, leap.yearday), (2000, 2, 29, 59));
        assert_eq!(leap.month_name(), "Feb");
        assert_eq!(parse_http_date(b"Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        let far = Civil::from_unix(i64::from(i32::MAX));
        assert_eq!((far.year, far.month, far.day), (2038, 1, 19));
        assert_eq!(format_http_date(i64::MAX / 2).len(), HTTP_DATE_LEN);
        assert_eq!(format_http_date(i64::MIN / 2).len(), HTTP_DATE_LEN);
        let last = format_http_date(YEAR_10000 - 1);
        assert_eq!(&last, b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_ne!(parse_http_date(&format_http_date(YEAR_10000 + 9)), Some(YEAR_10000 + 9));
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
        assert_eq!(&syslog_time(), b"Nov  6 03:19:37");
        pin(6000, EXAMPLE as u64 * 1000 + 1250);
        assert_eq!(&http_date(), b"Sun, 06 Nov 1994 08:49:38 GMT");
        assert_eq!(&error_log_time(), b"1994/11/06 03:19:38");
        unpin();
        assert!(now_ms() >= MONOTONIC_START_MS);
        assert!(unix_secs() > EXAMPLE as u64);
    }

    #[test]
    fn months_are_known_in_letters_of_any_case() {
        let want = parse_http_date(b"Tue, 01 Jan 2030 00:00:00 GMT");
        assert!(want.is_some());
        for text in ["Tue, 01 JAN 2030 00:00:00 GMT", "Tue, 01 jan 2030 00:00:00 GMT"] {
            assert_eq!(parse_http_date(text.as_bytes()), want, "{text}");
        }
        assert_eq!(parse_http_date(b"Tue, 01 Jam 2030 00:00:00 GMT"), None);
    }
}
