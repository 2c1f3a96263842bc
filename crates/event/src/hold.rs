//! Work that a process finishes before it leaves, although no connection waits for it.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Keeps a leaving process until it is dropped: see [`hold`]. It stays on its thread, whose number
/// of holds it counts in.
#[must_use = "the process may leave when this is dropped"]
#[derive(Debug)]
pub struct Hold(PhantomData<Rc<()>>);

impl Drop for Hold {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

/// Has a process that leaves wait until the result is dropped. That should take a moment at most.
pub fn hold() -> Hold {
    HELD.set(HELD.get() + 1);
    Hold(PhantomData)
}

/// Whether something of this thread keeps the process.
pub fn is_held() -> bool {
    HELD.get() > 0
}

#[cfg(test)]
mod tests {
    use super::{hold, is_held};

    #[test]
    fn all_holds_have_to_end() {
        assert!(!is_held());
        let (first, second) = (hold(), hold());
        drop(first);
        assert!(is_held());
        drop(second);
        assert!(!is_held());
    }
}
