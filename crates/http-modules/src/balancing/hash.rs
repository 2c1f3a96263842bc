//! `hash KEY [consistent]`: equal keys go to the same server, as Cache::Memcached (plain) and
//! Cache::Memcached::Fast (consistent) choose it, and nginx with them.

use std::cell::RefCell;
use std::rc::Rc;

use base::crc::Crc32;
use base::time;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::{ConfError, Node};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::Module;
use http::request::Request;
use http::upstream::balance::{Balancer, Outcome, Picker, Round, Times};
use http::upstream::block::Block;
use http::upstream::peer::Peer;
use http::upstream::servers::Servers;

use super::TRIES_MAX;
use super::ip_hash::at_weight;
use super::ring::Ring;

/// The module's table.
pub static MODULE: Module =
    Module { name: "upstream_hash", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "hash",
    C::UPSTREAM,
    Args::T12,
    "",
    "Requests go to servers by a key; consistent moves few keys when servers change.",
    set,
)];

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let key = cx.template(n.arg(0)?)?;
    let consistent = match n.args.get(1) {
        None => false,
        Some(w) if w.bytes() == b"consistent" => true,
        Some(w) => return Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
    };
    let make = move |servers: &Rc<Servers>| {
        let servers = servers.clone();
        match consistent {
            true => Box::new(Consistent { servers, key, ring: RefCell::default() }) as Box<_>,
            false => Box::new(Plain { servers, key }) as Box<dyn Balancer>,
        }
    };
    cx.loc::<Block>().set_method(n, false, Box::new(make));
    Ok(())
}

struct Plain {
    servers: Rc<Servers>,
    key: Template,
}

impl Balancer for Plain {
    fn picker(&self, r: &mut Request) -> Box<dyn Picker> {
        let (round, key) = (Round::new(&self.servers), self.key.eval(r));
        Box::new(PlainPicker { round, key, sum: 0, rehash: 0, tries: 0 })
    }
}

struct PlainPicker {
    round: Round,
    key: Bytes,
    sum: u32,
    rehash: u32,
    tries: u32,
}

/// One hash of a key: the upper half of its CRC, with the number of the try before it from the
/// second on.
fn plain_hash(key: &[u8], rehash: u32) -> u32 {
    let mut crc = Crc32::new();
    if rehash > 0 {
        crc.update(rehash.to_string().as_bytes());
    }
    crc.update(key);
    crc.finish() >> 16 & 0x7fff
}

impl PlainPicker {
    fn choose(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        let servers = self.round.servers();
        let _lock = servers.lock();
        let now = time::unix_secs() as i64;
        if let Some(i) = self.round.bound(bound, now) {
            return Some(self.round.take(i, now));
        }
        let total = self.round.total_weight();
        while self.tries <= TRIES_MAX {
            self.sum = self.sum.wrapping_add(plain_hash(&self.key, self.rehash));
            self.rehash += 1;
            let i = at_weight(self.round.list(), i64::from(self.sum) % total);
            if self.round.may_ask(i, now) {
                return Some(self.round.take(i, now));
            }
            self.tries += 1;
        }
        None
    }
}

impl Picker for PlainPicker {
    fn tries(&self) -> u32 {
        self.round.tries()
    }

    fn next(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        let few = self.round.list().len() < 2;
        if self.tries > TRIES_MAX || few || self.key.is_empty() {
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

struct Consistent {
    servers: Rc<Servers>,
    key: Template,
    /// The ring, and the version of the servers that it was made for.
    ring: RefCell<(u64, Rc<Ring>)>,
}

impl Consistent {
    fn ring(&self, round: &Round) -> Rc<Ring> {
        let lists = round.lists();
        let mut made = self.ring.borrow_mut();
        if made.0 != lists.version() {
            *made = (lists.version(), Rc::new(Ring::new(&lists.main)));
        }
        made.1.clone()
    }
}

impl Balancer for Consistent {
    fn picker(&self, r: &mut Request) -> Box<dyn Picker> {
        let (round, key) = (Round::new(&self.servers), self.key.eval(r));
        let ring = self.ring(&round);
        let mut crc = Crc32::new();
        crc.update(&key);
        let point = ring.find(crc.finish());
        Box::new(ConsistentPicker { round, has_key: !key.is_empty(), ring, point, tries: 0 })
    }
}

struct ConsistentPicker {
    round: Round,
    has_key: bool,
    ring: Rc<Ring>,
    point: u32,
    tries: u32,
}

impl ConsistentPicker {
    fn choose(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        let servers = self.round.servers();
        let _lock = servers.lock();
        let now = time::unix_secs() as i64;
        if let Some(i) = self.round.bound(bound, now) {
            return Some(self.round.take(i, now));
        }
        while self.tries <= TRIES_MAX {
            let server = self.ring.server(self.point)?;
            // A name may stand for several addresses.
            let list = self.round.list();
            let fits = |i: usize| list[i].spec.server == *server && self.round.may_ask(i, now);
            if let (Some(i), total) = self.round.smoothest(None, fits) {
                self.round.pay(i, total);
                return Some(self.round.take(i, now));
            }
            self.point = self.point.wrapping_add(1);
            self.tries += 1;
        }
        None
    }
}

impl Picker for ConsistentPicker {
    fn tries(&self) -> u32 {
        self.round.tries()
    }

    fn next(&mut self, bound: Option<&[u8]>) -> Option<Rc<Peer>> {
        if self.tries > TRIES_MAX || self.round.is_single() || !self.has_key {
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
    fn hashes_of_cache_memcached() {
        // The CRC-32 of "123456789" is cbf43926.
        assert_eq!(plain_hash(b"123456789", 0), 0x4bf4);
        assert_eq!(plain_hash(b"23456789", 1), 0x4bf4);
        assert_ne!(plain_hash(b"123456789", 2), 0x4bf4);
    }
}
