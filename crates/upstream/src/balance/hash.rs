//! `hash KEY [consistent]`: equal keys go to the same server, as Cache::Memcached (plain) and
//! Cache::Memcached::Fast (consistent) choose it, and nginx with them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::crc::Crc32;
use bytes::Bytes;
use conf::table::Args;
use conf::template::Template;
use conf::{ConfError, Node};
use engine::{Client, Cx, Module, Session};

use super::drawn::{Draw, Drawn, Misses, at_weight, until_one_fits};
use super::ring::{Member, Ring};
use super::{Balancer, Picker, Round, method, table};
use crate::block::Block;
use crate::peer::Peer;
use crate::servers::{ServerLists, Servers};

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
            true => {
                let rings = Rc::new(Rings::new(&servers));
                Box::new(Consistent { servers, key, rings }) as Box<_>
            }
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

/// Points of a ring that are made on the loop: in 2 ms. Rings with more are made on a thread.
const POINTS_AT_ONCE: usize = 50_000;

struct Consistent {
    servers: Rc<Servers>,
    key: Template,
    rings: Rc<Rings>,
}

/// The ring of a group, which is made anew when servers change.
struct Rings {
    /// With the version of the servers it was made for.
    made: RefCell<(u64, Rc<Ring>)>,
    /// A thread makes the next one.
    in_making: Cell<bool>,
}

impl Rings {
    /// The first ring is made with the configuration, before there are workers, which share it.
    fn new(servers: &Servers) -> Rings {
        let lists = servers.lists();
        let ring = Rc::new(Ring::new(members(&lists)));
        Rings { made: RefCell::new((lists.version(), ring)), in_making: Cell::new(false) }
    }

    /// The ring for these servers. While a thread makes a large one, it is that of the servers
    /// before: keys of those that remain stay, and added ones are not asked yet. The second part is
    /// the work on the next ring, if it has to begin.
    fn current(
        self: &Rc<Self>,
        lists: &ServerLists,
    ) -> (Rc<Ring>, Option<impl Future<Output = ()> + use<>>) {
        let (version, ring) = self.made.borrow().clone();
        if version == lists.version() || self.in_making.get() {
            return (ring, None);
        }
        let (version, members) = (lists.version(), members(lists));
        if ring.is_empty() || Ring::points_of(&members) <= POINTS_AT_ONCE {
            let ring = Rc::new(Ring::new(members));
            self.made.replace((version, ring.clone()));
            return (ring, None);
        }
        self.in_making.set(true);
        let rings = self.clone();
        let work = async move {
            // Where no thread has time, the next request tries again.
            if let Ok(ring) = event::run_blocking(move || Ring::new(members)).await {
                rings.made.replace((version, Rc::new(ring)));
            }
            rings.in_making.set(false);
        };
        (ring, Some(work))
    }
}

fn members(lists: &ServerLists) -> Vec<Member> {
    let member =
        |peer: &Rc<Peer>| Member { name: peer.spec.server.clone(), weight: peer.spec.weight };
    lists.main.iter().map(member).collect()
}

impl Balancer for Consistent {
    fn picker(&self, client: &mut dyn Client) -> Box<dyn Picker> {
        let (round, key) = (Round::new(&self.servers), client.eval(&self.key));
        let (ring, work) = self.rings.current(round.lists());
        if let Some(work) = work {
            event::spawn(work);
        }
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
    use crate::balance::{ExchangeTimes, ServerOutcome};
    use crate::peer::{ServerSpec, word};
    use os::SockAddr;
    use shm::Rows;

    fn server(port: u16, weight: i64) -> ServerSpec {
        let addr = SockAddr::parse(format!("127.0.0.1:{port}").as_bytes()).unwrap();
        let server = addr.to_string().into();
        ServerSpec { weight, server, ..ServerSpec::new(addr) }
    }

    /// A group with room for a server more.
    fn group(weight: i64) -> Rc<Servers> {
        let servers = Servers::at("u".into(), Rc::new(Rows::own(2, word::ROW)), 0);
        servers.add(&server(1, weight)).unwrap();
        servers
    }

    fn is_asked(ring: &Ring, name: &[u8]) -> bool {
        (0..1_000_000).any(|number| ring.server(number).is_some_and(|server| server == name))
    }

    #[test]
    fn a_small_ring_is_made_at_once() {
        let servers = group(1);
        let rings = Rc::new(Rings::new(&servers));
        servers.add(&server(2, 1)).unwrap();
        let (ring, work) = rings.current(&servers.lists());
        assert!(work.is_none() && is_asked(&ring, b"127.0.0.1:2"));
    }

    #[test]
    fn a_large_ring_is_made_on_a_thread_while_the_one_before_serves() {
        let servers = group(1_000);
        let rings = Rc::new(Rings::new(&servers));
        let (first, work) = rings.current(&servers.lists());
        assert!(work.is_none() && is_asked(&first, b"127.0.0.1:1"));
        servers.add(&server(2, 1_000)).unwrap();
        let (ring, work) = rings.current(&servers.lists());
        assert!(Rc::ptr_eq(&ring, &first));
        // It is made once, however many requests come meanwhile.
        let (ring, second) = rings.current(&servers.lists());
        assert!(Rc::ptr_eq(&ring, &first) && second.is_none());
        let mut event_loop = event::Loop::new(event::Options::default()).unwrap();
        event_loop.block_on(work.unwrap()).unwrap();
        let (ring, work) = rings.current(&servers.lists());
        assert!(work.is_none() && is_asked(&ring, b"127.0.0.1:2"));
        assert!(is_asked(&ring, b"127.0.0.1:1"));
    }

    #[test]
    fn servers_that_are_replaced_after_the_beginning_are_not_missed() {
        let servers = Servers::at("u".into(), Rc::new(Rows::own(4, word::ROW)), 0);
        for port in [1, 2] {
            servers.add(&server(port, 1)).unwrap();
        }
        let rings = Rc::new(Rings::new(&servers));
        let begin = || {
            let (round, ring) = (Round::new(&servers), rings.current(&servers.lists()).0);
            Drawn::new(round, OnRing { has_key: true, ring, point: 7 })
        };
        let replace = |ports: &[u16]| {
            let (old, _lock) = (servers.lists(), servers.lock());
            for port in ports {
                servers.add_locked(&server(*port, 1)).unwrap();
            }
            old.all().for_each(|peer| servers.remove_locked(peer));
        };
        let mut picker = begin();
        replace(&[3, 4]);
        let peer = picker.next(None).unwrap();
        assert!(peer.spec.addr.port() > 2);
        picker.done(&peer, ServerOutcome::Ok, ExchangeTimes::default());
        let mut picker = begin();
        replace(&[]);
        assert!(picker.next(None).is_none());
    }

    #[test]
    fn hashes_of_cache_memcached() {
        // The CRC-32 of "123456789" is cbf43926.
        assert_eq!(plain_hash(b"123456789", 0), 0x4bf4);
        assert_eq!(plain_hash(b"23456789", 1), 0x4bf4);
        assert_ne!(plain_hash(b"123456789", 2), 0x4bf4);
    }
}
