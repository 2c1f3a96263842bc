//! A listener as the loop sees it: its socket, and whether it accepts.

use std::os::fd::BorrowedFd;

use super::socks::SockKey;

/// The properties of a listener that decide whether the driver reports its connections.
pub(crate) trait Listening {
    /// Its entry in the table of sockets.
    fn key(&self) -> SockKey;
    /// Its descriptor.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Whether its owner has stopped accepting for now.
    fn is_paused(&self) -> bool;
    /// Whether the kernel wakes only one of the processes that accept from the socket.
    fn is_exclusive(&self) -> bool;
}
