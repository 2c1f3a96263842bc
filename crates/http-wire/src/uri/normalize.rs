//! From a request target to the path that locations are compared with.
//!
//! The path is examined segment by segment, after percent-decoding: a decoded `/` or `.` counts as
//! one that was sent plain, while a decoded `?`, `#` or `%` is an ordinary character.

use super::target::class::{CLASS, USUAL};
use std::ops::Range;

/// A target that no path can be made of: a broken escape, `%00`, or `..` above the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadUri;

/// The parts of a target besides the path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    /// The arguments, as a range of the raw target; empty when there are none.
    pub args: Range<usize>,
    /// The path had a `%` (nginx's `quoted_uri`: it is escaped again when it is passed on).
    pub quoted: bool,
    /// The path has a `+`.
    pub plus: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SegmentState {
    /// Inside a segment.
    Usual,
    /// After a `/`.
    Slash,
    /// The segment is `.` so far.
    Dot,
    /// The segment is `..` so far.
    DotDot,
}

/// The output of the normalisation.
trait Sink {
    fn extend(&mut self, bytes: &[u8]);
    fn push(&mut self, byte: u8);
    /// Removes the `.` pushed last.
    fn pop(&mut self);
    /// Removes `/..` and the segment before it, and leaves the slash before that.
    fn climb(&mut self) -> Result<(), BadUri>;
}

/// The end of a vector, from `base` on.
struct Path<'v> {
    out: &'v mut Vec<u8>,
    base: usize,
}

impl Sink for Path<'_> {
    #[inline]
    fn extend(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        self.out.push(byte);
    }

    fn pop(&mut self) {
        self.out.pop();
    }

    fn climb(&mut self) -> Result<(), BadUri> {
        let end = self.out.len().checked_sub(3).ok_or(BadUri)?;
        let path = self.out.get(self.base..end).ok_or(BadUri)?;
        let parent = memchr::memrchr(b'/', path).ok_or(BadUri)?;
        self.out.truncate(self.base + parent + 1);
        Ok(())
    }
}

/// Counts the slashes of a path, which is enough to see whether `..` leaves the root.
struct Depth(usize);

impl Sink for Depth {
    fn extend(&mut self, _: &[u8]) {}

    fn push(&mut self, byte: u8) {
        self.0 += usize::from(byte == b'/');
    }

    fn pop(&mut self) {}

    fn climb(&mut self) -> Result<(), BadUri> {
        self.0 = self.0.checked_sub(1).filter(|left| *left > 0).ok_or(BadUri)?;
        Ok(())
    }
}

/// Appends the normalised path of `raw` to `out`, which is not read: percent-escapes decoded, `.`
/// and `..` segments resolved, a fragment dropped, and with `merge_slashes` runs of `/` made one.
///
/// `raw` begins with `/`, or with `?` for an absolute target without a path. The path is never
/// longer than `raw` plus one byte.
pub fn normalize(raw: &[u8], merge_slashes: bool, out: &mut Vec<u8>) -> Result<Parts, BadUri> {
    let base = out.len();
    normalize_into(raw, merge_slashes, &mut Path { out, base })
}

/// Whether [`normalize`] accepts `raw`, without making the path. For a request line, when the
/// server, and with it `merge_slashes`, is not known yet: a target refused here is refused with
/// either setting; merging slashes can refuse more.
pub(crate) fn check(raw: &[u8]) -> Result<(), BadUri> {
    normalize_into(raw, false, &mut Depth(0)).map(|_| ())
}

#[inline]
fn normalize_into(raw: &[u8], merge_slashes: bool, out: &mut impl Sink) -> Result<Parts, BadUri> {
    let mut parts = Parts::default();
    let mut state = SegmentState::Usual;
    let mut at = 0;
    if raw.first() == Some(&b'?') {
        out.push(b'/');
    }
    while let Some(&byte) = raw.get(at) {
        if CLASS[byte as usize] == USUAL {
            let run = usual_run(raw, at);
            out.extend(run);
            at += run.len();
            state = SegmentState::Usual;
            continue;
        }
        at += 1;
        let mut ch = byte;
        match byte {
            b'%' => {
                ch = unhex(raw.get(at..at + 2)).ok_or(BadUri)?;
                at += 2;
                parts.quoted = true;
                if ch == 0 {
                    return Err(BadUri);
                }
                if matches!(ch, b'%' | b'#' | b'?') {
                    out.push(ch);
                    state = SegmentState::Usual;
                    continue;
                }
            }
            b'?' => {
                let args = raw.get(at..).unwrap_or(&[]);
                let len = memchr::memchr(b'#', args).unwrap_or(args.len());
                parts.args = at..at + len;
                break;
            }
            b'#' => break,
            _ => {}
        }
        parts.plus |= ch == b'+';
        state = step(state, ch, merge_slashes, out)?;
    }
    match state {
        SegmentState::Dot => out.pop(),
        SegmentState::DotDot => out.climb()?,
        SegmentState::Usual | SegmentState::Slash => {}
    }
    Ok(parts)
}

/// Takes one character, sent plain or decoded.
#[inline]
fn step(
    state: SegmentState,
    ch: u8,
    merge: bool,
    out: &mut impl Sink,
) -> Result<SegmentState, BadUri> {
    let next = match (state, ch) {
        (SegmentState::Slash, b'/') if merge => return Ok(SegmentState::Slash),
        (SegmentState::Dot, b'/') => {
            out.pop();
            return Ok(SegmentState::Slash);
        }
        (SegmentState::DotDot, b'/') => {
            out.climb()?;
            return Ok(SegmentState::Slash);
        }
        (SegmentState::Usual | SegmentState::Slash, b'/') => SegmentState::Slash,
        (SegmentState::Slash, b'.') => SegmentState::Dot,
        (SegmentState::Dot, b'.') => SegmentState::DotDot,
        _ => SegmentState::Usual,
    };
    out.push(ch);
    Ok(next)
}

/// The bytes from `at` on that need no look.
fn usual_run(raw: &[u8], at: usize) -> &[u8] {
    let rest = raw.get(at..).unwrap_or(&[]);
    let len = rest.iter().position(|byte| CLASS[*byte as usize] != USUAL).unwrap_or(rest.len());
    rest.get(..len).unwrap_or(rest)
}

/// The byte that two hex digits stand for.
pub(super) fn unhex(digits: Option<&[u8]>) -> Option<u8> {
    let [high, low] = digits? else { return None };
    Some(hex_digit(*high)? << 4 | hex_digit(*low)?)
}

pub(crate) fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// The extension of a normalised path, the key of `types`: the text behind the last dot of the last
/// segment; a dot that begins the segment does not count.
pub fn extension(path: &[u8]) -> Option<&[u8]> {
    // Most are a few bytes: a search by words costs more than it saves.
    let dot = path.iter().rposition(|byte| matches!(byte, b'.' | b'/'))?;
    let is_first = dot.checked_sub(1).is_none_or(|before| path[before] == b'/');
    if path[dot] == b'/' || is_first { None } else { path.get(dot + 1..) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(raw: &str, merge: bool) -> Option<(String, String)> {
        let mut out = b"kept".to_vec();
        let parts = normalize(raw.as_bytes(), merge, &mut out).ok()?;
        let path = out.strip_prefix(b"kept").expect("the prefix is kept");
        let args = raw.as_bytes()[parts.args].to_vec();
        Some((path.escape_ascii().to_string(), args.escape_ascii().to_string()))
    }

    #[test]
    fn paths() {
        for (raw, path, args) in [
            ("/", "/", ""),
            ("/a", "/a", ""),
            ("/a/../b", "/b", ""),
            ("/a/./b", "/a/b", ""),
            ("/a/b/..", "/a/", ""),
            ("/a/b/../", "/a/", ""),
            ("/a/b/.", "/a/b/", ""),
            ("/foo/bar/.?args", "/foo/bar/", "args"),
            ("/foo/bar/.#frag", "/foo/bar/", ""),
            ("/foo/bar/..?args", "/foo/", "args"),
            ("/foo/bar/..#frag", "/foo/", ""),
            ("/a/...", "/a/...", ""),
            ("/a/.b", "/a/.b", ""),
            ("/a/..b", "/a/..b", ""),
            ("/a..", "/a..", ""),
            ("/a./b", "/a./b", ""),
            ("/a../b", "/a../b", ""),
            ("//a///b//", "/a/b/", ""),
            ("/a//../b", "/b", ""),
            ("/%61%2Fb", "/a/b", ""),
            ("/a%2f%2e%2E/b", "/b", ""),
            ("/a/%2e./b", "/b", ""),
            ("/a/.%2e/b", "/b", ""),
            ("/a%3fb%23c%25d?e", "/a?b#c%d", "e"),
            ("/a/%3f/..", "/a/", ""),
            ("/%2541", "/%41", ""),
            ("/a%20b+c%2b", "/a b+c+", ""),
            ("/%02%ff", "/\\x02\\xff", ""),
            ("/a?b?c%zz#d?e", "/a", "b?c%zz"),
            ("/a#b?c", "/a", ""),
            ("?args#frag", "/", "args"),
            ("?", "/", ""),
            ("/?", "/", ""),
            ("/a/?/../b", "/a/", "/../b"),
        ] {
            assert_eq!(run(raw, true), Some((path.to_owned(), args.to_owned())), "{raw}");
            assert_eq!(check(raw.as_bytes()), Ok(()), "{raw}");
        }
    }

    #[test]
    fn slashes_are_kept_when_not_merged() {
        for (raw, path) in [
            ("//a///b//", "//a///b//"),
            ("/a//../b", "/a/b"),
            ("//..", "/"),
            ("/a//..", "/a/"),
            ("//./", "//"),
            ("/%2f/a", "///a"),
        ] {
            assert_eq!(run(raw, false), Some((path.to_owned(), String::new())), "{raw}");
        }
    }

    #[test]
    fn refused() {
        for raw in [
            "/..",
            "/../",
            "/../a",
            "/a/../..",
            "/a/../../b",
            "/%2e%2e/",
            "/./..",
            "/..?a",
            "/..#",
            "/%",
            "/%1",
            "/%zz",
            "/%1g",
            "/%g1",
            "/%00",
            "/a%00b",
            "/%",
            "/a%2",
            "/a%?1",
            "/..%2f",
            "//../..",
        ] {
            assert_eq!(run(raw, true), None, "{raw}");
            assert_eq!(check(raw.as_bytes()).is_err(), run(raw, false).is_none(), "{raw}");
        }
        assert_eq!(run("//../../b", false), None);
    }

    #[test]
    fn nothing_before_the_output_is_read_or_removed() {
        let mut out = b"/secret/".to_vec();
        assert_eq!(normalize(b"/../x", true, &mut out), Err(BadUri));
        let mut out = b"/secret".to_vec();
        assert_eq!(normalize(b"/a/../../x", true, &mut out), Err(BadUri));
    }

    #[test]
    fn flags() {
        let mut out = Vec::new();
        let parts = normalize(b"/a%20+?+%20", true, &mut out).expect("valid");
        assert!(parts.quoted && parts.plus);
        let parts = normalize(b"/a/./b?+%20", true, &mut out).expect("valid");
        assert!(!parts.quoted && !parts.plus);
    }

    #[test]
    fn extensions() {
        for (path, want) in [
            ("/a.html", Some("html")),
            ("/a.tar.gz", Some("gz")),
            ("/a.b/c", None),
            ("/.htaccess", None),
            ("/.a.b", Some("b")),
            ("/a.", Some("")),
            ("/a", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(extension(path.as_bytes()), want.map(str::as_bytes), "{path}");
        }
    }
}
