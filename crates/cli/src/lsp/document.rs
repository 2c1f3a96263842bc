//! A text of the editor's: its name, its file, and places in it.

use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// A file by device and inode, whatever its name.
pub(crate) type Identity = (u64, u64);

/// A text that is open in the editor.
#[derive(Debug)]
pub(crate) struct Document {
    /// The editor's name for it.
    pub(crate) uri: String,
    /// Its file, if it is one.
    pub(crate) path: Option<PathBuf>,
    pub(crate) text: String,
}

impl Document {
    /// A text by its name.
    pub(crate) fn new(uri: &str, text: &str) -> Document {
        Document { uri: uri.to_owned(), path: path_of(uri), text: text.to_owned() }
    }

    /// Its file on disk.
    pub(crate) fn identity(&self) -> Option<Identity> {
        identity(self.path.as_deref()?)
    }

    /// The byte at a position of the editor's.
    pub(crate) fn offset(&self, position: &Value) -> usize {
        let number = |name: &str| {
            let number = position.get(name).and_then(Value::as_u64).unwrap_or(0);
            usize::try_from(number).unwrap_or(usize::MAX)
        };
        let (line, units) = (number("line"), number("character"));
        let start = match line.checked_sub(1) {
            None => 0,
            Some(before) => match self.text.match_indices('\n').nth(before) {
                Some((at, _)) => at + 1,
                None => return self.text.len(),
            },
        };
        let rest = &self.text[start..];
        let line = rest.split('\n').next().unwrap_or_default();
        let mut left = units;
        for (at, c) in line.char_indices() {
            if left < c.len_utf16() {
                return start + at;
            }
            left -= c.len_utf16();
        }
        start + line.len()
    }
}

/// A file's device and inode.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// The file of a `file:` URI.
fn path_of(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let rest = &rest[rest.find('/')?..];
    let mut bytes = Vec::with_capacity(rest.len());
    let mut text = rest.as_bytes();
    while let Some((&byte, behind)) = text.split_first() {
        let code = behind.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| byte == b'%') {
            Some(decoded) => {
                bytes.push(decoded);
                text = &behind[2..];
            }
            None => {
                bytes.push(byte);
                text = behind;
            }
        }
    }
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

/// The `file:` URI of a path.
pub(crate) fn uri_of(path: &Path) -> String {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut uri = "file://".to_owned();
    for &byte in whole.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// The editor's range of bytes of a text.
pub(crate) fn range(text: &str, start: usize, end: usize) -> Value {
    json!({"start": position(text, start), "end": position(text, end.max(start))})
}

fn position(text: &str, offset: usize) -> Value {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line = before.matches('\n').count();
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    json!({"line": line, "character": before[start..].encode_utf16().count()})
}

/// The byte of a line and a column, both from 1; a column of 0 is the line's first word.
pub(crate) fn offset_of(text: &str, line: u32, column: u32) -> usize {
    let before = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let mut starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
    let start = starts.nth(before).unwrap_or(text.len());
    let blanks = || text[start..].len() - text[start..].trim_start_matches([' ', '\t']).len();
    let column = match column.checked_sub(1) {
        Some(column) => usize::try_from(column).unwrap_or(0),
        None => blanks(),
    };
    (start + column).min(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let text = "a\n\u{20ac}\u{1f600}b c\n";
        let document = Document::new("untitled:x", text);
        let at = |line: u32, character: u32| {
            document.offset(&json!({"line": line, "character": character}))
        };
        assert_eq!((at(0, 0), at(0, 9), at(1, 0)), (0, 1, 2));
        assert_eq!(at(1, 3), text.find('b').unwrap_or(0));
        assert_eq!(at(1, 2), text.find('\u{1f600}').unwrap_or(0), "half a character");
        assert_eq!((at(2, 5), at(9, 9)), (text.len(), text.len()));
        assert_eq!(document.offset(&json!(null)), 0);
        let b = text.find('b').unwrap_or(0);
        let want =
            json!({"start": {"line": 1, "character": 3}, "end": {"line": 1, "character": 4}});
        assert_eq!(range(text, b, b + 1), want);
        assert_eq!(offset_of("a\n  b\n", 2, 0), 4);
        assert_eq!((offset_of("a\n  b\n", 2, 3), offset_of("a", 7, 7)), (4, 1));
    }

    #[test]
    fn names() {
        let path = Path::new("/a b/\u{fc}.conf");
        assert_eq!(uri_of(path), "file:///a%20b/%C3%BC.conf");
        assert_eq!(path_of("file:///a%20b/%C3%BC.conf").as_deref(), Some(path));
        assert_eq!(path_of("file://host/a%").as_deref(), Some(Path::new("/a%")));
        assert_eq!(path_of("untitled:a"), None);
    }
}
