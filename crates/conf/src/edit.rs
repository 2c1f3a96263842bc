//! Changes of a file that keep its layout and comments: what `weir lint --fix`, `weir migrate
//! --fix` and an editor's quick fixes write.

use crate::tokens::{Kind, Token, Tokens};
use crate::{Pos, Word};

/// A change, by a word of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Replaces the word.
    Replace(String),
    /// Removes the word, and the blanks in front of it.
    RemoveWord,
    /// Adds a word after it.
    AddWord(String),
    /// Adds statements after that of the word, each in a line of its own.
    AddStatements(Vec<String>),
    /// Adds a statement as the first of the block that the word's statement opens.
    AddFirst(String),
    /// Removes the word's statement with its line, if it is alone there.
    RemoveStatement,
    /// Removes the comment at the place; with its line, if it is alone there.
    RemoveComment,
}

/// A change and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The word.
    pub pos: Pos,
    /// What is written in place of it, before it or after it.
    pub change: Change,
}

impl Edit {
    /// A change at a word.
    pub fn new(at: &Word, change: Change) -> Edit {
        Edit { pos: at.pos.clone(), change }
    }
}

/// A replacement of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The first byte that is replaced.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
    /// The new text.
    pub text: String,
}

/// The replacements that changes come to, in the order of the text, without overlaps: of two that
/// overlap, the first one is taken. Changes whose place is not in the text are left out.
pub fn replacements(tokens: &Tokens, edits: &[Edit]) -> Vec<Replacement> {
    let mut all: Vec<Replacement> = edits.iter().filter_map(|edit| one(tokens, edit)).collect();
    all.sort_by_key(|one| (one.start, one.end));
    all.dedup();
    let mut free = 0;
    all.retain(|one| {
        let fits = one.start >= free;
        if fits {
            free = one.end;
        }
        fits
    });
    all
}

/// The text with replacements made, which are in order.
pub fn apply(text: &[u8], replacements: &[Replacement]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    for one in replacements {
        out.extend_from_slice(text.get(at..one.start).unwrap_or_default());
        out.extend_from_slice(one.text.as_bytes());
        at = one.end;
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    out
}

fn one(tokens: &Tokens, edit: &Edit) -> Option<Replacement> {
    let at = tokens.at(&edit.pos)?;
    let token = tokens.list.get(at)?;
    let insert = |at: usize, text: String| Replacement { start: at, end: at, text };
    Some(match &edit.change {
        Change::Replace(text) => {
            Replacement { start: token.start, end: token.end, text: text.clone() }
        }
        Change::RemoveWord => {
            let start = at.checked_sub(1).map_or(0, |before| tokens.list[before].end);
            Replacement { start, end: token.end, text: String::new() }
        }
        Change::AddWord(word) => insert(token.end, format!(" {word}")),
        Change::AddStatements(statements) => {
            let (first, end) = bounds(tokens, at)?;
            let indent = indent_of(tokens, first);
            let feed = feed_of(tokens);
            let lines = statements.iter().map(|text| format!("{feed}{indent}{text}"));
            insert(after_comment(tokens, end), lines.collect())
        }
        Change::AddFirst(text) => {
            let range = tokens.statement(at);
            let open = range.end.checked_sub(1)?;
            let brace = tokens.list.get(open).filter(|token| token.kind == Kind::Open)?;
            let next = tokens.list.get(open + 1)?;
            let inner = tokens.text.get(brace.end..next.start)?;
            match inner.contains(&b'\n') && next.kind != Kind::Close {
                true => insert(brace.end, {
                    let indent = indent_of(tokens, next);
                    format!("{}{indent}{text}", feed_of(tokens))
                }),
                false => insert(brace.end, format!(" {text}")),
            }
        }
        Change::RemoveStatement => {
            let (first, end) = bounds(tokens, at)?;
            removed(tokens, first.start, end)
        }
        Change::RemoveComment => {
            let comment = Some(token).filter(|token| token.kind == Kind::Comment)?;
            removed(tokens, comment.start, comment.end)
        }
    })
}

/// The first token of the statement, and the end of the statement with its block.
fn bounds(tokens: &Tokens, at: usize) -> Option<(&Token, usize)> {
    let range = tokens.statement(at);
    let (first, last) = (tokens.list.get(range.start)?, range.end.checked_sub(1)?);
    let end = match tokens.list.get(last)?.kind {
        Kind::Open => tokens.close_of(last)?,
        _ => last,
    };
    Some((first, tokens.list.get(end)?.end))
}

/// The end of the comment that follows in the same line, or the place itself.
fn after_comment(tokens: &Tokens, end: usize) -> usize {
    let next = tokens.list.iter().find(|token| token.start >= end);
    let comment = next.filter(|token| token.kind == Kind::Comment);
    let same_line =
        |token: &&Token| tokens.text.get(end..token.start).is_some_and(|gap| !gap.contains(&b'\n'));
    comment.filter(same_line).map_or(end, |token| {
        let text = token.of(&tokens.text);
        token.start + text.trim_ascii_end().len()
    })
}

/// The blanks at the start of a token's line.
fn indent_of(tokens: &Tokens, token: &Token) -> String {
    let line = line_start(&tokens.text, token.start);
    let rest = &tokens.text[line..token.start];
    let len = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(rest.len());
    String::from_utf8_lossy(&rest[..len]).into_owned()
}

fn feed_of(tokens: &Tokens) -> &'static str {
    let first = memchr::memchr(b'\n', &tokens.text).unwrap_or(0);
    if tokens.text[..first].ends_with(b"\r") { "\r\n" } else { "\n" }
}

fn line_start(text: &[u8], at: usize) -> usize {
    memchr::memrchr(b'\n', &text[..at]).map_or(0, |feed| feed + 1)
}

/// The removal of a part of the text: with its line if nothing else is there, or else with the
/// blanks in front of it.
fn removed(tokens: &Tokens, start: usize, end: usize) -> Replacement {
    let text = &tokens.text[..];
    let line = line_start(text, start);
    let blank = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_whitespace);
    let next = memchr::memchr(b'\n', &text[end..]).map_or(text.len(), |feed| end + feed + 1);
    if blank(&text[line..start]) && blank(&text[end..next]) {
        return Replacement { start: line, end: next, text: String::new() };
    }
    let blanks = text[line..start].iter().rev().take_while(|byte| byte.is_ascii_whitespace());
    Replacement { start: start - blanks.count(), end, text: String::new() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::rc::Rc;

    use super::*;

    fn edited(text: &str, edits: &[(u32, u32, Change)]) -> String {
        let file: Rc<Path> = Path::new("f").into();
        let tokens = Tokens::new(&file, text.to_owned().into()).unwrap();
        let edits: Vec<Edit> = edits
            .iter()
            .map(|(line, column, change)| Edit {
                pos: Pos { file: file.clone(), line: *line, column: *column },
                change: change.clone(),
            })
            .collect();
        String::from_utf8(apply(text.as_bytes(), &replacements(&tokens, &edits))).unwrap()
    }

    #[test]
    fn words_change_alone() {
        let text = "a {\n  b  \"x y\" z; # c\n}\n";
        assert_eq!(
            edited(text, &[(2, 6, Change::Replace("q".into()))]),
            text.replace("\"x y\"", "q")
        );
        assert_eq!(edited(text, &[(2, 12, Change::RemoveWord)]), text.replace(" z", ""));
        let added = edited(text, &[(2, 12, Change::AddWord("w".into()))]);
        assert_eq!(added, text.replace(" z;", " z w;"));
        // Of two that overlap, one is made.
        let twice = [(2, 6, Change::Replace("q".into())), (2, 6, Change::Replace("r".into()))];
        assert_eq!(edited(text, &twice), text.replace("\"x y\"", "q"));
        assert_eq!(edited(text, &[(9, 1, Change::RemoveWord)]), text);
    }

    #[test]
    fn statements_come_and_go_with_their_lines() {
        let text = "a {\n  b x; # c\n  d;\n}\n";
        let add = Change::AddStatements(vec!["e;".into(), "f;".into()]);
        assert_eq!(edited(text, &[(2, 5, add)]), "a {\n  b x; # c\n  e;\n  f;\n  d;\n}\n");
        assert_eq!(edited(text, &[(3, 3, Change::RemoveStatement)]), "a {\n  b x; # c\n}\n");
        assert_eq!(edited(text, &[(2, 3, Change::RemoveStatement)]), "a {\n # c\n  d;\n}\n");
        assert_eq!(edited(text, &[(2, 8, Change::RemoveComment)]), "a {\n  b x;\n  d;\n}\n");
        let first = |text: &str| edited(text, &[(1, 1, Change::AddFirst("z;".into()))]);
        assert_eq!(first(text), "a {\n  z;\n  b x; # c\n  d;\n}\n");
        assert_eq!(first("a { b; }"), "a { z; b; }");
        assert_eq!(first("a {}"), "a { z;}");
        let block = Change::AddStatements(vec!["e;".into()]);
        assert_eq!(edited("a {\r\n}\r\nb;", &[(1, 1, block)]), "a {\r\n}\r\ne;\r\nb;");
    }
}
