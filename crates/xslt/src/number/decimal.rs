//! `format-number()` (XSLT, section 12.3).

use super::grouped;
use crate::error::{Error, Result};

/// The greatest number of characters of a pattern of `format-number()`.
const PATTERN_CHARS_MAX: usize = 1000;

/// What `xsl:decimal-format` says (XSLT, section 12.3).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DecimalFormat {
    pub(crate) decimal_separator: char,
    pub(crate) grouping_separator: char,
    pub(crate) infinity: String,
    pub(crate) minus_sign: char,
    /// `NaN`
    pub(crate) nan: String,
    pub(crate) percent: char,
    pub(crate) per_mille: char,
    /// `zero-digit`: the nine others follow it.
    pub(crate) zero_digit: char,
    pub(crate) digit: char,
    pub(crate) pattern_separator: char,
}

impl Default for DecimalFormat {
    fn default() -> Self {
        DecimalFormat {
            decimal_separator: '.',
            grouping_separator: ',',
            infinity: "Infinity".to_owned(),
            minus_sign: '-',
            nan: "NaN".to_owned(),
            percent: '%',
            per_mille: '\u{2030}',
            zero_digit: '0',
            digit: '#',
            pattern_separator: ';',
        }
    }
}

/// A pattern of `format-number()`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Pattern {
    prefix: String,
    suffix: String,
    /// Prefix and suffix of negative numbers, where the pattern has any.
    negative: Option<(String, String)>,
    /// The least number of digits before the decimal separator.
    whole_min: usize,
    /// The least and the greatest number of digits behind it.
    fraction_min: usize,
    fraction_max: usize,
    /// The number of digits of a group; 0 where there are none.
    group: usize,
    /// Whether the separator is written although no digit is behind it.
    has_point: bool,
    factor: u32,
}

impl Default for Pattern {
    /// What libxslt takes in place of a pattern that it cannot read.
    fn default() -> Self {
        Pattern {
            prefix: String::new(),
            suffix: String::new(),
            negative: None,
            whole_min: 1,
            fraction_min: 1,
            fraction_max: 5,
            group: 0,
            has_point: false,
            factor: 1,
        }
    }
}

/// Reads a pattern.
struct Reader<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    format: &'a DecimalFormat,
    /// 100 for a percent sign, 1000 for per mille: of one of the two patterns.
    factor: Option<u32>,
}

impl Reader<'_> {
    /// The pattern for negative numbers or for the others; `None` for one that is none.
    fn pattern(mut self, is_negative: bool) -> Option<Pattern> {
        let mut pattern = Pattern { prefix: self.affix()?, ..Pattern::default() };
        self.number(&mut pattern);
        pattern.suffix = self.affix()?;
        pattern.factor = self.factor.take().unwrap_or(1);
        if self.chars.next_if_eq(&self.format.pattern_separator).is_some() {
            if !is_negative {
                return Some(pattern);
            }
            // Of the second pattern, what is around the number counts.
            let prefix = self.affix()?;
            self.number(&mut Pattern::default());
            pattern.negative = Some((prefix, self.affix()?));
            pattern.factor = self.factor.unwrap_or(pattern.factor);
        }
        self.chars.next().is_none().then_some(pattern)
    }

    /// What comes before or behind the digits. An apostrophe takes a special character as it is.
    fn affix(&mut self) -> Option<String> {
        let format = self.format;
        let special = [
            format.digit,
            format.zero_digit,
            format.decimal_separator,
            format.grouping_separator,
            format.pattern_separator,
        ];
        let mut affix = String::new();
        while let Some(c) = self.chars.next_if(|c| !special.contains(c)) {
            if c == '\'' {
                affix.push(self.chars.next()?);
                continue;
            }
            self.sign(c)?;
            affix.push(c);
        }
        Some(affix)
    }

    /// Takes the factor of a percent sign; `None` for a second one.
    fn sign(&mut self, c: char) -> Option<()> {
        let factor = match c {
            c if c == self.format.percent => 100,
            c if c == self.format.per_mille => 1000,
            _ => return Some(()),
        };
        self.factor.replace(factor).is_none().then_some(())
    }

    /// The digits: those that may be left out are on the outer sides.
    fn number(&mut self, pattern: &mut Pattern) {
        let format = self.format;
        let (mut whole, mut optional, mut group) = (0, 0, None);
        while let Some(c) = self.chars.peek().copied() {
            if c == format.grouping_separator {
                group = Some(0);
            } else if c == format.zero_digit {
                whole += 1;
                group = group.map(|digits| digits + 1);
            } else if c == format.digit && whole == 0 {
                optional += 1;
                group = group.map(|digits| digits + 1);
            } else {
                break;
            }
            self.chars.next();
        }
        let has_point = self.chars.next_if_eq(&format.decimal_separator).is_some();
        let (mut least, mut most) = (0, 0);
        while has_point && let Some(c) = self.chars.peek().copied() {
            if c == format.zero_digit && most == least {
                least += 1;
                most += 1;
            } else if c == format.digit {
                most += 1;
            } else if c != format.grouping_separator {
                break;
            }
            self.chars.next();
        }
        pattern.has_point = has_point && most == 0;
        if whole == 0 && least == 0 {
            // There is a digit at least, on one of the sides.
            if optional == 0 && most > 0 {
                least = 1;
            } else {
                whole = 1;
            }
        }
        (pattern.whole_min, pattern.fraction_min, pattern.fraction_max) = (whole, least, most);
        pattern.group = group.unwrap_or(0);
    }
}

/// `format-number()`: a number in a pattern as JDK 1.1's `DecimalFormat` has them. Halves are
/// rounded away from 0. A pattern that cannot be read counts as `0.0####`, as in libxslt. An error:
/// a pattern of unusual length.
pub(crate) fn format_number(number: f64, pattern: &str, format: &DecimalFormat) -> Result<String> {
    if pattern.chars().nth(PATTERN_CHARS_MAX).is_some() {
        return Err(Error::new("the pattern of format-number() is too long"));
    }
    let is_negative = number < 0.0;
    let minus = if is_negative { format.minus_sign.to_string() } else { String::new() };
    if number.is_nan() {
        return Ok(format.nan.clone());
    }
    if number.is_infinite() {
        return Ok(minus + &format.infinity);
    }
    let reader = Reader { chars: pattern.chars().peekable(), format, factor: None };
    let pattern = reader.pattern(is_negative).unwrap_or_default();
    let value = number.abs() * f64::from(pattern.factor);
    if value.is_infinite() {
        return Ok(minus + &format.infinity);
    }
    let digits = digits(value, &pattern, format);
    Ok(match &pattern.negative {
        Some((prefix, suffix)) => format!("{prefix}{digits}{suffix}"),
        None => format!("{minus}{}{digits}{}", pattern.prefix, pattern.suffix),
    })
}

/// The digits of a number that is not negative, with separators.
fn digits(value: f64, pattern: &Pattern, format: &DecimalFormat) -> String {
    let (whole, fraction) = rounded(value, pattern.fraction_max);
    let mut fraction = fraction.as_str();
    while fraction.len() > pattern.fraction_min && fraction.ends_with('0') {
        fraction = &fraction[..fraction.len() - 1];
    }
    let whole = format!("{:0>1$}", whole.trim_start_matches('0'), pattern.whole_min);
    let separator = Some(format.grouping_separator);
    let mut out = grouped(&whole, separator, pattern.group, format.zero_digit);
    if !fraction.is_empty() || pattern.has_point {
        out.push(format.decimal_separator);
    }
    out.push_str(&grouped(fraction, None, 0, format.zero_digit));
    out
}

/// The digits of a number that is not negative, before the point and behind it; of the latter as
/// many as are asked for.
fn rounded(value: f64, places: usize) -> (String, String) {
    // The largest number up to which a double has all integers: rounding is that of the number as
    // it is multiplied, which is what libxslt does.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let scaled = i32::try_from(places).map_or(f64::INFINITY, |places| value * 10f64.powi(places));
    let text = if scaled < EXACT_MAX {
        let digits = format!("{:01$}", (scaled + 0.5).floor(), places + 1);
        let (whole, fraction) = digits.split_at(digits.len() - places);
        return (whole.to_owned(), fraction.to_owned());
    } else {
        // The shortest decimal that is this number, where that is not too long.
        let short = format!("{value}");
        let has = short.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        if has <= places { short } else { format!("{value:.places$}") }
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    (whole.to_owned(), format!("{fraction:0<places$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_patterns() {
        let format = DecimalFormat::default();
        for (pattern, of) in [
            ("0", ["0", "-1235", "1", "12", "-0"]),
            ("", ["0", "-1235", "1", "12", "-0"]),
            ("#", ["0", "-1235", "1", "12", "-0"]),
            ("#,##0.00", ["0.00", "-1,234.57", "0.50", "12.00", "-0.00"]),
            ("#.00", [".00", "-1234.57", ".50", "12.00", "-.00"]),
            ("#.##", ["0", "-1234.57", "0.5", "12", "-0"]),
            (".##", [".0", "-1234.57", ".5", "12.0", "-.0"]),
            ("0.00##", ["0.00", "-1234.567", "0.50", "12.00", "-0.001"]),
            ("#.", ["0.", "-1235.", "1.", "12.", "-0."]),
            (".", ["0.", "-1235.", "1.", "12.", "-0."]),
            ("000,000.0", ["000,000.0", "-001,234.6", "000,000.5", "000,012.0", "-000,000.0"]),
            ("#,##,##0", ["0", "-1,235", "1", "12", "-0"]),
            ("#,0", ["0", "-1,2,3,5", "1", "1,2", "-0"]),
            ("0,", ["0", "-1235", "1", "12", "-0"]),
            ("0.0,0", ["0.00", "-1234.57", "0.50", "12.00", "-0.00"]),
            ("0%", ["0%", "-123457%", "50%", "1200%", "-0%"]),
            ("a%0", ["a%0", "-a%123457", "a%50", "a%1200", "-a%0"]),
            ("#‰", ["0‰", "-1234567‰", "500‰", "12000‰", "-1‰"]),
            ("0;(0)", ["0", "(1235)", "1", "12", "(0)"]),
            ("0.00;0", ["0.00", "1234.57", "0.50", "12.00", "0.00"]),
            ("a;b", ["a0", "b1235", "a1", "a12", "b0"]),
            ("0%;(0)%", ["0%", "(123457)%", "50%", "1200%", "(0)%"]),
            ("0;(0%)", ["0", "(123457%)", "1", "12", "(0%)"]),
            ("0‰;x", ["0‰", "x1234567", "500‰", "12000‰", "x1"]),
            ("0;#a#", ["0", "-1234.567", "1", "12", "-0.001"]),
            ("-0", ["-0", "--1235", "-1", "-12", "--0"]),
            ("¤0 m", ["¤0 m", "-¤1235 m", "¤1 m", "¤12 m", "-¤0 m"]),
            ("'#0", ["#0", "-#1235", "#1", "#12", "-#0"]),
            // Not to be read: 0.0####.
            ("00#", ["0.0", "-1234.567", "0.5", "12.0", "-0.001"]),
            ("0.#0", ["0.0", "-1234.567", "0.5", "12.0", "-0.001"]),
            ("0 0", ["0.0", "-1234.567", "0.5", "12.0", "-0.001"]),
            ("0.0.0", ["0.0", "-1234.567", "0.5", "12.0", "-0.001"]),
            ("0%%", ["0.0", "-1234.567", "0.5", "12.0", "-0.001"]),
            ("0'", ["0.0", "-1234.567", "0.5", "12.0", "-0.001"]),
        ] {
            for (number, want) in [0.0, -1234.567, 0.5, 12.0, -0.001].into_iter().zip(of) {
                let got = format_number(number, pattern, &format).unwrap();
                assert_eq!(got, want, "{number} {pattern}");
            }
        }
    }

    #[test]
    fn rounds() {
        let format = DecimalFormat::default();
        for (number, pattern, want) in [
            (1.005, "0.00", "1.00"),
            (1.115, "0.00", "1.12"),
            (999.995, "#,##0.00", "1,000.00"),
            (2.5, "0", "3"),
            (1.5e21, "#,##0", "1,500,000,000,000,000,000,000"),
            (0.1, "0.####################", "0.1"),
            (0.1, "0.000000000000000", "0.100000000000000"),
            (1e-300, "0.###", "0"),
            (-0.0, "0", "0"),
            (f64::NAN, "0%", "NaN"),
            (f64::NEG_INFINITY, "0;(0)", "-Infinity"),
            (f64::MAX, "0%", "Infinity"),
        ] {
            assert_eq!(format_number(number, pattern, &format).unwrap(), want, "{number}");
        }
        let long = "0".repeat(1000);
        assert_eq!(format_number(1.0, &long, &format).unwrap().len(), 1000);
        let fraction = format!("0.{}", "0".repeat(998));
        assert_eq!(format_number(1.3, &fraction, &format).unwrap().len(), 1000);
        assert_eq!(format_number(1e300, &fraction, &format).unwrap().len(), 1300);
        assert!(format_number(1.0, &(long + "0"), &format).is_err());
    }

    #[test]
    fn decimal_formats() {
        let german = DecimalFormat {
            decimal_separator: ',',
            grouping_separator: '.',
            ..DecimalFormat::default()
        };
        let arabic = DecimalFormat { zero_digit: '٠', ..DecimalFormat::default() };
        let other = DecimalFormat {
            zero_digit: 'a',
            digit: 'b',
            minus_sign: 'm',
            infinity: "inf".to_owned(),
            nan: "nn".to_owned(),
            percent: 'p',
            pattern_separator: '|',
            ..DecimalFormat::default()
        };
        for (format, number, pattern, want) in [
            (&german, 1234.5, "#.##0,00", "1.234,50"),
            (&arabic, -1234.5, "#,##٠.٠٠", "-١,٢٣٤.٥٠"),
            (&other, 1234.5, "bbb,aaa.abb", "b,cde.f"),
            (&other, -1.0, "a", "mb"),
            (&other, -1.0, "a|(a)", "(b)"),
            (&other, 0.5, "ap", "fap"),
            (&other, f64::NEG_INFINITY, "a", "minf"),
            (&other, f64::NAN, "a", "nn"),
        ] {
            assert_eq!(format_number(number, pattern, format).unwrap(), want, "{pattern}");
        }
    }
}
