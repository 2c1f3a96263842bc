//! The drivers, behind one small seam: arm, wait, apply, closing.
//!
//! What an operation does in each driver stands in the operation's file; here is how a driver
//! learns of readiness and waits for it.

mod epoll;
mod level;
mod poll;
mod select;
mod sim;
mod ticker;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub(crate) use epoll::Epoll;
pub(crate) use level::Level;
pub(crate) use sim::Sim;

use crate::op::Direction;
use crate::remote::Mailbox;
use crate::sim::Plan;
use crate::sock::{Kind, SockKey};
use crate::turn::Core;

pub use select::SELECT_MAX;

/// Which driver a loop is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DriverKind {
    /// epoll(7), edge-triggered.
    #[default]
    Epoll,
    /// poll(2).
    Poll,
    /// select(2): no descriptor of [`SELECT_MAX`] or above.
    Select,
    /// A simulated network and clock, for tests.
    Sim(Plan),
}

impl DriverKind {
    /// The name, as the `use` directive has it.
    pub fn name(self) -> &'static str {
        match self {
            DriverKind::Epoll => "epoll",
            DriverKind::Poll => "poll",
            DriverKind::Select => "select",
            DriverKind::Sim(_) => "sim",
        }
    }
}

pub(crate) enum Driver {
    Epoll(Epoll),
    /// poll and select.
    Level(Level),
    Sim(Box<Sim>),
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
            DriverKind::Poll | DriverKind::Select => {
                Ok(Driver::Level(Level::new(kind, mailbox.clone(), resolution_ms)?))
            }
            DriverKind::Sim(plan) => Ok(Driver::Sim(Box::new(Sim::new(plan, mailbox.clone())?))),
        }
    }

    pub(crate) fn kind(&self) -> DriverKind {
        match self {
            Driver::Epoll(_) => DriverKind::Epoll,
            Driver::Level(level) => level.kind(),
            Driver::Sim(sim) => DriverKind::Sim(sim.plan()),
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
            Driver::Level(level) => level.arm(key, fd, direction),
            Driver::Sim(sim) => sim.arm(core, key, fd, direction),
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
            Driver::Level(level) => level.listen(key, fd, on),
            Driver::Sim(sim) => {
                sim.net.listen(key, on);
                Ok(())
            }
        }
    }

    /// Waits until something is ready, another thread posts something, or `timeout_ms` are over
    /// (`None`: no limit), and collects what is ready. Returns whether the clock is to be read.
    pub(crate) fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<bool> {
        match self {
            Driver::Epoll(epoll) => epoll.wait(timeout_ms),
            Driver::Level(level) => level.wait(timeout_ms),
            Driver::Sim(sim) => sim.wait(timeout_ms),
        }
    }

    /// Applies what [`Driver::wait`] collected: sets ready bits, completes slots, runs nothing.
    pub(crate) fn apply(&mut self, core: &mut Core, phase: Phase) {
        match self {
            Driver::Epoll(epoll) => epoll.apply(core, phase),
            Driver::Level(level) => level.apply(core, phase),
            Driver::Sim(sim) => sim.apply(core, phase),
        }
    }

    /// A descriptor came into the loop.
    pub(crate) fn opened(&mut self, key: SockKey, fd: BorrowedFd<'_>, kind: Kind) {
        if let Driver::Sim(sim) = self {
            sim.net.opened(key, fd, kind);
        }
    }

    /// An accepted descriptor is closed before it came into the loop.
    pub(crate) fn refused(&mut self, fd: BorrowedFd<'_>) {
        if let Driver::Sim(sim) = self {
            sim.net.refused(fd);
        }
    }

    /// Whether the driver can watch a descriptor of this number.
    pub(crate) fn takes(&self, fd: BorrowedFd<'_>) -> bool {
        match self {
            Driver::Level(level) => level.takes(fd),
            _ => true,
        }
    }

    /// The descriptor of a socket is about to be closed.
    pub(crate) fn closing(&mut self, key: SockKey, fd: BorrowedFd<'_>) {
        match self {
            // Closing the last descriptor ends the registration, and none of ours is duplicated.
            Driver::Epoll(_) => (),
            Driver::Level(level) => level.closing(fd),
            Driver::Sim(sim) => sim.net.closed(key),
        }
    }

    /// Whether the driver completes operations; otherwise it reports readiness, and they are
    /// attempted in the task.
    pub(crate) fn completes(&self) -> bool {
        match self {
            Driver::Sim(sim) => sim.plan().completes,
            _ => false,
        }
    }

    /// Takes on the operation of `slot`; its end goes to [`Core::land`].
    pub(crate) fn start(&mut self, core: &mut Core, slot: u32, _fd: BorrowedFd<'_>) {
        match self {
            Driver::Sim(sim) => sim.start(slot),
            _ => core.land(slot, Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Asks for the end of an operation, which comes in any case.
    pub(crate) fn cancel(&mut self, slot: u32) {
        if let Driver::Sim(sim) = self {
            sim.cancel(slot);
        }
    }

    pub(crate) fn shutdown_write(&mut self, key: SockKey, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Driver::Sim(sim) => sim.net.shutdown_write(key),
            _ => os::socket::shutdown_write(fd),
        }
    }

    pub(crate) fn reset_on_close(&mut self, key: SockKey, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Driver::Sim(sim) => sim.net.reset_on_close(key),
            _ => os::socket::set_reset_on_close(fd),
        }
    }
}
