//! Diagnostics: the errors and warnings of `-t`, and the findings of `weir lint`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::log::Log;
use conf::lint::Severity;
use conf::{ConfError, Node, Tree};
use serde_json::{Value, json};
use server::engines::Lasting;
use server::load::Loader;
use server::paths::Paths;

use super::document::{Document, identity, offset_of, range, uri_of};
use super::project::{Unsaved, View};

/// A check that takes longer waits until the text is written.
const QUICK: Duration = Duration::from_millis(200);

/// The diagnostics of texts, by their names.
pub(crate) type Published = HashMap<String, Vec<Value>>;

/// A configuration that is checked again and again.
struct Checked {
    loader: Loader,
    took: Duration,
}

/// The reader of configurations as `-t` reads them.
#[derive(Default)]
pub(crate) struct Checker {
    loaders: HashMap<PathBuf, Checked>,
}

/// A fault in a file.
struct Fault {
    file: PathBuf,
    line: u32,
    column: u32,
    /// The length of the marked text in bytes; 0 for the rest of the line.
    len: usize,
    severity: u8,
    code: Option<&'static str>,
    message: String,
}

const ERROR: u8 = 1;
const WARNING: u8 = 2;
const NOTE: u8 = 3;

impl Checker {
    /// The diagnostics of all open texts, and of the files of their configurations.
    pub(crate) fn publish(
        &mut self,
        documents: &[Document],
        views: &[View<'_>],
        unsaved: &Unsaved,
        saved: bool,
    ) -> Published {
        let mut all: Published = documents.iter().map(|d| (d.uri.clone(), Vec::new())).collect();
        let mut done: Vec<&Path> = Vec::new();
        for view in views {
            if let Some(paths) = &view.paths {
                if done.contains(&paths.conf_file.as_path()) {
                    continue;
                }
                done.push(&paths.conf_file);
            }
            let mut faults = match &view.paths {
                Some(paths) => self.test(paths, unsaved, saved),
                None => broken(&view.tree.nodes)
                    .map(|e| of_error(e, Path::new("")))
                    .into_iter()
                    .collect(),
            };
            faults.extend(conf::lint::check(&view.tree, false, None).into_iter().map(of_finding));
            for fault in faults {
                let (uri, text) = place(&fault.file, documents, view);
                all.entry(uri).or_default().push(diagnostic(&fault, &text));
            }
        }
        all
    }

    /// The error and the warnings of a configuration.
    fn test(&mut self, paths: &Paths, unsaved: &Unsaved, saved: bool) -> Vec<Fault> {
        if !self.loaders.contains_key(&paths.conf_file) {
            // Without shared memory there is the syntax, by `lint`'s reader.
            let Ok(lasting) = Lasting::new() else { return Vec::new() };
            let loader = Loader::new(paths.clone(), None, lasting);
            let new = Checked { loader, took: Duration::ZERO };
            self.loaders.insert(paths.conf_file.clone(), new);
        }
        let Some(checked) = self.loaders.get_mut(&paths.conf_file) else { return Vec::new() };
        if checked.took > QUICK && !saved {
            return Vec::new();
        }
        checked.loader.unsaved = unsaved.clone();
        let reasons = checked.loader.reasons.clone();
        reasons.begin();
        let begun = Instant::now();
        let errors = checked.loader.check(&Log::new(vec![reasons.clone()]));
        checked.took = begun.elapsed();
        let warnings = reasons.end();
        let warnings = warnings.iter().filter_map(|line| of_warning(line));
        let errors = errors.iter().map(|error| of_error(error, &paths.conf_file));
        errors.chain(warnings).collect()
    }
}

/// The syntax error that a tree ends in.
fn broken(nodes: &[Node]) -> Option<&ConfError> {
    nodes.iter().find_map(|node| node.broken.as_deref().or_else(|| broken(node.children())))
}

fn of_error(error: &ConfError, main: &Path) -> Fault {
    let (file, line, column) = match &error.pos {
        Some(pos) => (pos.file.to_path_buf(), pos.line, pos.column),
        None => (main.to_owned(), 1, 0),
    };
    let mut message = error.message.clone();
    if let Some(help) = &error.help {
        message.push_str(&format!(": {help}"));
    }
    if let Some(cause) = &error.cause {
        message.push_str(&format!("; {cause}"));
    }
    let len = usize::try_from(error.len).unwrap_or(0);
    Fault { file, line, column, len, severity: ERROR, code: None, message }
}

/// A warning's line: `[warn] MESSAGE in FILE:LINE`.
fn of_warning(line: &str) -> Option<Fault> {
    let text = line.split_once("] ").map_or(line, |(_, text)| text);
    let (message, place) = text.rsplit_once(" in ")?;
    let (file, line) = place.rsplit_once(':')?;
    let line = line.parse().ok()?;
    let (file, message) = (PathBuf::from(file), message.to_owned());
    Some(Fault { file, line, column: 0, len: 0, severity: WARNING, code: None, message })
}

fn of_finding(finding: conf::lint::Finding) -> Fault {
    let severity = match finding.rule.severity {
        Severity::Error => ERROR,
        Severity::Warning => WARNING,
        Severity::Note => NOTE,
    };
    Fault {
        file: finding.pos.file.to_path_buf(),
        line: finding.pos.line,
        column: finding.pos.column,
        len: 0,
        severity,
        code: Some(finding.rule.id),
        message: finding.message,
    }
}

/// The editor's name of a file, and its text.
pub(crate) fn place(file: &Path, documents: &[Document], view: &View<'_>) -> (String, String) {
    let own = view.document;
    if view.paths.is_none() {
        return (own.uri.clone(), own.text.clone());
    }
    let known = identity(file);
    match documents.iter().find(|d| known.is_some() && d.identity() == known) {
        Some(document) => (document.uri.clone(), document.text.clone()),
        None => (uri_of(file), text_of(file, &view.tree)),
    }
}

/// The text of a file of a configuration.
pub(crate) fn text_of(file: &Path, tree: &Tree) -> String {
    let source = tree.files.iter().find(|source| *source.path == *file);
    source.map(|s| String::from_utf8_lossy(&s.bytes).into_owned()).unwrap_or_default()
}

fn diagnostic(fault: &Fault, text: &str) -> Value {
    let start = offset_of(text, fault.line, fault.column);
    let rest = text[floor(text, start)..].split('\n').next().unwrap_or_default();
    let end = match (fault.len, fault.code) {
        // The word of a finding.
        (0, Some(_)) => start + rest.find([' ', '\t', ';', '{']).unwrap_or(rest.len()).max(1),
        (0, None) => start + rest.trim_end().len(),
        (len, _) => start + len,
    };
    let mut value = json!({
        "range": range(text, start, end),
        "severity": fault.severity,
        "source": if fault.code.is_some() { "weir lint" } else { "weir -t" },
        "message": fault.message,
    });
    if let (Some(code), Some(members)) = (fault.code, value.as_object_mut()) {
        members.insert("code".to_owned(), json!(code));
    }
    value
}

/// The start of the character that a byte is in.
fn floor(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_have_their_place() {
        let fault = of_warning("[warn] \"ssl\" in vain in /a b/x.conf:12").expect("it has a place");
        assert_eq!((fault.file.as_path(), fault.line), (Path::new("/a b/x.conf"), 12));
        assert_eq!(fault.message, "\"ssl\" in vain");
        assert!(of_warning("[warn] nothing").is_none() && of_warning("in a:b").is_none());
    }

    #[test]
    fn the_text_in_question_is_marked() {
        let fault = |len, code| Fault {
            file: PathBuf::new(),
            line: 2,
            column: 3,
            len,
            severity: ERROR,
            code,
            message: "m".to_owned(),
        };
        let text = "a;\n  root /b; # c\n";
        let end = |fault: &Fault| diagnostic(fault, text)["range"]["end"]["character"].clone();
        assert_eq!(end(&fault(0, Some("x"))), 6);
        assert_eq!(end(&fault(0, None)), 14);
        assert_eq!(end(&fault(2, None)), 4);
        assert_eq!(diagnostic(&fault(0, Some("x")), text)["code"], "x");
        assert_eq!(diagnostic(&fault(0, None), "")["range"]["start"]["line"], 0);
    }
}
