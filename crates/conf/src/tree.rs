//! The tree that a configuration is read into: words with positions, directives, blocks.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;

use crate::ConfError;

/// A place in a configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct Pos {
    /// The path that the file was opened by.
    pub file: Rc<Path>,
    /// The line, from 1; 0 stands for the command line, which has none.
    pub line: u32,
    /// The byte in the line, from 1; 0 when only the line is known.
    pub column: u32,
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return f.write_str("command line");
        }
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

impl fmt::Debug for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}:{}", self.column)
    }
}

/// One word: a directive's name or an argument.
#[derive(Clone)]
pub struct Word {
    /// The text without its quotes, escapes resolved; a slice of the file where there were none.
    pub text: Bytes,
    /// Its start: the quote, if it has one, or the brace of a program in Lua.
    pub pos: Pos,
    /// It stood in quotes, or in the braces of a program.
    pub quoted: bool,
}

impl Word {
    /// The text.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// The text for a message.
    pub fn lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.text)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.lossy())
    }
}

impl PartialEq<str> for Word {
    fn eq(&self, text: &str) -> bool {
        self.bytes() == text.as_bytes()
    }
}

/// One directive: a name, arguments, and a block when it ended in `{` and not in `;`.
#[derive(Debug)]
pub struct Node {
    /// The directive's name, with its place.
    pub name: Word,
    /// The words between the name and the `;` or `{`.
    pub args: Vec<Word>,
    /// The directives between `{` and `}`, includes expanded.
    pub block: Option<Vec<Node>>,
    /// The syntax error, on a node in the place of the text behind it. Reading and applying are two
    /// passes here and one in nginx, which reports a misplaced directive before a syntax error
    /// further down: code that walks the tree stops at this node and does the same.
    pub broken: Option<Box<ConfError>>,
}

impl Node {
    /// The directives inside the block; none when there is no block.
    pub fn children(&self) -> &[Node] {
        self.block.as_deref().unwrap_or(&[])
    }

    /// The lines of a block that holds data and no directives, such as `types` or `map`.
    ///
    /// # Errors
    ///
    /// `unexpected "{"` for a block among them, and the syntax error that ended the file.
    pub fn entries(&self) -> impl Iterator<Item = Result<&Node, ConfError>> {
        self.children().iter().map(|entry| {
            if let Some(error) = &entry.broken {
                return Err((**error).clone());
            }
            match entry.block {
                Some(_) => Err(ConfError::at(&entry.name, "unexpected \"{\"")),
                None => Ok(entry),
            }
        })
    }

    /// The argument at `index` from 0.
    ///
    /// # Errors
    ///
    /// `invalid number of arguments in "NAME" directive` when there is none.
    pub fn arg(&self, index: usize) -> Result<&Word, ConfError> {
        self.args.get(index).ok_or_else(|| self.wrong_count())
    }

    pub(crate) fn wrong_count(&self) -> ConfError {
        let name = self.name.lossy();
        let message = format!("invalid number of arguments in \"{name}\" directive");
        ConfError::at(&self.name, message)
    }
}

/// A configuration with all its files.
#[derive(Debug, Default)]
pub struct Tree {
    /// The directives of the outermost level; those of included files stand in the place of the
    /// `include`.
    pub nodes: Vec<Node>,
    /// The files in the order they were first opened, each once.
    pub files: Vec<SourceFile>,
    /// The names of the environment variables whose values stand in it.
    pub environment: Vec<Vec<u8>>,
}

/// A file that belongs to a configuration.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The path that it was opened by.
    pub path: Rc<Path>,
    /// Its content.
    pub bytes: Bytes,
}
