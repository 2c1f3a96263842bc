//! Socket addresses, in nginx's text form: `127.0.0.1:80`, `[::1]:80`, `unix:/path`.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};

/// The longest path of a unix socket, in bytes: `sun_path` less its closing NUL.
pub const UNIX_PATH_MAX: usize = 107;

/// The address of one end of a socket.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SockAddr {
    /// IPv4 address and port.
    V4(SocketAddrV4),
    /// IPv6 address and port (flow and scope kept).
    V6(SocketAddrV6),
    /// Unix socket, named by a path, abstract or unnamed.
    Unix(UnixAddr),
}

/// The name of a unix socket. A path has no NUL byte; an abstract name begins with one; a client
/// that did not bind has an empty one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct UnixAddr(Box<[u8]>);

impl UnixAddr {
    /// The name for a path in the file system. Fails when it is too long, empty or has a NUL byte.
    pub fn from_path(path: &[u8]) -> io::Result<UnixAddr> {
        if path.is_empty() || path.len() > UNIX_PATH_MAX || path.contains(&0) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        Ok(UnixAddr(path.into()))
    }

    /// The path, when the socket has one in the file system.
    pub fn path(&self) -> Option<&Path> {
        match self.0.first() {
            None | Some(0) => None,
            Some(_) => Some(Path::new(std::ffi::OsStr::from_bytes(&self.0))),
        }
    }

    /// The name as the kernel gives it, without a closing NUL.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The part of an address that names a client. A block of 64 bits of IPv6 is one client's: a host
/// takes any address in it.
pub fn block_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip => ip,
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(addr: SocketAddr) -> SockAddr {
        match addr {
            SocketAddr::V4(v4) => SockAddr::V4(v4),
            SocketAddr::V6(v6) => SockAddr::V6(v6),
        }
    }
}

impl SockAddr {
    /// The same as the library's address; none for unix sockets.
    pub fn to_std(&self) -> Option<SocketAddr> {
        match self {
            SockAddr::V4(v4) => Some(SocketAddr::V4(*v4)),
            SockAddr::V6(v6) => Some(SocketAddr::V6(*v6)),
            SockAddr::Unix(_) => None,
        }
    }

    /// Address of an IPv4 or IPv6 host.
    pub fn ip(ip: IpAddr, port: u16) -> SockAddr {
        match ip {
            IpAddr::V4(v4) => SockAddr::V4(SocketAddrV4::new(v4, port)),
            IpAddr::V6(v6) => SockAddr::V6(SocketAddrV6::new(v6, port, 0, 0)),
        }
    }

    /// Address of a unix socket at `path`.
    pub fn unix(path: &[u8]) -> io::Result<SockAddr> {
        UnixAddr::from_path(path).map(SockAddr::Unix)
    }

    /// Reads a numeric address in text form. A port is needed for IP addresses; `unix:` takes a
    /// path. Names are not resolved. The reverse of `Display`.
    pub fn parse(text: &[u8]) -> Option<SockAddr> {
        if let Some(path) = text.strip_prefix(b"unix:") {
            return SockAddr::unix(path).ok();
        }
        let text = std::str::from_utf8(text).ok()?;
        let (host, port) = text.rsplit_once(':')?;
        if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let port: u16 = port.parse().ok()?;
        match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(v6) => v6.parse::<Ipv6Addr>().ok().map(|a| SockAddr::ip(IpAddr::V6(a), port)),
            None => host.parse::<Ipv4Addr>().ok().map(|a| SockAddr::ip(IpAddr::V4(a), port)),
        }
    }

    /// The host's address; `None` for unix sockets.
    pub fn ip_addr(&self) -> Option<IpAddr> {
        match self {
            SockAddr::V4(a) => Some(IpAddr::V4(*a.ip())),
            SockAddr::V6(a) => Some(IpAddr::V6(*a.ip())),
            SockAddr::Unix(_) => None,
        }
    }

    /// The port; 0 for unix sockets.
    pub fn port(&self) -> u16 {
        match self {
            SockAddr::V4(a) => a.port(),
            SockAddr::V6(a) => a.port(),
            SockAddr::Unix(_) => 0,
        }
    }

    /// The same host with another port; unix addresses stay as they are.
    pub fn with_port(&self, port: u16) -> SockAddr {
        let mut addr = self.clone();
        match &mut addr {
            SockAddr::V4(a) => a.set_port(port),
            SockAddr::V6(a) => a.set_port(port),
            SockAddr::Unix(_) => {}
        }
        addr
    }

    /// Whether this is a unix socket's address.
    pub fn is_unix(&self) -> bool {
        matches!(self, SockAddr::Unix(_))
    }

    /// Whether the host is the wildcard (`0.0.0.0`, `[::]`).
    pub fn is_wildcard(&self) -> bool {
        self.ip_addr().is_some_and(|ip| ip.is_unspecified())
    }

    /// The host without the port, as `$remote_addr` and log lines have it: `127.0.0.1`, `::1`,
    /// `unix:`. (nginx names the client of a unix socket just `unix:`.)
    pub fn host(&self) -> Host<'_> {
        Host(self)
    }

    /// The address family for `socket(2)`.
    pub fn family(&self) -> AddressFamily {
        match self {
            SockAddr::V4(_) => AddressFamily::INET,
            SockAddr::V6(_) => AddressFamily::INET6,
            SockAddr::Unix(_) => AddressFamily::UNIX,
        }
    }

    /// The kernel's form.
    pub(crate) fn to_any(&self) -> io::Result<SocketAddrAny> {
        Ok(match self {
            SockAddr::V4(a) => SocketAddrAny::from(*a),
            SockAddr::V6(a) => SocketAddrAny::from(*a),
            SockAddr::Unix(u) => SocketAddrAny::from(match u.0.split_first() {
                None => SocketAddrUnix::new_unnamed(),
                Some((0, name)) => SocketAddrUnix::new_abstract_name(name)?,
                Some(_) => SocketAddrUnix::new(u.bytes())?,
            }),
        })
    }

    /// From the kernel's form; families other than IPv4, IPv6 and unix are refused.
    pub(crate) fn from_any(any: &SocketAddrAny) -> io::Result<SockAddr> {
        match any.address_family() {
            AddressFamily::INET => Ok(SockAddr::V4(any.clone().try_into()?)),
            AddressFamily::INET6 => Ok(SockAddr::V6(any.clone().try_into()?)),
            AddressFamily::UNIX => {
                let unix: SocketAddrUnix = any.clone().try_into()?;
                Ok(SockAddr::Unix(UnixAddr(if let Some(path) = unix.path_bytes() {
                    // A path of the greatest length comes with its closing NUL.
                    path.strip_suffix(&[0]).unwrap_or(path).into()
                } else if let Some(name) = unix.abstract_name().filter(|n| !n.is_empty()) {
                    [&[0], name].concat().into()
                } else {
                    Box::default()
                })))
            }
            _ => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        }
    }
}

impl fmt::Display for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SockAddr::V4(a) => write!(f, "{a}"),
            SockAddr::V6(a) => write!(f, "[{}]:{}", a.ip(), a.port()),
            SockAddr::Unix(u) => {
                f.write_str("unix:")?;
                for chunk in u.bytes().utf8_chunks() {
                    f.write_str(&chunk.valid().replace('\0', "@"))?;
                    chunk.invalid().iter().try_for_each(|b| write!(f, "\\x{b:02X}"))?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Prints a [`SockAddr`] without its port; see [`SockAddr::host`].
#[derive(Clone, Copy)]
pub struct Host<'a>(&'a SockAddr);

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            SockAddr::V4(a) => write!(f, "{}", a.ip()),
            SockAddr::V6(a) => write!(f, "{}", a.ip()),
            SockAddr::Unix(_) => f.write_str("unix:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_ipv6_is_a_client() {
        let block = |ip: &str| block_of(ip.parse().unwrap());
        assert_eq!(block("2001:db8:1:2:3:4:5:6"), block("2001:db8:1:2::"));
        assert_ne!(block("2001:db8:1:2::"), block("2001:db8:1:3::"));
        assert_eq!(block("::ffff:192.0.2.1"), block("192.0.2.1"));
        assert_ne!(block("192.0.2.1"), block("192.0.2.2"));
    }

    #[test]
    fn text_and_back() {
        for text in ["127.0.0.1:80", "[::1]:8080", "[2001:db8::2]:1", "unix:/run/x.sock"] {
            let addr = SockAddr::parse(text.as_bytes()).unwrap();
            assert_eq!(addr.to_string(), text);
            assert_eq!(SockAddr::from_any(&addr.to_any().unwrap()).unwrap(), addr);
        }
        assert_eq!(SockAddr::parse(b"[::1]:80").unwrap().host().to_string(), "::1");
        assert_eq!(SockAddr::parse(b"unix:/x").unwrap().host().to_string(), "unix:");
    }

    #[test]
    fn bad_text_is_refused() {
        let long = format!("unix:/{}", "x".repeat(UNIX_PATH_MAX));
        let bad =
            ["", "80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:+1", "::1:80"];
        for text in bad.iter().chain(&["[::1]", "localhost:80", "unix:", "unix:/a\0b", &long]) {
            assert_eq!(SockAddr::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn unix_names_of_each_kind() {
        let longest = SockAddr::unix("y".repeat(UNIX_PATH_MAX).as_bytes()).unwrap();
        assert_eq!(SockAddr::from_any(&longest.to_any().unwrap()).unwrap(), longest);
        let unnamed = SockAddr::Unix(UnixAddr::default());
        assert_eq!(SockAddr::from_any(&unnamed.to_any().unwrap()).unwrap(), unnamed);
        let hidden = SockAddr::Unix(UnixAddr(b"\0weir"[..].into()));
        assert_eq!(SockAddr::from_any(&hidden.to_any().unwrap()).unwrap(), hidden);
        assert_eq!(hidden.to_string(), "unix:@weir");
    }
}
