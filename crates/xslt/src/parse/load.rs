//! External entities, from files alone.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::encoding::decode;
use crate::frozen::Frozen;

/// Reads entities of one document, each once. What cannot be read is empty.
pub(super) struct Loader {
    /// Whether anything is read.
    is_on: bool,
    /// The bytes that all may have together.
    left: Cell<usize>,
    texts: Frozen<String>,
    known: RefCell<HashMap<PathBuf, Option<u32>>>,
    notes: RefCell<Vec<String>>,
}

/// The most notes of a document.
const NOTES_MAX: usize = 10;

impl Loader {
    /// Reads so many bytes at most, and nothing unless `is_on`.
    pub(super) fn new(is_on: bool, bytes_max: usize) -> Self {
        let left = Cell::new(bytes_max);
        let (known, notes) = (RefCell::default(), RefCell::default());
        Loader { is_on, left, texts: Frozen::default(), known, notes }
    }

    /// What was not read, for the log.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.take()
    }

    fn note(&self, uri: &str, why: &str) {
        let mut notes = self.notes.borrow_mut();
        let uri: String = uri.chars().take(200).collect();
        let note = format!("external entity \"{}\" {why}", uri.escape_debug());
        if notes.len() < NOTES_MAX && !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// The text of a system identifier that stands in the file `base`.
    pub(super) fn text(&self, base: Option<&str>, uri: &str) -> Option<&str> {
        if !self.is_on {
            self.note(uri, "is not read (xml_external_entities)");
            return None;
        }
        let Some(path) = path_of(base, uri) else {
            self.note(uri, "is no file, and is not read");
            return None;
        };
        let known = self.known.borrow().get(&path).copied();
        let at = known.unwrap_or_else(|| {
            let at = self.read(&path).map(|text| self.texts.push(text));
            if at.is_none() {
                self.note(uri, "cannot be read");
            }
            self.known.borrow_mut().insert(path, at);
            at
        });
        self.texts.get(at?).map(String::as_str)
    }

    fn read(&self, path: &Path) -> Option<String> {
        let bytes = read_file(path, self.left.get()).ok()?;
        self.left.set(self.left.get().saturating_sub(bytes.len()));
        Some(decode(&bytes, true).ok()?.text().to_owned())
    }
}

/// A file's bytes; an error where it is no regular file, or larger than it may be.
pub(crate) fn read_file(path: &Path, bytes_max: usize) -> std::io::Result<Vec<u8>> {
    // A pipe would be waited for.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(std::io::Error::other("it is too large"));
    }
    Ok(bytes)
}

/// The file that a system identifier in the file `base` means; `None` where it is none.
pub(crate) fn path_of(base: Option<&str>, uri: &str) -> Option<PathBuf> {
    if let Some(rest) = uri.strip_prefix("file:") {
        let rest = match rest.strip_prefix("//") {
            Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
            None => rest,
        };
        return rest.starts_with('/').then(|| unescaped(rest).into());
    }
    (!has_scheme(uri) && !uri.is_empty()).then(|| resolve(base, &unescaped(uri)).into())
}

/// Whether a reference begins with a scheme (RFC 3986, section 3.1).
fn has_scheme(uri: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    uri.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// A reference as seen from the folder of the file that it stands in.
pub(super) fn resolve(base: Option<&str>, uri: &str) -> String {
    match base.and_then(|base| base.rsplit_once('/')) {
        Some((folder, _)) if !uri.starts_with('/') && !has_scheme(uri) => {
            format!("{folder}/{uri}")
        }
        _ => uri.to_owned(),
    }
}

/// The text without its percent signs (RFC 3986, section 2.1); as it is where that is no UTF-8.
fn unescaped(text: &str) -> String {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let mut all = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        let escaped = digit(bytes.get(at)).zip(digit(bytes.get(at + 1)));
        match escaped.filter(|_| *byte == b'%') {
            Some((high, low)) => {
                all.push((high * 16 + low) as u8);
                at += 2;
            }
            None => all.push(*byte),
        }
    }
    String::from_utf8(all).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Folder;

    #[test]
    fn references_are_resolved() {
        let cases = [
            (None, "a.ent", Some("a.ent")),
            (Some("/x/d.xml"), "a.ent", Some("/x/a.ent")),
            (Some("d.xml"), "../a.ent", Some("../a.ent")),
            (Some("x/d.xml"), "/a.ent", Some("/a.ent")),
            (Some("/x/d.xml"), "a%20b.ent", Some("/x/a b.ent")),
            (Some("/x/d.xml"), "file:///a%20b.ent", Some("/a b.ent")),
            (Some("/x/d.xml"), "file:/a%zz", Some("/a%zz")),
            (None, "file://localhost/a", Some("/a")),
            (None, "file://elsewhere/a", None),
            (None, "file:a", None),
            (None, "http://localhost/a", None),
            (None, "ftp:a", None),
            (None, "", None),
        ];
        for (base, uri, path) in cases {
            assert_eq!(path_of(base, uri), path.map(PathBuf::from), "{uri}");
        }
    }

    #[test]
    fn files_are_read_once_and_bounded() {
        let large = "x".repeat(100);
        let files = [("a", "\u{feff}<?xml encoding='utf-8'?>1\r\n2"), ("large", &*large)];
        let folder = Folder::with(&files);
        let base = folder.file("d.xml");
        let base = Some(&*base);
        let loader = Loader::new(true, 60);
        assert_eq!(loader.text(base, "a"), Some("1\n2"));
        assert_eq!(loader.text(base, "a"), Some("1\n2"));
        for gone in ["large", "nothing", ".", "/dev/zero"] {
            assert_eq!(loader.text(base, gone), None, "{gone}");
        }
        assert_eq!(Loader::new(false, 60).text(base, "a"), None);
    }
}
