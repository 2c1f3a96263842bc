//! What can be answered from memory alone, and what has to be waited for.
//!
//! ```text
//!  stat: walked just now ─▶ statx                    else: find (cached path) + facts ─▶ answer
//!  load: folder on a local file system ─▶ open (cached path) + facts (+ read of cached pages)
//!  each: not in memory, or on a file system that is not local ─▶ wait
//! ```
//!
//! A path that this worker walked a moment ago is in the kernel's cache of names, whose oldest
//! entries go first; so a file that is asked for again and again costs one `statx(2)`, as it does
//! where nobody cares. File systems of the network, and those made by processes (FUSE), may have
//! to ask their servers whatever is in memory: they are always waited for, the closing of files
//! included.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use event::sim::disk_is_cold;
use mem::FileHandle;
use os::file::FileMeta;
use os::probe::{self, Probes};

/// How long a path that was walked counts as being in memory, milliseconds.
const WALKED_MS: u64 = 1_000;

/// How long a folder counts as lying where it was found, milliseconds. What was mounted over it
/// since makes requests wait for its disk until then.
const FOLDER_MS: u64 = 30_000;

/// Paths and folders remembered, each. A newer one takes the place of one with the same hash.
const PLACES: usize = 1024;

/// What is known of a device stands for so long: the numbers of file systems without a disk are
/// given anew when one is gone.
const DEVICE_LIFE: Duration = Duration::from_secs(60);

/// The devices met, with whether they are local; shared with the threads of the pools, which find
/// out.
static DEVICES: Mutex<Vec<(u64, bool, Instant)>> = Mutex::new(Vec::new());

struct Near {
    hasher: RandomState,
    walked: Times,
    folders: Times,
}

/// When what was last met, by hash.
#[derive(Default)]
struct Times(Box<[(u64, u64)]>);

impl Times {
    fn is_recent(&self, hash: u64, within_ms: u64) -> bool {
        match self.0.get(hash as usize % PLACES) {
            Some(&(h, at)) => h == hash && at + within_ms > base::time::now_ms(),
            None => false,
        }
    }

    fn note(&mut self, hash: u64) {
        if self.0.is_empty() {
            self.0 = vec![(0, 0); PLACES].into();
        }
        self.0[hash as usize % PLACES] = (hash, base::time::now_ms());
    }

    fn forget(&mut self, hash: u64) {
        if let Some(place) = self.0.get_mut(hash as usize % PLACES) {
            *place = (0, 0);
        }
    }
}

thread_local! {
    static NEAR: RefCell<Near> = RefCell::new(Near {
        hasher: RandomState::new(),
        walked: Times::default(),
        folders: Times::default(),
    });
}

impl Near {
    fn hash(&self, path: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(path);
        hasher.finish()
    }
}

fn with<R>(f: impl FnOnce(&mut Near) -> R) -> R {
    NEAR.with(|near| f(&mut near.borrow_mut()))
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
pub(super) fn learn(dev: u64, fd: impl AsFd) -> bool {
    device(dev).unwrap_or_else(|| {
        let local = probe::is_local(fd);
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|d| d.0 != dev && d.2.elapsed() < DEVICE_LIFE);
        devices.push((dev, local, Instant::now()));
        local
    })
}

/// As [`learn`], for what a path leads to.
pub(super) fn learn_by_path(dev: u64, path: &Path) {
    if device(dev).is_none()
        && let Ok(fd) = probe::find_waiting(path)
    {
        learn(dev, fd);
    }
}

/// Whether a device is known to be local.
pub(super) fn device_is_local(dev: u64) -> bool {
    device(dev) == Some(true)
}

/// Whether `path` was walked a moment ago, on a local file system.
pub(super) fn was_walked(path: &[u8]) -> bool {
    with(|near| {
        let hash = near.hash(path);
        let recent = near.walked.is_recent(hash, WALKED_MS);
        if recent {
            // It is about to be walked again.
            near.walked.note(hash);
        }
        recent
    })
}

/// `path` was walked, and leads to a local file system.
pub(super) fn walked(path: &[u8]) {
    with(|near| {
        let hash = near.hash(path);
        near.walked.note(hash);
        let folder = near.hash(folder_of(path));
        near.folders.note(folder);
    });
}

fn in_local_folder(path: &[u8]) -> bool {
    with(|near| {
        let folder = near.hash(folder_of(path));
        near.folders.is_recent(folder, FOLDER_MS)
    })
}

fn is_elsewhere(path: &[u8]) {
    with(|near| {
        let (hash, folder) = (near.hash(path), near.hash(folder_of(path)));
        near.walked.forget(hash);
        near.folders.forget(folder);
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
    const EINVAL: i32 = 22;
    const ENOSYS: i32 = 38;
    const EOPNOTSUPP: i32 = 95;
    e.kind() == io::ErrorKind::WouldBlock
        || matches!(e.raw_os_error(), Some(EINVAL | ENOSYS | EOPNOTSUPP))
}

/// The facts about what `path` leads to, if they are in memory.
pub(super) fn stat(path: &[u8]) -> Poll<io::Result<FileMeta>> {
    if disk_is_cold() {
        return Poll::Pending;
    }
    let at = super::door::path_of(path);
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

/// What `path` leads to, as a path without links, if that is in memory.
pub(super) fn real_path(path: &[u8]) -> Poll<io::Result<PathBuf>> {
    if disk_is_cold() || !Probes::here().open {
        return Poll::Pending;
    }
    answer(probe::find(super::door::path_of(path)).and_then(probe::path_of))
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

/// Opens a file for reading, with its facts, if that can be done from memory; `own`, see
/// [`os::file::open_own`].
pub(super) fn open(path: &[u8], own: bool) -> Poll<io::Result<(OwnedFd, FileMeta)>> {
    if disk_is_cold() {
        return Poll::Pending;
    }
    let at = super::door::path_of(path);
    if !Probes::here().open {
        // What was walked just now opens from memory, whatever the kernel can tell.
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
        is_elsewhere(path);
        super::close(fd);
        return Poll::Pending;
    }
    walked(path);
    Poll::Ready(Ok((fd, meta)))
}

/// Opens a file for reading; may wait for a disk.
pub(super) fn open_any(path: &Path, own: bool) -> io::Result<OwnedFd> {
    if own { os::file::open_own(path) } else { os::file::open(path) }
}

fn with_facts(fd: OwnedFd) -> io::Result<(OwnedFd, FileMeta)> {
    let meta = probe::facts(&fd)?;
    Ok((fd, meta))
}

/// Closes a file of a local file system. One whose last name has gone meanwhile (deployments
/// replace files, caches drop them) is deleted with that: a disk may have to be waited for, and
/// hundreds of megabytes of memory take a while to be given back.
pub(super) fn close(fd: OwnedFd) {
    match probe::has_name(&fd) {
        true => drop(fd),
        false => super::close(fd),
    }
}

/// The first `len` bytes of a file, if they are in memory.
pub(super) fn read(fd: impl AsFd, len: usize) -> Poll<Vec<u8>> {
    let mut content = vec![0; len];
    if len == 0 {
        return Poll::Ready(content);
    }
    match os::file::read_cached_at(fd, &mut content, 0) {
        Ok(n) if n == len => Poll::Ready(content),
        // Part of it is in memory, the file has become shorter, or there is an error: who waits
        // will see.
        _ => Poll::Pending,
    }
}

/// A number for a file on disk.
pub(super) fn key(meta: &FileMeta) -> u64 {
    (meta.ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ meta.dev.rotate_left(32)) | 1
}

/// A part of a file that was in memory to its last byte when it was last looked at.
#[derive(Clone, Copy)]
struct Seen {
    key: u64,
    at_ms: u64,
    pos: u64,
    end: u64,
}

/// How long a part that was seen in memory counts as being there, milliseconds.
const SURE_MS: u64 = 250;

/// The same while other parts are missing: a quick disk fills memory within a moment, and what goes
/// for that may be a slow disk's.
const SURE_MS_SHORT: u64 = 20;

/// Memory is short for so long after a part was missing, milliseconds.
const SHORT_MS: u64 = 2_000;

/// The most that is read to see that it is there: some 75 us a megabyte.
const READ_MAX: u64 = 2 << 20;

/// How long after that a look at its ends and a count of its pages is enough to be sure again,
/// milliseconds since it was last looked at. Within this time nothing goes and is half back.
const RECENT_MS: u64 = 2_000;

/// The most that is looked at again at once: the kernel needs some 8 us a megabyte.
const LOOK_MAX: u64 = 16 << 20;

/// Places for parts, by file: rows of a few, of which the oldest goes.
const ROWS: usize = 256;
const IN_ROW: usize = 4;

thread_local! {
    /// When a part was missing last.
    static MISSED_MS: Cell<u64> = const { Cell::new(0) };
    static PARTS: RefCell<Box<[[Seen; IN_ROW]]>> = RefCell::default();
}

fn with_row<R>(key: u64, f: impl FnOnce(&mut [Seen; IN_ROW]) -> R) -> R {
    PARTS.with_borrow_mut(|parts| {
        if parts.is_empty() {
            *parts = vec![[Seen { key: 0, at_ms: 0, pos: 0, end: 0 }; IN_ROW]; ROWS].into();
        }
        f(&mut parts[(key >> 32) as usize % ROWS])
    })
}

/// The end of what surely is in memory of a file from `pos` on, at most `end`; `pos` if nothing is
/// known. That part can be sent without waiting: a file that is sent again and again is looked at
/// some times a second, and not for each response.
pub(crate) fn sure_until(file: &FileHandle, pos: u64, end: u64) -> u64 {
    let (key, now) = (file.key(), base::time::now_ms());
    if key == 0 || disk_is_cold() {
        return pos;
    }
    with_row(key, |row| {
        let Some(seen) = row.iter_mut().find(|seen| seen.key == key) else { return pos };
        if pos < seen.pos || pos >= seen.end || seen.at_ms + RECENT_MS <= now {
            return pos;
        }
        let short = is_short(now);
        let (sure, most) = if short { (SURE_MS_SHORT, READ_MAX) } else { (SURE_MS, LOOK_MAX) };
        if seen.at_ms + sure <= now {
            if seen.end - seen.pos > most {
                (seen.pos, seen.end) = (pos, seen.end.min(end).min(pos + most));
            }
            let len = seen.end - seen.pos;
            let there = match short {
                true => is_there(file, seen.pos, len),
                false => look(file, seen.pos, len),
            };
            if !there {
                seen.key = 0;
                return pos;
            }
            seen.at_ms = now;
        }
        seen.end.min(end)
    })
}

fn is_short(now: u64) -> bool {
    MISSED_MS.get() + SHORT_MS > now
}

/// A part of a file was not in memory.
pub(crate) fn missed() {
    MISSED_MS.set(base::time::now_ms());
}

/// Whether all of a part is in memory, for certain: it is read. A count of pages includes those
/// that others have begun to read, and to wait for these at a slow disk takes seconds.
pub(crate) fn is_there(file: &FileHandle, pos: u64, len: u64) -> bool {
    if disk_is_cold() || Probes::here().cachestat && !all_counted(file, pos, len) {
        return false;
    }
    let (mut at, end) = (pos, pos + len);
    let mut scratch = [0; 16 << 10];
    while at < end {
        let want = (end - at).min(scratch.len() as u64) as usize;
        match os::file::read_cached_at(file, &mut scratch[..want], at) {
            Ok(0) => return false,
            Ok(n) => at += n as u64,
            // Where reads cannot be asked first (tmpfs), a look is all there is.
            Err(e) if e.kind() != io::ErrorKind::WouldBlock && must_wait(&e) => {
                return look(file, pos, len);
            }
            Err(_) => return false,
        }
    }
    true
}

/// `pos..end` of a file was read from memory just now.
fn saw(file: &FileHandle, pos: u64, end: u64) {
    let (key, now) = (file.key(), base::time::now_ms());
    if key == 0 || end <= pos {
        return;
    }
    with_row(key, |row| {
        let known = row.iter().position(|seen| seen.key == key);
        let oldest = || row.iter().enumerate().min_by_key(|(_, seen)| seen.at_ms).map(|(i, _)| i);
        let Some(place) = known.or_else(oldest) else { return };
        let seen = &mut row[place];
        let joins = known.is_some() && seen.at_ms + SURE_MS > now;
        *seen = match joins && pos <= seen.end && seen.pos <= end {
            // As old as the older part of it.
            true => Seen { pos: pos.min(seen.pos), end: end.max(seen.end), ..*seen },
            false => Seen { key, at_ms: now, pos, end },
        };
    });
}

/// What reading from memory came to.
pub(crate) enum Cached {
    /// So many bytes: all of them, or those up to the first that is not there.
    Bytes(usize),
    /// The first byte is not there.
    Missing,
    /// This file, or the kernel, cannot be asked so. Whether pages can be counted instead.
    Pages(bool),
}

/// Whether a page of `pos..pos + len` is known to be missing. A read that may not wait would begin
/// to read it from the disk, and to begin that may wait, too.
pub(crate) fn is_missing(file: &FileHandle, pos: u64, len: u64) -> bool {
    disk_is_cold() || Probes::here().cachestat && !all_counted(file, pos, len)
}

/// Reads what is in memory of a file from `pos` on; see [`is_missing`].
pub(crate) fn read_at(file: &FileHandle, buf: &mut [u8], pos: u64) -> io::Result<Cached> {
    match os::file::read_cached_at(file, buf, pos) {
        Ok(n) => {
            saw(file, pos, pos + n as u64);
            Ok(Cached::Bytes(n))
        }
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Cached::Missing),
        Err(e) if must_wait(&e) => Ok(Cached::Pages(Probes::here().cachestat)),
        Err(e) => Err(e),
    }
}

/// Whether all pages of `pos..pos + len` are in memory, those included that are being read.
fn all_counted(fd: impl AsFd, pos: u64, len: u64) -> bool {
    let page = probe::page_size();
    let pages = (pos + len).div_ceil(page) - pos / page;
    probe::pages_cached(fd, pos, len).is_ok_and(|n| n >= pages)
}

/// Asks the kernel whether a part of a file is in memory that was there, or was read, a moment ago.
/// `cachestat(2)` counts pages that are being read with those that are there; one-byte reads at
/// both ends tell those, where the part is read in one piece. Only reading it all tells for sure:
/// what several readers want can have holes in the middle.
pub(crate) fn look(fd: impl AsFd, pos: u64, len: u64) -> bool {
    if len == 0 {
        return true;
    }
    if disk_is_cold() {
        return false;
    }
    let probes = Probes::here();
    if probes.cachestat && !all_counted(&fd, pos, len) {
        return false;
    }
    let there = |at: u64| match os::file::read_cached_at(&fd, &mut [0], at) {
        Ok(n) => n == 1,
        // The count stands alone where reads cannot be asked first (tmpfs).
        Err(e) => probes.cachestat && e.kind() != io::ErrorKind::WouldBlock && must_wait(&e),
    };
    there(pos + len - 1) && (len <= probe::page_size() || there(pos))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Temp(std::path::PathBuf);

    impl Temp {
        fn new(name: &str, len: usize) -> Temp {
            let path =
                std::env::temp_dir().join(format!("weir-near-{name}-{}", std::process::id()));
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

    fn opened(temp: &Temp) -> FileHandle {
        let fd = os::file::open(&temp.0).unwrap();
        let meta = os::file::fstat(&fd).unwrap();
        FileHandle::new(fd, key(&meta), false, None)
    }

    #[test]
    fn pages_that_are_gone_are_noticed() {
        let temp = Temp::new("pages", 1 << 20);
        let (file, len) = (opened(&temp), 1 << 20);
        assert!(look(&file, 0, len) && look(&file, 4095, 2) && look(&file, len - 1, 1));
        assert!(!look(&file, 1, len), "nothing lies behind the end");
        std::fs::File::open(&temp.0).and_then(|f| f.sync_all()).unwrap();
        if !probe::forget(&file, 0, 0) || look(&file, len - 1, 1) {
            eprintln!("SKIPPED: this file system keeps its pages in memory");
            return;
        }
        assert!(!look(&file, 0, len) && !look(&file, 0, 1) && !is_there(&file, 0, len));
        os::file::read_at(&file, &mut vec![0; 1 << 20], 0).unwrap();
        assert!(look(&file, 0, len) && is_there(&file, 0, len));
        assert!(!is_there(&file, 1, len), "nothing lies behind the end");
    }

    #[test]
    fn a_hole_in_the_middle_is_noticed() {
        base::time::pin(5_000, 1_700_000_000_000);
        // Folios of the page cache go as a whole: the hole is wider than the largest.
        const MIB: u64 = 1 << 20;
        let temp = Temp::new("hole", 12 << 20);
        let (file, len) = (opened(&temp), 12 * MIB);
        std::fs::File::open(&temp.0).and_then(|f| f.sync_all()).unwrap();
        let sure = read(&file, 0, 12 << 20) == 12 << 20;
        let counted = Probes::here().cachestat;
        if !counted || !sure || !probe::forget(&file, 4 * MIB, 4 * MIB) || look(&file, 0, len) {
            eprintln!("SKIPPED: no hole can be made, or seen, in this file system's pages");
            return;
        }
        let ends = [0, len - MIB].map(|pos| look(&file, pos, MIB));
        assert_eq!(ends, [true, true], "head and tail are there");
        assert!(is_missing(&file, 0, len) && is_missing(&file, 3 * MIB, 4 * MIB));
        assert!(!is_missing(&file, 0, MIB));
        assert_eq!(sure_until(&file, 0, len), len, "it was there a moment ago");
        base::time::pin(5_000 + SURE_MS, 1_700_000_000_000);
        assert_eq!(sure_until(&file, 0, len), 0, "looked at again");
        // Reading begins to fill the hole; what it gives ends before it.
        let head = read(&file, 0, 12 << 20) as u64;
        assert!((MIB..8 * MIB).contains(&head), "{head}");
        assert_eq!(sure_until(&file, 0, len), head, "no further than it was read");
        base::time::unpin();
    }

    fn read(file: &FileHandle, pos: u64, len: usize) -> usize {
        match read_at(file, &mut vec![0; len], pos).unwrap() {
            Cached::Bytes(n) => n,
            Cached::Missing | Cached::Pages(_) => 0,
        }
    }

    #[test]
    fn what_was_read_from_memory_is_sure_for_a_moment() {
        base::time::pin(5_000, 1_700_000_000_000);
        let temp = Temp::new("found", 300_000);
        let file = opened(&temp);
        if read(&file, 0, 200_000) != 200_000 {
            eprintln!("SKIPPED: this file system cannot be asked for what is in memory");
            return;
        }
        assert_eq!(sure_until(&file, 100, 300_000), 200_000);
        assert_eq!(sure_until(&file, 200_000, 300_000), 200_000, "nothing of the rest is known");
        assert_eq!(read(&file, 200_000, 100_000), 100_000);
        assert_eq!(sure_until(&file, 100, 300_000), 300_000, "both parts are one");
        assert_eq!(sure_until(&opened(&temp), 0, 300_000), 300_000, "by any handle of the file");
        std::fs::write(&temp.0, b"").unwrap();
        assert_eq!(sure_until(&file, 0, 250_000), 250_000, "remembered");
        base::time::pin(5_000 + SURE_MS, 1_700_000_000_000);
        assert_eq!(sure_until(&file, 0, 300_000), 0, "looked at again: it is not there");
        std::fs::write(&temp.0, vec![b'x'; 300_000]).unwrap();
        assert_eq!(sure_until(&file, 0, 300_000), 0, "forgotten");
        // While memory is short it is not for long.
        assert_eq!(read(&file, 0, 300_000), 300_000);
        missed();
        std::fs::write(&temp.0, b"").unwrap();
        base::time::pin(5_000 + SURE_MS + SURE_MS_SHORT - 1, 1_700_000_000_000);
        assert_eq!(sure_until(&file, 0, 300_000), 300_000, "remembered");
        base::time::pin(5_000 + SURE_MS + SURE_MS_SHORT, 1_700_000_000_000);
        assert_eq!(sure_until(&file, 0, 300_000), 0, "looked at again: it is not there");
        MISSED_MS.set(0);
        base::time::unpin();
    }

    #[test]
    fn a_look_is_enough_while_the_last_one_is_recent() {
        base::time::pin(5_000, 1_700_000_000_000);
        let temp = Temp::new("again", 300_000);
        let file = opened(&temp);
        if read(&file, 0, 300_000) != 300_000 {
            eprintln!("SKIPPED: this file system cannot be asked for what is in memory");
            return;
        }
        for at in [RECENT_MS - 1, 2 * RECENT_MS - 2] {
            base::time::pin(5_000 + at, 1_700_000_000_000);
            assert_eq!(sure_until(&file, 0, 300_000), 300_000);
        }
        base::time::pin(5_000 + 3 * RECENT_MS, 1_700_000_000_000);
        assert_eq!(sure_until(&file, 0, 300_000), 0, "too long ago");
        base::time::unpin();
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
            assert!(os::file::stat(super::super::door::path_of(&missing)).is_err());
            assert!(
                matches!(stat(&missing), Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::NotFound)
            );
        }
        assert!(!was_walked(b"/elsewhere"));
    }
}
