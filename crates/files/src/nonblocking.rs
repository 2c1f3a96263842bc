//! Questions that are answered from memory alone; all others have to be waited for.
//!
//! ```text
//!  stat: walked just now ─▶ statx                    else: find (cached path) + facts ─▶ answer
//!  load: folder on a local file system ─▶ open (cached path) + facts (+ read of cached pages)
//!  each: not in memory, or on a file system that is not local ─▶ wait
//! ```
//!
//! A path that this worker walked a moment ago is in the kernel's cache of names, whose oldest
//! entries go first; so a file that is asked for again and again costs one `statx(2)`, as it does
//! with `aio off`. File systems of the network, and those made by processes (FUSE), may have
//! to ask their servers whatever is in memory: they are always waited for, the closing of files
//! included.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use base::hash::Fast;
use event::sim::disk_is_cold;
use mem::FileHandle;
use os::file::FileMeta;
use os::probe::{self, Probes};

use crate::page_cache::{self, Cached};
use crate::path::as_path;

/// The time for which a path that was walked counts as being in memory, milliseconds.
const WALKED_MS: u64 = 1_000;

/// The time for which a folder counts as lying where it was found, milliseconds. A file system that
/// is mounted over it since makes requests wait for its disk until then.
const FOLDER_MS: u64 = 30_000;

/// Paths and folders that are remembered, each. A newer one replaces one with the same slot.
const SLOTS: usize = 1024;

/// The time for which an answer about a device holds: the numbers of file systems without a disk
/// are given anew when one is gone.
const DEVICE_LIFE: Duration = Duration::from_secs(60);

/// The devices met, and whether each is local; shared with the threads of the pools, which find
/// out.
static DEVICES: Mutex<Vec<(u64, bool, Instant)>> = Mutex::new(Vec::new());

/// The paths that this worker walked.
struct WalkedPaths {
    hasher: Fast,
    walked: Times,
    folders: Times,
}

/// Times by hash.
#[derive(Default)]
struct Times(Box<[(u64, u64)]>);

impl Times {
    fn is_recent(&self, hash: u64, within_ms: u64) -> bool {
        match self.0.get(hash as usize % SLOTS) {
            Some(&(h, at)) => h == hash && at + within_ms > base::time::now_ms(),
            None => false,
        }
    }

    fn note(&mut self, hash: u64) {
        if self.0.is_empty() {
            self.0 = vec![(0, 0); SLOTS].into();
        }
        self.0[hash as usize % SLOTS] = (hash, base::time::now_ms());
    }

    fn forget(&mut self, hash: u64) {
        if let Some(slot) = self.0.get_mut(hash as usize % SLOTS) {
            *slot = (0, 0);
        }
    }
}

thread_local! {
    static WALKED: RefCell<WalkedPaths> = RefCell::new(WalkedPaths {
        hasher: Fast::default(),
        walked: Times::default(),
        folders: Times::default(),
    });
}

impl WalkedPaths {
    fn hash(&self, path: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(path);
        hasher.finish()
    }
}

fn with<R>(f: impl FnOnce(&mut WalkedPaths) -> R) -> R {
    WALKED.with(|paths| f(&mut paths.borrow_mut()))
}

fn folder_of(path: &[u8]) -> &[u8] {
    let end = memchr::memrchr(b'/', path).unwrap_or(0);
    &path[..end]
}

fn device(dev: u64) -> Option<bool> {
    let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = devices.iter().find(|d| d.0 == dev)?;
    (known.2.elapsed() < DEVICE_LIFE).then_some(known.1)
}

/// Whether the device of an open file is local; found out if need be, which may wait.
pub(crate) fn learn(dev: u64, fd: impl AsFd) -> bool {
    device(dev).unwrap_or_else(|| {
        let local = probe::is_local(fd);
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|d| d.0 != dev && d.2.elapsed() < DEVICE_LIFE);
        devices.push((dev, local, Instant::now()));
        local
    })
}

/// As [`learn`], for what a path leads to.
pub(crate) fn learn_by_path(dev: u64, path: &Path) {
    if device(dev).is_none()
        && let Ok(fd) = probe::find_waiting(path)
    {
        learn(dev, fd);
    }
}

/// Whether a device is known to be local.
pub(crate) fn device_is_local(dev: u64) -> bool {
    device(dev) == Some(true)
}

/// Whether `path` was walked a moment ago, on a local file system.
pub(crate) fn was_walked(path: &[u8]) -> bool {
    with(|paths| {
        let hash = paths.hash(path);
        let recent = paths.walked.is_recent(hash, WALKED_MS);
        if recent {
            // It is about to be walked again.
            paths.walked.note(hash);
        }
        recent
    })
}

/// `path` was walked, and leads to a local file system.
pub(crate) fn walked(path: &[u8]) {
    with(|paths| {
        let hash = paths.hash(path);
        paths.walked.note(hash);
        let folder = paths.hash(folder_of(path));
        paths.folders.note(folder);
    });
}

fn in_local_folder(path: &[u8]) -> bool {
    with(|paths| {
        let folder = paths.hash(folder_of(path));
        paths.folders.is_recent(folder, FOLDER_MS)
    })
}

fn forget(path: &[u8]) {
    with(|paths| {
        let (hash, folder) = (paths.hash(path), paths.hash(folder_of(path)));
        paths.walked.forget(hash);
        paths.folders.forget(folder);
    });
}

/// An answer, or that it has to be waited for.
fn answer<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(e) if must_wait(&e) => Poll::Pending,
        result => Poll::Ready(result),
    }
}

/// Whether an error says no more than that the question cannot be answered from memory.
pub(crate) fn must_wait(e: &io::Error) -> bool {
    use os::errno::{EINVAL, ENOSYS, EOPNOTSUPP};
    e.kind() == io::ErrorKind::WouldBlock
        || matches!(e.raw_os_error(), Some(EINVAL | ENOSYS | EOPNOTSUPP))
}

/// The attributes of what `path` leads to, if they are in memory.
pub(crate) fn stat(path: &[u8]) -> Poll<io::Result<FileMeta>> {
    if disk_is_cold() {
        return Poll::Pending;
    }
    let at = as_path(path);
    if was_walked(path) {
        return Poll::Ready(os::file::stat(at));
    }
    let Some(meta) = find(at)? else { return Poll::Pending };
    if device(meta.dev) != Some(true) {
        return Poll::Pending;
    }
    walked(path);
    Poll::Ready(Ok(meta))
}

/// The path without links to what `path` leads to, if that is in memory.
pub fn real_path(path: &[u8]) -> Poll<io::Result<PathBuf>> {
    if disk_is_cold() || !Probes::here().open {
        return Poll::Pending;
    }
    answer(probe::find(as_path(path)).and_then(probe::path_of))
}

/// `None`: it has to be waited for. Nothing of the file system itself is called here that could
/// wait, whichever it is.
fn find(path: &Path) -> Result<Option<FileMeta>, io::Error> {
    if !Probes::here().open {
        return Ok(None);
    }
    match probe::find(path).and_then(probe::facts) {
        Ok(meta) => Ok(Some(meta)),
        Err(e) if must_wait(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens a file for reading, with its attributes, if that can be done from memory; `own`: see
/// [`os::file::open_own`].
pub(crate) fn open(path: &[u8], own: bool) -> Poll<io::Result<(OwnedFd, FileMeta)>> {
    if disk_is_cold() {
        return Poll::Pending;
    }
    let at = as_path(path);
    if !Probes::here().open {
        // A path that was walked just now opens from memory, whatever the kernel can tell.
        return match was_walked(path) {
            true => Poll::Ready(open_any(at, own).and_then(with_facts)),
            false => Poll::Pending,
        };
    }
    if !in_local_folder(path) {
        let Some(meta) = find(at)? else { return Poll::Pending };
        if device(meta.dev) != Some(true) {
            return Poll::Pending;
        }
        walked(path);
    }
    let opened = match own {
        true => os::file::open_own_cached(at),
        false => os::file::open_cached(at),
    };
    let (fd, meta) = match answer(opened.and_then(with_facts)) {
        Poll::Ready(opened) => opened?,
        Poll::Pending => return Poll::Pending,
    };
    if device(meta.dev) != Some(true) {
        // A link, or something mounted, led out of the folder's file system.
        forget(path);
        retire(fd);
        return Poll::Pending;
    }
    walked(path);
    Poll::Ready(Ok((fd, meta)))
}

/// Opens a file for reading; may wait for a disk.
pub(crate) fn open_any(path: &Path, own: bool) -> io::Result<OwnedFd> {
    if own { os::file::open_own(path) } else { os::file::open(path) }
}

fn with_facts(fd: OwnedFd) -> io::Result<(OwnedFd, FileMeta)> {
    let meta = probe::facts(&fd)?;
    Ok((fd, meta))
}

/// Closes a file of a local file system. One whose last name has gone meanwhile (deployments
/// replace files, caches drop them) is deleted with that: a disk may have to be waited for, and
/// hundreds of megabytes of memory take a while to be given back.
pub(crate) fn close(fd: OwnedFd) {
    match probe::has_name(&fd) {
        true => drop(fd),
        false => retire(fd),
    }
}

/// Whether an open file lies on a local file system. May wait.
pub(crate) fn is_local(fd: &OwnedFd) -> bool {
    os::file::fstat(fd).is_ok_and(|meta| learn(meta.dev, fd))
}

/// A handle of an open file on a local file system; the loop may drop the last one.
pub fn wrap_local(fd: OwnedFd) -> FileHandle {
    FileHandle::local(fd, 0, false, close)
}

/// Closes a file in a thread: a slow file system may have to ask its server.
pub fn retire(fd: OwnedFd) {
    event::pool::elsewhere(move || drop(fd));
}

/// The first `len` bytes of a file, if they are in memory.
pub(crate) fn read(fd: impl AsFd, len: usize) -> Poll<Vec<u8>> {
    let mut content = vec![0; len];
    if len == 0 {
        return Poll::Ready(content);
    }
    match page_cache::read(fd, &mut content, 0) {
        Ok(Cached::Bytes(n)) if n == len => Poll::Ready(content),
        // Part of it is in memory, the file has become shorter, or there is an error: the thread
        // that waits finds out.
        _ => Poll::Pending,
    }
}

/// A number for a file on disk.
pub(crate) fn key(meta: &FileMeta) -> u64 {
    (meta.ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ meta.dev.rotate_left(32)) | 1
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A file of so many `x`, which goes with it.
    pub(crate) struct Temp(pub std::path::PathBuf);

    impl Temp {
        pub fn new(name: &str, len: usize) -> Temp {
            let path = std::env::temp_dir()
                .join(format!("weir-nonblocking-{name}-{}", std::process::id()));
            std::fs::write(&path, vec![b'x'; len]).unwrap();
            Temp(path)
        }

        fn bytes(&self) -> &[u8] {
            use std::os::unix::ffi::OsStrExt;
            self.0.as_os_str().as_bytes()
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_file_without_a_name_is_closed_by_a_thread() {
        let temp = Temp::new("nameless", 10);
        let open = move || os::file::open(&temp.0).unwrap();
        let (named, nameless) = (open(), open());
        let tasks = || {
            let counters = event::pool::default().counters();
            counters.queued as u64 + counters.running as u64 + counters.done
        };
        let mut event_loop = event::Loop::new(event::Options::default()).unwrap();
        let counted = event_loop.block_on(async move {
            close(named);
            let before = tasks();
            // With it goes the name.
            drop(open);
            close(nameless);
            (before, tasks())
        });
        assert_eq!(counted.unwrap(), (0, 1));
    }

    #[test]
    fn local_files_are_answered_once_their_device_is_known() {
        let temp = Temp::new("known", 10);
        let fd = os::file::open(&temp.0).unwrap();
        let meta = os::file::fstat(&fd).unwrap();
        assert!(learn(meta.dev, &fd), "the folder for temporary files is local");
        let missing = [temp.bytes(), b"-not"].concat();
        if Probes::here().open {
            assert!(matches!(stat(temp.bytes()), Poll::Ready(Ok(m)) if m == meta));
            assert!(was_walked(temp.bytes()) && !was_walked(&missing));
            let opened = open(temp.bytes(), false);
            assert!(matches!(opened, Poll::Ready(Ok((_, m))) if m == meta));
            // That a name is not there is in memory once somebody has asked.
            assert!(os::file::stat(as_path(&missing)).is_err());
            assert!(
                matches!(stat(&missing), Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::NotFound)
            );
        }
        assert!(!was_walked(b"/elsewhere"));
    }
}
