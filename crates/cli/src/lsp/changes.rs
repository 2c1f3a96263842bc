//! Changes that the editor may make: the layout of `weir fmt`, and the fixes of `weir lint --fix`.

use std::path::Path;

use bytes::Bytes;
use conf::edit::{Edit, replacements};
use conf::lint::{Finding, check};
use conf::tokens::Tokens;
use serde_json::{Map, Value, json};

use super::document::{Document, offset_of, range};
use super::faults::{place, text_of};
use super::project::View;
use crate::fixes::by_file;

/// The changes that format a text; null if its syntax is wrong.
pub(crate) fn format(document: &Document) -> Value {
    let name = document.path.as_deref().unwrap_or(Path::new(&document.uri));
    let old = Bytes::copy_from_slice(document.text.as_bytes());
    let Ok(new) = conf::format::format(name, &old) else { return Value::Null };
    if new == old {
        return json!([]);
    }
    let text = &document.text;
    let new = String::from_utf8_lossy(&new);
    json!([{"range": range(text, 0, text.len()), "newText": new}])
}

/// The fixes of findings in a part of a text, and one of all findings of the text.
pub(crate) fn actions(documents: &[Document], view: &View<'_>, start: usize, end: usize) -> Value {
    let own = |finding: &Finding| {
        let (uri, _) = place(&finding.pos.file, documents, view);
        uri == view.document.uri && !finding.fix.is_empty()
    };
    let found: Vec<Finding> = check(&view.tree, false, None).into_iter().filter(own).collect();
    let text = &view.document.text;
    let is_here = |finding: &&Finding| {
        let line = finding.pos.line;
        offset_of(text, line, 1) <= end && start < offset_of(text, line + 1, 1).max(1)
    };
    let mut actions = Vec::new();
    for finding in found.iter().filter(is_here) {
        if let Some(edit) = workspace_edit(documents, view, finding.fix.clone()) {
            actions.push(json!({
                "title": format!("weir lint: fix {}", finding.rule.id),
                "kind": "quickfix",
                "edit": edit,
            }));
        }
    }
    let all: Vec<Edit> = found.iter().flat_map(|finding| finding.fix.clone()).collect();
    if let Some(edit) = workspace_edit(documents, view, all) {
        let title = "weir lint: fix everything that is safe to fix in this file";
        actions.push(json!({"title": title, "kind": "source.fixAll", "edit": edit}));
    }
    json!(actions)
}

/// Changes as the editor has them; none if nothing changes.
fn workspace_edit(documents: &[Document], view: &View<'_>, edits: Vec<Edit>) -> Option<Value> {
    let mut changes = Map::new();
    for (path, edits) in by_file(&view.tree, edits) {
        let (uri, text) = place(&path, documents, view);
        let source = match view.paths {
            Some(_) => text_of(&path, &view.tree),
            None => text.clone(),
        };
        let tokens = Tokens::new(&path, Bytes::from(source)).ok()?;
        let list: Vec<Value> = replacements(&tokens, &edits)
            .iter()
            .map(|one| json!({"range": range(&text, one.start, one.end), "newText": one.text}))
            .collect();
        if !list.is_empty() {
            changes.insert(uri, json!(list));
        }
    }
    (!changes.is_empty()).then(|| json!({"changes": changes}))
}
