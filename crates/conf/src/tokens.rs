//! A file's text as tokens with their places, comments included: for tools that change a file and
//! keep its layout.

use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;

use crate::lexer::Lexer;
use crate::parse::{self, Options};
use crate::{ConfError, Pos, Word};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or an argument, with its quotes.
    Word,
    /// `;`
    Semicolon,
    /// `{`
    Open,
    /// `}`
    Close,
    /// From `#` to the end of the line.
    Comment,
    /// The program in the braces of a block of Lua.
    Program,
}

/// A token of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// What the token is.
    pub kind: Kind,
    /// Its first byte.
    pub start: usize,
    /// The byte after it.
    pub end: usize,
}

impl Token {
    /// Its text.
    pub fn of<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// A text with its tokens.
pub struct Tokens {
    /// The source text that the tokens' places point into.
    pub text: Bytes,
    /// All of its tokens, in order.
    pub list: Vec<Token>,
}

impl Tokens {
    /// Cuts the text of a file into tokens. Includes are not followed. A byte order mark at the
    /// start belongs to no token.
    ///
    /// # Errors
    ///
    /// The syntax errors that loading the file reports.
    pub fn new(name: &Path, text: Bytes) -> Result<Tokens, ConfError> {
        let options = Options { keep_includes: true, ..Options::default() };
        let body = match text.starts_with(crate::lexer::BOM) {
            true => text.slice(crate::lexer::BOM.len()..),
            false => text.clone(),
        };
        parse::parse_bytes(name, body, &options)?;
        let mut lexer = Lexer::new(Rc::from(name), text.clone());
        let mut list: Vec<Token> = Vec::new();
        // The token of the statement's name.
        let mut name: Option<Token> = None;
        while let Some(token) = lexer.token()? {
            list.push(token);
            match token.kind {
                Kind::Word => name = name.or(Some(token)),
                Kind::Comment => {}
                Kind::Open if name.is_some_and(|n| n.of(&text).ends_with(parse::LUA)) => {
                    let pos = Pos { file: lexer.file().clone(), line: 1, column: 1 };
                    let start = lexer.at();
                    let word = Word { text: Bytes::from_static(b"lua"), pos, quoted: false };
                    lexer.lua(&word)?;
                    // The closing brace belongs to the block.
                    let end = lexer.at() - 1;
                    list.push(Token { kind: Kind::Program, start, end });
                    list.push(Token { kind: Kind::Close, start: end, end: end + 1 });
                    name = None;
                }
                _ => name = None,
            }
        }
        Ok(Tokens { text, list })
    }

    /// The index of the token at a place.
    pub fn at(&self, pos: &Pos) -> Option<usize> {
        let offset = self.offset(pos)?;
        self.list.iter().position(|token| (token.start..token.end).contains(&offset))
    }

    /// The byte at a place.
    pub fn offset(&self, pos: &Pos) -> Option<usize> {
        let before = usize::try_from(pos.line.checked_sub(1)?).ok()?;
        let line = match before {
            0 => 0,
            n => memchr::memchr_iter(b'\n', &self.text).nth(n - 1)? + 1,
        };
        Some(line + usize::try_from(pos.column.max(1)).ok()? - 1)
    }

    /// The tokens of the statement that holds the token at `at`: from its name to its `;` or `{`.
    pub fn statement(&self, at: usize) -> std::ops::Range<usize> {
        let ends = |kind: Kind| matches!(kind, Kind::Semicolon | Kind::Open | Kind::Close);
        let before = self.list.get(..at).unwrap_or_default();
        let start = before.iter().rposition(|token| ends(token.kind)).map_or(0, |i| i + 1);
        let words = self.list.get(start..).unwrap_or_default();
        // Comments in front of the statement are not a part of it.
        let first = words.iter().position(|token| token.kind != Kind::Comment).unwrap_or(0);
        let start = start + first;
        let rest = self.list.get(start..).unwrap_or_default();
        let len = rest.iter().position(|token| ends(token.kind)).map_or(rest.len(), |i| i + 1);
        start..start + len
    }

    /// The index of the `}` that closes the block whose `{` is at `open`.
    pub(crate) fn close_of(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for (at, token) in self.list.iter().enumerate().skip(open) {
            match token.kind {
                Kind::Open => depth += 1,
                Kind::Close => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                _ => {}
            }
        }
        None
    }
}
