//! `ip_hash`: all clients of one network use the same server.

use std::net::IpAddr;
use std::rc::Rc;

use ::upstream::balance::drawn::{Draw, Drawn, Misses, at_weight, until_one_fits};
use ::upstream::balance::{Balancer, Picker, Round};
use ::upstream::block::Block;
use ::upstream::servers::Servers;
use conf::table::{Args, Contexts as C, Directive};
use engine::Client;
use http::core_directives::directive;
use http::cx::Cx;
use http::module::Module;

/// The module's table.
pub static MODULE: Module =
    Module { name: "upstream_ip_hash", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "ip_hash",
    C::UPSTREAM,
    Args::NONE,
    "",
    "Selects servers by the client's address: the first three octets (IPv4), or all (IPv6).",
    |cx, n| {
        let make = |servers: &Rc<Servers>| Box::new(IpHash(servers.clone())) as Box<_>;
        cx.loc::<Block>().set_method(n, false, Box::new(make));
        Ok(())
    },
)];

struct IpHash(Rc<Servers>);

impl Balancer for IpHash {
    fn picker(&self, client: &mut dyn Client) -> Box<dyn Picker> {
        let key = match client.address().ip_addr() {
            Some(IpAddr::V4(ip)) => ip.octets()[..3].to_vec(),
            Some(IpAddr::V6(ip)) => ip.octets().to_vec(),
            None => vec![0; 3],
        };
        Box::new(Drawn::new(Round::new(&self.0), ByNetwork { key, hash: 89 }))
    }
}

struct ByNetwork {
    key: Vec<u8>,
    /// The hash after the last draw.
    hash: u64,
}

/// One round of nginx's hash function.
fn next_hash(hash: u64, key: &[u8]) -> u64 {
    key.iter().fold(hash, |hash, byte| (hash * 113 + u64::from(*byte)) % 6271)
}

impl Draw for ByNetwork {
    fn draw(&mut self, round: &Round, misses: &mut Misses, now: i64) -> Option<usize> {
        let mut hash = self.hash;
        let i = until_one_fits(misses, || {
            hash = next_hash(hash, &self.key);
            let i = at_weight(round.list(), hash.cast_signed() % round.total_weight());
            round.may_ask(i, now).then_some(i)
        })?;
        self.hash = hash;
        Some(i)
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
