//! Descriptors: flags, duplicates, pipes, event counters, inherited ones.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::FdFlags;
use rustix::pipe::PipeFlags;

/// Sets whether the descriptor is closed when another program is executed.
pub fn set_cloexec(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(rustix::io::fcntl_setfd(fd, if on { FdFlags::CLOEXEC } else { FdFlags::empty() })?)
}

/// Turns `O_NONBLOCK` on or off.
pub fn set_nonblocking(fd: impl AsFd, on: bool) -> io::Result<()> {
    let old = rustix::fs::fcntl_getfl(&fd)?;
    let new = if on { old | OFlags::NONBLOCK } else { old - OFlags::NONBLOCK };
    if new != old {
        rustix::fs::fcntl_setfl(fd, new)?;
    }
    Ok(())
}

/// A second descriptor for the same file, closed on exec.
pub fn dup(fd: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}

/// Makes room for `count` descriptors in the process's table, or for as many as its limit allows.
///
/// The kernel doubles a table that is full. If the process has threads by then, the call that needs
/// the descriptor sleeps until every processor has let go of the old table: 5 to 20 ms on a busy
/// machine, in which a loop serves nobody.
///
/// # Errors
/// The system's: the table stays as it is.
pub fn make_room(count: usize) -> io::Result<()> {
    let (limit, _) = crate::limits::get_both(crate::limits::Limit::NoFile);
    let last = limit.min(count as u64).saturating_sub(1);
    let last = RawFd::try_from(last).unwrap_or(RawFd::MAX);
    drop(rustix::io::fcntl_dupfd_cloexec(eventfd()?, last)?);
    Ok(())
}

/// Reading and writing end of a pipe, both closed on exec and non-blocking.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?)
}

/// A kernel counter that wakes readers (`eventfd(2)`), closed on exec and non-blocking.
pub fn eventfd() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Adds one to an [`eventfd`]; a full counter wakes its reader as well.
pub fn eventfd_notify(fd: impl AsFd) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Empties an [`eventfd`] and gives its count; 0 when nothing was added.
pub fn eventfd_take(fd: impl AsFd) -> u64 {
    let mut count = [0u8; 8];
    match rustix::io::read(fd, &mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        _ => 0,
    }
}

/// Takes over a descriptor whose number came from outside (`NGINX=`, `LISTEN_FDS`), and marks it to
/// be closed on exec. Fails when no such descriptor is open. Standard input, output and error are
/// refused.
///
/// The caller names each number once in the life of the process, before it opened anything that
/// could have been given the same number.
pub fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    if number <= libc::STDERR_FILENO {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: F_GETFD reads the table of descriptors and touches no memory of ours.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open (just asked) and no value of this process owns it: its number
    // was handed over by the parent, and the caller takes each number once, as documented.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    set_cloexec(&fd, true)?;
    Ok(fd)
}

/// Makes standard error another name of `fd`.
pub fn redirect_stderr(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stderr(fd)?)
}

/// Puts `/dev/null` in place of standard input and output.
pub fn null_stdio() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}

/// Reads the bytes that are there; 0 is the end.
pub fn read(fd: impl AsFd, buf: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(fd, buf)?)
}

/// Waits until the descriptor is readable or its other end is closed. False when `limit` is over
/// first.
pub fn wait_readable(fd: impl AsFd, limit: Duration) -> bool {
    let end = std::time::Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        let left = rustix::event::Timespec::try_from(left).ok();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.is_ok_and(|n| n > 0),
        }
    }
}

/// A descriptor to wait for with [`wait_any`].
pub struct Awaited<'a> {
    fd: BorrowedFd<'a>,
    output: bool,
}

impl<'a> Awaited<'a> {
    /// Ready when it can be read, or its other end is closed.
    pub fn input(fd: &'a impl AsFd) -> Awaited<'a> {
        Awaited { fd: fd.as_fd(), output: false }
    }

    /// Ready when it can be written, or its other end is closed.
    pub fn output(fd: &'a impl AsFd) -> Awaited<'a> {
        Awaited { fd: fd.as_fd(), output: true }
    }
}

/// Waits until one of the descriptors is ready; tells of each whether it is. None is when the limit
/// is over first, or when a signal came. Without a limit it waits for as long as it takes.
pub fn wait_any(awaited: &[Awaited<'_>], limit: Option<Duration>) -> Vec<bool> {
    let limit = limit.and_then(|limit| rustix::event::Timespec::try_from(limit).ok());
    let flags = |output| if output { PollFlags::OUT } else { PollFlags::IN };
    let all = awaited.iter();
    let mut fds: Vec<PollFd<'_>> =
        all.map(|a| PollFd::from_borrowed_fd(a.fd, flags(a.output))).collect();
    // An error (a signal) reports nothing as ready.
    let any = rustix::event::poll(&mut fds, limit.as_ref()).is_ok_and(|n| n > 0);
    fds.iter().map(|fd| any && !fd.revents().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn one_of_several_is_ready() {
        let (r, w) = pipe().unwrap();
        let idle = eventfd().unwrap();
        let none = Some(Duration::ZERO);
        assert_eq!(wait_any(&[Awaited::input(&r), Awaited::input(&idle)], none), [false, false]);
        crate::file::write(&w, b"x").unwrap();
        let all = [Awaited::input(&idle), Awaited::input(&r), Awaited::output(&w)];
        assert_eq!(wait_any(&all, None), [false, true, true]);
    }

    #[test]
    fn a_table_has_room_for_what_is_to_come() {
        make_room(5_000).unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        let (limit, _) = crate::limits::get_both(crate::limits::Limit::NoFile);
        assert!(size.trim().parse::<u64>().unwrap() >= limit.min(5_000), "{size}");
    }

    #[test]
    fn eventfd_counts() {
        let fd = eventfd().unwrap();
        assert_eq!(eventfd_take(&fd), 0);
        eventfd_notify(&fd);
        eventfd_notify(&fd);
        assert_eq!(eventfd_take(&fd), 2);
        assert_eq!(eventfd_take(&fd), 0);
    }

    #[test]
    fn a_pipe_without_writers_is_readable() {
        let (r, w) = pipe().unwrap();
        assert!(!wait_readable(&r, Duration::from_millis(1)));
        drop(w);
        assert!(wait_readable(&r, Duration::from_secs(5)));
    }

    #[test]
    fn adopting_needs_an_open_descriptor() {
        assert!(adopt(2).is_err());
        assert!(adopt(-1).is_err());
        assert!(adopt(1_000_000).is_err());
        let (r, _w) = pipe().unwrap();
        let number = std::os::fd::IntoRawFd::into_raw_fd(r);
        assert_eq!(adopt(number).unwrap().as_raw_fd(), number);
    }
}
