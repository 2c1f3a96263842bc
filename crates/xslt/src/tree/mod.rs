//! Documents: trees in one list, in document order.
//!
//! A node's number is its place in document order: a comparison of numbers compares places, and the
//! descendants of a node are the numbers up to its `end`. Behind an element come the namespaces
//! that it declares, its attributes, and its children.

mod build;

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::atoms::{Atom, Atoms, Name};

pub(crate) use build::Builder;

/// A node's number in its document.
pub(crate) type Id = u32;

/// No node.
pub(crate) const NONE: Id = u32::MAX;

/// The root's number.
pub(crate) const ROOT: Id = 0;

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// The root: of a document, or of a fragment that has any children.
    /// It declares the prefix `xml`.
    Root,
    Element,
    /// A declaration: its local name is the prefix, its value the URI.
    Namespace,
    Attribute,
    Text,
    /// Text that is written as it is (`disable-output-escaping`).
    RawText,
    Comment,
    /// A processing instruction: its local name is the target.
    Pi,
}

impl Kind {
    /// Text, however it is written.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Kind::Text | Kind::RawText)
    }

    /// A namespace or an attribute: it has a parent, and is no child.
    pub(crate) fn is_beside(self) -> bool {
        matches!(self, Kind::Namespace | Kind::Attribute)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) name: Name,
    /// The prefix that it was written with.
    pub(crate) prefix: Atom,
    pub(crate) parent: Id,
    /// The sibling before and the one behind: of children alone.
    pub(crate) prev: Id,
    pub(crate) next: Id,
    /// The first and the last child.
    pub(crate) first: Id,
    pub(crate) last: Id,
    /// The first number behind its descendants.
    pub(crate) end: Id,
    /// Its value in the document's text: from, to.
    text: (u32, u32),
}

/// A document, or a fragment of one.
#[derive(Debug, Default)]
pub(crate) struct Doc {
    nodes: Vec<Node>,
    text: String,
    /// The line of each node in the file that it was read from; empty where nobody asked.
    lines: Vec<u32>,
    /// The file that it was read from: relative references begin there.
    pub(crate) base: Option<Arc<str>>,
    /// Elements by their attributes of type ID.
    pub(crate) ids: HashMap<Box<str>, Id>,
    /// The system identifiers of unparsed entities, by their names.
    pub(crate) unparsed: HashMap<Box<str>, Box<str>>,
    /// What its reader has to say, for the log.
    pub(crate) notes: Vec<String>,
    /// Its place among the documents of the run that it was added to.
    pub(crate) place: Cell<Option<u32>>,
    /// Gives the memory back when the document goes.
    charge: Option<Charge>,
}

/// Memory that a document takes of what a run may have.
#[derive(Debug)]
struct Charge {
    left: Rc<Cell<usize>>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.left.set(self.left.get() + self.bytes);
    }
}

impl Doc {
    /// The node of a number of this document.
    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    /// The number of nodes.
    pub(crate) fn len(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// About the memory that it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>() + self.text.len()
    }

    /// Takes its memory from what is left of a run's, in bytes, for as long as it lives.
    pub(crate) fn charge(&mut self, left: &Rc<Cell<usize>>) {
        let bytes = self.bytes().min(left.get());
        left.set(left.get() - bytes);
        self.charge = Some(Charge { left: left.clone(), bytes });
    }

    /// The value that a node has of itself: that of an attribute, text, comment, processing
    /// instruction or namespace. Elements and roots have none.
    pub(crate) fn own_value(&self, id: Id) -> &str {
        let (from, to) = self.node(id).text;
        self.text.get(from as usize..to as usize).unwrap_or_default()
    }

    /// A node's string-value (XPath, section 5).
    pub(crate) fn value(&self, id: Id) -> std::borrow::Cow<'_, str> {
        let node = self.node(id);
        match node.kind {
            Kind::Root | Kind::Element => {
                let mut texts = self.texts(id);
                let Some(first) = texts.next() else { return "".into() };
                let Some(second) = texts.next() else { return first.into() };
                let mut all = [first, second].concat();
                all.extend(texts);
                all.into()
            }
            _ => self.own_value(id).into(),
        }
    }

    /// The texts among a node's descendants.
    fn texts(&self, id: Id) -> impl Iterator<Item = &str> {
        let inside = id + 1..self.node(id).end;
        inside.filter(|id| self.node(*id).kind.is_text()).map(|id| self.own_value(id))
    }

    /// A node's line in its file, from 1 on; 0 where it is not known.
    pub(crate) fn line(&self, id: Id) -> u32 {
        self.lines.get(id as usize).copied().unwrap_or_default()
    }

    /// The children of a node.
    pub(crate) fn children(&self, id: Id) -> impl Iterator<Item = Id> + '_ {
        let first = self.node(id).first;
        std::iter::successors(some(first), |id| some(self.node(*id).next))
    }

    /// A node's parent and its ancestors, the next one first.
    pub(crate) fn ancestors(&self, id: Id) -> impl Iterator<Item = Id> + '_ {
        std::iter::successors(some(self.node(id).parent), |id| some(self.node(*id).parent))
    }

    /// Namespaces that an element declares, and its attributes.
    fn beside(&self, id: Id) -> impl Iterator<Item = Id> + '_ {
        (id + 1..self.node(id).end).take_while(|id| self.node(*id).kind.is_beside())
    }

    /// The attributes of an element.
    pub(crate) fn attributes(&self, id: Id) -> impl Iterator<Item = Id> + '_ {
        self.beside(id).filter(|id| self.node(*id).kind == Kind::Attribute)
    }

    /// The namespaces that an element declares.
    pub(crate) fn declared(&self, id: Id) -> impl Iterator<Item = Id> + '_ {
        self.beside(id).filter(|id| self.node(*id).kind == Kind::Namespace)
    }

    /// The namespaces in scope at an element: the declaring nodes, the innermost first. Undone
    /// ones (`xmlns=""`) and the prefix `xml` are not among them.
    pub(crate) fn in_scope(&self, id: Id) -> Vec<Id> {
        let mut found: Vec<Id> = Vec::new();
        for element in std::iter::once(id).chain(self.ancestors(id)) {
            if self.node(element).kind != Kind::Element {
                continue;
            }
            for declared in self.declared(element) {
                let prefix = self.node(declared).name.local;
                if !found.iter().any(|id| self.node(*id).name.local == prefix) {
                    found.push(declared);
                }
            }
        }
        found.retain(|id| !self.own_value(*id).is_empty());
        found
    }

    /// The URI that a prefix stands for at an element; `None` for one that nothing declares. The
    /// empty prefix is the default namespace.
    pub(crate) fn uri_of(&self, atoms: &Atoms, id: Id, prefix: &str) -> Option<&str> {
        if prefix == "xml" {
            return Some(crate::XML);
        }
        let all = std::iter::once(id).chain(self.ancestors(id));
        let mut declared =
            all.filter(|id| self.node(*id).kind == Kind::Element).flat_map(|id| self.declared(id));
        let found = declared.find(|id| atoms.text(self.node(*id).name.local) == prefix);
        match found.map(|id| self.own_value(id)) {
            Some("") if !prefix.is_empty() => None,
            None if prefix.is_empty() => Some(""),
            found => found,
        }
    }

    /// The attribute of a name.
    pub(crate) fn attribute(&self, id: Id, name: Name) -> Option<&str> {
        let mut all = self.attributes(id);
        all.find(|id| self.node(*id).name == name).map(|id| self.own_value(id))
    }

    /// The attribute of a local name in no namespace.
    pub(crate) fn plain_attribute(&self, atoms: &Atoms, id: Id, local: &str) -> Option<&str> {
        let mut all = self.attributes(id).filter(|id| self.node(*id).name.uri == Atom::EMPTY);
        all.find(|id| atoms.text(self.node(*id).name.local) == local).map(|id| self.own_value(id))
    }

    /// The document without the text nodes of white space that `strips` names: it is asked for the
    /// parent's name (XSLT, section 3.4).
    pub(crate) fn stripped(&self, atoms: &Atoms, strips: &dyn Fn(Name) -> bool) -> Doc {
        let mut gone = vec![false; self.nodes.len()];
        let space = atoms.name(crate::XML, "space");
        for (id, node) in self.nodes.iter().enumerate() {
            gone[id] = node.kind.is_text()
                && self.own_value(id as Id).bytes().all(is_space)
                && self.node(node.parent).kind == Kind::Element
                && strips(self.node(node.parent).name)
                && !self.preserves(node.parent, space);
        }
        self.without(&gone)
    }

    /// Whether `xml:space="preserve"` is in effect at an element.
    pub(crate) fn preserves(&self, id: Id, space: Name) -> bool {
        let mut all = std::iter::once(id).chain(self.ancestors(id));
        all.find_map(|id| match self.node(id).kind {
            Kind::Element => self.attribute(id, space),
            _ => None,
        }) == Some("preserve")
    }

    /// The document without some nodes that have no children.
    fn without(&self, gone: &[bool]) -> Doc {
        let mut left = 0;
        let mut numbers = Vec::with_capacity(gone.len() + 1);
        for gone in gone {
            numbers.push(left);
            left += Id::from(!gone);
        }
        numbers.push(left);
        let of = |id: Id| if id == NONE { NONE } else { numbers[id as usize] };
        let mut doc = Doc {
            base: self.base.clone(),
            unparsed: self.unparsed.clone(),
            text: self.text.clone(),
            ids: self.ids.iter().map(|(text, id)| (text.clone(), of(*id))).collect(),
            ..Doc::default()
        };
        for (id, node) in self.nodes.iter().enumerate().filter(|(id, _)| !gone[*id]) {
            let beyond = |mut id: Id, step: fn(&Node) -> Id| {
                while id != NONE && gone[id as usize] {
                    id = step(self.node(id));
                }
                of(id)
            };
            doc.nodes.push(Node {
                parent: of(node.parent),
                prev: beyond(node.prev, |node| node.prev),
                next: beyond(node.next, |node| node.next),
                first: beyond(node.first, |node| node.next),
                last: beyond(node.last, |node| node.prev),
                end: of(node.end),
                ..node.clone()
            });
            doc.lines.extend(self.lines.get(id));
        }
        doc
    }

    /// Gives the names of another table to all nodes.
    pub(crate) fn renamed(&mut self, from: &Atoms, to: &Atoms) {
        let mut known: HashMap<Atom, Atom> = HashMap::new();
        let mut renamed =
            |atom: Atom| *known.entry(atom).or_insert_with(|| to.get(from.text(atom)));
        for node in &mut self.nodes {
            node.name = Name { uri: renamed(node.name.uri), local: renamed(node.name.local) };
            node.prefix = renamed(node.prefix);
        }
    }
}

/// XML's white space.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn some(id: Id) -> Option<Id> {
    (id != NONE).then_some(id)
}

#[cfg(test)]
mod tests;
