//! `set_real_ip_from`: the proxies whose word about the client's address is taken.

use std::rc::Rc;

use conf::{ConfError, Node};
use engine::settings::Inherit;
use net::{Cidr, Origin};
use os::SockAddr;

/// Trusted proxies: addresses, ranges, and unix sockets.
#[derive(Clone, Default)]
pub struct TrustedProxies(Rc<Vec<Origin>>);

impl Inherit for TrustedProxies {
    fn inherit(&mut self, prev: &Self) {
        if self.is_empty() {
            self.clone_from(prev);
        }
    }
}

impl TrustedProxies {
    /// Reads `set_real_ip_from`.
    ///
    /// # Errors
    /// The argument is no address or range, and no name that can be resolved.
    pub fn add(&mut self, n: &Node) -> Result<(), ConfError> {
        let word = &n.args[0];
        let mut origins = Vec::new();
        if word.bytes() == b"unix:" {
            origins.push(Origin::Unix);
        } else if let Some((net, meaningless)) = Cidr::parse(word.bytes()) {
            if meaningless {
                let m = format!("low address bits of {} are meaningless", word.lossy());
                conf::warn(word, m);
            }
            origins.push(Origin::Net(net));
        } else {
            let wrong = |m: &str| {
                ConfError::at(word, format!("{m} in set_real_ip_from \"{}\"", word.lossy()))
            };
            let found = net::addr::resolve(word.bytes()).map_err(wrong)?;
            origins.extend(found.into_iter().map(|ip| Origin::Net(Cidr::host(ip))));
        }
        Rc::make_mut(&mut self.0).extend(origins);
        Ok(())
    }

    /// Says whether no proxy is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Says whether the connection from `peer` is a trusted proxy's.
    pub fn trust(&self, peer: &SockAddr) -> bool {
        self.0.iter().any(|origin| origin.matches(peer))
    }
}
