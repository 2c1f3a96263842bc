//! A socket that receives the datagrams of one client alone.
//!
//! The worker of an old configuration shares its sockets with its successor. Before it leaves them,
//! each client of a session gets a socket of its own, connected to it: the kernel prefers it to the
//! one of all clients, so the session goes on here to its end, with the same socket to its server.
//! The client and the server notice nothing.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use event::{Deadline, Fd, TaskId};
use os::SockAddr;
use os::socket::{self, Kind};

use super::endpoint::Endpoint;
use super::{Key, receive_from};

/// The receives that may follow each other before others have their turn.
const ROUNDS: usize = 64;

/// A client's own socket, and the task that receives from it.
pub(super) struct OwnSocket {
    fd: Rc<Fd>,
    key: Key,
    task: TaskId,
}

impl OwnSocket {
    /// Receives the datagrams of this client to `local` from now on.
    ///
    /// # Errors
    /// The system's: a port below 1024 wants more rights than workers have.
    pub fn start(endpoint: &Rc<Endpoint>, key: &Key, local: &SockAddr) -> io::Result<OwnSocket> {
        let fd = Rc::new(Fd::new(connected(local, &key.peer(), key.local.is_some())?));
        // Kernels before 5.0 give each by itself.
        let _ = os::datagram::set_join(fd.fd());
        let (endpoint, key) = (Rc::downgrade(endpoint), *key);
        let task = event::spawn(run(fd.clone(), endpoint, key));
        Ok(OwnSocket { fd, key, task })
    }

    /// Ends it; gives the datagrams that it still held, with their clients.
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

/// Whose datagram it is. Before a socket is connected, it may get one of another client.
fn sender(key: &Key, from: Option<SockAddr>) -> Key {
    match from.map(plain) {
        Some(peer) if peer != plain(key.peer()) => Key::of(&peer, key.local).unwrap_or(*key),
        _ => *key,
    }
}

async fn run(fd: Rc<Fd>, endpoint: Weak<Endpoint>, key: Key) {
    loop {
        for _ in 0..ROUNDS {
            match receive_from(fd.fd()) {
                Ok(Some((datagrams, received))) => {
                    let Some(endpoint) = endpoint.upgrade() else { return };
                    let key = sender(&key, received.from);
                    datagrams.each().for_each(|datagram| endpoint.deliver(&key, datagram));
                }
                Ok(None) => {
                    if fd.readable(Deadline::NEVER).await.is_err() {
                        return;
                    }
                }
                // The client is away for the moment, which is no fault of the socket's.
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(_) => return,
            }
        }
        event::task::yield_now().await;
    }
}

/// A socket with the address `local` that gets the datagrams of `peer`; `shared` says that the
/// socket of all clients has every address of the machine.
///
/// Until it is connected, the kernel must go on preferring the other one. Of two that fit alike, it
/// takes the newer one; but one of IPv6 fits a datagram of IPv4 less well. So an IPv4 client's
/// socket is one of IPv6, which has mapped addresses.
fn connected(local: &SockAddr, peer: &SockAddr, shared: bool) -> io::Result<OwnedFd> {
    if let (Some(IpAddr::V4(own)), Some(IpAddr::V4(client))) = (local.ip_addr(), peer.ip_addr()) {
        let mapped = |ip: std::net::Ipv4Addr| IpAddr::V6(ip.to_ipv6_mapped());
        let bound = if shared { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { mapped(own) };
        let (bound, peer) =
            (SockAddr::ip(bound, local.port()), SockAddr::ip(mapped(client), peer.port()));
        let fd = bind_and_connect(&bound, &peer);
        // With several addresses, connecting has chosen the one that the route has.
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
    // The socket of all clients has it, too: so they can have one address.
    socket::set_reuseaddr(&fd, true)?;
    if let SockAddr::V6(_) = local {
        socket::set_v6only(&fd, false)?;
    }
    socket::bind(&fd, local)?;
    socket::connect(&fd, peer)?;
    Ok(fd)
}

/// An address without the mapping of IPv4 into IPv6.
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
