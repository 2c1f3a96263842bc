//! Documents as trees that can be changed.
//!
//! Nodes are numbers in a list and never leave it, so that a script may keep a node that was taken
//! out of its document.

use std::collections::{BTreeMap, BTreeSet};

/// How deep elements may be nested: the functions here call themselves for each level.
pub const DEPTH_MAX: usize = 256;

/// A node's number.
pub type Id = usize;

/// A name with the prefix that it was written with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// Empty if there is none.
    pub prefix: String,
    /// The name behind the colon.
    pub local: String,
}

impl Name {
    /// A name as it is written: `a:b`.
    pub fn of(text: &str) -> Name {
        let (prefix, local) = text.split_once(':').unwrap_or(("", text));
        Name { prefix: prefix.to_owned(), local: local.to_owned() }
    }

    /// The name as it is written.
    pub fn written(&self) -> String {
        match self.prefix.as_str() {
            "" => self.local.clone(),
            prefix => format!("{prefix}:{}", self.local),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Element {
    pub name: Name,
    /// Declarations of prefixes: prefix, URI.
    pub spaces: Vec<(String, String)>,
    /// Attributes in the order of the document.
    pub attributes: Vec<(Name, String)>,
    pub children: Vec<Id>,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Kind {
    Element(Element),
    Text(String),
    Comment(String),
    /// A processing instruction: target and data.
    Instruction(String, String),
}

#[derive(Clone, Debug)]
pub struct Node {
    /// The element that it is, or was, in.
    pub parent: Option<Id>,
    pub kind: Kind,
}

/// A document: its root element, and nodes that are or were below it.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub nodes: Vec<Node>,
    pub root: Id,
}

impl Tree {
    /// Adds a node that is nowhere yet.
    pub fn add(&mut self, parent: Option<Id>, kind: Kind) -> Id {
        self.nodes.push(Node { parent, kind });
        self.nodes.len() - 1
    }

    /// The element of that number; `None` for other nodes.
    pub fn element(&self, id: Id) -> Option<&Element> {
        match &self.nodes.get(id)?.kind {
            Kind::Element(element) => Some(element),
            _ => None,
        }
    }

    /// The element of that number, to change it.
    pub(crate) fn element_mut(&mut self, id: Id) -> Option<&mut Element> {
        match &mut self.nodes.get_mut(id)?.kind {
            Kind::Element(element) => Some(element),
            _ => None,
        }
    }

    /// The elements in an element, of one local name if it is not empty.
    pub fn elements(&self, id: Id, local: &str) -> Vec<Id> {
        let children = self.element(id).map_or(&[][..], |element| &element.children);
        let fits = |id: &Id| {
            let element = self.element(*id);
            element.is_some_and(|element| local.is_empty() || element.name.local == local)
        };
        children.iter().copied().filter(fits).collect()
    }

    /// All text in a node.
    pub fn text(&self, id: Id) -> String {
        let mut out = String::new();
        self.push_text(id, &mut out);
        out
    }

    fn push_text(&self, id: Id, out: &mut String) {
        match &self.nodes[id].kind {
            Kind::Text(text) => out.push_str(text),
            Kind::Element(element) => {
                element.children.iter().for_each(|id| self.push_text(*id, out))
            }
            _ => {}
        }
    }

    /// The prefixes that are declared at a node: in itself or above it.
    pub fn in_scope(&self, id: Id) -> BTreeMap<&str, &str> {
        let mut spaces = BTreeMap::new();
        let mut at = Some(id);
        while let Some(id) = at {
            for (prefix, uri) in self.element(id).map_or(&[][..], |element| &element.spaces) {
                spaces.entry(prefix.as_str()).or_insert(uri.as_str());
            }
            at = self.nodes[id].parent;
        }
        spaces
    }

    /// Levels above a node, its own included.
    pub fn depth(&self, id: Id) -> usize {
        std::iter::successors(Some(id), |id| self.nodes[*id].parent).count()
    }

    /// Levels below a node, its own included.
    pub fn height(&self, id: Id) -> usize {
        let children = self.element(id).map_or(&[][..], |element| &element.children);
        1 + children.iter().map(|id| self.height(*id)).max().unwrap_or(0)
    }

    /// The number of nodes in a node, itself included.
    pub fn size(&self, id: Id) -> usize {
        let children = self.element(id).map_or(&[][..], |element| &element.children);
        1 + children.iter().map(|id| self.size(*id)).sum::<usize>()
    }

    /// Bytes of all text in a node, in names and in attributes.
    pub(crate) fn text_bytes(&self, id: Id) -> usize {
        match &self.nodes[id].kind {
            Kind::Text(text) | Kind::Comment(text) => text.len(),
            Kind::Instruction(target, data) => target.len() + data.len(),
            Kind::Element(element) => {
                let attributes = &element.attributes;
                let own = attributes.iter().map(|(name, value)| name.local.len() + value.len());
                let children = element.children.iter().map(|id| self.text_bytes(*id));
                element.name.local.len() + own.chain(children).sum::<usize>()
            }
        }
    }

    /// Appends a copy of a node of any document to an element.
    pub(crate) fn append_copy(&mut self, to: Id, from: &Tree, id: Id) {
        let copy = self.copy(Some(to), from, id);
        let mut used = BTreeSet::new();
        self.used_prefixes(copy, &mut used);
        // Prefixes that are declared above the original go with it.
        let mut scope = from.in_scope(id);
        scope.retain(|prefix, _| used.contains(*prefix));
        let here = self.in_scope(to);
        let (mut stays, mut moves_up) = (Vec::new(), Vec::new());
        for (prefix, uri) in &scope {
            let known = here.get(prefix);
            if known == Some(uri) {
                continue;
            }
            // As nginx writes it: a declaration moves up to the element that the node is put into,
            // if it means nothing else there.
            let moves = known.is_none() && !prefix.is_empty();
            let list = if moves { &mut moves_up } else { &mut stays };
            list.push(((*prefix).to_owned(), (*uri).to_owned()));
        }
        if let Some(element) = self.element_mut(copy) {
            element.spaces.retain(|(prefix, _)| !scope.contains_key(prefix.as_str()));
            element.spaces.extend(stays);
        }
        if let Some(element) = self.element_mut(to) {
            element.spaces.extend(moves_up);
            element.children.push(copy);
        }
    }

    fn copy(&mut self, parent: Option<Id>, from: &Tree, id: Id) -> Id {
        let kind = from.nodes[id].kind.clone();
        let children = match &kind {
            Kind::Element(element) => element.children.clone(),
            _ => Vec::new(),
        };
        let copy = self.add(parent, kind);
        let children = children.iter().map(|id| self.copy(Some(copy), from, *id)).collect();
        if let Some(element) = self.element_mut(copy) {
            element.children = children;
        }
        copy
    }

    /// Prefixes of names in a node; the empty one for elements without any.
    fn used_prefixes(&self, id: Id, used: &mut BTreeSet<String>) {
        let Some(element) = self.element(id) else { return };
        let attributes = element.attributes.iter().map(|(name, _)| &name.prefix);
        let names = attributes.filter(|prefix| !prefix.is_empty()).chain([&element.name.prefix]);
        for prefix in names {
            if !used.contains(prefix) {
                used.insert(prefix.clone());
            }
        }
        for child in &element.children {
            self.used_prefixes(*child, used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::Tree;

    fn declared(tree: &Tree, id: usize) -> Vec<(&str, &str)> {
        let spaces = tree.element(id).map_or(&[][..], |element| &element.spaces);
        spaces.iter().map(|(prefix, uri)| (prefix.as_str(), uri.as_str())).collect()
    }

    #[test]
    fn copies_keep_their_namespaces() {
        let text = "<r xmlns='d' xmlns:a='A' xmlns:b='B' xmlns:c='C'>\
                    <x xmlns:b='B2' a:i=''><b:y/><a:y/></x></r>";
        let from = parse(text.as_bytes(), 100).unwrap();
        let x = from.elements(from.root, "x")[0];
        for (to, at_root, at_copy) in [
            ("<t/>", &[("a", "A"), ("b", "B2")][..], &[("", "d")][..]),
            ("<t xmlns:a='A'/>", &[("a", "A"), ("b", "B2")], &[("", "d")]),
            ("<t xmlns:a='other'/>", &[("a", "other"), ("b", "B2")], &[("", "d"), ("a", "A")]),
            ("<t xmlns='d' xmlns:b='B'/>", &[("", "d"), ("b", "B"), ("a", "A")], &[("b", "B2")]),
        ] {
            let mut tree = parse(to.as_bytes(), 100).unwrap();
            tree.append_copy(tree.root, &from, x);
            let copy = tree.elements(tree.root, "x")[0];
            assert_eq!(declared(&tree, tree.root), at_root, "{to}");
            assert_eq!(declared(&tree, copy), at_copy, "{to}");
        }
    }
}
