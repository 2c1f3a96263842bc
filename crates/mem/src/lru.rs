//! A table by name that keeps its entries in the order of their last use.

use std::collections::HashMap;
use std::sync::Arc;

use crate::slab::{Key, Slab};

#[derive(Debug)]
struct Node<V> {
    name: Arc<[u8]>,
    value: V,
    newer: Option<Key>,
    older: Option<Key>,
}

/// Values by name, linked from the most recently used to the least recently used. Every operation
/// takes the time of one look-up; the owner limits the number of values.
#[derive(Debug)]
pub struct Lru<V> {
    by_name: HashMap<Arc<[u8]>, Key>,
    nodes: Slab<Node<V>>,
    newest: Option<Key>,
    oldest: Option<Key>,
}

impl<V> Default for Lru<V> {
    fn default() -> Self {
        Lru { by_name: HashMap::new(), nodes: Slab::new(), newest: None, oldest: None }
    }
}

impl<V> Lru<V> {
    /// An empty table; allocates nothing.
    pub fn new() -> Lru<V> {
        Lru::default()
    }

    /// Values in the table.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the table has no value.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The value of that name; its position in the order stays.
    pub fn peek(&self, name: &[u8]) -> Option<&V> {
        self.nodes.get(*self.by_name.get(name)?).map(|node| &node.value)
    }

    /// The value of that name, which becomes the most recently used.
    pub fn get(&mut self, name: &[u8]) -> Option<&mut V> {
        let key = *self.by_name.get(name)?;
        if self.newest != Some(key) {
            self.unlink(key);
            self.link(key);
        }
        self.nodes.get_mut(key).map(|node| &mut node.value)
    }

    /// Adds a value as the most recently used. Returns the value that had this name before.
    pub fn insert(&mut self, name: &[u8], value: V) -> Option<V> {
        if let Some(old) = self.get(name) {
            return Some(std::mem::replace(old, value));
        }
        let name: Arc<[u8]> = name.into();
        let node = Node { name: name.clone(), value, newer: None, older: None };
        let key = self.nodes.insert(node);
        self.by_name.insert(name, key);
        self.link(key);
        None
    }

    /// Takes a value out.
    pub fn remove(&mut self, name: &[u8]) -> Option<V> {
        let key = *self.by_name.get(name)?;
        self.take(key)
    }

    /// The least recently used value.
    pub fn oldest(&self) -> Option<&V> {
        self.nodes.get(self.oldest?).map(|node| &node.value)
    }

    /// Removes the least recently used value.
    pub fn pop_oldest(&mut self) -> Option<V> {
        self.take(self.oldest?)
    }

    fn take(&mut self, key: Key) -> Option<V> {
        self.unlink(key);
        let node = self.nodes.remove(key)?;
        self.by_name.remove(&node.name);
        Some(node.value)
    }

    fn unlink(&mut self, key: Key) {
        let Some(node) = self.nodes.get_mut(key) else { return };
        let (newer, older) = (node.newer.take(), node.older.take());
        match newer.and_then(|k| self.nodes.get_mut(k)) {
            Some(n) => n.older = older,
            None => self.newest = older,
        }
        match older.and_then(|k| self.nodes.get_mut(k)) {
            Some(o) => o.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Links a node that is in no chain at the newest end.
    fn link(&mut self, key: Key) {
        let was = self.newest.replace(key);
        if let Some(w) = was.and_then(|k| self.nodes.get_mut(k)) {
            w.newer = Some(key);
        }
        if let Some(node) = self.nodes.get_mut(key) {
            node.older = was;
        }
        self.oldest.get_or_insert(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_use() {
        let mut lru = Lru::new();
        for name in ["a", "b", "c", "d"] {
            assert_eq!(lru.insert(name.as_bytes(), name), None);
        }
        assert_eq!(lru.get(b"a"), Some(&mut "a"));
        assert_eq!(lru.insert(b"b", "B"), Some("b"));
        assert_eq!(lru.peek(b"c"), Some(&"c"));
        assert_eq!((lru.remove(b"d"), lru.remove(b"d")), (Some("d"), None));
        assert_eq!((lru.len(), lru.oldest()), (3, Some(&"c")));
        assert_eq!(lru.get(b"x"), None);
        assert_eq!([lru.pop_oldest(), lru.pop_oldest()], [Some("c"), Some("a")]);
        assert_eq!(lru.insert(b"e", "e"), None);
        assert_eq!(
            [lru.pop_oldest(), lru.pop_oldest(), lru.pop_oldest()],
            [Some("B"), Some("e"), None]
        );
        assert!(lru.is_empty() && lru.oldest().is_none());
    }

    #[test]
    fn every_sequence_agrees_with_a_plain_list() {
        let mut seed = 7u32;
        let mut lru = Lru::new();
        let mut list: Vec<u32> = Vec::new();
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (what, name) = (seed >> 28, (seed >> 16) % 12);
            let bytes = name.to_be_bytes();
            let at = list.iter().position(|n| *n == name);
            match what {
                0..=5 => {
                    assert_eq!(lru.insert(&bytes, name).is_some(), at.is_some());
                    at.map(|i| list.remove(i));
                    list.push(name);
                }
                6..=10 => {
                    assert_eq!(lru.get(&bytes).copied(), at.map(|i| list.remove(i)));
                    if at.is_some() {
                        list.push(name);
                    }
                }
                11..=12 => assert_eq!(lru.remove(&bytes), at.map(|i| list.remove(i))),
                _ => {
                    let first = (!list.is_empty()).then(|| list.remove(0));
                    assert_eq!(lru.pop_oldest(), first);
                }
            }
            assert_eq!((lru.len(), lru.oldest()), (list.len(), list.first()));
        }
    }
}
