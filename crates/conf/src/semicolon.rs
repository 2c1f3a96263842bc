//! A missing `;`: the directive of the next line is read as arguments of the one before it, and
//! the error names that one or a place far below.

use crate::{ConfError, Pos, Word, known};

/// The first argument that begins a line and is the name of a directive: its index.
pub(crate) fn swallowed(
    name: &Word,
    args: &[Word],
    is_directive: impl Fn(&[u8]) -> bool,
) -> Option<usize> {
    let mut before = name;
    for (at, word) in args.iter().enumerate() {
        let begins = word.pos.file == before.pos.file && word.pos.line > end(before).line;
        if begins && !word.quoted && is_directive(word.bytes()) {
            return Some(at);
        }
        before = word;
    }
    None
}

/// The line that a word ends in: one in quotes may have several.
fn end(word: &Word) -> Pos {
    let feeds = memchr::memchr_iter(b'\n', word.bytes()).count();
    let mut pos = word.pos.clone();
    if feeds > 0 {
        pos.line = pos.line.saturating_add(u32::try_from(feeds).unwrap_or(u32::MAX));
        pos.column = 0;
    }
    pos
}

/// Adds the cause: the word before the argument at `at` lacks its `;`.
pub(crate) fn add(error: ConfError, name: &Word, args: &[Word], at: usize) -> ConfError {
    let before = at.checked_sub(1).and_then(|at| args.get(at)).unwrap_or(name);
    let swallowed = args.get(at).map(|word| (word.lossy(), word.pos.line));
    let help = swallowed.map(|(word, line)| {
        format!("\"{word}\" in line {line} is read as an argument of \"{}\"", name.lossy())
    });
    with_cause(error, before, help)
}

fn with_cause(error: ConfError, last: &Word, help: Option<String>) -> ConfError {
    let message = format!("\";\" is missing after \"{}\"", crate::error::short(last));
    let pos = end(last);
    let len = if pos.column == 0 { 0 } else { last.text.len() + if last.quoted { 2 } else { 0 } };
    let len = u32::try_from(len).unwrap_or(0);
    let cause = ConfError { help, ..ConfError::at_pos(pos, len, message) };
    ConfError { cause: Some(Box::new(cause)), ..error }
}

/// Adds the cause to the error of a `}` or the file's end within a statement of these words.
pub(crate) fn explain(error: ConfError, words: &[Word]) -> ConfError {
    let Some((name, args)) = words.split_first() else { return error };
    if name.pos.line == 0 {
        return error;
    }
    match swallowed(name, args, |word| !known::find(word).is_empty()) {
        Some(at) => add(error, name, args, at),
        None => with_cause(error, args.last().unwrap_or(name), None),
    }
}
