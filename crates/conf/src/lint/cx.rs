//! The place of a directive: the blocks around it, and what the whole configuration defines.

use crate::{Node, Tree, Word};

/// The blocks around a directive.
#[derive(Clone)]
pub struct Cx<'a> {
    /// All directives.
    tree: &'a Tree,
    /// The blocks around, the outermost first.
    blocks: Vec<&'a Node>,
}

impl<'a> Cx<'a> {
    /// Outside of all blocks.
    pub fn new(tree: &'a Tree) -> Cx<'a> {
        Cx { tree, blocks: Vec::new() }
    }

    /// The place inside a block of this place.
    pub fn inside(&self, block: &'a Node) -> Cx<'a> {
        let mut blocks = self.blocks.clone();
        blocks.push(block);
        Cx { tree: self.tree, blocks }
    }

    /// The innermost block.
    pub fn block(&self) -> Option<&'a Node> {
        self.blocks.last().copied()
    }

    /// The innermost block of that name.
    pub fn around(&self, name: &str) -> Option<&'a Node> {
        self.blocks.iter().rev().copied().find(|block| block.name == *name)
    }

    /// The blocks around, the innermost first.
    pub(crate) fn outward(&self) -> impl Iterator<Item = &'a Node> {
        self.blocks.iter().rev().copied()
    }

    /// Whether a directive stands in a block around, or at the outermost level.
    pub fn is_set(&self, name: &str) -> bool {
        has(&self.tree.nodes, name) || self.outward().any(|block| has(block.children(), name))
    }

    /// Whether this is a configuration, and no part of one that others include.
    pub fn is_whole(&self) -> bool {
        has(&self.tree.nodes, "http") || has(&self.tree.nodes, "stream")
    }

    /// The directives at the outermost level.
    pub fn top(&self) -> &'a [Node] {
        &self.tree.nodes
    }

    /// Whether an `upstream` of that name exists.
    pub(crate) fn is_upstream(&self, name: &[u8]) -> bool {
        let engines = self.tree.nodes.iter().flat_map(|node| node.children());
        let mut groups = engines.filter(|node| node.name == *"upstream");
        groups.any(|group| group.args.first().is_some_and(|word| word.bytes() == name))
    }

    /// The values that `set` gives a variable in the blocks around, the innermost that has any.
    pub(crate) fn values_set_around(&self, variable: &[u8]) -> Vec<&'a Word> {
        let is = |node: &&Node| {
            let name = node.args.first().map(Word::bytes);
            name.and_then(|name| name.strip_prefix(b"$")) == Some(variable)
        };
        let of = |block: &'a Node| -> Vec<&'a Word> {
            named(block.children(), "set").filter(is).filter_map(|n| n.args.get(1)).collect()
        };
        self.outward().map(of).find(|values| !values.is_empty()).unwrap_or_default()
    }

    /// The `map` that gives a variable its value.
    pub fn map(&self, variable: &[u8]) -> Option<&'a Node> {
        let engines = self.tree.nodes.iter().flat_map(|node| node.children());
        let mut maps = self.tree.nodes.iter().chain(engines).filter(|node| node.name == *"map");
        maps.find(|map| {
            map.args.get(1).and_then(|word| word.bytes().strip_prefix(b"$")) == Some(variable)
        })
    }

    /// The values that `set` and `map` give a variable; `None` if neither names it.
    pub fn values(&self, variable: &[u8]) -> Option<Vec<&'a Word>> {
        let mut values = Vec::new();
        let mut known = false;
        collect(&self.tree.nodes, variable, &mut values, &mut known);
        known.then_some(values)
    }
}

/// Whether one of the directives has the name.
pub fn has(nodes: &[Node], name: &str) -> bool {
    nodes.iter().any(|node| node.name == *name)
}

/// The directives of a name.
pub fn named<'a>(nodes: &'a [Node], name: &str) -> impl Iterator<Item = &'a Node> {
    nodes.iter().filter(move |node| node.name == *name)
}

fn collect<'a>(nodes: &'a [Node], variable: &[u8], values: &mut Vec<&'a Word>, known: &mut bool) {
    for node in nodes {
        let is = |word: Option<&Word>| {
            word.is_some_and(|word| word.bytes().strip_prefix(b"$") == Some(variable))
        };
        if node.name == *"set" && is(node.args.first()) {
            *known = true;
            values.extend(node.args.get(1));
        }
        if node.name == *"map" && is(node.args.get(1)) {
            *known = true;
            values.extend(node.children().iter().filter_map(|line| line.args.first()));
        }
        collect(node.children(), variable, values, known);
    }
}

/// A part of a text with variables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part<'a> {
    /// Text as it stands.
    Text(&'a [u8]),
    /// The name of a variable.
    Variable(&'a [u8]),
}

/// The parts of a text: `$name` and `${name}` are variables.
pub fn parts(text: &[u8]) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.iter().position(|&b| b == b'$').unwrap_or(rest.len());
        if at > 0 {
            parts.push(Part::Text(&rest[..at]));
        }
        let Some(behind) = rest.get(at + 1..) else { break };
        let (name, end) = match behind.strip_prefix(b"{") {
            Some(inner) => {
                let len = inner.iter().position(|&b| b == b'}').unwrap_or(inner.len());
                (&inner[..len], (len + 2).min(behind.len()))
            }
            None => {
                let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
                let digit = behind.first().is_some_and(u8::is_ascii_digit);
                let len = match digit {
                    true => 1,
                    false => behind.iter().position(|b| !is_name(b)).unwrap_or(behind.len()),
                };
                (&behind[..len], len)
            }
        };
        match name.is_empty() {
            true => parts.push(Part::Text(b"$")),
            false => parts.push(Part::Variable(name)),
        }
        rest = &behind[end..];
    }
    parts
}
