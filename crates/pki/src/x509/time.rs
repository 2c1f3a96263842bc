//! Times in certificates and revocation lists.

use super::Malformed;
use super::der::{Element, tag};

/// A time as it stands in a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// `None` for a text that is no time of RFC 5280; every check of it fails.
    fields: Option<Fields>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    year: u16,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Time {
    /// A UTCTime or a GeneralizedTime; another type is an error, a bad text is kept as such.
    pub(crate) fn parse(element: &Element<'_>) -> Result<Time, Malformed> {
        let fields = match element.tag {
            tag::UTC_TIME => utc(element.content),
            tag::GENERALIZED_TIME => generalized(element.content),
            _ => return Err(Malformed("no time")),
        };
        Ok(Time { fields })
    }

    /// Seconds since 1970, negative before; `None` for a malformed text.
    pub fn unix(&self) -> Option<i64> {
        let f = self.fields?;
        let days = days_from_civil(i64::from(f.year), i64::from(f.month), i64::from(f.day));
        let seconds = i64::from(f.hour) * 3_600 + i64::from(f.minute) * 60 + i64::from(f.second);
        Some(days * 86_400 + seconds)
    }
}

/// `Nov 22 16:55:22 2026 GMT`, as `ASN1_TIME_print` writes it.
impl std::fmt::Display for Time {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(f) = self.fields else { return out.write_str("Bad time value") };
        let month = MONTHS[usize::from(f.month - 1)];
        write!(
            out,
            "{month} {:2} {:02}:{:02}:{:02} {} GMT",
            f.day, f.hour, f.minute, f.second, f.year
        )
    }
}

/// `YYMMDDHHMMSSZ`; years from 50 on are of the twentieth century.
fn utc(text: &[u8]) -> Option<Fields> {
    let (year, rest) = text.split_at_checked(2)?;
    let year = number(year)?;
    fields(if year < 50 { 2_000 + year } else { 1_900 + year }, rest)
}

/// `YYYYMMDDHHMMSSZ`.
fn generalized(text: &[u8]) -> Option<Fields> {
    let (year, rest) = text.split_at_checked(4)?;
    fields(number(year)?, rest)
}

fn fields(year: u16, rest: &[u8]) -> Option<Fields> {
    let [digits @ .., b'Z'] = rest else { return None };
    if digits.len() != 10 {
        return None;
    }
    let part = |i: usize| number(&digits[i * 2..i * 2 + 2]).map(|n| n as u8);
    let f = Fields {
        year,
        month: part(0)?,
        day: part(1)?,
        hour: part(2)?,
        minute: part(3)?,
        second: part(4)?,
    };
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match f.month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u8::from(leap),
        _ => return None,
    };
    let valid = (1..=days).contains(&f.day) && f.hour < 24 && f.minute < 60 && f.second < 60;
    valid.then_some(f)
}

fn number(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0u16, |n, b| {
        b.is_ascii_digit().then(|| n.wrapping_mul(10).wrapping_add(u16::from(b - b'0')))
    })
}

/// Days since 1970 of a date of the Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // The year is counted from March on: the leap day is its last one.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(tag: u8, text: &str) -> Time {
        Time::parse(&Element { tag, content: text.as_bytes(), raw: &[] }).unwrap()
    }

    #[test]
    fn texts() {
        let t = time(tag::UTC_TIME, "261122165522Z");
        assert_eq!(t.to_string(), "Nov 22 16:55:22 2026 GMT");
        assert_eq!(t.unix(), Some(1_795_366_522));
        assert_eq!(time(tag::UTC_TIME, "500101000000Z").unix(), Some(-631_152_000));
        let t = time(tag::GENERALIZED_TIME, "20500203000005Z");
        assert_eq!(t.to_string(), "Feb  3 00:00:05 2050 GMT");
        assert_eq!(time(tag::GENERALIZED_TIME, "99991231235959Z").unix(), Some(253_402_300_799));
        assert_eq!(time(tag::GENERALIZED_TIME, "00000101000000Z").unix(), Some(-62_167_219_200));
    }

    #[test]
    fn what_is_no_time_of_rfc_5280() {
        for bad in [
            "",
            "2611221655Z",
            "261122165522+0100",
            "261322165522Z",
            "260229000000Z",
            "260100000000Z",
            "260101240000Z",
            "260101006000Z",
            "260101000060Z",
            "26112216552 Z",
            "20261122165522Z",
        ] {
            assert_eq!(time(tag::UTC_TIME, bad).unix(), None, "{bad}");
        }
        assert_eq!(time(tag::UTC_TIME, "").to_string(), "Bad time value");
        assert_eq!(time(tag::GENERALIZED_TIME, "20261122165522.5Z").unix(), None);
        assert!(time(tag::UTC_TIME, "280229000000Z").unix().is_some());
    }
}
