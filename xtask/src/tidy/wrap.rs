//! Comments over the columns, broken anew: the formatter leaves them as they are.

use super::COLUMNS;
use crate::rust_source::Source;

/// A line, and whether it is a comment and nothing else.
struct Line {
    text: String,
    comment: bool,
}

/// Wraps comment lines that are too long; the rest of one begins the next line of the same
/// paragraph, or a line of its own.
pub fn wrap(text: &str, source: &Source) -> String {
    let mut lines: Vec<Line> = text
        .lines()
        .zip(source.code.lines().zip(source.comments.lines()))
        .map(|(text, (code, comment))| Line {
            text: text.to_string(),
            comment: code.trim().is_empty() && !comment.trim().is_empty(),
        })
        .collect();
    let (mut at, mut fenced) = (0, false);
    while at < lines.len() {
        fenced ^= lines[at].comment && lines[at].text.contains("```");
        if lines[at].comment
            && !fenced
            && let Some((kept, hang, rest)) = cut(&lines[at].text)
        {
            lines[at].text = kept;
            match lines.get_mut(at + 1) {
                Some(next) if next.comment && continues(&next.text, &hang) => {
                    next.text = format!("{hang}{rest} {}", &next.text[hang.len()..]);
                }
                _ => lines.insert(at + 1, Line { text: format!("{hang}{rest}"), comment: true }),
            }
        }
        at += 1;
    }
    let mut wrapped: String =
        lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n");
    wrapped.push('\n');
    wrapped
}

/// The part of a comment line that fits, the prefix of the next line, and the rest.
fn cut(line: &str) -> Option<(String, String, String)> {
    let limit = line.char_indices().nth(COLUMNS)?.0;
    let prefix = prefix_len(line)?;
    let body = &line[prefix..];
    if body.trim_start().starts_with('|') {
        return None;
    }
    let hang = body.len() - body.trim_start().len() + marker_len(body.trim_start());
    let space = line[..=limit.min(line.len() - 1)].rfind(' ').filter(|&s| s > prefix + hang)?;
    let (kept, rest) = (line[..space].trim_end(), line[space..].trim());
    let hang = format!("{}{}", &line[..prefix], " ".repeat(hang));
    Some((kept.to_string(), hang, rest.to_string()))
}

/// The length of the indentation, the slashes and the space behind them.
fn prefix_len(line: &str) -> Option<usize> {
    let indent = line.len() - line.trim_start().len();
    let slashes = ["/// ", "//! ", "// "].iter().find(|s| line[indent..].starts_with(**s))?;
    Some(indent + slashes.len())
}

/// The length of a list's marker: `- `, `* `, `1. `.
fn marker_len(body: &str) -> usize {
    if body.starts_with("- ") || body.starts_with("* ") {
        return 2;
    }
    let digits = body.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 && body[digits..].starts_with(". ") { digits + 2 } else { 0 }
}

/// Whether a line goes on with the paragraph that hangs at `hang`.
fn continues(line: &str, hang: &str) -> bool {
    let Some(body) = line.strip_prefix(hang) else { return false };
    !body.is_empty()
        && !body.starts_with([' ', '|', '#'])
        && !body.starts_with("```")
        && marker_len(body) == 0
}

#[cfg(test)]
mod tests {
    use super::wrap;
    use crate::rust_source::Source;

    fn wrapped(text: &str) -> Vec<String> {
        wrap(text, &Source::new(text)).lines().map(str::to_string).collect()
    }

    #[test]
    fn what_hangs_over_begins_the_next_line() {
        let text = format!("    /// {} tail\n    /// more\n    fn f() {{}}\n", "x".repeat(91));
        assert_eq!(wrapped(&text)[1], "    /// tail more");
        let text = format!("    // {} tail\n    f();\n", "é".repeat(92));
        let lines = wrapped(&text);
        assert_eq!((lines[1].as_str(), lines[2].as_str()), ("    // tail", "    f();"));
    }

    #[test]
    fn lists_keep_their_shape() {
        let text = format!("//! - {} tail\n//! - next\n", "x".repeat(93));
        assert_eq!(wrapped(&text)[1..], ["//!   tail", "//! - next"]);
    }

    #[test]
    fn code_tables_and_strings_stay() {
        let long = "word ".repeat(30);
        for text in [
            format!("//! | {long} |\n"),
            format!("//! ```\n//! {long}x\n//! ```\n"),
            format!("const S: &str = \"\n// {long}x\n\";\n"),
            format!("// {}\n", "x".repeat(120)),
        ] {
            assert_eq!(wrap(&text, &Source::new(&text)), text);
        }
    }
}
