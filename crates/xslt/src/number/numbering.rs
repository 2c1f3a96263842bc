//! The numbers of `xsl:number` (XSLT, section 7.7.1).

use super::grouped;

/// The greatest number of characters that is read of a format of `xsl:number`.
const FORMAT_CHARS_MAX: usize = 1000;

/// The zeros of the decimal digits outside of ASCII, each of which is followed by its nine others.
const ZEROS: [char; 37] = [
    '\u{660}',
    '\u{6f0}',
    '\u{7c0}',
    '\u{966}',
    '\u{9e6}',
    '\u{a66}',
    '\u{ae6}',
    '\u{b66}',
    '\u{be6}',
    '\u{c66}',
    '\u{ce6}',
    '\u{d66}',
    '\u{de6}',
    '\u{e50}',
    '\u{ed0}',
    '\u{f20}',
    '\u{1040}',
    '\u{1090}',
    '\u{17e0}',
    '\u{1810}',
    '\u{1946}',
    '\u{19d0}',
    '\u{1a80}',
    '\u{1a90}',
    '\u{1b50}',
    '\u{1bb0}',
    '\u{1c40}',
    '\u{1c50}',
    '\u{a620}',
    '\u{a8d0}',
    '\u{a900}',
    '\u{a9d0}',
    '\u{a9f0}',
    '\u{aa50}',
    '\u{abf0}',
    '\u{ff10}',
    '\u{104a0}',
];

/// How the digits of `xsl:number` are grouped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Grouping {
    /// The separator: its first character counts; none where it is empty.
    pub(crate) separator: String,
    /// The number of digits of a group; 0 where there are none.
    pub(crate) size: usize,
}

/// A format of `xsl:number`: what comes first, format tokens with what separates each from the one
/// before, and what comes last.
struct Format<'f> {
    start: &'f str,
    tokens: Vec<(&'f str, &'f str)>,
    end: &'f str,
}

impl<'f> Format<'f> {
    fn of(format: &'f str) -> Self {
        let cut = format.char_indices().nth(FORMAT_CHARS_MAX).map_or(format.len(), |(at, _)| at);
        let (mut separator, mut rest) = alphanumeric(&format[..cut], false);
        let start = separator;
        let mut tokens = Vec::new();
        while !rest.is_empty() {
            let (token, behind) = alphanumeric(rest, true);
            tokens.push((separator, token));
            (separator, rest) = alphanumeric(behind, false);
        }
        let end = if tokens.is_empty() { "" } else { separator };
        if tokens.is_empty() {
            tokens.push(("", "1"));
        }
        Format { start, tokens, end }
    }
}

/// Splits a text behind the characters at its start that are alphanumeric, or are not.
fn alphanumeric(text: &str, are: bool) -> (&str, &str) {
    let at = text.find(|c: char| c.is_alphanumeric() != are).unwrap_or(text.len());
    text.split_at(at)
}

/// The numbers of `xsl:number` in a format like `1.a) `. Halves are rounded up; a number below 0
/// counts as 0, which letters and Roman numerals have not: it is written in digits. With
/// `alphabetic` (`letter-value`), the tokens `i` and `I` stand for letters as `a` and `A` do.
pub(crate) fn format_numbers(
    numbers: &[f64],
    format: &str,
    grouping: Option<&Grouping>,
    alphabetic: bool,
) -> String {
    let format = Format::of(format);
    let mut out = format.start.to_owned();
    for (at, number) in numbers.iter().enumerate() {
        let last = format.tokens.len() - 1;
        let (separator, token) = format.tokens[at.min(last)];
        if at > 0 {
            // The one of the first token is the start of the format.
            out.push_str(if last == 0 { "." } else { separator });
        }
        out.push_str(&numeral(*number, token, grouping, alphabetic));
    }
    out.push_str(format.end);
    out
}

/// A number as a format token has it. The first character decides what a token is, and those that
/// nobody knows stand for `1`.
fn numeral(number: f64, token: &str, grouping: Option<&Grouping>, alphabetic: bool) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    let number = (number + 0.5).floor().max(0.0);
    if number.is_infinite() {
        return "Infinity".to_owned();
    }
    let first = token.chars().next().unwrap_or('1');
    // Beyond, a double has no odd numbers.
    let whole = (1.0..9e15).contains(&number).then_some(number as u64);
    let letters = match (first, whole) {
        ('a' | 'A', Some(whole)) => Some(letters(whole)),
        ('i' | 'I', Some(whole)) if alphabetic => Some(letters(whole)),
        ('i' | 'I', Some(whole @ 1..=5000)) => Some(roman(whole)),
        _ => None,
    };
    match letters {
        Some(letters) if first.is_uppercase() => letters.to_ascii_uppercase(),
        Some(letters) => letters,
        None => {
            let (zero, width) = digits_of(token);
            let digits = format!("{number:0>width$}");
            let (separator, size) = match grouping {
                Some(grouping) => (grouping.separator.chars().next(), grouping.size),
                None => (None, 0),
            };
            grouped(&digits, separator, size, zero)
        }
    }
}

/// The zero of a token's digits, and how many there are at least: `001` has three.
fn digits_of(token: &str) -> (char, usize) {
    let decimal = |c: char| match c {
        '0'..='9' => Some(('0', u32::from(c) - u32::from('0'))),
        _ => ZEROS.iter().find_map(|zero| {
            let digit = u32::from(c).checked_sub(u32::from(*zero))?;
            (digit < 10).then_some((*zero, digit))
        }),
    };
    let Some((zero, _)) = token.chars().next().and_then(decimal) else { return ('0', 1) };
    let zeros = token.chars().take_while(|c| *c == zero).count();
    match token.chars().nth(zeros).and_then(decimal) {
        Some((of, 1)) if of == zero => (zero, zeros + 1),
        _ => ('0', 1),
    }
}

/// 1 is `a`, 26 is `z`, 27 is `aa`.
fn letters(mut number: u64) -> String {
    let mut out = Vec::new();
    while number > 0 {
        number -= 1;
        out.push(char::from(b'a' + (number % 26) as u8));
        number /= 26;
    }
    out.iter().rev().collect()
}

fn roman(mut number: u64) -> String {
    let mut out = String::new();
    for (value, numeral) in [
        (1000, "m"),
        (900, "cm"),
        (500, "d"),
        (400, "cd"),
        (100, "c"),
        (90, "xc"),
        (50, "l"),
        (40, "xl"),
        (10, "x"),
        (9, "ix"),
        (5, "v"),
        (4, "iv"),
        (1, "i"),
    ] {
        while number >= value {
            out.push_str(numeral);
            number -= value;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_xsl_number() {
        for (numbers, format, want) in [
            (&[1.0, 2.0][..], "1", "1.2"),
            (&[1.0, 2.0, 3.0], "1.1. ", "1.2.3. "),
            (&[1.0, 2.0, 3.0, 4.0], "1-a.i)", "1-b.iii.iv)"),
            (&[1.0, 2.0], "1-a.i)", "1-b)"),
            (&[1.0, 2.0, 3.0], "1.1:1", "1.2:3"),
            (&[1.0, 2.0], "", "1.2"),
            (&[1.0, 2.0], ".", ".1.2"),
            (&[1.0, 2.0], "1.", "1.2."),
            (&[1.0, 2.0], " 1", " 1.2"),
            (&[1.0, 2.0, 3.0], "*1*a*", "*1*b*c*"),
            (&[], "(1)", "()"),
            (&[5.0], "one", "5"),
            (&[5.0], "é", "5"),
            (&[5.0], "10", "5"),
            (&[5.0], "00", "5"),
            (&[5.0], "01x", "05"),
            (&[5.0], "0001", "0005"),
            (&[25.0], "٠٠١", "٠٢٥"),
            (&[25.0], "１", "２５"),
            (&[25.0], "0١", "25"),
            (&[26.0, 27.0, 702.0, 703.0, 0.0], "a", "z.aa.zz.aaa.0"),
            (&[1e12], "A", "DTMCHRXUN"),
            (&[1e300], "a", &format!("{}", 1e300)),
            (&[3999.0, 4000.0, 5000.0, 5001.0, 0.0], "I", "MMMCMXCIX.MMMM.MMMMM.5001.0"),
            (&[44.0], "ii", "xliv"),
            (&[0.4, 0.5, 2.5, -0.5, -1.0, f64::NEG_INFINITY], "1", "0.1.3.0.0.0"),
            (&[f64::NAN, f64::INFINITY, -3.0], "01", "NaN.Infinity.00"),
        ] {
            assert_eq!(format_numbers(numbers, format, None, false), want, "{format}");
        }
        assert_eq!(format_numbers(&[4.0, 4.0], "i-I", None, true), "d-D");
        let long = "0".repeat(5000) + "1";
        assert_eq!(format_numbers(&[4.0], &long, None, false), "4");
    }

    #[test]
    fn groups_of_xsl_number() {
        for (number, format, separator, size, want) in [
            (1_234_567.0, "1", ",", 3, "1,234,567"),
            (123.0, "1", ",", 3, "123"),
            (1_234_567.0, "1", "abc", 2, "1a23a45a67"),
            (1.0, "0001", "é", 1, "0é0é0é1"),
            (1234.0, "1", "", 3, "1234"),
            (1234.0, "1", ",", 0, "1234"),
            (1234.0, "i", ",", 1, "mccxxxiv"),
            (12345.0, "i", ".", 3, "12.345"),
        ] {
            let grouping = Grouping { separator: separator.to_owned(), size };
            let got = format_numbers(&[number], format, Some(&grouping), false);
            assert_eq!(got, want, "{number} {format}");
        }
    }
}
