//! Open files that several responses, and tasks in other threads, share.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// An open file; it closes with the last handle. Counted across threads: a thread that reads for a
/// response keeps the file open when the response is given up.
#[derive(Clone, Debug)]
pub struct FileHandle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None` in the destructor alone.
    fd: Option<OwnedFd>,
    direct: bool,
    key: u64,
    slow: bool,
    close: Option<fn(OwnedFd)>,
}

impl FileHandle {
    /// An open file. `key`: see [`FileHandle::key`]. `direct`: reads bypass the page cache
    /// (`O_DIRECT`). `close` is given for a file on a slow file system (of the network, or made by
    /// a process), and gets the descriptor in the end: there a read of cached pages may wait, and
    /// so may a close.
    pub fn new(fd: OwnedFd, key: u64, direct: bool, close: Option<fn(OwnedFd)>) -> FileHandle {
        FileHandle(Arc::new(Inner { fd: Some(fd), direct, key, slow: close.is_some(), close }))
    }

    /// An open file on this machine's own file systems. `close` gets the descriptor in the end all
    /// the same: the file's last name may be gone by then.
    pub fn local(fd: OwnedFd, key: u64, direct: bool, close: fn(OwnedFd)) -> FileHandle {
        let (fd, slow, close) = (Some(fd), false, Some(close));
        FileHandle(Arc::new(Inner { fd, direct, key, slow, close }))
    }

    /// A file whose last name is gone: a close frees its blocks, which may wait on any file system,
    /// so that `close` gets the descriptor. `slow`: it lies on a slow file system.
    pub fn temporary(fd: OwnedFd, slow: bool, close: fn(OwnedFd)) -> FileHandle {
        let (direct, key, close) = (false, 0, Some(close));
        FileHandle(Arc::new(Inner { fd: Some(fd), direct, key, slow, close }))
    }

    /// A number that all handles of one file on disk share; 0 for none.
    pub fn key(&self) -> u64 {
        self.0.key
    }

    /// Whether reads bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.0.direct
    }

    /// Whether it lies on a slow file system.
    pub fn is_slow(&self) -> bool {
        self.0.slow
    }

    /// Whether it is the same handle, or a clone of it.
    pub fn same(&self, other: &FileHandle) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl From<OwnedFd> for FileHandle {
    fn from(fd: OwnedFd) -> FileHandle {
        FileHandle::new(fd, 0, false, None)
    }
}

impl AsRef<OwnedFd> for FileHandle {
    fn as_ref(&self) -> &OwnedFd {
        let fd = self.0.fd.as_ref();
        fd.expect("the descriptor is taken out when the last handle goes, and not before")
    }
}

impl AsFd for FileHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.as_ref().as_fd()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let (Some(close), Some(fd)) = (self.close, self.fd.take()) {
            close(fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local!(static CLOSED: Cell<u32> = const { Cell::new(0) });

    fn count(fd: OwnedFd) {
        drop(fd);
        CLOSED.with(|c| c.set(c.get() + 1));
    }

    #[test]
    fn the_last_one_closes() {
        let open = || OwnedFd::from(std::fs::File::open("/dev/null").expect("/dev/null opens"));
        let one = FileHandle::new(open(), 7, false, Some(count));
        let two = one.clone();
        assert!(one.same(&two) && !one.same(&open().into()));
        assert!(one.is_slow() && !one.is_direct());
        drop(FileHandle::local(open(), 7, false, count));
        assert_eq!(CLOSED.take(), 1);
        drop(one);
        assert_eq!(CLOSED.with(Cell::get), 0);
        drop(two);
        assert_eq!(CLOSED.with(Cell::get), 1);
    }
}
