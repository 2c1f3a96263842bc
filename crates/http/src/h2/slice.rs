//! The time that a connection may take before others have their turns. A client of many requests
//! that cost much each would hold up all others for as long as it likes.

use base::time::exact_us;

/// Its length, in microseconds: a hundred small files in memory.
const SLICE_US: u64 = 150;

/// The same for a client that floods, or did lately: others wait no longer for its frames than for
/// a few requests of each other.
const SLICE_SUSPECT_US: u64 = 30;

/// A connection's share of the worker's time.
#[derive(Clone, Copy, Default)]
pub(super) struct Slice {
    /// When it has passed; zero where it has not begun.
    end_us: u64,
}

impl Slice {
    /// Begins, with the first of several turns.
    pub fn begin(&mut self, is_suspect: bool) {
        if self.end_us == 0 {
            self.end_us = exact_us() + if is_suspect { SLICE_SUSPECT_US } else { SLICE_US };
        }
    }

    /// Ends: others have their turns.
    pub fn end(&mut self) {
        self.end_us = 0;
    }

    /// Whether others are to have theirs.
    pub fn has_passed(self) -> bool {
        exact_us() >= self.end_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_goes_on_until_others_have_theirs() {
        let mut slice = Slice::default();
        base::time::pin(1_000, 1_000);
        slice.begin(false);
        assert!(!slice.has_passed());
        base::time::pin(1_001, 1_000);
        slice.begin(false);
        assert!(slice.has_passed(), "it has begun before");
        slice.end();
        slice.begin(false);
        assert!(!slice.has_passed());
        let usual = slice.end_us;
        slice.end();
        slice.begin(true);
        assert_eq!(usual - slice.end_us, SLICE_US - SLICE_SUSPECT_US, "a suspect's is shorter");
        assert!(!slice.has_passed());
        base::time::unpin();
    }
}
