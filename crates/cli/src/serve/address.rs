//! The address of `weir serve`: from the options, or the first free port; and how others in the
//! network reach it.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};

use pki::issue::local::is_local;

use crate::error::Error;

/// Ports that are tried when none is named.
const TRIED: u16 = 10;

/// The options about addresses, as they were typed.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) listen: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) lan: bool,
}

/// An address that is ours.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) address: SocketAddr,
    /// The socket that listens there already: otherwise another program could take the port
    /// between this choice and the start of the server.
    pub(crate) socket: TcpListener,
    /// The usual port, if another program has it.
    pub(crate) taken: Option<u16>,
}

impl Chosen {
    /// Host and port of a URL under TLS on this machine.
    pub(crate) fn host(&self) -> String {
        let ip = self.address.ip();
        match ip.is_loopback() || ip.is_unspecified() {
            true => format!("localhost:{}", self.address.port()),
            false => self.address.to_string(),
        }
    }

    /// The addresses that a certificate needs besides those of this machine alone.
    pub(crate) fn certified(&self) -> Vec<IpAddr> {
        let ip = self.address.ip();
        let own = if ip.is_unspecified() { in_network() } else { Some(ip) };
        own.filter(|ip| !ip.is_loopback() && is_local(*ip)).into_iter().collect()
    }
}

impl Asked {
    /// Chooses the address. `usual` is the first port that is tried if none is named.
    ///
    /// # Errors
    /// It is no address, or the named one cannot be had; then the message names a free port.
    pub(crate) fn choose(&self, usual: u16) -> Result<Chosen, Error> {
        if let Some(text) = &self.listen {
            return named(parse(text, usual)?);
        }
        let host = IpAddr::from(if self.lan { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST });
        if let Some(port) = self.port {
            return named(SocketAddr::new(host, port));
        }
        let (socket, address) = free_from(SocketAddr::new(host, usual)).ok_or_else(|| {
            let last = usual + TRIED - 1;
            Error::system(format!("ports {usual} to {last} are taken: name one with --port"))
        })?;
        Ok(Chosen { address, socket, taken: (address.port() != usual).then_some(usual) })
    }
}

/// An address that was named. That it cannot be had is found out here, because the server's
/// announcement is the first that people read.
fn named(address: SocketAddr) -> Result<Chosen, Error> {
    let error = match TcpListener::bind(address) {
        // Port 0 is any free one.
        Ok(socket) => {
            let address = socket.local_addr().unwrap_or(address);
            return Ok(Chosen { address, socket, taken: None });
        }
        Err(e) => e,
    };
    let next = || free_from(SocketAddr::new(address.ip(), address.port().checked_add(1)?));
    let hint = match error.kind() {
        ErrorKind::AddrInUse => next().map(|(_, free)| format!("port {} is free", free.port())),
        ErrorKind::PermissionDenied => {
            Some("ports below 1024 are root's: name another one with --port".to_owned())
        }
        _ => None,
    };
    Err(Error::system(format!(
        "{address}: {error}{}",
        hint.map(|hint| format!("; {hint}")).unwrap_or_default()
    )))
}

/// The first address from this one up whose port is free, and a socket that has it.
fn free_from(first: SocketAddr) -> Option<(TcpListener, SocketAddr)> {
    let ports = first.port()..=first.port().saturating_add(TRIED - 1);
    let mut all = ports.map(|port| SocketAddr::new(first.ip(), port));
    all.find_map(|address| Some((TcpListener::bind(address).ok()?, address)))
}

/// `8080`, `:8080`, `127.0.0.1`, `localhost:8080` and so on, as an address with a port.
fn parse(text: &str, usual: u16) -> Result<SocketAddr, Error> {
    let typed = text.trim_start_matches("http://").trim_start_matches("https://");
    let typed = typed.trim_end_matches('/');
    let full = match typed.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        Err(_) if typed.starts_with(':') => format!("127.0.0.1{typed}"),
        Err(_) if typed.to_socket_addrs().is_ok() => typed.to_owned(),
        Err(_) => format!("{typed}:{usual}"),
    };
    match full.to_socket_addrs().map(|mut all| all.next()) {
        Ok(Some(address)) => Ok(address),
        _ => Err(Error::usage(format!("\"{text}\" is not an address to listen on"))),
    }
}

/// This machine's address in its network: that of packets to elsewhere. Nothing is sent, because
/// the address belongs to documentation (RFC 5737) and connecting a datagram socket only chooses a
/// route.
pub(crate) fn in_network() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// The address for a browser on this machine: wildcards are reached through the loopback address.
pub(crate) fn local(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_the_forms_people_type() {
        let of = |text: &str| parse(text, 8080).map(|address| address.to_string());
        assert_eq!(of("9000").unwrap(), "127.0.0.1:9000");
        assert_eq!(of(":9000").unwrap(), "127.0.0.1:9000");
        assert_eq!(of("127.0.0.1").unwrap(), "127.0.0.1:8080");
        assert_eq!(of("http://0.0.0.0:80/").unwrap(), "0.0.0.0:80");
        assert!(of("no such host").is_err());
        assert_eq!(local("0.0.0.0:80".parse().unwrap()).to_string(), "127.0.0.1:80");
        assert_eq!(local("[::]:80".parse().unwrap()).to_string(), "[::1]:80");
    }

    #[test]
    fn a_taken_port_is_avoided_or_an_error_that_names_a_free_one() {
        // Below the ports that the system gives to clients: the ones after it are ours to try.
        let (socket, port) = (20_000..32_000)
            .step_by(37)
            .find_map(|port| {
                let free = |port| TcpListener::bind(("127.0.0.1", port)).ok();
                let (socket, _next) = (free(port)?, free(port + 1)?);
                Some((socket, port))
            })
            .unwrap();
        let chosen = Asked::default().choose(port).unwrap();
        assert_eq!((chosen.address.port(), chosen.taken), (port + 1, Some(port)));
        drop(chosen);
        let error =
            Asked { port: Some(port), ..Asked::default() }.choose(8080).unwrap_err().to_string();
        assert!(error.contains("in use") && error.contains("; port "), "{error}");
        assert!(error.ends_with(&format!("{} is free", port + 1)), "{error}");
        drop(socket);
        let named = Asked { port: Some(port), ..Asked::default() };
        let held = named.choose(8080).unwrap();
        assert_eq!((held.address.port(), held.taken), (port, None));
        // Who comes next finds it taken, although no server has begun.
        assert!(named.choose(8080).unwrap_err().to_string().contains("in use"));
    }
}
