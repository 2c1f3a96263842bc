//! Datagrams that leave together: those of one turn, in as few calls as there can be.

use std::io;
use std::os::fd::BorrowedFd;

use os::SockAddr;
use os::datagram::{self, Outgoing, SEND_MAX};
use quinn_proto::Transmit;

/// The most datagrams of one length in one call, and their bytes: what the kernel takes for one
/// datagram with `UDP_SEGMENT`.
pub(crate) const SEGMENTS_MAX: usize = 44;

/// Buffers that are kept.
const KEPT: usize = SEND_MAX;

/// Datagrams of one length to one client.
struct Parcel {
    bytes: Vec<u8>,
    sent: Transmit,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Outbox {
    parcels: Vec<Parcel>,
    /// The number of them that were sent.
    done: usize,
    free: Vec<Vec<u8>>,
}

impl Outbox {
    /// A buffer for the next datagrams.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_default()
    }

    /// A buffer came to no use.
    pub fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.free.len() < KEPT {
            buffer.clear();
            self.free.push(buffer);
        }
    }

    pub fn push(&mut self, bytes: Vec<u8>, sent: Transmit) {
        self.parcels.push(Parcel { bytes, sent });
    }

    /// Whether it is to be sent before there is more.
    pub fn is_full(&self) -> bool {
        self.parcels.len() >= SEND_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }

    /// Sends everything that the kernel takes now.
    ///
    /// # Errors
    /// `WouldBlock` where some is left. What cannot be sent for other reasons is lost, as it might
    /// be on its way.
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
                    let singly = rest.first().map_or(Ok(()), |first| send_singly(fd, first));
                    match singly {
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(e),
                        _ => self.done += 1,
                    }
                }
            }
        }
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

/// Sends datagrams one by one: not every route can send several at once.
fn send_singly(fd: BorrowedFd<'_>, parcel: &Parcel) -> io::Result<()> {
    let all = parcel.outgoing();
    let Some(segment) = all.segment else { return Ok(()) };
    for bytes in all.bytes.chunks(usize::from(segment)) {
        datagram::send_one(fd, &Outgoing { bytes, segment: None, ..all.clone() })?;
    }
    Ok(())
}
