//! `num_map` blocks: a value by a number, or by a range of numbers.

use std::collections::{BTreeMap, HashMap};

use crate::template::Template;
use crate::{ConfError, Node, Word};

/// Decimals that count.
const DECIMALS: usize = 9;

/// Digits before the point that a number may have.
const DIGITS_MAX: usize = 20;

/// A number in units of 10^-9.
type Number = i128;

/// A compiled block.
#[derive(Debug)]
pub struct NumMap {
    exact: HashMap<Number, u32>,
    /// The last number of each range and its value, by the first number. They do not overlap.
    ranges: BTreeMap<Number, (Number, u32)>,
    values: Vec<Template>,
    default: Option<u32>,
    /// `volatile`: the value is not cached.
    pub volatile: bool,
}

impl NumMap {
    /// Compiles the block of `node`; `template` compiles a value.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(
        node: &Node,
        mut template: impl FnMut(&Word) -> Result<Template, ConfError>,
    ) -> Result<NumMap, ConfError> {
        let mut map = NumMap {
            exact: HashMap::new(),
            ranges: BTreeMap::new(),
            values: Vec::new(),
            default: None,
            volatile: false,
        };
        for line in node.entries() {
            let line = line?;
            let value = match (line.name.bytes(), &line.args[..]) {
                (b"volatile", []) => {
                    map.volatile = true;
                    continue;
                }
                (_, [value]) => value,
                _ => {
                    let m = "invalid number of the num_map parameters";
                    return Err(ConfError::at(&line.name, m));
                }
            };
            map.values.push(template(value)?);
            map.add(&line.name, map.values.len() as u32 - 1)?;
        }
        Ok(map)
    }

    fn add(&mut self, word: &Word, value: u32) -> Result<(), ConfError> {
        let text = word.bytes();
        if text == b"default" {
            if self.default.replace(value).is_some() {
                return Err(ConfError::at(word, "duplicate default num_map parameter"));
            }
            return Ok(());
        }
        if let Some(n) = number(text) {
            if self.exact.insert(n, value).is_some() {
                let m = format!("duplicate number \"{}\"", word.lossy());
                return Err(ConfError::at(word, m));
            }
            return Ok(());
        }
        let Some((first, last)) = range(text) else {
            let m = format!("invalid number or range \"{}\"", word.lossy());
            return Err(ConfError::at(word, m));
        };
        if first > last {
            return Err(ConfError::at(word, format!("empty range \"{}\"", word.lossy())));
        }
        self.cover(first, last, value);
        Ok(())
    }

    /// Gives a value to the numbers of a range that no earlier range has.
    fn cover(&mut self, first: Number, last: Number, value: u32) {
        let mut from = first;
        if let Some((_, (end, _))) = self.ranges.range(..=first).next_back() {
            from = from.max(end.saturating_add(1));
        }
        while from <= last {
            let next =
                self.ranges.range(from..=last).next().map(|(start, (end, _))| (*start, *end));
            match next {
                None => {
                    self.ranges.insert(from, (last, value));
                    return;
                }
                Some((start, end)) => {
                    if from < start {
                        self.ranges.insert(from, (start - 1, value));
                    }
                    from = end.saturating_add(1);
                }
            }
        }
    }

    /// The value for a text: that of the same number, or of the first range in the block that has
    /// it, or the default. `None` without one.
    pub fn find(&self, text: &[u8]) -> Option<&Template> {
        let found = number(text.trim_ascii()).and_then(|n| {
            let in_range = || {
                let (_, (last, value)) = self.ranges.range(..=n).next_back()?;
                (n <= *last).then_some(value)
            };
            self.exact.get(&n).or_else(in_range).copied()
        });
        self.values.get(found.or(self.default)? as usize)
    }
}

/// A number as it stands in the text: a sign, digits, a point and digits.
fn number(text: &[u8]) -> Option<Number> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let (whole, rest) = match memchr::memchr(b'.', digits) {
        Some(dot) if dot + 1 < digits.len() => (&digits[..dot], &digits[dot + 1..]),
        Some(_) => return None,
        None => (digits, &b""[..]),
    };
    let are_digits = whole.iter().chain(rest).all(u8::is_ascii_digit);
    if whole.is_empty() || whole.len() > DIGITS_MAX || !are_digits {
        return None;
    }
    let padded = rest.iter().copied().chain(std::iter::repeat(b'0')).take(DECIMALS);
    let digits = whole.iter().copied().chain(padded);
    let n = digits.fold(0, |n, digit| n * 10 + Number::from(digit - b'0'));
    Some(if is_negative { -n } else { n })
}

/// `<=N`, `<N`, `>=N`, `>N` or `N-M`: the first and the last number.
fn range(text: &[u8]) -> Option<(Number, Number)> {
    const MIN: Number = Number::MIN;
    const MAX: Number = Number::MAX - 1;
    match text {
        [b'<', b'=', n @ ..] => Some((MIN, number(n)?)),
        [b'>', b'=', n @ ..] => Some((number(n)?, MAX)),
        [b'<', n @ ..] => Some((MIN, number(n)? - 1)),
        [b'>', n @ ..] => Some((number(n)? + 1, MAX)),
        _ => {
            let dash = 1 + memchr::memchr(b'-', text.get(1..)?)?;
            Some((number(&text[..dash])?, number(&text[dash + 1..])?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Options, parse_bytes};
    use bytes::Bytes;

    fn parse(lines: &str) -> Result<NumMap, ConfError> {
        let text = format!("num_map $x $y {{ {lines} }}");
        let tree = parse_bytes(std::path::Path::new("t"), text.into(), &Options::default());
        let constant = |word: &Word| Ok(Template::constant(word.text.clone()));
        NumMap::parse(&tree.expect("a block's text").nodes[0], constant)
    }

    fn found(map: &NumMap, text: &str) -> Option<Bytes> {
        map.find(text.as_bytes()).map(|value| value.as_const().expect("constant").clone())
    }

    #[test]
    fn numbers_and_ranges() {
        let map = parse(
            "80 http; 8080-8090 proxy; <=1023 low; 8085 one; 8000-9000 around; >=65536 none;
             -5--1 negative; 0.5 half; default other;",
        )
        .unwrap();
        for (text, value) in [
            ("80", "http"),
            ("080", "http"),
            ("80.0", "http"),
            ("1023", "low"),
            ("1023.1", "other"),
            ("-3", "low"),
            ("0.5", "half"),
            ("8085", "one"),
            ("8080", "proxy"),
            ("8090", "proxy"),
            ("8090.5", "around"),
            ("8000", "around"),
            ("9000", "around"),
            ("9001", "other"),
            ("65535.999999999", "other"),
            ("18446744073709551615", "none"),
            (" 80 ", "http"),
            ("", "other"),
            ("x", "other"),
            ("1e3", "other"),
            ("999999999999999999999", "other"),
        ] {
            assert_eq!(found(&map, text).as_deref(), Some(value.as_bytes()), "{text}");
        }
        let map = parse("-5--1 negative; <0.1 small; >0.1 large; volatile;").unwrap();
        let of = |text| found(&map, text).unwrap_or_default();
        assert_eq!(
            (of("-5"), of("-6"), of("0.2")),
            ("negative".into(), "small".into(), "large".into())
        );
        assert!(map.volatile && found(&map, "0.1").is_none());
    }

    #[test]
    fn earlier_ranges_win_wherever_they_lie() {
        let lines = "10-20 a; 30-40 b; 5-35 c; 0-100 d; 15-16 e;";
        let map = parse(lines).unwrap();
        let slow = [(10, 20, "a"), (30, 40, "b"), (5, 35, "c"), (0, 100, "d")];
        for n in -1..=101 {
            let want = slow.iter().find(|(from, to, _)| (*from..=*to).contains(&n));
            let got = found(&map, &n.to_string());
            assert_eq!(got.as_deref(), want.map(|(.., value)| value.as_bytes()), "{n}");
        }
    }

    #[test]
    fn what_is_wrong() {
        for (lines, message) in [
            ("a 1;", "invalid number or range \"a\""),
            ("1- 1;", "invalid number or range \"1-\""),
            ("1. 1;", "invalid number or range \"1.\""),
            ("=1 1;", "invalid number or range \"=1\""),
            ("2-1 1;", "empty range \"2-1\""),
            ("1 1; 1.0 2;", "duplicate number \"1.0\""),
            ("default 1; default 2;", "duplicate default num_map parameter"),
            ("1 2 3;", "invalid number of the num_map parameters"),
        ] {
            let error = parse(lines).unwrap_err().to_string();
            assert!(error.starts_with(message), "{lines}: {error}");
        }
    }
}
