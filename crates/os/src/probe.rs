//! Questions to the kernel about what is in memory, and which of them this kernel answers.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};

use crate::file::{self, FileMeta};

/// The questions that this kernel answers (and a sandbox around us lets through).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probes {
    /// `preadv2(RWF_NOWAIT)`: reads what is in memory or says that the disk is needed (Linux 4.14).
    pub read: bool,
    /// `openat2(RESOLVE_CACHED)`: opens if the path is in memory (Linux 5.12).
    pub open: bool,
}

impl Probes {
    /// The answers of the running kernel, probed once.
    pub fn here() -> Probes {
        static HERE: OnceLock<Probes> = OnceLock::new();
        *HERE.get_or_init(|| {
            // All other answers come from the call itself.
            let answers = |result: io::Result<()>| match result {
                Ok(()) => true,
                Err(e) => !matches!(
                    e.raw_os_error(),
                    Some(libc::ENOSYS | libc::EINVAL | libc::EPERM | libc::EACCES)
                ),
            };
            let exe = file::open(Path::new("/proc/self/exe"));
            let on_exe = |ask: &dyn Fn(&OwnedFd) -> io::Result<()>| {
                exe.as_ref().is_ok_and(|exe| answers(ask(exe)))
            };
            Probes {
                read: on_exe(&|exe| file::read_cached_at(exe, &mut [0], 0).map(drop)),
                open: answers(file::open_cached(Path::new("/")).map(drop)),
            }
        })
    }

    /// The line of the log about them at the start.
    pub fn describe(self) -> String {
        let all = [(self.read, "preadv2(RWF_NOWAIT)"), (self.open, "openat2(RESOLVE_CACHED)")];
        let list = |there: bool| {
            let names: Vec<_> = all.iter().filter(|p| p.0 == there).map(|p| p.1).collect();
            names.join(", ")
        };
        match (self.read || self.open, list(false)) {
            (true, missing) if missing.is_empty() => list(true),
            (true, missing) => format!("{}; this kernel lacks {missing}", list(true)),
            (false, _) => "nothing: this kernel cannot tell what is in memory".to_owned(),
        }
    }
}

/// The number of pages of `pos..pos + len` that are in memory or being read: `cachestat(2)`. For
/// tests and measurements: it fails with `EPERM` for callers that neither own the file nor may
/// write it, as workers, and with `ENOSYS` before Linux 6.5.
pub fn pages_cached(fd: impl AsFd, pos: u64, len: u64) -> io::Result<u64> {
    /// The same on every architecture but alpha.
    const SYS_CACHESTAT: libc::c_long = 451;
    #[repr(C)]
    struct Range {
        off: u64,
        len: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Counts {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let range = Range { off: pos, len };
    let mut counts = Counts::default();
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: both structures have the kernel's layout and outlive the call, which reads one and
    // writes the other.
    let done = unsafe { libc::syscall(SYS_CACHESTAT, fd, &raw const range, &raw mut counts, 0) };
    match done {
        0 => Ok(counts.cached),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Looks up `path` in the kernel's caches, for [`facts`]: `WouldBlock` when the disk has to be
/// read. The descriptor cannot be read from.
pub fn find(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED)?)
}

/// The path of an open file, without links. Reads no disk.
pub fn path_of(fd: impl AsFd) -> io::Result<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// As [`find`], but waits for the disk where necessary.
pub fn find_waiting(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// The metadata of an open file as it is in memory: a remote file system is not asked whether it
/// still holds.
pub fn facts(fd: impl AsFd) -> io::Result<FileMeta> {
    file::statx(fd, Path::new(""), AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC)
}

/// Whether an open file of this machine's own file systems has a name left: without one, closing it
/// frees its blocks. Reads no disk.
pub fn has_name(fd: impl AsFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|st| st.st_nlink > 0)
}

/// Begins to read a range into memory; may wait. A later read shows the result.
pub fn read_ahead(fd: impl AsFd, pos: u64, len: u64) -> io::Result<()> {
    let len = std::num::NonZeroU64::new(len);
    Ok(rustix::fs::fadvise(fd, pos, len, rustix::fs::Advice::WillNeed)?)
}

/// Asks the kernel to drop clean pages of a file from its cache; returns whether the call
/// succeeded. For tests and measurements. A `len` of 0 is everything behind `pos`.
pub fn forget(fd: impl AsFd, pos: u64, len: u64) -> bool {
    let len = std::num::NonZeroU64::new(len);
    rustix::fs::fadvise(fd, pos, len, rustix::fs::Advice::DontNeed).is_ok()
}

/// Whether an open file lies on tmpfs or ramfs, which have no disk. Does not wait.
pub fn is_in_memory(fd: impl AsFd) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    rustix::fs::fstatfs(fd).is_ok_and(|fs| [TMPFS, RAMFS].contains(&(fs.f_type as u32)))
}

/// Whether an open file lies on a file system of this machine, which answers from memory for cached
/// pages. Others (of the network, or made by a process) may ask their server even then. May wait.
pub fn is_local(fd: impl AsFd) -> bool {
    /// `f_type` of ext2-4, XFS, Btrfs, F2FS, tmpfs, ramfs, overlay, ZFS, bcachefs, EROFS, SquashFS,
    /// ISO 9660, FAT, exFAT, NTFS, JFS, ReiserFS, NILFS, proc, sysfs, devices (which are tmpfs).
    const LOCAL: [u32; 20] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0xf2f5_2010,
        0x0102_1994,
        0x8584_58f6,
        0x794c_7630,
        0x2fc1_2fc1,
        0xca45_1a4e,
        0xe0f5_e1e2,
        0x7371_7368,
        0x9660,
        0x4d44,
        0x2011_bab0,
        0x7366_746e,
        0x3153_464a,
        0x5265_4973,
        0x3434,
        0x9fa0,
        0x6265_6572,
    ];
    rustix::fs::fstatfs(fd).is_ok_and(|fs| LOCAL.contains(&(fs.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_in_memory() {
        let path = std::env::temp_dir().join(format!("weir-os-probe-{}", std::process::id()));
        std::fs::write(&path, vec![b'x'; 300_000]).unwrap();
        let fd = file::open(&path).unwrap();
        let probes = Probes::here();
        if probes.open {
            let found = find(&path).unwrap();
            assert_eq!(facts(&found).unwrap(), file::stat(&path).unwrap());
            // The kernel remembers that a name is not there once it was asked.
            assert!(file::stat(Path::new("/no/such/file")).is_err());
            let missing = find(Path::new("/no/such/file")).unwrap_err();
            assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
        }
        read_ahead(&fd, 0, 300_000).unwrap();
        assert!(is_local(&fd));
        let elsewhere = file::open(Path::new("/proc/self/status")).unwrap();
        assert!(!is_in_memory(elsewhere));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_missing_is_said() {
        let probes = Probes { read: true, open: false };
        let text = "preadv2(RWF_NOWAIT); this kernel lacks openat2(RESOLVE_CACHED)";
        assert_eq!(probes.describe(), text);
        let none = Probes { read: false, open: false };
        assert!(none.describe().starts_with("nothing"));
    }
}
