//! Datagrams: receiving and sending them, one by one, joined, or in batches.

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use bytes::Bytes;
use os::SockAddr;
use os::datagram::{Batch, Received};

/// One datagram, or several joined by the kernel (UDP_GRO).
#[derive(Clone, Debug)]
pub struct Datagrams {
    /// The bytes of all datagrams.
    pub bytes: Bytes,
    /// The length of each except the last, which may be shorter; never 0.
    pub segment: usize,
}

impl Datagrams {
    fn of(bytes: &[u8], received: &Received) -> Datagrams {
        Datagrams { bytes: Bytes::copy_from_slice(bytes), segment: received.segment.max(1) }
    }

    /// The number of datagrams.
    pub fn count(&self) -> usize {
        count(self.bytes.len(), self.segment)
    }

    /// Splits into single datagrams.
    pub fn each(self) -> impl Iterator<Item = Bytes> {
        let (count, segment) = (self.count(), self.segment);
        let mut rest = self.bytes;
        // The last one takes the buffer itself, so that a single datagram is not shared.
        (1..=count).map(move |i| match i == count {
            true => std::mem::take(&mut rest),
            false => rest.split_to(segment),
        })
    }
}

/// The number of datagrams in `bytes` bytes, each `segment` long except the last.
pub(crate) fn count(bytes: usize, segment: usize) -> usize {
    bytes.div_ceil(segment.max(1)).max(1)
}

/// Identifies a client's session at an endpoint. Kept small, because every session has one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(super) ip: IpAddr,
    pub(super) port: u16,
    /// The local address, if the socket is bound to a wildcard.
    pub local: Option<IpAddr>,
}

impl Key {
    pub(super) fn of(peer: &SockAddr, local: Option<IpAddr>) -> Option<Key> {
        Some(Key { ip: peer.ip_addr()?, port: peer.port(), local })
    }

    /// The client's address.
    pub fn peer(&self) -> SockAddr {
        SockAddr::ip(self.ip, self.port)
    }
}

/// The maximum number of datagrams per call with UDP_SEGMENT (Linux's limit).
pub(super) const SEGMENTS_MAX: usize = 64;

/// The segment size for sending these datagrams in one call; `None` if one call cannot.
pub(super) fn joined(bytes: usize, segment: usize) -> Option<u16> {
    let several = (2..=SEGMENTS_MAX).contains(&count(bytes, segment));
    several.then(|| u16::try_from(segment).ok()).flatten()
}

/// The maximum number of joined bytes per call, and the maximum length of such datagrams: the
/// kernel rejects segments that would have to be fragmented on the route.
const JOINED_MAX: usize = 32768;
const JOINED_SEGMENT_MAX: usize = 1400;

/// Whether datagrams of `next_segment` bytes can be sent in one call after datagrams of `segment`
/// bytes: only the last one may be shorter.
pub(super) fn may_follow(bytes: usize, segment: usize, next: usize, next_segment: usize) -> bool {
    let is_even = bytes > 0 && bytes.is_multiple_of(segment) && segment <= JOINED_SEGMENT_MAX;
    let is_like = next_segment == segment || (next <= segment && count(next, next_segment) == 1);
    is_even
        && is_like
        // An empty datagram would vanish at the end of joined ones.
        && next > 0
        && bytes + next <= JOINED_MAX
        && count(bytes + next, segment) <= SEGMENTS_MAX
}

/// Sends datagrams of `segment` bytes each (the last may be shorter): in one call if the kernel
/// can, otherwise one by one.
///
/// # Errors
/// The system's.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    segment: usize,
    to: Option<&SockAddr>,
    from: Option<IpAddr>,
) -> io::Result<()> {
    if let Some(segment) = joined(bytes.len(), segment) {
        match os::datagram::send(fd, bytes, to, from, Some(segment)) {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(e),
            // Some routes and kernels cannot: send one by one.
            Err(_) => {}
        }
    }
    if bytes.is_empty() {
        os::datagram::send(fd, bytes, to, from, None)?;
    }
    for one in bytes.chunks(segment) {
        os::datagram::send(fd, one, to, from, None)?;
    }
    Ok(())
}

thread_local! {
    /// The buffer for batch receives of this worker. What is in it is taken before a task waits, so
    /// all tasks share it.
    static BATCH: RefCell<Option<Batch>> = const { RefCell::new(None) };
    /// The same for single receives.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The maximum size of a datagram, and of datagrams joined by the kernel.
const DATAGRAM_MAX: usize = 65536;

/// Receives the next datagrams from a connected socket and calls `take` with their bytes and the
/// length of each except the last; `None` if there are none. `may_join`: UDP_GRO is on. `take` must
/// not receive itself, because the buffer is in use.
///
/// # Errors
/// The system's.
pub(crate) fn receive<R>(
    fd: BorrowedFd<'_>,
    may_join: bool,
    take: impl FnOnce(&[u8], usize) -> R,
) -> io::Result<Option<R>> {
    receive_with(|buffer| {
        let (len, segment) = match may_join {
            true => os::datagram::recv(fd, buffer).map(|got| (got.len, got.segment))?,
            false => os::socket::recv(fd, buffer).map(|len| (len, len))?,
        };
        Ok(take(buffer.get(..len).unwrap_or_default(), segment.max(1)))
    })
}

/// Receives the next datagrams and their sender.
pub(super) fn receive_from(fd: BorrowedFd<'_>) -> io::Result<Option<(Datagrams, Received)>> {
    receive_with(|buffer| {
        let received = os::datagram::recv(fd, buffer)?;
        let bytes = buffer.get(..received.len).unwrap_or_default();
        Ok((Datagrams::of(bytes, &received), received))
    })
}

fn receive_with<R>(call: impl FnOnce(&mut [u8]) -> io::Result<R>) -> io::Result<Option<R>> {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            *buffer = os::memory::zeros(DATAGRAM_MAX)?;
        }
        match call(buffer) {
            Ok(result) => Ok(Some(result)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    })
}

/// Receives a batch of datagrams with their senders in one call; false if no more are queued.
///
/// # Errors
/// The system's.
pub(super) fn receive_batch(
    fd: BorrowedFd<'_>,
    came: &mut Vec<(Key, Datagrams)>,
) -> io::Result<bool> {
    BATCH.with_borrow_mut(|batch| {
        let batch = match batch {
            Some(batch) => batch,
            None => batch.insert(Batch::new(DATAGRAM_MAX)?),
        };
        let n = match batch.recv(fd) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(e),
        };
        came.extend(batch.iter().filter_map(|(received, bytes)| {
            let key = Key::of(received.from.as_ref()?, received.to)?;
            Some((key, Datagrams::of(bytes, received)))
        }));
        Ok(n == os::datagram::RECV_MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_one_length_follow_each_other() {
        assert!(may_follow(2, 2, 2, 2) && may_follow(4, 2, 1, 1) && may_follow(2, 2, 5, 2));
        let shorter_before = may_follow(3, 2, 2, 2);
        let longer = may_follow(2, 2, 3, 3) || may_follow(2, 2, 6, 3);
        let shorter = may_follow(3, 3, 4, 2);
        let empty = may_follow(2, 2, 0, 0) || may_follow(0, 1, 1, 1) || may_follow(0, 1, 0, 0);
        let too_long = may_follow(1500, 1500, 1500, 1500);
        let too_many = may_follow(64, 1, 1, 1) || may_follow(1, 1, 64, 1);
        assert!(!(shorter_before || longer || shorter || empty || too_long || too_many));
        assert!(may_follow(63, 1, 1, 1) && !may_follow(32_000, 1000, 1000, 1000));
    }

    #[test]
    fn datagrams_are_counted_and_parted() {
        let parts = |text: &'static str, segment| {
            let all = Datagrams { bytes: Bytes::from_static(text.as_bytes()), segment };
            let count = all.count();
            let each: Vec<_> = all.each().map(|b| String::from_utf8(b.to_vec()).unwrap()).collect();
            assert_eq!(each.len(), count);
            each
        };
        assert_eq!(parts("aabbc", 2), ["aa", "bb", "c"]);
        assert_eq!(parts("aabb", 2), ["aa", "bb"]);
        assert_eq!(parts("a", 9), ["a"]);
        assert_eq!(parts("", 1), [""], "an empty one is one");
    }
}
