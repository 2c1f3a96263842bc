//! The statements of a text that is being written: like the server's own reader, and content with
//! text that ends anywhere.

/// A word with its place in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    /// The text without quotes.
    pub(crate) text: String,
    /// Its first byte, a quote included.
    pub(crate) start: usize,
    /// The offset after its last byte.
    pub(crate) end: usize,
}

/// A directive.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// The name and the arguments.
    pub(crate) words: Vec<Token>,
    /// The statement whose block it stands in.
    pub(crate) parent: Option<usize>,
    /// It was ended by `;` or `{`.
    pub(crate) ended: bool,
    /// A block belongs to it.
    pub(crate) is_block: bool,
    /// Behind its last byte, which is that of its block if it has one that is closed.
    pub(crate) end: usize,
}

/// A text, read.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The statements in the order of the text.
    pub(crate) statements: Vec<Statement>,
    /// Blocks that are open at the end, the outermost first.
    pub(crate) open: Vec<usize>,
    /// The end is within a comment.
    pub(crate) in_comment: bool,
}

impl Scan {
    /// Reads a text.
    pub(crate) fn new(text: &str) -> Scan {
        let mut scan = Scan::default();
        let bytes = text.as_bytes();
        let mut words: Vec<Token> = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            match bytes[at] {
                b' ' | b'\t' | b'\r' | b'\n' => at += 1,
                b'#' => {
                    let rest = &bytes[at..];
                    let end = rest.iter().position(|&b| b == b'\n');
                    scan.in_comment = end.is_none();
                    at = end.map_or(bytes.len(), |end| at + end);
                }
                b';' => {
                    scan.push(&mut words, true);
                    at += 1;
                }
                b'{' => {
                    scan.push(&mut words, true);
                    if let Some(block) = scan.statements.len().checked_sub(1) {
                        scan.statements[block].is_block = true;
                        scan.open.push(block);
                    }
                    at += 1;
                }
                b'}' => {
                    scan.push(&mut words, false);
                    at += 1;
                    if let Some(block) = scan.open.pop() {
                        scan.statements[block].end = at;
                    }
                }
                _ => {
                    let token = word(text, at);
                    at = token.end;
                    words.push(token);
                }
            }
        }
        scan.push(&mut words, false);
        scan
    }

    fn push(&mut self, words: &mut Vec<Token>, ended: bool) {
        if !words.is_empty() {
            let parent = self.open.last().copied();
            let end = words.last().map_or(0, |word| word.end);
            let words = std::mem::take(words);
            self.statements.push(Statement { words, parent, ended, is_block: false, end });
        }
    }

    /// The blocks around a statement, the outermost first.
    pub(crate) fn around(&self, statement: usize) -> Vec<&Statement> {
        let mut blocks = Vec::new();
        let mut next = self.statements.get(statement).and_then(|one| one.parent);
        while let Some(block) = next.and_then(|at| self.statements.get(at)) {
            blocks.push(block);
            next = block.parent;
        }
        blocks.reverse();
        blocks
    }

    /// The statement and the word at a place.
    pub(crate) fn word_at(&self, offset: usize) -> Option<(usize, usize)> {
        self.statements.iter().enumerate().find_map(|(at, statement)| {
            let here = |word: &Token| (word.start..=word.end).contains(&offset);
            Some((at, statement.words.iter().position(here)?))
        })
    }
}

impl Statement {
    pub(crate) fn name(&self) -> &str {
        self.words.first().map_or("", |word| word.text.as_str())
    }
}

fn word(text: &str, start: usize) -> Token {
    let bytes = text.as_bytes();
    let quote = matches!(bytes[start], b'"' | b'\'').then(|| bytes[start]);
    let mut at = start + usize::from(quote.is_some());
    let from = at;
    let mut variable = false;
    while at < bytes.len() {
        let byte = bytes[at];
        match quote {
            Some(quote) if byte == quote => break,
            None if b" \t\r\n;".contains(&byte) => break,
            // `${name}` is a part of a word.
            None if byte == b'{' && at > from && bytes[at - 1] == b'$' => variable = true,
            None if byte == b'{' => break,
            None if byte == b'}' && variable => variable = false,
            _ => {}
        }
        at += if byte == b'\\' { 2 } else { 1 };
    }
    // A backslash may be the last byte, and the character behind it long.
    let mut end = at.min(bytes.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    let inside = text.get(from..end).unwrap_or_default().to_owned();
    let closed = quote.is_some() && end < bytes.len();
    Token { text: inside, start, end: (end + usize::from(closed)).max(start + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(scan: &Scan) -> Vec<String> {
        let texts = |s: &Statement| s.words.iter().map(|w| w.text.clone()).collect::<Vec<_>>();
        scan.statements.iter().map(|s| texts(s).join(" ")).collect()
    }

    #[test]
    fn statements_and_blocks() {
        let text = "a b; # c;\nd { e 'f;{' \"g\\\"\"; h ${i}j {\n k";
        let scan = Scan::new(text);
        assert_eq!(words(&scan), ["a b", "d", "e f;{ g\\\"", "h ${i}j", "k"]);
        assert_eq!(scan.open, [1, 3]);
        let around: Vec<_> = scan.around(4).iter().map(|s| s.name()).collect();
        assert_eq!(around, ["d", "h"]);
        assert!(!scan.statements[4].ended && scan.statements[2].ended);
        assert_eq!(scan.word_at(text.find("f;").unwrap_or(0)), Some((2, 1)));
        assert!(Scan::new("a; # b").in_comment && !Scan::new("a; # b\n").in_comment);
    }

    #[test]
    fn any_text_is_borne() {
        let text = "a \u{fc}\\\u{fc} '\u{fc}\\ \"x { } } { # \u{fc}\n ${ ; }";
        for (at, _) in text.char_indices() {
            Scan::new(&text[..at]);
            Scan::new(&text[at..]);
        }
        Scan::new("\\");
        Scan::new("\\\u{20ac}");
        Scan::new("}}}{{{");
    }
}
