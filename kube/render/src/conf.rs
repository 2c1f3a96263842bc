//! The configuration that is written: blocks of directives, built from typed parts.
//!
//! Text of objects gets into a configuration only through [`quote`], as one word, so that no
//! semicolon, brace, quote or line feed in it can begin or end a directive. The one exception is
//! [`Block::raw`], for snippets, which administrators allow by a switch.

mod shared;

use sha2::{Digest, Sha256};

pub(crate) use shared::{Usual, share};

/// Index of the object that a directive comes from, in the renderer's list of objects.
pub type Owner = u32;

/// One word of a directive, quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(String);

/// A word of the renderer's own, in which `$name` is a variable.
pub fn w(text: impl AsRef<str>) -> Word {
    Word(quote(text.as_ref()))
}

/// Text of an object for a directive that evaluates variables: a dollar sign stays one.
pub fn text(text: impl AsRef<str>) -> Word {
    Word(quote(&text.as_ref().replace('$', "${literal_dollar}")))
}

/// Text of an object for a directive that does not know variables, such as `location` or
/// `server_name`.
pub fn plain(text: impl AsRef<str>) -> Word {
    Word(quote(text.as_ref()))
}

/// Text of an object in which its author may name variables, such as `upstream-hash-by`.
pub fn template(text: impl AsRef<str>) -> Word {
    Word(quote(text.as_ref()))
}

/// A key of a `map` that means itself, although `~`, a backslash, or a word such as `include`
/// at its beginning would mean something else.
pub fn key(text: impl AsRef<str>) -> Word {
    const WORDS: [&str; 4] = ["default", "hostnames", "include", "volatile"];
    let text = text.as_ref();
    let special = text.starts_with(['~', '\\']) || WORDS.contains(&text);
    if special { Word(quote(&format!("\\{text}"))) } else { Word(quote(text)) }
}

/// Quotes a word, so that the parser reads back this text.
///
/// `${env:` is the one text that the parser itself would replace, in any word. There is no way to
/// quote it, so a space separates the brace; [`crate::check::is_clean`] refuses objects with it
/// before.
pub fn quote(text: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || b"-_./:*@=+,%~$?&!^[]".contains(&b);
    if !text.is_empty() && text.bytes().all(is_bare) {
        return text.to_owned();
    }
    let text = text.replace("${env:", "$ {env:");
    let mut out = String::with_capacity(text.len() + 8);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // The parser refuses the byte 0.
            '\0' => {}
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[derive(Clone, Debug)]
enum Item {
    Line {
        text: String,
        owner: Option<Owner>,
    },
    Block {
        head: String,
        body: Block,
        owner: Option<Owner>,
    },
    Raw {
        text: String,
        owner: Option<Owner>,
    },
    /// Lines that change through the API and are no part of the shape.
    Endpoints {
        lines: Vec<String>,
    },
    /// All lines of a part of the usual ones, until [`share`] writes them once or in their places.
    Usual {
        part: usize,
        owner: Option<Owner>,
    },
}

/// The contents of a block.
#[derive(Clone, Debug, Default)]
pub struct Block {
    items: Vec<Item>,
    owner: Option<Owner>,
}

/// The words of a directive: `["a", "b"]` for the renderer's own, or [`Word`]s.
pub trait Words {
    /// Appends them to a line.
    fn append(self, line: &mut String);
}

impl<const N: usize> Words for [&str; N] {
    fn append(self, line: &mut String) {
        for word in self {
            line.push(' ');
            line.push_str(&quote(word));
        }
    }
}

impl<const N: usize> Words for [Word; N] {
    fn append(self, line: &mut String) {
        for word in self {
            line.push(' ');
            line.push_str(&word.0);
        }
    }
}

impl Words for Vec<Word> {
    fn append(self, line: &mut String) {
        for word in self {
            line.push(' ');
            line.push_str(&word.0);
        }
    }
}

fn line(name: &str, words: impl Words) -> String {
    let mut line = String::with_capacity(64);
    line.push_str(name);
    words.append(&mut line);
    line
}

impl Block {
    /// An empty block, whose directives belong to `owner`.
    pub fn of(owner: Option<Owner>) -> Block {
        Block { items: Vec::new(), owner }
    }

    /// Directives from here on belong to `owner`.
    pub fn owned_by(&mut self, owner: Option<Owner>) {
        self.owner = owner;
    }

    /// Whether it has no directive.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds a directive.
    pub fn add(&mut self, name: &'static str, words: impl Words) {
        self.items.push(Item::Line { text: line(name, words), owner: self.owner });
    }

    /// Adds a line of data, such as those of `map`.
    pub fn entry(&mut self, first: Word, words: impl Words) {
        self.items.push(Item::Line { text: line(&first.0, words), owner: self.owner });
    }

    /// Adds a directive with a block.
    pub fn block(&mut self, name: &'static str, words: impl Words, body: Block) {
        self.items.push(Item::Block { head: line(name, words), body, owner: self.owner });
    }

    /// Adds `if ($variable) { return … }`: the condition is the renderer's own.
    pub fn if_set(&mut self, variable: &str, body: Block) {
        debug_assert!(variable.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
        let head = format!("if (${variable})");
        self.items.push(Item::Block { head, body, owner: self.owner });
    }

    /// Adds `if ($variable OPERATOR "text")`, where the text is quoted.
    pub fn if_compared(&mut self, variable: &str, operator: &'static str, to: &Word, body: Block) {
        let quoted = match to.0.starts_with('"') {
            true => to.0.clone(),
            false => format!("\"{}\"", to.0),
        };
        let head = format!("if (${variable} {operator} {quoted})");
        self.items.push(Item::Block { head, body, owner: self.owner });
    }

    /// Adds the lines of a part of [`Usual`] that all locations have.
    pub(crate) fn usual(&mut self, part: usize) {
        self.items.push(Item::Usual { part, owner: self.owner });
    }

    /// Adds the text of a snippet as it is.
    pub fn raw(&mut self, text: &str) {
        self.items.push(Item::Raw { text: text.to_owned(), owner: self.owner });
    }

    /// Adds lines that the API changes later.
    pub fn endpoints(&mut self, lines: Vec<String>) {
        self.items.push(Item::Endpoints { lines });
    }

    /// Appends another block's directives, which keep their owners.
    pub fn extend(&mut self, other: Block) {
        self.items.extend(other.items);
    }
}

/// A configuration as text.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The file.
    pub text: String,
    /// The owner of each line, from line 1 at index 0.
    pub owners: Vec<Option<Owner>>,
    /// Of the text without the lines that the API changes.
    pub shape: Shape,
}

/// A digest of all that takes a reload to change: as long as it stays the same, none is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape([u8; 32]);

/// Writes the outermost block.
pub fn write(block: &Block) -> Written {
    let mut out = Writer::default();
    put(block, 0, &mut out);
    let shape = Shape(out.shape.finalize().into());
    Written { text: out.text, owners: out.owners, shape }
}

#[derive(Default)]
struct Writer {
    text: String,
    owners: Vec<Option<Owner>>,
    shape: Sha256,
}

impl Writer {
    /// Writes a line, or the lines of a text, with `end` behind it.
    fn line(&mut self, depth: usize, text: &str, end: &str, owner: Option<Owner>, in_shape: bool) {
        let from = self.text.len();
        let mut pieces = text.split('\n').peekable();
        while let Some(piece) = pieces.next() {
            self.text.extend(std::iter::repeat_n("    ", depth));
            self.text.push_str(piece);
            if pieces.peek().is_none() {
                self.text.push_str(end);
            }
            self.text.push('\n');
            self.owners.push(owner);
        }
        if in_shape {
            self.shape.update(&self.text[from..]);
        }
    }
}

fn put(block: &Block, depth: usize, out: &mut Writer) {
    for item in &block.items {
        match item {
            Item::Line { text, owner } => out.line(depth, text, ";", *owner, true),
            Item::Block { head, body, owner } => {
                out.line(depth, head, " {", *owner, true);
                put(body, depth + 1, out);
                out.line(depth, "}", "", *owner, true);
            }
            Item::Raw { text, owner } => out.line(depth, text.trim_end(), "", *owner, true),
            Item::Endpoints { lines } => {
                for text in lines {
                    out.line(depth, text, ";", None, false);
                }
            }
            Item::Usual { .. } => unreachable!("`share` replaces them before a block is written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_one_word() {
        let cases = [
            ("abc", "abc"),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("a;b{}", "\"a;b{}\""),
            ("a\"b\\d", "\"a\\\"b\\\\d\""),
            ("a\nb\r\t", "\"a\\nb\\r\\t\""),
            ("#a", "\"#a\""),
            ("${env:HOME}", "\"$ {env:HOME}\""),
        ];
        for (text, quoted) in cases {
            assert_eq!(quote(text), quoted, "{text:?}");
        }
    }

    #[test]
    fn keys_of_maps_mean_themselves() {
        assert_eq!(key("include").0, "\"\\\\include\"");
        assert_eq!(key("~a").0, "\"\\\\~a\"");
        assert_eq!(key("a").0, "a");
    }

    #[test]
    fn lines_know_their_owners_and_the_shape_has_no_endpoints() {
        let mut inner = Block::of(Some(7));
        inner.add("a", ["b"]);
        inner.raw("x;\ny;\n");
        let mut b = Block::default();
        b.endpoints(vec!["server 10.0.0.1:80".to_owned()]);
        b.block("location", [plain("/x y")], inner.clone());
        let out = write(&b);
        let lines = "server 10.0.0.1:80;\nlocation \"/x y\" {\n    a b;\n    x;\n    y;\n}\n";
        // A snippet's later lines are indented, too.
        assert_eq!(out.text, lines);
        assert_eq!(out.owners, [None, None, Some(7), Some(7), Some(7), None]);
        let mut others = Block::default();
        others.endpoints(vec!["server 10.0.0.2:80".to_owned(), "server 10.0.0.3:80".to_owned()]);
        others.block("location", [plain("/x y")], inner.clone());
        assert_eq!(write(&others).shape, out.shape);
        inner.add("c", ["d"]);
        b.block("location", [plain("/x y")], inner);
        assert_ne!(write(&b).shape, out.shape);
    }
}
