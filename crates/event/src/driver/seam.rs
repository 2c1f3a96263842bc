//! The vocabulary between the loop and its drivers.

use std::os::fd::BorrowedFd;

use crate::state::socks::{Direction, SockKey, SockKind};

/// The wish for a report when a socket is ready.
#[derive(Clone, Copy)]
pub(crate) struct Arm<'a> {
    pub(crate) key: SockKey,
    pub(crate) kind: SockKind,
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) direction: Direction,
}

/// The part of the collected events to apply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The slots of listeners: connections are accepted first while the accept lock is held.
    Listeners,
    /// All that are left.
    Rest,
}
