//! Memory that requests are about to take.

use std::cell::Cell;

thread_local! {
    static PROMISED: Cell<u64> = const { Cell::new(0) };
}

/// All that is promised now, bytes.
pub(super) fn bytes() -> u64 {
    PROMISED.get()
}

/// Memory that a request is about to take: it counts as used until it is there, or the request is
/// over.
#[derive(Debug)]
pub struct Promise {
    bytes: u64,
}

impl Promise {
    /// Promises memory for bytes that are to come.
    pub fn new(bytes: u64) -> Promise {
        PROMISED.set(PROMISED.get().saturating_add(bytes));
        Promise { bytes }
    }

    /// At most `bytes` bytes are still to come.
    pub fn lower(&mut self, bytes: u64) {
        let kept = self.bytes.min(bytes);
        PROMISED.set(PROMISED.get().saturating_sub(self.bytes - kept));
        self.bytes = kept;
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.lower(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_counts_until_it_is_kept_or_given_up() {
        let (mut one, two) = (Promise::new(100), Promise::new(7));
        assert_eq!(bytes(), 107);
        one.lower(40);
        // More came than was promised, and then less: nothing is promised anew.
        one.lower(60);
        assert_eq!(bytes(), 47);
        drop(two);
        assert_eq!(bytes(), 40);
        drop(one);
        assert_eq!(bytes(), 0);
    }
}
