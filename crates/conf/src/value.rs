//! Arguments as values: flags, numbers, sizes, times, enumerations, in nginx's notation.
//!
//! `parse_*` take bytes and know nothing of directives; the functions named after a type read one
//! argument of a directive (counted from 0) and complain in nginx's words; `set_*` fill a field
//! that may be given once.

use base::ascii::parse_i63;
use bytes::Bytes;

use crate::{ConfError, Node, Word, warn};

/// Reads a size in bytes: digits, then `k` or `m` of either case, or nothing.
pub fn parse_size(text: &[u8]) -> Option<usize> {
    let (digits, scale) = match text.split_last()? {
        (b'k' | b'K', digits) => (digits, 1 << 10),
        (b'm' | b'M', digits) => (digits, 1 << 20),
        _ => (text, 1),
    };
    parse_i63(digits)?.checked_mul(scale).and_then(|size| usize::try_from(size).ok())
}

/// Reads a length or place in a file: digits, then `k`, `m` or `g` of either case, or nothing.
pub fn parse_offset(text: &[u8]) -> Option<u64> {
    let (digits, scale) = match text.split_last()? {
        (b'k' | b'K', digits) => (digits, 1 << 10),
        (b'm' | b'M', digits) => (digits, 1 << 20),
        (b'g' | b'G', digits) => (digits, 1 << 30),
        _ => (text, 1),
    };
    parse_i63(digits)?.checked_mul(scale).map(i64::cast_unsigned)
}

/// Reads a time in milliseconds: numbers with units `w d h m s ms` in falling order, blanks between
/// them allowed, a number without a unit being seconds: `1h 30m`, `500ms`, `10`.
pub fn parse_msec(text: &[u8]) -> Option<u64> {
    parse_time(text, false)
}

/// Reads a time in seconds: as [`parse_msec`], with `y` (365 days) and `M` (30 days) but no `ms`.
pub fn parse_sec(text: &[u8]) -> Option<u64> {
    parse_time(text, true)
}

/// The rank of a unit; ranks may only fall within a time. Blanks end it.
#[derive(PartialEq, PartialOrd)]
enum Step {
    Start,
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Last,
}

fn parse_time(text: &[u8], seconds: bool) -> Option<u64> {
    const DAY: i64 = 24 * 60 * 60;
    let per_second = if seconds { 1 } else { 1000 };
    // Milliseconds leave no room for years and months, so nginx does not know them there.
    let mut step = if seconds { Step::Start } else { Step::Month };
    let mut total: i64 = 0;
    let mut value: i64 = 0;
    let mut digits = false;
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if byte.is_ascii_digit() {
            value = value.checked_mul(10)?.checked_add(i64::from(byte - b'0'))?;
            digits = true;
            continue;
        }
        let (unit, scale) = match byte {
            b'y' => (Step::Year, 365 * DAY),
            b'M' => (Step::Month, 30 * DAY),
            b'w' => (Step::Week, 7 * DAY),
            b'd' => (Step::Day, DAY),
            b'h' => (Step::Hour, 60 * 60),
            b'm' if rest.first() == Some(&b's') => {
                rest = &rest[1..];
                if seconds {
                    return None;
                }
                (Step::Millisecond, 1)
            }
            b'm' => (Step::Minute, 60),
            b's' => (Step::Second, 1),
            // A number and a blank are seconds, after which nothing else may come.
            b' ' if step < Step::Second => (Step::Last, 1),
            _ => return None,
        };
        if step >= unit {
            return None;
        }
        let scale = if unit == Step::Millisecond { 1 } else { scale * per_second };
        step = unit;
        total = total.checked_add(value.checked_mul(scale)?)?;
        value = 0;
        while let [b' ', tail @ ..] = rest {
            rest = tail;
        }
    }
    if !digits {
        return None;
    }
    total.checked_add(value.checked_mul(per_second)?).map(i64::cast_unsigned)
}

/// `on` or `off`.
///
/// # Errors
///
/// `invalid value "x" in "NAME" directive, it must be "on" or "off"`.
pub fn flag(node: &Node, index: usize) -> Result<bool, ConfError> {
    let word = node.arg(index)?;
    if word.text.eq_ignore_ascii_case(b"on") {
        return Ok(true);
    }
    if word.text.eq_ignore_ascii_case(b"off") {
        return Ok(false);
    }
    let (value, name) = (word.lossy(), node.name.lossy());
    let message =
        format!("invalid value \"{value}\" in \"{name}\" directive, it must be \"on\" or \"off\"");
    Err(ConfError::at(word, message))
}

fn parsed<T>(
    node: &Node,
    index: usize,
    parse: impl Fn(&[u8]) -> Option<T>,
    complaint: &str,
) -> Result<T, ConfError> {
    parse(node.arg(index)?.bytes()).ok_or_else(|| ConfError::argument(node, index, complaint))
}

/// A size in bytes; see [`parse_size`].
///
/// # Errors
///
/// `"NAME" directive invalid value`.
pub fn size(node: &Node, index: usize) -> Result<usize, ConfError> {
    parsed(node, index, parse_size, "invalid value")
}

/// A length or place in a file in bytes; see [`parse_offset`].
///
/// # Errors
///
/// `"NAME" directive invalid value`.
pub fn offset(node: &Node, index: usize) -> Result<u64, ConfError> {
    parsed(node, index, parse_offset, "invalid value")
}

/// A time in milliseconds; see [`parse_msec`].
///
/// # Errors
///
/// `"NAME" directive invalid value`.
pub fn msec(node: &Node, index: usize) -> Result<u64, ConfError> {
    parsed(node, index, parse_msec, "invalid value")
}

/// A time in seconds; see [`parse_sec`].
///
/// # Errors
///
/// `"NAME" directive invalid value`.
pub fn sec(node: &Node, index: usize) -> Result<u64, ConfError> {
    parsed(node, index, parse_sec, "invalid value")
}

/// A whole number that is not negative, at most `i64::MAX`.
///
/// # Errors
///
/// `"NAME" directive invalid number`.
pub fn number(node: &Node, index: usize) -> Result<u64, ConfError> {
    parsed(node, index, parse_i63, "invalid number").map(i64::cast_unsigned)
}

/// One of several words, without regard to case.
///
/// # Errors
///
/// `invalid value "x"`, with a suggestion.
pub fn enumeration<T: Clone>(
    node: &Node,
    index: usize,
    values: &[(&str, T)],
) -> Result<T, ConfError> {
    let word = node.arg(index)?;
    match values.iter().find(|(name, _)| word.text.eq_ignore_ascii_case(name.as_bytes())) {
        Some((_, value)) => Ok(value.clone()),
        None => Err(not_among(word, values)),
    }
}

/// The bits of all arguments together, each one of several words without regard to case.
///
/// # Errors
///
/// `invalid value "x"`, with a suggestion. A word given twice is only warned about.
fn bitmask(node: &Node, values: &[(&str, u64)]) -> Result<u64, ConfError> {
    node.args.iter().try_fold(0, |bits, word| {
        let found = values.iter().find(|(name, _)| word.text.eq_ignore_ascii_case(name.as_bytes()));
        let Some((_, bit)) = found else {
            return Err(not_among(word, values));
        };
        if bits & bit != 0 {
            warn(word, format_args!("duplicate value \"{}\"", word.lossy()));
        }
        Ok(bits | bit)
    })
}

#[cold]
fn not_among<T>(word: &Word, values: &[(&str, T)]) -> ConfError {
    let error = ConfError::at(word, format!("invalid value \"{}\"", word.lossy()));
    let names = values.iter().map(|(name, _)| *name);
    match crate::spelling::closest(word.bytes(), names.clone()) {
        Some(likely) => error.with_help(format!("did you mean \"{likely}\"?")),
        None => error.with_help(format!("it is one of: {}", names.collect::<Vec<_>>().join(", "))),
    }
}

/// Puts a value into a field that may be given once.
///
/// # Errors
///
/// `"NAME" directive is duplicate`, before the value is read; else the error of `read`.
pub fn set_once<T>(
    field: &mut Option<T>,
    node: &Node,
    read: impl FnOnce(&Node) -> Result<T, ConfError>,
) -> Result<(), ConfError> {
    if field.is_some() {
        return Err(ConfError::directive(node, "is duplicate"));
    }
    *field = Some(read(node)?);
    Ok(())
}

/// Sets a [`flag`] from the first argument.
///
/// # Errors
///
/// As [`set_once`] and [`flag`].
pub fn set_flag(field: &mut Option<bool>, node: &Node) -> Result<(), ConfError> {
    set_once(field, node, |node| flag(node, 0))
}

/// Sets a [`size`] from the first argument.
///
/// # Errors
///
/// As [`set_once`] and [`size`].
pub fn set_size(field: &mut Option<usize>, node: &Node) -> Result<(), ConfError> {
    set_once(field, node, |node| size(node, 0))
}

/// Sets an [`offset`] from the first argument.
///
/// # Errors
///
/// As [`set_once`] and [`offset`].
pub fn set_offset(field: &mut Option<u64>, node: &Node) -> Result<(), ConfError> {
    set_once(field, node, |node| offset(node, 0))
}

/// Sets a time in milliseconds from the first argument.
///
/// # Errors
///
/// As [`set_once`] and [`msec`].
pub fn set_msec(field: &mut Option<u64>, node: &Node) -> Result<(), ConfError> {
    set_once(field, node, |node| msec(node, 0))
}

/// Sets a time in seconds from the first argument.
///
/// # Errors
///
/// As [`set_once`] and [`sec`].
pub fn set_sec(field: &mut Option<u64>, node: &Node) -> Result<(), ConfError> {
    set_once(field, node, |node| sec(node, 0))
}

/// Sets a [`number`] from the first argument.
///
/// # Errors
///
/// As [`set_once`] and [`number`].
pub fn set_num(field: &mut Option<u64>, node: &Node) -> Result<(), ConfError> {
    set_once(field, node, |node| number(node, 0))
}

/// Sets a [`number`] that lies in `bounds`, both ends included; `u64::MAX` stands for no upper end.
///
/// # Errors
///
/// As [`set_num`], or `value must be between A and B`, or, without an upper end, `value must be
/// equal to or greater than A`.
pub fn set_num_within(
    field: &mut Option<u64>,
    node: &Node,
    (low, high): (u64, u64),
) -> Result<(), ConfError> {
    set_once(field, node, |node| match number(node, 0)? {
        value if (low..=high).contains(&value) => Ok(value),
        _ => Err(ConfError::at(
            node.arg(0)?,
            if high == u64::MAX {
                format!("value must be equal to or greater than {low}")
            } else {
                format!("value must be between {low} and {high}")
            },
        )),
    })
}

/// Sets text from the first argument.
///
/// # Errors
///
/// As [`set_once`].
pub fn set_str(field: &mut Option<Bytes>, node: &Node) -> Result<(), ConfError> {
    set_once(field, node, |node| Ok(node.arg(0)?.text.clone()))
}

/// Sets one of several words from the first argument; see [`enumeration`].
///
/// # Errors
///
/// As [`set_once`] and [`enumeration`].
pub fn set_enum<T: Clone>(
    field: &mut Option<T>,
    node: &Node,
    values: &[(&str, T)],
) -> Result<(), ConfError> {
    set_once(field, node, |node| enumeration(node, 0, values))
}

/// Adds the words of a [`bitmask`]; a repeated directive adds to the earlier ones, as in nginx.
///
/// # Errors
///
/// As [`bitmask`].
pub fn set_bitmask(
    field: &mut Option<u64>,
    node: &Node,
    values: &[(&str, u64)],
) -> Result<(), ConfError> {
    *field = Some(field.unwrap_or(0) | bitmask(node, values)?);
    Ok(())
}

/// Sets permission bits from words such as `user:rw group:r all:r`. The owner may read and write
/// where `user:` is not among them.
///
/// # Errors
///
/// As [`set_once`], or `invalid value "x"`.
pub fn set_access(field: &mut Option<u32>, node: &Node) -> Result<(), ConfError> {
    set_once(field, node, |node| {
        let (mut mode, mut user) = (0, 0o600);
        for word in &node.args {
            let Some(bits) = access_bits(word.bytes()) else {
                return Err(ConfError::at(word, format!("invalid value \"{}\"", word.lossy())));
            };
            if word.bytes().starts_with(b"user:") {
                user = 0;
            }
            mode |= bits;
        }
        Ok(mode | user)
    })
}

fn access_bits(word: &[u8]) -> Option<u32> {
    let colon = memchr::memchr(b':', word)?;
    let shift = match &word[..colon] {
        b"user" => 6,
        b"group" => 3,
        b"all" => 0,
        _ => return None,
    };
    match &word[colon + 1..] {
        b"rw" => Some(0o6 << shift),
        b"r" => Some(0o4 << shift),
        _ => None,
    }
}

/// A number of buffers and the size of one in bytes, as in `proxy_buffers 8 4k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bufs {
    /// The number of buffers.
    pub num: usize,
    /// Bytes of each.
    pub size: usize,
}

/// Sets a number and a size of buffers, neither of them zero.
///
/// # Errors
///
/// As [`set_once`], or `"NAME" directive invalid value`.
pub fn set_bufs(field: &mut Option<Bufs>, node: &Node) -> Result<(), ConfError> {
    set_once(field, node, bufs)
}

/// Reads a number and a size of buffers, neither of them zero.
///
/// # Errors
///
/// `"NAME" directive invalid value`.
pub fn bufs(node: &Node) -> Result<Bufs, ConfError> {
    let not_zero = |value: &usize| *value != 0;
    let count = |text: &[u8]| parse_i63(text).and_then(|count| usize::try_from(count).ok());
    let num = parsed(node, 0, |text| count(text).filter(not_zero), "invalid value")?;
    let size = parsed(node, 1, |text| parse_size(text).filter(not_zero), "invalid value")?;
    Ok(Bufs { num, size })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::rc::Rc;

    use super::*;
    use crate::Pos;

    fn node(words: &str) -> Node {
        let file: Rc<Path> = Path::new("test.conf").into();
        let mut column = 1;
        let mut words = words.split(' ').map(|text| {
            let pos = Pos { file: file.clone(), line: 3, column };
            column += text.len() as u32 + 1;
            Word { text: Bytes::copy_from_slice(text.as_bytes()), pos, quoted: false }
        });
        let name = words.next().unwrap();
        Node { name, args: words.collect(), block: None, broken: None }
    }

    #[test]
    fn sizes_and_offsets() {
        for (text, size) in
            [("0", 0), ("1", 1), ("4k", 4096), ("4K", 4096), ("2m", 2 << 20), ("2M", 2 << 20)]
        {
            assert_eq!(parse_size(text.as_bytes()), Some(size), "{text}");
            assert_eq!(parse_offset(text.as_bytes()), Some(size as u64), "{text}");
        }
        assert_eq!(parse_offset(b"3g"), Some(3 << 30));
        for text in ["", "k", "-1", "1kk", "1 k", "1g", "9223372036854775807k", "x"] {
            assert_eq!(parse_size(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_size(b"9223372036854775807"), Some(i64::MAX as usize));
        assert_eq!(parse_offset(b"9007199254740992k"), None);
        assert_eq!(parse_offset(b"9007199254740991k"), Some(9_007_199_254_740_991 << 10));
        assert_eq!(parse_offset(b"1t"), None);
    }

    #[test]
    fn times() {
        for (text, ms) in [
            ("0", 0),
            ("10", 10_000),
            ("10s", 10_000),
            ("500ms", 500),
            ("1m500ms", 60_500),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1w2d", 9 * 86_400_000),
            ("1m 5", 65_000),
            ("1s500ms", 1500),
            ("5 ", 5000),
            ("s", u64::MAX),
            ("", u64::MAX),
            ("1y", u64::MAX),
            ("1M", u64::MAX),
            ("30m1h", u64::MAX),
            ("1m1m", u64::MAX),
            ("5 s", u64::MAX),
            ("5s ", 5000),
            ("5s 5 ", u64::MAX),
            (" 5", 5000),
            ("1.5s", u64::MAX),
            ("-1", u64::MAX),
            ("9223372036854775807", u64::MAX),
            ("9223372036854775808", u64::MAX),
            ("9223372036854775807ms", i64::MAX as u64),
            ("9223372036854775807ms1", u64::MAX),
        ] {
            assert_eq!(parse_msec(text.as_bytes()).unwrap_or(u64::MAX), ms, "{text:?}");
        }
        for (text, secs) in [
            ("1y", 365 * 86_400),
            ("1M", 30 * 86_400),
            ("1y1M1w1d1h1m1s", (365 + 30 + 7 + 1) * 86_400 + 3661),
            ("500ms", u64::MAX),
            ("9223372036854775807", i64::MAX as u64),
            ("9223372036854775807s1", u64::MAX),
            ("99999999999999999y", u64::MAX),
        ] {
            assert_eq!(parse_sec(text.as_bytes()).unwrap_or(u64::MAX), secs, "{text:?}");
        }
    }

    fn message<T: std::fmt::Debug>(result: Result<T, ConfError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn complaints_are_nginx_s() {
        assert_eq!(
            message(flag(&node("sendfile x"), 0)),
            "invalid value \"x\" in \"sendfile\" directive, it must be \"on\" or \"off\" \
             in test.conf:3"
        );
        assert!(flag(&node("sendfile On"), 0).unwrap());
        assert!(!flag(&node("sendfile oFF"), 0).unwrap());
        assert_eq!(message(size(&node("a 1x"), 0)), "\"a\" directive invalid value in test.conf:3");
        assert_eq!(
            message(number(&node("a -1"), 0)),
            "\"a\" directive invalid number in test.conf:3"
        );
        assert_eq!(
            message(size(&node("a"), 0)),
            "invalid number of arguments in \"a\" directive in test.conf:3"
        );
        let values = [("one", 1), ("two", 2)];
        let error = enumeration(&node("a twoo"), 0, &values).unwrap_err();
        assert_eq!(error.to_string(), "invalid value \"twoo\" in test.conf:3");
        assert_eq!(error.help.as_deref(), Some("did you mean \"two\"?"));
        assert_eq!(error.pos.unwrap().column, 3);
        assert_eq!(enumeration(&node("a TWO"), 0, &values).unwrap(), 2);
    }

    #[test]
    fn a_field_is_set_once() {
        let mut field = None;
        set_size(&mut field, &node("a 1k")).unwrap();
        assert_eq!(field, Some(1024));
        // nginx reports this before it reads the value.
        assert_eq!(
            message(set_size(&mut field, &node("a x"))),
            "\"a\" directive is duplicate in test.conf:3"
        );
        let mut field = None;
        assert!(set_num_within(&mut field, &node("a 10"), (1, 9)).is_err());
        assert_eq!(field, None, "a refused value leaves the field unset");
        assert_eq!(
            message(set_num_within(&mut field, &node("a 0"), (1, u64::MAX))),
            "value must be equal to or greater than 1 in test.conf:3"
        );
        set_num_within(&mut field, &node("a 9"), (1, 9)).unwrap();
        assert_eq!(field, Some(9));
    }

    #[test]
    fn permissions() {
        for (words, mode) in [
            ("d user:rw", 0o600),
            ("d group:rw all:r", 0o664),
            ("d user:r group:r all:rw", 0o446),
            ("d all:rw", 0o606),
        ] {
            let mut field = None;
            set_access(&mut field, &node(words)).unwrap();
            assert_eq!(field, Some(mode), "{words}");
        }
        for bad in ["d user", "d user:", "d user:w", "d owner:rw", "d user:rwx", "d group:r x"] {
            assert!(set_access(&mut None, &node(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn buffers_and_bit_masks() {
        let mut bufs = None;
        for bad in ["b 0 4k", "b 8 0", "b x 4k", "b 8 x", "b 8"] {
            assert!(set_bufs(&mut bufs, &node(bad)).is_err(), "{bad}");
        }
        set_bufs(&mut bufs, &node("b 8 4k")).unwrap();
        assert_eq!(bufs, Some(Bufs { num: 8, size: 4096 }));
        let values = [("error", 1), ("timeout", 2)];
        let mut bits = None;
        set_bitmask(&mut bits, &node("n error"), &values).unwrap();
        set_bitmask(&mut bits, &node("n TIMEOUT"), &values).unwrap();
        assert_eq!(bits, Some(3));
        assert_eq!(
            message(set_bitmask(&mut bits, &node("n error errr"), &values)),
            "invalid value \"errr\" in test.conf:3"
        );
    }
}
