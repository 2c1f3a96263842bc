//! Any descriptor that can be waited for: an eventfd, a signalfd, a pipe, a datagram socket.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::deadline::Deadline;
use crate::gate::Gate;
use crate::op::ready::{Ready, Wake};
use crate::runtime::inner::try_with;
use crate::sock::Registered;
use crate::state::socks::{Direction, SockKind};

/// A descriptor of any kind in this thread's loop; closes when it is dropped.
///
/// Readiness is reported once: after [`Fd::readable`], read until `WouldBlock` before waiting
/// again.
pub struct Fd(Registered);

impl Fd {
    /// Takes a nonblocking descriptor into the loop. It does not count as a connection.
    ///
    /// # Panics
    /// When this thread has no loop.
    pub fn new(fd: OwnedFd) -> Fd {
        Fd(Registered::new(fd, SockKind::Other, 0))
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Ends the kernel's reports of this descriptor to the loop (`EPOLL_CTL_DEL`). Closing it does
    /// not end them while another process has the same socket open, and each would wake the loop in
    /// vain.
    pub fn part(&self) {
        let _ = try_with(|inner| inner.driver.parting(self.fd()));
    }

    /// Waits until there may be something to read.
    pub fn readable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> {
        Ready::once(&self.0, Direction::Read, deadline)
    }

    /// Waits until there may be something to read, or until the gate is closed if it is open now.
    pub fn readable_or(
        &self,
        gate: &Gate,
        deadline: Deadline,
    ) -> impl Future<Output = io::Result<Wake>> + Unpin + use<'_> {
        Ready::once_or(&self.0, gate, deadline)
    }

    /// Waits until something may be written.
    pub fn writable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> {
        Ready::once(&self.0, Direction::Write, deadline)
    }
}
