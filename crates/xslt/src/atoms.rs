//! Names as numbers: two names are the same if their numbers are.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::frozen::Frozen;

/// A text of an [`Atoms`] table: a local name, a prefix, the URI of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Atom(u32);

impl Atom {
    /// The empty text: no namespace, no prefix.
    pub(crate) const EMPTY: Atom = Atom(0);

    /// A number for tables by atom.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The name of an element or attribute: its namespace and its local part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Name {
    /// The URI of the namespace; empty where it is in none.
    pub(crate) uri: Atom,
    pub(crate) local: Atom,
}

/// The texts of a stylesheet, which threads share.
#[derive(Default, Debug)]
pub(crate) struct Shared {
    map: HashMap<Arc<str>, u32>,
    list: Vec<Arc<str>>,
}

/// The texts of a stylesheet and those that a run adds to them.
pub(crate) struct Atoms {
    shared: Arc<Shared>,
    map: RefCell<HashMap<Arc<str>, u32>>,
    added: Frozen<Arc<str>>,
}

impl Default for Atoms {
    fn default() -> Self {
        let shared = Shared { map: [(Arc::from(""), 0)].into(), list: vec![Arc::from("")] };
        Atoms::over(Arc::new(shared))
    }
}

impl Atoms {
    /// A table that begins with a stylesheet's texts.
    pub(crate) fn over(shared: Arc<Shared>) -> Self {
        Atoms { shared, map: RefCell::default(), added: Frozen::default() }
    }

    /// The atom of a text.
    pub(crate) fn get(&self, text: &str) -> Atom {
        if text.is_empty() {
            return Atom::EMPTY;
        }
        if let Some(n) = self.shared.map.get(text) {
            return Atom(*n);
        }
        let mut map = self.map.borrow_mut();
        if let Some(n) = map.get(text) {
            return Atom(*n);
        }
        let text: Arc<str> = Arc::from(text);
        let n = self.shared.list.len() as u32 + self.added.push(text.clone());
        map.insert(text, n);
        Atom(n)
    }

    /// The name of a local part in a namespace.
    pub(crate) fn name(&self, uri: &str, local: &str) -> Name {
        Name { uri: self.get(uri), local: self.get(local) }
    }

    /// An atom's text.
    pub(crate) fn text(&self, atom: Atom) -> &str {
        let shared = &self.shared.list;
        match shared.get(atom.index()) {
            Some(text) => text,
            None => self.added.get(atom.0 - shared.len() as u32).map_or("", |text| text),
        }
    }

    /// All texts as a table that threads share.
    pub(crate) fn freeze(self) -> Arc<Shared> {
        let mut all = Shared { map: self.shared.map.clone(), list: self.shared.list.clone() };
        for n in 0..self.added.len() {
            if let Some(text) = self.added.get(n) {
                all.map.insert(text.clone(), all.list.len() as u32);
                all.list.push(text.clone());
            }
        }
        Arc::new(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_atom() {
        let atoms = Atoms::default();
        let (a, b) = (atoms.get("a"), atoms.get("b"));
        assert_eq!((atoms.get("a"), atoms.get("")), (a, Atom::EMPTY));
        assert_ne!(a, b);
        let run = Atoms::over(atoms.freeze());
        assert_eq!((run.get("a"), run.get("b")), (a, b));
        let c = run.get("c");
        assert_eq!([a, b, c, Atom::EMPTY].map(|atom| run.text(atom)), ["a", "b", "c", ""]);
        assert_eq!(run.get("c"), c);
    }
}
