//! Durations (XML Schema, part 2, section 3.2.6).

use std::fmt;

/// Picoseconds of a second, a minute, an hour and a day.
pub(super) const SECOND: i128 = 1_000_000_000_000;
pub(super) const MINUTE: i128 = 60 * SECOND;
pub(super) const HOUR: i128 = 60 * MINUTE;
pub(super) const DAY: i128 = 24 * HOUR;

/// A duration. Both parts have the same sign, or one is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Duration {
    pub(super) months: i64,
    /// Days and what is less, in picoseconds: less than those of 2^63 days.
    pub(super) picos: i128,
}

impl Duration {
    /// Months and picoseconds; `None` where their signs differ: there is no way to write that.
    pub(super) fn new(months: i64, picos: i128) -> Option<Self> {
        let is_one_way = i128::from(months.signum()) * picos.signum() >= 0;
        let fits = picos.unsigned_abs() < DAY.unsigned_abs() << 63 && months != i64::MIN;
        (is_one_way && fits).then_some(Duration { months, picos })
    }

    /// Of a number of seconds; `None` for NaN and for what is too many.
    pub(super) fn of_seconds(seconds: f64) -> Option<Self> {
        // As many digits as a number has when it is written, and no noise behind them.
        let text = crate::value::number_text(seconds);
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, &*text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let whole: i128 = whole.parse().ok()?;
        let picos = whole.checked_mul(SECOND)?.checked_add(picos_of(fraction.as_bytes())?)?;
        Duration::new(0, if is_negative { -picos } else { picos })
    }

    /// A duration's lexical form, without white space around.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let text = text.strip_prefix('P')?;
        let (date, time) = match text.split_once('T') {
            Some((date, time)) => (date, Some(time)),
            None => (text, None),
        };
        if time.unwrap_or(date).is_empty() {
            return None;
        }
        let [years, months, days] = fields(date, ['Y', 'M', 'D'])?;
        let (time, fraction) = without_fraction(time.unwrap_or_default())?;
        let [hours, minutes, seconds] = fields(&time, ['H', 'M', 'S'])?;
        let months = years.checked_mul(12)?.checked_add(months)?;
        // Each is below 2^63: the sum is far from the end of 128 bits.
        let picos = i128::from(days) * DAY
            + i128::from(hours) * HOUR
            + i128::from(minutes) * MINUTE
            + i128::from(seconds) * SECOND
            + fraction;
        let sign = if is_negative { -1 } else { 1 };
        Duration::new(sign * months, i128::from(sign) * picos)
    }

    /// The sum; `None` where there is none, see [`new`](Self::new).
    pub(super) fn plus(self, other: Self) -> Option<Self> {
        let months = self.months.checked_add(other.months)?;
        Duration::new(months, self.picos.checked_add(other.picos)?)
    }
}

/// The picoseconds of the digits behind a point; what is less is cut off. `None` for all else.
pub(super) fn picos_of(digits: &[u8]) -> Option<i128> {
    let mut picos = 0;
    let mut unit = SECOND;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        unit /= 10;
        picos += i128::from(digit - b'0') * unit;
    }
    Some(picos)
}

/// Numbers, each with its letter behind: in this order, and those that are not there are 0.
fn fields(text: &str, letters: [char; 3]) -> Option<[i64; 3]> {
    let mut numbers = [0; 3];
    let (mut rest, mut from) = (text, 0);
    while !rest.is_empty() {
        let length = rest.find(|c: char| !c.is_ascii_digit())?;
        let (digits, behind) = rest.split_at(length);
        let letter = behind.chars().next()?;
        let at = from + letters[from..].iter().position(|known| *known == letter)?;
        numbers[at] = digits.parse().ok()?;
        // The letters are of one byte.
        (rest, from) = (&behind[1..], at + 1);
    }
    Some(numbers)
}

/// A time without the fraction of its seconds, and that in picoseconds. There may be no digits
/// before the point or none behind it.
fn without_fraction(time: &str) -> Option<(String, i128)> {
    let Some((before, fraction)) = time.split_once('.') else { return Some((time.to_owned(), 0)) };
    let fraction = fraction.strip_suffix('S')?;
    let has_digits = before.ends_with(|c: char| c.is_ascii_digit());
    if !has_digits && fraction.is_empty() {
        return None;
    }
    let zero = if has_digits { "" } else { "0" };
    Some((format!("{before}{zero}S"), picos_of(fraction.as_bytes())?))
}

/// The fraction of a second with its point, as short as it is; nothing of 0.
pub(super) fn write_fraction(f: &mut fmt::Formatter, picos: i128) -> fmt::Result {
    if picos == 0 {
        return Ok(());
    }
    let digits = format!("{picos:012}");
    write!(f, ".{}", digits.trim_end_matches('0'))
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.months == 0 && self.picos == 0 {
            return f.write_str("P0D");
        }
        let is_negative = self.months < 0 || self.picos < 0;
        f.write_str(if is_negative { "-P" } else { "P" })?;
        let (months, picos) = (self.months.unsigned_abs(), self.picos.unsigned_abs() as i128);
        let days =
            [(i128::from(months / 12), 'Y'), (i128::from(months % 12), 'M'), (picos / DAY, 'D')];
        for (number, letter) in days.into_iter().filter(|(number, _)| *number != 0) {
            write!(f, "{number}{letter}")?;
        }
        let time = picos % DAY;
        if time == 0 {
            return Ok(());
        }
        f.write_str("T")?;
        let times = [(time / HOUR, 'H'), (time % HOUR / MINUTE, 'M')];
        for (number, letter) in times.into_iter().filter(|(number, _)| *number != 0) {
            write!(f, "{number}{letter}")?;
        }
        let seconds = time % MINUTE;
        if seconds != 0 {
            write!(f, "{}", seconds / SECOND)?;
            write_fraction(f, seconds % SECOND)?;
            f.write_str("S")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(duration: Option<Duration>) -> String {
        duration.map_or(String::new(), |duration| duration.to_string())
    }

    #[test]
    fn sums() {
        for (one, other, want) in [
            ("P1D", "P1D", "P2D"),
            ("P1Y", "P1D", "P1Y1D"),
            ("P1Y", "-P1M", "P11M"),
            ("P1M", "-P1Y", "-P11M"),
            ("P1Y", "-P1D", ""),
            ("-P1M", "P1D", ""),
            ("P1D", "-PT1H", "PT23H"),
            ("PT1H", "-P1D", "-PT23H"),
            ("PT0.5S", "PT0.5S", "PT1S"),
            ("P11M", "P1M", "P1Y"),
            ("P1Y13M", "P1M", "P2Y2M"),
            ("P1D", "-P1D", "P0D"),
            ("PT23H", "PT1H", "P1D"),
            ("PT36H", "PT0S", "P1DT12H"),
            ("PT90M", "PT0S", "PT1H30M"),
            ("PT3661.25S", "PT0S", "PT1H1M1.25S"),
            ("P1Y2M3DT4H5M6S", "P1Y2M3DT4H5M6S", "P2Y4M6DT8H10M12S"),
            ("P1YT1M", "P1D", "P1Y1DT1M"),
            ("PT1.S", "P1D", "P1DT1S"),
            ("PT.5S", "P1D", "P1DT0.5S"),
            ("-P0D", "P0Y", "P0D"),
            ("P9223372036854775807M", "P1M", ""),
            ("P9223372036854775807D", "P1D", ""),
            ("P768614336404564650Y", "P8M", ""),
        ] {
            let one = Duration::parse(one).expect(one);
            let other = Duration::parse(other).expect(other);
            assert_eq!(shown(one.plus(other)), want, "{one} {other}");
        }
    }

    #[test]
    fn what_is_no_duration() {
        for text in [
            "",
            "x",
            "P",
            "P1",
            "PT",
            "P1DT",
            "P1D1Y",
            "P1.5D",
            "PT1.5H",
            "PT.S",
            "P1W",
            "+P1D",
            "P-1D",
            " P1D",
            "P1D ",
            "PT1H1H",
            "P1S",
            "PT1D",
            "1D",
            "--P1D",
            "P1é",
            "PT1é",
            "PTS",
            "PD",
            "P99999999999999999999D",
            "P922337203685477580Y",
            "PT1.5.5S",
            "PT1M1",
            "P1T1H1S",
        ] {
            assert_eq!(Duration::parse(text), None, "{text}");
        }
    }

    #[test]
    fn durations_of_seconds() {
        for (seconds, want) in [
            (0.0, "P0D"),
            (1.0, "PT1S"),
            (60.0, "PT1M"),
            (3600.0, "PT1H"),
            (86400.0, "P1D"),
            (90061.5, "P1DT1H1M1.5S"),
            (-90061.5, "-P1DT1H1M1.5S"),
            (0.000_001, "PT0.000001S"),
            (59.999_999_999_9, "PT59.9999999999S"),
            (31_536_000.0, "P365D"),
            (12_345_678_901.0, "P142889DT19H15M1S"),
            (f64::NAN, ""),
            (f64::INFINITY, ""),
            (1e300, ""),
        ] {
            assert_eq!(shown(Duration::of_seconds(seconds)), want, "{seconds}");
        }
        let most = Duration::of_seconds(7.9e23).expect("it fits");
        assert!(most.plus(most).is_none());
    }
}
