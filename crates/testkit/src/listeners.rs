//! TCP sockets that listen, as the kernel's socket diagnosis (sock_diag(7)) lists them.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// A TCP socket that listens.
#[derive(Debug)]
pub struct Listener {
    /// Its port, on whatever address.
    pub port: u16,
    /// Its inode, as in [`crate::procfs::sockets`].
    pub inode: u64,
}

/// The length of `struct nlmsghdr`: length, type, flags, sequence number, port of the sender.
const HEADER: usize = 16;
/// The length of `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// `SOCK_DIAG_BY_FAMILY`, the type of requests and of what they find.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`: all that match.
const DUMP: u16 = 0x301;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The bit of `TCP_LISTEN` among the states.
const LISTENING: u32 = 1 << 10;

/// The TCP sockets that listen, on any address: read, not tried, so that the server sees no
/// connection of ours. `/proc/net/tcp` would have the kernel walk all of its connections too.
pub fn listeners() -> Vec<Listener> {
    let families = [AddressFamily::INET, AddressFamily::INET6];
    families.into_iter().flat_map(of_family).collect()
}

fn of_family(family: AddressFamily) -> Vec<Listener> {
    const TCP: u8 = 6;
    let kernel = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )
    .expect("a socket for sock_diag");
    let mut request = [0; HEADER + REQUEST];
    request[..4].copy_from_slice(&((HEADER + REQUEST) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    request[HEADER] = u8::try_from(family.as_raw()).expect("a small number");
    request[HEADER + 1] = TCP;
    request[HEADER + 4..HEADER + 8].copy_from_slice(&LISTENING.to_ne_bytes());
    rustix::net::send(&kernel, &request, SendFlags::empty()).expect("ask for listeners");

    let (mut found, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let (len, _) = rustix::net::recv(&kernel, &mut buffer, RecvFlags::empty())
            .expect("the answer of sock_diag");
        let mut messages = &buffer[..len];
        while messages.len() >= HEADER {
            let len = u32_at(messages, 0) as usize;
            match u16::from_ne_bytes([messages[4], messages[5]]) {
                BY_FAMILY => found.push(listener(&messages[HEADER..len])),
                DONE => return found,
                ERROR => panic!("sock_diag: error {}", u32_at(messages, HEADER) as i32),
                _ => {}
            }
            messages = &messages[len.next_multiple_of(4).min(messages.len())..];
        }
    }
}

/// Reads a `struct inet_diag_msg`.
fn listener(message: &[u8]) -> Listener {
    const PORT: usize = 4;
    const INODE: usize = 68;
    let port = u16::from_be_bytes([message[PORT], message[PORT + 1]]);
    Listener { port, inode: u32_at(message, INODE).into() }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::{Listener, listeners};
    use crate::procfs::sockets;

    fn on(port: u16) -> Vec<Listener> {
        listeners().into_iter().filter(|l| l.port == port).collect()
    }

    #[test]
    fn a_listener_is_seen_without_connecting() {
        let (listener, port) = crate::listener();
        let found: Vec<Listener> = on(port);
        assert_eq!(found.len(), 1);
        assert!(sockets(std::process::id()).contains(&found[0].inode));
        drop(listener);
        // A process that another test just forked holds it until it has executed its program.
        let ends = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !on(port).is_empty() {
            assert!(std::time::Instant::now() < ends, "it is still there");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_listener_of_ipv6_is_seen() {
        let Ok(listener) = std::net::TcpListener::bind("[::1]:0") else { return }; // no IPv6 here
        let port = listener.local_addr().expect("its address").port();
        assert_eq!(on(port).len(), 1);
    }
}
