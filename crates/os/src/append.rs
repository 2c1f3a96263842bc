//! Appending to logs: regular files, pipes with and without a reader, terminals, sockets.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::fd::{Awaited, wait_any};

/// POSIX's `PIPE_BUF` on Linux: a pipe that is reported as writable takes this many bytes at once.
const PIPE_BYTES: usize = 4096;

/// Opens for appending; makes the file if it is absent. For log files; `mode` is cut by the umask.
///
/// Does not wait for a reader of a FIFO. It is opened for reading, too, so that it keeps lines for
/// a reader that comes later, or again. `/dev/stdout` and `/dev/stderr`, and links to them, may be
/// sockets, which Linux does not open by name: such a one is duplicated.
pub fn open(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    match open_with(CWD, path, OFlags::empty(), mode) {
        Err(e) if e.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            own_stream(path).unwrap_or(Err(e))
        }
        opened => opened,
    }
}

/// The standard output or error that a path leads to.
fn own_stream(path: &Path) -> Option<io::Result<OwnedFd>> {
    /// Links on the way: nginx's image has `access.log`, which leads to `/dev/stdout`.
    const LINKS_MAX: usize = 8;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match path.to_str()? {
            "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => {
                return Some(io::stdout().as_fd().try_clone_to_owned());
            }
            "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => {
                return Some(io::stderr().as_fd().try_clone_to_owned());
            }
            _ => {}
        }
        let to = std::fs::read_link(&path).ok()?;
        path = path.parent().unwrap_or(Path::new("/")).join(to);
    }
    None
}

/// As [`open`] within an open directory; a symbolic link fails with `ELOOP`.
pub fn open_at(dir: impl AsFd, name: &Path, mode: u32) -> io::Result<OwnedFd> {
    open_with(dir, name, OFlags::NOFOLLOW, mode)
}

fn open_with(dir: impl AsFd, path: &Path, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::APPEND | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode);
    match rustix::fs::openat(&dir, path, flags | OFlags::WRONLY | OFlags::CREATE, mode) {
        // A FIFO that nobody reads, a socket, or a device that is not there.
        Err(Errno::NXIO) if is_fifo(&dir, path) => {
            Ok(rustix::fs::openat(&dir, path, flags | OFlags::RDWR, mode)?)
        }
        // That others of our processes have it open for reading does not last.
        Ok(fd) if is_named_fifo(&fd) => {
            Ok(rustix::fs::openat(&dir, path, flags | OFlags::RDWR, mode).unwrap_or(fd))
        }
        opened => Ok(opened?),
    }
}

/// Whether it is a FIFO of a file system. A pipe without a name, which `/dev/stderr` may lead to,
/// is another thing: our own end for reading would hide that its reader has gone.
fn is_named_fifo(fd: &OwnedFd) -> bool {
    const PIPEFS_MAGIC: u64 = 0x5049_5045;
    let is_fifo = rustix::fs::fstat(fd)
        .is_ok_and(|meta| FileType::from_raw_mode(meta.st_mode) == FileType::Fifo);
    is_fifo && rustix::fs::fstatfs(fd).is_ok_and(|fs| fs.f_type as u64 != PIPEFS_MAGIC)
}

fn is_fifo(dir: impl AsFd, path: &Path) -> bool {
    let meta = rustix::fs::statat(dir, path, rustix::fs::AtFlags::empty());
    meta.is_ok_and(|meta| FileType::from_raw_mode(meta.st_mode) == FileType::Fifo)
}

/// Writes to a file that [`open`] has opened, or that was inherited. Returns the number of bytes
/// written: fewer than there are if the disk is full, or if `until` passes.
///
/// A full pipe, a stopped terminal or a full socket is waited for until then, whether the
/// descriptor blocks or not; without `until` for as long as it takes. A regular file's disk is
/// waited for in any case.
///
/// # Errors
/// `WouldBlock` if nothing was written until then; else the system's.
pub fn write(fd: impl AsFd, bytes: &[u8], until: Option<Instant>) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match write_some(&fd, &bytes[done..], until) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn write_some(fd: &impl AsFd, bytes: &[u8], until: Option<Instant>) -> io::Result<usize> {
    let Some(until) = until else {
        loop {
            match rustix::io::write(fd, bytes) {
                Err(Errno::AGAIN) => drop(wait_any(&[Awaited::output(fd)], None)),
                Err(Errno::INTR) => {}
                written => return Ok(written?),
            }
        }
    };
    if FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) == FileType::RegularFile {
        return Ok(rustix::io::write(fd, bytes)?);
    }
    let left = until.saturating_duration_since(Instant::now());
    if !wait_any(&[Awaited::output(fd)], Some(left.max(Duration::ZERO)))[0] {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let part = &bytes[..bytes.len().min(PIPE_BYTES)];
    // Another process may have filled the pipe since, and the descriptor may be one that blocks.
    match rustix::io::pwritev2(fd, &[IoSlice::new(part)], u64::MAX, ReadWriteFlags::NOWAIT) {
        // Pipes know the flag since Linux 6.4, terminals do not.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::SPIPE) => {
            Ok(rustix::io::write(fd, part)?)
        }
        written => Ok(written?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_takes_its_fill_and_blocks_nobody() {
        // A pipe's ends block as they are inherited.
        let (reader, writer) = crate::fd::pipe().unwrap();
        crate::fd::set_nonblocking(&writer, false).unwrap();
        let line = [b'x'; 6000];
        let mut total = 0;
        let full = loop {
            match write(&writer, &line, Some(Instant::now())) {
                Ok(n) => total += n,
                Err(e) => break e,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        // The last part of a line and the next line may share a page, or not.
        assert!((32 << 10..=64 << 10).contains(&total), "{total}");
        let mut taken = vec![0; 64 << 10];
        assert_eq!(crate::fd::read(&reader, &mut taken).unwrap(), total);
        assert_eq!(write(&writer, b"again", Some(Instant::now())).unwrap(), 5);
    }

    #[test]
    fn without_a_limit_it_waits_for_the_reader() {
        let (reader, writer) = crate::fd::pipe().unwrap();
        crate::fd::set_nonblocking(&reader, false).unwrap();
        crate::fd::set_nonblocking(&writer, true).unwrap();
        let lines = vec![b'x'; 300_000];
        std::thread::scope(|scope| {
            let written = scope.spawn(|| write(&writer, &lines, None).unwrap());
            let mut taken = 0;
            while taken < lines.len() {
                taken += crate::fd::read(&reader, &mut [0; 10_000]).unwrap();
            }
            assert_eq!(written.join().unwrap(), lines.len());
        });
    }

    #[test]
    fn a_fifo_without_a_reader_keeps_lines_for_a_later_one() {
        let dir = std::env::temp_dir().join(format!("weir-fifo-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("fifo");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let fifo = open(&path, 0o600).unwrap();
        assert_eq!(write(&fifo, b"line\n", Some(Instant::now())).unwrap(), 5);
        let reader = crate::file::open(&path).unwrap();
        let mut text = [0; 9];
        assert_eq!(crate::fd::read(&reader, &mut text).unwrap(), 5);
        // Opened again while the one before counts as a reader, and that one goes.
        let again = open(&path, 0o600).unwrap();
        drop((fifo, reader));
        assert_eq!(write(&again, b"line\n", Some(Instant::now())).unwrap(), 5);
        assert!(open(&dir.join("a/b"), 0o600).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
