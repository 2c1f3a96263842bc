//! The server's reports to its service manager (sd_notify(3)): the kit plays the manager.
//!
//! Waiting for a report costs nothing while the server works. Polling `/proc` for workers and the
//! kernel for listeners took a third of the processor time of an end-to-end run.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::PATIENCE;

/// The receiver of one server's reports.
pub struct Notices {
    socket: UnixDatagram,
    name: String,
}

/// Why an awaited report has not come.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    /// The server ended before.
    Ended,
    /// It did not come within [`PATIENCE`].
    Late,
}

impl Notices {
    /// Binds an abstract socket: it needs no file and ends with its descriptor.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-testkit-notices-{}-{n}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a short name");
        let socket = UnixDatagram::bind_addr(&address).expect("bind the socket for reports");
        socket.set_nonblocking(true).expect("a socket that does not block");
        Self { socket, name }
    }

    /// The value of the server's `NOTIFY_SOCKET`.
    pub fn address(&self) -> String {
        format!("@{}", self.name)
    }

    /// Drops reports that came already. The kernel queues a few only, and the server would log
    /// that it cannot send more.
    pub fn discard(&self) {
        while self.received().is_some() {}
    }

    /// Waits until the server reports that it serves. `server` is its pidfd.
    pub(crate) fn wait_until_ready(&self, server: BorrowedFd<'_>) -> Result<(), Missing> {
        let until = Instant::now() + PATIENCE;
        while !is_ready(&self.next(server, until)?) {}
        Ok(())
    }

    /// Waits for the end of a reload that began at `since_usec` of the monotonic clock or later:
    /// one that began before may have read the configuration of before.
    pub(crate) fn wait_until_reloaded(
        &self,
        server: BorrowedFd<'_>,
        since_usec: u64,
    ) -> Result<(), Missing> {
        let until = Instant::now() + PATIENCE;
        let began = |report: &str| {
            let usec = field(report, "RELOADING").and(field(report, "MONOTONIC_USEC"));
            usec.and_then(|usec| usec.parse::<u64>().ok()).is_some_and(|usec| usec >= since_usec)
        };
        while !began(&self.next(server, until)?) {}
        while !is_ready(&self.next(server, until)?) {}
        Ok(())
    }

    fn next(&self, server: BorrowedFd<'_>, until: Instant) -> Result<String, Missing> {
        loop {
            // Before the look at the process: a report that was sent counts.
            if let Some(report) = self.received() {
                return Ok(report);
            }
            if is_readable(server) {
                return self.received().ok_or(Missing::Ended);
            }
            if Instant::now() >= until {
                return Err(Missing::Late);
            }
            wait_readable(&[self.socket.as_fd(), server], until);
        }
    }

    fn received(&self) -> Option<String> {
        let mut buffer = [0; 512];
        let len = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..len]).into_owned())
    }
}

fn field<'a>(report: &'a str, name: &str) -> Option<&'a str> {
    report.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

fn is_ready(report: &str) -> bool {
    field(report, "READY") == Some("1")
}

/// Waits until one of the descriptors is readable, or until the time given.
pub fn wait_readable(fds: &[BorrowedFd<'_>], until: Instant) {
    let left = until.saturating_duration_since(Instant::now());
    let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(left).expect("a short time");
    // An interruption is as good as an event: the caller looks again.
    let _ = poll(&mut polled, Some(&timeout));
}

/// Whether a descriptor is readable now. A pidfd is once its process has ended.
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).is_ok_and(|n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    fn send(notices: &Notices, report: &str) {
        let address = SocketAddr::from_abstract_name(&notices.name).expect("a short name");
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.send_to_addr(report.as_bytes(), &address).expect("send a report");
    }

    #[test]
    fn a_reload_of_before_is_not_awaited() {
        let me = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process runs");
        let notices = Notices::new();
        for usec in [4, 5] {
            send(&notices, &format!("RELOADING=1\nMONOTONIC_USEC={usec}\n"));
            send(&notices, "READY=1\nMAINPID=7\n");
        }
        send(&notices, "STOPPING=1\n");
        assert_eq!(notices.wait_until_reloaded(me.as_fd(), 5), Ok(()));
        assert!(notices.received().is_some_and(|report| report == "STOPPING=1\n"));
    }

    #[test]
    fn the_end_of_a_server_ends_the_wait() {
        let mut child = std::process::Command::new("true").spawn().expect("run true");
        let pid = crate::procfs::id(child.id());
        let server = pidfd_open(pid, PidfdFlags::empty()).expect("it is not reaped");
        let notices = Notices::new();
        assert_eq!(notices.wait_until_ready(server.as_fd()), Err(Missing::Ended));
        child.wait().expect("reap it");
        send(&notices, "READY=1\n");
        assert_eq!(notices.wait_until_ready(server.as_fd()), Ok(()));
    }
}
