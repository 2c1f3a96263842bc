//! Files: metadata, opening without waiting, reading from the page cache, locks.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

/// Pieces that one call writes.
const WRITTEN_AT_ONCE: usize = 64;

/// The type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link (only [`lstat`] and [`lstat_at`] see one).
    Symlink,
    /// Device, pipe, socket.
    Other,
}

/// The metadata that serving a file needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileMeta {
    /// Its type.
    pub kind: FileKind,
    /// Length in bytes.
    pub size: u64,
    /// Blocks of 512 bytes it takes on disk.
    pub blocks: u64,
    /// Last change of the content: seconds since 1970.
    pub mtime_sec: i64,
    /// The nanoseconds of that second.
    pub mtime_nsec: u32,
    /// Last change of content, permissions or name: seconds since 1970. Unlike the other time,
    /// programs cannot set it.
    pub ctime_sec: i64,
    /// The nanoseconds of that second.
    pub ctime_nsec: u32,
    /// Inode number.
    pub ino: u64,
    /// Device of the file system.
    pub dev: u64,
    /// Permission bits with the file type, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Block size that suits reading it, bytes.
    pub blksize: u32,
}

impl FileMeta {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Dir
    }

    /// Whether it is a symbolic link, as `lstat(2)` tells.
    pub fn is_link(&self) -> bool {
        self.kind == FileKind::Symlink
    }

    /// Whether `other` is the same file with the same content, as far as the file system knows.
    pub fn same_version(&self, other: &FileMeta) -> bool {
        self.ino == other.ino
            && self.dev == other.dev
            && self.size == other.size
            && self.mtime_sec == other.mtime_sec
            && self.mtime_nsec == other.mtime_nsec
            && self.ctime_sec == other.ctime_sec
            && self.ctime_nsec == other.ctime_nsec
    }
}

pub(crate) fn statx(dir: impl AsFd, path: &Path, flags: AtFlags) -> io::Result<FileMeta> {
    let st = rustix::fs::statx(dir, path, flags, StatxFlags::BASIC_STATS)?;
    let mode = u32::from(st.stx_mode);
    Ok(FileMeta {
        kind: match mode & libc::S_IFMT {
            libc::S_IFREG => FileKind::File,
            libc::S_IFDIR => FileKind::Dir,
            libc::S_IFLNK => FileKind::Symlink,
            _ => FileKind::Other,
        },
        size: st.stx_size,
        blocks: st.stx_blocks,
        mtime_sec: st.stx_mtime.tv_sec,
        mtime_nsec: st.stx_mtime.tv_nsec,
        ctime_sec: st.stx_ctime.tv_sec,
        ctime_nsec: st.stx_ctime.tv_nsec,
        ino: st.stx_ino,
        dev: libc::makedev(st.stx_dev_major, st.stx_dev_minor),
        mode,
        uid: st.stx_uid,
        gid: st.stx_gid,
        blksize: st.stx_blksize,
    })
}

/// The metadata of the file that `path` leads to.
pub fn stat(path: &Path) -> io::Result<FileMeta> {
    statx(CWD, path, AtFlags::empty())
}

/// The metadata of `path` itself, a symbolic link included.
pub fn lstat(path: &Path) -> io::Result<FileMeta> {
    statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
}

/// As [`lstat`], for a name within an open directory.
pub fn lstat_at(dir: impl AsFd, name: &Path) -> io::Result<FileMeta> {
    statx(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// The metadata of an open file.
pub fn fstat(fd: impl AsFd) -> io::Result<FileMeta> {
    statx(fd, Path::new(""), AtFlags::EMPTY_PATH)
}

/// Makes a file in memory that has no name, with this content.
///
/// # Errors
/// The system's.
pub fn in_memory(content: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("weir", rustix::fs::MemfdFlags::CLOEXEC)?;
    write_all_at(&file, &[content], 0)?;
    Ok(file)
}

/// Opens for reading. A pipe or device does not make the caller wait (`O_NONBLOCK`).
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// As [`open`], from the kernel's caches alone: `WouldBlock` when the disk has to be read (Linux
/// 5.12; `ENOSYS` or `EINVAL` before).
pub fn open_cached(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED)?)
}

/// As [`open`], for a file of the server's own: reading it does not change its access time and so
/// writes nothing to the disk (`O_NOATIME`, which another user's files refuse).
pub fn open_own(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::open(path, flags, Mode::empty());
    Ok(open(flags | OFlags::NOATIME).or_else(|e| another_way(e, || open(flags)))?)
}

/// As [`open_own`], from the kernel's caches alone: see [`open_cached`].
pub fn open_own_cached(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED);
    Ok(open(flags | OFlags::NOATIME).or_else(|e| another_way(e, || open(flags)))?)
}

/// Only a file's owner may leave its access time alone.
fn another_way(
    e: rustix::io::Errno,
    open: impl FnOnce() -> rustix::io::Result<OwnedFd>,
) -> rustix::io::Result<OwnedFd> {
    if e == rustix::io::Errno::PERM { open() } else { Err(e) }
}

/// The way [`open_at`] opens a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenAt {
    /// A directory to walk through, links followed.
    Dir,
    /// A directory to walk through; a symbolic link fails with `ELOOP` or `ENOTDIR`.
    DirNoFollow,
    /// A file to read, links followed.
    File,
    /// A file to read; a symbolic link fails with `ELOOP`.
    FileNoFollow,
}

/// Opens a directory to walk through with [`open_at`]; permission to search it is enough.
pub fn open_search(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens `name` within an open directory, step by step as `disable_symlinks` needs it.
pub fn open_at(dir: impl AsFd, name: &Path, how: OpenAt) -> io::Result<OwnedFd> {
    let flags = match how {
        OpenAt::Dir => OFlags::PATH | OFlags::DIRECTORY,
        OpenAt::DirNoFollow => OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW,
        OpenAt::File => OFlags::RDONLY | OFlags::NONBLOCK,
        OpenAt::FileNoFollow => OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW,
    };
    Ok(rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// Makes a file that must not exist yet, open for reading and writing.
pub fn create_new(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?)
}

/// Opens an existing file for reading and writing.
pub fn open_to_change(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The free room on a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Size of a block, bytes.
    pub block: u64,
    /// Bytes that users other than root may still take.
    pub available: u64,
}

/// The free room on the file system of `path`. May wait for a disk.
pub fn space(path: &Path) -> io::Result<Space> {
    let fs = rustix::fs::statvfs(path)?;
    let fragment = if fs.f_frsize == 0 { fs.f_bsize } else { fs.f_frsize };
    Ok(Space { block: fs.f_bsize, available: fs.f_bavail.saturating_mul(fragment) })
}

/// Reads at `pos`; 0 is the end of the file.
pub fn read_at(fd: impl AsFd, buf: &mut [u8], pos: u64) -> io::Result<usize> {
    Ok(rustix::io::pread(fd, buf, pos)?)
}

/// As [`read_at`], from the page cache alone: `WouldBlock` when the disk has to be read,
/// `Unsupported` where the file system does not support the question.
pub fn read_cached_at(fd: impl AsFd, buf: &mut [u8], pos: u64) -> io::Result<usize> {
    let mut one = [io::IoSliceMut::new(buf)];
    Ok(rustix::io::preadv2(fd, &mut one, pos, rustix::io::ReadWriteFlags::NOWAIT)?)
}

/// Allocates the blocks of the first `len` bytes, so that later writes do not fail for want of
/// room; the length of the file stays. `Unsupported` where the file system cannot.
pub fn reserve(fd: impl AsFd, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::KEEP_SIZE, 0, len)?)
}

/// Writes all of several pieces, one behind the other, at `pos`. As few calls as can be: the page
/// cache takes a long write as large folios, for half of the cost.
///
/// # Errors
/// Those of pwritev(2); `WriteZero` where nothing more is taken. A part may be written then.
pub fn write_all_at<P: AsRef<[u8]>>(fd: impl AsFd, pieces: &[P], mut pos: u64) -> io::Result<()> {
    let mut slices: [IoSlice<'_>; WRITTEN_AT_ONCE] = [IoSlice::new(&[]); WRITTEN_AT_ONCE];
    for some in pieces.chunks(WRITTEN_AT_ONCE) {
        for (slice, piece) in slices.iter_mut().zip(some) {
            *slice = IoSlice::new(piece.as_ref());
        }
        let mut rest = &mut slices[..some.len()];
        // Empty ones are passed over.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match rustix::io::pwritev(&fd, rest, pos) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    pos += n as u64;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    Ok(())
}

/// Writes at the position of the descriptor, or at the end (`O_APPEND`).
pub fn write(fd: impl AsFd, buf: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::write(fd, buf)?)
}

/// Sets owner and group; `None` leaves one as it is.
pub fn chown(path: &Path, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    std::os::unix::fs::chown(path, uid, gid)
}

/// Sets owner and group of an open file; `None` leaves one as it is.
pub fn chown_fd(fd: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    std::os::unix::fs::fchown(fd, uid, gid)
}

/// Sets the permission bits of an open file.
pub fn chmod_fd(fd: impl AsFd, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))?)
}

/// Sets the time of the last change of an open file or folder, seconds since 1970; that of the last
/// access becomes the same.
pub fn set_mtime(fd: impl AsFd, secs: i64) -> io::Result<()> {
    let time = rustix::fs::Timespec { tv_sec: secs, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    Ok(rustix::fs::futimens(fd, &times)?)
}

/// Takes the exclusive `flock(2)` of an open file without waiting: `WouldBlock` when it is taken.
pub fn try_lock(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive)?)
}

/// Takes the exclusive `flock(2)` of an open file, and waits until it is free.
pub fn lock(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::flock(fd, FlockOperation::LockExclusive)?)
}

/// Releases the lock of [`try_lock`].
pub fn unlock(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::flock(fd, FlockOperation::Unlock)?)
}

/// Waits until the file's data is on its disk, length included.
pub fn sync_data(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(fd)?)
}

/// Asks the kernel to read ahead in a file that is read from front to end (`read_ahead`).
pub fn advise_sequential(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fadvise(fd, 0, None, rustix::fs::Advice::Sequential)?)
}

/// Whether reads of an open file bypass the page cache (`O_DIRECT`).
pub fn is_direct(fd: impl AsFd) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::DIRECT))
}

/// Turns `O_DIRECT` on or off.
pub fn set_direct(fd: impl AsFd, on: bool) -> io::Result<()> {
    let old = rustix::fs::fcntl_getfl(&fd)?;
    let new = if on { old | OFlags::DIRECT } else { old - OFlags::DIRECT };
    Ok(rustix::fs::fcntl_setfl(fd, new)?)
}

/// Writes wait until the data is on the disk (`O_SYNC`), for
/// [`custom_flags`](std::os::unix::fs::OpenOptionsExt::custom_flags).
pub const SYNC: i32 = libc::O_SYNC;

/// Checks the effective user's permission for `how` (bits 4 read, 2 write, 1 search) on `path`.
pub fn access(path: &Path, how: u8) -> io::Result<()> {
    let mut wanted = rustix::fs::Access::EXISTS;
    wanted.set(rustix::fs::Access::READ_OK, how & 4 != 0);
    wanted.set(rustix::fs::Access::WRITE_OK, how & 2 != 0);
    wanted.set(rustix::fs::Access::EXEC_OK, how & 1 != 0);
    Ok(rustix::fs::accessat(CWD, path, wanted, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_written_one_behind_the_other() {
        let path = std::env::temp_dir().join(format!("weir-os-pieces-{}", std::process::id()));
        let file = std::fs::File::create_new(&path).unwrap();
        // More than one call writes, empty ones among them, and first and last.
        let pieces: Vec<Vec<u8>> = (0..200u8).map(|n| vec![n; usize::from(n % 3)]).collect();
        write_all_at(&file, &pieces, 4).unwrap();
        write_all_at(&file, &[b"head"], 0).unwrap();
        write_all_at(&file, &[&b""[..], b""], 2).unwrap();
        write_all_at::<&[u8]>(&file, &[], 2).unwrap();
        let all = [b"head".to_vec(), pieces.concat()].concat();
        assert_eq!(std::fs::read(&path).unwrap(), all);
        let only_read = std::fs::File::open(&path).unwrap();
        assert!(write_all_at(&only_read, &pieces, 0).is_err());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn kinds_and_sizes() {
        let dir = std::env::temp_dir().join(format!("weir-os-file-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("f");
        std::fs::write(&file, b"hello").unwrap();
        let link = dir.join("l");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&file, &link).unwrap();

        let meta = stat(&file).unwrap();
        assert!(meta.is_file() && meta.size == 5 && meta.mtime_sec > 0);
        assert!(stat(&dir).unwrap().is_dir());
        assert_eq!(lstat(&link).unwrap().kind, FileKind::Symlink);
        assert!(stat(&link).unwrap().same_version(&meta));
        let fd = open(&file).unwrap();
        assert_eq!(fstat(&fd).unwrap(), meta);

        let dirfd = open_at(CWD, &dir, OpenAt::DirNoFollow).unwrap();
        let err = open_at(&dirfd, Path::new("l"), OpenAt::FileNoFollow).unwrap_err();
        assert_eq!(err.raw_os_error(), Some(libc::ELOOP));
        assert!(open_at(&dirfd, Path::new("f"), OpenAt::FileNoFollow).is_ok());
        assert_eq!(lstat_at(&dirfd, Path::new("l")).unwrap().kind, FileKind::Symlink);

        set_mtime(&fd, 1_000_000_000).unwrap();
        assert_eq!(fstat(&fd).unwrap().mtime_sec, 1_000_000_000);

        let mut buf = [0; 8];
        assert_eq!(read_at(&fd, &mut buf, 1).unwrap(), 4);
        assert_eq!(&buf[..4], b"ello");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn own_files_are_read_without_a_trace() {
        let path = std::env::temp_dir().join(format!("weir-os-own-{}", std::process::id()));
        std::fs::write(&path, b"hello").unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000);
        let times = std::fs::FileTimes::new().set_accessed(long_ago);
        std::fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        let accessed = || std::fs::metadata(&path).unwrap().accessed().unwrap();
        for open in [open_own, open_own_cached] {
            let fd = open(&path).unwrap();
            assert_eq!(read_at(&fd, &mut [0; 8], 0).unwrap(), 5);
            assert_eq!(accessed(), long_ago);
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(open_own(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_lock_is_held_once() {
        let path = std::env::temp_dir().join(format!("weir-os-lock-{}", std::process::id()));
        let one = crate::append::open(&path, 0o600).unwrap();
        let two = crate::append::open(&path, 0o600).unwrap();
        try_lock(&one).unwrap();
        assert_eq!(try_lock(&two).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        unlock(&one).unwrap();
        try_lock(&two).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
