//! The address of a client behind trusted proxies, for modules that look addresses up.

use std::net::IpAddr;

use conf::{ConfError, Node, value};
use engine::Session;
use net::Cidr;
use os::SockAddr;

use crate::forwarded;

/// Proxies whose `X-Forwarded-For` counts.
#[derive(Default)]
pub struct Proxies {
    /// Their addresses.
    pub nets: Vec<Cidr>,
    /// Whether trusted proxies are skipped, up to the first address that is not one of them.
    pub recursive: Option<bool>,
}

impl Proxies {
    /// Reads a directive that adds a proxy.
    ///
    /// # Errors
    /// The argument is no address.
    pub(crate) fn set_proxy(&mut self, n: &Node) -> Result<(), ConfError> {
        self.nets.push(Cidr::configured(n.arg(0)?)?);
        Ok(())
    }

    /// Reads the directive that sets [`Proxies::recursive`].
    ///
    /// # Errors
    /// The argument is neither `on` nor `off`, or the directive is duplicate.
    pub(crate) fn set_recursive(&mut self, n: &Node) -> Result<(), ConfError> {
        value::set_flag(&mut self.recursive, n)
    }

    /// The address of the session's client; `None` for one of a unix socket.
    pub fn client<S: Session>(&self, s: &S) -> Option<IpAddr> {
        self.behind(s, s.address().ip_addr()?)
    }

    /// The address of the client behind `peer`.
    pub fn behind<S: Session>(&self, s: &S, peer: IpAddr) -> Option<IpAddr> {
        if self.nets.is_empty() {
            return Some(peer);
        }
        let trusted = |addr: &SockAddr| {
            addr.ip_addr().is_some_and(|ip| self.nets.iter().any(|net| net.contains(ip)))
        };
        let peer_addr = SockAddr::ip(peer, 0);
        let client = forwarded::client(
            &peer_addr,
            s.forwarded_for().into_iter(),
            trusted,
            self.recursive == Some(true),
        );
        Some(client.and_then(|addr| addr.ip_addr()).unwrap_or(peer))
    }
}
