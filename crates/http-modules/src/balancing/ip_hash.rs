//! `ip_hash`: clients of one network always go to the same server.

use std::net::IpAddr;
use std::rc::Rc;

use base::time;
use conf::table::{Args, Contexts as C, Directive};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::Module;
use http::request::Request;
use http::upstream::balance::{Balancer, Outcome, Picker, Round, Times};
use http::upstream::block::Block;
use http::upstream::peer::Peer;
use http::upstream::servers::Servers;

use super::TRIES_MAX;

/// The module's table.
pub static MODULE: Module =
    Module { name: "upstream_ip_hash", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "ip_hash",
    C::UPSTREAM,
    Args::NONE,
    "",
    "Requests go to servers by the client's network (IPv4) or address (IPv6).",
    |cx, n| {
        let make = |servers: &Rc<Servers>| Box::new(IpHash(servers.clone())) as Box<_>;
        cx.loc::<Block>().set_method(n, false, Box::new(make));
        Ok(())
    },
)];

struct IpHash(Rc<Servers>);

impl Balancer for IpHash {
    fn picker(&self, r: &mut Request) -> Box<dyn Picker> {
        let key = match r.peer().ip_addr() {
            Some(IpAddr::V4(ip)) => ip.octets()[..3].to_vec(),
            Some(IpAddr::V6(ip)) => ip.octets().to_vec(),
            None => vec![0; 3],
        };
        Box::new(IpHashPicker { round: Round::new(&self.0), key, hash: 89, tries: 0 })
    }
}

struct IpHashPicker {
    round: Round,
    key: Vec<u8>,
    hash: u64,
    tries: u32,
}

/// One more round of nginx's hash.
fn next_hash(hash: u64, key: &[u8]) -> u64 {
    key.iter().fold(hash, |hash, byte| (hash * 113 + u64::from(*byte)) % 6271)
}

/// The server on which a point of the sum of all weights falls.
pub(super) fn at_weight(list: &[Rc<Peer>], mut point: i64) -> usize {
    for (i, p) in list.iter().enumerate() {
        if point < p.spec.weight {
            return i;
        }
        point -= p.spec.weight;
    }
    list.len() - 1
}

impl IpHashPicker {
    fn choose(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        let servers = self.round.servers();
        let _lock = servers.lock();
        let now = time::unix_secs() as i64;
        if let Some(i) = self.round.bound(bound, now) {
            return Some(self.round.take(i, now));
        }
        let total = self.round.total_weight();
        let mut hash = self.hash;
        while self.tries <= TRIES_MAX {
            hash = next_hash(hash, &self.key);
            let i = at_weight(self.round.list(), hash.cast_signed() % total);
            if self.round.may_ask(i, now) {
                self.hash = hash;
                return Some(self.round.take(i, now));
            }
            self.tries += 1;
        }
        None
    }
}

impl Picker for IpHashPicker {
    fn tries(&self) -> u32 {
        self.round.tries()
    }

    fn next(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        if self.tries > TRIES_MAX || self.round.list().len() < 2 {
            return self.round.next(bound);
        }
        self.choose(bound).or_else(|| self.round.next(bound))
    }

    fn done(&mut self, peer: &Peer, outcome: Outcome, _: Times) -> bool {
        self.round.done(peer, outcome)
    }

    fn is_single(&self) -> bool {
        self.round.is_single()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_network() {
        // 89 · 113 + 127 = 10184, less 6271 is 3913; and so on.
        assert_eq!(next_hash(89, &[127]), 3913);
        assert_eq!(next_hash(89, &[127, 0, 0]), (3913 * 113 % 6271) * 113 % 6271);
    }
}
