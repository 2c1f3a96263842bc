//! Counters by zone (server, location, server of an upstream, cache, limit) for every engine. All
//! workers write them, and any worker shows them.
//!
//! - **Layout.** A zone is a row of twelve cache lines for each worker (`shm::NamedCounters`). It
//!   is found by name once and by number from then on.
//! - **Off costs one test.** Nothing is counted and no memory is taken unless some location of the
//!   configuration shows the counters ([`Metrics::show`]), which is known at the end of a load.
//! - **Names.** Zones that the configuration names get their rows before the fork; those that a
//!   variable names get them at first use, up to [`ZONES_MAX`].
//! - **Reload.** The new configuration continues in the same memory, by the same names. If that is
//!   too small, larger memory takes its place, and sums include both, because leaving workers still
//!   count in the old one.
//! - **One writer a line.** A reset records the present sums instead of clearing counters. Requests
//!   in progress are counted from the moment when their server is known (`http::metering`),
//!   completed ones in the log phase. When a worker dies, the master moves its requests in progress
//!   to the counter of lost work.
//!
//! The API writes its answers piece by piece (`http_observe::api::document`): each piece takes at
//! most half a millisecond of the loop, and no piece is made ahead of the client.

pub mod facts;
pub mod functions;
pub mod json;
pub mod native;
pub mod status_zone;
pub mod word;

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use shm::CounterRow;
use shm::{NamedCounters, ZoneReport, ZoneState, Zones};

/// The number of zones that there may be; others are counted together.
pub const ZONES_MAX: usize = 10_000;

/// The name of the zones that there was no room for.
const OTHER: &[u8] = b"other";

/// The name among the zones of shared memory; no directive can give it.
const NAME: &[u8] = b" metrics";

/// The kind of a zone, which is the first byte of its row's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A virtual server of HTTP.
    HttpServer,
    /// A location.
    Location,
    /// A server of an upstream of HTTP; its name is made by [`peer_name`].
    HttpPeer,
    /// A cache.
    Cache,
    /// A zone of `limit_conn` in HTTP.
    HttpLimitConn,
    /// A zone of `limit_req`.
    LimitReq,
    /// A server of `stream`.
    StreamServer,
    /// A server of an upstream of `stream`.
    StreamPeer,
    /// A zone of `limit_conn` in `stream`.
    StreamLimitConn,
    /// The whole server's: the counters of its engines at their last reset.
    Whole,
    /// A zone of `limit_auth`.
    LimitAuth,
}

/// The number of kinds.
const KINDS: usize = 11;

/// Whether a row is a server's of an upstream.
fn is_peer(name: &[u8]) -> bool {
    [Kind::HttpPeer, Kind::StreamPeer].iter().any(|kind| name.first() == Some(&(*kind as u8)))
}

/// The name of the row of a server of an upstream.
pub fn peer_name(upstream: &[u8], address: &[u8]) -> Vec<u8> {
    [upstream, b"\0", address].concat()
}

/// A zone that the configuration names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneRef(u32);

/// A row in the memory of this configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RowId(u32);

/// Memory that outlives a configuration, and the one that it took the place of.
struct Memory {
    counters: NamedCounters,
    before: Option<Rc<Memory>>,
    /// The time when all counters were 0, milliseconds since 1970.
    began_ms: u64,
}

impl Memory {
    /// This memory and those that it took the place of.
    fn chain(&self) -> impl Iterator<Item = &NamedCounters> {
        let mut next = Some(self);
        std::iter::from_fn(move || {
            let memory = next?;
            next = memory.before.as_deref();
            Some(&memory.counters)
        })
    }
}

impl ZoneState for Memory {
    fn died(&self, pid: u32, slot: usize) {
        for counters in self.chain() {
            let words = (word::PROCESSING, word::LOST);
            counters.died(pid, slot, words, |name| is_peer(name).then_some(word::ANSWERING));
        }
    }
}

/// The zones of a configuration, and their counters.
#[derive(Default)]
pub struct Metrics {
    is_shown: Cell<bool>,
    /// The names of the zones that the configuration names, with their kinds.
    declared: RefCell<Vec<Vec<u8>>>,
    by_name: RefCell<HashMap<Vec<u8>, u32>>,
    /// Kinds whose zones a variable names, as bits.
    dynamic: Cell<u32>,
    memory: OnceCell<Rc<Memory>>,
    /// For each declared zone its row.
    rows: OnceCell<Box<[u32]>>,
    slot: Cell<usize>,
    loaded_ms: Cell<u64>,
    parts: RefCell<Vec<Rc<dyn Any>>>,
    zones: OnceCell<Rc<Zones>>,
}

/// While the configuration is read.
impl Metrics {
    /// Some location shows the counters: all is counted.
    pub fn show(&self) {
        self.is_shown.set(true);
    }

    /// Registers a zone by its kind and name; the same zone gives the same reference.
    pub fn declare(&self, kind: Kind, name: &[u8]) -> ZoneRef {
        let name = row_name(kind, name);
        let (mut declared, mut by_name) = (self.declared.borrow_mut(), self.by_name.borrow_mut());
        let next = declared.len() as u32;
        ZoneRef(*by_name.entry(name).or_insert_with_key(|name| {
            declared.push(name.clone());
            next
        }))
    }

    /// The names of zones of a kind are those of variables.
    pub fn declare_dynamic(&self, kind: Kind) {
        self.dynamic.set(self.dynamic.get() | 1 << kind as u32);
    }

    /// Gives a part of an engine to those who show its state.
    pub fn add_part(&self, part: Rc<dyn Any>) {
        self.parts.borrow_mut().push(part);
    }

    /// All is read, before the fork: takes memory, that of the configuration before where it is
    /// large enough.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn settle(&self, zones: &Rc<Zones>, slots: usize) -> io::Result<()> {
        if !self.is_shown.get() {
            return Ok(());
        }
        // The name is nobody else's.
        let _ = zones.declare(NAME, None, "metrics");
        let before = zones.kept::<Memory>(NAME);
        let declared = self.declared.borrow();
        let dynamic = if self.dynamic.get() == 0 { 0 } else { ZONES_MAX };
        let needs = (declared.len() + KINDS).max(dynamic);
        let fits = |memory: &&Rc<Memory>| {
            let counters = &memory.counters;
            let fresh = declared.iter().filter(|name| counters.find(name).is_none()).count();
            // Zones that a variable names have what room there is.
            let room = counters.capacity() - counters.rows();
            counters.slots() >= slots && room >= fresh + KINDS && counters.capacity() >= dynamic
        };
        let memory = match before.as_ref().filter(fits) {
            Some(memory) => memory.clone(),
            None => {
                let counters = NamedCounters::new(capacity(needs), slots, word::LINES)?;
                let began_ms = before.as_ref().map_or_else(base::time::unix_ms, |m| m.began_ms);
                Rc::new(Memory { counters, before, began_ms })
            }
        };
        zones.put(NAME, memory.clone());
        let rows = declared.iter().map(|name| self.row_in(&memory.counters, name));
        let _ = self.rows.set(rows.collect());
        let _ = self.memory.set(memory);
        let _ = self.zones.set(zones.clone());
        self.loaded_ms.set(base::time::unix_ms());
        Ok(())
    }

    /// The row of a name, that of the other zones of its kind where there is no room.
    fn row_in(&self, counters: &NamedCounters, name: &[u8]) -> u32 {
        let kind = name.first().copied().unwrap_or(0);
        let row = counters.find_or_add(name, KINDS).or_else(|| {
            let other: Vec<u8> = [&[kind], OTHER].concat();
            counters.find_or_add(&other, 0)
        });
        // Rows are kept for the other zones of each kind: there is always one.
        row.unwrap_or(0) as u32
    }
}

/// Twice the zones of the configuration, so that a reload with a few more goes on in the same
/// memory.
fn capacity(needs: usize) -> usize {
    if needs >= ZONES_MAX { needs + KINDS } else { (needs * 2).max(64) }
}

fn row_name(kind: Kind, name: &[u8]) -> Vec<u8> {
    [&[kind as u8], name].concat()
}

/// In a worker.
impl Metrics {
    /// Writes to the lines of this slot from now on.
    pub fn use_slot(&self, slot: usize) {
        self.slot.set(slot);
        if let Some(memory) = self.memory.get() {
            memory.counters.use_slot(slot);
        }
    }

    /// Whether anything is counted.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.memory.get().is_some()
    }

    /// The row of a zone that the configuration names; `None` where nothing is counted.
    #[inline]
    pub fn row_of(&self, zone: ZoneRef) -> Option<RowId> {
        Some(RowId(*self.rows.get()?.get(zone.0 as usize)?))
    }

    /// The row of a name that is known now alone.
    pub fn row_named(&self, kind: Kind, name: &[u8]) -> Option<RowId> {
        let memory = self.memory.get()?;
        Some(RowId(self.row_in(&memory.counters, &row_name(kind, name))))
    }

    /// This worker's counters of a row.
    #[inline]
    pub fn counters(&self, row: RowId) -> Option<CounterRow<'_>> {
        Some(self.memory.get()?.counters.of(self.slot.get(), row.0 as usize))
    }
}

/// For those who show the counters.
impl Metrics {
    /// The zones of a kind, by name.
    pub fn zones(&self, kind: Kind) -> Vec<Zone<'_>> {
        let mut found: Vec<Vec<u8>> = Vec::new();
        let is_of = |name: &Vec<u8>| name.first() == Some(&(kind as u8));
        found.extend(self.declared.borrow().iter().filter(|name| is_of(name)).cloned());
        if self.dynamic.get() & 1 << kind as u32 != 0
            && let Some(memory) = self.memory.get()
        {
            for counters in memory.chain() {
                found.extend((0..counters.rows()).map(|row| counters.name(row)).filter(is_of));
            }
        }
        found.sort();
        found.dedup();
        found.into_iter().map(|name| Zone { metrics: self, name }).collect()
    }

    /// The zone of that name, if there is one.
    pub fn zone(&self, kind: Kind, name: &[u8]) -> Option<Zone<'_>> {
        let name = row_name(kind, name);
        let declared = self.by_name.borrow().contains_key(&name);
        let dynamic = self.dynamic.get() & 1 << kind as u32 != 0;
        let known = || {
            let memory = self.memory.get()?;
            memory.chain().find(|counters| counters.find(&name).is_some())
        };
        (declared || dynamic && known().is_some()).then_some(Zone { metrics: self, name })
    }

    /// The counters of that name, whether the configuration names the zone or not.
    pub fn any(&self, kind: Kind, name: &[u8]) -> Zone<'_> {
        Zone { metrics: self, name: row_name(kind, name) }
    }

    /// The parts of engines of a type: see [`Metrics::add_part`].
    pub fn parts<T: 'static>(&self) -> Vec<Rc<T>> {
        let parts = self.parts.borrow();
        parts.iter().filter_map(|part| part.clone().downcast().ok()).collect()
    }

    /// The zones in shared memory that know how full they are.
    pub fn shared_zones(&self) -> Vec<ZoneReport> {
        self.zones.get().map(|zones| zones.report()).unwrap_or_default()
    }

    /// The time at which the configuration was loaded, milliseconds since 1970.
    pub fn loaded_ms(&self) -> u64 {
        self.loaded_ms.get()
    }
}

/// The number of reloads so far.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// In the master, before it forks the workers of a configuration: the number of reloads so far.
pub fn set_generation(generation: u64) {
    GENERATION.store(generation, Ordering::Relaxed);
}

/// The number of the configuration that this process was made with, from 1.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed) + 1
}

/// The counters of a zone, over all processes.
pub struct Zone<'a> {
    metrics: &'a Metrics,
    /// With the kind before it.
    name: Vec<u8>,
}

impl Zone<'_> {
    /// The name of the zone that the row belongs to.
    pub fn name(&self) -> &[u8] {
        &self.name[1..]
    }

    fn rows(&self) -> impl Iterator<Item = (&NamedCounters, usize)> {
        let memory = self.metrics.memory.get();
        let chain = memory.into_iter().flat_map(|memory| memory.chain());
        chain.filter_map(|counters| Some((counters, counters.find(&self.name)?)))
    }

    /// Its counters now.
    pub fn read(&self) -> Reading {
        let mut reading = Reading::default();
        for (counters, row) in self.rows() {
            counters.add_sums(row, &mut reading.0);
        }
        reading.0[word::SELECTED_MS] =
            self.rows().map(|(c, row)| c.greatest(row, word::SELECTED_MS)).max().unwrap_or(0);
        reading
    }

    /// The value of a counter that is kept elsewhere, at the last reset.
    pub fn base(&self, word: usize) -> u64 {
        self.rows().map(|(counters, row)| counters.base(row, word)).next().unwrap_or(0)
    }

    /// Notes a value for [`Zone::base`], in a word that nothing is counted in.
    pub fn set_base(&self, word: usize, n: u64) {
        if let Some(memory) = self.metrics.memory.get() {
            let row = self.metrics.row_in(&memory.counters, &self.name);
            memory.counters.set_base(row as usize, word, n);
        }
    }

    /// The time when its counters were 0, milliseconds since 1970: before the first worker counted,
    /// or at the last reset. Neither a reload nor the death of a worker changes it.
    pub fn began_ms(&self) -> u64 {
        let reset = self.rows().map(|(counters, row)| counters.base(row, word::RESET_MS)).max();
        let began = self.metrics.memory.get().map_or(0, |memory| memory.began_ms);
        began.max(reset.unwrap_or(0))
    }

    /// Begins to count from 0 again, but for work under way.
    pub fn reset(&self) {
        let under_way = [word::PROCESSING, word::SELECTED_MS, word::ANSWERING];
        let words = if is_peer(&self.name) { &under_way[..] } else { &under_way[..2] };
        for (counters, row) in self.rows() {
            counters.reset(row, words);
            counters.set_base(row, word::RESET_MS, base::time::unix_ms());
        }
    }
}

/// The words of a zone, summed over all processes.
pub struct Reading([u64; word::LINES * shm::LINE_FIELDS]);

impl Default for Reading {
    fn default() -> Reading {
        Reading([0; word::LINES * shm::LINE_FIELDS])
    }
}

impl Reading {
    /// The sum of a word over all processes.
    pub fn get(&self, word: usize) -> u64 {
        self.0[word]
    }

    /// Adds another zone's.
    pub fn add(&mut self, other: &Reading) {
        for (sum, n) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_add(n);
        }
    }

    /// Work begun: what ended, what is under way, and what was lost with a worker.
    pub fn begun(&self) -> u64 {
        [word::DONE, word::PROCESSING, word::LOST].iter().map(|word| self.get(*word)).sum()
    }

    /// Responses of a class, 1 to 5. The statuses that stand for no response do not count.
    pub fn class(&self, class: u16) -> u64 {
        let words = word::of_class(class).filter(|(code, _)| !matches!(code, 444 | 499));
        words.map(|(_, word)| self.get(word)).sum()
    }

    /// Responses by status, those that occurred.
    pub fn codes(&self) -> impl Iterator<Item = (u16, u64)> {
        let known = (1..=5).flat_map(word::of_class).filter(|(code, _)| *code != 0);
        known.map(|(code, word)| (code, self.get(word))).filter(|(_, n)| *n > 0)
    }

    /// The average in milliseconds of `count` times that add up to `sum` microseconds.
    pub fn average_ms(&self, sum: usize, count: u64) -> u64 {
        self.get(sum).checked_div(count).unwrap_or(0) / 1000
    }

    /// The number of times that were measured.
    pub fn times(&self) -> u64 {
        self.buckets().sum()
    }

    /// The buckets of the histogram, the rest last.
    pub fn buckets(&self) -> impl Iterator<Item = u64> {
        (word::TIMES..word::TIMES + word::BUCKETS).map(|word| self.get(word))
    }

    /// The numbers of times up to each of [`word::SCRAPED_US`], and of all times.
    pub fn scraped(&self) -> impl Iterator<Item = u64> {
        let up_to = |us| (0..=word::bucket(us)).map(|i| self.get(word::TIMES + i)).sum();
        word::SCRAPED_US.into_iter().map(up_to).chain([self.times()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(before: Option<&Zones>, declare: impl Fn(&Metrics)) -> (Metrics, Rc<Zones>) {
        let zones = Rc::new(before.map_or_else(Zones::default, Zones::after));
        let metrics = Metrics::default();
        metrics.show();
        declare(&metrics);
        metrics.settle(&zones, 4).unwrap();
        metrics.use_slot(1);
        zones.settle();
        (metrics, zones)
    }

    fn count(metrics: &Metrics, zone: ZoneRef, n: u64) {
        let row = metrics.row_of(zone).unwrap();
        metrics.counters(row).unwrap().add(word::DONE, n);
    }

    #[test]
    fn nothing_is_taken_where_nothing_is_shown() {
        let metrics = Metrics::default();
        let zone = metrics.declare(Kind::HttpServer, b"a");
        metrics.settle(&Rc::default(), 4).unwrap();
        assert!(!metrics.is_on() && metrics.row_of(zone).is_none());
        assert!(metrics.row_named(Kind::HttpServer, b"b").is_none());
        assert_eq!(metrics.zone(Kind::HttpServer, b"a").unwrap().read().begun(), 0);
    }

    #[test]
    fn counters_survive_reloads_by_their_names() {
        let of = |n: usize| {
            move |m: &Metrics| {
                (0..n).for_each(|i| {
                    m.declare(Kind::Location, format!("{i}").as_bytes());
                });
            }
        };
        let (first, zones) = settled(None, of(2));
        count(&first, ZoneRef(1), 3);
        // Far more zones than there is room for.
        let (second, zones) = settled(Some(&zones), of(500));
        assert!(!Rc::ptr_eq(first.memory.get().unwrap(), second.memory.get().unwrap()));
        count(&second, ZoneRef(1), 4);
        // A worker of the first configuration that leaves.
        count(&first, ZoneRef(1), 1);
        assert_eq!(second.zone(Kind::Location, b"1").unwrap().read().get(word::DONE), 8);
        let (third, _) = settled(Some(&zones), of(400));
        assert!(Rc::ptr_eq(third.memory.get().unwrap(), second.memory.get().unwrap()));
        let zone = third.zone(Kind::Location, b"1").unwrap();
        assert_eq!(zone.read().get(word::DONE), 8);
        zone.reset();
        assert_eq!(zone.read().get(word::DONE), 0);
        assert!(third.zone(Kind::Location, b"400").is_none());
        assert_eq!(third.zones(Kind::Location).len(), 400);
    }

    #[test]
    fn zones_beyond_the_limit_are_counted_together() {
        let (metrics, _zones) = settled(None, |m| m.declare_dynamic(Kind::HttpServer));
        for i in 0..ZONES_MAX + 100 {
            let row = metrics.row_named(Kind::HttpServer, format!("host {i}").as_bytes()).unwrap();
            metrics.counters(row).unwrap().add(word::DONE, 1);
        }
        let all = metrics.zones(Kind::HttpServer);
        assert_eq!(all.iter().map(|zone| zone.read().get(word::DONE)).sum::<u64>(), 10_100);
        let other = metrics.zone(Kind::HttpServer, b"other").unwrap();
        assert_eq!((all.len(), other.read().get(word::DONE)), (ZONES_MAX + 1, 100));
    }

    #[test]
    fn work_of_the_dead_is_lost() {
        let (metrics, zones) = settled(None, |m| {
            m.declare(Kind::HttpServer, b"a");
        });
        metrics.use_slot(1);
        let row = metrics.row_of(ZoneRef(0)).unwrap();
        metrics.counters(row).unwrap().add(word::PROCESSING, 2);
        zones.died(0, 1);
        let reading = metrics.zone(Kind::HttpServer, b"a").unwrap().read();
        assert_eq!((reading.get(word::LOST), reading.get(word::PROCESSING)), (2, 0));
        assert_eq!(reading.begun(), 2);
    }

    #[test]
    fn classes_and_times() {
        let mut reading = Reading::default();
        for code in [200, 200, 204, 418, 502] {
            reading.0[word::of_code(code).unwrap()] += 1;
        }
        assert_eq!([1, 2, 3, 4, 5].map(|class| reading.class(class)), [0, 3, 0, 1, 1]);
        assert_eq!(reading.codes().collect::<Vec<_>>(), [(200, 2), (204, 1), (502, 1)]);
        for us in [50, 50, 900, 70_000_000] {
            reading.0[word::of_time(us)] += 1;
        }
        let counts: Vec<u64> = reading.buckets().collect();
        let of = |us: u64| counts[word::BOUNDS_US.iter().position(|bound| *bound == us).unwrap()];
        assert_eq!((of(50), of(976), counts.last()), (2, 1, Some(&1)));
        assert_eq!(reading.times(), 4);
        let scraped: Vec<u64> = reading.scraped().collect();
        assert_eq!((scraped[0], scraped[3], scraped[20], scraped[21]), (2, 3, 3, 4));
    }
}
