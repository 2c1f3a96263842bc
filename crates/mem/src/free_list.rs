//! Values of a thread that wait for their next use, and the return of those that have none.

use std::cell::{Cell, RefCell};

/// Values that wait for reuse. The one that came last is taken first: it is the likeliest to be in
/// the processor's caches, and those that no one needs stay at the other end.
pub struct FreeList<T> {
    values: RefCell<Vec<T>>,
    /// The fewest values since the last trim: these had no use.
    unused: Cell<usize>,
    max: Cell<usize>,
}

impl<T> FreeList<T> {
    /// An empty one, which keeps `max` values.
    pub const fn new(max: usize) -> FreeList<T> {
        FreeList { values: RefCell::new(Vec::new()), unused: Cell::new(0), max: Cell::new(max) }
    }

    /// Keeps `max` values from now on.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.set(max);
    }

    /// A value, if there is one.
    #[inline]
    pub fn take(&self) -> Option<T> {
        let mut values = self.values.borrow_mut();
        let value = values.pop();
        self.unused.set(self.unused.get().min(values.len()));
        value
    }

    /// Keeps a value. Returns it where there are enough, so that the caller may drop it when
    /// nothing is borrowed.
    #[inline]
    pub fn give(&self, value: T) -> Option<T> {
        let mut values = self.values.borrow_mut();
        if values.len() >= self.max.get() {
            return Some(value);
        }
        values.push(value);
        None
    }

    /// Drops the values that had no use since the last call. Returns their number.
    pub fn trim(&self) -> usize {
        let unused: Vec<T> = {
            let mut values = self.values.borrow_mut();
            let unused = self.unused.get().min(values.len());
            let unused = values.drain(..unused).collect();
            self.unused.set(values.len());
            unused
        };
        unused.len()
    }

    /// Drops all values.
    pub fn clear(&self) {
        self.unused.set(0);
        drop(self.values.take());
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.values.borrow().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

thread_local! {
    /// The functions that trim the lists of this thread that other crates have.
    static TRIMS: RefCell<Vec<fn() -> usize>> = const { RefCell::new(Vec::new()) };
}

/// Has [`trim`] call `function` on this thread, which trims a list and returns the number of
/// dropped values.
pub fn on_trim(function: fn() -> usize) {
    TRIMS.with_borrow_mut(|trims| {
        if !trims.iter().any(|there| std::ptr::fn_addr_eq(*there, function)) {
            trims.push(function);
        }
    });
}

/// Drops what the lists of this thread keep and had no use for since the last call. Returns the
/// number of the values.
pub fn trim() -> usize {
    let others = TRIMS.with_borrow(Vec::clone);
    let others: usize = others.into_iter().map(|trim| trim()).sum();
    others + crate::page::trim() + crate::chain::trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_without_a_use_are_dropped_and_others_stay() {
        let list = FreeList::new(3);
        assert_eq!([1, 2, 3, 4].map(|n| list.give(n)), [None, None, None, Some(4)]);
        // They came since: whether they are needed is not known yet.
        assert_eq!((list.trim(), list.len()), (0, 3));
        assert_eq!(list.take(), Some(3));
        assert_eq!(list.give(5), None);
        assert_eq!((list.trim(), list.take()), (2, Some(5)));
        assert_eq!((list.take(), list.trim()), (None, 0));
        list.give(6);
        list.clear();
        assert!(list.is_empty() && list.take().is_none());
    }

    #[test]
    fn lists_of_others_are_trimmed_once() {
        thread_local!(static CALLS: Cell<usize> = const { Cell::new(0) });
        fn called() -> usize {
            CALLS.set(CALLS.get() + 1);
            7
        }
        on_trim(called);
        on_trim(called);
        assert_eq!((trim(), CALLS.get()), (7, 1));
    }
}
