//! Configuration errors: nginx's one-line form, and a longer one for people at a terminal.

use std::fmt;

use base::log::Level;
use bytes::Bytes;

use crate::{Node, Pos, SourceFile, Word};

/// An error in a configuration, with its place.
///
/// `Display` is nginx's `MESSAGE in FILE:LINE`.
#[derive(Clone, Debug)]
pub struct ConfError {
    /// The message, in nginx's words where nginx has any.
    pub message: String,
    /// The place; `None` when the error concerns no place in particular.
    pub pos: Option<Pos>,
    /// The length of the marked text in bytes, from `pos` on; at least one is marked.
    pub len: u32,
    /// A suggestion: `did you mean "x"?`.
    pub help: Option<String>,
    /// The line of `pos`, when the maker of the error had it at hand.
    pub line_text: Option<Bytes>,
    /// The probable cause, where it is at another place: a line above that lacks its `;`.
    pub cause: Option<Box<ConfError>>,
}

/// A message is cut to this many bytes, as in nginx, so that a log line has room for its place.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The width a source line is cut to around its caret.
const SHOWN_WIDTH: usize = 100;

impl ConfError {
    /// An error about no place in particular.
    pub fn new(message: impl Into<String>) -> ConfError {
        ConfError {
            message: message.into(),
            pos: None,
            len: 0,
            help: None,
            line_text: None,
            cause: None,
        }
    }

    /// `MESSAGE in FILE:LINE` with the caret under `word`.
    #[cold]
    pub fn at(word: &Word, message: impl Into<String>) -> ConfError {
        let quotes = if word.quoted { 2 } else { 0 };
        let len = u32::try_from(word.text.len()).unwrap_or(u32::MAX).saturating_add(quotes);
        ConfError { pos: Some(word.pos.clone()), len, ..ConfError::new(message) }
    }

    /// An error about `len` bytes at `offset` in the word's text. Escapes before it are not
    /// counted.
    #[cold]
    pub fn within(word: &Word, offset: usize, len: usize, message: impl Into<String>) -> ConfError {
        let mut error = ConfError::at(word, message);
        if let Some(pos) = &mut error.pos
            && pos.column != 0
        {
            let offset = u32::try_from(offset).unwrap_or(0) + u32::from(word.quoted);
            pos.column = pos.column.saturating_add(offset);
            error.len = u32::try_from(len).unwrap_or(1);
        }
        error
    }

    /// `MESSAGE in FILE:LINE` about a place that is no word.
    #[cold]
    pub fn at_pos(pos: Pos, len: u32, message: impl Into<String>) -> ConfError {
        ConfError { pos: Some(pos), len, ..ConfError::new(message) }
    }

    /// `"NAME" directive WHAT in FILE:LINE`, such as `ConfError::directive(node, "is duplicate")`.
    #[cold]
    pub fn directive(node: &Node, what: impl fmt::Display) -> ConfError {
        let name = node.name.lossy();
        ConfError::at(&node.name, format!("\"{name}\" directive {what}"))
    }

    /// The same with the caret under the argument at `index` from 0.
    #[cold]
    pub fn argument(node: &Node, index: usize, what: impl fmt::Display) -> ConfError {
        let error = ConfError::directive(node, what);
        match node.args.get(index) {
            Some(word) => ConfError::at(word, error.message),
            None => error,
        }
    }

    /// Adds a line of advice.
    pub fn or_at(self, word: &Word) -> ConfError {
        match self.pos {
            Some(_) => self,
            None => ConfError { help: self.help, ..ConfError::at(word, self.message) },
        }
    }

    /// Adds advice.
    pub fn with_help(mut self, help: impl Into<String>) -> ConfError {
        self.help = Some(help.into());
        self
    }

    /// The error for people: the message with its place, the source line with a caret, the advice;
    /// without the cause.
    /// Ends in a line feed. Control characters of the source are not passed on to the terminal.
    pub fn render_terminal(&self, sources: &[SourceFile]) -> String {
        let mut out = String::new();
        push_clean(&mut out, self.to_string().as_bytes());
        out.push('\n');
        let line = self.pos.as_ref().and_then(|pos| self.source_line(pos, sources));
        if let (Some(pos), Some(line)) = (&self.pos, line) {
            snippet(&mut out, pos, self.len, &line);
        }
        if let Some(help) = &self.help {
            out.push_str("  help: ");
            push_clean(&mut out, help.as_bytes());
            out.push('\n');
        }
        out
    }

    fn source_line(&self, pos: &Pos, sources: &[SourceFile]) -> Option<Bytes> {
        if let Some(line) = &self.line_text {
            return Some(line.clone());
        }
        let source = sources.iter().find(|source| source.path == pos.file)?;
        line_of(&source.bytes, pos.line)
    }
}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(cut(&self.message, MESSAGE_BYTES_MAX))?;
        match &self.pos {
            Some(pos) => write!(f, " in {pos}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConfError {}

/// Logs `MESSAGE in FILE:LINE` at `warn` to this thread's default log: for configuration that is
/// odd but works.
#[cold]
pub fn warn(word: &Word, message: impl fmt::Display) {
    base::log!(base::log::default(), Level::Warn, None, "{message} in {}", word.pos);
}

/// At most `max` bytes of a text, whole characters.
fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A word's text for advice: shortened where the word is a file that lacks its semicolon.
pub(crate) fn short(word: &Word) -> String {
    const SHOWN_BYTES: usize = 64;
    if word.text.len() <= SHOWN_BYTES {
        return word.lossy().into_owned();
    }
    format!("{}...", String::from_utf8_lossy(&word.text[..SHOWN_BYTES]))
}

/// The text of a line (from 1) without its end.
pub(crate) fn line_of(text: &Bytes, line: u32) -> Option<Bytes> {
    let mut start = 0;
    for _ in 1..line {
        start += memchr::memchr(b'\n', &text[start..])? + 1;
    }
    let len = memchr::memchr(b'\n', &text[start..]).unwrap_or(text.len() - start);
    let mut end = start + len;
    if text[start..end].ends_with(b"\r") {
        end -= 1;
    }
    Some(text.slice(start..end))
}

/// Draws the line with its number and, below, carets under the bytes that are meant.
fn snippet(out: &mut String, pos: &Pos, len: u32, line: &[u8]) {
    let at = (pos.column.max(1) as usize - 1).min(line.len());
    let end = at.saturating_add(len.max(1) as usize).min(line.len()).max(at);
    // A line much longer than the terminal is shown from a little before the place.
    let start = if end <= SHOWN_WIDTH { 0 } else { at.saturating_sub(SHOWN_WIDTH / 2) };
    let stop = line.len().min(start + SHOWN_WIDTH);
    let number = if pos.line == 0 { String::new() } else { pos.line.to_string() };
    out.push_str(&format!("  {number} | "));
    let margin = number.len() + 5;
    if start > 0 {
        out.push_str("...");
    }
    let before = push_clean(out, &line[start..at]) + if start > 0 { 3 } else { 0 };
    let marked = push_clean(out, &line[at..end.min(stop).max(at)]).max(1);
    push_clean(out, &line[end.min(stop).max(at)..stop]);
    if stop < line.len() {
        out.push_str("...");
    }
    out.push('\n');
    if pos.column != 0 {
        out.push_str(&" ".repeat(margin - 2));
        out.push_str("| ");
        out.push_str(&" ".repeat(before));
        out.push_str(&"^".repeat(marked));
        out.push('\n');
    }
}

/// Appends text with control characters made visible; returns its width in columns, one for each
/// character.
fn push_clean(out: &mut String, text: &[u8]) -> usize {
    let mut columns = 0;
    for c in String::from_utf8_lossy(text).chars() {
        columns += 1;
        match c {
            '\t' => {
                columns += 3;
                out.push_str("    ");
            }
            // Control characters, and marks that change the direction of text.
            c if c.is_control() => out.push('\u{fffd}'),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push('\u{fffd}');
            }
            c => out.push(c),
        }
    }
    columns
}
