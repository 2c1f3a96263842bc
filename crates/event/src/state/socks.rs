//! The table of sockets: the driver's knowledge about each.

use std::net::IpAddr;

use super::clients::Clients;
use super::index::NONE;

/// The readiness that a wait is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
    /// The peer's end of sending; takes the reader's place.
    PeerClosed,
}

impl Direction {
    pub(crate) fn bit(self) -> u8 {
        match self {
            Direction::Read => bits::READ,
            Direction::Write => bits::WRITE,
            Direction::PeerClosed => bits::PEER_CLOSED,
        }
    }
}

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
    pub(crate) fn holds_open(&self, behind: bool) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_connection_costs_in_the_table() {
        assert_eq!(size_of::<SockEntry>(), 16);
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
