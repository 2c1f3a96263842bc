//! Rust text split into code and comments, and its functions and test parts.
//!
//! A lexer and brace counting, no parser: it has to be right about where strings, comments,
//! characters and lifetimes begin and end, and tidy needs no more than that.

use std::ops::Range;

/// A file's text twice, each copy as long as the text, with the other part blanked: byte offsets
/// and line breaks agree in both.
pub struct Source {
    /// Code alone: comments, strings and characters are spaces, other alphabets are `_`.
    pub code: String,
    /// Comments alone.
    pub comments: String,
    line_starts: Vec<usize>,
    test_parts: Vec<Range<usize>>,
}

/// A function with a body.
pub struct Function {
    /// Its name, without the type it belongs to.
    pub name: String,
    /// The offset of its `fn`.
    pub at: usize,
    /// The line of its `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace, both counted.
    pub lines: usize,
}

impl Source {
    /// Splits a file's text.
    pub fn new(text: &str) -> Self {
        let (code, comments) = split(text.as_bytes());
        let breaks = text.bytes().enumerate().filter(|&(_, b)| b == b'\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(breaks).collect();
        let mut source = Self { code, comments, line_starts, test_parts: Vec::new() };
        source.test_parts = source.find_test_parts();
        source
    }

    /// The line (from 1) of a byte offset.
    pub fn line_of(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= offset)
    }

    /// Whether the offset lies in an item under `#[cfg(test)]` or `#[test]`.
    pub fn in_tests(&self, offset: usize) -> bool {
        self.test_parts.iter().any(|part| part.contains(&offset))
    }

    /// Lines that lie in test parts.
    pub fn test_lines(&self) -> usize {
        self.test_parts.iter().map(|p| self.line_of(p.end - 1) + 1 - self.line_of(p.start)).sum()
    }

    /// The offsets of a word (a whole identifier or keyword) in the code.
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let code = self.code.as_bytes();
        self.code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
            let before = at.checked_sub(1).map(|i| code[i]);
            let after = code.get(at + word.len());
            !before.is_some_and(is_name_byte) && !after.copied().is_some_and(is_name_byte)
        })
    }

    /// Every function that has a body, in the order of their `fn`.
    pub fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for at in self.words("fn") {
            let rest = &self.code[at + 2..];
            let name: String = rest
                .trim_start()
                .trim_start_matches('$')
                .bytes()
                .take_while(|&b| is_name_byte(b))
                .map(char::from)
                .collect();
            // `fn(u8) -> u8` is a type.
            if name.is_empty() {
                continue;
            }
            let Some(body) = self.item_body(at) else { continue };
            let line = self.line_of(at);
            let lines = self.line_of(body.end - 1) + 1 - line;
            found.push(Function { name, at, line, lines });
        }
        found
    }

    /// The braces that follow `from`, outermost pair, or nothing where a `;` comes first.
    pub fn item_body(&self, from: usize) -> Option<Range<usize>> {
        let code = self.code.as_bytes();
        let (mut depth, mut at) = (0usize, from);
        while at < code.len() {
            match code[at] {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth = depth.saturating_sub(1),
                b';' if depth == 0 => return None,
                b'{' if depth == 0 => return Some(at..self.closing_brace(at)),
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// One past the brace that closes the one at `open`.
    fn closing_brace(&self, open: usize) -> usize {
        let mut depth = 0usize;
        for (at, byte) in self.code.bytes().enumerate().skip(open) {
            match byte {
                b'{' => depth += 1,
                b'}' => {
                    depth -= 1;
                    if depth == 0 {
                        return at + 1;
                    }
                }
                _ => {}
            }
        }
        self.code.len()
    }

    fn find_test_parts(&self) -> Vec<Range<usize>> {
        const MARKS: &[&str] = &["#[cfg(test)]", "#[cfg(all(test", "#[test]"];
        let mut parts: Vec<Range<usize>> = Vec::new();
        let mut marks: Vec<usize> =
            MARKS.iter().flat_map(|mark| self.code.match_indices(mark)).map(|(at, _)| at).collect();
        marks.sort_unstable();
        for at in marks {
            if parts.last().is_some_and(|last| last.contains(&at)) {
                continue;
            }
            // `mod tests;` and `use` have no body.
            let declaration = || self.code[at..].find(';').map(|len| at + len + 1);
            if let Some(end) = self.item_body(at).map(|body| body.end).or_else(declaration) {
                parts.push(at..end);
            }
        }
        parts
    }
}

/// Whether the byte can stand in a name.
pub fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The kind of a stretch of text.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

fn split(text: &[u8]) -> (String, String) {
    let (mut code, mut comments) = (String::new(), String::new());
    let mut at = 0;
    while at < text.len() {
        let (kind, end) = next_piece(text, at);
        for &byte in &text[at..end] {
            let shown = if byte.is_ascii() { char::from(byte) } else { '_' };
            let keep = |wanted: Kind| if kind == wanted || byte == b'\n' { shown } else { ' ' };
            code.push(keep(Kind::Code));
            comments.push(keep(Kind::Comment));
        }
        at = end;
    }
    (code, comments)
}

/// The piece that begins at `at`: its kind and where it ends.
fn next_piece(text: &[u8], at: usize) -> (Kind, usize) {
    let rest = &text[at..];
    if rest.starts_with(b"//") {
        let len = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        return (Kind::Comment, at + len);
    }
    if rest.starts_with(b"/*") {
        return (Kind::Comment, at + block_comment_len(rest));
    }
    if rest[0] == b'"' {
        return (Kind::Literal, at + quoted_len(rest, b'"'));
    }
    if rest[0] == b'\'' {
        return match character_len(rest) {
            Some(len) => (Kind::Literal, at + len),
            None => (Kind::Code, at + 1),
        };
    }
    if is_name_byte(rest[0]) {
        let word = rest.iter().position(|&b| !is_name_byte(b)).unwrap_or(rest.len());
        let after = &rest[word..];
        // A prefix belongs to its literal only for the raw forms: there no escape counts.
        if matches!(&rest[..word], b"r" | b"br" | b"cr")
            && let Some(len) = raw_string_len(after)
        {
            return (Kind::Literal, at + word + len);
        }
        return (Kind::Code, at + word);
    }
    (Kind::Code, at + 1)
}

/// Block comments nest.
fn block_comment_len(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        if text[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

fn quoted_len(text: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// The length of a character literal, or nothing where the quote begins a lifetime or a label.
fn character_len(text: &[u8]) -> Option<usize> {
    if text.get(1) == Some(&b'\\') {
        return Some(quoted_len(text, b'\''));
    }
    // One character of UTF-8 is up to four bytes; a lifetime has no quote right behind the first.
    let first = *text.get(1)?;
    let len = match first {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    (text.get(1 + len) == Some(&b'\'')).then_some(len + 2)
}

/// `#…#"…"#…#` behind an `r`; nothing where it is no string (a raw identifier).
fn raw_string_len(text: &[u8]) -> Option<usize> {
    let hashes = text.iter().take_while(|&&b| b == b'#').count();
    if text.get(hashes) != Some(&b'"') {
        return None;
    }
    let mut at = hashes + 1;
    while at < text.len() {
        let closes = text[at] == b'"'
            && text[at + 1..].iter().take(hashes).filter(|&&b| b == b'#').count() == hashes;
        if closes {
            return Some(at + 1 + hashes);
        }
        at += 1;
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::Source;

    fn functions(text: &str) -> Vec<(String, usize, usize)> {
        Source::new(text).functions().into_iter().map(|f| (f.name, f.line, f.lines)).collect()
    }

    #[test]
    fn braces_in_literals_and_comments_do_not_count() {
        let text = "fn a() {\n  let s = \"}\"; // }\n  let c = '}'; /* } /* } */ } */\n\
                    let r = r#\"}\" }\"#;\n let l: &'static str = b\"\\\"}\";\n}\nfn b() {}\n";
        assert_eq!(functions(text), [("a".to_string(), 1, 6), ("b".to_string(), 7, 1)]);
    }

    #[test]
    fn types_declarations_and_arrays_in_signatures() {
        let text = "trait T { fn no(&self); fn yes(x: [u8; 4]) -> fn(u8) -> u8 {\n id\n} }\n\
                    type F = fn();\n";
        assert_eq!(functions(text), [("yes".to_string(), 1, 3)]);
    }

    #[test]
    fn lifetimes_labels_and_wide_characters() {
        let text = "fn a<'x>(v: &'x str) { 'l: loop { break 'l; } let c = 'é'; let q = '\\''; }\n\
                    fn b() {}";
        assert_eq!(functions(text).len(), 2);
    }

    #[test]
    fn raw_identifiers_are_code() {
        let source = Source::new("fn r#match() { r#fn(); }");
        assert_eq!(source.words("fn").count(), 2);
    }

    #[test]
    fn test_parts_are_known() {
        let text = "fn a() { x() }\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod t {\n #[test]\n \
                    fn b() { x() }\n}\nfn c() { x() }\n";
        let source = Source::new(text);
        let seen: Vec<bool> = source.words("x").map(|at| source.in_tests(at)).collect();
        assert_eq!(seen, [false, true, false]);
        assert_eq!(source.test_lines(), 7);
    }

    #[test]
    fn comments_are_kept_apart() {
        let source = Source::new("a // unsafe\n\"unsafe // x\" unsafe");
        assert_eq!(source.words("unsafe").count(), 1);
        assert!(source.comments.contains("// unsafe"));
        assert!(!source.comments.contains('x'));
    }
}
