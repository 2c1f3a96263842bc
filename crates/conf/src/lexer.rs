//! Words and the ends of statements, as nginx reads them.
//!
//! A statement is words up to `;` or `{`. A word is bare or in quotes of either kind; `\` makes the
//! next byte literal; `#` begins a comment where a word could begin; the brace of `${` belongs to
//! the word. Variables are not interpreted here.

use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;

use crate::error::{line_of, short};
use crate::tokens::{Kind, Token};
use crate::{ConfError, Pos, Word, semicolon};

/// A word of this many bytes is refused, as in nginx, whose buffer it would fill: usually a quote
/// is missing.
const WORD_BYTES_MAX: usize = 4096;

/// The byte order mark that some editors write at the start of UTF-8 files.
pub(crate) const BOM: &[u8] = b"\xEF\xBB\xBF";

/// The end of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `;`
    Semicolon,
    /// `{`
    Open,
    /// `}`, which is a statement of its own
    Close,
    /// The text is over.
    Eof,
}

/// Cuts one file, or the command line's parameters, into statements.
pub(crate) struct Lexer {
    text: Bytes,
    file: Rc<Path>,
    /// Where the next byte is.
    at: usize,
    /// The line of `at`; stays 0 in the command line, which has none.
    line: u32,
    line_start: usize,
}

impl Lexer {
    /// Reads a file's text.
    pub fn new(file: Rc<Path>, text: Bytes) -> Lexer {
        Lexer { text, file, at: 0, line: 1, line_start: 0 }
    }

    /// Reads the argument of `-g`.
    pub(crate) fn for_params(text: Bytes) -> Lexer {
        Lexer { text, file: Path::new("command line").into(), at: 0, line: 0, line_start: 0 }
    }

    /// The text is the command line's.
    pub(crate) fn is_params(&self) -> bool {
        self.line == 0
    }

    /// The file that is read.
    pub fn file(&self) -> &Rc<Path> {
        &self.file
    }

    /// Reads the next statement into `words`, which is empty for `}` and at the end.
    ///
    /// # Errors
    ///
    /// nginx's, about unexpected text, a word that is too long, and a missing end.
    pub fn statement(&mut self, words: &mut Vec<Word>) -> Result<End, ConfError> {
        words.clear();
        if self.at == 0 && self.text.starts_with(BOM) {
            return Err(self.byte_order_mark());
        }
        loop {
            self.skip_blanks();
            let Some(&byte) = self.text.get(self.at) else {
                return match words.first() {
                    None => Ok(End::Eof),
                    Some(first) => Err(semicolon::explain(self.ends_within(first), words)),
                };
            };
            match byte {
                b';' | b'{' if words.is_empty() => return Err(self.unexpected()),
                b'}' => {
                    if let Some(first) = words.first() {
                        let error = self.unexpected().with_help(not_ended(first));
                        return Err(semicolon::explain(error, words));
                    }
                    self.at += 1;
                    return Ok(End::Close);
                }
                b';' => {
                    self.at += 1;
                    return Ok(End::Semicolon);
                }
                b'{' => {
                    self.at += 1;
                    return Ok(End::Open);
                }
                b'"' | b'\'' => words.push(self.quoted(byte)?),
                _ => {
                    let word = self.bare(words.first())?;
                    words.push(word);
                }
            }
        }
    }

    /// Reads the Lua program of a block, whose `{` has just been read, up to its `}`: one word,
    /// as crossplane has it. Braces in strings and comments of Lua are not counted.
    ///
    /// # Errors
    ///
    /// The text ends within the program.
    pub fn lua(&mut self, name: &Word) -> Result<Word, ConfError> {
        let (start, pos) = (self.at, self.pos(self.at - 1));
        let mut depth = 0_usize;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'}' if depth == 0 => {
                    let text = self.text.slice(start..self.at);
                    self.at += 1;
                    return Ok(Word { text, pos, quoted: true });
                }
                b'}' => depth -= 1,
                b'{' => depth += 1,
                _ => {}
            }
            let len = lua_token(&self.text[self.at..]);
            for _ in 0..len {
                match self.text[self.at] {
                    b'\n' => self.line_feed(self.at),
                    0 => return Err(self.error_here(1, "unexpected NUL byte")),
                    _ => {}
                }
                self.at += 1;
            }
        }
        let help = format!("the block \"{}\" in line {} is not closed", short(name), name.pos.line);
        Err(self.error_at_end("unexpected end of file, expecting \"}\"").with_help(help))
    }

    /// Reads the next token, comments included, of a text that [`Lexer::statement`] accepts.
    ///
    /// # Errors
    ///
    /// Those of words.
    pub(crate) fn token(&mut self) -> Result<Option<Token>, ConfError> {
        if self.at == 0 && self.text.starts_with(BOM) {
            self.at = BOM.len();
        }
        loop {
            let start = self.at;
            let Some(&byte) = self.text.get(start) else { return Ok(None) };
            let kind = match byte {
                b'\n' => {
                    self.line_feed(start);
                    self.at += 1;
                    continue;
                }
                b' ' | b'\t' | b'\r' => {
                    self.at += 1;
                    continue;
                }
                b'#' => {
                    let rest = &self.text[start..];
                    self.at += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                    Kind::Comment
                }
                b';' | b'{' | b'}' => {
                    self.at += 1;
                    match byte {
                        b';' => Kind::Semicolon,
                        b'{' => Kind::Open,
                        _ => Kind::Close,
                    }
                }
                b'"' | b'\'' => self.quoted(byte).map(|_| Kind::Word)?,
                _ => self.bare(None).map(|_| Kind::Word)?,
            };
            return Ok(Some(Token { kind, start, end: self.at }));
        }
    }

    #[cold]
    fn byte_order_mark(&self) -> ConfError {
        let message = "the file begins with a byte order mark (the bytes EF BB BF), \
                       which is not allowed";
        self.error_here(3, message)
            .with_help("save it as UTF-8 without the mark; \"weir fmt FILE\" removes it")
    }

    /// Where the next byte is, from the beginning of the text.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Where in the text a place is that this lexer named.
    pub(crate) fn offset_of(&self, pos: &Pos) -> usize {
        let before = (pos.line.max(1) - 1) as usize;
        let line = match before {
            0 => 0,
            n => memchr::memchr_iter(b'\n', &self.text).nth(n - 1).map_or(0, |feed| feed + 1),
        };
        (line + pos.column.saturating_sub(1) as usize).min(self.text.len())
    }

    /// An error at the byte that comes next.
    fn error_here(&self, len: u32, message: impl Into<String>) -> ConfError {
        ConfError::at_pos(self.pos(self.at), len, message)
    }

    /// An error at the end of the text, with nginx's line number.
    pub(crate) fn error_at_end(&self, message: impl Into<String>) -> ConfError {
        let pos = Pos { file: self.file.clone(), line: self.line, column: 0 };
        ConfError::at_pos(pos, 0, message)
    }

    /// The error of a `}` without its `{`; the brace has just been read.
    pub(crate) fn unexpected_close(&self) -> ConfError {
        ConfError::at_pos(self.pos(self.at - 1), 1, "unexpected \"}\"")
    }

    /// Adds the line of an error in this file, to be shown.
    #[cold]
    pub(crate) fn with_line(&self, mut error: ConfError) -> ConfError {
        if let Some(pos) = &error.pos
            && pos.file == self.file
            && error.line_text.is_none()
        {
            error.line_text = line_of(&self.text, pos.line.max(1));
        }
        error
    }

    fn pos(&self, at: usize) -> Pos {
        let column = u32::try_from(at - self.line_start + 1).unwrap_or(u32::MAX);
        Pos { file: self.file.clone(), line: self.line, column }
    }

    fn line_feed(&mut self, at: usize) {
        if self.line != 0 {
            self.line = self.line.saturating_add(1);
            self.line_start = at + 1;
        }
    }

    fn skip_blanks(&mut self) {
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'\n' => self.line_feed(self.at),
                b' ' | b'\t' | b'\r' => {}
                b'#' => {
                    let rest = &self.text[self.at..];
                    self.at += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                    continue;
                }
                _ => return,
            }
            self.at += 1;
        }
    }

    fn bare(&mut self, first: Option<&Word>) -> Result<Word, ConfError> {
        let start = self.at;
        let pos = self.pos(start);
        let mut escapes = false;
        let mut variable = false;
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                let word = self.text.slice(start..);
                let this = Word { text: word, pos, quoted: false };
                return Err(self.ends_within(first.unwrap_or(&this)));
            };
            self.check_word_byte(byte, start, &pos, None)?;
            match byte {
                b'{' if variable => {}
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{' => break,
                b'\\' => {
                    variable = false;
                    escapes = true;
                    self.skip_escaped();
                }
                byte => variable = byte == b'$',
            }
            self.at += 1;
        }
        Ok(self.word(start, self.at, pos, false, escapes))
    }

    fn quoted(&mut self, quote: u8) -> Result<Word, ConfError> {
        let pos = self.pos(self.at);
        self.at += 1;
        let start = self.at;
        let mut escapes = false;
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                return Err(self.quote_never_ends(&pos));
            };
            self.check_word_byte(byte, start, &pos, Some(quote))?;
            match byte {
                b'\\' => {
                    escapes = true;
                    self.skip_escaped();
                }
                b'\n' => self.line_feed(self.at),
                byte if byte == quote => break,
                _ => {}
            }
            self.at += 1;
        }
        let word = self.word(start, self.at, pos, true, escapes);
        self.at += 1;
        match self.text.get(self.at) {
            None | Some(b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{' | b')') => Ok(word),
            Some(_) => Err(self.unexpected()),
        }
    }

    /// Steps onto the byte behind a backslash, if there is one; the caller steps over it.
    fn skip_escaped(&mut self) {
        let next = self.at + 1;
        match self.text.get(next) {
            // Left for the caller's loop to refuse.
            None | Some(0) => return,
            Some(b'\n') => self.line_feed(next),
            Some(_) => {}
        }
        self.at = next;
    }

    fn check_word_byte(
        &self,
        byte: u8,
        start: usize,
        pos: &Pos,
        quote: Option<u8>,
    ) -> Result<(), ConfError> {
        if byte == 0 {
            return Err(self.error_here(1, "unexpected NUL byte"));
        }
        // Beyond it by one escaped byte at most.
        if self.at - start < WORD_BYTES_MAX || self.is_params() {
            return Ok(());
        }
        let message = match quote {
            None => {
                let begin = String::from_utf8_lossy(&self.text[start..start + 10]);
                format!("too long parameter \"{begin}...\" started")
            }
            Some(quote) => format!(
                "too long parameter, probably missing terminating \"{}\" character",
                char::from(quote)
            ),
        };
        Err(ConfError::at_pos(pos.clone(), 1, message))
    }

    fn word(&self, start: usize, end: usize, pos: Pos, quoted: bool, escapes: bool) -> Word {
        let text = match escapes {
            false => self.text.slice(start..end),
            true => unescape(&self.text[start..end]),
        };
        Word { text, pos, quoted }
    }

    #[cold]
    fn unexpected(&self) -> ConfError {
        let rest = &self.text[self.at..];
        let shown = match String::from_utf8_lossy(&rest[..rest.len().min(4)]).chars().next() {
            Some(c) if !c.is_control() => c.to_string(),
            _ => rest.first().map(|byte| byte.escape_ascii().to_string()).unwrap_or_default(),
        };
        self.error_here(1, format!("unexpected \"{shown}\""))
    }

    #[cold]
    fn ends_within(&self, first: &Word) -> ConfError {
        self.unexpected_end().with_help(not_ended(first))
    }

    #[cold]
    fn quote_never_ends(&self, quote: &Pos) -> ConfError {
        let error = self.unexpected_end();
        match quote.line {
            0 => error.with_help("a quote is not closed"),
            line => error.with_help(format!("the quote that opens in line {line} is not closed")),
        }
    }

    fn unexpected_end(&self) -> ConfError {
        self.error_at_end(if self.is_params() {
            "unexpected end of parameter, expecting \";\""
        } else {
            "unexpected end of file, expecting \";\" or \"}\""
        })
    }
}

fn not_ended(first: &Word) -> String {
    let name = short(first);
    match first.pos.line {
        0 => format!("the directive \"{name}\" is not ended by \";\""),
        line => format!("the directive \"{name}\" in line {line} is not ended by \";\""),
    }
}

/// Resolves `\"`, `\'`, `\\`, `\t`, `\r`, `\n`; any other backslash stays, for regular expressions.
fn unescape(raw: &[u8]) -> Bytes {
    let mut text = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        text.extend_from_slice(&rest[..at]);
        let (byte, taken) = match rest.get(at + 1) {
            Some(byte @ (b'"' | b'\'' | b'\\')) => (*byte, 2),
            Some(b't') => (b'\t', 2),
            Some(b'r') => (b'\r', 2),
            Some(b'n') => (b'\n', 2),
            _ => (b'\\', 1),
        };
        text.push(byte);
        rest = &rest[at + taken..];
    }
    text.extend_from_slice(rest);
    text.into()
}

/// The length of the string or comment of Lua that the text begins with; 1 if it is neither.
fn lua_token(text: &[u8]) -> usize {
    let long = |from: usize| {
        let signs = text[from..].strip_prefix(b"[")?.iter().take_while(|&&b| b == b'=').count();
        (text.get(from + 1 + signs) == Some(&b'[')).then_some(())?;
        let end = [&b"]"[..], &b"=".repeat(signs), b"]"].concat();
        let rest = &text[from..];
        let at = memchr::memmem::find(rest, &end).map_or(rest.len(), |at| at + end.len());
        Some(from + at)
    };
    match text {
        [b'-', b'-', ..] => {
            let line = || memchr::memchr(b'\n', text).unwrap_or(text.len());
            long(2).unwrap_or_else(line)
        }
        [b'[', ..] => long(0).unwrap_or(1),
        [quote @ (b'"' | b'\''), rest @ ..] => {
            let mut escaped = false;
            let end = rest.iter().position(|byte| {
                let is_end = byte == quote && !escaped;
                escaped = *byte == b'\\' && !escaped;
                is_end
            });
            end.map_or(text.len(), |end| end + 2)
        }
        _ => 1,
    }
}
