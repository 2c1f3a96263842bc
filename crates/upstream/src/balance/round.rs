//! Weighted round robin and the record of servers tried, which all methods build upon.

use std::rc::Rc;

use base::time;
use shm::RowsLock;

use super::ServerOutcome;
use crate::peer::{Peer, RAMP};
use crate::servers::{ServerLists, Servers};

/// The servers of a list that were asked; the first 63 take no allocation. The last bit says that
/// the list is the one of backup servers.
#[derive(Default)]
struct Tried {
    low: u64,
    more: Option<Box<More>>,
}

/// The servers whose bits are in [`Tried`] itself.
const LOW: usize = 63;

const ON_BACKUP: u64 = 1 << LOW;

/// The same for those behind the first.
#[derive(Default)]
struct More(Vec<u64>);

impl Tried {
    fn has(&self, i: usize) -> bool {
        match i.checked_sub(LOW) {
            None => self.low >> i & 1 != 0,
            Some(i) => {
                let bits = self.more.as_ref().and_then(|more| more.0.get(i / 64));
                bits.is_some_and(|bits| bits >> (i % 64) & 1 != 0)
            }
        }
    }

    fn set(&mut self, i: usize) {
        match i.checked_sub(LOW) {
            None => self.low |= 1 << i,
            Some(i) => {
                let More(more) = &mut **self.more.get_or_insert_default();
                if more.len() <= i / 64 {
                    more.resize(i / 64 + 1, 0);
                }
                more[i / 64] |= 1 << (i % 64);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.low == 0 && self.more.is_none()
    }

    fn on_backup(&self) -> bool {
        self.low & ON_BACKUP != 0
    }

    fn begin_backup(&mut self) {
        *self = Tried { low: ON_BACKUP, more: None };
    }
}

/// The state of every method's choice for one session: the servers tried so far, and weighted round
/// robin for when the method itself has no answer.
pub struct Round {
    servers: Rc<Servers>,
    lists: Rc<ServerLists>,
    tried: Tried,
}

impl Round {
    /// Begins with the servers as they are now.
    pub fn new(servers: &Rc<Servers>) -> Round {
        let lists = servers.lists();
        Round { servers: servers.clone(), lists, tried: Tried::default() }
    }

    /// Takes the lock of [`Round::servers`] for a choice. Before the first one, takes the servers
    /// as they are now: another process may have replaced all of them since the round began.
    pub fn lock_to_choose<'a>(&mut self, servers: &'a Servers) -> RowsLock<'a> {
        let lock = servers.lock();
        if self.tried.is_empty()
            && let Some(lists) = servers.others_locked(&self.lists)
        {
            self.lists = lists;
        }
        lock
    }

    /// The servers, for their lock. A choice takes it with [`Round::lock_to_choose`].
    pub fn servers(&self) -> Rc<Servers> {
        self.servers.clone()
    }

    /// The servers to choose from now.
    pub fn list(&self) -> &[Rc<Peer>] {
        self.lists.list(self.tried.on_backup())
    }

    /// Both lists.
    pub fn lists(&self) -> &Rc<ServerLists> {
        &self.lists
    }

    /// The sum of their weights.
    pub fn total_weight(&self) -> i64 {
        self.lists.total_weight(self.tried.on_backup())
    }

    /// Whether a server of the list may be asked: it lives and was not asked before.
    pub fn may_ask(&self, i: usize, now: i64) -> bool {
        !self.tried.has(i) && self.list()[i].is_live(now)
    }

    /// Goes over to the backup servers; false if there are none, or if they are in use already.
    pub fn to_backup(&mut self) -> bool {
        if self.tried.on_backup() || self.lists.backup.is_empty() {
            return false;
        }
        self.tried.begin_backup();
        true
    }

    /// The server that a client is bound to, if it can be asked.
    pub fn bound(&self, sid: Option<&[u8]>, now: i64) -> Option<usize> {
        let sid = sid?;
        let i = self.list().iter().position(|p| p.sid == sid)?;
        (!self.tried.has(i) && self.list()[i].is_live_for_bound(now)).then_some(i)
    }

    /// Under the lock: begins an exchange with a server of the list.
    pub fn take(&mut self, i: usize, now: i64) -> Rc<Peer> {
        let peer = self.list()[i].clone();
        self.tried.set(i);
        peer.begin(now);
        peer
    }

    /// The only server of a list of one.
    fn single(&self) -> Option<&Rc<Peer>> {
        match (&self.lists.main[..], self.lists.backup.is_empty()) {
            ([one], true) => Some(one),
            _ => None,
        }
    }

    /// See [`Picker::is_single`].
    pub fn is_single(&self) -> bool {
        self.single().is_some()
    }

    /// See [`Picker::tries`].
    pub fn tries(&self) -> u32 {
        self.lists.all().filter(|p| p.down() == 0).count() as u32
    }

    /// A server's effective weight, reduced while it starts slowly. Weights are fractions of
    /// [`RAMP`] wherever some server of the list may start slowly.
    fn share(&self, peer: &Peer, now_ms: u64) -> i64 {
        if self.lists.slow { peer.effective() * peer.ramp(now_ms) } else { peer.effective() }
    }

    /// Its configured weight, in the same measure.
    pub fn weight(&self, peer: &Peer, now_ms: u64) -> i64 {
        if self.lists.slow { peer.spec.weight * peer.ramp(now_ms) } else { peer.spec.weight }
    }

    /// Smooth weighted round robin among the servers of the list that `fits` lets through: each
    /// gains its weight, the richest is chosen and pays the sum of all. A server's effective weight
    /// sinks with failures and grows back by one a round. `first` starts as the best one.
    pub(crate) fn smoothest(
        &self,
        first: Option<usize>,
        fits: impl Fn(usize) -> bool,
    ) -> (Option<usize>, i64) {
        let now_ms = if self.lists.slow { time::unix_ms() } else { 0 };
        let (mut best, mut total) = (first, 0);
        for (i, p) in self.list().iter().enumerate().skip(first.unwrap_or(0)) {
            if !fits(i) {
                continue;
            }
            let share = self.share(p, now_ms);
            p.set_current(p.current() + share);
            total += share;
            p.recover();
            if best.is_none_or(|b: usize| p.current() > self.list()[b].current()) {
                best = Some(i);
            }
        }
        (best, total)
    }

    /// The chosen one pays for all that gained in [`Round::smoothest`].
    pub(crate) fn pay(&self, i: usize, total: i64) {
        let peer = &self.list()[i];
        peer.set_current(peer.current() - total);
    }

    fn choose(&mut self, sid: Option<&[u8]>) -> Option<Rc<Peer>> {
        let now = time::unix_secs() as i64;
        let bound = self.bound(sid, now);
        if let Some(i) = bound {
            // One bound request in a row is paid for; more would starve the others.
            let measure = if self.lists.slow { RAMP } else { 1 };
            let peer = &self.list()[i];
            let low = -(self.total_weight() - peer.spec.weight) * measure;
            if peer.current() <= low {
                return Some(self.take(i, now));
            }
        }
        let (best, total) = self.smoothest(None, |i| self.may_ask(i, now));
        let i = bound.or(best)?;
        self.pay(i, total);
        Some(self.take(i, now))
    }

    /// The next server by weighted round robin, backups when no other lives.
    pub fn next(&mut self, sid: Option<&[u8]>) -> Option<Rc<Peer>> {
        let servers = self.servers.clone();
        let _lock = self.lock_to_choose(&servers);
        let now = time::unix_secs() as i64;
        if let Some(p) = self.single() {
            let bound = self.bound(sid, now).is_some();
            let can = bound || p.down() == 0 && !p.is_full() && p.is_there();
            return can.then(|| self.take(0, now));
        }
        self.choose(sid).or_else(|| if self.to_backup() { self.choose(sid) } else { None })
    }

    /// See [`Picker::done`].
    pub fn done(&mut self, peer: &Peer, outcome: ServerOutcome) -> bool {
        let servers = self.servers.clone();
        let lock = servers.lock();
        let out = self.done_locked(peer, outcome);
        drop(lock);
        self.servers.notify_queue();
        out
    }

    /// The same under the lock.
    pub(crate) fn done_locked(&mut self, peer: &Peer, outcome: ServerOutcome) -> bool {
        peer.end();
        if self.is_single() {
            peer.forgive();
            return false;
        }
        if outcome != ServerOutcome::Failed {
            peer.succeeded();
            return false;
        }
        peer.failed(time::unix_secs() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{ServerSpec, down, word};
    use bytes::Bytes;
    use os::SockAddr;
    use shm::Rows;

    fn spec(port: u16, weight: i64) -> ServerSpec {
        let addr = SockAddr::parse(format!("127.0.0.1:{port}").as_bytes()).unwrap();
        ServerSpec { weight, ..ServerSpec::new(addr) }
    }

    fn servers(specs: &[ServerSpec]) -> Rc<Servers> {
        Servers::own(Bytes::from_static(b"u"), specs)
    }

    fn ask(round: &mut Round, sid: Option<&[u8]>) -> Option<u16> {
        let peer = round.next(sid)?;
        round.done(&peer, ServerOutcome::Ok);
        Some(peer.spec.addr.port())
    }

    fn order(servers: &Rc<Servers>, n: usize) -> Vec<u16> {
        (0..n).map(|_| ask(&mut Round::new(servers), None).unwrap()).collect()
    }

    #[test]
    fn weights_are_spread_smoothly() {
        let u = servers(&[spec(1, 5), spec(2, 1), spec(3, 1)]);
        assert_eq!(order(&u, 7), [1, 1, 2, 1, 3, 1, 1]);
        let u = servers(&[spec(1, 1), spec(2, 1)]);
        assert_eq!(order(&u, 4), [1, 2, 1, 2]);
    }

    #[test]
    fn each_is_tried_once_then_the_backups() {
        let u = servers(&[spec(1, 1), spec(2, 1), ServerSpec { backup: true, ..spec(9, 1) }]);
        let mut p = Round::new(&u);
        assert_eq!(p.tries(), 3);
        let mut seen = Vec::new();
        while let Some(peer) = p.next(None) {
            assert!(p.done(&peer, ServerOutcome::Failed), "max_fails is 1");
            seen.push(peer.spec.addr.port());
        }
        assert_eq!(seen, [1, 2, 9]);
        // All are out now.
        assert!(Round::new(&u).next(None).is_none());
    }

    #[test]
    fn a_single_server_is_never_taken_out() {
        let u = servers(&[spec(1, 1)]);
        for _ in 0..3 {
            let mut p = Round::new(&u);
            let peer = p.next(None).unwrap();
            assert!(!p.done(&peer, ServerOutcome::Failed));
        }
    }

    #[test]
    fn servers_that_are_replaced_after_the_beginning_are_not_missed() {
        let u = Servers::at("u".into(), Rc::new(Rows::own(2, word::ROW)), 0);
        u.add(&spec(1, 1)).unwrap();
        let mut round = Round::new(&u);
        let (first, lock) = (u.lists().main[0].clone(), u.lock());
        u.add_locked(&spec(2, 1)).unwrap();
        u.remove_locked(&first);
        drop(lock);
        assert_eq!(ask(&mut round, None), Some(2));
        // Afterwards the list stays, because what was tried is known by its place there.
        let mut begun = Round::new(&u);
        assert_eq!(ask(&mut begun, None), Some(2));
        u.add(&spec(3, 1)).unwrap();
        assert_eq!(ask(&mut begun, None), Some(2));
    }

    #[test]
    fn limits_and_down() {
        let u = servers(&[
            ServerSpec { down: down::DOWN, ..spec(1, 1) },
            ServerSpec { max_conns: 1, ..spec(2, 1) },
        ]);
        let mut first = Round::new(&u);
        assert_eq!(first.tries(), 1);
        let held = first.next(None).unwrap();
        assert_eq!((held.spec.addr.port(), held.conns()), (2, 1));
        assert!(Round::new(&u).next(None).is_none());
        first.done(&held, ServerOutcome::Ok);
        assert!(Round::new(&u).next(None).is_some());
    }

    #[test]
    fn the_bound_get_their_server_even_while_it_drains() {
        let route = |r: &'static str, s: ServerSpec| ServerSpec { route: r.into(), ..s };
        let draining = ServerSpec { down: down::DRAINING, ..spec(2, 1) };
        let u = servers(&[route("a", spec(1, 1)), route("b", draining), route("c", spec(3, 1))]);
        assert_eq!(order(&u, 4), [1, 3, 1, 3]);
        assert_eq!(ask(&mut Round::new(&u), Some(b"b")), Some(2));
        assert_eq!(ask(&mut Round::new(&u), Some(b"a")), Some(1));
        assert_eq!(ask(&mut Round::new(&u), Some(b"none")), Some(3));
        // A second try does not go there again.
        let mut round = Round::new(&u);
        assert_eq!(ask(&mut round, Some(b"b")), Some(2));
        assert_ne!(ask(&mut round, Some(b"b")), Some(2));
    }

    #[test]
    fn a_slow_start_begins_with_few_requests() {
        base::time::update();
        let u = servers(&[spec(1, 1), ServerSpec { slow_start: 100_000, ..spec(2, 1) }]);
        u.lists().main[1].set(word::STARTED, time::unix_ms() - 25_000);
        let seen = order(&u, 50);
        let second = seen.iter().filter(|port| **port == 2).count();
        assert_eq!(second, 10, "a quarter of its weight: one in five");
    }

    #[test]
    fn many_servers_are_remembered() {
        let mut t = Tried::default();
        for i in [0, 62, 63, 64, 126, 127, 200] {
            assert!(!t.has(i));
            t.set(i);
            assert!(t.has(i));
        }
        assert!(!t.has(199) && !t.on_backup());
        t.begin_backup();
        assert!(t.on_backup() && [0, 62, 63, 64, 200].iter().all(|i| !t.has(*i)));
        assert_eq!(size_of::<Round>(), 32);
    }
}
