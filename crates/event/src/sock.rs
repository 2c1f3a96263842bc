//! Sockets of the loop.

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::driver::Arm;
use crate::runtime::accepting::descriptor_closed;
use crate::runtime::inner::{try_with, with};
use crate::runtime::room::log_shortage;
use crate::runtime::task::next_turn;
use crate::state::index::NONE;
use crate::state::socks::{Direction, SockKey, SockKind, bits, out};

/// A descriptor with its place in the table; closes through the driver.
#[derive(Debug)]
pub(crate) struct Registered {
    /// `None` only while it is being dropped.
    fd: Option<OwnedFd>,
    pub(crate) key: SockKey,
    kind: SockKind,
    /// The loop's driver may send by itself, so that it has to be asked before each send.
    pub(crate) driver_sends: bool,
    /// See [`Sock::set_cork`].
    pub(crate) cork: Cell<bool>,
    /// Memory waits for the end of the connection: see [`Sock::send_last`].
    pub(crate) ends: Cell<bool>,
}

impl Registered {
    pub(crate) fn new(fd: OwnedFd, kind: SockKind, bits: u8) -> Registered {
        let (key, driver_sends) = with(|inner| {
            let key = inner.core.socks.insert(kind, bits);
            inner.driver.opened(key, fd.as_fd(), kind);
            (key, inner.driver.may_send())
        });
        let (cork, ends) = (Cell::new(false), Cell::new(false));
        Registered { fd: Some(fd), key, kind, driver_sends, cork, ends }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("the descriptor stays until the drop").as_fd()
    }

    pub(crate) fn wish(&self, direction: Direction) -> Arm<'_> {
        Arm { key: self.key, kind: self.kind, fd: self.fd(), direction }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        // Without a loop it closes here and now.
        let mut fd = Some(fd);
        let _ = try_with(|inner| {
            let Some(open) = fd.take() else { return };
            let behind = inner.driver.closes_behind();
            if inner.core.socks.get(self.key).is_some_and(|entry| entry.holds_open(behind)) {
                // The driver still uses it: it closes after its last operation.
                inner.core.flights.keep_open(self.key, open);
                return;
            }
            fd = inner.driver.closing(self.key, open);
            inner.core.socks.remove(self.key);
        });
        if fd.take().is_some() {
            descriptor_closed();
        }
    }
}

/// A stream socket of this thread's loop. It is nonblocking, closes when it is dropped, and each of
/// its directions has one waiter at most: a second one fails with `ResourceBusy`.
pub struct Sock(pub(crate) Registered);

impl Sock {
    /// Takes a nonblocking stream socket into the loop. It counts as a connection; when the loop is
    /// short of those, the longest parked ones are asked to close.
    ///
    /// # Panics
    /// When this thread has no loop.
    pub fn from_fd(fd: OwnedFd) -> Sock {
        // Both directions count as ready: the first attempt shows.
        Sock::with_bits(fd, bits::READ | bits::WRITE)
    }

    /// The connection of a client that another process has accepted, and may give to this one: it
    /// may be asked to make room for others. No other is asked for it before [`Sock::arrived`].
    pub fn of_client(fd: OwnedFd) -> Sock {
        let bits = bits::READ | bits::WRITE | bits::ACCEPTED;
        Sock(Registered::new(fd, SockKind::Connection, bits))
    }

    /// The same for the connection to a server.
    pub fn of_server(fd: OwnedFd) -> Sock {
        Sock(Registered::new(fd, SockKind::Connection, bits::READ | bits::WRITE))
    }

    /// The connection is this process's now: when the loop is short of connections, others make
    /// room for it.
    pub fn arrived(&self) {
        let number = self.fd().as_raw_fd() as usize;
        if let Some(shortage) = with(|inner| inner.make_room(number)) {
            log_shortage(shortage);
        }
    }

    pub(crate) fn with_bits(fd: OwnedFd, bits: u8) -> Sock {
        let sock = Sock(Registered::new(fd, SockKind::Connection, bits));
        sock.arrived();
        sock
    }

    /// The descriptor, for options and addresses.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Names the client whose connection this is, where a balancer tells it: among clients the one
    /// with the most connections makes room first. A connection that was accepted is its peer's.
    pub fn set_client(&self, ip: IpAddr) {
        with(|inner| inner.core.socks.set_client(self.0.key, os::sockaddr::block_of(ip)));
    }

    /// Whether the connection was told to close, so that there is room for others: the reason why
    /// a wait has failed, or the peer seems to be gone.
    #[cold]
    pub fn is_displaced(&self) -> bool {
        with(|inner| {
            inner.core.socks.get(self.0.key).is_some_and(|e| e.bits & bits::DISPLACED != 0)
        })
    }

    /// Whether memory waits for the file behind it, so that packets are full (`MSG_MORE`; the aim
    /// of `tcp_nopush`). Off at first: one packet less, but measured on the loopback the kernel
    /// spends about a third more on a response of 100 KB.
    pub fn set_cork(&self, on: bool) {
        self.0.cork.set(on);
    }

    /// Whether the peer is known to send no more (it closed its half, or the connection broke).
    /// Known only once the socket has waited for something; unread data may still be there.
    pub fn peer_closed(&self) -> bool {
        with(|inner| {
            inner.core.socks.get(self.0.key).is_some_and(|e| e.bits & bits::PEER_CLOSED != 0)
        })
    }

    /// Whether the driver reports what arrives now. Some drivers watch a socket only while a task
    /// waits for it.
    pub fn is_watched(&self) -> bool {
        with(|inner| inner.driver.watches(&mut inner.core, self.0.key))
    }

    /// Whether all that the driver has reported was received: bytes and the end. See
    /// [`Sock::is_watched`].
    pub fn is_silent(&self) -> bool {
        let told = bits::READ | bits::PEER_CLOSED;
        with(|inner| inner.core.socks.get(self.0.key).is_some_and(|e| e.bits & told == 0))
    }

    /// [`Sock::is_watched`] and [`Sock::is_silent`]: nothing has arrived that was not received.
    pub fn is_watched_and_silent(&self) -> bool {
        let told = bits::READ | bits::PEER_CLOSED;
        with(|inner| {
            inner.core.socks.get(self.0.key).is_some_and(|e| e.bits & told == 0)
                && inner.driver.watches(&mut inner.core, self.0.key)
        })
    }

    /// Ends the sending direction, after the posted bytes.
    pub fn shutdown_write(&self) -> io::Result<()> {
        with(|inner| match inner.core.socks.get(self.0.key) {
            Some(entry) if entry.out & out::POSTED != 0 => {
                entry.out |= out::LAST;
                Ok(())
            }
            _ => inner.driver.shutdown_write(self.0.key, self.fd()),
        })
    }

    /// Takes the socket out of the loop: its descriptor, for another process. No operation may be
    /// in progress on it.
    ///
    /// # Errors
    /// The system's: no more descriptors. The connection is closed then.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        // The driver closes its own descriptor when it is done with it.
        let fd = self.fd().try_clone_to_owned()?;
        with(|inner| inner.driver.parting(self.fd()));
        Ok(fd)
    }

    /// Takes the kernel's receives of this socket back, before its descriptor goes to another
    /// process: bytes that the kernel has put into a buffer of this process have to go with it, see
    /// [`Sock::take_received`]. No task may wait for the socket. It can be used on afterwards.
    ///
    /// # Errors
    /// `ResourceBusy` while a send is in progress; the error that the next operation would get.
    pub async fn withdraw(&self) -> io::Result<()> {
        loop {
            let withdrawn = with(|inner| {
                let Some(entry) = inner.core.socks.get(self.0.key) else {
                    return Err(io::ErrorKind::NotConnected.into());
                };
                if entry.out != 0 || entry.reader != NONE || entry.writer != NONE {
                    return Err(io::ErrorKind::ResourceBusy.into());
                }
                inner.driver.withdraw(self.0.key)
            })?;
            if withdrawn {
                return Ok(());
            }
            // The kernel reports the end of a receive that was cancelled in the next turn.
            next_turn().await;
        }
    }

    /// Takes the bytes that the driver has received and no task has taken yet: the next page of
    /// them. Makes no system call.
    pub fn take_received(&self) -> Option<mem::Page> {
        with(|inner| inner.driver.take_received(self.0.key))
    }

    /// The socket is another process's now, which has a duplicate of its descriptor: ends the
    /// kernel's reports to this one, which closing does not while the other process has it open.
    pub fn part(&self) {
        with(|inner| inner.driver.parting(self.fd()));
    }

    /// Closes the connection so that the peer sees a reset.
    pub fn reset(self) {
        self.reset_at_end();
    }

    /// The peer will see a reset when the connection is closed.
    pub fn reset_at_end(&self) {
        let _ = with(|inner| inner.driver.reset_on_close(self.0.key, self.fd()));
    }
}

impl std::fmt::Debug for Sock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sock").field(&self.fd()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_16_bytes() {
        assert_eq!((size_of::<Sock>(), size_of::<Option<Sock>>()), (16, 16));
    }
}
