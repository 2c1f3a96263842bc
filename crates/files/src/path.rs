//! Paths in recycled buffers: a request maps its URI to a file without allocating.

use std::ops::{Deref, DerefMut};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use mem::FreeList;

/// The number and size of the buffers that a worker keeps: enough for a handler that holds two
/// paths while another request's handler does.
const FREE_MAX: usize = 8;
const KEEP_BYTES_MAX: usize = 4096;

thread_local! {
    static FREE: FreeList<Vec<u8>> = const { FreeList::new(FREE_MAX) };
}

/// A path in bytes as the system calls take it.
#[inline]
pub fn as_path(path: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(path))
}

/// A path (or URI) in the making; its buffer is recycled when it is dropped.
#[derive(Debug)]
pub struct FilePath(Vec<u8>);

impl FilePath {
    /// An empty one.
    pub fn new() -> FilePath {
        FilePath(FREE.with(FreeList::take).unwrap_or_else(|| Vec::with_capacity(256)))
    }
}

impl Default for FilePath {
    fn default() -> Self {
        FilePath::new()
    }
}

impl Deref for FilePath {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for FilePath {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for FilePath {
    fn drop(&mut self) {
        let mut buf = std::mem::take(&mut self.0);
        if buf.capacity() > KEEP_BYTES_MAX {
            return;
        }
        buf.clear();
        let _full = FREE.try_with(|free| free.give(buf));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_empty() {
        let mut a = FilePath::new();
        a.extend_from_slice(b"/some/path");
        let at = a.as_ptr();
        drop(a);
        let b = FilePath::new();
        assert_eq!((b.as_ptr(), b.len()), (at, 0));
        let mut big = FilePath::new();
        big.resize(KEEP_BYTES_MAX + 1, 0);
        drop(big);
        assert!(FilePath::new().capacity() <= KEEP_BYTES_MAX);
    }
}
