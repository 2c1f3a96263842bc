//! `# weir:ignore RULE reason`.

use base::ascii::trim;

use super::{Finding, IGNORE, SCRIPT_FUNCTION, rules};
use crate::edit::{Change, Edit};
use crate::{Pos, Tree};

const MARK: &[u8] = b"weir:ignore";

/// A comment that suppresses findings.
struct Comment {
    pos: Pos,
    rule: Vec<u8>,
    has_reason: bool,
    /// The comment is alone in its line, so it applies to the next line.
    alone: bool,
    /// The comment says nothing else.
    only: bool,
}

/// Removes the findings that comments suppress, and reports wrong comments.
pub(super) fn apply(tree: &Tree, habits: bool, found: &mut Vec<Finding>) {
    let comments: Vec<Comment> = tree.files.iter().flat_map(comments).collect();
    let silences = |c: &Comment, f: &Finding| {
        let line = if c.alone { c.pos.line + 1 } else { c.pos.line };
        c.rule == f.rule.id.as_bytes() && c.pos.file == f.pos.file && line == f.pos.line
    };
    let idle: Vec<bool> = comments.iter().map(|c| !found.iter().any(|f| silences(c, f))).collect();
    found.retain(|f| !comments.iter().any(|c| silences(c, f)));
    for (comment, idle) in comments.iter().zip(idle) {
        let rule = String::from_utf8_lossy(&comment.rule);
        let known = rules().find(|r| r.id == rule);
        let mut fix = Vec::new();
        let message = if known.is_none() {
            format!("there is no rule \"{rule}\": \"weir lint --rules\" lists all")
        } else if idle && rule != SCRIPT_FUNCTION.id && known.is_some_and(|r| habits || !r.habit) {
            if comment.only {
                fix.push(Edit { pos: comment.pos.clone(), change: Change::RemoveComment });
            }
            format!("\"{rule}\" finds nothing here: remove the comment")
        } else if !comment.has_reason {
            format!("\"{rule}\" is ignored without a reason: write one after the rule")
        } else {
            continue;
        };
        found.push(Finding { rule: IGNORE, pos: comment.pos.clone(), message, fix });
    }
}

fn comments(file: &crate::SourceFile) -> Vec<Comment> {
    let mut all = Vec::new();
    let path = file.path.clone();
    for (number, line) in file.bytes.split(|&b| b == b'\n').enumerate() {
        let Some(at) = line.windows(MARK.len()).position(|w| w == MARK) else { continue };
        let before = trim(&line[..at]);
        let Some(code) = before.strip_suffix(b"#") else { continue };
        let mut words =
            line[at + MARK.len()..].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let rule = words.next().unwrap_or_default().to_vec();
        let pos = Pos { file: path.clone(), line: number as u32 + 1, column: at as u32 + 1 };
        let has_reason = words.next().is_some();
        let only = !code.contains(&b'#');
        all.push(Comment { pos, rule, has_reason, alone: trim(code).is_empty(), only });
    }
    all
}
