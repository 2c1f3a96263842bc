//! <https://exslt.org/date/>: dates, times and durations.
//!
//! A text that is no date gives NaN or the empty text, by function. The time of the clock is
//! that of the server's logs, in their zone.

use super::calendar::{Form, Moment, is_leap};
use super::duration::{Duration, HOUR, MINUTE, SECOND};
use super::function;
use crate::error::Result;
use crate::value::Value;
use crate::xpath::functions::nodes;
use crate::xpath::{Cx, Function};

const DATES: &str = "http://exslt.org/dates-and-times";

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// From Monday on.
const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

pub(super) static FUNCTIONS: &[Function] = &[
    function(DATES, "date-time", (0, 0), |_, _| text(Some(in_utc(Moment::now())))),
    of_date("date", |cx, args| text(moment(cx, args).and_then(date))),
    of_date("time", |cx, args| text(moment(cx, args).and_then(time))),
    of_date("year", |cx, args| number(cx, args, Moment::is_absolute, |m| year(&m))),
    of_date("leap-year", |cx, args| {
        let moment = moment(cx, args).filter(Moment::is_absolute);
        Ok(moment.map_or(Value::Number(f64::NAN), |m| Value::Bool(is_leap(m.year))))
    }),
    of_date("month-in-year", |cx, args| number(cx, args, Moment::has_month, |m| m.month)),
    of_date("month-name", |cx, args| text(moment(cx, args).and_then(month_name))),
    of_date("month-abbreviation", |cx, args| {
        text(moment(cx, args).and_then(month_name).map(|name| &name[..3]))
    }),
    of_date("week-in-year", |cx, args| number(cx, args, Moment::is_date, |m| m.week_in_year())),
    of_date("week-in-month", |cx, args| number(cx, args, Moment::is_date, |m| m.week_in_month())),
    of_date("day-in-year", |cx, args| number(cx, args, Moment::is_date, |m| m.day_in_year())),
    of_date("day-in-month", |cx, args| number(cx, args, Moment::has_day, |m| m.day)),
    of_date("day-of-week-in-month", |cx, args| {
        number(cx, args, Moment::is_date, |m| (m.day - 1) / 7 + 1)
    }),
    // Sunday is the first one.
    of_date("day-in-week", |cx, args| {
        number(cx, args, Moment::is_date, |m| (m.weekday() + 1) % 7 + 1)
    }),
    of_date("day-name", |cx, args| text(moment(cx, args).and_then(day_name))),
    of_date("day-abbreviation", |cx, args| {
        text(moment(cx, args).and_then(day_name).map(|name| &name[..3]))
    }),
    of_date("hour-in-day", |cx, args| {
        number(cx, args, Moment::has_time, |m| (m.time / HOUR) as i64)
    }),
    of_date("minute-in-hour", |cx, args| {
        number(cx, args, Moment::has_time, |m| (m.time % HOUR / MINUTE) as i64)
    }),
    of_date("second-in-minute", |cx, args| {
        let moment = moment(cx, args).filter(Moment::has_time);
        Ok(Value::Number(moment.map_or(f64::NAN, |m| in_seconds(m.time % MINUTE))))
    }),
    of_date("seconds", |cx, args| {
        let seconds = match args {
            [value] => seconds(&cx.text_of(value)),
            _ => Some(in_seconds(Moment::now().unix_picos())),
        };
        Ok(Value::Number(seconds.unwrap_or(f64::NAN)))
    }),
    of_date("duration", |cx, args| {
        text(Duration::of_seconds(match args {
            [value] => cx.number_of(value),
            _ => in_seconds(Moment::now().unix_picos()),
        }))
    }),
    function(DATES, "add", (2, 2), |cx, args| {
        text(add(&cx.text_of(&args[0]), &cx.text_of(&args[1])))
    }),
    function(DATES, "add-duration", (2, 2), |cx, args| {
        text(sum([cx.text_of(&args[0]), cx.text_of(&args[1])]))
    }),
    function(DATES, "difference", (2, 2), |cx, args| {
        text(difference(&cx.text_of(&args[0]), &cx.text_of(&args[1])))
    }),
    function(DATES, "sum", (1, 1), |cx, args| {
        let all = nodes(cx, &args[0])?;
        text(sum(all.iter().map(|n| cx.run.docs.value(*n))))
    }),
];

/// A function of a date, or of the time of the clock.
const fn of_date(name: &'static str, call: fn(&Cx, &[Value]) -> Result<Value>) -> Function {
    function(DATES, name, (0, 1), call)
}

/// The argument, or the time of the clock.
fn moment(cx: &Cx, args: &[Value]) -> Option<Moment> {
    match args {
        [value] => Moment::parse(&cx.text_of(value)),
        _ => Some(Moment::now()),
    }
}

fn text(value: Option<impl ToString>) -> Result<Value> {
    Ok(Value::text(&value.map_or(String::new(), |value| value.to_string())))
}

fn number(
    cx: &Cx,
    args: &[Value],
    has_it: fn(&Moment) -> bool,
    of: fn(Moment) -> i64,
) -> Result<Value> {
    let moment = moment(cx, args).filter(has_it);
    Ok(Value::Number(moment.map_or(f64::NAN, |m| of(m) as f64)))
}

/// With `Z` where no zone is said.
fn in_utc(moment: Moment) -> Moment {
    Moment { zone: moment.zone.or(Some(0)), ..moment }
}

fn date(moment: Moment) -> Option<Moment> {
    moment.is_date().then(|| moment.as_form(Form::Date))
}

fn time(moment: Moment) -> Option<Moment> {
    moment.has_time().then(|| moment.as_form(Form::Time))
}

/// The year as it is written.
fn year(moment: &Moment) -> i64 {
    if moment.year > 0 { moment.year } else { moment.year - 1 }
}

fn month_name(moment: Moment) -> Option<&'static str> {
    let name = MONTHS.get(moment.month as usize - 1).copied();
    name.filter(|_| moment.has_month())
}

fn day_name(moment: Moment) -> Option<&'static str> {
    let name = DAYS.get(moment.weekday() as usize).copied();
    name.filter(|_| moment.is_date())
}

/// Picoseconds as seconds.
fn in_seconds(picos: i128) -> f64 {
    // The parts by themselves: together they have more digits than a number.
    picos.div_euclid(SECOND) as f64 + picos.rem_euclid(SECOND) as f64 / SECOND as f64
}

/// The seconds from 1970 to a point in time, or those of a duration without months.
fn seconds(text: &str) -> Option<f64> {
    if let Some(moment) = Moment::parse(text) {
        return moment.is_absolute().then(|| in_seconds(moment.unix_picos()));
    }
    let duration = Duration::parse(text)?;
    (duration.months == 0).then(|| in_seconds(duration.picos))
}

fn add(moment: &str, duration: &str) -> Option<Moment> {
    let sum = Moment::parse(moment)?.plus(Duration::parse(duration)?)?;
    Some(if sum.form == Form::DateTime { in_utc(sum) } else { sum })
}

fn difference(from: &str, to: &str) -> Option<Duration> {
    Moment::parse(from)?.until(&Moment::parse(to)?)
}

/// The sum of durations; `None` where there is none.
fn sum(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Option<Duration> {
    let mut all = texts.into_iter().map(|text| Duration::parse(text.as_ref()));
    let first = all.next()??;
    all.try_fold(first, |sum, duration| sum.plus(duration?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: Option<impl ToString>) -> String {
        value.map_or(String::new(), |value| value.to_string())
    }

    #[test]
    fn parts_of_dates() {
        let parse = |text| Moment::parse(text).expect("a moment");
        assert_eq!(shown(date(parse("2001-10-29T10:31:07+01:00"))), "2001-10-29+01:00");
        assert_eq!(shown(date(parse("2001-10"))), "");
        assert_eq!(shown(date(parse("10:00:00"))), "");
        assert_eq!(shown(time(parse("2001-10-29T10:31:07.250Z"))), "10:31:07.25Z");
        assert_eq!(shown(time(parse("2001-10-29"))), "");
        assert_eq!(shown(Some(in_utc(parse("2001-10-29T10:31:07")))), "2001-10-29T10:31:07Z");
        assert_eq!((year(&parse("2001")), year(&parse("-0001"))), (2001, -1));
        for (text, month, day) in [
            ("2001-10-29", Some("October"), Some("Monday")),
            ("2001-09-30Z", Some("September"), Some("Sunday")),
            ("2001-05", Some("May"), None),
            ("--12--", Some("December"), None),
            ("2001", None, None),
            ("---29", None, None),
            ("10:00:00", None, None),
        ] {
            assert_eq!((month_name(parse(text)), day_name(parse(text))), (month, day), "{text}");
        }
        for (year, want) in [("2000", true), ("1900", false), ("-0001", true), ("-0004", false)] {
            assert_eq!(is_leap(parse(year).year), want, "{year}");
        }
    }

    #[test]
    fn seconds_of_texts() {
        for (text, want) in [
            ("1970-01-01T00:00:00Z", Some(0.0)),
            ("1970-01-02", Some(86400.0)),
            ("1970-01-02+01:00", Some(82800.0)),
            ("1970-02", Some(2_678_400.0)),
            ("1971", Some(31_536_000.0)),
            ("2001-10-29T10:31:07.25-05:00", Some(1_004_369_467.25)),
            ("1969-12-31T23:59:59.5Z", Some(-0.5)),
            ("0001-01-01", Some(-62_135_596_800.0)),
            ("-0001-01-01", Some(-62_167_219_200.0)),
            ("999999999-01-01", Some(31_556_889_801_244_800.0)),
            ("PT1H", Some(3600.0)),
            ("P1DT2.5S", Some(86402.5)),
            ("-P1DT1H", Some(-90000.0)),
            ("P0Y1D", Some(86400.0)),
            ("P1M", None),
            ("10:00:00", None),
            ("--10-29", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), want, "{text}");
        }
    }

    #[test]
    fn sums_of_dates_and_durations() {
        for (moment, duration, want) in [
            ("2001-10-29", "P1D", "2001-10-30"),
            ("2001-01-31", "P1M", "2001-02-28"),
            ("2000-01-31", "P1M", "2000-02-29"),
            ("2000-03-31", "-P1M", "2000-02-29"),
            ("2000-02-29", "P1Y", "2001-02-28"),
            ("2001-01-31", "P1M1D", "2001-03-01"),
            ("2001-10-29T10:31:07", "PT1H", "2001-10-29T11:31:07Z"),
            ("2001-10-29T10:31:07+02:00", "PT24H", "2001-10-30T10:31:07+02:00"),
            ("2001-10-29T10:31:07+02:00", "P1Y2M3DT4H5M6.7S", "2003-01-01T14:36:13.7+02:00"),
            ("2001-10-29T10:31:07+02:00", "-P1Y2M3DT4H5M6.7S", "2000-08-26T06:26:00.3+02:00"),
            ("2001-10-29", "PT1H", "2001-10-29T01:00:00Z"),
            ("2001-10-29+02:00", "PT1H", "2001-10-29T01:00:00+02:00"),
            ("2001-10-29", "-PT1S", "2001-10-28T23:59:59Z"),
            ("2001-10-29", "PT24H", "2001-10-30"),
            ("2001-10-29T23:59:59.5", "PT0.5S", "2001-10-30T00:00:00Z"),
            ("2001-10-29+00:00", "P1D", "2001-10-30"),
            ("2001-10-29Z", "P1D", "2001-10-30Z"),
            ("2001-10", "P1D", "2001-10-02"),
            ("2001-10", "P1M", "2001-11"),
            ("2001-10", "P31D", "2001-11"),
            ("2001-10", "P40D", "2001-11-10"),
            ("2001", "P1Y", "2002"),
            ("2001", "P365D", "2002"),
            ("2001", "P1D", "2001-01-02"),
            ("2001", "-P1M", "2000-12"),
            ("2001", "PT1H", "2001-01-01T01:00:00Z"),
            ("2001+02:00", "P1M", "2001-02+02:00"),
            ("0001-01-01", "-P1D", "-0001-12-31"),
            ("-0001-12-31", "P1D", "0001-01-01"),
            ("0003", "-P5Y", "-0003"),
            ("9999-12-31", "P1D", "10000-01-01"),
            ("2001-10-29", "P99999999999D", "273792702-07-11"),
            ("2001-10-29", "P9999999999999999D", "27379070071886-11-25"),
            ("2001-10-29", "P9223372036854775807D", ""),
            ("2001-10-29", "-P768614336404564650Y", ""),
            ("1000000000000000-12-31", "P1D", ""),
            ("10:00:00", "PT1H", ""),
            ("--10-29", "P1D", ""),
            ("x", "P1D", ""),
            ("2001-10-29", "x", ""),
        ] {
            assert_eq!(shown(add(moment, duration)), want, "{moment} {duration}");
        }
    }

    #[test]
    fn differences() {
        for (from, to, want) in [
            ("2001-10-29", "2001-10-30", "P1D"),
            ("2001-10-30", "2001-10-29", "-P1D"),
            ("2001-10-29", "2001-10-29", "P0D"),
            ("2001-10-29", "2002-10-29", "P365D"),
            ("2001-10-29T10:00:00", "2001-10-30T09:00:00", "PT23H"),
            ("2001-10-29T10:00:00", "2001-10-29T10:00:00+02:00", "-PT2H"),
            ("2001-10-29T10:00:00", "2001-10-30", "P1D"),
            ("2001-10-29T23:00:00-05:00", "2001-10-30", "PT19H"),
            ("2001-10-29-05:00", "2001-10-31T10:00:00Z", "P1DT19H"),
            ("2001-10-29+02:00", "2001-10-29-02:00", "PT4H"),
            ("2001-10", "2001-10-30", "P0D"),
            ("2001-10", "2002-12", "P1Y2M"),
            ("2002-12", "2001-10", "-P1Y2M"),
            ("2001-12-31T23:00:00-05:00", "2002-01", "P1M"),
            ("2001", "2005-03-04T10:00:00", "P4Y"),
            ("2001-10-29T10:00:00.75", "2001-10-29T09:00:01", "-PT59M59.75S"),
            ("0001-01-01", "9999-12-31", "P3652058D"),
            ("-0001-01-01", "0001-01-01", "P366D"),
            ("-0001-05", "0001-06", "P1Y1M"),
            ("999999999999-01-01", "-999999999999-01-01", "-P730484999998904D"),
            ("10:00:00", "11:00:00", ""),
            ("--10-29", "2001", ""),
            ("P1D", "2001", ""),
        ] {
            assert_eq!(shown(difference(from, to)), want, "{from} {to}");
        }
    }

    #[test]
    fn sums_of_durations() {
        for (texts, want) in [
            (&["P1D", "PT5H"][..], "P1DT5H"),
            (&["P1D"], "P1D"),
            (&[], ""),
            (&["x"], ""),
            (&["P1D", "x"], ""),
            (&["P1M", "-P1D", "P1D"], ""),
        ] {
            assert_eq!(shown(sum(texts)), want, "{texts:?}");
        }
    }
}
