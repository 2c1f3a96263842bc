//! The layout of a file (`weir fmt`): indentation, line breaks and empty lines. Words, comments and
//! programs of Lua stay as they are, byte for byte.
//!
//! - A statement begins a line, indented by four spaces a block; `{` ends the line of its
//!   statement.
//! - A block that is written in one line stays there if it fits, has no block inside and no
//!   comment.
//! - Blanks between words stay, because they may align columns; those with tabs become one space.
//! - A statement over several lines keeps its breaks; its later lines move with the first one.
//! - Several empty lines become one; none is left after `{`, before `}` and at both ends.

use std::path::Path;

use bytes::Bytes;

use crate::ConfError;
use crate::lexer::BOM;
use crate::tokens::{Kind, Token, Tokens};

/// Spaces of a level of blocks.
const INDENT: usize = 4;
/// The width that a block in one line may reach.
const WIDTH: usize = 100;
/// Columns of a tab in the old text.
const TAB: usize = 4;

/// The text of a file in its layout.
///
/// # Errors
///
/// The syntax errors that loading the file reports.
pub fn format(name: &Path, text: &Bytes) -> Result<Vec<u8>, ConfError> {
    let tokens = Tokens::new(name, text.clone())?;
    let mut writer = Writer::new(&tokens);
    writer.all();
    let out = writer.finish();
    // A mistake in here must never reach a file.
    let again = Tokens::new(name, Bytes::copy_from_slice(&out))?;
    if !same(&tokens, &again) {
        let message = "the formatted text would mean something else, which is a bug of weir fmt";
        return Err(ConfError::new(message));
    }
    Ok(out)
}

/// Whether two texts have the same words, comments and programs in the same blocks.
pub fn same(one: &Tokens, other: &Tokens) -> bool {
    let of = |tokens: &Tokens, token: &Token| {
        let text = token.of(&tokens.text);
        (
            token.kind,
            if token.kind == Kind::Comment { text.trim_ascii_end() } else { text }.to_vec(),
        )
    };
    one.list.len() == other.list.len()
        && one.list.iter().zip(&other.list).all(|(a, b)| of(one, a) == of(other, b))
}

struct Writer<'t> {
    text: &'t [u8],
    list: &'t [Token],
    out: Vec<u8>,
    depth: usize,
    /// The end of lines: that of the first line.
    feed: &'static [u8],
}

impl<'t> Writer<'t> {
    fn new(tokens: &'t Tokens) -> Writer<'t> {
        let text = &tokens.text[..];
        // The first one between tokens: words and programs may have any inside.
        let ends = tokens.list.iter().map(|token| token.end);
        let starts = tokens.list.iter().map(|token| token.start).chain([text.len()]);
        let first =
            [0].into_iter().chain(ends).zip(starts).find_map(|(from, to)| {
                memchr::memchr(b'\n', &text[from..to]).map(|feed| from + feed)
            });
        let is_crlf = text[..first.unwrap_or(0)].ends_with(b"\r");
        let feed: &[u8] = if is_crlf { b"\r\n" } else { b"\n" };
        let out = Vec::with_capacity(text.len() + text.len() / 8);
        Writer { text, list: &tokens.list, out, depth: 0, feed }
    }

    fn finish(mut self) -> Vec<u8> {
        if !self.out.is_empty() {
            self.out.extend_from_slice(self.feed);
        }
        self.out
    }

    fn all(&mut self) {
        let mut at = 0;
        while let Some(token) = self.list.get(at) {
            at = match token.kind {
                Kind::Comment => {
                    self.comment(at);
                    at + 1
                }
                Kind::Close => {
                    self.depth = self.depth.saturating_sub(1);
                    let is_empty = at > 0 && self.list[at - 1].kind == Kind::Open;
                    if !(is_empty && self.feeds(at) == 0) {
                        self.line(false, self.depth * INDENT);
                    }
                    self.put(token);
                    at + 1
                }
                _ => self.statement(at),
            };
        }
    }

    /// The line breaks in front of a token.
    fn feeds(&self, at: usize) -> usize {
        memchr::memchr_iter(b'\n', self.gap(at)).count()
    }

    /// The blanks in front of a token.
    fn gap(&self, at: usize) -> &'t [u8] {
        let from = at.checked_sub(1).map_or(0, |before| self.list[before].end);
        self.text.get(from..self.list[at].start).unwrap_or_default()
    }

    fn put(&mut self, token: &Token) {
        self.out.extend_from_slice(token.of(self.text));
    }

    /// Begins a line, after an empty one if `apart`.
    fn line(&mut self, apart: bool, indent: usize) {
        if !self.out.is_empty() {
            self.out.extend_from_slice(self.feed);
            if apart {
                self.out.extend_from_slice(self.feed);
            }
        }
        self.out.resize(self.out.len() + indent, b' ');
    }

    /// Begins the line of a statement or a comment of the block.
    fn begin(&mut self, at: usize) {
        if self.out.is_empty() && self.list[at].of(self.text).starts_with(BOM) {
            // A word with that name, which would be taken for the mark of the file.
            self.out.extend_from_slice(self.feed);
            return;
        }
        let after_open = at > 0 && self.list[at - 1].kind == Kind::Open;
        let apart = self.feeds(at) > 1 && at > 0 && !after_open;
        self.line(apart, self.depth * INDENT);
    }

    fn comment(&mut self, at: usize) {
        if at > 0 && self.feeds(at) == 0 {
            self.blanks(at, b" ");
        } else {
            self.begin(at);
        }
        self.put_comment(at);
    }

    fn put_comment(&mut self, at: usize) {
        self.out.extend_from_slice(self.list[at].of(self.text).trim_ascii_end());
    }

    /// The blanks in front of a token in its line, at least these.
    fn blanks(&mut self, at: usize, least: &[u8]) {
        let gap = self.gap(at);
        let kept = gap.len() >= least.len() && gap.iter().all(|&byte| byte == b' ');
        self.out.extend_from_slice(if kept { gap } else { b" " });
    }

    /// The column of a token in its line of the old text.
    fn column(&self, at: usize) -> usize {
        let start = self.list[at].start;
        let from = memchr::memrchr(b'\n', &self.text[..start]).map_or(0, |feed| feed + 1);
        let before = String::from_utf8_lossy(&self.text[from..start]);
        before.chars().fold(0, |column, c| match c {
            '\t' => column / TAB * TAB + TAB,
            '\u{feff}' => column,
            _ => column + 1,
        })
    }

    /// Writes a statement, with its block if that stays in the line. Returns the index of the token
    /// after it.
    fn statement(&mut self, first: usize) -> usize {
        self.begin(first);
        let (base, start) = (self.depth * INDENT, self.column(first));
        let mut at = first;
        while let Some(token) = self.list.get(at) {
            let after_comment = at > first && self.list[at - 1].kind == Kind::Comment;
            let breaks = at > first && (after_comment || self.feeds(at) > 0);
            match token.kind {
                Kind::Word | Kind::Comment => {
                    if breaks {
                        let shift = self.column(at).checked_sub(start).filter(|shift| *shift > 0);
                        self.line(false, base + shift.unwrap_or(INDENT));
                    } else if at > first {
                        let least: &[u8] = if token.kind == Kind::Comment { b" " } else { b"" };
                        self.blanks(at, least);
                    }
                    match token.kind {
                        Kind::Comment => self.put_comment(at),
                        _ => self.put(token),
                    }
                }
                Kind::Open => {
                    match after_comment {
                        true => self.line(false, base),
                        false => self.out.push(b' '),
                    }
                    self.put(token);
                    return self.block(first, at);
                }
                // A `;`: nothing else ends a statement in a text that was parsed.
                _ => {
                    if after_comment {
                        self.line(false, base + INDENT);
                    }
                    self.put(token);
                    return at + 1;
                }
            }
            at += 1;
        }
        at
    }

    /// Writes a block if it stays in the line of its `{`, which is written. Returns the index of
    /// the next token.
    fn block(&mut self, first: usize, open: usize) -> usize {
        if let Some(program) = self.list.get(open + 1).filter(|t| t.kind == Kind::Program) {
            self.put(program);
            self.out.push(b'}');
            return open + 3;
        }
        if let Some((line, next)) = self.in_one_line(first, open) {
            self.out.extend_from_slice(&line);
            return next;
        }
        self.depth += 1;
        open + 1
    }

    /// The content of a block and its `}` in the line of its statement, if it stays there.
    fn in_one_line(&self, first: usize, open: usize) -> Option<(Vec<u8>, usize)> {
        let plain = |kind: Kind| matches!(kind, Kind::Word | Kind::Semicolon);
        let len = self.list[open + 1..].iter().position(|token| !plain(token.kind))?;
        let close = open + 1 + len;
        let source = self.text.get(self.list[first].start..self.list[close].end)?;
        if self.list[close].kind != Kind::Close || source.contains(&b'\n') {
            return None;
        }
        let mut line = Vec::new();
        for (token, at) in self.list[open + 1..close].iter().zip(open + 1..) {
            let begins = matches!(self.list[at - 1].kind, Kind::Open | Kind::Semicolon);
            if token.kind == Kind::Word {
                let gap = self.gap(at);
                let kept = !begins && gap.iter().all(|&byte| byte == b' ');
                line.extend_from_slice(if kept { gap } else { b" " });
            }
            line.extend_from_slice(token.of(self.text));
        }
        line.extend_from_slice(if len == 0 { b"}" } else { b" }" });
        let start = memchr::memrchr(b'\n', &self.out).map_or(0, |feed| feed + 1);
        let width = String::from_utf8_lossy(&self.out[start..]).chars().count()
            + String::from_utf8_lossy(&line).chars().count();
        (width <= WIDTH).then_some((line, close + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(text: &str) -> String {
        let of = |text: &str| {
            let text = Bytes::copy_from_slice(text.as_bytes());
            String::from_utf8(format(Path::new("f"), &text).unwrap()).unwrap()
        };
        let once = of(text);
        assert_eq!(of(&once), once, "not idempotent");
        once
    }

    #[test]
    fn statements_and_blocks_are_indented() {
        let text = "user x;\n\n\n\nhttp{  # web\nserver\n{\n\n listen 80 ;root /a;\n\n}\n}\n\n";
        let want = "user x;\n\nhttp {  # web\n    server {\n        listen 80;\n        root /a;\n\
                    \x20   }\n}\n";
        assert_eq!(formatted(text), want);
        assert_eq!(formatted(""), "");
        assert_eq!(formatted("\n# a\n\n\n#b  \n"), "# a\n\n#b\n");
    }

    #[test]
    fn short_blocks_stay_in_their_line() {
        let same = "events {}\nlocation / { return 204; }\nmap $a $b { default 0; x  1; }\n";
        assert_eq!(formatted(same), same);
        assert_eq!(formatted("a {b c;}"), "a { b c; }\n");
        assert_eq!(formatted("a { b { c; } }"), "a {\n    b { c; }\n}\n");
        assert_eq!(formatted("a {\n}"), "a {\n}\n");
        let long = format!("a {{ b {}; }}", "x".repeat(95));
        assert_eq!(formatted(&long), format!("a {{\n    b {};\n}}\n", "x".repeat(95)));
        assert_eq!(formatted("a { b; # c\n}"), "a {\n    b; # c\n}\n");
    }

    #[test]
    fn words_keep_their_bytes_and_columns() {
        let text =
            "log_format m '$a\n  $b'\n           \"x;\\\"{\";\na   b\tc;\nif ($a = \"b\") { x; }\n";
        assert_eq!(formatted(text), text.replace('\t', " "));
        let text = " { \n".trim_start();
        assert!(format(Path::new("f"), &Bytes::copy_from_slice(text.as_bytes())).is_err());
        // Later lines move with the first one; a line further left is indented.
        assert_eq!(formatted("h {\na b\n  c\nd;}"), "h {\n    a b\n      c\n        d;\n}\n");
        assert_eq!(formatted("h {\n\ta b\n\t\tc;}"), "h {\n    a b\n        c;\n}\n");
    }

    #[test]
    fn comments_within_statements_end_their_lines() {
        assert_eq!(formatted("a # x\n;b #y;\n c;"), "a # x\n    ;\nb #y;\n    c;\n");
        assert_eq!(formatted("a # x\n{ b; }"), "a # x\n{\n    b;\n}\n");
        assert_eq!(formatted("a;#x\n}".trim_end_matches('}')), "a; #x\n");
        assert_eq!(formatted("a {#x\n#y\n}#z"), "a { #x\n    #y\n} #z\n");
    }

    #[test]
    fn programs_line_ends_and_marks() {
        let lua = "x_by_lua_block {\n  if a then { b } -- }\n  ;;  end\n }\nc;\n";
        assert_eq!(formatted(lua), lua);
        assert_eq!(formatted("a;\r\nb {\r\nc 'x\ny';\r\n}"), "a;\r\nb {\r\n    c 'x\ny';\r\n}\r\n");
        assert_eq!(formatted("\u{feff}a  b;"), "a  b;\n");
        assert_eq!(formatted(" \u{feff}a;"), "\n\u{feff}a;\n");
    }

    #[test]
    fn random_texts_keep_their_meaning() {
        let mut state = 7_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            usize::try_from(state >> 33).unwrap() % below
        };
        let parts = [
            "a",
            "bc",
            "\"q \\\" ;\"",
            "'x\n y'",
            ")",
            "$v",
            "${v}",
            "#c\n",
            " # d\n",
            "\n",
            "\n\n",
            " ",
            "  ",
            "\t",
            ";",
            ";",
            ";",
            "{",
            "}",
            "\r\n",
            "\\;",
            "\\ ",
            "x_by_lua_block {",
            "é",
        ];
        let mut good = 0;
        for _ in 0..12_000 {
            let text: String = (0..1 + next(14)).map(|_| parts[next(parts.len())]).collect();
            if Tokens::new(Path::new("f"), text.clone().into()).is_ok() {
                formatted(&text);
                good += 1;
            }
        }
        assert!(good > 200, "{good}");
    }
}
