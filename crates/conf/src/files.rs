//! A configuration file by file, with words as they are written: for tools that change
//! configurations. Nothing is expanded; `include` names the files by their numbers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::parse::{self, Options};
use crate::{ConfError, Node, Pos, Word, glob};

/// Files that a configuration may have.
const FILES_MAX: usize = 100_000;

/// A directive.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// Its name.
    pub directive: String,
    /// The line of its name.
    pub line: u32,
    /// Its arguments without their quotes. Escapes stay, but for those of the quotes; the
    /// parentheses of `if` go.
    pub args: Vec<String>,
    /// The numbers of the files that an `include` means.
    pub includes: Option<Vec<usize>>,
    /// The directives of its block.
    pub block: Option<Vec<Statement>>,
}

/// A fault of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// The fault, with its place.
    pub message: String,
    /// The line, where one is known.
    pub line: Option<u32>,
}

/// A file of the configuration, as it was read.
#[derive(Debug, Default)]
pub struct File {
    /// Its path; a relative one in an `include` is resolved against the main file's folder.
    pub path: PathBuf,
    /// Its faults: of its syntax, which leaves it empty, and of files that it includes.
    pub faults: Vec<Fault>,
    /// Its directives.
    pub statements: Vec<Statement>,
}

/// Reads a file and all that it includes, each file once, in the order in which they are met.
pub fn read(main: &Path) -> Vec<File> {
    let folder = main.parent().unwrap_or(Path::new("")).to_owned();
    let mut files = vec![File { path: main.to_owned(), ..File::default() }];
    let mut at = 0;
    while at < files.len() {
        let path = files[at].path.clone();
        match read_one(&path) {
            Ok((nodes, text)) => {
                let mut reader =
                    Reader { folder: &folder, text, files: &mut files, faults: vec![] };
                let statements = reader.all(&nodes);
                let faults = reader.faults;
                (files[at].statements, files[at].faults) = (statements, faults);
            }
            Err(error) => files[at].faults.push(fault(&error)),
        }
        at += 1;
    }
    files
}

fn fault(error: &ConfError) -> Fault {
    let line = error.pos.as_ref().map(|pos| pos.line);
    Fault { message: error.to_string(), line }
}

fn read_one(path: &Path) -> Result<(Vec<Node>, Text), ConfError> {
    let options = Options { keep_includes: true, ..Options::default() };
    let tree = parse::parse_file(path, &options)?;
    let bytes = tree.files.into_iter().next().map(|file| file.bytes).unwrap_or_default();
    Ok((tree.nodes, Text::new(bytes)))
}

/// The text of a file, and where its lines begin.
struct Text {
    bytes: Bytes,
    lines: Vec<usize>,
}

impl Text {
    fn new(bytes: Bytes) -> Text {
        let feeds = memchr::memchr_iter(b'\n', &bytes).map(|feed| feed + 1);
        let lines = [0].into_iter().chain(feeds).collect();
        Text { bytes, lines }
    }

    /// The text from a place on.
    fn from(&self, pos: &Pos) -> &[u8] {
        let line = self.lines.get(pos.line.saturating_sub(1) as usize).copied();
        let at = line.unwrap_or(usize::MAX).saturating_add(pos.column.saturating_sub(1) as usize);
        self.bytes.get(at..).unwrap_or_default()
    }
}

struct Reader<'a> {
    /// Where relative paths of `include` begin.
    folder: &'a Path,
    /// The text of the file.
    text: Text,
    files: &'a mut Vec<File>,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    fn all(&mut self, nodes: &[Node]) -> Vec<Statement> {
        nodes.iter().map(|node| self.one(node)).collect()
    }

    fn one(&mut self, node: &Node) -> Statement {
        let mut args: Vec<String> = node.args.iter().map(|word| self.raw(word)).collect();
        if node.name == *"if" {
            strip_parentheses(&mut args);
        }
        let is_include = node.name == *"include" && node.block.is_none();
        Statement {
            directive: self.raw(&node.name),
            line: node.name.pos.line,
            args,
            includes: is_include.then(|| self.include(node)),
            block: node.block.as_ref().map(|nodes| self.all(nodes)),
        }
    }

    /// The numbers of the files of an `include`; new ones are to be read.
    fn include(&mut self, node: &Node) -> Vec<usize> {
        let Some(word) = node.args.first() else { return Vec::new() };
        let path = self.folder.join(OsStr::from_bytes(word.bytes()));
        let pattern = path.as_os_str().as_bytes();
        let found = match glob::is_pattern(pattern) {
            true => glob::glob(pattern, FILES_MAX),
            false => match std::fs::File::open(&path) {
                Ok(_) => Some(vec![path]),
                Err(e) => {
                    let (shown, e) = (path.display(), base::log::os_error(&e));
                    let message = format!("open() \"{shown}\" failed {e}");
                    self.faults.push(fault(&ConfError::at(word, message)));
                    Some(Vec::new())
                }
            },
        };
        let found = found.unwrap_or_default();
        found.into_iter().filter_map(|path| self.number(path)).collect()
    }

    fn number(&mut self, path: PathBuf) -> Option<usize> {
        if let Some(known) = self.files.iter().position(|file| file.path == path) {
            return Some(known);
        }
        if self.files.len() >= FILES_MAX {
            return None;
        }
        self.files.push(File { path, ..File::default() });
        Some(self.files.len() - 1)
    }

    /// A word as it is written, without its quotes.
    fn raw(&self, word: &Word) -> String {
        let text = self.text.from(&word.pos);
        // A program in braces.
        if word.quoted && text.starts_with(b"{") {
            return word.lossy().into_owned();
        }
        String::from_utf8_lossy(&raw(text, word.quoted)).into_owned()
    }
}

/// The word that the text begins with.
fn raw(text: &[u8], quoted: bool) -> Vec<u8> {
    let (quote, mut at) = match (quoted, text.first()) {
        (true, Some(quote)) => (Some(*quote), 1),
        _ => (None, 0),
    };
    let mut out = Vec::new();
    while let Some(&byte) = text.get(at) {
        let next = text.get(at + 1).copied();
        match (byte, quote) {
            (b'\\', Some(quote)) if next == Some(quote) => {
                out.push(quote);
                at += 1;
            }
            (b'\\', _) => {
                out.push(byte);
                out.extend(next);
                at += 1;
            }
            (_, Some(quote)) if byte == quote => break,
            (b' ' | b'\t' | b'\r' | b'\n' | b';', None) => break,
            (b'{', None) if !out.ends_with(b"$") => break,
            _ => out.push(byte),
        }
        at += 1;
    }
    out
}

/// `["($a", "=", "b)"]` becomes `["$a", "=", "b"]`: the parentheses around a condition are no part
/// of it.
fn strip_parentheses(args: &mut Vec<String>) {
    let (Some(first), Some(last)) = (args.first(), args.last()) else { return };
    if !first.starts_with('(') || !last.ends_with(')') {
        return;
    }
    if let Some(first) = args.first_mut() {
        *first = first[1..].trim_start().to_owned();
    }
    if let Some(last) = args.last_mut() {
        *last = last.strip_suffix(')').unwrap_or(last).trim_end().to_owned();
    }
    if args.last().is_some_and(String::is_empty) {
        args.pop();
    }
    if args.first().is_some_and(String::is_empty) {
        args.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_as_they_are_written() {
        for (text, quoted, want) in [
            ("abc;", false, "abc"),
            ("\\.php$ {", false, "\\.php$"),
            ("a${b}c;", false, "a${b}c"),
            ("\"a\\\"b\\\\c\\t\";", true, "a\"b\\\\c\\t"),
            ("'it\\'s \"x\"'", true, "it's \"x\""),
            ("\"open", true, "open"),
            ("end\\", false, "end\\"),
        ] {
            assert_eq!(raw(text.as_bytes(), quoted), want.as_bytes(), "{text}");
        }
    }

    #[test]
    fn conditions_lose_their_parentheses() {
        let strip = |args: &[&str]| {
            let mut args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
            strip_parentheses(&mut args);
            args
        };
        assert_eq!(strip(&["($a", "=", "b)"]), ["$a", "=", "b"]);
        assert_eq!(strip(&["(", "$a", ")"]), ["$a"]);
        assert_eq!(strip(&["($a)"]), ["$a"]);
        assert_eq!(strip(&["(", ")"]), Vec::<String>::new());
        assert_eq!(strip(&["()"]), Vec::<String>::new());
        assert_eq!(strip(&["$a"]), ["$a"]);
    }
}
