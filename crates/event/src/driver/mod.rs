//! The drivers, behind one small seam: arm, wait, apply, closing.
//!
//! The file of an operation holds its part for each driver; this one decides how a driver learns of
//! readiness and waits for it.

mod epoll;
mod kind;
mod level;
mod poll;
mod seam;
mod select;
pub(crate) mod sim;
mod ticker;
mod uring;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use base::log::Level as LogLevel;
use mem::Chain;

pub use epoll::EPOLL_EVENTS;
pub use kind::DriverKind;
pub(crate) use seam::{Arm, Phase};
pub use select::SELECT_MAX;

use crate::runtime::remote::Mailbox;
use crate::state::Core;
use crate::state::socks::{SockKey, SockKind, bits};
use epoll::Epoll;
use level::Level;
use sim::Sim;
use uring::{PIECES as POST_PIECES, Uring};

pub(crate) enum Driver {
    Epoll(Epoll),
    Uring(Box<Uring>),
    /// poll and select.
    Level(Level),
    Sim(Box<Sim>),
}

impl Driver {
    pub(crate) fn new(
        kind: DriverKind,
        mailbox: &Arc<Mailbox>,
        resolution_ms: u64,
        events: usize,
    ) -> io::Result<Driver> {
        match kind {
            DriverKind::Epoll => {
                Ok(Driver::Epoll(Epoll::new(mailbox.clone(), resolution_ms, events)?))
            }
            DriverKind::Uring => match Uring::new(mailbox.clone(), resolution_ms) {
                Ok(uring) => {
                    let log = base::log::default();
                    for what in uring.lacks() {
                        base::debug!(log, base::log::debug::EVENT, None, "io_uring: no {what}");
                    }
                    Ok(Driver::Uring(Box::new(uring)))
                }
                Err(error) => {
                    let (log, text) = (base::log::default(), base::log::os_error(&error));
                    base::log!(log, LogLevel::Notice, None, "no io_uring, using epoll: {text}");
                    Driver::new(DriverKind::Epoll, mailbox, resolution_ms, events)
                }
            },
            DriverKind::Poll | DriverKind::Select => {
                Ok(Driver::Level(Level::new(kind, mailbox.clone(), resolution_ms)?))
            }
            DriverKind::Sim(plan) => Ok(Driver::Sim(Box::new(Sim::new(plan, mailbox.clone())?))),
        }
    }

    pub(crate) fn kind(&self) -> DriverKind {
        match self {
            Driver::Epoll(_) => DriverKind::Epoll,
            Driver::Uring(_) => DriverKind::Uring,
            Driver::Level(level) => level.kind(),
            Driver::Sim(sim) => DriverKind::Sim(sim.plan()),
        }
    }

    /// Makes the driver report readiness of a socket in a direction.
    pub(crate) fn arm(&mut self, core: &mut Core, wish: Arm<'_>) -> io::Result<()> {
        match self {
            Driver::Epoll(epoll) => epoll.arm(core, wish),
            Driver::Uring(uring) => {
                uring.arm(core, wish);
                Ok(())
            }
            Driver::Level(level) => level.arm(wish),
            Driver::Sim(sim) => sim.arm(core, wish),
        }
    }

    /// Ends the reports of a descriptor that is armed for reading, where a report alone does not.
    pub(crate) fn disarm(&mut self, core: &mut Core, key: SockKey, fd: BorrowedFd<'_>) {
        match self {
            Driver::Epoll(epoll) => epoll.disarm(core, key, fd),
            Driver::Level(level) => level.closing(fd),
            Driver::Sim(sim) => sim.disarm(core, key, fd),
            // A poll reports once.
            Driver::Uring(_) => (),
        }
    }

    /// Begins or ends the reports of a listener, which go on until a connection is accepted.
    pub(crate) fn listen(
        &mut self,
        core: &Core,
        key: SockKey,
        fd: BorrowedFd<'_>,
        on: bool,
        exclusive: bool,
    ) -> io::Result<()> {
        match self {
            Driver::Epoll(epoll) => epoll.listen(key, fd, on, exclusive),
            Driver::Uring(uring) => {
                uring.listen(key, fd, on, exclusive && !core.multi_accept);
                Ok(())
            }
            Driver::Level(level) => level.listen(key, fd, on),
            Driver::Sim(sim) => {
                sim.net.listen(key, on);
                Ok(())
            }
        }
    }

    /// The subject of the log's line about a failed [`Driver::listen`].
    pub(crate) fn listen_call(&self) -> &'static str {
        match self {
            Driver::Epoll(_) => "epoll_ctl()",
            _ => "watching a listening socket",
        }
    }

    /// Waits until something is ready, another thread posts a wake, or `timeout_ms` are over
    /// (`None`: no limit), and collects the events. Returns whether the clock must be read.
    pub(crate) fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<bool> {
        match self {
            Driver::Epoll(epoll) => epoll.wait(timeout_ms),
            Driver::Uring(uring) => uring.wait(timeout_ms),
            Driver::Level(level) => level.wait(timeout_ms),
            Driver::Sim(sim) => sim.wait(timeout_ms),
        }
    }

    /// Applies the events that [`Driver::wait`] collected: sets ready bits, completes slots, runs
    /// nothing.
    pub(crate) fn apply(&mut self, core: &mut Core, phase: Phase) {
        match self {
            Driver::Epoll(epoll) => epoll.apply(core, phase),
            Driver::Uring(uring) => uring.apply(core, phase),
            Driver::Level(level) => level.apply(core, phase),
            Driver::Sim(sim) => sim.apply(core, phase),
        }
    }

    /// The bytes of buffers that the kernel has.
    pub(crate) fn lent(&self) -> usize {
        match self {
            Driver::Uring(uring) => uring.lent(),
            _ => 0,
        }
    }

    /// Gives back memory that had no use of late. Returns whether there may be more of it soon.
    pub(crate) fn tidy(&mut self) -> bool {
        match self {
            Driver::Uring(uring) => uring.tidy(),
            _ => false,
        }
    }

    /// A descriptor came into the loop.
    pub(crate) fn opened(&mut self, key: SockKey, fd: BorrowedFd<'_>, kind: SockKind) {
        match self {
            Driver::Sim(sim) => sim.net.opened(key, fd, kind),
            Driver::Uring(uring) => uring.opened(key),
            _ => (),
        }
    }

    /// An accepted descriptor is closed before it became a socket of the loop.
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

    /// A socket closes: the driver closes its descriptor, or returns it to be closed now.
    pub(crate) fn closing(&mut self, key: SockKey, fd: OwnedFd) -> Option<OwnedFd> {
        match self {
            // Closing the last descriptor ends the registration, and none of ours is duplicated.
            Driver::Epoll(_) => (),
            Driver::Level(level) => level.closing(fd.as_fd()),
            Driver::Uring(uring) => {
                uring.close(key, fd);
                return None;
            }
            Driver::Sim(sim) => sim.net.closed(key),
        }
        Some(fd)
    }

    /// The socket moves to another process: ends the kernel's reports to this one. Closing the
    /// descriptor here does not end them while the other process has it open.
    pub(crate) fn parting(&mut self, fd: BorrowedFd<'_>) {
        if let Driver::Epoll(epoll) = self {
            epoll.parting(fd);
        }
    }

    /// See [`crate::Sock::withdraw`]: whether nothing receives for the socket any more.
    pub(crate) fn withdraw(&mut self, key: SockKey) -> io::Result<bool> {
        match self {
            Driver::Uring(uring) => uring.withdraw(key),
            _ => Ok(true),
        }
    }

    /// See [`crate::Sock::take_received`].
    pub(crate) fn take_received(&mut self, key: SockKey) -> Option<mem::Page> {
        match self {
            Driver::Uring(uring) => uring.take_received(key),
            _ => None,
        }
    }

    /// Whether the driver receives by itself; otherwise it reports readiness, and the task attempts
    /// the recv.
    pub(crate) fn completes_recv(&self) -> bool {
        matches!(self, Driver::Sim(sim) if sim.plan().completes)
    }

    /// Whether the driver ever sends by itself.
    pub(crate) fn may_send(&self) -> bool {
        matches!(self, Driver::Sim(_) | Driver::Uring(_))
    }

    /// Whether the driver sends the front of `chain` by itself; otherwise it reports readiness, and
    /// the task attempts the send.
    pub(crate) fn completes_send(&self, chain: &Chain) -> bool {
        match self {
            Driver::Sim(sim) => sim.plan().completes,
            // Memory before a file leaves faster with it than ahead of it.
            Driver::Uring(_) => !chain.leading_memory().1,
            _ => false,
        }
    }

    /// Whether the driver can be left with the sending of `chain`, which is memory alone.
    pub(crate) fn takes_posts(&self, chain: &Chain) -> bool {
        let takes = match self {
            Driver::Sim(sim) => sim.plan().completes,
            Driver::Uring(uring) => uring.takes_posts(),
            _ => false,
        };
        takes && chain.leading_memory().0 <= POST_PIECES
    }

    /// Whether a descriptor that is closed stays open for the sends that the driver was given
    /// before.
    pub(crate) fn closes_behind(&self) -> bool {
        matches!(self, Driver::Uring(_))
    }

    /// The ready bits of a connection that was just accepted.
    pub(crate) fn accepted_bits(&self) -> u8 {
        match self {
            // The first recv goes the way of all others, with the next wait.
            Driver::Uring(uring) if uring.brings_bytes() => bits::WRITE,
            // A request is often there before its connection is accepted, and then one attempt
            // saves the registration and a turn.
            _ => bits::READ | bits::WRITE,
        }
    }

    /// Whether an arrival at the socket is reported though no task waits for it.
    pub(crate) fn watches(&mut self, core: &mut Core, key: SockKey) -> bool {
        match self {
            Driver::Level(_) => false,
            Driver::Uring(uring) => uring.receives(key),
            Driver::Epoll(_) => {
                core.socks.get(key).is_some_and(|entry| entry.bits & bits::ARMED_READ != 0)
            }
            Driver::Sim(_) => true,
        }
    }

    /// Whether connections of a listener have left the kernel's queue.
    pub(crate) fn has_accepted(&self, key: SockKey) -> bool {
        matches!(self, Driver::Uring(uring) if uring.has_accepted(key))
    }

    /// Whether a connection waits at a listener, here or in the kernel's queue. Asks the kernel.
    pub(crate) fn has_waiting(&self, key: SockKey, fd: BorrowedFd<'_>) -> bool {
        match self {
            Driver::Sim(sim) => sim.net.has_waiting(key),
            Driver::Uring(uring) => uring.has_accepted(key),
            _ => os::fd::wait_readable(fd, Duration::ZERO),
        }
    }

    /// Whether a report of a listener can stand for several connections that were accepted.
    pub(crate) fn accepts_ahead(&self) -> bool {
        matches!(self, Driver::Uring(_))
    }

    /// Takes on the operation of `slot`; its end goes to [`Core::land`].
    pub(crate) fn start(&mut self, core: &mut Core, slot: u32, fd: BorrowedFd<'_>) {
        match self {
            Driver::Sim(sim) => sim.start(slot),
            Driver::Uring(uring) => uring.start(core, slot, fd),
            _ => core.land(slot, Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Watches for room for a posted send: see [`Core::room_for_posts`].
    pub(crate) fn watch_room(&mut self, core: &mut Core, key: SockKey, fd: BorrowedFd<'_>) {
        match self {
            Driver::Uring(uring) => uring.watch_room(key, fd),
            _ => core.room_for_posts(key),
        }
    }

    /// Takes on an operation that is no socket's.
    pub(crate) fn start_plain(&mut self, core: &mut Core, slot: u32) {
        match self {
            Driver::Uring(uring) => uring.start_plain(core, slot),
            _ => core.land(slot, Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Whether the driver reads files.
    pub(crate) fn reads_files(&self) -> bool {
        matches!(self, Driver::Uring(_))
    }

    /// Asks for the end of an operation, which comes in any case.
    pub(crate) fn cancel(&mut self, slot: u32) {
        match self {
            Driver::Sim(sim) => sim.cancel(slot),
            Driver::Uring(uring) => uring.cancel(slot),
            _ => (),
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
