//! The address of a client behind proxies that are trusted, for modules that look addresses up.

use std::net::IpAddr;

use http::request::Request;
use net::{Cidr, forwarded};
use os::SockAddr;
use proto::h1::FieldId;

/// Proxies whose `X-Forwarded-For` counts.
#[derive(Default)]
pub struct Proxies {
    pub nets: Vec<Cidr>,
    pub recursive: bool,
}

impl Proxies {
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
        let client = forwarded::client(&peer_addr, fields.into_iter(), trusted, self.recursive);
        Some(client.and_then(|addr| addr.ip_addr()).unwrap_or(peer))
    }
}
