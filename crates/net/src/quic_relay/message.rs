//! A datagram on its way to the process that it belongs to.
//!
//! ```text
//!  version 1 | ecn 1 | segment 2 | from | listener | to: 0, or family and address | bytes
//!  an address: family 4 or 6 | port 2 | 4 or 16 bytes | scope 4 (of version 6)
//! ```
//!
//! Both ends may be of different binaries: what has another version is dropped. Numbers are
//! big-endian.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::AsFd;

use os::SockAddr;

const VERSION: u8 = 1;

/// The longest head, bytes.
pub const HEAD_MAX: usize = 4 + 23 + 23 + 17;

/// A datagram, or several of one length, with what the receiver of a socket knows of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relayed<'a> {
    /// The client.
    pub from: SockAddr,
    /// The address of the socket that it came to, as it is listened on.
    pub listener: SockAddr,
    /// The local address that it came to, where the socket has several.
    pub to: Option<IpAddr>,
    /// ECN bits.
    pub ecn: u8,
    /// The length of each datagram but the last one.
    pub segment: u16,
    /// Their bytes.
    pub bytes: &'a [u8],
}

impl Relayed<'_> {
    /// Sends it over a relay.
    ///
    /// # Errors
    /// The system's; `Unsupported` where an address is not of IP.
    pub(super) fn send(&self, fd: impl AsFd) -> io::Result<()> {
        let mut head = Vec::with_capacity(HEAD_MAX);
        head.extend([VERSION, self.ecn]);
        head.extend(self.segment.to_be_bytes());
        put_address(&mut head, &self.from)?;
        put_address(&mut head, &self.listener)?;
        match self.to {
            None => head.push(0),
            Some(ip) => put_ip(&mut head, ip, None),
        }
        let parts = [IoSlice::new(&head), IoSlice::new(self.bytes)];
        os::socket::send_vectored(fd, &parts, false).map(drop)
    }

    /// Reads one; nothing where it is none.
    pub(super) fn read(message: &[u8]) -> Option<Relayed<'_>> {
        let mut rest = Rest(message);
        let [version, ecn] = rest.take()?;
        if version != VERSION {
            return None;
        }
        let segment = u16::from_be_bytes(rest.take()?);
        let (from, listener) = (rest.address()?, rest.address()?);
        let [family] = rest.take()?;
        let to = match family {
            0 => None,
            family => Some(rest.ip(family)?),
        };
        Some(Relayed { from, listener, to, ecn, segment, bytes: rest.0 })
    }
}

fn put_address(head: &mut Vec<u8>, addr: &SockAddr) -> io::Result<()> {
    let ip = addr.ip_addr().ok_or(io::ErrorKind::Unsupported)?;
    put_ip(head, ip, Some(addr.port()));
    if let SockAddr::V6(addr) = addr {
        head.extend(addr.scope_id().to_be_bytes());
    }
    Ok(())
}

fn put_ip(head: &mut Vec<u8>, ip: IpAddr, port: Option<u16>) {
    head.push(if ip.is_ipv4() { 4 } else { 6 });
    if let Some(port) = port {
        head.extend(port.to_be_bytes());
    }
    match ip {
        IpAddr::V4(ip) => head.extend(ip.octets()),
        IpAddr::V6(ip) => head.extend(ip.octets()),
    }
}

/// The bytes that are still to be read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn ip(&mut self, family: u8) -> Option<IpAddr> {
        match family {
            4 => Some(IpAddr::V4(Ipv4Addr::from(self.take::<4>()?))),
            6 => Some(IpAddr::V6(Ipv6Addr::from(self.take::<16>()?))),
            _ => None,
        }
    }

    fn address(&mut self) -> Option<SockAddr> {
        let [family] = self.take()?;
        let port = u16::from_be_bytes(self.take()?);
        match self.ip(family)? {
            ip @ IpAddr::V4(_) => Some(SockAddr::ip(ip, port)),
            IpAddr::V6(ip) => {
                let scope = u32::from_be_bytes(self.take()?);
                Some(SockAddr::V6(SocketAddrV6::new(ip, port, 0, scope)))
            }
        }
    }
}
