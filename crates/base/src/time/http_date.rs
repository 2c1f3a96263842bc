//! Dates of HTTP (RFC 9110 section 5.6.7) and of cookies.

use std::cell::Cell;

use super::calendar::{Civil, MONTHS, Text, days_from_civil};

/// Bytes of `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const HTTP_DATE_LEN: usize = 29;

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
    let text = Text::new(&mut out).put(t.weekday_name().as_bytes()).put(b", ").num(t.day, 2);
    let text = text.put(b" ").put(t.month_name().as_bytes()).put(b" ").num(year, 4);
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
        let at = MONTHS.iter().position(|month| month.as_bytes().eq_ignore_ascii_case(name));
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
    fn the_ends_of_time() {
        assert_eq!(parse_http_date(b"Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(format_http_date(i64::MAX / 2).len(), HTTP_DATE_LEN);
        assert_eq!(format_http_date(i64::MIN / 2).len(), HTTP_DATE_LEN);
        let last = format_http_date(YEAR_10000 - 1);
        assert_eq!(&last, b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_ne!(parse_http_date(&format_http_date(YEAR_10000 + 9)), Some(YEAR_10000 + 9));
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
