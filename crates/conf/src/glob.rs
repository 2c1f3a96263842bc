//! File names by pattern, as glob(3) finds them without flags in the C locale: `*`, `?`, `[a-z]`,
//! `[!a]`, `[[:alpha:]]`, and `\` before a literal byte. A leading dot must be written out; results
//! are sorted by byte; unreadable directories are empty.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Whether `path` is a pattern, by nginx's rule.
pub fn is_pattern(path: &[u8]) -> bool {
    memchr::memchr3(b'*', b'?', b'[', path).is_some()
}

/// The paths that match an absolute or relative pattern; `None` when there are more than `max`, or
/// more than that many directories on the way.
pub fn glob(pattern: &[u8], max: usize) -> Option<Vec<PathBuf>> {
    let (mut found, components) = match pattern.strip_prefix(b"/") {
        Some(rest) => (vec![PathBuf::from("/")], rest),
        None => (vec![PathBuf::new()], pattern),
    };
    let mut components = components.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let mut next = components.next();
    while let Some(part) = next {
        next = components.next();
        if !is_pattern(part) && !part.contains(&b'\\') {
            found.iter_mut().for_each(|path| path.push(OsStr::from_bytes(part)));
            // Reading a component shows whether it is a directory; the last one must exist.
            if next.is_none() {
                found.retain(|path| path.symlink_metadata().is_ok());
            }
            continue;
        }
        let mut below = Vec::new();
        for directory in &found {
            matches_in(directory, part, next.is_some(), &mut below);
            if below.len() > max {
                return None;
            }
        }
        found = below;
    }
    found.sort_unstable_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    Some(found)
}

fn matches_in(directory: &Path, part: &[u8], want_directory: bool, found: &mut Vec<PathBuf>) {
    let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let Ok(entries) = fs::read_dir(here) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !matches(part, name.as_bytes()) {
            continue;
        }
        let path = directory.join(&name);
        if !want_directory || path.is_dir() {
            found.push(path);
        }
    }
}

/// Whether a file's name matches one component of a pattern.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && !matches!(pattern, [b'.', ..] | [b'\\', b'.', ..]) {
        return false;
    }
    let (mut pattern, mut name) = (pattern, name);
    // The place to go on from when the text behind the last star does not fit: one byte further
    // into the name. Only the last star matters, so the work is at most the product of the lengths.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            retry = Some((rest, name));
            pattern = rest;
            continue;
        }
        let fitting = match name.first() {
            None if pattern.is_empty() => return true,
            None => return false,
            Some(&byte) => one(pattern, byte),
        };
        match (fitting, retry) {
            (Some(rest), _) => {
                pattern = rest;
                name = &name[1..];
            }
            (None, Some((after_star, from))) => {
                let from = &from[1..];
                retry = Some((after_star, from));
                pattern = after_star;
                name = from;
            }
            (None, None) => return false,
        }
    }
}

/// Matches one byte against the first element of a pattern, which is no star; returns the rest of
/// the pattern when it fits.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', inside @ ..] => match set(inside, byte) {
            Some((true, rest)) => Some(rest),
            Some((false, _)) => None,
            // A bracket that is never closed means itself.
            None => (byte == b'[').then_some(inside),
        },
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte).then_some(rest),
    }
}

/// Reads a set behind its `[`: whether `byte` is in it, and the text behind the `]`.
fn set(inside: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (negated, mut rest) = match inside {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, inside),
    };
    let mut within = false;
    let mut first = true;
    loop {
        match rest {
            [] => return None,
            [b']', after @ ..] if !first => return Some((within != negated, after)),
            [b'[', b':', tail @ ..] => {
                let end = tail.windows(2).position(|pair| pair == b":]")?;
                within |= class(&tail[..end], byte)?;
                rest = &tail[end + 2..];
            }
            _ => {
                let (low, after) = member(rest)?;
                rest = after;
                let high = match after {
                    [b'-', b']', ..] | [b'-'] => low,
                    [b'-', tail @ ..] => {
                        let (high, after) = member(tail)?;
                        rest = after;
                        high
                    }
                    _ => low,
                };
                within |= (low..=high).contains(&byte);
            }
        }
        first = false;
    }
}

fn member(text: &[u8]) -> Option<(u8, &[u8])> {
    match text {
        [b'\\', byte, rest @ ..] | [byte, rest @ ..] => Some((*byte, rest)),
        [] => None,
    }
}

fn class(name: &[u8], byte: u8) -> Option<bool> {
    Some(match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte == b' ' || byte.is_ascii_graphic(),
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_against_patterns() {
        for (pattern, name, fits) in [
            ("*", "a.conf", true),
            ("*", "", true),
            ("*", ".hidden", false),
            (".*", ".hidden", true),
            ("\\.*", ".hidden", true),
            ("?hidden", ".hidden", false),
            ("[.]hidden", ".hidden", false),
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("*.conf", ".conf", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[a-c]x", "dx", false),
            ("[!a-c]x", "dx", true),
            ("[^a-c]x", "bx", false),
            ("[]a]", "]", true),
            ("[!]a]", "b", true),
            ("[a-]", "-", true),
            ("[[:digit:][:upper:]]", "7", true),
            ("[[:digit:][:upper:]]", "Q", true),
            ("[[:digit:]]", "q", false),
            ("[[:nonsense:]", "[", false),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxcxxb", false),
            ("ab", "abc", false),
            ("abc", "ab", false),
            ("a\\", "a\\", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = "*a".repeat(100) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(200).as_bytes()));
    }

    #[test]
    fn files_are_found_sorted() {
        let top = std::env::temp_dir().join(format!("weir-glob-{}", std::process::id()));
        for directory in ["b", "a", "empty"] {
            fs::create_dir_all(top.join(directory)).unwrap();
        }
        for file in ["b/1.conf", "a/2.conf", "a/10.conf", "a/.x.conf", "a/no", "plain.conf"] {
            fs::write(top.join(file), "").unwrap();
        }
        let find = |pattern: &str, max: usize| -> Vec<String> {
            let found = glob(top.join(pattern).as_os_str().as_bytes(), max).unwrap();
            let names = found.iter().map(|path| path.strip_prefix(&top).unwrap());
            names.map(|path| path.to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(find("*/*.conf", 100), ["a/10.conf", "a/2.conf", "b/1.conf"]);
        assert_eq!(find("*/2.conf", 100), ["a/2.conf"]);
        assert_eq!(find("*", 100), ["a", "b", "empty", "plain.conf"]);
        assert_eq!(find("x*", 100), [""; 0]);
        assert_eq!(find("nowhere/*.conf", 100), [""; 0]);
        assert_eq!(find("plain.conf/*", 100), [""; 0]);
        assert_eq!(glob(top.join("*/*.conf").as_os_str().as_bytes(), 2), None);
        fs::remove_dir_all(&top).unwrap();
    }
}
