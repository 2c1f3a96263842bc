//! The drivers, behind one small seam: arm, wait, apply, closing.
//!
//! What an operation does in each driver stands in the operation's file; here is how a driver
//! learns of readiness and waits for it.

mod epoll;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub(crate) use epoll::Epoll;

use crate::op::Direction;
use crate::remote::Mailbox;
use crate::sock::SockKey;
use crate::turn::Core;

/// Which driver a loop is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DriverKind {
    /// epoll(7), edge-triggered.
    #[default]
    Epoll,
}

impl DriverKind {
    /// The name, as the `use` directive has it.
    pub fn name(self) -> &'static str {
        match self {
            DriverKind::Epoll => "epoll",
        }
    }
}

pub(crate) enum Driver {
    Epoll(Epoll),
}

/// Which of the collected events to apply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Those of listeners only: connections are accepted first while the accept lock is held.
    Listeners,
    /// All that are left.
    Rest,
}

impl Driver {
    pub(crate) fn new(
        kind: DriverKind,
        mailbox: &Arc<Mailbox>,
        resolution_ms: u64,
    ) -> io::Result<Driver> {
        match kind {
            DriverKind::Epoll => Ok(Driver::Epoll(Epoll::new(mailbox.clone(), resolution_ms)?)),
        }
    }

    pub(crate) fn kind(&self) -> DriverKind {
        match self {
            Driver::Epoll(_) => DriverKind::Epoll,
        }
    }

    /// Sees to it that readiness of a socket in `direction` will be reported.
    pub(crate) fn arm(
        &mut self,
        core: &mut Core,
        key: SockKey,
        fd: BorrowedFd<'_>,
        direction: Direction,
    ) -> io::Result<()> {
        match self {
            Driver::Epoll(epoll) => epoll.arm(core, key, fd, direction),
        }
    }

    /// Begins or ends the reports of a listener, which go on until a connection is accepted.
    pub(crate) fn listen(
        &mut self,
        key: SockKey,
        fd: BorrowedFd<'_>,
        on: bool,
        exclusive: bool,
    ) -> io::Result<()> {
        match self {
            Driver::Epoll(epoll) => epoll.listen(key, fd, on, exclusive),
        }
    }

    /// Waits until something is ready, another thread posts something, or `timeout_ms` are over
    /// (`None`: no limit), and collects what is ready. Returns whether the clock is to be read.
    pub(crate) fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<bool> {
        match self {
            Driver::Epoll(epoll) => epoll.wait(timeout_ms),
        }
    }

    /// Applies what [`Driver::wait`] collected: sets ready bits, completes slots, runs nothing.
    pub(crate) fn apply(&mut self, core: &mut Core, phase: Phase) {
        match self {
            Driver::Epoll(epoll) => epoll.apply(core, phase),
        }
    }

    /// The descriptor of a socket is about to be closed.
    pub(crate) fn closing(&mut self, _core: &mut Core, _key: SockKey) {
        match self {
            // Closing the last descriptor ends the registration, and none of ours is duplicated.
            Driver::Epoll(_) => (),
        }
    }

    /// The descriptor of a socket leaves the loop and stays open.
    pub(crate) fn leaving(&mut self, core: &mut Core, key: SockKey, fd: BorrowedFd<'_>) {
        match self {
            Driver::Epoll(epoll) => epoll.leaving(core, key, fd),
        }
    }

    pub(crate) fn shutdown_write(&mut self, _key: SockKey, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Driver::Epoll(_) => os::socket::shutdown_write(fd),
        }
    }

    pub(crate) fn reset_on_close(&mut self, _key: SockKey, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Driver::Epoll(_) => os::socket::set_reset_on_close(fd),
        }
    }
}
