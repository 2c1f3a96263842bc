//! Variables of `map`.

use super::cx::{Cx, Part, parts};
use super::{Entry, Found, Severity, change, entry, habit};
use crate::edit::Change;
use crate::{Node, Word};

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        "map-groups",
        Severity::Warning,
        "a map may overwrite the group of a location's expression",
        groups,
    ),
    habit("map-default", "a map has no default", default),
];

/// Directives that are applied before the others, while the groups are the location's.
const EARLY: &[&[u8]] = &[b"set", b"rewrite", b"if", b"return", b"location", b"break"];

fn groups(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let is_regex = n.args.first().is_some_and(|word| word.bytes().starts_with(b"~"));
    if n.name != *"location" || !is_regex {
        return;
    }
    let uses = || {
        let nodes = n.children().iter().filter(|node| !EARLY.contains(&node.name.bytes()));
        nodes.flat_map(|node| &node.args).flat_map(|word| {
            let variables = parts(word.bytes()).into_iter().filter_map(|part| match part {
                Part::Variable(name) => Some((word, name)),
                Part::Text(_) => None,
            });
            variables.collect::<Vec<_>>()
        })
    };
    let is_number = |name: &[u8]| name.iter().all(u8::is_ascii_digit);
    let Some((word, number)) = uses().find(|(_, name)| is_number(name)) else { return };
    let of_map = uses().find(|(_, name)| cx.map(name).is_some_and(has_groups));
    if let Some((_, map)) = of_map {
        let (number, map) = (String::from_utf8_lossy(number), String::from_utf8_lossy(map));
        found.add(
            word,
            format_args!(
                "\"${number}\" is a group of the expression that matched last, which may be one of \
                 the map of \"${map}\": give both groups names (\"(?<name>…)\")"
            ),
        );
    }
}

/// Whether an expression of a map has a group without a name.
fn has_groups(map: &Node) -> bool {
    let plain = |text: &[u8]| {
        (0..text.len()).any(|at| {
            let escaped = at > 0 && text[at - 1] == b'\\';
            text[at] == b'(' && !escaped && text.get(at + 1) != Some(&b'?')
        })
    };
    map.children().iter().any(|line| {
        let key = line.name.bytes();
        key.starts_with(b"~") && plain(key)
    })
}

fn default(_: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(variable) = n.args.get(1).filter(|_| n.name == *"map") else { return };
    // A file that is included may have it, and was read in its place.
    if !n.children().iter().any(|line| line.name == *"default") {
        let variable = Word::lossy(variable);
        let fix = change(&n.name, Change::AddFirst("default \"\";".to_owned()));
        found.add_with(
            &n.name,
            fix,
            format_args!("\"{variable}\" is empty for all other values: write a \"default\" line"),
        );
    }
}
