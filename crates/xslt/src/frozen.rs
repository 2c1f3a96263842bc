//! A list that grows and whose items stay where they are: a reference to one stays good while
//! others are added.

use std::cell::{Cell, OnceCell};

/// Items in chunks, each twice as large as the one before.
pub(crate) struct Frozen<T> {
    chunks: [OnceCell<Box<[OnceCell<T>]>>; 32],
    len: Cell<u32>,
}

impl<T> Default for Frozen<T> {
    fn default() -> Self {
        Frozen { chunks: [const { OnceCell::new() }; 32], len: Cell::new(0) }
    }
}

/// The chunk of an item, and its place there.
fn place(at: u32) -> (usize, usize) {
    let chunk = (u64::from(at) + 1).ilog2();
    (chunk as usize, (u64::from(at) + 1 - (1 << chunk)) as usize)
}

impl<T> Frozen<T> {
    /// The number of items.
    pub(crate) fn len(&self) -> u32 {
        self.len.get()
    }

    /// The item at a place that [`push`](Self::push) gave.
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        let (chunk, at) = place(at);
        self.chunks[chunk.min(31)].get()?.get(at)?.get()
    }

    /// Adds an item; its place.
    pub(crate) fn push(&self, item: T) -> u32 {
        let at = self.len.get();
        let (chunk, inside) = place(at);
        let chunk = chunk.min(31);
        let items = self.chunks[chunk].get_or_init(|| {
            let mut items = Vec::new();
            items.resize_with(1 << chunk, OnceCell::new);
            items.into_boxed_slice()
        });
        if items[inside].set(item).is_ok() {
            self.len.set(at + 1);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_stay() {
        let list = Frozen::default();
        let first = (list.push("0".to_owned()), list.get(0));
        for n in 1..1000 {
            assert_eq!(list.push(n.to_string()), n);
        }
        assert_eq!(first.1.map(String::as_str), Some("0"));
        for n in 0..1000 {
            assert_eq!(list.get(n), Some(&n.to_string()));
        }
        assert_eq!((list.get(1000), list.len()), (None, 1000));
    }
}
