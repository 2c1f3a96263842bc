//! The address of a client behind proxies that are trusted, for modules that look addresses up.

use std::net::IpAddr;

use conf::{ConfError, Node, value};
use http::request::Request;
use net::{Cidr, forwarded};
use os::SockAddr;
use proto::h1::FieldId;

/// Proxies whose `X-Forwarded-For` counts.
#[derive(Default)]
pub struct Proxies {
    pub nets: Vec<Cidr>,
    pub recursive: Option<bool>,
}

impl Proxies {
    /// A directive that adds a proxy.
    pub fn set_proxy(&mut self, n: &Node) -> Result<(), ConfError> {
        self.nets.push(Cidr::configured(n.arg(0)?)?);
        Ok(())
    }

    /// A directive that says whether addresses behind proxies are looked through.
    pub fn set_recursive(&mut self, n: &Node) -> Result<(), ConfError> {
        value::set_flag(&mut self.recursive, n)
    }

    /// Where the request came from; nothing where that has no address.
    pub fn client(&self, r: &Request) -> Option<IpAddr> {
        self.behind(r, r.peer().ip_addr()?)
    }

    /// The same for one that came from `peer`.
    pub fn behind(&self, r: &Request, peer: IpAddr) -> Option<IpAddr> {
        if self.nets.is_empty() {
            return Some(peer);
        }
        let buf = r.head_bytes();
        let fields: Vec<_> =
            r.head.all(FieldId::XForwardedFor).map(|field| field.value.of(buf)).collect();
        let trusted = |addr: &SockAddr| {
            addr.ip_addr().is_some_and(|ip| self.nets.iter().any(|net| net.contains(ip)))
        };
        let peer_addr = SockAddr::ip(peer, 0);
        let client = forwarded::client(
            &peer_addr,
            fields.into_iter(),
            trusted,
            self.recursive == Some(true),
        );
        Some(client.and_then(|addr| addr.ip_addr()).unwrap_or(peer))
    }
}
