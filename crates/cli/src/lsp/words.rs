//! Completions, documentation and definitions of the words of a text.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use conf::reference::Entry;
use conf::table::{Args, Contexts};
use conf::{Node, Word, foreign, glob, known};
use serde_json::{Value, json};

use super::document::{offset_of, range, uri_of};
use super::faults::text_of;
use super::project::View;
use super::scan::{Scan, Statement};

/// Files of a pattern that a definition leads to.
const FILES_MAX: usize = 100;

/// Kinds of completions (LSP, `CompletionItemKind`).
const VARIABLE: u8 = 6;
const VALUE: u8 = 12;
const KEYWORD: u8 = 14;
const REFERENCE: u8 = 18;

/// The directives and variables of this program.
pub(crate) struct Facts {
    /// All directives.
    pub(crate) entries: Vec<Entry>,
    /// All variables, without the dollar.
    pub(crate) variables: Vec<&'static str>,
}

fn item(label: &str, kind: u8, detail: &str, text: &str) -> Value {
    json!({"label": label, "kind": kind, "detail": detail, "documentation": text})
}

/// The statement that the text ends in, with whether its last word may go on.
fn unfinished<'s>(scan: &'s Scan, text: &str) -> Option<(&'s Statement, bool)> {
    let last = scan.statements.last().filter(|last| !last.ended)?;
    let rest = text.get(last.words.last()?.end..)?;
    (!rest.contains(['}', '#'])).then_some((last, rest.is_empty()))
}

/// The completions at a place.
pub(crate) fn complete(view: &View<'_>, facts: &Facts, offset: usize) -> Vec<Value> {
    let text = view.document.text.get(..offset).unwrap_or_default();
    let scan = Scan::new(text);
    if scan.in_comment {
        return Vec::new();
    }
    let blocks = scan.open.iter().map(|at| scan.statements[*at].name());
    let context = view.context(blocks);
    match unfinished(&scan, text) {
        Some((statement, touching)) if !(touching && statement.words.len() == 1) => {
            let word = statement.words.last().filter(|_| touching);
            let before = word.map_or("", |word| word.text.as_str());
            arguments(view, facts, context, statement.name(), before)
        }
        _ => directives(facts, context),
    }
}

fn directives(facts: &Facts, context: Option<Contexts>) -> Vec<Value> {
    let Some(context) = context else { return Vec::new() };
    let fitting = facts.entries.iter().filter(|entry| entry.contexts.intersects(context));
    let mut seen = BTreeSet::new();
    fitting
        .filter(|entry| seen.insert(entry.name))
        .map(|entry| item(entry.name, KEYWORD, &entry.arguments(), entry.doc))
        .collect()
}

fn arguments(
    view: &View<'_>,
    facts: &Facts,
    context: Option<Contexts>,
    name: &str,
    before: &str,
) -> Vec<Value> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '{';
    if before.trim_end_matches(is_name).ends_with('$') {
        return variables(view, facts);
    }
    let named = facts.entries.iter().filter(|entry| entry.name == name);
    let mut fitting = named.filter(|e| context.is_some_and(|c| e.contexts.intersects(c)));
    if fitting.any(|entry| entry.args == Args::FLAG) {
        return ["on", "off"].map(|value| item(value, VALUE, name, "")).to_vec();
    }
    let references = |block: &str, starts: &str| {
        let mut found = BTreeSet::new();
        each(&view.tree.nodes, &mut |node| {
            let first =
                node.args.first().filter(|word| word.bytes().starts_with(starts.as_bytes()));
            if let Some(first) = first.filter(|_| node.name == *block && node.block.is_some()) {
                found.insert(first.lossy().into_owned());
            }
        });
        found.iter().map(|label| item(label, REFERENCE, block, "")).collect()
    };
    match name {
        "try_files" | "error_page" => references("location", "@"),
        _ if name.ends_with("_pass") => references("upstream", ""),
        _ => Vec::new(),
    }
}

fn variables(view: &View<'_>, facts: &Facts) -> Vec<Value> {
    let mut own = BTreeSet::new();
    each(&view.tree.nodes, &mut |node| {
        own.extend(
            defined(node).iter().map(|word| word.lossy().trim_start_matches('$').to_owned()),
        );
    });
    let built_in = facts.variables.iter().map(|name| item(name, VARIABLE, "built in", ""));
    let own = own.iter().map(|name| item(name, VARIABLE, "of this configuration", ""));
    own.chain(built_in).collect()
}

/// Calls a function for each directive, however deep.
pub(crate) fn each<'n>(nodes: &'n [Node], look: &mut dyn FnMut(&'n Node)) {
    for node in nodes {
        look(node);
        each(node.children(), look);
    }
}

/// The variable that a directive defines, if it does.
pub(crate) fn defined(node: &Node) -> Option<&Word> {
    let at = match node.name.bytes() {
        b"set" | b"auth_request_set" | b"perl_set" => 0,
        b"map" | b"split_clients" => 1,
        b"geo" | b"geoip2" => node.args.len().checked_sub(1)?,
        _ => return None,
    };
    node.args.get(at).filter(|word| word.bytes().starts_with(b"$"))
}

/// The variable at a place of a word, without the dollar.
pub(crate) fn variable_at(text: &str, at: usize) -> Option<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let head = text.get(..at)?.trim_end_matches(is_name);
    let head = head.strip_suffix('{').unwrap_or(head);
    // The place may be that of the dollar itself.
    let start = match head.ends_with('$') {
        true => head.len(),
        false => text.get(at..)?.starts_with('$').then_some(at + 1)?,
    };
    let rest = text.get(start..)?;
    let rest = rest.strip_prefix('{').unwrap_or(rest);
    let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
    (!name.is_empty()).then_some(name)
}

/// The word at a place.
struct Spot<'s> {
    statement: &'s Statement,
    /// The word's number.
    word: usize,
    /// The text's variable at the place.
    variable: Option<&'s str>,
    context: Option<Contexts>,
}

fn spot<'s>(view: &View<'_>, scan: &'s Scan, text: &'s str, offset: usize) -> Option<Spot<'s>> {
    let (at, word) = scan.word_at(offset)?;
    let statement = &scan.statements[at];
    let token = &statement.words[word];
    let variable = variable_at(text.get(token.start..token.end)?, offset - token.start);
    let context = view.context(scan.around(at).iter().map(|block| block.name()));
    Some(Spot { statement, word, variable, context })
}

/// The documentation of the word at a place, as Markdown.
pub(crate) fn hover(view: &View<'_>, facts: &Facts, offset: usize) -> Option<String> {
    let text = &view.document.text;
    let scan = Scan::new(text);
    let spot = spot(view, &scan, text, offset)?;
    if let Some(name) = spot.variable {
        return of_variable(view, facts, name);
    }
    if spot.word > 0 {
        return None;
    }
    let name = spot.statement.name();
    let named: Vec<&Entry> = facts.entries.iter().filter(|entry| entry.name == name).collect();
    let fits = |entry: &&&Entry| spot.context.is_some_and(|c| entry.contexts.intersects(c));
    let mut fitting: Vec<&Entry> = named.iter().filter(fits).copied().collect();
    if fitting.is_empty() {
        fitting = named;
    }
    let told: Vec<String> = fitting.into_iter().map(of_directive).collect();
    match told.is_empty() {
        false => Some(told.join("\n\n---\n\n")),
        true => of_stranger(name),
    }
}

fn of_directive(entry: &Entry) -> String {
    let Entry { name, default, doc, module, .. } = entry;
    let default = match *default {
        "" => String::new(),
        text => format!("  \ndefault: `{name} {text};`"),
    };
    let (places, arguments) = (entry.places(), entry.arguments());
    format!(
        "**{name}** ({module})\n\n{doc}\n\ncontexts: {places}  \narguments: {arguments}{default}"
    )
}

/// A directive that is not built in.
fn of_stranger(name: &str) -> Option<String> {
    if let Some(module) = foreign::of_directive(name) {
        return Some(format!("**{name}** of {} is not built in: {}", module.name, module.advice));
    }
    let known = known::find(name.as_bytes()).first()?;
    Some(format!("**{name}** of nginx's {} is not built in", known.module))
}

fn of_variable(view: &View<'_>, facts: &Facts, name: &str) -> Option<String> {
    let mut places = Vec::new();
    each(&view.tree.nodes, &mut |node| {
        if defined(node)
            .is_some_and(|word| word.bytes().strip_prefix(b"$") == Some(name.as_bytes()))
        {
            let args: Vec<_> = node.args.iter().map(Word::lossy).collect();
            let (directive, args) = (node.name.lossy(), args.join(" "));
            places.push(format!("`{directive} {args}` in {}", node.name.pos));
        }
    });
    let is_it = |known: &&str| *known == name || known.ends_with('_') && name.starts_with(*known);
    if facts.variables.iter().any(is_it) {
        places.push("built in".to_owned());
    }
    (!places.is_empty()).then(|| format!("**${name}**: {}", places.join("  \n")))
}

/// The places where the word at a place is defined.
pub(crate) fn define(view: &View<'_>, offset: usize) -> Vec<Value> {
    let text = &view.document.text;
    let scan = Scan::new(text);
    let Some(spot) = spot(view, &scan, text, offset) else { return Vec::new() };
    let word = spot.statement.words[spot.word].text.as_str();
    if let Some(name) = spot.variable {
        let name = format!("${name}");
        return places(view, &|node| defined(node).filter(|word| **word == *name));
    }
    match spot.statement.name() {
        "include" if spot.word > 0 => files(view, word),
        name if spot.word > 0 => of_reference(view, name, word),
        _ => Vec::new(),
    }
}

fn of_reference(view: &View<'_>, name: &str, word: &str) -> Vec<Value> {
    let block = |block: &'static str, wanted: &str| {
        let wanted = wanted.to_owned();
        places(view, &move |node: &Node| {
            let fits = node.name == *block && node.args.first().is_some_and(|w| *w == *wanted);
            fits.then_some(&node.name)
        })
    };
    if word.starts_with('@') {
        return block("location", word);
    }
    match name {
        _ if name.ends_with("_pass") => {
            let host = word.split_once("://").map_or(word, |(_, rest)| rest);
            block("upstream", host.split(['/', ':', '$']).next().unwrap_or_default())
        }
        "access_log" => block("log_format", word),
        _ => {
            // Zones: `limit_req zone=a`, `proxy_cache a`, `limit_conn a 5`.
            let zone = word.strip_prefix("zone=").unwrap_or(word);
            let wanted = format!("zone={zone}:");
            places(view, &|node| {
                node.args.iter().find(|arg| arg.lossy().contains(&wanted)).map(|_| &node.name)
            })
        }
    }
}

fn places(view: &View<'_>, is: &dyn Fn(&Node) -> Option<&Word>) -> Vec<Value> {
    let mut found = Vec::new();
    each(&view.tree.nodes, &mut |node| {
        let Some(word) = is(node) else { return };
        let file = &word.pos.file;
        let is_own = view.paths.is_none();
        let text = text_of(file, &view.tree);
        let start = offset_of(&text, word.pos.line, word.pos.column);
        let uri = if is_own { view.document.uri.clone() } else { uri_of(file) };
        found.push(json!({"uri": uri, "range": range(&text, start, start + word.text.len())}));
    });
    found
}

/// The files of an `include`.
fn files(view: &View<'_>, pattern: &str) -> Vec<Value> {
    let path = view.folder().join(pattern);
    let bytes = path.as_os_str().as_bytes();
    let files: Vec<PathBuf> = match glob::is_pattern(bytes) {
        true => glob::glob(bytes, FILES_MAX).unwrap_or_default(),
        false => vec![path.clone()],
    };
    let existing = files.iter().filter(|file| file.is_file());
    existing.map(|file| json!({"uri": uri_of(file), "range": range("", 0, 0)})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_in_words() {
        let text = "http://$host:${port}/a";
        let at = |part: &str| variable_at(text, text.find(part).unwrap_or(0));
        assert_eq!(
            (at("host"), at("st:"), at("$host")),
            (Some("host"), Some("host"), Some("host"))
        );
        assert_eq!(
            (at("port"), at("${"), at("/a"), at("tp:")),
            (Some("port"), Some("port"), None, None)
        );
        assert_eq!(variable_at("$", 1), None);
        assert_eq!(variable_at("a", 9), None);
    }
}
