//! A server of an upstream at one address: its settings, and its state, which lies in a row of
//! words that workers share if the upstream has a zone.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::time;
use bytes::Bytes;
use engine::metrics::{Kind, Metrics, Reading, RowId, peer_name, word as metric};
use os::SockAddr;
use shm::{CounterRow, Rows};

/// Words of a server's row.
pub mod word {
    /// See [`super::state`].
    pub const STATE: usize = 0;
    /// The position among the servers, unique in the zone.
    pub const ORDER: usize = 1;
    /// The number of the upstream within the zone.
    pub const OWNER: usize = 2;
    /// Backup, and presence of a route.
    pub const FLAGS: usize = 3;
    /// The number of its `resolve` line, from 1; 0 without one.
    pub(crate) const TEMPLATE: usize = 4;
    /// Exchanges under way.
    pub(crate) const CONNS: usize = 5;
    /// Failures in a row.
    pub const FAILS: usize = 6;
    /// Time of the last failure, seconds.
    pub(crate) const ACCESSED: usize = 7;
    /// Time of the last try or failure, seconds.
    pub const CHECKED: usize = 8;
    /// The effective weight.
    pub(crate) const EFFECTIVE: usize = 9;
    /// The balance of smooth round robin.
    pub(crate) const CURRENT: usize = 10;
    /// See [`super::down`].
    pub const DOWN: usize = 11;
    /// Beginning of the slow start, milliseconds; 0 without one.
    pub const STARTED: usize = 12;
    /// Settings: see [`super::ServerSpec`].
    pub const WEIGHT: usize = 13;
    /// As above.
    pub(crate) const MAX_CONNS: usize = 14;
    /// As above.
    pub(crate) const MAX_FAILS: usize = 15;
    /// As above.
    pub(crate) const FAIL_TIMEOUT: usize = 16;
    /// As above.
    pub(crate) const SLOW_START: usize = 17;
    /// Averages of `least_time`, milliseconds: until the head.
    pub(crate) const HEADER_TIME: usize = 18;
    /// As above, until the end.
    pub(crate) const RESPONSE_TIME: usize = 19;
    /// The average age of exchanges under way.
    pub(crate) const INFLIGHT_TIME: usize = 20;
    /// The sum of these ages when their number changed last.
    pub(crate) const INFLIGHT_LAST: usize = 21;
    /// The time of that change, milliseconds.
    pub(crate) const INFLIGHT_CHANGED: usize = 22;
    /// The number of these exchanges.
    pub(crate) const INFLIGHT: usize = 23;
    /// Exchanges begun.
    pub const REQUESTS: usize = 24;
    /// Of these, failed.
    pub const FAILED: usize = 25;
    /// Health checks made.
    pub const CHECKS: usize = 26;
    /// Of these, failed.
    pub const CHECKS_FAILED: usize = 27;
    /// Checks passed in a row.
    pub(crate) const STREAK: usize = 28;
    /// Checks failed in a row.
    pub(crate) const STREAK_BAD: usize = 29;
    /// The configuration that waits for the first check, by its random number.
    pub(crate) const CHECKED_BY: usize = 30;
    /// Times that it became unhealthy.
    pub const UNHEALTHY: usize = 31;
    /// The time since which it is out for failures or bad health, milliseconds since 1970; 0 while
    /// it is not.
    pub const OUT_SINCE: usize = 32;
    /// The sum of earlier such times, milliseconds.
    pub(crate) const OUT_MS: usize = 33;
    /// Address, server and sid, each ended by a line feed.
    pub const TEXT: usize = 34;
    /// The longest address, name of a server with its port, and route.
    pub const ROW: usize = TEXT + 1 + 56;
}

/// Kinds of rows.
pub(crate) mod state {
    pub const FREE: u64 = 0;
    pub const LIVE: u64 = 1;
    /// Taken out; free when its last exchange ends.
    pub const GONE: u64 = 2;
    /// The state of a `resolve` line; `CHECKED` is the expiry of its addresses.
    pub(crate) const TEMPLATE: u64 = 3;
}

pub(crate) mod flag {
    pub(crate) const BACKUP: u64 = 1;
    /// It has a `route=`.
    pub(crate) const ROUTE: u64 = 2;
}

/// Reasons not to ask a server, as bits.
pub mod down {
    /// `down`
    pub const DOWN: u64 = 1;
    /// Health checks fail.
    pub const UNHEALTHY: u64 = 2;
    /// The first health check, which comes before all requests, is not over.
    pub(crate) const UNCHECKED: u64 = 4;
    /// `drain`: clients bound to it are served still.
    pub(crate) const DRAINING: u64 = 8;
}

/// The settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// The address that is connected to.
    pub addr: SockAddr,
    /// Its name as it was written, with the port.
    pub server: Bytes,
    /// `route=`; empty without one.
    pub route: Bytes,
    /// Its share among the servers (`weight=`).
    pub weight: i64,
    /// `max_conns=`; 0 is no limit.
    pub max_conns: u64,
    /// `max_fails=`; 0 never takes the server out.
    pub max_fails: u64,
    /// `fail_timeout=`, seconds.
    pub fail_timeout: i64,
    /// `slow_start=`, milliseconds; 0 starts at full weight.
    pub slow_start: u64,
    /// Whether it is asked only if no other server is live (`backup`).
    pub backup: bool,
    /// See [`down`].
    pub down: u64,
    /// The number of its `resolve` line, from 1; 0 without one.
    pub template: u64,
}

impl ServerSpec {
    /// A server with nginx's defaults.
    pub fn new(addr: SockAddr) -> ServerSpec {
        let server = Bytes::from(addr.to_string());
        ServerSpec {
            addr,
            server,
            route: Bytes::new(),
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout: 10,
            slow_start: 0,
            backup: false,
            down: 0,
            template: 0,
        }
    }
}

/// A server as this worker sees it.
pub struct Peer {
    /// Its settings.
    pub spec: ServerSpec,
    /// The address as text, for logs and `$upstream_addr`.
    pub name: Bytes,
    /// The id that binds clients to it: its route, or a hash of its address.
    pub sid: Bytes,
    pub(crate) row: usize,
    /// Its number, unique in the zone for ever.
    pub(crate) order: u64,
    rows: Rc<Rows>,
    meter: Option<Meter>,
    counters: OnceCell<RowId>,
}

/// The counters that the servers of an upstream have.
#[derive(Clone)]
pub struct Meter {
    /// All counters.
    pub metrics: Rc<Metrics>,
    /// The counters of this engine's servers.
    pub kind: Kind,
    /// The upstream's name.
    pub upstream: Bytes,
}

impl Meter {
    /// The name of a server's row.
    pub fn name_of(&self, address: &[u8]) -> Vec<u8> {
        peer_name(&self.upstream, address)
    }

    /// This worker's counters of that name, whose row is found once.
    fn counters(&self, row: &OnceCell<RowId>, name: &[u8]) -> Option<CounterRow<'_>> {
        if !self.metrics.is_on() {
            return None;
        }
        if row.get().is_none() {
            let _ = row.set(self.metrics.row_named(self.kind, &self.name_of(name))?);
        }
        self.metrics.counters(*row.get()?)
    }
}

/// The counters of a group as a whole, beside its servers'.
pub(crate) struct GroupMeter {
    meter: Meter,
    row: OnceCell<RowId>,
    queue_row: OnceCell<RowId>,
}

/// The name of the counters of a group's queue, where a server has its address.
const QUEUE: &[u8] = b"queue";

impl GroupMeter {
    pub(crate) fn new(meter: Meter) -> GroupMeter {
        GroupMeter { meter, row: OnceCell::new(), queue_row: OnceCell::new() }
    }

    /// This worker's counters: idle connections as those under way, and sessions that found the
    /// queue full as those refused.
    pub(crate) fn counters(&self) -> Option<CounterRow<'_>> {
        self.meter.counters(&self.row, b"")
    }

    /// This worker's counters of the queue: sessions in it as those under way.
    pub(crate) fn of_queue(&self) -> Option<CounterRow<'_>> {
        self.meter.counters(&self.queue_row, QUEUE)
    }

    fn reading(&self) -> Reading {
        self.meter.metrics.any(self.meter.kind, &self.meter.name_of(b"")).read()
    }

    /// Sessions in the queues of all workers.
    pub(crate) fn queued(&self) -> u64 {
        let zone = self.meter.metrics.any(self.meter.kind, &self.meter.name_of(QUEUE));
        zone.read().get(metric::PROCESSING)
    }

    /// Idle connections of all workers.
    pub(crate) fn idle(&self) -> u64 {
        self.reading().get(metric::PROCESSING)
    }

    /// Sessions that found the queue full.
    pub(crate) fn overflows(&self) -> u64 {
        self.reading().get(metric::REJECTED)
    }
}

/// The id of a server without a route: the MD5 of its address as text.
pub(crate) fn sid_of(name: &[u8]) -> Bytes {
    use md5::{Digest, Md5};
    let mut out = Vec::with_capacity(32);
    base::ascii::write_hex(&mut out, &Md5::digest(name));
    Bytes::from(out)
}

impl Peer {
    /// The server in a row; `None` if the row holds none, or one that cannot be read.
    pub(crate) fn read(rows: &Rc<Rows>, row: usize, meter: Option<&Meter>) -> Option<Peer> {
        let words = rows.row(row);
        let get = |at: usize| words[at].load(Ordering::Relaxed);
        if get(word::STATE) != state::LIVE {
            return None;
        }
        let text = Bytes::from(rows.text(row, word::TEXT));
        let mut parts = text.split(|b| *b == b'\n').map(|part| text.slice_ref(part));
        let (name, server, sid) = (parts.next()?, parts.next()?, parts.next()?);
        let flags = get(word::FLAGS);
        let spec = ServerSpec {
            addr: SockAddr::parse(&name)?,
            server,
            route: if flags & flag::ROUTE != 0 { sid.clone() } else { Bytes::new() },
            weight: get(word::WEIGHT).cast_signed(),
            max_conns: get(word::MAX_CONNS),
            max_fails: get(word::MAX_FAILS),
            fail_timeout: get(word::FAIL_TIMEOUT).cast_signed(),
            slow_start: get(word::SLOW_START),
            backup: flags & flag::BACKUP != 0,
            down: get(word::DOWN),
            template: get(word::TEMPLATE),
        };
        let (order, counters) = (get(word::ORDER), OnceCell::new());
        let (rows, meter) = (rows.clone(), meter.cloned());
        Some(Peer { spec, name, sid, row, order, rows, meter, counters })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.rows.row(self.row)[at]
    }

    /// Its counters; none where nothing is counted.
    #[inline]
    pub fn row(&self) -> Option<RowId> {
        let meter = self.meter.as_ref()?;
        if !meter.metrics.is_on() {
            return None;
        }
        if self.counters.get().is_none() {
            let name = meter.name_of(&self.name);
            let _ = self.counters.set(meter.metrics.row_named(meter.kind, &name)?);
        }
        self.counters.get().copied()
    }

    /// This worker's counters of it.
    #[inline]
    pub(crate) fn counters(&self) -> Option<CounterRow<'_>> {
        let row = self.row()?;
        self.meter.as_ref()?.metrics.counters(row)
    }

    /// The sums of its counters.
    pub fn reading(&self) -> Reading {
        let zone = self.meter.as_ref().map(|m| m.metrics.any(m.kind, &m.name_of(&self.name)));
        zone.map(|zone| zone.read()).unwrap_or_default()
    }

    /// The time when its counters were 0, milliseconds since 1970; 0 where nothing is counted.
    pub fn began_ms(&self) -> u64 {
        let zone = self.meter.as_ref().map(|m| m.metrics.any(m.kind, &m.name_of(&self.name)));
        zone.map_or(0, |zone| zone.began_ms())
    }

    /// Begins to count from 0 again.
    pub fn reset(&self) {
        if let Some(m) = &self.meter {
            m.metrics.any(m.kind, &m.name_of(&self.name)).reset();
        }
    }

    /// Its number, unique in the zone for ever.
    pub fn number(&self) -> u64 {
        self.order
    }

    /// A word of its row: see [`word`].
    pub fn get(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    /// Under the lock: changes a word of its row.
    pub fn set(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }

    fn get_signed(&self, at: usize) -> i64 {
        self.get(at).cast_signed()
    }

    /// Exchanges under way in all workers, by the zone or else by its counters.
    pub fn active(&self, reading: &Reading) -> u64 {
        if self.rows.is_shared() { self.conns() } else { reading.get(metric::PROCESSING) }
    }

    /// Exchanges under way.
    pub fn conns(&self) -> u64 {
        self.get(word::CONNS)
    }

    /// See [`down`].
    pub fn down(&self) -> u64 {
        self.get(word::DOWN)
    }

    /// The effective weight: less than configured while it fails.
    pub(crate) fn effective(&self) -> i64 {
        self.get_signed(word::EFFECTIVE)
    }

    pub(crate) fn current(&self) -> i64 {
        self.get_signed(word::CURRENT)
    }

    pub(crate) fn set_current(&self, current: i64) {
        self.set(word::CURRENT, current.cast_unsigned());
    }

    /// Its effective weight grows back by one.
    pub(crate) fn recover(&self) {
        let effective = self.effective();
        if effective < self.spec.weight {
            self.set(word::EFFECTIVE, (effective + 1).cast_unsigned());
        }
    }

    /// As many exchanges are under way as may be.
    pub fn is_full(&self) -> bool {
        self.spec.max_conns > 0 && self.conns() >= self.spec.max_conns
    }

    /// Failed too often lately.
    pub fn has_failed(&self, now: i64) -> bool {
        self.spec.max_fails > 0
            && self.get(word::FAILS) >= self.spec.max_fails
            && now - self.get_signed(word::CHECKED) <= self.spec.fail_timeout
    }

    /// Whether it is still in the upstream.
    pub(crate) fn is_there(&self) -> bool {
        self.get(word::STATE) == state::LIVE && self.get(word::ORDER) == self.order
    }

    /// Whether it was taken out of the upstream, is `down`, or fails its health checks: sessions
    /// with it have no future.
    pub fn is_out_for_good(&self) -> bool {
        !self.is_there() || self.down() & (down::DOWN | down::UNHEALTHY) != 0
    }

    /// Whether this server may be asked now, at that time in seconds.
    pub fn is_live(&self, now: i64) -> bool {
        self.down() == 0 && !self.has_failed(now) && !self.is_full() && self.is_there()
    }

    /// The same for a client that is bound to it.
    pub(crate) fn is_live_for_bound(&self, now: i64) -> bool {
        self.down() & !down::DRAINING == 0
            && !self.has_failed(now)
            && !self.is_full()
            && self.is_there()
    }

    /// The progress of its slow start, of [`RAMP`].
    pub(crate) fn ramp(&self, now_ms: u64) -> i64 {
        let (span, start) = (self.spec.slow_start, self.get(word::STARTED));
        let passed = now_ms.saturating_sub(start);
        if span == 0 || start == 0 || passed >= span {
            return RAMP;
        }
        (passed * RAMP as u64 / span).max(1) as i64
    }

    /// Begins its slow start, after it was out.
    pub(crate) fn start_slowly(&self) {
        if self.spec.slow_start > 0 {
            self.set(word::STARTED, time::unix_ms().max(1));
        }
    }

    /// Under the lock: an exchange begins.
    pub(crate) fn begin(&self, now: i64) {
        let row = self.rows.row(self.row);
        let get = |at: usize| row[at].load(Ordering::Relaxed);
        let set = |at: usize, value| row[at].store(value, Ordering::Relaxed);
        set(word::CONNS, get(word::CONNS) + 1);
        set(word::REQUESTS, get(word::REQUESTS).wrapping_add(1));
        self.rows.hold(self.row);
        if now - get(word::CHECKED).cast_signed() > self.spec.fail_timeout {
            set(word::CHECKED, now.cast_unsigned());
        }
    }

    /// An exchange goes on here that another process has begun.
    pub(crate) fn occupy(&self) {
        let _lock = self.rows.lock();
        self.set(word::CONNS, self.conns() + 1);
        self.rows.hold(self.row);
    }

    /// It is over.
    pub(crate) fn leave(&self) {
        let _lock = self.rows.lock();
        self.end();
    }

    /// Under the lock: an exchange is over.
    pub(crate) fn end(&self) {
        self.rows.release(self.row);
        give_back(&self.rows, self.row, 1);
    }

    /// Under the lock: it answered. If it had been out, it is live again.
    pub(crate) fn succeeded(&self) {
        if self.get(word::ACCESSED) < self.get(word::CHECKED) {
            self.forgive();
        }
    }

    /// A connection to it stands: if it had been out, it is live again.
    pub(crate) fn set_back(&self) {
        if self.get(word::ACCESSED) < self.get(word::CHECKED) {
            let _lock = self.rows.lock();
            self.succeeded();
        }
    }

    /// Under the lock: it is out, for failures or bad health.
    pub(crate) fn goes_out(&self) {
        if self.get(word::OUT_SINCE) == 0 {
            self.set(word::OUT_SINCE, time::unix_ms());
        }
    }

    /// Under the lock: it is no longer out.
    pub(crate) fn comes_back(&self) {
        let since = self.get(word::OUT_SINCE);
        if since != 0 {
            let ms = time::unix_ms().saturating_sub(since);
            self.set(word::OUT_MS, self.get(word::OUT_MS).wrapping_add(ms));
            self.set(word::OUT_SINCE, 0);
        }
    }

    pub(crate) fn forgive(&self) {
        let fails = self.get(word::FAILS);
        if fails == 0 {
            return;
        }
        if self.spec.max_fails > 0 && fails >= self.spec.max_fails {
            self.start_slowly();
            if self.down() & down::UNHEALTHY == 0 {
                self.comes_back();
            }
        }
        self.set(word::FAILS, 0);
    }

    /// Under the lock: it failed. True: it is out for a while.
    pub(crate) fn failed(&self, now: i64) -> bool {
        let fails = self.get(word::FAILS) + 1;
        self.set(word::FAILS, fails);
        self.set(word::FAILED, self.get(word::FAILED).wrapping_add(1));
        self.set(word::ACCESSED, now.cast_unsigned());
        self.set(word::CHECKED, now.cast_unsigned());
        let max = self.spec.max_fails;
        if max == 0 {
            return false;
        }
        let sunk = self.effective() - self.spec.weight / i64::try_from(max).unwrap_or(i64::MAX);
        self.set(word::EFFECTIVE, sunk.max(0).cast_unsigned());
        if fails >= max {
            self.goes_out();
        }
        fails >= max
    }
}

/// The end of a slow start.
pub(crate) const RAMP: i64 = 256;

/// Under the lock: so many exchanges with the server of a row are over.
pub(crate) fn give_back(rows: &Rows, row: usize, count: u64) {
    let words = rows.row(row);
    let conns = words[word::CONNS].load(Ordering::Relaxed).saturating_sub(count);
    words[word::CONNS].store(conns, Ordering::Relaxed);
    if conns == 0 && words[word::STATE].load(Ordering::Relaxed) == state::GONE {
        words[word::STATE].store(state::FREE, Ordering::Relaxed);
    }
}
