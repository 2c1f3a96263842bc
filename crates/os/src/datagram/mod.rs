//! Datagrams: the address that one came to, its ECN bits, and several of one length in one call.

mod batch;
mod control;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use self::control::{Control, Extras, read_control, write_control};
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
    /// The bits of explicit congestion notification (RFC 3168), as [`set_ecn`] asked for them; 0
    /// without it.
    pub ecn: u8,
}

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

/// Has the kernel give a bound socket no more datagrams: it is connected with itself, so that all
/// others pass it by as if it were closed. It sends as before to those that a call names.
///
/// One that has every address of the machine has a single one from now on, and is of no
/// `SO_REUSEPORT` group: the kernel cannot undo that.
///
/// # Errors
/// The system's.
pub fn deafen(fd: impl AsFd) -> io::Result<()> {
    let own = socket::local_addr(&fd)?;
    let peer = match &own {
        addr if !addr.is_wildcard() => own,
        SockAddr::V6(_) => SockAddr::ip(std::net::Ipv6Addr::LOCALHOST.into(), own.port()),
        _ => SockAddr::ip(std::net::Ipv4Addr::LOCALHOST.into(), own.port()),
    };
    socket::connect(fd, &peer)
}

/// Undoes [`deafen`] for a socket that was bound to one address and a port; does nothing to one
/// that hears, or has every address.
///
/// # Errors
/// The system's.
pub fn hear(fd: impl AsFd) -> io::Result<()> {
    // The kernel takes the socket out of its group otherwise.
    if socket::local_addr(&fd)?.is_wildcard() || !socket::is_connected(&fd) {
        return Ok(());
    }
    Ok(rustix::net::connect_unspec(fd)?)
}

/// Asks for the ECN bits of each datagram. A socket of version 6 may have clients of version 4.
pub fn set_ecn(fd: impl AsFd, v6: bool) -> io::Result<()> {
    if v6 {
        set_int(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
    }
    set_int(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)
}

/// While on, no datagram is sent in fragments, and what the kernel knows of the path's MTU does not
/// count: one that is longer than the interface takes is `EMSGSIZE`, and one that is lost on the
/// way is the caller's to notice (RFC 8899).
pub fn set_unfragmented(fd: impl AsFd, v6: bool, on: bool) -> io::Result<()> {
    if v6 {
        let mode = if on { libc::IPV6_PMTUDISC_PROBE } else { libc::IPV6_PMTUDISC_WANT };
        set_int(&fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, mode)?;
    }
    let mode = if on { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_WANT };
    set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, mode)
}

/// Receives into `buf`. What does not fit is lost.
pub fn recv(fd: impl AsFd, buf: &mut [u8]) -> io::Result<Received> {
    // SAFETY: plain integers, for which all zeroes is a value.
    let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut control = Control::EMPTY;
    let mut part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: plain integers and pointers, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = Control::LEN as _;
    // SAFETY: every pointer in `message` leads to memory of this function or of `buf`, with its
    // length beside it, and the kernel keeps none of them after the call.
    let n = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &raw mut message, 0) };
    let len = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    let mut received = Received { len, segment: len, from: None, to: None, ecn: 0 };
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
            // The scope is 0 but for link-local addresses.
            let (ip, scope) = (Ipv6Addr::from(name.sin6_addr.s6_addr), name.sin6_scope_id);
            Some(SockAddr::V6(SocketAddrV6::new(ip, port, 0, scope)))
        }
        libc::AF_INET => {
            // `sin_addr` lies where `sin6_flowinfo` does.
            let ip = Ipv4Addr::from(u32::from_be(name.sin6_flowinfo));
            Some(SockAddr::ip(IpAddr::V4(ip), port))
        }
        _ => None,
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
    send_with(fd, buf, to, Extras { from, segment, ecn: 0 })
}

/// Sends one datagram, or several of one length.
///
/// # Errors
/// The system's; `Unsupported` where the address is not of IP.
pub fn send_one(fd: impl AsFd, one: &Outgoing<'_>) -> io::Result<usize> {
    send_with(fd, one.bytes, Some(&one.to), one.extras())
}

fn send_with(
    fd: impl AsFd,
    buf: &[u8],
    to: Option<&SockAddr>,
    extras: Extras,
) -> io::Result<usize> {
    if extras.is_empty() {
        // The kernel has less to copy.
        return match to {
            None => socket::send(fd, buf, false),
            Some(to) => socket::send_to(fd, buf, to),
        };
    }
    let mut name = to.map(raw_address).transpose()?;
    let mut control = Control::EMPTY;
    let mut part = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
    // SAFETY: plain integers and pointers, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    if let Some((name, len)) = &mut name {
        message.msg_name = (&raw mut *name).cast();
        message.msg_namelen = *len;
    }
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_controllen = write_control(&mut control, to, extras) as _;
    message.msg_control = (&raw mut control).cast();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd::wait_readable;
    use crate::socket::Kind;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    /// The wait for a datagram. It ends a test that would hang, and decides nothing else.
    pub(super) const LONG: Duration = Duration::from_secs(60);

    pub(super) fn bound(addr: &[u8]) -> (OwnedFd, SockAddr) {
        let addr = SockAddr::parse(addr).unwrap();
        let fd = socket::socket(&addr, Kind::Datagram).unwrap();
        socket::bind(&fd, &addr).unwrap();
        let addr = socket::local_addr(&fd).unwrap();
        (fd, addr)
    }

    fn wait(fd: &OwnedFd, buf: &mut [u8]) -> Received {
        assert!(wait_readable(fd, LONG), "nothing came");
        recv(fd, buf).unwrap()
    }

    #[test]
    fn a_deaf_socket_sends_and_hears_again() {
        for at in [&b"127.0.0.1:0"[..], b"[::1]:0", b"0.0.0.0:0", b"[::]:0"] {
            // With a port that was asked for: the kernel takes one of its choice back.
            let free = bound(at).1;
            let (server, at) = bound(free.to_string().as_bytes());
            let ip = if matches!(at, SockAddr::V6(_)) { &b"[::1]:0"[..] } else { b"127.0.0.1:0" };
            let (client, from) = bound(ip);
            let to = SockAddr::ip(from.ip_addr().unwrap(), at.port());
            let is_all = at.is_wildcard();
            hear(&server).unwrap();
            send(&client, b"one", Some(&to), None, None).unwrap();
            let mut buf = [0; 99];
            assert_eq!(wait(&server, &mut buf).len, 3);
            deafen(&server).unwrap();
            // On the loopback, a datagram is where it is to be when the call is over.
            send(&client, b"two", Some(&to), None, None).unwrap();
            assert!(recv(&server, &mut buf).is_err(), "{at}");
            send(&server, b"three", Some(&from), to.ip_addr().filter(|_| is_all), None).unwrap();
            let received = wait(&client, &mut buf);
            assert_eq!((received.len, received.from), (5, Some(to.clone())));
            if !is_all {
                hear(&server).unwrap();
                send(&client, b"four", Some(&to), None, None).unwrap();
                assert_eq!(wait(&server, &mut buf).len, 4);
            }
        }
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

    /// A socket of each version, and one of version 6 for clients of both; its port.
    fn servers() -> Vec<(OwnedFd, u16, Vec<SockAddr>)> {
        let mut all = Vec::new();
        for (addr, clients) in [
            (&b"127.0.0.1:0"[..], &[&b"127.0.0.1:0"[..]][..]),
            (b"[::]:0", &[b"[::1]:0", b"127.0.0.1:0"]),
        ] {
            let addr = SockAddr::parse(addr).unwrap();
            let fd = socket::socket(&addr, Kind::Datagram).unwrap();
            if matches!(addr, SockAddr::V6(_)) {
                socket::set_v6only(&fd, false).unwrap();
            }
            // Not every machine has version 6.
            if socket::bind(&fd, &addr).is_ok() {
                let port = socket::local_addr(&fd).unwrap().port();
                let clients = clients.iter().map(|c| SockAddr::parse(c).unwrap()).collect();
                all.push((fd, port, clients));
            }
        }
        all
    }

    #[test]
    fn congestion_is_notified_both_ways() {
        for (server, port, clients) in servers() {
            let v6 = clients.len() > 1;
            set_ecn(&server, v6).unwrap();
            set_packet_info(&server, v6).unwrap();
            set_join(&server).unwrap();
            for addr in clients {
                let client = socket::socket(&addr, Kind::Datagram).unwrap();
                socket::bind(&client, &addr).unwrap();
                set_ecn(&client, matches!(addr, SockAddr::V6(_))).unwrap();
                let to = SockAddr::ip(addr.ip_addr().unwrap(), port);
                let mut buf = [0; 100];
                for (ecn, segment) in [(2, None), (0, Some(3)), (3, Some(3)), (1, None)] {
                    let (from, bytes) = (None, &b"aaabbbc"[..]);
                    let one = Outgoing { bytes, to: to.clone(), from, segment, ecn };
                    send_one(&client, &one).unwrap();
                    let got = wait(&server, &mut buf);
                    assert_eq!((got.ecn, got.len), (ecn, 7), "{to} {segment:?}");
                    assert_eq!(got.segment, segment.map_or(7, usize::from));
                    // And back, by itself and in a batch, from the address that it came to.
                    let (to, from) = (got.from.unwrap(), got.to);
                    assert!(from.is_some());
                    let one = Outgoing { bytes: b"xyz", to, from, segment: None, ecn };
                    send_one(&server, &one).unwrap();
                    assert_eq!(wait(&client, &mut buf).ecn, ecn);
                    let two = Outgoing { segment: Some(2), ..one.clone() };
                    assert_eq!(send_batch(&server, [one, two]).unwrap(), 2);
                    for len in [3, 2, 1] {
                        let got = wait(&client, &mut buf);
                        assert_eq!((got.len, got.ecn), (len, ecn));
                    }
                    let mut batch = Batch::new(100).unwrap();
                    let one = Outgoing {
                        bytes,
                        to: SockAddr::ip(addr.ip_addr().unwrap(), port),
                        from: None,
                        segment,
                        ecn,
                    };
                    send_batch(&client, [one]).unwrap();
                    assert!(wait_readable(&server, LONG), "nothing came");
                    assert_eq!(batch.recv(&server).unwrap(), 1);
                    assert_eq!(batch.iter().next().unwrap().0.ecn, ecn);
                }
            }
        }
    }

    #[test]
    fn connected_sockets_mark_as_well() {
        let (server, at) = bound(b"127.0.0.1:0");
        let (client, _) = bound(b"127.0.0.1:0");
        socket::connect(&client, &at).unwrap();
        set_ecn(&server, false).unwrap();
        send_with(&client, b"x", None, Extras { from: None, segment: None, ecn: 2 }).unwrap();
        assert_eq!(wait(&server, &mut [0; 9]).ecn, 2);
    }

    #[test]
    fn what_would_need_fragments_is_refused() {
        for (server, port, clients) in servers() {
            set_unfragmented(&server, clients.len() > 1, true).unwrap();
            let (level, name) = (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
            let set = socket::get_int(&server, level, name).unwrap();
            assert_eq!(set, libc::IP_PMTUDISC_PROBE, "for clients of version 4, on either socket");
            let Some(own) = clients.iter().find(|addr| matches!(addr, SockAddr::V6(_))) else {
                continue;
            };
            // More than the loopback interface takes, and less than UDP does.
            let (long, to) = ([0; 65_500], SockAddr::ip(own.ip_addr().unwrap(), port));
            let client = socket::socket(own, Kind::Datagram).unwrap();
            assert_eq!(send(&client, &long, Some(&to), None, None).unwrap(), long.len());
            set_unfragmented(&client, true, true).unwrap();
            let e = send(&client, &long, Some(&to), None, None).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EMSGSIZE));
            set_unfragmented(&client, true, false).unwrap();
            assert_eq!(send(&client, &long, Some(&to), None, None).unwrap(), long.len());
        }
    }
}
