//! Sessions over UDP.
//!
//! ```text
//!  socket ─▶ endpoint ─(client, local address)─▶ inbox ─▶ session's relay ─▶ server's socket
//!     ▲                                                        │
//!     └────────────────────── answers ◀────────────────────────┘
//! ```
//!
//! A session begins with a datagram of a client that has none, and is found by the client's address
//! and the local one from then on. Its phases are a task; where the proxy serves it, it is an entry
//! of the worker's [`table`] from there on, and the task is gone.

mod client;
pub(crate) mod endpoint;
mod inbox;
mod own_socket;
pub(crate) mod sessions;
pub(crate) mod table;
mod timers;

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use bytes::Bytes;
use os::SockAddr;
use os::datagram::Received;

pub use self::client::{Client, Held};

/// One datagram, or several of one length that came together.
#[derive(Clone, Debug)]
pub struct Datagrams {
    /// Their bytes.
    pub bytes: Bytes,
    /// The length of each but the last one; never 0.
    pub segment: usize,
}

impl Datagrams {
    /// A single one.
    pub fn single(bytes: Bytes) -> Datagrams {
        let segment = bytes.len().max(1);
        Datagrams { bytes, segment }
    }

    /// Their number.
    pub fn count(&self) -> u64 {
        (self.bytes.len().div_ceil(self.segment)).max(1) as u64
    }

    /// Each by itself.
    pub fn each(&self) -> impl Iterator<Item = Bytes> + '_ {
        let starts = (0..self.count() as usize).map(|i| i * self.segment);
        starts.map(|at| self.bytes.slice(at..self.bytes.len().min(at + self.segment)))
    }
}

/// The client of a session, as one of an endpoint's. Every session keeps it: it is small.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    ip: IpAddr,
    port: u16,
    /// The local address, where the socket has several.
    pub local: Option<IpAddr>,
}

impl Key {
    fn of(peer: &SockAddr, local: Option<IpAddr>) -> Option<Key> {
        Some(Key { ip: peer.ip_addr()?, port: peer.port(), local })
    }

    /// The address that its datagrams come from.
    pub fn peer(&self) -> SockAddr {
        SockAddr::ip(self.ip, self.port)
    }
}

/// Sends datagrams: several of one length in one call where the kernel can, else one by one.
///
/// # Errors
/// The system's.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    datagrams: &Datagrams,
    to: Option<&SockAddr>,
    from: Option<IpAddr>,
) -> io::Result<()> {
    /// The most datagrams of one call, as Linux has it for `UDP_SEGMENT`.
    const SEGMENTS_MAX: u64 = 64;
    let segment = u16::try_from(datagrams.segment).ok();
    if datagrams.count() > 1 && datagrams.count() <= SEGMENTS_MAX && segment.is_some() {
        match os::datagram::send(fd, &datagrams.bytes, to, from, segment) {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(e),
            // Not every route and kernel can: one by one, then.
            Err(_) => {}
        }
    }
    for one in datagrams.each() {
        os::datagram::send(fd, &one, to, from, None)?;
    }
    Ok(())
}

thread_local! {
    /// The buffer of all receives of a worker: nothing is in it over a wait.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The longest datagram, and the most that the kernel joins.
const DATAGRAM_MAX: usize = 65536;

/// The next datagrams of a socket, if there are some.
///
/// # Errors
/// The system's.
pub(crate) fn receive(fd: BorrowedFd<'_>) -> io::Result<Option<Datagrams>> {
    Ok(receive_from(fd)?.map(|(datagrams, _)| datagrams))
}

/// The same with whose they are.
fn receive_to(fd: BorrowedFd<'_>) -> io::Result<Option<(Datagrams, Key)>> {
    let received = receive_from(fd)?;
    Ok(received.and_then(|(datagrams, received)| {
        Some((datagrams, Key::of(&received.from?, received.to)?))
    }))
}

fn receive_from(fd: BorrowedFd<'_>) -> io::Result<Option<(Datagrams, Received)>> {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            *buffer = os::memory::zeros(DATAGRAM_MAX)?;
        }
        match os::datagram::recv(fd, buffer) {
            Ok(received) => {
                let bytes = Bytes::copy_from_slice(buffer.get(..received.len).unwrap_or(&[]));
                let segment = received.segment.max(1);
                Ok(Some((Datagrams { bytes, segment }, received)))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_counted_and_parted() {
        let parts = |text: &'static str, segment| {
            let all = Datagrams { bytes: Bytes::from_static(text.as_bytes()), segment };
            let each: Vec<_> = all.each().map(|b| String::from_utf8(b.to_vec()).unwrap()).collect();
            assert_eq!(each.len() as u64, all.count());
            each
        };
        assert_eq!(parts("aabbc", 2), ["aa", "bb", "c"]);
        assert_eq!(parts("aabb", 2), ["aa", "bb"]);
        assert_eq!(parts("a", 9), ["a"]);
        assert_eq!(Datagrams::single(Bytes::new()).each().count(), 1, "an empty one is one");
    }
}
