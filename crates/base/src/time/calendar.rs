//! Moments taken apart by the calendar, and text of fixed width.

const WEEK: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
pub(super) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

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
    /// Takes apart seconds since 1970. Add [`super::zone_offset`] first for local time.
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

    /// `Sun` to `Sat`.
    pub(super) fn weekday_name(&self) -> &'static str {
        WEEK[usize::from(self.weekday) % 7]
    }

    /// `Jan` to `Dec`.
    pub fn month_name(&self) -> &'static str {
        MONTHS[usize::from(self.month - 1) % 12]
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

/// A moment in milliseconds since 1970, as `2026-11-20T09:53:24.123Z`.
pub fn format_utc_ms(unix_ms: u64) -> String {
    let t = Civil::from_unix((unix_ms / 1000) as i64);
    let Civil { year, month, day, hour, min, sec, .. } = t;
    let ms = unix_ms % 1000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{min:02}:{sec:02}.{ms:03}Z")
}

/// Writes fixed-width text into an array that is exactly long enough.
pub(super) struct Text<'a> {
    rest: &'a mut [u8],
}

impl<'a> Text<'a> {
    pub fn new(buf: &'a mut [u8]) -> Text<'a> {
        Text { rest: buf }
    }

    pub fn put(self, bytes: &[u8]) -> Text<'a> {
        let (here, rest) = self.rest.split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        Text { rest }
    }

    pub fn num(self, value: impl Into<u32>, digits: usize) -> Text<'a> {
        let mut value = value.into();
        let (here, rest) = self.rest.split_at_mut(digits);
        for byte in here.iter_mut().rev() {
            *byte = b'0' + (value % 10) as u8;
            value /= 10;
        }
        Text { rest }
    }

    pub(crate) fn hms(self, t: &Civil) -> Text<'a> {
        self.num(t.hour, 2).put(b":").num(t.min, 2).put(b":").num(t.sec, 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_facts() {
        let epoch = Civil::from_unix(0);
        assert_eq!((epoch.year, epoch.month, epoch.day, epoch.weekday), (1970, 1, 1, 4));
        let before = Civil::from_unix(-1);
        assert_eq!((before.year, before.month, before.day, before.hour), (1969, 12, 31, 23));
        let leap = Civil::from_unix(951_782_400);
        assert_eq!((leap.year, leap.month, leap.day, leap.yearday), (2000, 2, 29, 59));
        assert_eq!(leap.month_name(), "Feb");
        let far = Civil::from_unix(i64::from(i32::MAX));
        assert_eq!((far.year, far.month, far.day), (2038, 1, 19));
    }
}
