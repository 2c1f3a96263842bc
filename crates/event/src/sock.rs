//! Sockets of the loop, and the table of the driver's knowledge about each.

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use base::log::Level;

use crate::driver::Arm;
use crate::op::Direction;
use crate::runtime::clients::Clients;
use crate::runtime::slot::{NONE, SlotState};
use crate::runtime::turn::{Core, Shortage, try_with, with};

/// Operations that would not block, as far as known: set by the kernel's reports, cleared when an
/// attempt comes back short.
pub(crate) mod bits {
    pub(crate) const READ: u8 = 1;
    pub(crate) const WRITE: u8 = 2;
    /// The peer will send no more, or the connection is broken.
    pub(crate) const PEER_CLOSED: u8 = 4;
    /// The driver reports readability.
    pub(crate) const ARMED_READ: u8 = 8;
    /// The driver reports writability.
    pub(crate) const ARMED_WRITE: u8 = 16;
    /// The reader waits for the peer to close, not for data.
    pub(crate) const READER_FOR_CLOSE: u8 = 32;
    /// The connection was accepted: it is a client's.
    pub(crate) const ACCEPTED: u8 = 64;
    /// It was told to close, so that there is room for others.
    pub(crate) const DISPLACED: u8 = 128;
}

/// The state of a socket's posted sends.
pub(crate) mod out {
    /// One is on its way.
    pub(crate) const POSTED: u8 = 1;
    /// The last one failed: the connection is of no more use.
    pub(crate) const BROKEN: u8 = 2;
    /// Nothing is sent after it.
    pub(crate) const LAST: u8 = 4;
}

/// The contents of a table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SockKind {
    Vacant,
    Connection,
    /// A connection without a socket: see [`crate::socketless`].
    Socketless,
    Listener,
    /// A descriptor that is no connection: an eventfd, a signalfd, a datagram socket.
    Other,
    /// The same, of a set: `reader` has the set, and `writer` the tag.
    Member,
}

impl SockKind {
    /// Whether it counts as a connection.
    pub(crate) fn is_connection(self) -> bool {
        matches!(self, SockKind::Connection | SockKind::Socketless)
    }
}

/// Names an entry for as long as one socket has it. It is also the driver's token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SockKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl SockKey {
    pub(crate) fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_token(token: u64) -> SockKey {
        SockKey { index: token as u32, generation: (token >> 32) as u32 }
    }
}

/// The driver's knowledge about a socket.
pub(crate) struct SockEntry {
    generation: u32,
    /// The slot that waits to read, or `NONE`. In a vacant place: the next vacant one.
    pub(crate) reader: u32,
    /// The slot that waits to write, or `NONE`.
    pub(crate) writer: u32,
    pub(crate) bits: u8,
    pub(crate) kind: SockKind,
    /// Operations of the socket that are with the driver.
    pub(crate) flights: u8,
    /// See [`out`].
    pub(crate) out: u8,
}

impl SockEntry {
    const VACANT: SockEntry = SockEntry {
        generation: 0,
        reader: NONE,
        writer: NONE,
        bits: 0,
        kind: SockKind::Vacant,
        flights: 0,
        out: 0,
    };

    /// Whether the driver's operations need the descriptor to stay open. `behind`: the driver
    /// closes it in its turn, after a posted send.
    fn holds_open(&self, behind: bool) -> bool {
        match self.flights {
            0 => false,
            1 => !(behind && self.out & out::POSTED != 0),
            _ => true,
        }
    }

    /// The slot that waits in `direction`, or `NONE`.
    pub(crate) fn waiter(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Write => self.writer,
            Direction::Read | Direction::PeerClosed => self.reader,
        }
    }
}

/// The sockets of a loop.
pub(crate) struct Socks {
    list: Vec<SockEntry>,
    pub(crate) clients: Clients,
    free: u32,
    connections: usize,
    /// Those of them that have no socket.
    socketless: usize,
}

impl Socks {
    pub(crate) fn new() -> Socks {
        Socks {
            list: Vec::new(),
            clients: Clients::new(),
            free: NONE,
            connections: 0,
            socketless: 0,
        }
    }

    pub(crate) fn insert(&mut self, kind: SockKind, bits: u8) -> SockKey {
        let index = match self.free {
            NONE => {
                self.list.push(SockEntry::VACANT);
                self.clients.add_place();
                (self.list.len() - 1) as u32
            }
            index => {
                self.free = self.list[index as usize].reader;
                index
            }
        };
        self.connections += usize::from(kind.is_connection());
        self.socketless += usize::from(kind == SockKind::Socketless);
        let entry = &mut self.list[index as usize];
        (entry.reader, entry.writer, entry.bits, entry.kind) = (NONE, NONE, bits, kind);
        (entry.flights, entry.out) = (0, 0);
        SockKey { index, generation: entry.generation }
    }

    /// Frees an entry; from then on events for it are stale.
    pub(crate) fn remove(&mut self, key: SockKey) {
        let next = self.free;
        let Some(entry) = self.get(key) else { return };
        let kind = std::mem::replace(&mut entry.kind, SockKind::Vacant);
        entry.generation = entry.generation.wrapping_add(1);
        entry.reader = next;
        self.free = key.index;
        self.connections -= usize::from(kind.is_connection());
        self.socketless -= usize::from(kind == SockKind::Socketless);
        self.clients.clear(key.index);
    }

    /// The entry of `key`, unless its socket is closed.
    #[inline]
    pub(crate) fn get(&mut self, key: SockKey) -> Option<&mut SockEntry> {
        self.list
            .get_mut(key.index as usize)
            .filter(|entry| entry.generation == key.generation && entry.kind != SockKind::Vacant)
    }

    /// The slot `slot` does not wait for the socket at `index` any longer.
    pub(crate) fn forget_waiter(&mut self, index: u32, slot: u32) {
        if let Some(entry) = self.list.get_mut(index as usize)
            && entry.kind != SockKind::Vacant
        {
            if entry.reader == slot {
                entry.reader = NONE;
                entry.bits &= !bits::READER_FOR_CLOSE;
            }
            if entry.writer == slot {
                entry.writer = NONE;
            }
        }
    }

    /// Names the client whose connection this is.
    pub(crate) fn set_client(&mut self, key: SockKey, block: IpAddr) {
        if self.get(key).is_some() {
            self.clients.set(key.index, block);
        }
    }

    /// The key of the socket that has the place `index` now.
    pub(crate) fn key_at(&self, index: u32) -> SockKey {
        let generation = self.list.get(index as usize).map_or(0, |entry| entry.generation);
        SockKey { index, generation }
    }

    /// All places, vacant ones included.
    pub(crate) fn all(&self) -> &[SockEntry] {
        &self.list
    }

    /// Connections among the sockets, and those without one.
    pub(crate) fn connections(&self) -> usize {
        self.connections
    }

    /// Connections that have a descriptor.
    pub(crate) fn with_descriptor(&self) -> usize {
        self.connections - self.socketless
    }
}

impl Core {
    /// Makes `slot` the one that waits for `key` in `direction`.
    pub(crate) fn set_waiter(&mut self, key: SockKey, direction: Direction, slot: u32) {
        let Some(entry) = self.socks.get(key) else { return };
        match direction {
            Direction::Write => entry.writer = slot,
            Direction::Read => entry.reader = slot,
            Direction::PeerClosed => {
                entry.reader = slot;
                entry.bits |= bits::READER_FOR_CLOSE;
            }
        }
    }

    /// Records the driver's report for `key`, and completes the operations that waited for it.
    pub(crate) fn apply(&mut self, key: SockKey, ready: u8) {
        let Some(entry) = self.socks.get(key) else { return };
        let (reader, writer) = (entry.reader, entry.writer);
        if entry.kind == SockKind::Member {
            return self.sets.report(&mut self.slots, &mut self.tasks, reader, writer);
        }
        entry.bits |= ready;
        let wanted = match entry.bits & bits::READER_FOR_CLOSE {
            0 => bits::READ,
            _ => bits::PEER_CLOSED,
        };
        if ready & wanted != 0 && reader != NONE {
            self.slots.complete(&mut self.tasks, reader, SlotState::Ready);
        }
        if ready & bits::WRITE != 0 && writer != NONE {
            self.slots.complete(&mut self.tasks, writer, SlotState::Ready);
        }
    }
}

/// A descriptor with its place in the table; closes through the driver.
#[derive(Debug)]
pub(crate) struct Registered {
    /// `None` only while it is being dropped.
    fd: Option<OwnedFd>,
    pub(crate) key: SockKey,
    kind: SockKind,
    /// See [`Sock::set_cork`].
    pub(crate) cork: Cell<bool>,
    /// Memory waits for the end of the connection: see [`Sock::send_last`].
    pub(crate) ends: Cell<bool>,
}

impl Registered {
    pub(crate) fn new(fd: OwnedFd, kind: SockKind, bits: u8) -> Registered {
        let key = with(|inner| {
            let key = inner.core.socks.insert(kind, bits);
            inner.driver.opened(key, fd.as_fd(), kind);
            key
        });
        Registered { fd: Some(fd), key, kind, cork: Cell::new(false), ends: Cell::new(false) }
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
            crate::runtime::turn::descriptor_closed();
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
            crate::task::next_turn().await;
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

#[cold]
pub(crate) fn log_shortage(shortage: Shortage) {
    let (max, what) = match shortage {
        Shortage::Connections(max) => (max, "worker_connections"),
        Shortage::Descriptors(max) => (max, "open files"),
    };
    let log = base::log::default();
    base::log!(log, Level::Warn, None, "{max} {what} are not enough, reusing connections");
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
    fn what_a_connection_costs_in_the_table() {
        assert_eq!(size_of::<SockEntry>(), 16);
        assert_eq!((size_of::<Sock>(), size_of::<Option<Sock>>()), (16, 16));
    }

    #[test]
    fn stale_keys_find_nothing() {
        let mut socks = Socks::new();
        let old = socks.insert(SockKind::Connection, bits::READ);
        socks.remove(old);
        socks.remove(old);
        let new = socks.insert(SockKind::Other, 0);
        assert_eq!(old.index, new.index);
        assert!(socks.get(old).is_none());
        assert!(socks.get(SockKey::from_token(new.token())).is_some());
        assert_eq!(socks.connections(), 0);
    }
}
