//! Makes documents: of what a parser reads, and of what a transformation writes.

use super::{Doc, Id, Kind, NONE, Node, ROOT};
use crate::atoms::{Atom, Atoms, Name};
use crate::error::{Error, Result};

/// A document in the making: a root, and a way down to the element that is open.
pub(crate) struct Builder<'a> {
    atoms: &'a Atoms,
    doc: Doc,
    open: Vec<Id>,
    /// The namespaces in scope: the number of open elements, the prefix, the URI.
    scope: Vec<(usize, Atom, Atom)>,
    /// Whether namespaces that a name needs are declared by themselves.
    fixes_up: bool,
    bytes_max: usize,
}

impl<'a> Builder<'a> {
    /// Begins a document that may take so many bytes of memory. With `fixes_up`, names declare
    /// their namespaces themselves (XSLT, section 7.1.1: namespace fixup).
    pub(crate) fn new(atoms: &'a Atoms, fixes_up: bool, bytes_max: usize) -> Self {
        let mut builder = Builder {
            atoms,
            doc: Doc::default(),
            open: vec![ROOT],
            scope: Vec::new(),
            fixes_up,
            bytes_max: bytes_max.min(u32::MAX as usize / 2),
        };
        builder.doc.nodes.push(Node {
            kind: Kind::Root,
            name: Name::default(),
            prefix: Atom::EMPTY,
            parent: NONE,
            prev: NONE,
            next: NONE,
            first: NONE,
            last: NONE,
            end: 2,
            text: (0, 0),
        });
        // The one namespace that is in scope everywhere.
        builder.doc.text.push_str(crate::XML);
        builder.doc.nodes.push(Node {
            kind: Kind::Namespace,
            name: Name { uri: Atom::EMPTY, local: atoms.get("xml") },
            parent: ROOT,
            text: (0, crate::XML.len() as u32),
            ..builder.doc.nodes[0].clone()
        });
        builder
    }

    /// The document so far.
    pub(crate) fn doc(&mut self) -> &mut Doc {
        &mut self.doc
    }

    /// The names' table.
    pub(crate) fn atoms(&self) -> &'a Atoms {
        self.atoms
    }

    /// The node that the next one becomes a child of.
    pub(crate) fn current(&self) -> Id {
        self.open.last().copied().unwrap_or(ROOT)
    }

    /// The number of open elements.
    pub(crate) fn depth(&self) -> usize {
        self.open.len() - 1
    }

    /// Notes the line of the last node.
    pub(crate) fn line(&mut self, line: u32) {
        self.doc.lines.resize(self.doc.nodes.len(), line);
    }

    fn push(&mut self, kind: Kind, name: Name, prefix: Atom, value: &str) -> Result<Id> {
        let from = self.doc.text.len();
        let id = self.doc.len();
        if self.doc.bytes() + size_of::<Node>() + value.len() > self.bytes_max {
            return Err(Error::new("the document needs more memory than it may have"));
        }
        self.doc.text.push_str(value);
        let parent = self.current();
        let mut prev = NONE;
        if !kind.is_beside() {
            let of_parent = &mut self.doc.nodes[parent as usize];
            prev = std::mem::replace(&mut of_parent.last, id);
            if of_parent.first == NONE {
                of_parent.first = id;
            }
            if let Some(prev) = self.doc.nodes.get_mut(prev as usize) {
                prev.next = id;
            }
        }
        let text = (from as u32, self.doc.text.len() as u32);
        let (next, first, last, end) = (NONE, NONE, NONE, id + 1);
        let node = Node { kind, name, prefix, parent, prev, next, first, last, end, text };
        self.doc.nodes.push(node);
        // Those above get theirs when this one ends.
        self.doc.nodes[parent as usize].end = id + 1;
        Ok(id)
    }

    /// Begins an element.
    pub(crate) fn start(&mut self, name: Name, prefix: Atom) -> Result<Id> {
        let id = self.push(Kind::Element, name, prefix, "")?;
        self.open.push(id);
        if self.fixes_up && self.in_scope(prefix) != name.uri {
            self.declare(prefix, name.uri)?;
        }
        Ok(id)
    }

    /// Ends the open element.
    pub(crate) fn end(&mut self) {
        while self.scope.last().is_some_and(|(depth, ..)| *depth >= self.open.len()) {
            self.scope.pop();
        }
        if self.open.len() > 1
            && let Some(ended) = self.open.pop()
        {
            let end = self.doc.node(ended).end;
            let above = self.current();
            self.doc.nodes[above as usize].end = end;
        }
    }

    fn in_scope(&self, prefix: Atom) -> Atom {
        let found = self.scope.iter().rev().find(|(_, of, _)| *of == prefix);
        match found {
            Some((_, _, uri)) => *uri,
            None if self.atoms.text(prefix) == "xml" => self.atoms.get(crate::XML),
            None => Atom::EMPTY,
        }
    }

    fn declare(&mut self, prefix: Atom, uri: Atom) -> Result<()> {
        let atoms = self.atoms;
        let name = Name { uri: Atom::EMPTY, local: prefix };
        self.push(Kind::Namespace, name, Atom::EMPTY, atoms.text(uri))?;
        self.scope.push((self.open.len(), prefix, uri));
        Ok(())
    }

    /// Whether the name of the open element, or of an attribute of it, has a prefix.
    fn is_used(&self, prefix: Atom) -> bool {
        let element = self.current();
        let mut attributes = self.doc.attributes(element).map(|id| self.doc.node(id));
        self.doc.node(element).prefix == prefix
            || prefix != Atom::EMPTY && attributes.any(|node| node.prefix == prefix)
    }

    /// Whether namespaces and attributes may be added to the open element still: it has no child.
    pub(crate) fn takes_attributes(&self) -> bool {
        let node = self.doc.node(self.current());
        node.kind == Kind::Element && node.first == NONE
    }

    /// Adds a namespace to the open element; nothing where it is in scope already, or where the
    /// element has the prefix for another.
    pub(crate) fn namespace(&mut self, prefix: Atom, uri: Atom) -> Result<()> {
        let depth = self.open.len();
        let mut here = self.scope.iter().rev().take_while(|(of, ..)| *of == depth);
        let taken = here.any(|(_, of, _)| *of == prefix);
        // The element or an attribute of it may have the prefix for another.
        let clashes = self.fixes_up && self.is_used(prefix) && self.in_scope(prefix) != uri;
        if taken || clashes || !self.takes_attributes() || self.in_scope(prefix) == uri {
            return Ok(());
        }
        self.declare(prefix, uri)
    }

    /// Adds an attribute to the open element, in place of one of the same name. An error where the
    /// element has children already, and where no element is open.
    pub(crate) fn attribute(&mut self, name: Name, prefix: Atom, value: &str) -> Result<()> {
        if !self.takes_attributes() {
            return Err(Error::new("an attribute comes after the children of its element"));
        }
        let element = self.current();
        let same = self.doc.attributes(element).find(|id| self.doc.node(*id).name == name);
        if let Some(same) = same {
            let from = self.doc.text.len();
            self.grow(value)?;
            self.doc.nodes[same as usize].text = (from as u32, self.doc.text.len() as u32);
            return Ok(());
        }
        let prefix = if self.fixes_up { self.prefix_for(name.uri, prefix)? } else { prefix };
        self.push(Kind::Attribute, name, prefix, value)?;
        Ok(())
    }

    /// The prefix for an attribute in a namespace: the wished one where it is free or the same.
    fn prefix_for(&mut self, uri: Atom, wish: Atom) -> Result<Atom> {
        if uri == Atom::EMPTY {
            return Ok(Atom::EMPTY);
        }
        if self.atoms.text(uri) == crate::XML {
            return Ok(self.atoms.get("xml"));
        }
        if wish != Atom::EMPTY && self.in_scope(wish) == uri {
            return Ok(wish);
        }
        let depth = self.open.len();
        let is_taken = |prefix: Atom| {
            let mut here = self.scope.iter().rev().take_while(|(of, ..)| *of == depth);
            prefix == Atom::EMPTY
                || here.any(|(_, of, _)| *of == prefix)
                || self.is_used(prefix)
                || matches!(self.atoms.text(prefix), "xml" | "xmlns")
        };
        let mut prefix = wish;
        if is_taken(prefix) {
            let visible = self.scope.iter().rev().find(|(_, of, in_scope)| {
                *in_scope == uri && *of != Atom::EMPTY && self.in_scope(*of) == uri
            });
            if let Some((_, prefix, _)) = visible {
                return Ok(*prefix);
            }
            let mut number = 1;
            while is_taken(prefix) || self.in_scope(prefix) != Atom::EMPTY {
                prefix = self.atoms.get(&format!("ns_{number}"));
                number += 1;
            }
        }
        self.declare(prefix, uri)?;
        Ok(prefix)
    }

    fn grow(&mut self, text: &str) -> Result<()> {
        if self.doc.bytes() + text.len() > self.bytes_max {
            return Err(Error::new("the document needs more memory than it may have"));
        }
        self.doc.text.push_str(text);
        Ok(())
    }

    /// Adds text, `raw` where it is written as it is; it becomes one node with text of its kind
    /// before.
    pub(crate) fn text(&mut self, text: &str, raw: bool) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let kind = if raw { Kind::RawText } else { Kind::Text };
        let last = self.doc.node(self.current()).last;
        let whole = self.doc.text.len() as u32;
        if last != NONE && self.doc.node(last).kind == kind && self.doc.node(last).text.1 == whole {
            self.grow(text)?;
            self.doc.nodes[last as usize].text.1 = self.doc.text.len() as u32;
            return Ok(());
        }
        self.push(kind, Name::default(), Atom::EMPTY, text)?;
        Ok(())
    }

    /// Adds a comment.
    pub(crate) fn comment(&mut self, text: &str) -> Result<()> {
        self.push(Kind::Comment, Name::default(), Atom::EMPTY, text)?;
        Ok(())
    }

    /// Adds a processing instruction.
    pub(crate) fn pi(&mut self, target: &str, value: &str) -> Result<()> {
        let name = Name { uri: Atom::EMPTY, local: self.atoms.get(target) };
        self.push(Kind::Pi, name, Atom::EMPTY, value)?;
        Ok(())
    }

    /// Adds a copy of a node with all that is in it; of a root, its children. Namespaces in scope
    /// at the node go along.
    pub(crate) fn copy(&mut self, from: &Doc, id: Id) -> Result<()> {
        let (floor, mut at) = (self.open.len(), id);
        let end = from.node(id).end;
        // The elements that are open here, by where they end there.
        let mut ends: Vec<Id> = Vec::new();
        while at < end {
            while ends.last().is_some_and(|end| *end <= at) {
                ends.pop();
                self.end();
            }
            self.copy_one(from, at, at == id)?;
            if from.node(at).kind == Kind::Element {
                ends.push(from.node(at).end);
            }
            at += 1;
        }
        while self.open.len() > floor {
            self.end();
        }
        Ok(())
    }

    fn copy_one(&mut self, from: &Doc, id: Id, is_top: bool) -> Result<()> {
        let node = from.node(id);
        let atoms = self.atoms;
        match node.kind {
            Kind::Root => Ok(()),
            Kind::Element => {
                self.start(node.name, node.prefix)?;
                let declared = if is_top { from.in_scope(id) } else { from.declared(id).collect() };
                for id in declared {
                    let uri = atoms.get(from.own_value(id));
                    self.namespace(from.node(id).name.local, uri)?;
                }
                Ok(())
            }
            // Those of elements came with them.
            Kind::Namespace if !is_top => Ok(()),
            Kind::Namespace => self.namespace(node.name.local, atoms.get(from.own_value(id))),
            Kind::Attribute => self.attribute(node.name, node.prefix, from.own_value(id)),
            Kind::Text | Kind::RawText => self.text(from.own_value(id), node.kind == Kind::RawText),
            Kind::Comment => self.comment(from.own_value(id)),
            Kind::Pi => self.pi(atoms.text(node.name.local), from.own_value(id)),
        }
    }

    /// The document, all of whose elements are ended.
    pub(crate) fn finish(mut self) -> Doc {
        while self.open.len() > 1 {
            self.end();
        }
        self.doc.text.shrink_to_fit();
        self.doc.nodes.shrink_to_fit();
        self.doc
    }
}
