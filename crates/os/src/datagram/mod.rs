//! Datagrams: the address that one came to, and several of one length in one call.

mod batch;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

use crate::SockAddr;
use crate::socket::{self, set_int};

pub use self::batch::{Batch, Outgoing, RECV_MAX, SEND_MAX, send_batch};

/// A datagram, or several that the kernel has joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes.
    pub len: usize,
    /// The length of each datagram but the last one; `len` for a single one.
    pub segment: usize,
    /// The sender; none on a connected socket.
    pub from: Option<SockAddr>,
    /// The local address that it came to, where [`set_packet_info`] asked for it.
    pub to: Option<IpAddr>,
}

/// Room for the control messages of one call.
const CONTROL: usize = 128;

#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// Asks for the local address of each datagram.
pub fn set_packet_info(fd: impl AsFd, v6: bool) -> io::Result<()> {
    match v6 {
        false => set_int(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
        true => set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
    }
}

/// Lets the kernel join datagrams of one sender and one length (Linux 5.0).
pub fn set_join(fd: impl AsFd) -> io::Result<()> {
    set_int(fd, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Receives into `buf`. What does not fit is lost.
pub fn recv(fd: impl AsFd, buf: &mut [u8]) -> io::Result<Received> {
    // SAFETY: plain integers, for which all zeroes is a value.
    let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut control = Control([0; CONTROL]);
    let mut part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: plain integers and pointers, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL as _;
    // SAFETY: every pointer in `message` leads to memory of this function or of `buf`, with its
    // length beside it, and the kernel keeps none of them after the call.
    let n = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut message, 0) };
    let len = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    let mut received = Received { len, segment: len, from: None, to: None };
    if message.msg_namelen > 0 {
        received.from = address(&name);
    }
    read_control(&message, &mut received);
    Ok(received)
}

/// The sender's address; an IPv4 one has the same place for its family and its port.
fn address(name: &libc::sockaddr_in6) -> Option<SockAddr> {
    let port = u16::from_be(name.sin6_port);
    match i32::from(name.sin6_family) {
        libc::AF_INET6 => {
            Some(SockAddr::ip(IpAddr::V6(Ipv6Addr::from(name.sin6_addr.s6_addr)), port))
        }
        libc::AF_INET => {
            // `sin_addr` lies where `sin6_flowinfo` does.
            let ip = Ipv4Addr::from(u32::from_be(name.sin6_flowinfo));
            Some(SockAddr::ip(IpAddr::V4(ip), port))
        }
        _ => None,
    }
}

fn read_control(message: &libc::msghdr, received: &mut Received) {
    // SAFETY: `message` was filled by `recvmsg`, and its control buffer lives in the caller.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: the macros gave a header that lies within the control buffer, aligned for it; its
        // data is read only as far as its length says.
        unsafe {
            let head = &*next;
            let data = libc::CMSG_DATA(next);
            let len = (head.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            match (head.cmsg_level, head.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if len >= size_of::<libc::in_pktinfo>() => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    let ip = Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr));
                    received.to = Some(IpAddr::V4(ip));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)
                    if len >= size_of::<libc::in6_pktinfo>() =>
                {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    received.to = Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                }
                (libc::SOL_UDP, libc::UDP_GRO) if len >= size_of::<i32>() => {
                    let segment = data.cast::<i32>().read_unaligned();
                    if let Ok(segment @ 1..) = usize::try_from(segment) {
                        received.segment = segment;
                    }
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(message, next);
        }
    }
}

/// Sends `buf` to an address, or over a connected socket; from the local address `from` where it is
/// given. `segment`: as datagrams of that length, of which the last one may be shorter.
pub fn send(
    fd: impl AsFd,
    buf: &[u8],
    to: Option<&SockAddr>,
    from: Option<IpAddr>,
    segment: Option<u16>,
) -> io::Result<usize> {
    if from.is_none() && segment.is_none() {
        // The kernel has less to copy.
        return match to {
            None => socket::send(fd, buf, false),
            Some(to) => socket::send_to(fd, buf, to),
        };
    }
    let mut name = to.map(raw_address).transpose()?;
    let mut control = Control([0; CONTROL]);
    let mut part = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
    // SAFETY: plain integers and pointers, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    if let Some((name, len)) = &mut name {
        message.msg_name = (&raw mut *name).cast();
        message.msg_namelen = *len;
    }
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    let used = write_control(&mut control, from, segment);
    if used > 0 {
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = used as _;
    }
    // SAFETY: every pointer in `message` leads to memory of this function or of `buf`, with its
    // length beside it; the kernel only reads, and keeps none of them after the call.
    let n =
        unsafe { libc::sendmsg(fd.as_fd().as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

fn raw_address(addr: &SockAddr) -> io::Result<(libc::sockaddr_in6, libc::socklen_t)> {
    // SAFETY: plain integers, for which all zeroes is a value.
    let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    name.sin6_port = addr.port().to_be();
    let len = match addr {
        SockAddr::V4(v4) => {
            name.sin6_family = libc::AF_INET as _;
            // `sin_addr` lies where `sin6_flowinfo` does.
            name.sin6_flowinfo = u32::from(*v4.ip()).to_be();
            size_of::<libc::sockaddr_in>()
        }
        SockAddr::V6(v6) => {
            name.sin6_family = libc::AF_INET6 as _;
            name.sin6_addr.s6_addr = v6.ip().octets();
            name.sin6_scope_id = v6.scope_id();
            name.sin6_flowinfo = v6.flowinfo();
            size_of::<libc::sockaddr_in6>()
        }
        SockAddr::Unix(_) => return Err(io::ErrorKind::Unsupported.into()),
    };
    Ok((name, len as libc::socklen_t))
}

/// Writes control messages; the bytes used.
fn write_control(control: &mut Control, from: Option<IpAddr>, segment: Option<u16>) -> usize {
    let mut used = 0;
    match from {
        None => {}
        Some(IpAddr::V4(ip)) => {
            // SAFETY: plain integers, for which all zeroes is a value.
            let mut info: libc::in_pktinfo = unsafe { std::mem::zeroed() };
            info.ipi_spec_dst.s_addr = u32::from(ip).to_be();
            used = put(control, used, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        Some(IpAddr::V6(ip)) => {
            // SAFETY: as above.
            let mut info: libc::in6_pktinfo = unsafe { std::mem::zeroed() };
            info.ipi6_addr.s6_addr = ip.octets();
            used = put(control, used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
    }
    if let Some(segment) = segment {
        used = put(control, used, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    }
    used
}

/// Puts one control message behind `at` bytes; gives the bytes used then.
fn put<T: Copy>(control: &mut Control, at: usize, level: i32, kind: i32, value: T) -> usize {
    // SAFETY: these compute lengths alone.
    let (space, len) = unsafe {
        let size = size_of::<T>() as u32;
        (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size))
    };
    assert!(at + space <= CONTROL, "two control messages fit");
    let Some(place) = control.0.get_mut(at..at + space) else { return at };
    let head = place.as_mut_ptr().cast::<libc::cmsghdr>();
    // SAFETY: `place` has room for the header and the value behind it. The buffer is aligned for
    // headers, and `CMSG_SPACE` keeps what follows aligned.
    unsafe {
        (*head).cmsg_len = len as _;
        (*head).cmsg_level = level;
        (*head).cmsg_type = kind;
        libc::CMSG_DATA(head).cast::<T>().write_unaligned(value);
    }
    at + space
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Kind;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    pub(super) fn bound(addr: &[u8]) -> (OwnedFd, SockAddr) {
        let addr = SockAddr::parse(addr).unwrap();
        let fd = socket::socket(&addr, Kind::Datagram).unwrap();
        socket::bind(&fd, &addr).unwrap();
        let addr = socket::local_addr(&fd).unwrap();
        (fd, addr)
    }

    fn wait(fd: &OwnedFd, buf: &mut [u8]) -> Received {
        for _ in 0..1000 {
            match recv(fd, buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                received => return received.unwrap(),
            }
        }
        panic!("nothing came");
    }

    #[test]
    fn local_addresses_are_seen_and_chosen() {
        let (server, at) = bound(b"0.0.0.0:0");
        set_packet_info(&server, false).unwrap();
        let (client, from) = bound(b"127.0.0.1:0");
        let to = SockAddr::ip("127.0.0.2".parse().unwrap(), at.port());
        send(&client, b"question", Some(&to), None, None).unwrap();
        let mut buf = [0; 100];
        let got = wait(&server, &mut buf);
        assert_eq!((&buf[..got.len], got.segment), (&b"question"[..], 8));
        assert_eq!((got.from, got.to), (Some(from.clone()), to.ip_addr()));
        send(&server, b"answer", Some(&from), to.ip_addr(), None).unwrap();
        let got = wait(&client, &mut buf);
        assert_eq!((&buf[..got.len], got.from), (&b"answer"[..], Some(to)));
    }

    #[test]
    fn several_of_one_length_go_in_one_call() {
        let (server, at) = bound(b"127.0.0.1:0");
        let (client, _) = bound(b"127.0.0.1:0");
        send(&client, b"aabbc", Some(&at), None, Some(2)).unwrap();
        let mut buf = [0; 100];
        for part in [&b"aa"[..], b"bb", b"c"] {
            let got = wait(&server, &mut buf);
            assert_eq!(&buf[..got.len], part);
        }
        set_join(&server).unwrap();
        send(&client, b"aabbc", Some(&at), None, Some(2)).unwrap();
        let got = wait(&server, &mut buf);
        assert_eq!((&buf[..got.len], got.segment), (&b"aabbc"[..], 2));
    }

    #[test]
    fn one_peer_needs_no_names() {
        let (server, at) = bound(b"127.0.0.1:0");
        let (client, from) = bound(b"127.0.0.1:0");
        for (one, other) in [(&server, &from), (&client, &at)] {
            socket::connect(one, other).unwrap();
        }
        let mut buf = [0; 9];
        for text in [&b"ab"[..], b"", b"c"] {
            assert_eq!(send(&client, text, None, None, None).unwrap(), text.len());
            let got = wait(&server, &mut buf);
            assert_eq!((&buf[..got.len], got.from), (text, Some(from.clone())));
        }
    }

    #[test]
    fn version_6() {
        let addr = SockAddr::parse(b"[::1]:0").unwrap();
        let fd = socket::socket(&addr, Kind::Datagram).unwrap();
        if socket::bind(&fd, &addr).is_err() {
            return;
        }
        set_packet_info(&fd, true).unwrap();
        let own = socket::local_addr(&fd).unwrap();
        send(&fd, b"x", Some(&own), own.ip_addr(), None).unwrap();
        let got = wait(&fd, &mut [0; 9]);
        assert_eq!((got.from, got.to), (Some(own.clone()), own.ip_addr()));
    }
}
