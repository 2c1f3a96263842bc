//! Several datagrams in one call: received into room that is used again, or sent from one socket
//! to many addresses.

use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use super::control::{Control, Extras, read_control, write_control};
use super::{Received, address, raw_address};
use crate::SockAddr;
use crate::memory;

/// The most datagrams of one call to [`Batch::recv`].
pub const RECV_MAX: usize = 32;

/// The most datagrams of one call to [`send_batch`].
pub const SEND_MAX: usize = 32;

/// Room for the datagrams of one call. The memory of bytes that were never received is never
/// touched: a batch of short datagrams costs a page for each.
pub struct Batch {
    /// [`RECV_MAX`] parts of `part` bytes, of which the kernel has written those in `received`.
    bytes: Vec<u8>,
    part: usize,
    received: Vec<Received>,
}

impl Batch {
    /// Room for datagrams of up to `part` bytes: what is longer is cut off.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(part: usize) -> io::Result<Batch> {
        let mut bytes = Vec::new();
        memory::reserve_exact(&mut bytes, RECV_MAX * part)?;
        Ok(Batch { bytes, part, received: Vec::with_capacity(RECV_MAX) })
    }

    /// Receives what waits, up to [`RECV_MAX`] datagrams in place of those before; gives their
    /// number, which is never 0. Fewer than `RECV_MAX` of them were all that waited, unless an
    /// error came with the next.
    ///
    /// # Errors
    /// The system's, of the first one. The error of a later one is that of the next call.
    pub fn recv(&mut self, fd: impl AsFd) -> io::Result<usize> {
        self.received.clear();
        // SAFETY: plain integers, for which all zeroes is a value.
        let mut names: [libc::sockaddr_in6; RECV_MAX] = unsafe { std::mem::zeroed() };
        let mut controls = [const { MaybeUninit::<Control>::uninit() }; RECV_MAX];
        // SAFETY: plain integers and pointers, for which all zeroes is a value.
        let mut parts: [libc::iovec; RECV_MAX] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; RECV_MAX] = unsafe { std::mem::zeroed() };
        let places = self.bytes.spare_capacity_mut().chunks_exact_mut(self.part);
        for (part, place) in parts.iter_mut().zip(places) {
            part.iov_base = place.as_mut_ptr().cast();
            part.iov_len = self.part;
        }
        let rooms = names.iter_mut().zip(&mut controls).zip(&mut parts);
        for (message, ((name, control), part)) in messages.iter_mut().zip(rooms) {
            let head = &mut message.msg_hdr;
            head.msg_name = (&raw mut *name).cast();
            head.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            head.msg_iov = part;
            head.msg_iovlen = 1;
            head.msg_control = control.as_mut_ptr().cast();
            head.msg_controllen = Control::LEN as _;
        }
        // SAFETY: every pointer in `messages` leads to memory of this function or to the spare
        // capacity of `bytes`, with its length beside it, and the kernel keeps none of them after
        // the call.
        let n = unsafe {
            let (messages, count) = (messages.as_mut_ptr(), RECV_MAX as u32);
            libc::recvmmsg(fd.as_fd().as_raw_fd(), messages, count, 0, std::ptr::null_mut())
        };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        for (message, name) in messages.iter().zip(&names).take(n) {
            let len = (message.msg_len as usize).min(self.part);
            let mut received = Received { len, segment: len, from: None, to: None, ecn: 0 };
            if message.msg_hdr.msg_namelen > 0 {
                received.from = address(name);
            }
            read_control(&message.msg_hdr, &mut received);
            self.received.push(received);
        }
        Ok(n)
    }

    /// The datagrams of the last call, with their bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&Received, &[u8])> {
        self.received.iter().enumerate().map(|(i, received)| {
            // SAFETY: the part lies in the capacity of `bytes`, as there are at most `RECV_MAX`
            // entries in `received`; the kernel has written its first `len` bytes, of at most
            // `part`.
            let bytes = unsafe {
                std::slice::from_raw_parts(self.bytes.as_ptr().add(i * self.part), received.len)
            };
            (received, bytes)
        })
    }
}

/// A datagram to send, or several of one length.
#[derive(Clone)]
pub struct Outgoing<'a> {
    /// Their bytes.
    pub bytes: &'a [u8],
    /// The receiver.
    pub to: SockAddr,
    /// The local address, where the socket has several.
    pub from: Option<IpAddr>,
    /// As datagrams of this length, of which the last one may be shorter.
    pub segment: Option<u16>,
    /// The bits of explicit congestion notification; 0: it is not used.
    pub ecn: u8,
}

impl Outgoing<'_> {
    pub(super) fn extras(&self) -> Extras {
        Extras { from: self.from, segment: self.segment, ecn: self.ecn }
    }
}

/// Sends the first of some datagrams, up to [`SEND_MAX`] in one call; gives the number that was
/// sent, which is not 0 unless there are none.
///
/// # Errors
/// The system's, of the first one: a later one's is that of the next call. `Unsupported` where one
/// has an address that is not of IP.
pub fn send_batch<'a>(
    fd: impl AsFd,
    all: impl IntoIterator<Item = Outgoing<'a>>,
) -> io::Result<usize> {
    // SAFETY: plain integers, for which all zeroes is a value.
    let mut names: [libc::sockaddr_in6; SEND_MAX] = unsafe { std::mem::zeroed() };
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; SEND_MAX];
    // SAFETY: plain integers and pointers, for which all zeroes is a value.
    let mut parts: [libc::iovec; SEND_MAX] = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut messages: [libc::mmsghdr; SEND_MAX] = unsafe { std::mem::zeroed() };
    let rooms = names.iter_mut().zip(&mut controls).zip(&mut parts);
    let mut count = 0;
    for ((message, ((name, control), part)), one) in messages.iter_mut().zip(rooms).zip(all) {
        let head = &mut message.msg_hdr;
        (*name, head.msg_namelen) = raw_address(&one.to)?;
        head.msg_name = (&raw mut *name).cast();
        part.iov_base = one.bytes.as_ptr().cast_mut().cast();
        part.iov_len = one.bytes.len();
        head.msg_iov = part;
        head.msg_iovlen = 1;
        let extras = one.extras();
        if !extras.is_empty() {
            let control = control.write(Control::EMPTY);
            head.msg_controllen = write_control(control, Some(&one.to), extras) as _;
            head.msg_control = (&raw mut *control).cast();
        }
        count += 1;
    }
    if count == 0 {
        return Ok(0);
    }
    // SAFETY: every pointer in the first `count` messages leads to memory of this function or of
    // `all`, with its length beside it; the kernel only reads the latter, and keeps none of them
    // after the call.
    let n = unsafe {
        let messages = messages.as_mut_ptr();
        libc::sendmmsg(fd.as_fd().as_raw_fd(), messages, count, libc::MSG_NOSIGNAL)
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{LONG, bound};
    use super::super::{recv, send, set_join, set_packet_info};
    use super::*;
    use crate::fd::wait_readable;
    use std::os::fd::OwnedFd;

    /// What waits now: the bytes and the length of a segment of each.
    fn all(batch: &mut Batch, fd: &OwnedFd) -> Vec<(Vec<u8>, usize)> {
        assert!(wait_readable(fd, LONG), "nothing came");
        let n = batch.recv(fd).unwrap();
        let all: Vec<_> = batch.iter().map(|(r, bytes)| (bytes.to_vec(), r.segment)).collect();
        assert_eq!(n, all.len());
        all
    }

    #[test]
    fn datagrams_come_in_their_order_with_empty_ones_among_them() {
        let (server, at) = bound(b"127.0.0.1:0");
        let clients = [0; 3].map(|_| bound(b"127.0.0.1:0"));
        let mut batch = Batch::new(100).unwrap();
        let texts: [&[u8]; 6] = [b"one", b"", b"three", b"", b"", b"six"];
        for (text, (client, _)) in texts.iter().zip(clients.iter().cycle()) {
            send(client, text, Some(&at), None, None).unwrap();
        }
        let came = all(&mut batch, &server);
        assert_eq!(came.iter().map(|(bytes, _)| &bytes[..]).collect::<Vec<_>>(), texts);
        for (i, (received, _)) in batch.iter().enumerate() {
            assert_eq!((received.from.as_ref(), &received.to), (Some(&clients[i % 3].1), &None));
        }
        let nothing = batch.recv(&server).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(batch.iter().count(), 0, "those before are gone");
    }

    #[test]
    fn a_batch_is_limited_in_both_directions() {
        let (server, at) = bound(b"127.0.0.1:0");
        let (client, _) = bound(b"127.0.0.1:0");
        let texts: Vec<_> = (0..RECV_MAX as u8 + 3).map(|i| [i; 2]).collect();
        for text in &texts {
            send(&client, text, Some(&at), None, None).unwrap();
        }
        // What does not fit is cut off, and disturbs none of the others.
        send(&client, &[9; 30], Some(&at), None, None).unwrap();
        let mut batch = Batch::new(20).unwrap();
        let mut came = all(&mut batch, &server);
        assert_eq!(came.len(), RECV_MAX);
        came.extend(all(&mut batch, &server));
        let (long, short) = came.split_last().unwrap();
        assert!(short.iter().map(|(bytes, _)| &bytes[..]).eq(texts.iter().map(|text| &text[..])));
        assert_eq!(long, &(vec![9; 20], 20));
    }

    #[test]
    fn local_addresses_and_joined_datagrams_are_seen() {
        let (server, at) = bound(b"0.0.0.0:0");
        set_packet_info(&server, false).unwrap();
        set_join(&server).unwrap();
        let (client, _) = bound(b"127.0.0.1:0");
        let to = |last: u8| SockAddr::ip([127, 0, 0, last].into(), at.port());
        send(&client, b"aabbc", Some(&to(2)), None, Some(2)).unwrap();
        send(&client, b"x", Some(&to(3)), None, None).unwrap();
        send(&client, b"yyz", Some(&to(4)), None, Some(2)).unwrap();
        let mut batch = Batch::new(100).unwrap();
        let came = all(&mut batch, &server);
        let wanted = [(b"aabbc".to_vec(), 2), (b"x".to_vec(), 1), (b"yyz".to_vec(), 2)];
        assert_eq!(came, wanted);
        let locals: Vec<_> = batch.iter().map(|(received, _)| received.to).collect();
        assert_eq!(locals, [2, 3, 4].map(|last| to(last).ip_addr()));
    }

    #[test]
    fn errors_come_with_the_call_behind_the_datagrams_before_them() {
        let (client, _) = bound(b"127.0.0.1:0");
        let (gone, at) = bound(b"127.0.0.1:0");
        crate::socket::connect(&client, &at).unwrap();
        drop(gone);
        send(&client, b"nobody", None, None, None).unwrap();
        let mut batch = Batch::new(9).unwrap();
        assert!(wait_readable(&client, LONG), "no error came");
        let refused = batch.recv(&client).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn one_call_sends_to_many() {
        let (server, at) = bound(b"0.0.0.0:0");
        let clients = [0; 3].map(|_| bound(b"127.0.0.1:0"));
        let from = Some(IpAddr::from([127, 0, 0, 7]));
        let to = |i: usize| clients[i].1.clone();
        let all = [
            Outgoing { bytes: b"one", to: to(0), from: None, segment: None, ecn: 0 },
            Outgoing { bytes: b"", to: to(1), from, segment: None, ecn: 0 },
            Outgoing { bytes: b"aabbc", to: to(2), from, segment: Some(2), ecn: 0 },
            Outgoing { bytes: b"four", to: to(0), from, segment: None, ecn: 0 },
        ];
        assert_eq!(send_batch(&server, all).unwrap(), 4);
        let got = |i: usize| {
            let mut buf = [0; 9];
            let got = recv(&clients[i].0, &mut buf).unwrap();
            (String::from_utf8_lossy(&buf[..got.len]).into_owned(), got.from)
        };
        let other = from.map(|ip| SockAddr::ip(ip, at.port()));
        assert_eq!(got(0).0, "one");
        assert_eq!(got(0), ("four".to_owned(), other.clone()));
        assert_eq!(got(1), (String::new(), other.clone()));
        for part in ["aa", "bb", "c"] {
            assert_eq!(got(2), (part.to_owned(), other.clone()));
        }
        assert_eq!(send_batch(&server, []).unwrap(), 0);
    }

    /// One that cannot be sent ends the call before it, and fails with the next.
    #[test]
    fn an_error_is_that_of_the_first() {
        let (server, _) = bound(b"127.0.0.1:0");
        let (client, to) = bound(b"127.0.0.1:0");
        let long = vec![0; 70_000];
        let one = Outgoing { bytes: b"x", to, from: None, segment: None, ecn: 0 };
        let all = [one.clone(), Outgoing { bytes: &long, ..one.clone() }, one.clone()];
        assert_eq!(send_batch(&server, all.clone()).unwrap(), 1);
        let e = send_batch(&server, all[1..].to_vec()).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EMSGSIZE));
        assert_eq!(send_batch(&server, all[2..].to_vec()).unwrap(), 1);
        let many = vec![one; SEND_MAX + 1];
        assert_eq!(send_batch(&server, many).unwrap(), SEND_MAX);
        let mut buf = [0; 9];
        assert_eq!(
            (0..SEND_MAX + 3).filter(|_| recv(&client, &mut buf).is_ok()).count(),
            SEND_MAX + 2
        );
    }
}
