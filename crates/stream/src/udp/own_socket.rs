//! A socket for the datagrams of a single client.
//!
//! A worker of an old configuration shares its sockets with its successor. Before it stops using
//! them, it opens a connected socket for each client with a session. The kernel prefers a connected
//! socket to the shared one, so the session continues here to its end, with the same socket to its
//! server, and neither client nor server notice.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use event::{Deadline, Fd, TaskId};
use os::SockAddr;
use os::socket::{self, Kind};

use super::datagrams::{Datagrams, Key, receive_from};

/// The maximum number of receives in a row before other tasks get their turn.
const ROUNDS: usize = 64;

/// A client's own socket, and its receiving task.
pub(super) struct OwnSocket {
    fd: Rc<Fd>,
    key: Key,
    task: TaskId,
}

impl OwnSocket {
    /// Opens the socket and starts receiving this client's datagrams to `local`. `deliver` gets
    /// them, and returns whether it takes more.
    ///
    /// # Errors
    /// The system's, for example because workers may not bind ports below 1024.
    pub fn start(
        key: &Key,
        local: &SockAddr,
        deliver: impl Fn(&Key, Datagrams) -> bool + 'static,
    ) -> io::Result<OwnSocket> {
        let fd = Rc::new(Fd::new(connected(local, &key.peer(), key.local.is_some())?));
        // UDP_GRO; kernels before 5.0 deliver each datagram separately.
        let _ = os::datagram::set_join(fd.fd());
        let task = event::spawn(run(fd.clone(), *key, deliver));
        Ok(OwnSocket { fd, key: *key, task })
    }

    /// Closes the socket; returns the datagrams that were still queued, with their clients.
    pub fn close(self) -> Vec<(Key, Bytes)> {
        event::task::cancel(self.task);
        let mut left = Vec::new();
        while let Ok(Some((datagrams, received))) = receive_from(self.fd.fd()) {
            let key = sender(&self.key, received.from);
            left.extend(datagrams.each().map(|datagram| (key, datagram)));
        }
        left
    }
}

/// The client of a datagram: before the socket was connected, it may have received one of another
/// client.
fn sender(key: &Key, from: Option<SockAddr>) -> Key {
    match from.map(plain) {
        Some(peer) if peer != plain(key.peer()) => Key::of(&peer, key.local).unwrap_or(*key),
        _ => *key,
    }
}

async fn run(fd: Rc<Fd>, key: Key, deliver: impl Fn(&Key, Datagrams) -> bool) {
    loop {
        for _ in 0..ROUNDS {
            match receive_from(fd.fd()) {
                Ok(Some((datagrams, received))) => {
                    if !deliver(&sender(&key, received.from), datagrams) {
                        return;
                    }
                }
                Ok(None) => {
                    if fd.readable(Deadline::NEVER).await.is_err() {
                        return;
                    }
                }
                // An ICMP error: the client is unreachable for now. The socket is fine.
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(_) => return,
            }
        }
        event::task::yield_now().await;
    }
}

/// Creates a socket bound to `local` and connected to `peer`. `shared`: the socket of all clients
/// is bound to a wildcard.
///
/// Until it is connected, the kernel must keep preferring the shared socket. Of two equally good
/// ones it takes the newer; but an IPv6 socket is a worse match for an IPv4 datagram. So the socket
/// for an IPv4 client is an IPv6 socket with mapped addresses.
fn connected(local: &SockAddr, peer: &SockAddr, shared: bool) -> io::Result<OwnedFd> {
    if let (Some(IpAddr::V4(own)), Some(IpAddr::V4(client))) = (local.ip_addr(), peer.ip_addr()) {
        let mapped = |ip: std::net::Ipv4Addr| IpAddr::V6(ip.to_ipv6_mapped());
        let bound = if shared { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { mapped(own) };
        let (bound, peer) =
            (SockAddr::ip(bound, local.port()), SockAddr::ip(mapped(client), peer.port()));
        let fd = bind_and_connect(&bound, &peer);
        // If the host has several addresses, connecting chose the one of the route, which must be
        // `local`.
        if let Ok(fd) = fd
            && socket::local_addr(&fd).is_ok_and(|addr| plain(addr) == *local)
        {
            return Ok(fd);
        }
    }
    bind_and_connect(local, peer)
}

fn bind_and_connect(local: &SockAddr, peer: &SockAddr) -> io::Result<OwnedFd> {
    let fd = socket::socket(local, Kind::Datagram)?;
    // The shared socket has it, too, so that both can be bound to one address.
    socket::set_reuseaddr(&fd, true)?;
    if let SockAddr::V6(_) = local {
        socket::set_v6only(&fd, false)?;
    }
    socket::bind(&fd, local)?;
    socket::connect(&fd, peer)?;
    Ok(fd)
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn plain(addr: SockAddr) -> SockAddr {
    match addr.ip_addr() {
        Some(IpAddr::V6(ip)) => match ip.to_ipv4_mapped() {
            Some(v4) => SockAddr::ip(IpAddr::V4(v4), addr.port()),
            None => addr,
        },
        _ => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// The kernel's part: who gets a client's datagrams, and who the others'.
    #[test]
    fn a_connected_socket_gets_the_datagrams_of_its_client_alone() {
        for (all, shared) in [("127.0.0.1:0", false), ("0.0.0.0:0", true), ("[::1]:0", false)] {
            let all = SockAddr::parse(all.as_bytes()).unwrap();
            let fd = socket::socket(&all, Kind::Datagram).unwrap();
            socket::set_reuseaddr(&fd, true).unwrap();
            socket::set_reuseport(&fd, true).unwrap();
            socket::bind(&fd, &all).unwrap();
            let port = socket::local_addr(&fd).unwrap().port();
            let host = if matches!(all, SockAddr::V6(_)) { "[::1]" } else { "127.0.0.1" };
            let local = SockAddr::parse(format!("{host}:{port}").as_bytes()).unwrap();
            let client = UdpSocket::bind(format!("{host}:0")).unwrap();
            let other = UdpSocket::bind(format!("{host}:0")).unwrap();
            let peer = client.local_addr().unwrap().to_string();
            let peer = SockAddr::parse(peer.as_bytes()).unwrap();
            let own = connected(&local, &peer, shared).unwrap();
            for (socket, text) in [(&client, b"own"), (&other, b"all")] {
                socket.send_to(text, format!("{host}:{port}")).unwrap();
            }
            let text = |fd: &OwnedFd| {
                let (datagrams, received) =
                    receive_from(std::os::fd::AsFd::as_fd(fd)).unwrap().unwrap();
                (datagrams.bytes, received.from.map(plain))
            };
            assert_eq!(text(&own), (Bytes::from_static(b"own"), Some(peer)), "{all}");
            assert_eq!(text(&fd).0, "all", "{all}");
            drop(own);
            client.send_to(b"again", format!("{host}:{port}")).unwrap();
            assert_eq!(text(&fd).0, "again", "{all}");
        }
    }
}
