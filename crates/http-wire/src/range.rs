//! The Range field of a request (RFC 9110 section 14.2), with nginx's answers to its corner cases.

use std::ops::Range;

/// The request of a Range field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeSelection {
    /// The whole representation: no byte ranges, more of them than allowed, or more bytes than
    /// there are.
    Whole,
    /// The ranges that were put into the vector.
    Partial,
    /// None of the ranges exists, or the field is malformed: answer 416.
    Unsatisfiable,
}

/// Every range of a multipart answer costs about this many bytes of part head.
const PART_OVERHEAD: u64 = 256;

/// The length of an answer in many parts beyond that of the whole.
const PARTS_ALLOWANCE: u64 = 4096;

/// Reads a Range value for a representation of `len` bytes into `ranges`, which is emptied first.
///
/// At most `max_ranges` ranges are served; with `None` any number, as long as the answer in parts
/// would not be longer than the whole. Offsets are below 2^63.
pub fn parse(
    value: &[u8],
    len: u64,
    max_ranges: Option<u32>,
    ranges: &mut Vec<Range<u64>>,
) -> RangeSelection {
    ranges.clear();
    let specs = match value.split_at_checked(6) {
        Some((unit, specs)) if unit.eq_ignore_ascii_case(b"bytes=") && !specs.is_empty() => specs,
        _ => return RangeSelection::Whole,
    };
    let mut total = 0u64;
    // Recipients take empty elements of lists (RFC 9110 section 5.6.1.2).
    let specs = specs.split(|byte| *byte == b',').filter(|spec| !skip_spaces(spec).is_empty());
    for spec in specs {
        let Some(range) = parse_one(spec, len) else { return RangeSelection::Unsatisfiable };
        if range.start < range.end {
            total = total.saturating_add(range.end - range.start);
            if max_ranges.is_some_and(|max| ranges.len() >= max as usize) {
                return RangeSelection::Whole;
            }
            ranges.push(range);
        } else if range.start == 0 {
            // An empty representation, or a range of it that ends before it begins at 0.
            return RangeSelection::Whole;
        }
    }
    match ranges.len() {
        0 => RangeSelection::Unsatisfiable,
        1 => RangeSelection::Partial,
        _ if total > len => RangeSelection::Whole,
        count if max_ranges.is_none() => {
            let parts = total.saturating_add(count as u64 * PART_OVERHEAD);
            if parts > len + PARTS_ALLOWANCE {
                RangeSelection::Whole
            } else {
                RangeSelection::Partial
            }
        }
        _ => RangeSelection::Partial,
    }
}

/// One of `first-`, `first-last` and `-suffix`, spaces allowed between; the range may be empty.
fn parse_one(spec: &[u8], len: u64) -> Option<Range<u64>> {
    let mut rest = skip_spaces(spec);
    if let Some(suffix) = rest.strip_prefix(b"-") {
        let (count, rest) = number(suffix)?;
        return if skip_spaces(rest).is_empty() {
            Some(len.saturating_sub(count)..len)
        } else {
            None
        };
    }
    let start;
    (start, rest) = number(rest)?;
    rest = skip_spaces(skip_spaces(rest).strip_prefix(b"-")?);
    if rest.is_empty() {
        return Some(start..len);
    }
    let (last, rest) = number(rest)?;
    if skip_spaces(rest).is_empty() { Some(start..len.min(last + 1)) } else { None }
}

fn skip_spaces(bytes: &[u8]) -> &[u8] {
    let skip = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    bytes.get(skip..).unwrap_or(&[])
}

/// A decimal number of at least one digit, below 2^63, and the text behind it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = bytes.split_at_checked(digits)?;
    Some((crate::h1::parse_length(number)?, rest))
}

/// The start of the single range of a Range field; `None` for several, for a suffix of the
/// representation, and for a malformed range.
pub fn start_of_one(value: &[u8]) -> Option<u64> {
    let (unit, ranges) = value.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes=") || ranges.contains(&b',') {
        return None;
    }
    number(skip_spaces(ranges)).map(|(start, _)| start)
}

/// A Content-Range field (section 14.4): `bytes FIRST-LAST/LENGTH`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentRange {
    /// The first byte.
    pub start: u64,
    /// The offset after the last byte.
    pub end: u64,
    /// The length of the whole; `None`: unknown to the sender.
    pub length: Option<u64>,
}

impl ContentRange {
    /// Reads a field. The caller refuses ranges beyond the length, and those that end before they
    /// begin.
    pub fn parse(value: &[u8]) -> Option<ContentRange> {
        let (start, rest) = number(skip_spaces(value.strip_prefix(b"bytes ")?))?;
        let (last, rest) = number(skip_spaces(skip_spaces(rest).strip_prefix(b"-")?))?;
        let (length, rest) = match skip_spaces(skip_spaces(rest).strip_prefix(b"/")?) {
            [b'*', rest @ ..] => (None, rest),
            rest => number(rest).map(|(length, rest)| (Some(length), rest))?,
        };
        skip_spaces(rest).is_empty().then_some(ContentRange { start, end: last + 1, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(value: &str, len: u64, max: Option<u32>) -> Option<Vec<(u64, u64)>> {
        let mut ranges = Vec::from([7..9, 1..2]);
        match parse(value.as_bytes(), len, max, &mut ranges) {
            RangeSelection::Whole => None,
            RangeSelection::Unsatisfiable => Some(Vec::new()),
            RangeSelection::Partial => Some(ranges.iter().map(|r| (r.start, r.end)).collect()),
        }
    }

    #[test]
    fn single_ranges() {
        for (value, want) in [
            ("bytes=0-8", Some(vec![(0, 9)])),
            ("bytes=0-0", Some(vec![(0, 1)])),
            ("Bytes=990-", Some(vec![(990, 1000)])),
            ("bytes=-10", Some(vec![(990, 1000)])),
            ("bytes=-5000", Some(vec![(0, 1000)])),
            ("bytes=990-5000", Some(vec![(990, 1000)])),
            ("bytes= 5 - 6 ", Some(vec![(5, 7)])),
            ("bytes=9223372036854775807-", Some(vec![])),
            ("bytes=0-9223372036854775807", Some(vec![(0, 1000)])),
            ("bytes=1000-", Some(vec![])),
            ("bytes=5-2", Some(vec![])),
            ("bytes=-0", Some(vec![])),
            ("bytes=9223372036854775808-", Some(vec![])),
            ("bytes=0-9223372036854775808", Some(vec![])),
            ("bytes=-9223372036854775808", Some(vec![])),
            ("bytes=-", Some(vec![])),
            ("bytes=x", Some(vec![])),
            ("bytes=1", Some(vec![])),
            ("bytes=1-2-3", Some(vec![])),
            ("bytes=1-x", Some(vec![])),
            ("bytes=- 5", Some(vec![])),
            ("bytes=1-2x", Some(vec![])),
            ("bytes=,1-2", Some(vec![(1, 3)])),
            ("bytes=1-2,", Some(vec![(1, 3)])),
            ("bytes=,0-1,, \t,3-4,", Some(vec![(0, 2), (3, 5)])),
            ("bytes=\t1-2\t", Some(vec![(1, 3)])),
            ("bytes=,", Some(vec![])),
            ("bytes= , ", Some(vec![])),
            ("bytes=", None),
            ("byte=1-2", None),
            ("items=1-2", None),
            ("", None),
        ] {
            assert_eq!(run(value, 1000, None), want, "{value}");
        }
    }

    #[test]
    fn an_empty_representation_is_served_whole() {
        for value in ["bytes=0-", "bytes=0-5", "bytes=-5", "bytes=-0"] {
            assert_eq!(run(value, 0, None), None, "{value}");
        }
        assert_eq!(run("bytes=1-", 0, None), Some(vec![]));
    }

    #[test]
    fn several_ranges() {
        for (value, max, want) in [
            ("bytes=0-8,20-28", None, Some(vec![(0, 9), (20, 29)])),
            ("bytes=0-8, 5000-, 20-28", None, Some(vec![(0, 9), (20, 29)])),
            ("bytes=5000-,-1", None, Some(vec![(999, 1000)])),
            ("bytes=0-8,20-28", Some(2), Some(vec![(0, 9), (20, 29)])),
            ("bytes=0-8,20-28,30-", Some(2), None),
            ("bytes=0-8,5000-,30-31", Some(2), Some(vec![(0, 9), (30, 32)])),
            ("bytes=0-8", Some(0), None),
            ("bytes=0-,0-", None, None),
            ("bytes=0-499,500-999", None, Some(vec![(0, 500), (500, 1000)])),
            ("bytes=0-500,500-999", None, None),
            ("bytes=0-1,x", None, Some(vec![])),
        ] {
            assert_eq!(run(value, 1000, max), want, "{value}");
        }
    }

    #[test]
    fn many_small_ranges_are_served_whole_unless_a_limit_was_set() {
        let value = format!("bytes={}", vec!["0-0"; 20].join(","));
        assert_eq!(run(&value, 1000, None), None);
        assert_eq!(run(&value, 1000, Some(20)).map(|ranges| ranges.len()), Some(20));
        assert_eq!(run(&value, 1000, Some(19)), None);
    }

    #[test]
    fn content_ranges() {
        let range = |start, end, length| Some(ContentRange { start, end, length });
        for (text, want) in [
            ("bytes 0-9/100", range(0, 10, Some(100))),
            ("bytes  0 - 9 / 100 ", range(0, 10, Some(100))),
            ("bytes 5-5/*", range(5, 6, None)),
            ("bytes 0-9223372036854775807/9223372036854775807", {
                range(0, 1 << 63, Some(i64::MAX as u64))
            }),
            ("bytes 0-9223372036854775808/1", None),
            ("bytes */100", None),
            ("bytes -9/100", None),
            ("bytes 0-/100", None),
            ("bytes 0-9/", None),
            ("bytes 0-9/100x", None),
            ("bytes 0-9", None),
            ("Bytes 0-9/100", None),
            ("bytes", None),
            ("", None),
        ] {
            assert_eq!(ContentRange::parse(text.as_bytes()), want, "{text}");
        }
    }

    #[test]
    fn starts_of_ranges() {
        for (text, want) in [
            ("bytes=25-", Some(25)),
            ("BYTES= 25-30", Some(25)),
            ("bytes=25", Some(25)),
            ("bytes=-5", None),
            ("bytes=1-2,3-4", None),
            ("lines=25-", None),
            ("bytes=99999999999999999999-", None),
            ("", None),
        ] {
            assert_eq!(start_of_one(text.as_bytes()), want, "{text}");
        }
    }
}
