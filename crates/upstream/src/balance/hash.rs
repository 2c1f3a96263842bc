//! `hash KEY [consistent]`: equal keys go to the same server, as Cache::Memcached (plain) and
//! Cache::Memcached::Fast (consistent) choose it, and nginx with them.

use std::cell::RefCell;
use std::rc::Rc;

use base::crc::Crc32;
use bytes::Bytes;
use conf::table::Args;
use conf::template::Template;
use conf::{ConfError, Node};
use engine::{Client, Cx, Module, Session};

use super::drawn::{Draw, Drawn, Misses, at_weight, until_one_fits};
use super::ring::Ring;
use super::{Balancer, Picker, Round, method, table};
use crate::block::Block;
use crate::servers::Servers;

const DOC: &str =
    "Selects servers by the hash of a key; `consistent` moves few keys when servers change.";

/// The module's table, for an engine's list.
pub const fn module<S: Session>() -> Module<S> {
    table("upstream_hash", const { &[method("hash", Args::T12, DOC, set)] })
}

/// `hash KEY [consistent]`
///
/// # Errors
/// `invalid parameter`.
fn set<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
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
    fn picker(&self, client: &mut dyn Client) -> Box<dyn Picker> {
        let (round, key) = (Round::new(&self.servers), client.eval(&self.key));
        Box::new(Drawn::new(round, ByKey { key, sum: 0, rehash: 0 }))
    }
}

struct ByKey {
    key: Bytes,
    sum: u32,
    rehash: u32,
}

/// One hash of a key: the upper half of its CRC. From the second try on, the number of the try
/// stands before the key.
fn plain_hash(key: &[u8], rehash: u32) -> u32 {
    let mut crc = Crc32::new();
    if rehash > 0 {
        crc.update(rehash.to_string().as_bytes());
    }
    crc.update(key);
    crc.finish() >> 16 & 0x7fff
}

impl Draw for ByKey {
    fn draw(&mut self, round: &Round, misses: &mut Misses, now: i64) -> Option<usize> {
        until_one_fits(misses, || {
            self.sum = self.sum.wrapping_add(plain_hash(&self.key, self.rehash));
            self.rehash += 1;
            let i = at_weight(round.list(), i64::from(self.sum) % round.total_weight());
            round.may_ask(i, now).then_some(i)
        })
    }

    fn has_key(&self) -> bool {
        !self.key.is_empty()
    }
}

struct Consistent {
    servers: Rc<Servers>,
    key: Template,
    /// The ring, with the version of the servers it was made for.
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
    fn picker(&self, client: &mut dyn Client) -> Box<dyn Picker> {
        let (round, key) = (Round::new(&self.servers), client.eval(&self.key));
        let ring = self.ring(&round);
        let mut crc = Crc32::new();
        crc.update(&key);
        let point = ring.find(crc.finish());
        Box::new(Drawn::new(round, OnRing { has_key: !key.is_empty(), ring, point }))
    }
}

struct OnRing {
    has_key: bool,
    ring: Rc<Ring>,
    point: u32,
}

impl Draw for OnRing {
    fn draw(&mut self, round: &Round, misses: &mut Misses, now: i64) -> Option<usize> {
        until_one_fits(misses, || {
            let server = self.ring.server(self.point)?;
            // A name may stand for several addresses.
            let list = round.list();
            let fits = |i: usize| list[i].spec.server == *server && round.may_ask(i, now);
            let (best, total) = round.smoothest(None, fits);
            match best {
                Some(i) => round.pay(i, total),
                None => self.point = self.point.wrapping_add(1),
            }
            best
        })
    }

    fn has_key(&self) -> bool {
        self.has_key
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
