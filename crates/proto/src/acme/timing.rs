//! Times: of RFC 3339, Retry-After, and the pauses between attempts.

/// Seconds since 1970 of a time in RFC 3339's form; fractions of a second are left out.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, len: usize| -> Option<i64> {
        let digits = bytes.get(from..from + len)?;
        let digit = |n: i64, b: &u8| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0'));
        digits.iter().try_fold(0, digit)
    };
    let is = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|b| any.contains(b));
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let marks = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !marks || !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut at = 19;
    if is(at, b".") {
        let fraction = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        at += 1 + fraction;
        if fraction == 0 {
            return None;
        }
    }
    let offset = match bytes.get(at)? {
        b'Z' | b'z' if bytes.len() == at + 1 => 0,
        sign @ (b'+' | b'-') if bytes.len() == at + 6 && is(at + 3, b":") => {
            let (hours, minutes) = (number(at + 1, 2)?, number(at + 4, 2)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let secs = hours * 3600 + minutes * 60;
            if *sign == b'+' { secs } else { -secs }
        }
        _ => return None,
    };
    let month = u8::try_from(month).ok()?;
    let days = base::time::days_from_civil(year, month, u8::try_from(day).ok()?);
    Some(days * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

/// The longest pause that a server may ask for, seconds.
const RETRY_AFTER_MAX: u64 = 31 * 86_400;

/// Seconds from `now` on that a Retry-After field asks for (RFC 9110 section 10.2.3).
pub fn retry_after(value: &[u8], now: i64) -> Option<u64> {
    let secs = match base::ascii::parse_u64(value.trim_ascii()) {
        Some(secs) => secs,
        None => {
            let at = base::time::parse_http_date(value.trim_ascii())?;
            u64::try_from(at.saturating_sub(now)).unwrap_or(0)
        }
    };
    Some(secs.min(RETRY_AFTER_MAX))
}

/// The pauses between attempts at one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Backoff {
    /// Attempts that failed, in a row.
    pub failures: u32,
    /// The next attempt is due at this second since 1970.
    pub next: i64,
    /// The last one failed at this second since 1970.
    pub since: i64,
}

/// The longest pause, seconds, unless the server asks for a longer one.
const PAUSE_MAX: i64 = 86_400;

/// The longest pause of all, seconds.
const LEFT_MAX: u64 = RETRY_AFTER_MAX + RETRY_AFTER_MAX / 10;

impl Backoff {
    /// An attempt failed at `now`: the next one waits 1, 10, 100 minutes, then a day; up to a tenth
    /// longer by `random`, which spreads the attempts of many hosts. A server that asks for a pause
    /// gets at least that; a failure that is `permanent` waits a day at once.
    pub fn failed(&mut self, now: i64, random: u64, asked: Option<u64>, permanent: bool) {
        let pause = match self.failures {
            _ if permanent => PAUSE_MAX,
            0 => 60,
            1 => 600,
            2 => 6000,
            _ => PAUSE_MAX,
        };
        self.failures = self.failures.saturating_add(1);
        let asked = asked.map_or(0, |secs| i64::try_from(secs).unwrap_or(PAUSE_MAX));
        let pause = pause.max(asked);
        let spread = i64::try_from(random % (pause.unsigned_abs() / 10 + 1)).unwrap_or(0);
        self.next = now.saturating_add(pause + spread);
        self.since = now;
    }

    /// Seconds until the next attempt. They are at most the longest pause there is.
    pub fn left(&self, now: i64) -> u64 {
        let left = self.next.saturating_sub(now);
        u64::try_from(left).unwrap_or(0).min(LEFT_MAX)
    }

    /// Begins the pause anew where the clock was set back behind the failure: the time between is
    /// lost, and without this the pause would last until the clock is there again, which may be
    /// years. True if anything changed.
    pub fn follow_clock(&mut self, now: i64) -> bool {
        if self.failures == 0 || self.since <= now {
            return false;
        }
        let pause = self.next.saturating_sub(self.since);
        let pause = pause.clamp(0, i64::try_from(LEFT_MAX).unwrap_or(i64::MAX));
        (self.since, self.next) = (now, now.saturating_add(pause));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_rfc_3339() {
        for (text, want) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-01-01T00:00:00Z", 1_767_225_600),
            ("2025-12-31t23:59:59z", 1_767_225_599),
            ("2026-01-01T01:01:01.001Z", 1_767_229_261),
            ("2026-01-01T08:01:01+07:00", 1_767_229_261),
            ("2025-12-31T17:01:01.5-08:00", 1_767_229_261),
            ("2024-02-29T00:00:00Z", 1_709_164_800),
        ] {
            assert_eq!(parse_rfc3339(text), Some(want), "{text}");
        }
        for bad in [
            "",
            "2026-01-01",
            "26-01-01T01:01:01Z",
            "2026-13-01T01:01:01Z",
            "2026-02-29T01:01:01Z",
            "2026-01-00T01:01:01Z",
            "2026-01-01T24:01:01Z",
            "2026-01-01T01:01:01",
            "2026-01-01T01:01:01.Z",
            "2026-01-01T01:01:01ZZ",
            "2026-01-01T01:01:01+24:00",
            "2026-01-01T01:01:01+00:60",
            "2026-01-01T01:01:01+07:00Z",
            "2026/01/01T01:01:01Z",
        ] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn pauses_that_servers_ask_for() {
        assert_eq!(retry_after(b" 120 ", 0), Some(120));
        assert_eq!(retry_after(b"Thu, 01 Jan 1970 00:02:00 GMT", 60), Some(60));
        assert_eq!(retry_after(b"Thu, 01 Jan 1970 00:02:00 GMT", 600), Some(0));
        assert_eq!(retry_after(b"99999999999999", 0), Some(RETRY_AFTER_MAX));
        assert_eq!(retry_after(b"-1", 0), None);
        assert_eq!(retry_after(b"soon", 0), None);
    }

    #[test]
    fn failures_wait_longer_each_time() {
        let mut backoff = Backoff::default();
        for want in [60, 600, 6000, 86_400, 86_400] {
            backoff.failed(1000, 0, None, false);
            assert_eq!(backoff.left(1000), want);
        }
        assert_eq!(backoff.failures, 5);
        let mut backoff = Backoff::default();
        backoff.failed(1000, u64::MAX, None, false);
        assert!((60..=66).contains(&backoff.left(1000)));
        backoff.failed(1000, 0, Some(100_000), false);
        assert_eq!(backoff.left(1000), 100_000);
        let mut backoff = Backoff::default();
        backoff.failed(1000, 0, None, true);
        assert_eq!(backoff.left(1000), 86_400);
        assert_eq!(backoff.left(i64::MAX), 0);
        assert!(backoff.left(i64::MIN) <= RETRY_AFTER_MAX * 11 / 10);
    }
    #[test]
    fn a_clock_that_is_set_back_begins_the_pause_anew() {
        const YEAR: i64 = 365 * 86_400;
        let mut backoff = Backoff::default();
        assert!(!backoff.follow_clock(i64::MIN));
        for (failed_at, now, left) in [(YEAR, 10, 60), (YEAR, YEAR - 1, 60), (i64::MAX, 0, 0)] {
            let mut backoff = Backoff::default();
            backoff.failed(failed_at, 0, None, false);
            assert!(backoff.follow_clock(now) && !backoff.follow_clock(now));
            assert_eq!((backoff.left(now), backoff.failures), (left, 1));
        }
        // Set forward, the pause is over.
        backoff.failed(10, 0, None, false);
        assert!(!backoff.follow_clock(YEAR));
        assert_eq!(backoff.left(YEAR), 0);
    }
}
