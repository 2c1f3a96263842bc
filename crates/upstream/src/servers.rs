//! The servers of an upstream, in rows of this worker's own or in a zone that workers share.
//!
//! A worker reads the rows into lists once, and again when the version of the rows has gone up: the
//! resolver, the API or a health check changed the set of servers. Words that change with each
//! request (connections, failures, weights) are never copied, so that all workers see the same.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use event::Notify;
use shm::{Rows, RowsLock, ZoneState};

use crate::peer::{
    GroupMeter, Meter, Peer, ServerSpec, down, flag, give_back, sid_of, state, word,
};

/// The servers at one version of the rows.
#[derive(Default)]
pub struct ServerLists {
    version: u64,
    /// The main servers, in order.
    pub main: Vec<Rc<Peer>>,
    /// The servers asked when no main one is live.
    pub backup: Vec<Rc<Peer>>,
    /// Some server may start slowly: weights are fractions.
    pub(crate) slow: bool,
}

impl ServerLists {
    /// One list of the two.
    pub fn list(&self, backup: bool) -> &[Rc<Peer>] {
        if backup { &self.backup } else { &self.main }
    }

    /// The sum of the weights of a list.
    pub fn total_weight(&self, backup: bool) -> i64 {
        self.list(backup).iter().map(|p| p.spec.weight).sum()
    }

    /// Main servers, then backups.
    pub fn all(&self) -> impl Iterator<Item = &Rc<Peer>> {
        self.main.iter().chain(&self.backup)
    }

    /// Goes up when servers change.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// The zone has no room for one more server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

/// The servers of an upstream.
pub struct Servers {
    /// The upstream's name.
    pub name: Bytes,
    rows: Rc<Rows>,
    owner: u64,
    lists: RefCell<Rc<ServerLists>>,
    /// Notified when an exchange of this worker ends while sessions wait in the queue.
    pub(crate) freed: Notify,
    /// Sessions in the queue.
    pub(crate) waiting: Cell<usize>,
    /// Bits of [`down`] that servers get when they are added.
    as_added: Cell<u64>,
    meter: RefCell<Option<Meter>>,
    group_meter: OnceCell<Rc<GroupMeter>>,
}

impl Servers {
    /// Servers of this worker's own.
    pub fn own(name: Bytes, specs: &[ServerSpec]) -> Rc<Servers> {
        let servers = Servers::at(name, Rc::new(Rows::own(specs.len(), word::ROW)), 0);
        for spec in specs {
            // There are as many rows as servers, and addresses and names of a configuration fit.
            let _ = servers.add(spec);
        }
        servers
    }

    /// The servers of the upstream with number `owner` in shared rows.
    pub(crate) fn at(name: Bytes, rows: Rc<Rows>, owner: u64) -> Rc<Servers> {
        let (lists, freed) = (RefCell::default(), Notify::new());
        Rc::new(Servers {
            name,
            rows,
            owner,
            lists,
            freed,
            waiting: Cell::new(0),
            as_added: Cell::new(0),
            meter: RefCell::default(),
            group_meter: OnceCell::new(),
        })
    }

    /// Has its servers counted.
    pub(crate) fn set_meter(&self, meter: Meter) {
        let _ = self.group_meter.set(Rc::new(GroupMeter::new(meter.clone())));
        self.meter.replace(Some(meter));
        // Servers are read anew, with their counters.
        self.lists.take();
    }

    /// The counters of the group.
    pub(crate) fn group_meter(&self) -> Option<&Rc<GroupMeter>> {
        self.group_meter.get()
    }

    /// Servers that were taken out and still have exchanges under way.
    pub fn zombies(&self) -> u64 {
        let gone = |row: &usize| self.owns(*row) && self.state_of(*row) == state::GONE;
        (0..self.rows.rows()).filter(gone).count() as u64
    }

    /// The rows, for leading and slots.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Whether other workers see the same servers.
    pub fn is_shared(&self) -> bool {
        self.rows.is_shared()
    }

    /// Takes the lock over all words of the rows; not to be held across an await, nor twice.
    pub fn lock(&self) -> RowsLock<'_> {
        self.rows.lock()
    }

    /// The servers as they are now.
    pub fn lists(&self) -> Rc<ServerLists> {
        let known = self.lists.borrow();
        if known.version == self.rows.version() {
            return known.clone();
        }
        drop(known);
        self.read()
    }

    /// The servers as they are now, or as they were if another process changes them at this moment:
    /// does not wait.
    pub fn lists_at_once(&self) -> Rc<ServerLists> {
        let known = self.lists.borrow().clone();
        if known.version == self.rows.version() {
            return known;
        }
        let Some(_lock) = self.rows.try_lock() else { return known };
        let lists = Rc::new(self.read_locked());
        *self.lists.borrow_mut() = lists.clone();
        lists
    }

    /// Under the lock: the servers as they are now, if others are known.
    pub(crate) fn others_locked(&self, known: &ServerLists) -> Option<Rc<ServerLists>> {
        if known.version == self.rows.version() {
            return None;
        }
        let mut lists = self.lists.borrow_mut();
        if lists.version != self.rows.version() {
            *lists = Rc::new(self.read_locked());
        }
        Some(lists.clone())
    }

    #[cold]
    fn read(&self) -> Rc<ServerLists> {
        let _lock = self.rows.lock();
        let lists = Rc::new(self.read_locked());
        *self.lists.borrow_mut() = lists.clone();
        lists
    }

    fn read_locked(&self) -> ServerLists {
        let meter = self.meter.borrow();
        let mut peers: Vec<Rc<Peer>> = (0..self.rows.rows())
            .filter(|row| self.owns(*row))
            .filter_map(|row| Peer::read(&self.rows, row, meter.as_ref()).map(Rc::new))
            .collect();
        peers.sort_by_key(|p| p.order);
        let slow = peers.iter().any(|p| p.spec.slow_start > 0);
        let (backup, main) = peers.into_iter().partition(|p: &Rc<Peer>| p.spec.backup);
        ServerLists { version: self.rows.version(), main, backup, slow }
    }

    fn owns(&self, row: usize) -> bool {
        self.rows.row(row)[word::OWNER].load(Ordering::Relaxed) == self.owner
    }

    /// Adds a server at the end of its list.
    ///
    /// # Errors
    /// No row is free, or the texts are too long for one.
    pub fn add(&self, spec: &ServerSpec) -> Result<u64, NoRoom> {
        let _lock = self.rows.lock();
        self.add_locked(spec)
    }

    /// The same under the lock; gives the server's number.
    ///
    /// # Errors
    /// As [`Servers::add`].
    pub fn add_locked(&self, spec: &ServerSpec) -> Result<u64, NoRoom> {
        let row = (0..self.rows.rows()).find(|row| self.state_of(*row) == state::FREE);
        let row = row.ok_or(NoRoom)?;
        let name = spec.addr.to_string();
        let sid = match spec.route.is_empty() {
            true => sid_of(name.as_bytes()),
            false => spec.route.clone(),
        };
        let text = [name.as_bytes(), &spec.server, &sid, b""].join(&b'\n');
        if !self.rows.put_text(row, word::TEXT, &text) {
            return Err(NoRoom);
        }
        let words = self.rows.row(row);
        words[..word::TEXT].iter().for_each(|w| w.store(0, Ordering::Relaxed));
        let order = self.rows.next_number();
        let put = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
        put(word::ORDER, order);
        put(word::OWNER, self.owner);
        put(word::TEMPLATE, spec.template);
        put(word::DOWN, spec.down | self.as_added.get());
        put(word::EFFECTIVE, spec.weight.cast_unsigned());
        put_settings(&self.rows, row, spec);
        // Last: if this process dies before, the row is still free.
        words[word::STATE].store(state::LIVE, Ordering::Release);
        self.rows.changed();
        Ok(order)
    }

    /// Takes a row for the state of a `resolve` line.
    ///
    /// # Errors
    /// No row is free.
    pub(crate) fn add_template(&self, number: u64) -> Result<(), NoRoom> {
        let _lock = self.rows.lock();
        let row = (0..self.rows.rows()).find(|row| self.state_of(*row) == state::FREE);
        let words = self.rows.row(row.ok_or(NoRoom)?);
        words[..word::TEXT].iter().for_each(|w| w.store(0, Ordering::Relaxed));
        words[word::OWNER].store(self.owner, Ordering::Relaxed);
        words[word::TEMPLATE].store(number, Ordering::Relaxed);
        words[word::STATE].store(state::TEMPLATE, Ordering::Release);
        Ok(())
    }

    fn state_of(&self, row: usize) -> u64 {
        self.rows.row(row)[word::STATE].load(Ordering::Relaxed)
    }

    fn template(&self, number: u64) -> Option<&AtomicU64> {
        let is = |row: &usize| {
            self.state_of(*row) == state::TEMPLATE
                && self.owns(*row)
                && self.rows.row(*row)[word::TEMPLATE].load(Ordering::Relaxed) == number
        };
        let row = (0..self.rows.rows()).find(is)?;
        Some(&self.rows.row(row)[word::CHECKED])
    }

    /// The expiry of a `resolve` line's addresses, seconds since the epoch.
    pub(crate) fn valid(&self, number: u64) -> u64 {
        self.template(number).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// See [`Servers::valid`].
    pub(crate) fn set_valid(&self, number: u64, until: u64) {
        if let Some(word) = self.template(number) {
            word.store(until, Ordering::Relaxed);
        }
    }

    /// Under the lock: gives a server other settings (not another address or route).
    pub(crate) fn set_locked(&self, peer: &Peer, spec: &ServerSpec) {
        put_settings(&self.rows, peer.row, spec);
        if spec.weight != peer.spec.weight {
            peer.set(word::EFFECTIVE, spec.weight.cast_unsigned());
        }
        self.rows.changed();
    }

    /// Under the lock: takes a server out. Exchanges with it go on to their end.
    pub(crate) fn remove_locked(&self, peer: &Peer) {
        if peer.is_there() {
            peer.set(word::STATE, state::GONE);
            give_back(&self.rows, peer.row, 0);
            self.rows.changed();
        }
    }

    /// Servers that are added from now on get these bits of [`down`].
    pub(crate) fn add_as(&self, down: u64) {
        self.as_added.set(down);
    }

    /// Sets and clears bits of [`down`] of a server.
    pub(crate) fn set_down(&self, peer: &Peer, set: u64, clear: u64) {
        let _lock = self.rows.lock();
        let (was, fresh) = (peer.down(), (peer.down() | set) & !clear);
        if was != fresh && peer.is_there() {
            peer.set(word::DOWN, fresh);
            match (was & down::UNHEALTHY, fresh & down::UNHEALTHY) {
                (0, down::UNHEALTHY) => {
                    peer.set(word::UNHEALTHY, peer.get(word::UNHEALTHY).wrapping_add(1));
                    peer.goes_out();
                }
                (down::UNHEALTHY, 0) => peer.comes_back(),
                _ => {}
            }
            if fresh == 0 && was & (down::DOWN | down::UNHEALTHY) != 0 {
                peer.start_slowly();
            }
            self.rows.changed();
        }
    }

    /// Copies the state of the servers that are in another upstream's rows, too.
    pub(crate) fn inherit(&self, old: &Servers) {
        let (mine, theirs) = (self.lists(), old.lists());
        for peer in mine.all() {
            let same = |p: &&Rc<Peer>| p.name == peer.name && p.spec.backup == peer.spec.backup;
            let Some(was) = theirs.all().find(same) else { continue };
            for at in INHERITED {
                peer.set(*at, was.get(*at));
            }
            let unhealthy = was.down() & down::UNHEALTHY;
            peer.set(word::DOWN, peer.down() | unhealthy);
            let share = was.effective().min(peer.spec.weight);
            if was.effective() < was.spec.weight {
                peer.set(word::EFFECTIVE, share.cast_unsigned());
            }
        }
        if mine.main.iter().any(|p| p.down() != p.spec.down) {
            self.rows.changed();
        }
    }
}

impl Servers {
    /// An exchange is over: wakes a session that waits in the queue.
    pub(crate) fn notify_queue(&self) {
        if self.waiting.get() > 0 {
            self.freed.notify_one();
        }
    }
}

/// The words of a server that survive a change of its zone.
const INHERITED: &[usize] = &[
    word::FAILS,
    word::ACCESSED,
    word::CHECKED,
    word::STARTED,
    word::HEADER_TIME,
    word::RESPONSE_TIME,
    word::REQUESTS,
    word::FAILED,
    word::CHECKS,
    word::CHECKS_FAILED,
    word::STREAK,
    word::STREAK_BAD,
    word::UNHEALTHY,
    word::OUT_SINCE,
    word::OUT_MS,
];

fn put_settings(rows: &Rows, row: usize, spec: &ServerSpec) {
    let put = |at: usize, value: u64| rows.row(row)[at].store(value, Ordering::Relaxed);
    let backup = if spec.backup { flag::BACKUP } else { 0 };
    let route = if spec.route.is_empty() { 0 } else { flag::ROUTE };
    put(word::FLAGS, backup | route);
    put(word::WEIGHT, spec.weight.cast_unsigned());
    put(word::MAX_CONNS, spec.max_conns);
    put(word::MAX_FAILS, spec.max_fails);
    put(word::FAIL_TIMEOUT, spec.fail_timeout.cast_unsigned());
    put(word::SLOW_START, spec.slow_start);
}

/// The question of a `resolve` line, by which a later configuration finds its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ResolveQuery {
    pub upstream: Bytes,
    pub template: u64,
    pub host: Bytes,
    pub service: Bytes,
}

/// The servers of all upstreams that share a zone.
pub(crate) struct ZoneRows {
    pub rows: Rc<Rows>,
    /// The settings they were made from; a zone with other settings is made anew.
    pub print: String,
    /// Upstreams of the zone, in the order of their numbers.
    pub upstreams: Vec<Rc<Servers>>,
    pub queries: Vec<ResolveQuery>,
}

impl ZoneState for ZoneRows {
    fn died(&self, pid: u32, slot: usize) {
        self.rows.died(pid, slot, |row, count| give_back(&self.rows, row, count.into()));
    }

    fn fill(&self) -> Option<shm::Fill> {
        let state = |row| self.rows.row(row)[word::STATE].load(Ordering::Relaxed);
        let used = (0..self.rows.rows()).filter(|row| state(*row) != state::FREE).count();
        Some(shm::Fill { used, capacity: self.rows.rows() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use os::SockAddr;

    fn spec(port: u16) -> ServerSpec {
        ServerSpec::new(SockAddr::parse(format!("127.0.0.1:{port}").as_bytes()).unwrap())
    }

    fn shared() -> Rc<Servers> {
        let rows = Rc::new(Rows::shared(16 << 10, word::ROW, 4).unwrap());
        Servers::at(Bytes::from_static(b"u"), rows, 1)
    }

    fn ports(servers: &Servers) -> Vec<u16> {
        servers.lists().all().map(|p| p.spec.addr.port()).collect()
    }

    #[test]
    fn rows_tell_what_was_written() {
        let servers = shared();
        let one = ServerSpec {
            route: Bytes::from_static(b"a"),
            weight: 5,
            max_conns: 3,
            slow_start: 7,
            backup: true,
            down: down::DRAINING,
            server: Bytes::from_static(b"host:81"),
            ..spec(1)
        };
        servers.add(&one).unwrap();
        let lists = servers.lists();
        assert_eq!(lists.backup[0].spec, one);
        assert_eq!(&lists.backup[0].sid[..], b"a");
        assert!(lists.slow && lists.main.is_empty());
        servers.add(&spec(2)).unwrap();
        assert_eq!(ports(&servers), [2, 1]);
        let sid = servers.lists().main[0].sid.clone();
        assert_eq!(sid, sid_of(b"127.0.0.1:2"));
        assert_eq!(sid.len(), 32);
    }

    #[test]
    fn servers_that_are_in_use_go_later() {
        let servers = shared();
        servers.add(&spec(1)).unwrap();
        servers.add(&spec(2)).unwrap();
        let first = servers.lists().main[0].clone();
        first.begin(0);
        servers.remove_locked(&first);
        assert_eq!(ports(&servers), [2]);
        assert!(!first.is_live(0));
        assert_eq!(first.get(word::STATE), state::GONE);
        first.end();
        assert_eq!(first.get(word::STATE), state::FREE);
        // Its row is another's now, which the old name does not stand for.
        servers.add(&spec(3)).unwrap();
        assert_eq!(ports(&servers), [2, 3]);
        assert!(!first.is_live(0));
    }

    #[test]
    fn a_zone_is_full_some_time() {
        let servers = shared();
        let added = (1..1000).take_while(|port| servers.add(&spec(*port)).is_ok()).count();
        assert_eq!(added, servers.rows().rows());
        assert_eq!(servers.add(&spec(1)), Err(NoRoom));
    }

    #[test]
    fn connections_of_a_dead_worker_are_given_back() {
        let servers = shared();
        servers.add(&spec(1)).unwrap();
        let peer = servers.lists().main[0].clone();
        servers.rows().use_slot(3);
        peer.begin(0);
        peer.begin(0);
        let zone = ZoneRows {
            rows: servers.rows.clone(),
            print: String::new(),
            upstreams: Vec::new(),
            queries: Vec::new(),
        };
        zone.died(1, 2);
        assert_eq!(peer.conns(), 2);
        zone.died(1, 3);
        assert_eq!(peer.conns(), 0);
    }

    #[test]
    fn the_state_of_a_server_outlives_a_change_of_the_others() {
        let (old, new) = (shared(), shared());
        old.add(&spec(1)).unwrap();
        old.add(&spec(2)).unwrap();
        old.lists().main[1].failed(1000);
        new.add(&spec(3)).unwrap();
        new.add(&spec(2)).unwrap();
        new.inherit(&old);
        let lists = new.lists();
        assert!(lists.main[0].is_live(1001));
        assert!(!lists.main[1].is_live(1001) && lists.main[1].has_failed(1001));
    }
}
