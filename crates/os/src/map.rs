//! Memory that forked processes share.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

/// A region of zeroed memory that this process shares with those forked from it later. Dropping it
/// unmaps it in this process alone.
#[derive(Debug)]
pub struct SharedMap {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process and not to a thread: it may be used and unmapped from
// any. It is not `Sync`: locks in it know processes apart, and not threads, so a value that several
// threads use stands behind a `Mutex`.
unsafe impl Send for SharedMap {}

impl SharedMap {
    /// Maps `len` bytes, rounded up to whole pages; at least one.
    pub fn new(len: usize) -> io::Result<SharedMap> {
        let len = len
            .max(1)
            .checked_next_multiple_of(crate::limits::page_size())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, MapFlags::SHARED)?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedMap { start, len })
    }

    /// The first byte, aligned to a page. Other processes may write at any time: callers argue for
    /// each access.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes, a multiple of the page size.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: the region was mapped by `new` with this length, and users of `as_ptr` keep this
        // value alive for as long as they use the pointer.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zeroed_and_whole_pages() {
        let map = SharedMap::new(5).unwrap();
        assert_eq!(map.len() % crate::limits::page_size(), 0);
        // SAFETY: the mapping is `len` long, readable, and only this thread has it.
        let bytes = unsafe { std::slice::from_raw_parts(map.as_ptr().as_ptr(), map.len()) };
        assert!(bytes.iter().all(|b| *b == 0));
        assert!(SharedMap::new(usize::MAX).is_err());
    }
}
