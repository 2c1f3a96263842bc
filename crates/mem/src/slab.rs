//! A table whose keys do not outlive the entries they name.

/// Names an entry of a [`Slab`]: an index and the generation of the entry there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    /// The index in the table.
    pub(crate) index: u32,
    /// The number of entries that this index had before.
    pub(crate) generation: u32,
}

const END: u32 = u32::MAX;

#[derive(Debug)]
enum State<T> {
    Vacant { next: u32 },
    Full(T),
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    state: State<T>,
}

/// A table of values named by [`Key`]s. The key of a removed value finds nothing, even when its
/// index is in use again. Grows on demand; indices are reused last in, first out.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: u32,
    len: usize,
}

impl<T> Slab<T> {
    /// An empty table; allocates nothing.
    pub(crate) const fn new() -> Slab<T> {
        Slab { entries: Vec::new(), free: END, len: 0 }
    }

    /// Values in the table.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the table has no value.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a value.
    ///
    /// # Panics
    /// When there are 2³² - 1 values already.
    pub(crate) fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        if let Some(entry) = self.entries.get_mut(self.free as usize) {
            let index = self.free;
            if let State::Vacant { next } = entry.state {
                self.free = next;
            }
            entry.state = State::Full(value);
            return Key { index, generation: entry.generation };
        }
        let index = u32::try_from(self.entries.len()).ok().filter(|&index| index != END);
        let index = index.expect("a slab has fewer than 2^32 - 1 places");
        self.entries.push(Entry { generation: 0, state: State::Full(value) });
        Key { index, generation: 0 }
    }

    /// The value of `key`, if it was not removed.
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        match self.entries.get(key.index as usize) {
            Some(Entry { generation, state: State::Full(value) })
                if *generation == key.generation =>
            {
                Some(value)
            }
            _ => None,
        }
    }

    /// The value of `key` to be changed, if it was not removed.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.entries.get_mut(key.index as usize) {
            Some(Entry { generation, state: State::Full(value) })
                if *generation == key.generation =>
            {
                Some(value)
            }
            _ => None,
        }
    }

    /// Removes the value of `key`; from then on the key finds nothing.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let entry = &mut self.entries[key.index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        let state = std::mem::replace(&mut entry.state, State::Vacant { next: self.free });
        self.free = key.index;
        self.len -= 1;
        match state {
            State::Full(value) => Some(value),
            State::Vacant { .. } => None,
        }
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_not_outlive_their_values() {
        let mut slab = Slab::new();
        let a = slab.insert("a");
        let b = slab.insert("b");
        assert_eq!(slab.remove(a), Some("a"));
        assert_eq!(slab.remove(a), None);
        let c = slab.insert("c");
        assert_eq!((c.index, slab.get(a), slab.get(c)), (a.index, None, Some(&"c")));
        *slab.get_mut(b).expect("b is there") = "B";
        assert_eq!((slab.get(b), slab.len()), (Some(&"B"), 2));
    }

    #[test]
    fn places_are_reused() {
        let mut slab = Slab::new();
        let keys: Vec<Key> = (0..10).map(|n| slab.insert(n)).collect();
        for key in &keys {
            slab.remove(*key);
        }
        assert!(slab.is_empty());
        let index: Vec<u32> = (0..10).map(|n| slab.insert(n).index).collect();
        assert!(index.iter().all(|index| *index < 10));
        assert_eq!(slab.entries.len(), 10);
    }
}
