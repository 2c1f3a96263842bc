//! Probable errors in a configuration (`weir lint`): settings that load but rarely do what they
//! seem to do. Loading a configuration only warns of what is certain.
//!
//! Rules look only at the syntax tree, so that a file can be checked although it has directives
//! that are not built in. A comment `# weir:ignore RULE reason`, in the finding's line or alone in
//! the line before it, suppresses a finding.

mod blocks;
mod cx;
mod fleet;
mod habits;
mod headers;
mod identity;
mod ignore;
mod inherited;
mod ldap;
mod locations;
mod maps;
mod passing;
mod patterns;
mod reach;
mod removed;
mod servers;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_habits;
mod tls;

use std::collections::HashSet;
use std::fmt;

use crate::edit::{Change, Edit};
use crate::{Node, Pos, Tree, Word, foreign, known};

pub use self::cx::Cx;

/// How serious a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// A habit that leads to errors.
    Note,
    /// Probably an error.
    Warning,
    /// Probably an error that opens the server to attacks, or keeps the file from loading.
    Error,
}

impl Severity {
    /// The name in output, which is also SARIF's level.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// A check of the linter, which can be switched off by its name.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name in output and in comments.
    pub id: &'static str,
    /// How serious its findings are.
    pub severity: Severity,
    /// The error that it finds, in a line, as `--rules` and docs/LINT.md show it.
    pub summary: &'static str,
    /// Finds what most configurations do and some teams forbid; runs only with `--habits`.
    pub habit: bool,
}

/// An error, with its position.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule that found it.
    pub rule: Rule,
    /// File, line and column.
    pub pos: Pos,
    /// What is wrong, and what to write instead.
    pub message: String,
    /// The changes that end it, where they are certain (`weir lint --fix`); empty otherwise.
    pub fix: Vec<Edit>,
}

/// The rules with certain changes: the configuration answers requests as before, or as it says.
pub const FIXABLE: &[&str] = &[
    "tls-protocols",
    "implicit-default-server",
    "error-log-off",
    "unescaped-dot",
    "listen-http2",
    "duplicate-directive",
    "removed-directive",
    "ignore",
    "server-tokens",
    "map-default",
];

type Check = fn(&Cx<'_>, &Node, &mut Found<'_>);

/// A rule with its check, which is called for each directive.
struct Entry {
    rule: Rule,
    check: Check,
}

/// A change at a word, as a list.
fn change(at: &Word, change: Change) -> Vec<Edit> {
    vec![Edit::new(at, change)]
}

const fn entry(id: &'static str, severity: Severity, summary: &'static str, check: Check) -> Entry {
    Entry { rule: Rule { id, severity, summary, habit: false }, check }
}

/// A rule that runs only with `--habits`.
const fn habit(id: &'static str, summary: &'static str, check: Check) -> Entry {
    Entry { rule: Rule { id, severity: Severity::Note, summary, habit: true }, check }
}

/// The rule for unknown names: it is not in [`ENTRIES`] because it needs the program's directives.
const UNKNOWN: Rule = Rule {
    id: "unknown-directive",
    severity: Severity::Error,
    summary: "no directive of nginx, of a known module or of Weir has that name",
    habit: false,
};

/// The rule for `weir:ignore` comments: it runs after all checks, in [`ignore::apply`].
const IGNORE: Rule = Rule {
    id: "ignore",
    severity: Severity::Warning,
    summary: "a weir:ignore comment lacks a rule or a reason, or ignores nothing",
    habit: false,
};

/// The rule for functions of scripts: who has an engine for them finds out, see [`check_with`].
pub const SCRIPT_FUNCTION: Rule = Rule {
    id: "script-function",
    severity: Severity::Warning,
    summary: "a directive names a function that its JavaScript module does not export",
    habit: false,
};

/// All rules with checks, in the order of the documentation.
const ENTRIES: &[&[Entry]] = &[
    inherited::ENTRIES,
    headers::ENTRIES,
    locations::ENTRIES,
    reach::ENTRIES,
    passing::ENTRIES,
    patterns::ENTRIES,
    maps::ENTRIES,
    identity::ENTRIES,
    ldap::ENTRIES,
    tls::ENTRIES,
    servers::ENTRIES,
    blocks::ENTRIES,
    fleet::ENTRIES,
    habits::ENTRIES,
];

/// All rules.
pub fn rules() -> impl Iterator<Item = Rule> {
    ENTRIES.iter().flat_map(|list| list.iter()).map(|entry| entry.rule).chain([
        UNKNOWN,
        SCRIPT_FUNCTION,
        IGNORE,
    ])
}

/// The findings of one rule at one directive.
struct Found<'a> {
    rule: Rule,
    list: &'a mut Vec<Finding>,
}

impl Found<'_> {
    fn add(&mut self, at: &Word, message: impl fmt::Display) {
        self.add_with(at, Vec::new(), message);
    }

    /// Adds a finding with the changes that end it.
    fn add_with(&mut self, at: &Word, fix: Vec<Edit>, message: impl fmt::Display) {
        let (rule, pos) = (self.rule, at.pos.clone());
        self.list.push(Finding { rule, pos, message: message.to_string(), fix });
    }
}

/// Blocks whose lines are data and no directives.
const DATA: &[&[u8]] =
    &[b"map", b"geo", b"geoip2", b"types", b"split_clients", b"charset_map", b"match", b"num_map"];

/// Checks a configuration with all rules; those for habits only if `habits` is set. `names` are the
/// directives of the program; with `None`, unknown names are not reported. Returns the findings in
/// the order of the text, without those that comments suppress.
pub fn check(tree: &Tree, habits: bool, names: Option<&HashSet<&str>>) -> Vec<Finding> {
    check_with(tree, habits, names, Vec::new())
}

/// The same with findings of rules that need more than the tree.
pub fn check_with(
    tree: &Tree,
    habits: bool,
    names: Option<&HashSet<&str>>,
    mut found: Vec<Finding>,
) -> Vec<Finding> {
    let cx = Cx::new(tree);
    let entries: Vec<&Entry> = ENTRIES
        .iter()
        .flat_map(|list| list.iter())
        .filter(|entry| habits || !entry.rule.habit)
        .collect();
    walk(&cx, &entries, &tree.nodes, &mut found);
    if let Some(names) = names {
        unknown(&tree.nodes, names, &mut found);
    }
    ignore::apply(tree, habits, &mut found);
    let order: Vec<_> = tree.files.iter().map(|file| file.path.clone()).collect();
    let file = |f: &Finding| order.iter().position(|path| *path == f.pos.file);
    found.sort_by_key(|f| (file(f), f.pos.line, f.pos.column, f.rule.id));
    found.dedup_by(|a, b| a.pos == b.pos && a.rule.id == b.rule.id && a.message == b.message);
    found
}

/// Reports unknown names. Blocks of other modules are skipped, because they may hold anything.
fn unknown(nodes: &[Node], names: &HashSet<&str>, list: &mut Vec<Finding>) {
    for node in nodes.iter().filter(|node| node.broken.is_none()) {
        let name = node.name.lossy();
        if names.contains(&*name) || !known::find(node.name.bytes()).is_empty() {
            if !DATA.contains(&node.name.bytes()) {
                unknown(node.children(), names, list);
            }
        } else if foreign::of_directive(&name).is_none() {
            let message = format_args!("unknown directive \"{name}\": the file does not load");
            Found { rule: UNKNOWN, list }.add(&node.name, message);
        }
    }
}

fn walk<'a>(cx: &Cx<'a>, entries: &[&Entry], nodes: &'a [Node], list: &mut Vec<Finding>) {
    for node in nodes.iter().filter(|node| node.broken.is_none()) {
        for Entry { rule, check } in entries {
            check(cx, node, &mut Found { rule: *rule, list });
        }
        let name = node.name.bytes();
        if node.block.is_some() && !DATA.contains(&name) && !name.ends_with(b"_by_lua_block") {
            walk(&cx.inside(node), entries, node.children(), list);
        }
    }
}
