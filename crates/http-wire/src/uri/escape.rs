//! Percent-escaping, in the kinds that nginx has, and its inverse.

use super::normalize::{BadUri, hex_digit, unhex};
use std::ops::Range;

/// The destination that a string is escaped for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Escape {
    /// A path: everything that may not stand in one, and `?`, `#`, `%`.
    Uri,
    /// Arguments: as `Uri`, and `&`, `+`, `;`.
    Args,
    /// One component: all but letters, digits, `-`, `.`, `_`, `~`.
    UriComponent,
    /// A link in an HTML page: as `Uri` without `?`, and `'`.
    Html,
    /// The target of a meta refresh: `%` and `#` stay.
    Refresh,
    /// A memcached key: control characters, space and `%`.
    Memcached,
}

type Table = [bool; 256];

static URI: Table = table(b" \"#%<>?\\^`{|}", true);
static ARGS: Table = table(b" \"#%<>?\\^`{|}&+;", true);
static COMPONENT: Table = table(b" !\"#$%&'()*+,/:;<=>?@[\\]^`{|}", true);
static HTML: Table = table(b" \"#%<>\\^`{|}'", true);
static REFRESH: Table = table(b" \"<>\\^`{|~'", true);
static MEMCACHED: Table = table(b" %", false);

/// Control characters and those of `more`; with `high`, DEL and all bytes above as well.
const fn table(more: &[u8], high: bool) -> Table {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = i < 0x20 || (high && i >= 0x7f);
        i += 1;
    }
    let mut i = 0;
    while i < more.len() {
        table[more[i] as usize] = true;
        i += 1;
    }
    table
}

impl Escape {
    fn table(self) -> &'static Table {
        match self {
            Escape::Uri => &URI,
            Escape::Args => &ARGS,
            Escape::UriComponent => &COMPONENT,
            Escape::Html => &HTML,
            Escape::Refresh => &REFRESH,
            Escape::Memcached => &MEMCACHED,
        }
    }

    /// The number of bytes of `src` that need escaping; each makes the result two bytes longer.
    pub fn count(self, src: &[u8]) -> usize {
        let table = self.table();
        src.iter().filter(|byte| table[**byte as usize]).count()
    }
}

/// Appends `src`, escaped, to `out`.
pub fn escape(src: &[u8], kind: Escape, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let table = kind.table();
    let mut rest = src;
    while let Some(at) = rest.iter().position(|byte| table[*byte as usize]) {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((&byte, tail)) = tail.split_first() else { return };
        out.extend_from_slice(&[b'%', HEX[(byte >> 4) as usize], HEX[(byte & 15) as usize]]);
        rest = tail;
    }
    out.extend_from_slice(rest);
}

/// Appends `src` to `out` with `<`, `>`, `&` and `"` as entities.
pub fn escape_html(src: &[u8], out: &mut Vec<u8>) {
    for byte in src {
        match byte {
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            _ => out.push(*byte),
        }
    }
}

/// The source of an escaped string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unescape {
    /// Everything.
    All,
    /// Everything up to a `?`, sent plain or decoded, where decoding ends: a rewritten URI.
    Uri,
    /// As `Uri`, but only bytes that can stand in a Location unescaped: `&` to `~`.
    Redirect,
}

/// Appends `src`, decoded, to `out` and returns the number of bytes taken from `src`: all, unless
/// the mode ends at a `?`, which is the last byte appended then.
///
/// A broken escape loses its `%` and its digits, as in nginx: strings of the configuration and of
/// upstreams come here; those of clients go through [`super::normalize`].
pub fn unescape(src: &[u8], mode: Unescape, out: &mut Vec<u8>) -> usize {
    let mut at = 0;
    while let Some(&byte) = src.get(at) {
        at += 1;
        if byte != b'%' {
            out.push(byte);
            if byte == b'?' && mode != Unescape::All {
                return at;
            }
            continue;
        }
        let Some(first) = src.get(at) else { break };
        if hex_digit(*first).is_none() {
            out.push(*first);
            at += 1;
            continue;
        }
        let digits = src.get(at..at + 2);
        at += 2;
        let Some(decoded) = unhex(digits) else { continue };
        let ends = decoded == b'?' && mode != Unescape::All;
        if mode == Unescape::Redirect && !ends && !(b'&'..0x7f).contains(&decoded) {
            out.push(b'%');
            out.extend_from_slice(digits.unwrap_or(&[]));
        } else {
            out.push(decoded);
        }
        if ends {
            return at;
        }
    }
    at.min(src.len())
}

/// Makes a path of a URI that an upstream or a page gave for an internal redirect: appends the
/// path, decoded, to `out` and returns the arguments as a range of `uri`.
///
/// Refused are an empty path (before or after decoding), NUL, and `..` as a segment, plain or
/// decoded.
pub fn parse_unsafe(uri: &[u8], out: &mut Vec<u8>) -> Result<Range<usize>, BadUri> {
    let base = out.len();
    let path_len = memchr::memchr(b'?', uri).unwrap_or(uri.len());
    let path = uri.get(..path_len).unwrap_or(uri);
    unescape(path, Unescape::All, out);
    let decoded = out.get(base..).unwrap_or(&[]);
    let climbs = |path: &[u8]| path.split(|byte| *byte == b'/').any(|segment| segment == b"..");
    if decoded.is_empty() || memchr::memchr(0, decoded).is_some() || climbs(path) || climbs(decoded)
    {
        out.truncate(base);
        return Err(BadUri);
    }
    Ok((path_len + 1).min(uri.len())..uri.len())
}

/// Whether two hexadecimal digits follow each `%` of a path: decoding passes over what `%zz`
/// lacks, and the path would be one that nobody asked for.
pub fn has_whole_escapes(path: &[u8]) -> bool {
    let is_whole = |at: usize| {
        path.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    memchr::memchr_iter(b'%', path).all(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_whole() {
        assert!(has_whole_escapes(b"/a%20b%C3%a9") && has_whole_escapes(b"/plain"));
        for cut in ["/%zz", "/a%2", "/a%", "/%%20"] {
            assert!(!has_whole_escapes(cut.as_bytes()), "{cut}");
        }
    }

    /// The printable ASCII characters that each kind escapes, and whether it escapes control and
    /// high bytes.
    #[test]
    fn kinds() {
        let escaped = |kind: Escape| -> String {
            (0x20..0x7f_u8).filter(|b| kind.count(&[*b]) == 1).map(char::from).collect()
        };
        for (kind, want, del, high) in [
            (Escape::Uri, " \"#%<>?\\^`{|}", true, true),
            (Escape::Args, " \"#%&+;<>?\\^`{|}", true, true),
            (Escape::UriComponent, " !\"#$%&'()*+,/:;<=>?@[\\]^`{|}", true, true),
            (Escape::Html, " \"#%'<>\\^`{|}", true, true),
            (Escape::Refresh, " \"'<>\\^`{|~", true, true),
            (Escape::Memcached, " %", false, false),
        ] {
            assert_eq!(escaped(kind), want, "{kind:?}");
            assert_eq!(kind.count(&[0x7f]) == 1, del, "{kind:?}");
            for byte in 0x80..=0xff {
                assert_eq!(kind.count(&[byte]) == 1, high, "{kind:?}");
            }
            assert_eq!(kind.count(&(0..0x20).collect::<Vec<u8>>()), 0x20, "{kind:?}");
        }
    }

    #[test]
    fn escapes_are_written_in_capitals() {
        let mut out = b"x".to_vec();
        escape(b"/a b\xff?\n", Escape::Uri, &mut out);
        assert_eq!(out, b"x/a%20b%FF%3F%0A");
        out.clear();
        escape_html(b"<a href=\"x\">&'", &mut out);
        assert_eq!(out, b"&lt;a href=&quot;x&quot;&gt;&amp;'");
    }

    #[test]
    fn unescaping() {
        for (src, mode, want, taken) in [
            ("/a%20b%3f%2F?c%20", Unescape::All, "/a b?/?c ", 17),
            ("/a%20b?c%20", Unescape::Uri, "/a b?", 7),
            ("/a%3Fb%20", Unescape::Uri, "/a?", 5),
            ("/a%20%41%7e%7f%25%26%80?b", Unescape::Redirect, "/a%20A~%7f%25&%80?", 24),
            ("/a%3fb", Unescape::Redirect, "/a?", 5),
            ("%", Unescape::All, "", 1),
            ("a%4", Unescape::All, "a", 3),
            ("a%zb", Unescape::All, "azb", 4),
            ("a%4zb", Unescape::All, "ab", 5),
            ("a%%41", Unescape::All, "a%41", 5),
        ] {
            let mut out = Vec::new();
            assert_eq!(unescape(src.as_bytes(), mode, &mut out), taken, "{src}");
            assert_eq!(String::from_utf8_lossy(&out), want, "{src}");
        }
    }

    #[test]
    fn escape_and_unescape_are_inverse() {
        let all: Vec<u8> = (0..=255).collect();
        for kind in [Escape::Uri, Escape::Args, Escape::UriComponent, Escape::Html] {
            let (mut escaped, mut back) = (Vec::new(), Vec::new());
            escape(&all, kind, &mut escaped);
            assert_eq!(escaped.len(), all.len() + 2 * kind.count(&all));
            unescape(&escaped, Unescape::All, &mut back);
            assert_eq!(back, all, "{kind:?}");
        }
    }

    #[test]
    fn unsafe_uris() {
        for (uri, want) in [
            ("/a/b?c=d", Some(("/a/b", "c=d"))),
            ("/a%20b", Some(("/a b", ""))),
            ("/a/..b/b..", Some(("/a/..b/b..", ""))),
            ("/a?..", Some(("/a", ".."))),
            ("/a?/../", Some(("/a", "/../"))),
            ("a/b", Some(("a/b", ""))),
            ("", None),
            ("?a", None),
            ("%", None),
            ("..", None),
            ("../a", None),
            ("/a/../b", None),
            ("/a/..", None),
            ("/a/..?x", None),
            ("/a/%2e%2e/b", None),
            ("/a%2f..", None),
            ("/a\0b", None),
            ("/a%00b", None),
        ] {
            let mut out = Vec::new();
            let args = parse_unsafe(uri.as_bytes(), &mut out).ok();
            let got = args.map(|range| (String::from_utf8_lossy(&out).into_owned(), &uri[range]));
            assert_eq!(got, want.map(|(path, args)| (path.to_owned(), args)), "{uri}");
        }
    }
}
