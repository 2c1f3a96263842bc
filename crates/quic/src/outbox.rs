//! The outgoing datagrams of one event loop turn, sent in as few system calls as possible.

use std::io;
use std::os::fd::BorrowedFd;

use os::SockAddr;
use os::datagram::{self, Outgoing, SEND_MAX};
use quinn_proto::Transmit;

/// The maximum number of equal-sized datagrams in one UDP_SEGMENT send: the kernel treats their
/// total as the payload of one datagram, which limits it to 64 KB.
pub(crate) const SEGMENTS_MAX: usize = 44;

/// The maximum number of buffers kept for reuse.
const KEPT: usize = SEND_MAX;

/// Datagrams of equal size to one client, sent by one call.
struct Parcel {
    bytes: Vec<u8>,
    sent: Transmit,
}

/// The queue of outgoing datagrams; see the module.
#[derive(Default)]
pub(crate) struct Outbox {
    parcels: Vec<Parcel>,
    /// The number of parcels, from the front, that were sent already.
    done: usize,
    free: Vec<Vec<u8>>,
}

impl Outbox {
    /// Returns an empty buffer, reused if possible, for the next [`Outbox::push`].
    pub fn buffer(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_default()
    }

    /// Takes back an unused buffer.
    pub fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.free.len() < KEPT {
            buffer.clear();
            self.free.push(buffer);
        }
    }

    pub fn push(&mut self, bytes: Vec<u8>, sent: Transmit) {
        self.parcels.push(Parcel { bytes, sent });
    }

    /// Whether to flush before pushing more: a batch is full.
    pub fn is_full(&self) -> bool {
        self.parcels.len() >= SEND_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }

    /// Sends as many parcels as the kernel accepts without blocking.
    ///
    /// # Errors
    /// `WouldBlock` if some are left; call it again when the socket is writable. A parcel that
    /// cannot be sent for another reason is dropped, as if the network had lost it.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        while let Some(rest) = self.parcels.get(self.done..).filter(|rest| !rest.is_empty()) {
            let sent = match rest {
                [one] => datagram::send_one(fd, &one.outgoing()).map(|_| 1),
                several => datagram::send_batch(fd, several.iter().map(Parcel::outgoing)),
            };
            match sent {
                Ok(n) => self.done += n.max(1),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(e),
                Err(_) => {
                    // The error is about the first unsent parcel: try it without segmentation, then
                    // skip it.
                    let singly = rest.first().map_or(Ok(()), |first| send_singly(fd, first));
                    match singly {
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(e),
                        _ => self.done += 1,
                    }
                }
            }
        }
        // All sent: keeps the buffers for the next turn.
        self.done = 0;
        while let Some(Parcel { bytes, .. }) = self.parcels.pop() {
            self.give_back(bytes);
        }
        Ok(())
    }
}

impl Parcel {
    fn outgoing(&self) -> Outgoing<'_> {
        let Transmit { destination, size, segment_size, src_ip, ecn } = &self.sent;
        Outgoing {
            bytes: self.bytes.get(..*size).unwrap_or_default(),
            to: SockAddr::from(*destination),
            from: *src_ip,
            segment: segment_size.and_then(|size| u16::try_from(size).ok()),
            ecn: ecn.map_or(0, |ecn| ecn as u8),
        }
    }
}

/// Sends the datagrams of a parcel one by one, because segmentation offload fails on some routes.
fn send_singly(fd: BorrowedFd<'_>, parcel: &Parcel) -> io::Result<()> {
    let all = parcel.outgoing();
    let Some(segment) = all.segment else { return Ok(()) };
    for bytes in all.bytes.chunks(usize::from(segment)) {
        datagram::send_one(fd, &Outgoing { bytes, segment: None, ..all.clone() })?;
    }
    Ok(())
}
