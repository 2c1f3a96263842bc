//! Probable faults of a configuration (`weir lint`): settings that load, and that rarely mean what
//! they say. What is certain is warned of when the configuration is read.
//!
//! Rules look at the tree alone, so a file with directives that are not built in can be checked.
//! A comment `# weir:ignore RULE reason`, in a finding's line or alone in the line before,
//! silences it.

mod blocks;
mod cx;
mod habits;
mod headers;
mod ignore;
mod inherited;
mod locations;
mod maps;
mod passing;
mod patterns;
mod reach;
mod servers;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_habits;
mod tls;

use std::collections::HashSet;
use std::fmt;

use crate::{Node, Pos, Tree, Word, foreign, known};

pub use self::cx::Cx;

/// The weight of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// A habit that leads to faults.
    Note,
    /// Probably a fault.
    Warning,
    /// Probably a fault that opens the server to attacks.
    Error,
}

impl Severity {
    /// The word, which is also SARIF's.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// A rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name in output and in comments.
    pub id: &'static str,
    /// Its weight.
    pub severity: Severity,
    /// The fault that it finds, in a line.
    pub summary: &'static str,
    /// It finds what most configurations do, and what some houses forbid: it is asked for.
    pub habit: bool,
}

/// A fault, with its place.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The place.
    pub pos: Pos,
    /// The fault, and the text to write instead.
    pub message: String,
}

type Check = fn(&Cx<'_>, &Node, &mut Found<'_>);

/// A rule with its check, which is called for each directive.
struct Entry {
    rule: Rule,
    check: Check,
}

const fn entry(id: &'static str, severity: Severity, summary: &'static str, check: Check) -> Entry {
    Entry { rule: Rule { id, severity, summary, habit: false }, check }
}

/// A rule that is asked for.
const fn habit(id: &'static str, summary: &'static str, check: Check) -> Entry {
    Entry { rule: Rule { id, severity: Severity::Note, summary, habit: true }, check }
}

/// The rule of names, which needs those of the program.
const UNKNOWN: Rule = Rule {
    id: "unknown-directive",
    severity: Severity::Error,
    summary: "neither nginx, nor a known module, nor this server has a directive of that name",
    habit: false,
};

/// The rules of comments, which no check has.
const IGNORE: Rule = Rule {
    id: "ignore",
    severity: Severity::Warning,
    summary: "a comment that ignores a finding names a rule and a reason, and ignores one",
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
    tls::ENTRIES,
    servers::ENTRIES,
    blocks::ENTRIES,
    habits::ENTRIES,
];

/// All rules.
pub fn rules() -> impl Iterator<Item = Rule> {
    ENTRIES.iter().flat_map(|list| list.iter()).map(|entry| entry.rule).chain([UNKNOWN, IGNORE])
}

/// The findings of one rule at one directive.
struct Found<'a> {
    rule: Rule,
    list: &'a mut Vec<Finding>,
}

impl Found<'_> {
    fn add(&mut self, at: &Word, message: impl fmt::Display) {
        let (rule, pos) = (self.rule, at.pos.clone());
        self.list.push(Finding { rule, pos, message: message.to_string() });
    }
}

/// Blocks of data.
const DATA: &[&[u8]] =
    &[b"map", b"geo", b"geoip2", b"types", b"split_clients", b"charset_map", b"match", b"num_map"];

/// Checks a configuration, by all rules or by those that are no habits. `names` has the program's
/// directives; without it, names are not checked. Findings are in the order of the text; those that
/// comments ignore are left out.
pub fn check(tree: &Tree, habits: bool, names: Option<&HashSet<&str>>) -> Vec<Finding> {
    let mut found = Vec::new();
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

/// Finds names that nobody has. The blocks of other modules may hold anything.
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
