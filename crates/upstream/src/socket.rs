//! Sockets for connections to upstreams, with the settings of `*_bind` and `*_socket_…`.

use std::io;
use std::os::fd::OwnedFd;

use base::log::{Level, lossy};
use conf::template::Template;
use conf::{ConfError, Node};
use engine::{Client, Cx, Session};
use event::Sock;
use os::SockAddr;
use os::socket::Kind;

/// `*_bind`: our own end of connections.
#[derive(Clone, Default)]
pub enum Bind {
    /// `off`
    #[default]
    Off,
    /// An address.
    To {
        /// The address, maybe from variables.
        address: LocalAddress,
        /// `transparent`: it need not be one of this machine's.
        transparent: bool,
    },
}

impl Bind {
    /// Reads `*_bind ADDRESS [transparent] | off`.
    ///
    /// # Errors
    /// `invalid address`, `invalid parameter`, and errors in the address's variables.
    pub fn parse<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<Bind, ConfError> {
        let word = n.arg(0)?;
        if word.bytes() == b"off" && n.args.len() == 1 {
            return Ok(Bind::Off);
        }
        let template = cx.template(word)?;
        let address = match template.as_const() {
            None => LocalAddress::Template(template),
            Some(text) => LocalAddress::Addr(local_addr(text).ok_or_else(|| {
                ConfError::at(word, format!("invalid address \"{}\"", word.lossy()))
            })?),
        };
        match n.args.get(1) {
            None => Ok(Bind::To { address, transparent: false }),
            Some(w) if w.bytes() == b"transparent" => Ok(Bind::To { address, transparent: true }),
            Some(w) => Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
        }
    }
}

impl Bind {
    /// A text that is another one where another address or option is configured.
    pub fn text(&self) -> String {
        match self {
            Bind::Off => String::new(),
            Bind::To { address: LocalAddress::Addr(addr), transparent } => {
                format!("{addr} {transparent}")
            }
            Bind::To { address: LocalAddress::Template(_), transparent } => {
                format!("variable {transparent}")
            }
        }
    }
}

/// An address of our own.
#[derive(Clone)]
pub enum LocalAddress {
    /// A constant one.
    Addr(SockAddr),
    /// One from variables.
    Template(Template),
}

/// The settings of sockets to servers.
#[derive(Clone, Default)]
pub struct SocketConf {
    /// Our own end.
    pub bind: Bind,
    /// SO_KEEPALIVE
    pub keepalive: bool,
    /// SO_RCVBUF, bytes; 0 leaves it.
    pub rcvbuf: usize,
    /// SO_SNDBUF, bytes; 0 leaves it.
    pub sndbuf: usize,
}

impl SocketConf {
    /// Whether our own end depends on variables.
    pub fn varies(&self) -> bool {
        matches!(self.bind, Bind::To { address: LocalAddress::Template(_), .. })
    }

    /// The same with the address that the variables give now, which is returned, too. An address
    /// that is invalid is logged and leaves the end to the system.
    pub fn evaluated(&self, client: &mut dyn Client) -> (SocketConf, Option<SockAddr>) {
        let Bind::To { address, transparent } = &self.bind else { return (self.clone(), None) };
        let local = local_end(client, address);
        let bind = local.clone().map_or(Bind::Off, |local| Bind::To {
            address: LocalAddress::Addr(local),
            transparent: *transparent,
        });
        (SocketConf { bind, ..*self }, local)
    }
}

/// A socket's kind, for options that only TCP has.
fn is_tcp(kind: Kind, addr: &SockAddr) -> bool {
    kind == Kind::Stream && !addr.is_unix()
}

/// No socket could be opened; the reason was logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotOpened;

/// A stream socket that is not connected yet.
///
/// # Errors
/// The system's, logged.
pub fn open(
    client: &mut dyn Client,
    conf: &SocketConf,
    addr: &SockAddr,
) -> Result<Sock, NotOpened> {
    open_fd(client, conf, addr, Kind::Stream).map(Sock::from_fd)
}

/// The same of any kind, outside of the loop.
///
/// # Errors
/// The system's, logged.
pub fn open_fd(
    client: &mut dyn Client,
    conf: &SocketConf,
    addr: &SockAddr,
    kind: Kind,
) -> Result<OwnedFd, NotOpened> {
    let fd = match os::socket::socket(addr, kind) {
        Ok(fd) => fd,
        Err(e) => {
            client.log_os(Level::Alert, format_args!("socket()"), &e);
            return Err(NotOpened);
        }
    };
    let (local, transparent) = match &conf.bind {
        Bind::Off => (None, false),
        Bind::To { address, transparent } => (local_end(client, address), *transparent),
    };
    let failed = |what: &str, e: io::Error| {
        client.log_os(Level::Alert, format_args!("{what}"), &e);
        NotOpened
    };
    if conf.keepalive && is_tcp(kind, addr) {
        os::socket::set_keepalive(&fd, true).map_err(|e| failed("setsockopt(SO_KEEPALIVE)", e))?;
    }
    if conf.rcvbuf > 0 {
        os::socket::set_rcvbuf(&fd, conf.rcvbuf).map_err(|e| failed("setsockopt(SO_RCVBUF)", e))?;
    }
    if conf.sndbuf > 0 {
        os::socket::set_sndbuf(&fd, conf.sndbuf).map_err(|e| failed("setsockopt(SO_SNDBUF)", e))?;
    }
    if let Some(local) = local {
        if transparent && !local.is_unix() {
            os::socket::set_transparent(&fd, &local)
                .map_err(|e| failed("setsockopt(IP_TRANSPARENT)", e))?;
        }
        if local.port() == 0 && is_tcp(kind, &local) {
            // Old kernels do not know it and take a port at once.
            let _ = os::socket::set_bind_address_no_port(&fd);
        }
        if let Err(e) = os::socket::bind(&fd, &local) {
            client.log_os(Level::Crit, format_args!("bind({local})"), &e);
            return Err(NotOpened);
        }
    }
    Ok(fd)
}

/// Prepares a socket for a connection on which we speak first, at once: the server is woken once,
/// by our first bytes, and not by the end of the handshake before them. A server that speaks first
/// must not wait for those.
pub fn speaks_first(sock: &Sock, addr: &SockAddr) {
    if !addr.is_unix() {
        // It saves a packet, and is not needed.
        let _ = os::socket::set_quickack(sock.fd(), false);
    }
}

/// Our own end of a connection, if one is set.
fn local_end(client: &mut dyn Client, address: &LocalAddress) -> Option<SockAddr> {
    let template = match address {
        LocalAddress::Addr(a) => return Some(a.clone()),
        LocalAddress::Template(t) => t,
    };
    let text = client.eval(template);
    let local = local_addr(&text);
    if local.is_none() && !text.is_empty() {
        client.log(Level::Error, format_args!("invalid local address \"{}\"", lossy(&text)));
    }
    local
}

/// An address with or without a port.
pub fn local_addr(text: &[u8]) -> Option<SockAddr> {
    SockAddr::parse(text).or_else(|| {
        let text = std::str::from_utf8(text).ok()?;
        let ip = text.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
        Some(SockAddr::ip(ip, 0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses() {
        assert_eq!(local_addr(b"127.0.0.1"), SockAddr::parse(b"127.0.0.1:0"));
        assert_eq!(local_addr(b"127.0.0.1:7"), SockAddr::parse(b"127.0.0.1:7"));
        assert_eq!(local_addr(b"[::1]"), SockAddr::parse(b"[::1]:0"));
        assert_eq!(local_addr(b"nope"), None);
    }
}
