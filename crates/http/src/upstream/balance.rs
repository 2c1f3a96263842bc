//! Choosing a server: the seam for balancing methods, and round robin.

use std::cell::Cell;
use std::rc::Rc;

use base::time;
use bytes::Bytes;
use os::SockAddr;

use crate::request::Request;

/// A server of an upstream at one address, with what is known about it in this worker.
pub struct Peer {
    /// Its address.
    pub addr: SockAddr,
    /// The address as text, for logs and `$upstream_addr`.
    pub name: Bytes,
    /// `weight=`
    pub weight: i64,
    /// `max_conns=`; 0 is no limit.
    pub max_conns: u32,
    /// `max_fails=`; 0 never takes the server out.
    pub max_fails: u32,
    /// `fail_timeout=`, seconds.
    pub fail_timeout: i64,
    /// `down`
    pub down: bool,
    conns: Cell<u32>,
    fails: Cell<u32>,
    accessed: Cell<i64>,
    checked: Cell<i64>,
    effective: Cell<i64>,
    current: Cell<i64>,
}

impl Peer {
    /// A server with nginx's defaults.
    pub fn new(addr: SockAddr) -> Peer {
        let name = Bytes::from(addr.to_string());
        Peer {
            addr,
            name,
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout: 10,
            down: false,
            conns: Cell::new(0),
            fails: Cell::new(0),
            accessed: Cell::new(0),
            checked: Cell::new(0),
            effective: Cell::new(1),
            current: Cell::new(0),
        }
    }

    /// The same with another weight.
    pub fn with_weight(mut self, weight: i64) -> Peer {
        self.weight = weight;
        self.effective.set(weight);
        self
    }

    /// Exchanges under way from this worker.
    pub fn conns(&self) -> u32 {
        self.conns.get()
    }

    fn full(&self) -> bool {
        self.max_conns > 0 && self.conns.get() >= self.max_conns
    }

    /// Failed too often lately.
    fn failed(&self, now: i64) -> bool {
        self.max_fails > 0
            && self.fails.get() >= self.max_fails
            && now - self.checked.get() <= self.fail_timeout
    }

    /// Whether this server may be asked now.
    pub fn is_live(&self, now: i64) -> bool {
        !self.down && !self.failed(now) && !self.full()
    }
}

/// How an exchange with a server ended, as balancing sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It answered.
    Ok,
    /// It answered with something that another server may answer better; not its failure.
    Next,
    /// It failed.
    Failed,
}

/// A balancing method, with its state in this worker.
pub trait Balancer {
    /// Begins choosing for a request.
    fn picker(&self, r: &mut Request) -> Box<dyn Picker>;
}

/// Chooses servers for one request: each at most once.
pub trait Picker {
    /// How many servers may be asked in all.
    fn tries(&self) -> u32;
    /// The next server; `None` when there is none that lives. Each server given must be given back
    /// by [`Picker::done`].
    fn next(&mut self) -> Option<Rc<Peer>>;
    /// The exchange with a server is over. True: it was taken out for a while.
    fn done(&mut self, peer: &Peer, outcome: Outcome) -> bool;
    /// Whether a single server stands for all: then a failure ends the tries.
    fn is_single(&self) -> bool {
        false
    }
}

/// Servers in two groups: those in use and their backups.
pub struct RoundRobin(Rc<Groups>);

struct Groups {
    main: Vec<Rc<Peer>>,
    backup: Vec<Rc<Peer>>,
}

impl RoundRobin {
    /// Weighted round robin over `main`, then, where none of these lives, over `backup`.
    pub fn new(main: Vec<Rc<Peer>>, backup: Vec<Rc<Peer>>) -> RoundRobin {
        RoundRobin(Rc::new(Groups { main, backup }))
    }
}

impl Balancer for RoundRobin {
    fn picker(&self, _: &mut Request) -> Box<dyn Picker> {
        Box::new(self.start())
    }
}

impl RoundRobin {
    fn start(&self) -> RoundRobinPicker {
        RoundRobinPicker { groups: self.0.clone(), on_backup: false, tried: Tried::default() }
    }
}

/// Which servers of a group were asked: the first 64 without allocation.
#[derive(Default)]
struct Tried {
    low: u64,
    more: Vec<u64>,
}

impl Tried {
    fn has(&self, i: usize) -> bool {
        match i / 64 {
            0 => self.low >> i & 1 != 0,
            w => self.more.get(w - 1).is_some_and(|bits| bits >> (i % 64) & 1 != 0),
        }
    }

    fn set(&mut self, i: usize) {
        match i / 64 {
            0 => self.low |= 1 << i,
            w => {
                if self.more.len() < w {
                    self.more.resize(w, 0);
                }
                self.more[w - 1] |= 1 << (i % 64);
            }
        }
    }

    fn clear(&mut self) {
        self.low = 0;
        self.more.clear();
    }
}

struct RoundRobinPicker {
    groups: Rc<Groups>,
    on_backup: bool,
    tried: Tried,
}

impl RoundRobinPicker {
    fn single(&self) -> Option<&Rc<Peer>> {
        match (&self.groups.main[..], self.groups.backup.is_empty()) {
            ([one], true) => Some(one),
            _ => None,
        }
    }

    /// Smooth weighted round robin: each server gains its weight, the richest is chosen and pays
    /// the sum of all. A server's effective weight sinks with failures and grows back by one a
    /// round.
    fn choose(&mut self) -> Option<Rc<Peer>> {
        let now = time::unix_secs() as i64;
        let list = if self.on_backup { &self.groups.backup } else { &self.groups.main };
        let mut best: Option<(usize, &Rc<Peer>)> = None;
        let mut total = 0;
        for (i, p) in list.iter().enumerate() {
            if self.tried.has(i) || !p.is_live(now) {
                continue;
            }
            let effective = p.effective.get();
            p.current.set(p.current.get() + effective);
            total += effective;
            if effective < p.weight {
                p.effective.set(effective + 1);
            }
            if best.is_none_or(|(_, b)| p.current.get() > b.current.get()) {
                best = Some((i, p));
            }
        }
        let (i, best) = best?;
        let best = best.clone();
        best.current.set(best.current.get() - total);
        self.tried.set(i);
        if now - best.checked.get() > best.fail_timeout {
            best.checked.set(now);
        }
        Some(best)
    }
}

impl Picker for RoundRobinPicker {
    fn tries(&self) -> u32 {
        let up = |list: &[Rc<Peer>]| list.iter().filter(|p| !p.down).count() as u32;
        up(&self.groups.main) + up(&self.groups.backup)
    }

    fn next(&mut self) -> Option<Rc<Peer>> {
        let chosen = match self.single() {
            Some(p) if p.down || p.full() => None,
            Some(p) => Some(p.clone()),
            None => self.choose().or_else(|| {
                if self.on_backup || self.groups.backup.is_empty() {
                    return None;
                }
                self.on_backup = true;
                self.tried.clear();
                self.choose()
            }),
        }?;
        chosen.conns.set(chosen.conns.get() + 1);
        Some(chosen)
    }

    fn done(&mut self, peer: &Peer, outcome: Outcome) -> bool {
        peer.conns.set(peer.conns.get().saturating_sub(1));
        if self.is_single() {
            peer.fails.set(0);
            return false;
        }
        if outcome != Outcome::Failed {
            // It was asked again after its time out, and lives.
            if peer.accessed.get() < peer.checked.get() {
                peer.fails.set(0);
            }
            return false;
        }
        let now = time::unix_secs() as i64;
        peer.fails.set(peer.fails.get() + 1);
        peer.accessed.set(now);
        peer.checked.set(now);
        if peer.max_fails == 0 {
            return false;
        }
        let sunk = peer.effective.get() - peer.weight / i64::from(peer.max_fails);
        peer.effective.set(sunk.max(0));
        peer.fails.get() >= peer.max_fails
    }

    fn is_single(&self) -> bool {
        self.single().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16, weight: i64) -> Rc<Peer> {
        let addr = SockAddr::parse(format!("127.0.0.1:{port}").as_bytes()).unwrap();
        Rc::new(Peer::new(addr).with_weight(weight))
    }

    fn order(rr: &RoundRobin, n: usize) -> Vec<u16> {
        (0..n)
            .map(|_| {
                let mut p = rr.start();
                let peer = p.next().unwrap();
                p.done(&peer, Outcome::Ok);
                peer.addr.port()
            })
            .collect()
    }

    #[test]
    fn weights_are_spread_smoothly() {
        let rr = RoundRobin::new(vec![peer(1, 5), peer(2, 1), peer(3, 1)], Vec::new());
        assert_eq!(order(&rr, 7), [1, 1, 2, 1, 3, 1, 1]);
        let rr = RoundRobin::new(vec![peer(1, 1), peer(2, 1)], Vec::new());
        assert_eq!(order(&rr, 4), [1, 2, 1, 2]);
    }

    #[test]
    fn each_is_tried_once_then_the_backups() {
        let rr = RoundRobin::new(vec![peer(1, 1), peer(2, 1)], vec![peer(9, 1)]);
        let mut p = rr.start();
        assert_eq!(p.tries(), 3);
        let mut seen = Vec::new();
        while let Some(peer) = p.next() {
            assert!(p.done(&peer, Outcome::Failed), "max_fails is 1");
            seen.push(peer.addr.port());
        }
        assert_eq!(seen, [1, 2, 9]);
        // All are out now.
        assert!(rr.start().next().is_none());
    }

    #[test]
    fn a_single_server_is_never_taken_out() {
        let rr = RoundRobin::new(vec![peer(1, 1)], Vec::new());
        for _ in 0..3 {
            let mut p = rr.start();
            let peer = p.next().unwrap();
            assert!(!p.done(&peer, Outcome::Failed));
        }
    }

    #[test]
    fn limits_and_down() {
        let down =
            Rc::new(Peer { down: true, ..Peer::new(SockAddr::parse(b"1.1.1.1:1").unwrap()) });
        let one =
            Rc::new(Peer { max_conns: 1, ..Peer::new(SockAddr::parse(b"1.1.1.1:2").unwrap()) });
        let rr = RoundRobin::new(vec![down, one], Vec::new());
        let mut first = rr.start();
        assert_eq!(first.tries(), 1);
        let held = first.next().unwrap();
        assert_eq!((held.addr.port(), held.conns()), (2, 1));
        assert!(rr.start().next().is_none());
        first.done(&held, Outcome::Ok);
        assert!(rr.start().next().is_some());
    }

    #[test]
    fn many_servers_are_remembered() {
        let mut t = Tried::default();
        for i in [0, 63, 64, 200] {
            assert!(!t.has(i));
            t.set(i);
            assert!(t.has(i));
        }
        assert!(!t.has(199));
    }
}
