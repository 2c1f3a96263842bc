//! Reads the lexical forms of dates and times (XML Schema, part 2, sections 3.2.7 to 3.2.14).

use super::calendar::{Form, Moment, YEAR_MAX, month_length};
use super::duration::{SECOND, picos_of};

impl Moment {
    /// Reads any of the lexical forms, without white space around.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut scan = Scan(text.as_bytes());
        let mut moment = Moment { form: Form::Day, year: 1, month: 1, day: 1, time: 0, zone: None };
        if scan.takes(b"---") {
            moment.day = scan.number(1, 31)?;
        } else if scan.takes(b"--") {
            moment.month = scan.number(1, 12)?;
            moment.form = Form::Month;
            if !scan.takes(b"--") && scan.0.first() == Some(&b'-') && !scan.is_zone() {
                scan.takes(b"-");
                moment.form = Form::MonthDay;
                moment.day = scan.number(1, 31)?;
            }
        } else if scan.0.get(2) == Some(&b':') {
            moment.form = Form::Time;
            moment.time = scan.time()?;
        } else {
            scan.date(&mut moment)?;
        }
        moment.zone = scan.zone()?;
        scan.0.is_empty().then_some(moment)
    }
}

/// What is left of a text.
struct Scan<'t>(&'t [u8]);

impl Scan<'_> {
    fn takes(&mut self, prefix: &[u8]) -> bool {
        let rest = self.0.strip_prefix(prefix);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// As many digits as there are.
    fn digits(&mut self) -> &[u8] {
        let length = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(length);
        self.0 = rest;
        digits
    }

    /// A number of two digits.
    fn number(&mut self, least: i64, most: i64) -> Option<i64> {
        let [tens @ b'0'..=b'9', ones @ b'0'..=b'9', rest @ ..] = self.0 else { return None };
        self.0 = rest;
        let number = i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
        (least..=most).contains(&number).then_some(number)
    }

    fn expect(&mut self, prefix: &[u8]) -> Option<()> {
        self.takes(prefix).then_some(())
    }

    fn year(&mut self) -> Option<i64> {
        let is_negative = self.takes(b"-");
        let digits = self.digits();
        if digits.len() < 4 || (digits.len() > 4 && digits[0] == b'0') {
            return None;
        }
        let year: i64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        (1..=YEAR_MAX).contains(&year).then_some(if is_negative { 1 - year } else { year })
    }

    /// Year, month, day and time: as many as there are.
    fn date(&mut self, moment: &mut Moment) -> Option<()> {
        moment.year = self.year()?;
        moment.form = Form::Year;
        if self.is_zone() || !self.takes(b"-") {
            return Some(());
        }
        moment.month = self.number(1, 12)?;
        moment.form = Form::YearMonth;
        if self.is_zone() || !self.takes(b"-") {
            return Some(());
        }
        moment.day = self.number(1, month_length(moment.year, moment.month))?;
        moment.form = Form::Date;
        if self.takes(b"T") {
            moment.form = Form::DateTime;
            moment.time = self.time()?;
        }
        Some(())
    }

    /// The time of a day: before 24:00:00, and there are no leap seconds.
    fn time(&mut self) -> Option<i128> {
        let hour = self.number(0, 23)?;
        self.expect(b":")?;
        let minute = self.number(0, 59)?;
        self.expect(b":")?;
        let second = self.number(0, 59)?;
        let mut picos = 0;
        if self.takes(b".") {
            let digits = self.digits();
            if digits.is_empty() {
                return None;
            }
            picos = picos_of(digits)?;
        }
        Some(i128::from((hour * 60 + minute) * 60 + second) * SECOND + picos)
    }

    /// Whether a zone is all that is left.
    fn is_zone(&self) -> bool {
        matches!(self.0, [b'-' | b'+', _, _, b':', _, _])
    }

    fn zone(&mut self) -> Option<Option<i64>> {
        if self.takes(b"Z") {
            return Some(Some(0));
        }
        let sign = match self.0.first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Some(None),
        };
        self.0 = &self.0[1..];
        let hours = self.number(0, 23)?;
        self.expect(b":")?;
        let ahead = sign * (hours * 60 + self.number(0, 59)?);
        Some((ahead != 0).then_some(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lexical_forms() {
        use Form::*;
        for (text, form) in [
            ("2001", Year),
            ("-0001", Year),
            ("2001Z", Year),
            ("2001+01:00", Year),
            ("2001-05:00", Year),
            ("2001-10", YearMonth),
            ("2001-10-05:30", YearMonth),
            ("2001-10-29", Date),
            ("2000-02-29", Date),
            ("12001-10-29", Date),
            ("-12345-01-01", Date),
            ("2001-10-29Z", Date),
            ("2001-10-29+23:59", Date),
            ("2001-10-29-05:30", Date),
            ("2001-10-29T10:31:07", DateTime),
            ("2001-10-29T10:31:07.25-00:30", DateTime),
            ("10:31:07", Time),
            ("10:31:59.9999999999", Time),
            ("10:31:07.05Z", Time),
            ("--10--", Month),
            ("--10--Z", Month),
            ("--10-29", MonthDay),
            ("--10-29-05:00", MonthDay),
            ("---29", Day),
            ("---29+01:00", Day),
        ] {
            let moment = Moment::parse(text).expect(text);
            assert_eq!((moment.to_string(), moment.form), (text.to_owned(), form));
        }
        // Others are written in the way above.
        for (text, want) in [
            ("10:31:07.500", "10:31:07.5"),
            ("10:31:07.000Z", "10:31:07Z"),
            ("2001-10-29+00:00", "2001-10-29"),
            ("2001-10-29-00:00", "2001-10-29"),
            ("10:31:07.1234567890129", "10:31:07.123456789012"),
            ("--10", "--10--"),
            ("--10-05:00", "--10---05:00"),
        ] {
            assert_eq!(Moment::parse(text).expect(text).to_string(), want);
        }
    }

    #[test]
    fn what_is_no_moment() {
        for text in [
            "",
            "x",
            "0000",
            "1",
            "001-10-29",
            "02001",
            "+2001",
            "-0000",
            "2001-",
            "2001-13",
            "2001-1-1",
            "2001-02-29",
            "1900-02-29",
            "2001-10-2é",
            "2001-10-00",
            "2001-10-29x",
            "2001-10-29 ",
            " 2001-10-29",
            "2001-10-29+24:00",
            "2001-10-29+01:60",
            "2001-10-29+1:00",
            "2001-10-29+",
            "2001-10-29T",
            "2001-10-29 10:31:00",
            "2001-10-29T10:31",
            "2001-10-29T10:31:7",
            "2001-10-29T24:00:00",
            "2001-10-29T23:59:60",
            "10:31",
            "10:60:00",
            "10:31:07.",
            "10:31:07.x",
            "--13--",
            "--10-32",
            "---32",
            "---1",
            "----",
            "--",
            "---",
            "é0:00:00",
            "99999999999999999999-01-01",
            "9223372036854775807",
            "P1D",
        ] {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }
}
