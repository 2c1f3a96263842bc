//! Sockets: making, options, accepting, sending, receiving.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage,
};
use rustix::net::{RecvFlags, ReturnFlags, SendFlags, SocketFlags, SocketType};

use crate::SockAddr;
use crate::filter::{self, Step};

/// Stream or datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// TCP, or a unix stream.
    Stream,
    /// UDP, or unix datagrams.
    Datagram,
}

/// A new socket fit for `addr`: non-blocking and closed on exec.
pub fn socket(addr: &SockAddr, kind: Kind) -> io::Result<OwnedFd> {
    let kind = match kind {
        Kind::Stream => SocketType::STREAM,
        Kind::Datagram => SocketType::DGRAM,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(addr.family(), kind, flags, None)?)
}

/// As [`socket`], for a stream over multipath TCP.
pub fn socket_multipath(addr: &SockAddr) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let protocol = Some(rustix::net::ipproto::MPTCP);
    Ok(rustix::net::socket_with(addr.family(), SocketType::STREAM, flags, protocol)?)
}

/// Gives the socket its local address.
pub fn bind(fd: impl AsFd, addr: &SockAddr) -> io::Result<()> {
    Ok(rustix::net::bind(fd, &addr.to_any()?)?)
}

/// Sets the permissions that the file of a unix socket gets when it is bound, less the umask.
/// Linux makes the file with the mode of the socket's own inode.
pub fn set_file_mode(fd: impl AsFd, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(fd, rustix::fs::Mode::from_raw_mode(mode))?)
}

/// Starts listening; calling it again changes the backlog.
pub fn listen(fd: impl AsFd, backlog: i32) -> io::Result<()> {
    Ok(rustix::net::listen(fd, backlog)?)
}

/// Begins a connection. `EINPROGRESS` means: wait until writable, then ask [`take_error`].
pub fn connect(fd: impl AsFd, addr: &SockAddr) -> io::Result<()> {
    Ok(rustix::net::connect(fd, &addr.to_any()?)?)
}

/// Whether the socket is connected.
pub fn is_connected(fd: impl AsFd) -> bool {
    rustix::net::getpeername(fd).is_ok_and(|peer| peer.is_some())
}

/// Takes one connection from a listening socket: non-blocking and closed on exec.
pub fn accept(fd: impl AsFd) -> io::Result<(OwnedFd, SockAddr)> {
    let (conn, peer) =
        rustix::net::acceptfrom_with(fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let peer = match peer {
        Some(any) => SockAddr::from_any(&any)?,
        None => SockAddr::Unix(Default::default()),
    };
    Ok((conn, peer))
}

/// The socket's own address.
pub fn local_addr(fd: impl AsFd) -> io::Result<SockAddr> {
    SockAddr::from_any(&rustix::net::getsockname(fd)?)
}

/// The other end's address; an unnamed unix peer has an empty name.
pub fn peer_addr(fd: impl AsFd) -> io::Result<SockAddr> {
    match rustix::net::getpeername(fd)? {
        Some(any) => SockAddr::from_any(&any),
        None => Ok(SockAddr::Unix(Default::default())),
    }
}

/// Stream or datagram; sockets of other types are refused.
pub fn kind(fd: impl AsFd) -> io::Result<Kind> {
    match sockopt::socket_type(fd)? {
        SocketType::STREAM => Ok(Kind::Stream),
        SocketType::DGRAM => Ok(Kind::Datagram),
        _ => Err(io::Error::from_raw_os_error(libc::EPROTOTYPE)),
    }
}

/// Whether `listen` was called on it.
pub fn is_listening(fd: impl AsFd) -> io::Result<bool> {
    Ok(sockopt::socket_acceptconn(fd)?)
}

/// Reads and clears the pending error (`SO_ERROR`).
pub fn take_error(fd: impl AsFd) -> io::Result<()> {
    Ok(sockopt::socket_error(fd)??)
}

/// Receives into initialised memory; 0 is the end of the stream.
pub fn recv(fd: impl AsFd, buf: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(fd, buf, RecvFlags::empty())?.0)
}

/// Receives a message of a pair ([`message_pair`]); 0 is its end.
///
/// If the kernel (`unix_dgram_recvmsg`, 6.18 and before) finds no message, it looks whether the
/// peer has closed. When a message and the close come between these two looks, it reports the end,
/// and the message only at the next call. So the end counts only when it is reported twice.
pub fn recv_message(fd: impl AsFd, buf: &mut [u8]) -> io::Result<usize> {
    match recv(&fd, buf)? {
        0 => recv(&fd, buf),
        len => Ok(len),
    }
}

/// Reads queued bytes without taking them.
pub fn peek(fd: impl AsFd, buf: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(fd, buf, RecvFlags::PEEK)?.0)
}

/// Sends from one piece of memory. `more` says that further data follows at once (`MSG_MORE`).
pub fn send(fd: impl AsFd, buf: &[u8], more: bool) -> io::Result<usize> {
    let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
    Ok(rustix::net::send(fd, buf, flags)?)
}

/// Sends one datagram to `addr`.
pub fn send_to(fd: impl AsFd, buf: &[u8], addr: &SockAddr) -> io::Result<usize> {
    Ok(rustix::net::sendto(fd, buf, SendFlags::NOSIGNAL, &addr.to_any()?)?)
}

/// Sends from several pieces of memory in one call. `more` as for [`send`].
pub fn send_vectored(fd: impl AsFd, bufs: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
    Ok(rustix::net::sendmsg(fd, bufs, &mut Default::default(), flags)?)
}

/// Sends up to `count` bytes of `file` from `*pos` on without copying them through this process,
/// and advances `*pos`. 0 with `count > 0` means that the file is shorter than `*pos`.
pub fn sendfile(fd: impl AsFd, file: impl AsFd, pos: &mut u64, count: usize) -> io::Result<usize> {
    Ok(rustix::fs::sendfile(fd, file, Some(pos), count)?)
}

/// Two sockets that are connected to each other and carry whole messages, in order, each with a
/// descriptor: see [`send_fd`]. Non-blocking and closed on exec.
pub fn message_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (rustix::net::AddressFamily::UNIX, SocketType::SEQPACKET);
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(family, kind, flags, None)?)
}

/// Sends a message with a descriptor; the receiver gets a duplicate of it.
pub fn send_fd(fd: impl AsFd, message: &[u8], passed: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let passed = [passed];
    if !control.push(SendAncillaryMessage::ScmRights(&passed)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(fd, &[IoSlice::new(message)], &mut control, flags)?;
    Ok(())
}

/// Receives a message of [`send_fd`]: its length, and the descriptor, if it came with one. Messages
/// that are longer than `buf` are cut.
pub fn recv_fd(fd: impl AsFd, buf: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buf)];
    let got = rustix::net::recvmsg(fd, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let passed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((got.bytes, passed))
}

/// The most descriptors of a message. The kernel takes 253 (`SCM_MAX_FD`, unix(7)).
pub const PASSED_MAX: usize = 240;

/// Sends a message with several descriptors, [`PASSED_MAX`] at most.
///
/// # Errors
/// The system's: `EMSGSIZE` if the message does not fit the socket's buffer, `ETOOMANYREFS` if too
/// many descriptors are on their way.
pub fn send_fds(fd: impl AsFd, message: &[u8], passed: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(passed)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(fd, &[IoSlice::new(message)], &mut control, flags)?;
    Ok(())
}

/// Receives a message of [`send_fds`]: its length, and its descriptors.
///
/// # Errors
/// The system's; `InvalidData` if the message is longer than `buf`, or has more descriptors than
/// [`PASSED_MAX`] or than this process may open: those that came are closed.
pub fn recv_fds(fd: impl AsFd, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buf)];
    let got = rustix::net::recvmsg(fd, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut passed = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            passed.extend(fds);
        }
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((got.bytes, passed))
}

/// Ends the writing side: the peer sees the end of the stream.
pub fn shutdown_write(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, rustix::net::Shutdown::Write)?)
}

/// Whether the socket is of the family of unix sockets (`SO_DOMAIN`).
pub fn is_unix(fd: impl AsFd) -> io::Result<bool> {
    Ok(sockopt::socket_domain(fd)? == rustix::net::AddressFamily::UNIX)
}

/// Ends the reading side: what has arrived can still be read, and over a unix socket the peer can
/// send no more.
pub fn shutdown_read(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, rustix::net::Shutdown::Read)?)
}

/// `SO_LINGER` with zero: closing sends RST and discards unsent data.
pub fn set_reset_on_close(fd: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(fd, Some(Duration::ZERO))?)
}

/// `SO_REUSEADDR`.
pub fn set_reuseaddr(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseaddr(fd, on)?)
}

/// `SO_REUSEPORT`.
pub fn set_reuseport(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseport(fd, on)?)
}

/// Whether `SO_REUSEPORT` is set.
pub fn reuseport(fd: impl AsFd) -> io::Result<bool> {
    Ok(sockopt::socket_reuseport(fd)?)
}

/// Makes the kernel give new connections to the first `count` sockets of a `SO_REUSEPORT` group
/// alone, in the order in which they began to listen. `fd` is any socket of the group.
pub fn limit_reuseport_group(fd: impl AsFd, count: u32) -> io::Result<()> {
    let steps = [Step::random(), Step::modulo(count.max(1)), Step::give()];
    filter::attach_reuseport(fd, &steps)
}

/// Takes the limit of [`limit_reuseport_group`] away: all sockets of the group get connections
/// again. Nothing happens when there is no limit.
pub fn unlimit_reuseport_group(fd: impl AsFd) -> io::Result<()> {
    filter::detach_reuseport(fd).map(drop)
}

/// `IPV6_V6ONLY`.
pub fn set_v6only(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_ipv6_v6only(fd, on)?)
}

/// `SO_RCVBUF`, bytes.
pub fn set_rcvbuf(fd: impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(fd, bytes)?)
}

/// `SO_RCVBUF` beyond the system's limit where that is allowed, else up to it.
pub fn set_rcvbuf_large(fd: impl AsFd, bytes: usize) -> io::Result<()> {
    match sockopt::set_socket_recv_buffer_size_force(&fd, bytes) {
        Ok(()) => Ok(()),
        Err(_) => set_rcvbuf(fd, bytes),
    }
}

/// `SO_SNDBUF`, bytes.
pub fn set_sndbuf(fd: impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(fd, bytes)?)
}

/// `SO_KEEPALIVE`.
pub fn set_keepalive(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_socket_keepalive(fd, on)?)
}

/// `TCP_KEEPIDLE`, seconds.
pub fn set_keepidle(fd: impl AsFd, seconds: u32) -> io::Result<()> {
    Ok(sockopt::set_tcp_keepidle(fd, Duration::from_secs(seconds.into()))?)
}

/// `TCP_KEEPINTVL`, seconds.
pub fn set_keepintvl(fd: impl AsFd, seconds: u32) -> io::Result<()> {
    Ok(sockopt::set_tcp_keepintvl(fd, Duration::from_secs(seconds.into()))?)
}

/// `TCP_KEEPCNT`, probes.
pub fn set_keepcnt(fd: impl AsFd, count: u32) -> io::Result<()> {
    Ok(sockopt::set_tcp_keepcnt(fd, count)?)
}

/// `SO_SNDBUF` beyond the system's limit where that is allowed, else up to it.
pub fn set_sndbuf_large(fd: impl AsFd, bytes: usize) -> io::Result<()> {
    match sockopt::set_socket_send_buffer_size_force(&fd, bytes) {
        Ok(()) => Ok(()),
        Err(_) => set_sndbuf(fd, bytes),
    }
}

/// `TCP_NODELAY`.
pub fn set_nodelay(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(fd, on)?)
}

/// `TCP_QUICKACK`. Off before a connect, the acknowledgement that ends the handshake waits for our
/// first bytes and leaves with them, or alone after 200 ms (tcp_rcv_synsent_state_process).
pub fn set_quickack(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_quickack(fd, on)?)
}

/// `TCP_NOTSENT_LOWAT`: the socket takes no more than about `bytes` that it has not sent yet.
pub fn set_notsent_lowat(fd: impl AsFd, bytes: i32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// `TCP_CORK`, which `tcp_nopush` means on Linux.
pub fn set_cork(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_cork(fd, on)?)
}

/// `TCP_DEFER_ACCEPT`: wake the listener only when data has come; 0 turns it off.
pub fn set_defer_accept(fd: impl AsFd, seconds: i32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// The listener's `TCP_DEFER_ACCEPT`, seconds; 0 is off.
pub fn defer_accept(fd: impl AsFd) -> io::Result<i32> {
    get_int(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT)
}

/// `TCP_FASTOPEN`: the length of the queue of connections that have not finished the handshake.
pub fn set_fastopen(fd: impl AsFd, queue: i32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, queue)
}

/// `IP_TRANSPARENT` or its IPv6 twin: bind to an address that is not this machine's.
pub fn set_transparent(fd: impl AsFd, addr: &SockAddr) -> io::Result<()> {
    match addr {
        SockAddr::V6(_) => set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, 1),
        _ => set_int(fd, libc::IPPROTO_IP, libc::IP_TRANSPARENT, 1),
    }
}

/// `IP_BIND_ADDRESS_NO_PORT`: leave the choice of a port to `connect`, so that one port can serve
/// several peers.
pub fn set_bind_address_no_port(fd: impl AsFd) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Connections that wait in a listening socket's queue, and the length of that queue.
pub fn accept_queue(fd: impl AsFd) -> io::Result<(u32, u32)> {
    // For a listening socket the kernel puts the queue into these two fields (tcp_get_info).
    let info = raw_tcp_info(fd)?;
    Ok((info.tcpi_unacked, info.tcpi_sacked))
}

/// The values of `$tcpinfo_*` for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Round-trip time, µs.
    pub rtt: u32,
    /// Its variation, µs.
    pub rttvar: u32,
    /// Congestion window, segments.
    pub snd_cwnd: u32,
    /// Receive window, bytes.
    pub rcv_space: u32,
}

/// `TCP_INFO` of a connection.
pub fn tcp_info(fd: impl AsFd) -> io::Result<TcpInfo> {
    let info = raw_tcp_info(fd)?;
    Ok(TcpInfo {
        rtt: info.tcpi_rtt,
        rttvar: info.tcpi_rttvar,
        snd_cwnd: info.tcpi_snd_cwnd,
        rcv_space: info.tcpi_rcv_space,
    })
}

/// How far a connection's bytes have come, counted from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSent {
    /// Bytes that the socket took.
    pub written: u64,
    /// Bytes that the other side has acknowledged.
    pub acked: u64,
}

/// How far a TCP connection's bytes have come; kernels before 4.19 do not tell (`Unsupported`).
pub fn tcp_sent(fd: impl AsFd) -> io::Result<TcpSent> {
    // The part of `struct tcp_info` up to `tcpi_bytes_retrans`: the C library's is older.
    let mut info = [0u8; 216];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `info`, which is that long.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut len,
        )
    };
    if rc == -1 {
        return Err(io::Error::last_os_error());
    }
    if (len as usize) < info.len() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| info[at + i]));
    let unsent = u32::from_ne_bytes(std::array::from_fn(|i| info[144 + i]));
    let (acked, sent, sent_again) = (u64_at(120), u64_at(200), u64_at(208));
    Ok(TcpSent { written: sent.saturating_sub(sent_again) + u64::from(unsent), acked })
}

fn raw_tcp_info(fd: impl AsFd) -> io::Result<libc::tcp_info> {
    // SAFETY: `tcp_info` is plain integers, for which all zeroes is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `info`, which is that long.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut len,
        )
    };
    if rc == -1 { Err(io::Error::last_os_error()) } else { Ok(info) }
}

pub(crate) fn set_int(fd: impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<i32>()` bytes from `value`, which lives over the call.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if rc == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn get_int(fd: impl AsFd, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `value`, which is that long.
    let rc = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw mut value).cast(), &mut len)
    };
    if rc == -1 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_before_the_end_is_received_before_it() {
        // Without a second look, two of ten thousand are missed.
        let (to_sender, senders) = std::sync::mpsc::sync_channel::<OwnedFd>(0);
        std::thread::spawn(move || senders.iter().for_each(|fd| drop(send(&fd, b"Y", false))));
        for _ in 0..40_000 {
            let (ours, theirs) = message_pair().unwrap();
            to_sender.send(theirs).unwrap();
            let received = loop {
                match recv_message(&ours, &mut [0; 4]) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    received => break received,
                }
            };
            assert_eq!(received.unwrap(), 1);
        }
    }

    fn listener() -> (OwnedFd, SockAddr) {
        let addr = SockAddr::parse(b"127.0.0.1:0").unwrap();
        let fd = socket(&addr, Kind::Stream).unwrap();
        set_reuseaddr(&fd, true).unwrap();
        bind(&fd, &addr).unwrap();
        listen(&fd, 16).unwrap();
        let addr = local_addr(&fd).unwrap();
        (fd, addr)
    }

    fn wait_accept(fd: &OwnedFd) -> (OwnedFd, SockAddr) {
        loop {
            match accept(fd) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                other => return other.unwrap(),
            }
        }
    }

    #[test]
    fn a_connection_carries_bytes() {
        let (l, addr) = listener();
        assert!(is_listening(&l).unwrap());
        assert_eq!(accept_queue(&l).unwrap().1, 16);
        let client = std::net::TcpStream::connect(addr.to_string()).unwrap();
        let (conn, peer) = wait_accept(&l);
        assert_eq!(peer, local_addr(&client).unwrap());
        assert_eq!(peer_addr(&conn).unwrap(), peer);
        let pieces = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        assert_eq!(send_vectored(&conn, &pieces, false).unwrap(), 4);
        let mut buf = [0; 8];
        assert_eq!(recv(&client, &mut buf).unwrap(), 4);
        assert_eq!(&buf[..4], b"abcd");
        assert!(tcp_info(&conn).unwrap().snd_cwnd > 0);
    }

    #[test]
    fn the_kernel_tells_how_far_bytes_have_come() {
        let (l, addr) = listener();
        let client = std::net::TcpStream::connect(addr.to_string()).unwrap();
        let (conn, _) = wait_accept(&l);
        assert_eq!(tcp_sent(&conn).unwrap().written, 0);
        // More than the client's side takes unread.
        let (piece, mut written) = ([0; 65_536], 0);
        while let Ok(n) = send_vectored(&conn, &[IoSlice::new(&piece)], false) {
            written += n as u64;
        }
        let stuck = tcp_sent(&conn).unwrap();
        assert_eq!(stuck.written, written);
        assert!(stuck.acked < written, "{stuck:?}");
        let mut left = written;
        while left > 0 {
            let mut buf = [0; 65_536];
            left -= std::io::Read::read(&mut &client, &mut buf).unwrap() as u64;
        }
        while tcp_sent(&conn).unwrap().acked < written {
            std::thread::yield_now();
        }
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(tcp_sent(&udp).is_err(), "datagrams have no such thing");
    }

    #[test]
    fn descriptors_travel_with_messages() {
        let (a, b) = message_pair().unwrap();
        let (mut far, near) = std::os::unix::net::UnixStream::pair().unwrap();
        send_fd(&a, b"one", near.as_fd()).unwrap();
        drop(near);
        let mut buf = [0; 16];
        let (n, passed) = recv_fd(&b, &mut buf).unwrap();
        assert_eq!(&buf[..n], b"one");
        send(passed.unwrap(), b"still there", false).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut far, &mut text).unwrap();
        assert_eq!(text, "still there");
        let none = recv_fd(&b, &mut buf).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_group_can_be_limited_to_its_first_sockets() {
        let any = SockAddr::parse(b"127.0.0.1:0").unwrap();
        let open = |addr: &SockAddr| {
            let fd = socket(addr, Kind::Stream).unwrap();
            set_reuseport(&fd, true).unwrap();
            bind(&fd, addr).unwrap();
            listen(&fd, 64).unwrap();
            fd
        };
        let first = open(&any);
        let addr = local_addr(&first).unwrap();
        let group = [first, open(&addr), open(&addr)];
        let waiting = || group.each_ref().map(|fd| accept_queue(fd).unwrap().0);
        let connect = |n: u32| -> Vec<std::net::TcpStream> {
            (0..n).map(|_| std::net::TcpStream::connect(addr.to_string()).unwrap()).collect()
        };

        unlimit_reuseport_group(&group[0]).unwrap();
        limit_reuseport_group(&group[2], 2).unwrap();
        let few = connect(24);
        let [a, b, c] = waiting();
        assert!(a > 0 && b > 0 && c == 0 && a + b == 24, "{a} {b} {c}");
        unlimit_reuseport_group(&group[0]).unwrap();
        let more = connect(48);
        assert!(waiting()[2] > 0);
        drop((few, more));
    }

    #[test]
    fn sendfile_moves_the_position() {
        let (l, addr) = listener();
        let client = std::net::TcpStream::connect(addr.to_string()).unwrap();
        let (conn, _) = wait_accept(&l);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut pos = 1;
        assert_eq!(sendfile(&conn, &file, &mut pos, 3).unwrap(), 3);
        assert_eq!(pos, 4);
        let mut buf = [0; 8];
        assert_eq!(recv(&client, &mut buf).unwrap(), 3);
        assert_eq!(&buf[..3], b"ELF");
    }

    #[test]
    fn options_reach_the_kernel() {
        let (l, _) = listener();
        assert_eq!(defer_accept(&l).unwrap(), 0);
        set_defer_accept(&l, 1).unwrap();
        assert!(defer_accept(&l).unwrap() > 0);
        assert!(!reuseport(&l).unwrap());
        set_reuseport(&l, true).unwrap();
        assert!(reuseport(&l).unwrap());
    }
}
