//! Idle connections to upstreams, kept for later sessions of this worker, or of any (`shared`).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use engine::metrics::word;
use event::Gate;
use net::Transport;
use os::SockAddr;

use crate::h2::{Dial, Dialling, Dials, Mux, MuxConf, Stream};
use crate::handover::Handover;
use crate::peer::GroupMeter;

/// The longest interval between two looks for idle connections that ended, milliseconds.
const SWEEP_MS: u64 = 1_000;

/// A connection to an upstream.
pub struct UpConn {
    /// The byte stream from and to the server.
    pub sock: Transport,
    /// Requests sent over it.
    pub requests: u64,
    /// Time of connecting, on the monotonic clock.
    pub start_ms: u64,
    /// Whether it was idle before: an error on it may just be its end.
    pub cached: bool,
    /// The run of the server in which another process has had it before; 0 if none has.
    pub moved_in: u64,
}

/// An idle connection that may go to another process.
pub struct Kept {
    /// The connection.
    pub conn: UpConn,
    /// Its server.
    pub addr: SockAddr,
    /// Its location, if it is for one alone: [`Use::tag`].
    pub tag: usize,
    /// It is closed then, milliseconds on the monotonic clock.
    pub until_ms: u64,
}

/// An idle connection that another process is about to give up. It has its room in the pool.
pub struct Expected {
    room: Room,
    kept: Kept,
}

/// Room in a pool that other connections do not get.
struct Room(Rc<Pool>);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.expected.set(self.0.expected.get() - 1);
    }
}

impl Expected {
    /// The other process has given it up.
    pub fn arrive(self, gate: &Gate) {
        let Expected { room, kept } = self;
        let pool = room.0.clone();
        drop(room);
        kept.conn.sock.arrived(None);
        pool.arrive(kept, gate);
    }
}

/// Takes the idle connections of a worker that leaves.
pub type Leaving = Box<dyn Fn(Vec<Kept>)>;

/// `keepalive` and its companions.
#[derive(Clone, Copy, Debug)]
pub struct PoolConf {
    /// `keepalive`: the most idle connections of a worker.
    pub max: usize,
    /// `keepalive … local`: connections are not shared between locations.
    pub local: bool,
    /// `keepalive_requests`
    pub requests: u64,
    /// `keepalive_time`, milliseconds.
    pub time_ms: u64,
    /// `keepalive_timeout`, milliseconds.
    pub timeout_ms: u64,
    /// `keepalive_streams`: exchanges that share a connection over HTTP/2.
    pub streams: u32,
}

/// The client connection that connections to servers belong to, from its first request with NTLM
/// on: a server takes whoever sends on such a connection for the user that signed in on it.
#[derive(Default)]
pub struct Owner {
    /// The id of the server that it is bound to.
    pub server: RefCell<Option<Bytes>>,
}

/// Which exchanges a connection is for.
#[derive(Clone, Copy)]
pub struct Use<'a> {
    /// A hash of the location, the names under TLS and our own address. Without the latter two, it
    /// is the same in another process of the same configuration.
    pub tag: usize,
    /// Our own address is from variables: only exchanges with the same tag share it.
    pub apart: bool,
    /// The client connection that it is for alone.
    pub owner: Option<&'a Rc<Owner>>,
}

struct Idle {
    conn: UpConn,
    addr: SockAddr,
    tag: usize,
    apart: bool,
    /// The client connection that it serves alone; it ends with it.
    owner: Option<Weak<Owner>>,
    until_ms: u64,
}

impl Use<'_> {
    /// Whether another worker may take the connection.
    fn may_be_passed(&self) -> bool {
        self.owner.is_none() && !self.apart
    }
}

impl Idle {
    /// The connection, if another process may have it: one to a server under TLS was made with
    /// settings that another configuration may not have.
    fn kept(self) -> Option<Kept> {
        let Idle { conn, addr, tag, apart, owner, until_ms } = self;
        let may_move = !apart && owner.is_none() && !conn.sock.is_tls() && conn.sock.is_quiet();
        may_move.then_some(Kept { conn, addr, tag, until_ms })
    }

    fn is_of(&self, owner: Option<&Rc<Owner>>) -> bool {
        match (&self.owner, owner) {
            (None, None) => true,
            (Some(own), Some(owner)) => std::ptr::eq(own.as_ptr(), Rc::as_ptr(owner)),
            _ => false,
        }
    }

    fn is_orphan(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.strong_count() == 0)
    }
}

/// A connection over HTTP/2, idle or not.
struct Shared {
    mux: Rc<Mux>,
    addr: SockAddr,
    tag: usize,
}

/// The idle connections of one upstream, the latest at the front, and those over HTTP/2.
pub struct Pool {
    conf: PoolConf,
    /// `keepalive … shared`: connections that any worker may take.
    handover: Option<Handover>,
    idle: RefCell<VecDeque<Idle>>,
    shared: RefCell<Vec<Shared>>,
    dials: Rc<Dials>,
    sweeping: Cell<bool>,
    /// Connections that other processes are about to give up for this pool.
    expected: Cell<usize>,
    me: Weak<Pool>,
    meter: OnceCell<Rc<GroupMeter>>,
    leaving: OnceCell<Leaving>,
}

impl Pool {
    /// An empty pool.
    pub fn new(conf: PoolConf) -> Rc<Pool> {
        Pool::with(conf, None)
    }

    /// The same with a handover to other workers.
    pub(crate) fn with(conf: PoolConf, handover: Option<Handover>) -> Rc<Pool> {
        Rc::new_cyclic(|me| Pool {
            conf,
            handover,
            idle: RefCell::default(),
            shared: RefCell::default(),
            dials: Rc::default(),
            sweeping: Cell::new(false),
            expected: Cell::new(0),
            me: me.clone(),
            meter: OnceCell::new(),
            leaving: OnceCell::new(),
        })
    }

    /// Has `leaving` take the idle connections once the worker leaves; else they are closed.
    pub fn at_leave(&self, leaving: Leaving) {
        let _ = self.leaving.set(leaving);
    }

    /// Whether its connections are not shared between locations.
    pub fn is_local(&self) -> bool {
        self.conf.local
    }

    /// Holds room for an idle connection that another process is about to give up; `None` if it
    /// would not be kept.
    pub fn expect(&self, kept: Kept, gate: &Gate) -> Option<Expected> {
        let pool = self.me.upgrade()?;
        let idle = self.idle.borrow();
        // A further one to the same server goes to the queue that the workers share, if they do.
        let full = match self.surplus(&idle, &kept.conn, &kept.addr) {
            Some(handover) => handover.is_full(),
            None => idle.len() + self.expected.get() >= self.conf.max,
        };
        drop(idle);
        if full || self.is_worn(&kept.conn) || gate.is_closed() {
            return None;
        }
        self.expected.set(self.expected.get() + 1);
        Some(Expected { room: Room(pool), kept })
    }

    fn is_worn(&self, conn: &UpConn) -> bool {
        let age = base::time::now_ms().saturating_sub(conn.start_ms);
        age > self.conf.time_ms || conn.requests >= self.conf.requests
    }

    /// Keeps an idle connection that another process has given up.
    fn arrive(&self, kept: Kept, gate: &Gate) {
        let Kept { conn, addr, tag, until_ms } = kept;
        let now = base::time::now_ms();
        let until_ms = until_ms.min(now.saturating_add(self.conf.timeout_ms));
        let mut idle = self.idle.borrow_mut();
        // The limit is that of all workers: if another one has filled the queue meanwhile, this
        // closes the connection.
        if let Some(handover) = self.surplus(&idle, &conn, &addr) {
            return handover.put(conn, &addr, until_ms.saturating_sub(now));
        }
        idle.push_back(Idle { conn, addr, tag, apart: false, owner: None, until_ms });
        self.count(idle.len());
        drop(idle);
        match gate.is_closed() {
            // This worker has begun to leave meanwhile.
            true => self.leave(),
            false => self.begin_to_sweep(gate),
        }
    }

    fn begin_to_sweep(&self, gate: &Gate) {
        if !self.sweeping.replace(true) {
            let (me, gate) = (self.me.clone(), gate.clone());
            event::spawn(sweep(me, gate));
        }
    }

    /// The worker leaves: gives its connections away, those that others may use.
    fn leave(&self) {
        let idle = self.idle.take();
        self.count(0);
        self.sweeping.set(false);
        let Some(leaving) = self.leaving.get() else { return };
        let mut all: Vec<Kept> = idle.into_iter().filter_map(Idle::kept).collect();
        all.extend(self.handover.iter().flat_map(Handover::take_all));
        if !all.is_empty() {
            leaving(all);
        }
    }

    /// Has idle connections counted.
    pub(crate) fn set_meter(&self, meter: Option<&Rc<GroupMeter>>) {
        if let Some(meter) = meter {
            let _ = self.meter.set(meter.clone());
        }
    }

    #[inline]
    fn count(&self, idle: usize) {
        if let Some(counters) = self.meter.get().and_then(|meter| meter.counters()) {
            counters.set(word::PROCESSING, idle as u64);
        }
    }

    /// An idle connection to `addr` that still stands, the one used last; with `tls`, one under TLS
    /// that was kept with the same tag, which stands for the name and the settings as well.
    pub fn take(&self, addr: &SockAddr, of: Use<'_>, tls: bool) -> Option<UpConn> {
        let now = base::time::now_ms();
        let mut idle = self.idle.borrow_mut();
        loop {
            let bound = self.conf.local || tls || of.apart;
            let fits = |i: &Idle| {
                (!bound || i.tag == of.tag)
                    && i.addr == *addr
                    && i.conn.sock.is_tls() == tls
                    && i.apart == of.apart
                    && i.is_of(of.owner)
            };
            let Some(at) = idle.iter().position(fits) else {
                let handover = self.handover.as_ref().filter(|_| !tls && of.may_be_passed());
                return handover.and_then(|h| h.take(addr));
            };
            // The one used last is at the front, where taking it out moves no other.
            let found = if at == 0 { idle.pop_front() } else { idle.remove(at) };
            let Idle { mut conn, until_ms, .. } = found?;
            self.count(idle.len());
            // The task that closes connections looks at times once a second if there was nothing
            // idle when it looked before.
            if now < until_ms && conn.sock.is_quiet() {
                conn.cached = true;
                return Some(conn);
            }
        }
    }

    /// Keeps a connection whose exchange is over, unless it is used up or `gate` is closed.
    pub fn put(&self, conn: UpConn, addr: &SockAddr, of: Use<'_>, gate: &Gate) {
        let now = base::time::now_ms();
        if self.is_worn(&conn) || gate.is_closed() || !conn.sock.is_quiet() {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if of.may_be_passed()
            && let Some(handover) = self.surplus(&idle, &conn, addr)
        {
            return handover.put(conn, addr, self.conf.timeout_ms);
        }
        if idle.len() + self.expected.get() >= self.conf.max && idle.pop_back().is_none() {
            return;
        }
        let until_ms = now.saturating_add(self.conf.timeout_ms);
        let (Use { tag, apart, .. }, owner) = (of, of.owner.map(Rc::downgrade));
        idle.push_front(Idle { conn, addr: addr.clone(), tag, apart, owner, until_ms });
        self.count(idle.len());
        drop(idle);
        self.begin_to_sweep(gate);
    }

    /// The queue that another connection to the server belongs in: one stays at hand, further ones
    /// are for any worker.
    fn surplus(&self, idle: &VecDeque<Idle>, conn: &UpConn, addr: &SockAddr) -> Option<&Handover> {
        let handover = self.handover.as_ref()?;
        let has_one = || idle.iter().any(|i| i.addr == *addr);
        (conn.sock.can_be_passed() && has_one()).then_some(handover)
    }

    /// A stream of a connection to `addr` over HTTP/2 that has room for another; `bound`: one that
    /// was made with the same tag. With `alone` no other exchange shares it. Of several, the
    /// connection with the most streams: what it sends and receives serves many at once.
    pub fn open(&self, addr: &SockAddr, tag: usize, bound: bool, alone: bool) -> Option<Stream> {
        let bound = bound || self.conf.local;
        let shared = self.shared.borrow();
        let fits =
            |s: &&Shared| s.addr == *addr && (!bound || s.tag == tag) && s.mux.has_room(alone);
        shared.iter().filter(fits).max_by_key(|s| s.mux.users())?.mux.open(alone)
    }

    /// A connection to `addr` over HTTP/2 that is being made, and that has room for one more
    /// exchange to wait for it; `bound` as in [`Pool::open`].
    pub fn join(&self, addr: &SockAddr, tag: usize, bound: bool) -> Option<Rc<Dial>> {
        self.dials.join(addr, tag, bound || self.conf.local)
    }

    /// Notes that an exchange makes a connection over HTTP/2 which others may wait for.
    pub fn dial(&self, addr: &SockAddr, tag: usize) -> Dialling {
        self.dials.begin(addr.clone(), tag, self.conf.streams.saturating_sub(1))
    }

    /// The limits of connections over HTTP/2.
    pub fn mux_conf(&self) -> MuxConf {
        let PoolConf { requests, time_ms, timeout_ms, streams, .. } = self.conf;
        MuxConf { streams, requests, time_ms, timeout_ms }
    }

    /// Lets other exchanges find a connection over HTTP/2.
    pub fn share(&self, mux: Rc<Mux>, addr: SockAddr, tag: usize) {
        self.shared.borrow_mut().push(Shared { mux, addr, tag });
    }

    /// A connection over HTTP/2 has ended.
    pub(crate) fn forget(&self, mux: &Mux) {
        self.shared.borrow_mut().retain(|s| !std::ptr::eq(&*s.mux, mux));
    }

    /// Whether another idle connection over HTTP/2 is kept: the one that asks counts as idle.
    pub(crate) fn keeps_idle(&self) -> bool {
        self.shared.borrow().iter().filter(|s| s.mux.users() == 0).count() <= self.conf.max
    }

    /// This pool, for those that must not keep it.
    pub fn weak(&self) -> Weak<Pool> {
        self.me.clone()
    }

    /// Closes connections that ended or were idle too long; false when none is left.
    fn sweep(&self) -> bool {
        let now = base::time::now_ms();
        let mut idle = self.idle.borrow_mut();
        idle.retain(|i| now < i.until_ms && i.conn.sock.is_quiet() && !i.is_orphan());
        self.count(idle.len());
        let shared = self.handover.as_ref().is_some_and(|h| {
            h.sweep();
            !h.is_empty()
        });
        if shared {
            return true;
        }
        if idle.is_empty() {
            self.sweeping.set(false);
        }
        !idle.is_empty()
    }

    /// Milliseconds until the next connection's time is over, or the next look.
    fn next_sweep(&self) -> u64 {
        let now = base::time::now_ms();
        let first = self.idle.borrow().iter().map(|i| i.until_ms).min();
        let first = first.unwrap_or(now + SWEEP_MS);
        first.saturating_sub(now).clamp(1, SWEEP_MS)
    }
}

/// One task a pool while it is not empty: cheaper than a timer and a waiter for each connection.
async fn sweep(pool: Weak<Pool>, gate: Gate) {
    loop {
        let Some(ms) = pool.upgrade().map(|p| p.next_sweep()) else { return };
        let leaving = event::race(event::sleep(ms), gate.closed()).await.is_second();
        let Some(pool) = pool.upgrade() else { return };
        if leaving {
            pool.leave();
            return;
        }
        if !pool.sweep() {
            return;
        }
    }
}
