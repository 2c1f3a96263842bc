//! The parts of files that are in the page cache, found by `preadv2(2)` with `RWF_NOWAIT`.
//!
//! `cachestat(2)` and `mincore(2)` count cached pages, but only for the owner of a file,
//! `CAP_FOWNER`, and processes that may write the file; an unprivileged worker that serves root's
//! files is none of these. `RWF_NOWAIT` works for every process that may read the file: it yields
//! the bytes up to the first missing page.
//!
//! ```text
//!  read to its last byte ─▶ sure, 250 ms ─▶ sampled: a byte of each 64 KB ─▶ sure again ─▶ …
//!                                            └ a sample is missing, or 2 s without a check ─▶ read
//!  while memory is short: sure for 20 ms, and read, not sampled, after that
//! ```
//!
//! - A part that was read from memory to its last byte is *sure* for 250 ms: it goes by `sendfile`
//!   without a check.
//! - After that, and for 2 s since the last check, one byte of each 64 KB is enough to be sure
//!   again. So a hot file of 1 MB costs four checks of 5 µs a second.
//! - While parts of other files are missing, memory is short: then a part is sure for 20 ms only,
//!   and is read again, not sampled.
//! - Each check reads the clock itself. In a turn in which the worker waited, or did not get its
//!   processor, the turn's cached time is old, and what was sure when the turn began may be
//!   evicted.
//!
//! A read that finds a page missing makes the kernel start readahead there (`page_cache_sync_ra`),
//! so the thread that fetches the part next waits for reads already in flight.
//!
//! On a file system without such reads (`EOPNOTSUPP`: SquashFS, FAT) a thread reads the files,
//! which makes their parts sure as well. tmpfs and ramfs have no disk and are read at once.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;

use base::time::exact_ms;
use event::sim::disk_is_cold;
use mem::FileHandle;
use os::file_parts::{self, Parts};
use os::probe;

use crate::nonblocking::must_wait;

/// A part of a file that was in memory to its last byte when it was last looked at.
#[derive(Clone, Copy)]
struct Seen {
    key: u64,
    at_ms: u64,
    pos: u64,
    end: u64,
}

/// The time for which a part that was seen in memory counts as being there, milliseconds.
const SURE_MS: u64 = 250;

/// The same while other parts are missing: a quick disk fills memory within a moment, and may evict
/// pages of a slow disk.
const SURE_MS_SHORT: u64 = 20;

/// Memory is short for so long after a part was missing, milliseconds.
const SHORT_MS: u64 = 2_000;

/// Bytes read at most to see that a part is there: some 75 us a megabyte.
const READ_MAX: u64 = 2 << 20;

/// The time since the last look for which samples are enough to be sure again, milliseconds: within
/// it no part is evicted and half read back.
const RECENT_MS: u64 = 2_000;

/// The distance of samples, bytes. The kernel reads files ahead in pieces of this size and more,
/// and what was read together is old together.
const SAMPLED: u64 = 64 << 10;

/// Bytes sampled at most at once: 0.3 us a sample, some 5 us a megabyte.
const SAMPLE_MAX: u64 = 16 << 20;

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
    let (key, now) = (file.key(), exact_ms());
    if key == 0 || disk_is_cold() {
        return pos;
    }
    with_row(key, |row| {
        let Some(seen) = row.iter_mut().find(|seen| seen.key == key) else { return pos };
        if pos < seen.pos || pos >= seen.end || seen.at_ms + RECENT_MS <= now {
            return pos;
        }
        let short = is_short(now);
        let (sure, most) = if short { (SURE_MS_SHORT, READ_MAX) } else { (SURE_MS, SAMPLE_MAX) };
        if seen.at_ms + sure <= now {
            if seen.end - seen.pos > most {
                (seen.pos, seen.end) = (pos, seen.end.min(end).min(pos + most));
            }
            let len = seen.end - seen.pos;
            let there = match short {
                true => is_there(file, seen.pos, len),
                false => samples_are_there(file, seen.pos, len),
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
    MISSED_MS.set(exact_ms());
}

/// `pos..end` of a file was read from memory just now, to its last byte.
pub(crate) fn saw(file: &FileHandle, pos: u64, end: u64) {
    let (key, now) = (file.key(), exact_ms());
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

/// The outcome of a read from memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cached {
    /// So many bytes: all of them, or those up to the first that is not there.
    Bytes(usize),
    /// The first byte is not there.
    Missing,
    /// Its file system does not say (`EOPNOTSUPP`): only a thread may read it.
    Unknown,
}

/// Appends what is in memory of a file from `pos` on to `out`, in parts, and makes it sure.
pub(crate) fn append_parts(
    file: &FileHandle,
    out: &mut Vec<u8>,
    parts: Parts,
    pos: u64,
) -> io::Result<Cached> {
    let append = |cached: bool| file_parts::append_parts(file, out, parts, pos, cached);
    let cached = from_cache(file, append)?;
    if let Cached::Bytes(n) = cached {
        saw(file, pos, pos + n as u64);
    }
    Ok(cached)
}

/// Reads what is in memory of an open file from `pos` on.
pub(crate) fn read(fd: impl AsFd, buf: &mut [u8], pos: u64) -> io::Result<Cached> {
    from_cache(&fd, |cached| match cached {
        true => os::file::read_cached_at(&fd, buf, pos),
        false => os::file::read_at(&fd, buf, pos),
    })
}

/// Reads what is in memory: `read` reads from the page cache alone, where that is said.
#[inline]
fn from_cache(
    fd: impl AsFd,
    mut read: impl FnMut(bool) -> io::Result<usize>,
) -> io::Result<Cached> {
    if disk_is_cold() {
        return Ok(Cached::Missing);
    }
    match read(true) {
        Ok(n) => Ok(Cached::Bytes(n)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Cached::Missing),
        Err(e) if must_wait(&e) => read_unasked(fd, || read(false)),
        Err(e) => Err(e),
    }
}

/// Files of tmpfs and its like have no disk to wait for (short of swap), and `RWF_NOWAIT` is
/// unknown there.
#[cold]
fn read_unasked(fd: impl AsFd, read: impl FnOnce() -> io::Result<usize>) -> io::Result<Cached> {
    match probe::is_in_memory(&fd) {
        true => read().map(Cached::Bytes),
        false => Ok(Cached::Unknown),
    }
}

/// Whether all of a part is in memory, for certain: it is read. What several readers bring in at
/// the same time has holes between samples, and to wait for one of these at a slow disk takes
/// seconds.
pub(crate) fn is_there(file: &FileHandle, pos: u64, len: u64) -> bool {
    let (mut at, end) = (pos, pos + len);
    // Small enough for the nearest cache.
    let mut scratch = [0; 16 << 10];
    while at < end {
        let want = (end - at).min(scratch.len() as u64) as usize;
        match read(file, &mut scratch[..want], at) {
            Ok(Cached::Bytes(n @ 1..)) => at += n as u64,
            _ => return false,
        }
    }
    true
}

/// Whether samples of a part are in memory, its first and last byte among them: enough where all of
/// it was there a moment ago.
fn samples_are_there(file: &FileHandle, pos: u64, len: u64) -> bool {
    let there = |at: u64| matches!(read(file, &mut [0], at), Ok(Cached::Bytes(1)));
    // The end first: it is what goes when a file becomes shorter.
    len == 0 || there(pos + len - 1) && (pos..pos + len).step_by(SAMPLED as usize).all(there)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nonblocking::key;
    use crate::nonblocking::tests::Temp;

    fn opened(temp: &Temp) -> FileHandle {
        let fd = os::file::open(&temp.0).unwrap();
        let meta = os::file::fstat(&fd).unwrap();
        FileHandle::new(fd, key(&meta), false, None)
    }

    fn read_len(file: &FileHandle, pos: u64, len: usize) -> usize {
        match append_parts(file, &mut Vec::with_capacity(len), Parts::whole(len), pos).unwrap() {
            Cached::Bytes(n) => n,
            Cached::Missing | Cached::Unknown => 0,
        }
    }

    #[test]
    fn pages_that_are_gone_are_noticed() {
        let temp = Temp::new("pages", 1 << 20);
        let (file, len) = (opened(&temp), 1 << 20);
        assert!(samples_are_there(&file, 0, len) && samples_are_there(&file, len - 1, 1));
        assert!(!samples_are_there(&file, 1, len), "nothing lies behind the end");
        std::fs::File::open(&temp.0).and_then(|f| f.sync_all()).unwrap();
        if !probe::forget(&file, 0, 0) || samples_are_there(&file, len - 1, 1) {
            eprintln!("SKIPPED: this file system keeps its pages in memory");
            return;
        }
        assert!(!samples_are_there(&file, 0, len) && !is_there(&file, 0, len));
        os::file::read_at(&file, &mut vec![0; 1 << 20], 0).unwrap();
        assert!(samples_are_there(&file, 0, len) && is_there(&file, 0, len));
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
        let sure = read_len(&file, 0, 12 << 20) == 12 << 20;
        if !sure
            || !probe::forget(&file, 4 * MIB, 4 * MIB)
            || samples_are_there(&file, 6 * MIB, MIB)
        {
            eprintln!("SKIPPED: no hole can be made in this file system's pages");
            return;
        }
        let ends = [0, len - MIB].map(|pos| samples_are_there(&file, pos, MIB));
        assert_eq!(ends, [true, true], "head and tail are there");
        assert_eq!(sure_until(&file, 0, len), len, "it was there a moment ago");
        base::time::pin(5_000 + SURE_MS, 1_700_000_000_000);
        assert_eq!(sure_until(&file, 0, len), 0, "looked at again");
        // The pages that the samples began to read may be there by now: another hole.
        assert!(probe::forget(&file, 4 * MIB, 4 * MIB));
        let head = read_len(&file, 0, 12 << 20) as u64;
        assert!((MIB..8 * MIB).contains(&head), "what it gives ends before the hole: {head}");
        assert_eq!(sure_until(&file, 0, len), head, "no further than it was read");
        base::time::unpin();
    }

    #[test]
    fn what_was_read_from_memory_is_sure_for_a_moment() {
        base::time::pin(5_000, 1_700_000_000_000);
        let temp = Temp::new("found", 300_000);
        let file = opened(&temp);
        if read_len(&file, 0, 200_000) != 200_000 {
            eprintln!("SKIPPED: this file system cannot be asked for what is in memory");
            return;
        }
        assert_eq!(sure_until(&file, 100, 300_000), 200_000);
        assert_eq!(sure_until(&file, 200_000, 300_000), 200_000, "nothing of the rest is known");
        assert_eq!(read_len(&file, 200_000, 100_000), 100_000);
        assert_eq!(sure_until(&file, 100, 300_000), 300_000, "both parts are one");
        assert_eq!(sure_until(&opened(&temp), 0, 300_000), 300_000, "by any handle of the file");
        std::fs::write(&temp.0, b"").unwrap();
        assert_eq!(sure_until(&file, 0, 250_000), 250_000, "remembered");
        base::time::pin(5_000 + SURE_MS, 1_700_000_000_000);
        assert_eq!(sure_until(&file, 0, 300_000), 0, "looked at again: it is not there");
        std::fs::write(&temp.0, vec![b'x'; 300_000]).unwrap();
        assert_eq!(sure_until(&file, 0, 300_000), 0, "forgotten");
        // While memory is short it is not for long.
        assert_eq!(read_len(&file, 0, 300_000), 300_000);
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
    fn samples_are_enough_while_the_last_look_is_recent() {
        base::time::pin(5_000, 1_700_000_000_000);
        let temp = Temp::new("again", 300_000);
        let file = opened(&temp);
        if read_len(&file, 0, 300_000) != 300_000 {
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
    fn files_without_a_disk_are_read_at_once_and_others_that_do_not_say_are_unknown() {
        let path = std::path::PathBuf::from(format!("/dev/shm/weir-cached-{}", std::process::id()));
        if std::fs::write(&path, vec![b'x'; 100_000]).is_err() {
            eprintln!("SKIPPED: no /dev/shm");
            return;
        }
        let temp = Temp(path);
        let file = opened(&temp);
        assert_eq!(read(&file, &mut [0; 1000], 99_500).unwrap(), Cached::Bytes(500));
        assert!(is_there(&file, 0, 100_000) && !is_there(&file, 1, 100_000));
        let proc = os::file::open(std::path::Path::new("/proc/self/status")).unwrap();
        assert_eq!(read(&proc, &mut [0; 10], 0).unwrap(), Cached::Unknown);
    }
}
