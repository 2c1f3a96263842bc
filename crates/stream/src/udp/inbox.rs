//! The queue of a session's datagrams; uses no memory while empty.

use std::cell::Cell;
use std::collections::VecDeque;

use bytes::Bytes;
use mem::FreeList;

/// The maximum number of free queues kept by a worker.
const FREE_MAX: usize = 64;

/// A queue with a larger capacity is freed rather than kept.
const KEEP_CAPACITY: usize = 32;

type Queue = VecDeque<Bytes>;

thread_local! {
    static FREE: FreeList<Box<Queue>> = const { FreeList::new(FREE_MAX) };
}

/// Frees the queues that were unused since the last call. Returns their number.
pub(super) fn trim() -> usize {
    FREE.with(FreeList::trim)
}

/// The queue of a session: a pointer, to one of the worker's queues while not empty.
#[derive(Default)]
pub(super) struct Inbox(Cell<Option<Box<Queue>>>);

impl Inbox {
    pub fn push(&self, datagram: Bytes) {
        let queue = self.0.take().or_else(|| FREE.with(FreeList::take));
        let mut queue = queue.unwrap_or_default();
        queue.push_back(datagram);
        self.0.set(Some(queue));
    }

    /// Takes the first datagram if `is_wanted`.
    pub fn pop_if(&self, is_wanted: impl FnOnce(&Bytes) -> bool) -> Option<Bytes> {
        let mut queue = self.0.take()?;
        let datagram = if queue.front().is_some_and(is_wanted) { queue.pop_front() } else { None };
        self.put_back(queue);
        datagram
    }

    pub fn len(&self) -> usize {
        let queue = self.0.take();
        let len = queue.as_ref().map_or(0, |queue| queue.len());
        self.0.set(queue);
        len
    }

    /// Takes all datagrams after the first `keep`.
    pub fn split_off(&self, keep: usize) -> VecDeque<Bytes> {
        let Some(mut queue) = self.0.take() else { return VecDeque::new() };
        let rest = queue.split_off(keep.min(queue.len()));
        self.put_back(queue);
        rest
    }

    fn put_back(&self, queue: Box<Queue>) {
        if !queue.is_empty() {
            self.0.set(Some(queue));
        } else if queue.capacity() <= KEEP_CAPACITY {
            let _full = FREE.with(|free| free.give(queue));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_inbox_holds_nothing() {
        let inbox = Inbox::default();
        let pop = || inbox.pop_if(|_| true);
        assert_eq!((pop(), inbox.len()), (None, 0));
        for text in ["a", "b", "c"] {
            inbox.push(Bytes::from_static(text.as_bytes()));
        }
        assert_eq!((inbox.len(), pop().as_deref()), (3, Some(&b"a"[..])));
        assert_eq!(inbox.pop_if(|first| first == "c"), None);
        assert_eq!(inbox.split_off(1), ["c"]);
        assert_eq!((pop().as_deref(), pop()), (Some(&b"b"[..]), None));
        assert!(inbox.0.take().is_none());
        assert_eq!(FREE.with(FreeList::len), 1);
    }
}
