//! A shared region, seen as atomic words.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64};

use os::map::SharedMap;

/// A region of zeroed memory that all processes forked after it was made share.
///
/// It is only ever accessed through atomics: whatever another process writes, every word is valid.
#[derive(Debug)]
pub struct Zone(SharedMap);

/// Processors fetch and invalidate this much at a time; two writers on one line slow each other.
pub(crate) const CACHE_LINE: usize = 64;

/// Types that [`Zone::view`] may show: plain atomics, for which all zeroes and any other bits are
/// values.
///
/// # Safety
///
/// The type has no padding and no bit pattern that is not a value, may be changed by other
/// processes through its shared references (atomics alone), and is aligned to a page or less.
pub(crate) unsafe trait Shared: Sync {}

// SAFETY: an atomic integer takes any bits and is meant to change under a shared reference.
unsafe impl Shared for AtomicU64 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU32 {}

impl Zone {
    /// A zone of at least `bytes` bytes, all zero.
    pub fn anonymous(bytes: usize) -> io::Result<Zone> {
        SharedMap::new(bytes).map(Zone)
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The zone as a row of words.
    pub fn words(&self) -> &[AtomicU64] {
        self.view()
    }

    /// The zone as a row of values.
    pub(crate) fn view<T: Shared>(&self) -> &[T] {
        let count = self.0.len() / size_of::<T>();
        // SAFETY: the mapping is `count * size_of::<T>()` bytes or more, lives as long as `self`,
        // is aligned to a page and never moved. `Shared` promises that any bits are values
        // and that others may write.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().as_ptr().cast(), count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn words_start_at_zero_and_keep_what_is_written() {
        let zone = Zone::anonymous(100).unwrap();
        let words = zone.words();
        assert_eq!(words.len(), zone.bytes() / 8);
        assert!(words.iter().all(|w| w.load(Ordering::Relaxed) == 0));
        words[3].store(7, Ordering::Relaxed);
        assert_eq!(zone.words()[3].load(Ordering::Relaxed), 7);
    }
}
