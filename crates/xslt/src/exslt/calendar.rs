//! Points in time, and what recurs (XML Schema, part 2, sections 3.2.7 to 3.2.14): the calendar is
//! the Gregorian one in all years.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use super::duration::{DAY, Duration, HOUR, MINUTE, SECOND, write_fraction};

/// The lexical forms. The first four are each part of the one behind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Form {
    /// `2001`
    Year,
    /// `2001-10`
    YearMonth,
    /// `2001-10-29`
    Date,
    /// `2001-10-29T10:31:07`
    DateTime,
    /// `10:31:07`
    Time,
    /// `--10--`, and `--10` of the second edition
    Month,
    /// `--10-29`
    MonthDay,
    /// `---29`
    Day,
}

/// Years go from the negative to the positive of it: days and picoseconds of all that is between
/// stay far below the ends of 64 and 128 bits.
pub(super) const YEAR_MAX: i64 = 1_000_000_000_000_000;

/// The days from 0001-01-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_162;

/// A point in time, or what recurs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    pub(super) form: Form,
    /// The year, where -1 is written 0: there is no year 0.
    pub(super) year: i64,
    /// From 1 on, as the day is; 1 where the form has none.
    pub(super) month: i64,
    pub(super) day: i64,
    /// Since midnight, in picoseconds; 0 where the form has no time.
    pub(super) time: i128,
    /// The minutes that its time is ahead of UTC. None where it says nothing, which is taken as
    /// UTC, and where it says `+00:00`: libexslt makes no difference.
    pub(super) zone: Option<i64>,
}

pub(super) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(super) fn month_length(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap(year)),
        _ => 31,
    }
}

/// The days from 0001-01-01 to the first one of a year.
fn days_before(year: i64) -> i64 {
    let past = year - 1;
    365 * past + past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400)
}

/// Year, month and day of the days since 0001-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    // 400 years have 146,097 days; the estimate is off by one at most.
    let mut year = (i128::from(days) * 400).div_euclid(146_097) as i64 + 1;
    while days < days_before(year) {
        year -= 1;
    }
    while days >= days_before(year + 1) {
        year += 1;
    }
    let mut day = days - days_before(year);
    let mut month = 1;
    while day >= month_length(year, month) {
        day -= month_length(year, month);
        month += 1;
    }
    (year, month, day + 1)
}

impl Moment {
    /// The time of the clock, in the zone of the server's logs.
    pub(super) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let offset = base::time::zone_offset(i64::try_from(since).unwrap_or_default());
        let local = Moment::of_unix_time(since.saturating_add_signed(offset.into()));
        Moment { zone: Some(offset / 60).filter(|minutes| *minutes != 0).map(Into::into), ..local }
    }

    /// The moment so many seconds after 1970.
    fn of_unix_time(seconds: u64) -> Self {
        let days = (seconds / 86_400).min(YEAR_MAX as u64) as i64;
        let (year, month, day) = date_of(days + EPOCH_DAYS);
        let time = i128::from(seconds % 86_400) * SECOND;
        Moment { form: Form::DateTime, year, month, day, time, zone: None }
    }

    /// Whether it is a point in time.
    pub(super) fn is_absolute(&self) -> bool {
        self.form <= Form::DateTime
    }

    /// Whether it has year, month and day.
    pub(super) fn is_date(&self) -> bool {
        matches!(self.form, Form::Date | Form::DateTime)
    }

    pub(super) fn has_month(&self) -> bool {
        use Form::{Date, DateTime, Month, MonthDay, YearMonth};
        matches!(self.form, YearMonth | Date | DateTime | Month | MonthDay)
    }

    pub(super) fn has_day(&self) -> bool {
        matches!(self.form, Form::Date | Form::DateTime | Form::MonthDay | Form::Day)
    }

    pub(super) fn has_time(&self) -> bool {
        matches!(self.form, Form::DateTime | Form::Time)
    }

    /// The days since 0001-01-01.
    fn days(&self) -> i64 {
        let months = (1..self.month).map(|month| month_length(self.year, month));
        days_before(self.year) + months.sum::<i64>() + self.day - 1
    }

    /// The days since the last Monday.
    pub(super) fn weekday(&self) -> i64 {
        // 0001-01-01 is one.
        self.days().rem_euclid(7)
    }

    /// The day in its year, from 1 on.
    pub(super) fn day_in_year(&self) -> i64 {
        self.days() - days_before(self.year) + 1
    }

    /// The week in its year, from Monday on; the first one has a Thursday (ISO 8601).
    pub(super) fn week_in_year(&self) -> i64 {
        let thursday = self.days() - self.weekday() + 3;
        let (year, ..) = date_of(thursday);
        (thursday - days_before(year)) / 7 + 1
    }

    /// The week in its month, from Monday on; the first one is that of the first day.
    pub(super) fn week_in_month(&self) -> i64 {
        let first = (self.weekday() - (self.day - 1)).rem_euclid(7);
        (self.day - 1 + first) / 7 + 1
    }

    /// In UTC, the picoseconds since 0001-01-01.
    fn picos(&self) -> i128 {
        let ahead = i128::from(self.zone.unwrap_or_default()) * MINUTE;
        i128::from(self.days()) * DAY + self.time - ahead
    }

    /// In UTC, the picoseconds since 1970.
    pub(super) fn unix_picos(&self) -> i128 {
        self.picos() - i128::from(EPOCH_DAYS) * DAY
    }

    /// A point in time and a duration behind it; the form grows with what is needed to write it.
    /// `None` for what is no point in time, and for years too far.
    pub(super) fn plus(&self, duration: Duration) -> Option<Self> {
        if !self.is_absolute() {
            return None;
        }
        let months = (self.year * 12 + self.month - 1).checked_add(duration.months)?;
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        if year.abs() > YEAR_MAX {
            return None;
        }
        let day = self.day.min(month_length(year, month));
        let moved = Moment { year, month, day, ..*self };
        let picos = i128::from(moved.days()) * DAY + self.time + duration.picos;
        let days = i64::try_from(picos.div_euclid(DAY)).ok()?;
        if days.unsigned_abs() > days_before(YEAR_MAX).unsigned_abs() {
            return None;
        }
        let (year, month, day) = date_of(days);
        let time = picos.rem_euclid(DAY);
        let needed = match () {
            () if time != 0 => Form::DateTime,
            () if day != 1 => Form::Date,
            () if month != 1 => Form::YearMonth,
            () => Form::Year,
        };
        Some(Moment { form: self.form.max(needed), year, month, day, time, zone: self.zone })
    }

    /// The duration to another point in time; both are cut off to the form of the shorter one.
    pub(super) fn until(&self, other: &Self) -> Option<Duration> {
        if !self.is_absolute() || !other.is_absolute() {
            return None;
        }
        match self.form.min(other.form) {
            Form::Year => Duration::new(12 * (other.year - self.year), 0),
            Form::YearMonth => {
                let years = 12 * (other.year - self.year);
                Duration::new(years + other.month - self.month, 0)
            }
            Form::Date => {
                let midnight = |of: &Self| Moment { time: 0, ..*of }.picos();
                Duration::new(0, midnight(other) - midnight(self))
            }
            _ => Duration::new(0, other.picos() - self.picos()),
        }
    }

    /// In another form.
    pub(super) fn as_form(&self, form: Form) -> Self {
        Moment { form, ..*self }
    }

    fn write_year(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.year {
            ..=0 => write!(f, "-{:04}", 1 - self.year),
            year => write!(f, "{year:04}"),
        }
    }

    fn write_time(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (hour, minute) = (self.time / HOUR, self.time % HOUR / MINUTE);
        write!(f, "{hour:02}:{minute:02}:{:02}", self.time % MINUTE / SECOND)?;
        write_fraction(f, self.time % SECOND)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.form {
            Form::Time => self.write_time(f)?,
            Form::Month => write!(f, "--{:02}--", self.month)?,
            Form::MonthDay => write!(f, "--{:02}-{:02}", self.month, self.day)?,
            Form::Day => write!(f, "---{:02}", self.day)?,
            _ => self.write_year(f)?,
        }
        if self.is_absolute() && self.form >= Form::YearMonth {
            write!(f, "-{:02}", self.month)?;
        }
        if self.is_date() {
            write!(f, "-{:02}", self.day)?;
        }
        if self.form == Form::DateTime {
            f.write_str("T")?;
            self.write_time(f)?;
        }
        match self.zone {
            None => Ok(()),
            Some(0) => f.write_str("Z"),
            Some(ahead) => {
                let (sign, ahead) = (if ahead < 0 { '-' } else { '+' }, ahead.abs());
                write!(f, "{sign}{:02}:{:02}", ahead / 60, ahead % 60)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_there_and_back() {
        for (days, want) in [
            (0, (1, 1, 1)),
            (-1, (0, 12, 31)),
            (-366, (0, 1, 1)),
            (EPOCH_DAYS, (1970, 1, 1)),
            (EPOCH_DAYS + 11_016, (2000, 2, 29)),
            (146_096, (400, 12, 31)),
            (146_097, (401, 1, 1)),
            (-146_098, (-400, 12, 31)),
        ] {
            assert_eq!(date_of(days), want, "{days}");
        }
        let far = days_before(YEAR_MAX);
        let around = |days: i64| days - 800..days + 800;
        for days in around(0).chain(around(far)).chain(around(-far)).chain(around(730_000)) {
            let (year, month, day) = date_of(days);
            let moment = Moment { form: Form::Date, year, month, day, time: 0, zone: None };
            assert_eq!(moment.days(), days);
        }
    }

    #[test]
    fn weeks() {
        // The date; the week in the year and in the month, the day in the year, the days since
        // Monday.
        for (date, in_year, in_month, day_in_year, weekday) in [
            ("2001-10-29", 44, 5, 302, 0),
            ("2001-10-28", 43, 4, 301, 6),
            ("2001-01-01", 1, 1, 1, 0),
            ("2000-01-01", 52, 1, 1, 5),
            ("2000-01-02", 52, 1, 2, 6),
            ("2000-01-03", 1, 2, 3, 0),
            ("2004-12-31", 53, 5, 366, 4),
            ("2005-01-01", 53, 1, 1, 5),
            ("2008-12-29", 1, 5, 364, 0),
            ("2009-12-31", 53, 5, 365, 3),
            ("2010-01-03", 53, 1, 3, 6),
            ("2010-01-04", 1, 2, 4, 0),
            ("2001-09-01", 35, 1, 244, 5),
            ("2001-09-02", 35, 1, 245, 6),
            ("2001-09-03", 36, 2, 246, 0),
            ("2001-09-30", 39, 5, 273, 6),
            ("0001-01-01", 1, 1, 1, 0),
            ("-0001-01-01", 52, 1, 1, 5),
            ("-0001-10-29", 43, 5, 303, 6),
            ("-0005-12-31", 1, 6, 366, 1),
            ("12001-01-01", 1, 1, 1, 0),
        ] {
            let moment = Moment::parse(date).expect(date);
            let got = (
                moment.week_in_year(),
                moment.week_in_month(),
                moment.day_in_year(),
                moment.weekday(),
            );
            assert_eq!(got, (in_year, in_month, day_in_year, weekday), "{date}");
        }
    }

    #[test]
    fn seconds_of_the_clock() {
        let now = Moment::of_unix_time(1_004_351_467);
        assert_eq!(now.to_string(), "2001-10-29T10:31:07");
        assert_eq!(now.unix_picos(), 1_004_351_467 * SECOND);
        assert!(Moment::of_unix_time(u64::MAX).is_date());
        assert!(Moment::now().year >= 2024);
    }
}
