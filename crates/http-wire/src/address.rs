//! Limits on a client's address, which all of its connections to a worker share: a budget of frames
//! that bring nothing ([`crate::waste`]), and a limit on the memory that their requests hold.
//! With IPv6, a block of 64 bits counts as one address.
//!
//! The account is the worker's own and not one of all workers, because its purpose is that this
//! worker can serve others. So it needs neither a zone nor a lock. An address gets as much as that
//! from each worker.
//!
//! A connection that has caused few resets is not closed for those of other connections of its
//! address: a user who leaves a page does not pay for a neighbour behind the same NAT.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use crate::waste::{AddressWaste, Flood, Waste};

/// Memory that requests of an address may hold in a worker, bytes: their heads, and parts of bodies
/// that nothing has read. Those of a connection without bodies hold 768 KB at most.
const HELD_MAX: usize = 32 << 20;

/// Frames of a connection that are charged to its address at once.
const LUMP: u32 = 256;

/// Resets that a connection may cause whatever others of its address do: a user who leaves a page
/// does not pay for a neighbour behind the same address.
const RESETS_SPARED: u32 = 25;

/// Accounts above which those that nothing needs are looked for.
const ACCOUNTS_MIN: usize = 64;

/// Lines of the log about single streams that an address may cause in a minute.
const TOLD_MAX: u32 = 16;

/// Lines of the log about single streams: one for each would be a client's way to fill a disk.
#[derive(Default)]
pub struct Lines {
    since_ms: Cell<u64>,
    n: Cell<u32>,
}

impl Lines {
    /// Whether another one is written now.
    pub fn another(&self, now_ms: u64) -> bool {
        if now_ms.saturating_sub(self.since_ms.get()) >= 60_000 {
            self.since_ms.set(now_ms);
            self.n.set(0);
        }
        self.n.set(self.n.get().saturating_add(1));
        self.n.get() <= TOLD_MAX
    }
}

/// The account of an address.
pub struct Address {
    waste: RefCell<AddressWaste>,
    held: Cell<usize>,
    /// Lines about streams that the client has reset, or that were refused.
    pub resets: Lines,
    /// Lines about requests that such a reset, or the connection's end, broke off.
    broken_off: Lines,
    /// Lines about temporary files.
    files: Lines,
}

#[derive(Default)]
struct Accounts {
    all: HashMap<IpAddr, Rc<Address>>,
    /// The number of accounts at which those are removed that nothing needs.
    full: usize,
}

thread_local! {
    static ACCOUNTS: RefCell<Accounts> = RefCell::default();
}

impl Accounts {
    fn of(&mut self, block: IpAddr, now_ms: u64) -> Rc<Address> {
        if let Some(address) = self.all.get(&block) {
            return address.clone();
        }
        if self.all.len() >= self.full {
            self.all.retain(|_, address| {
                Rc::strong_count(address) > 1 || !address.waste.borrow_mut().is_rested(now_ms)
            });
            self.full = ACCOUNTS_MIN.max(self.all.len() * 2);
        }
        let address = Rc::new(Address {
            waste: RefCell::new(AddressWaste::new(now_ms)),
            held: Cell::new(0),
            resets: Lines::default(),
            broken_off: Lines::default(),
            files: Lines::default(),
        });
        self.all.insert(block, address.clone());
        address
    }
}

impl Address {
    /// The account of a connection's client, by the block of its address.
    pub fn of(block: Option<IpAddr>) -> Option<Rc<Address>> {
        let block = block?;
        let now_ms = base::time::now_ms();
        Some(ACCOUNTS.with(|accounts| accounts.borrow_mut().of(block, now_ms)))
    }

    /// Whether requests hold as much memory as they may.
    pub fn is_full(&self) -> bool {
        self.held.get() > HELD_MAX
    }

    /// Whether its clients reset so many streams that lines about single ones would fill the log.
    pub fn is_strained(&self) -> bool {
        self.waste.borrow_mut().is_strained(base::time::now_ms())
    }

    /// Whether a line tells that a stream, or a connection's end, broke a request off.
    pub fn tells_of_end(&self) -> bool {
        !self.is_strained() && self.broken_off.another(base::time::now_ms())
    }

    /// Whether a line tells of a temporary file.
    pub fn tells_of_temp_file(&self) -> bool {
        self.files.another(base::time::now_ms())
    }
}

/// The accounts that a connection's frames are charged to.
pub struct Account {
    own: Waste,
    address: Option<Rc<Address>>,
    /// Frames that were not charged to the address yet.
    frames: u32,
    /// Streams that were opened since some were charged last.
    streams: u32,
    /// All resets so far.
    pub resets: u64,
    /// Its client was cut off for a flood lately.
    did_flood: bool,
}

impl Account {
    /// The account of a connection that may have so many streams at a time. `did_flood`: its client
    /// was cut off for a flood lately.
    pub fn new(max_streams: u32, address: Option<Rc<Address>>, did_flood: bool) -> Account {
        let own = Waste::new(max_streams, base::time::now_ms());
        Account { own, address, frames: 0, streams: 0, resets: 0, did_flood }
    }

    /// See [`Waste::used`].
    pub fn used(&self) -> (u32, u32) {
        self.own.used()
    }

    /// The connection has caused this much in another process: see [`Waste::charge`].
    pub fn charge(&mut self, used: (u32, u32)) {
        self.own.charge(used);
    }

    /// The client has another address, which pays from now on.
    pub fn moves(&mut self, address: Option<Rc<Address>>) {
        self.address = address;
    }

    /// Whether the client may be one that floods.
    #[inline]
    pub fn is_suspect(&self) -> bool {
        self.did_flood || self.own.resets_used() > RESETS_SPARED
    }

    /// Whether streams are reset one after the other, as after the last reset.
    pub fn is_strained(&self) -> bool {
        self.own.resets_used() > RESETS_SPARED
            || self.address.as_ref().is_some_and(|address| address.is_strained())
    }

    /// Whether a line about a single stream is written.
    pub fn tells(&self) -> bool {
        let another = |address: &Rc<Address>| address.resets.another(base::time::now_ms());
        !self.is_strained() && self.address.as_ref().is_none_or(another)
    }

    /// A stream was opened.
    #[inline]
    pub fn stream(&mut self) {
        self.own.stream();
        self.streams = self.streams.saturating_add(1);
    }

    /// A frame that carries nothing.
    ///
    /// # Errors
    /// There are too many of them.
    pub fn frame(&mut self, now_ms: u64) -> Result<(), Flood> {
        self.frames(1, now_ms)
    }

    /// The same for so many frames, or for work that is worth as many.
    ///
    /// # Errors
    /// There are too many of them.
    pub fn frames(&mut self, n: u32, now_ms: u64) -> Result<(), Flood> {
        self.own.frames(n, now_ms)?;
        self.frames += n;
        if self.frames < LUMP {
            return Ok(());
        }
        let (frames, streams) =
            (std::mem::take(&mut self.frames), std::mem::take(&mut self.streams));
        let Some(address) = &self.address else { return Ok(()) };
        match address.waste.borrow_mut().frames(frames, streams, now_ms) {
            true => Ok(()),
            false => Err(Flood("too many frames without data by connections of one address")),
        }
    }

    /// A WINDOW_UPDATE of `n` bytes.
    ///
    /// # Errors
    /// There are too many small ones.
    #[inline]
    pub fn update(&mut self, n: u32, now_ms: u64) -> Result<(), Flood> {
        if Waste::is_small(n) { self.frame(now_ms) } else { Ok(()) }
    }

    /// A stream was reset, by the client or for a fault of the client's.
    ///
    /// # Errors
    /// There were too many of them.
    pub fn reset(&mut self, now_ms: u64) -> Result<(), Flood> {
        self.resets += 1;
        self.own.reset(now_ms)?;
        let Some(address) = &self.address else { return Ok(()) };
        let suffices = address.waste.borrow_mut().reset(now_ms);
        match suffices || self.own.resets_used() <= RESETS_SPARED {
            true => Ok(()),
            false => Err(Flood("too many streams that were reset by connections of one address")),
        }
    }
}

/// Memory that requests of a connection hold, which counts for its client's address as well.
#[derive(Default)]
pub struct Held {
    own: usize,
    address: Option<Rc<Address>>,
}

impl Held {
    /// Nothing is held yet.
    pub fn new(address: Option<Rc<Address>>) -> Held {
        Held { own: 0, address }
    }

    /// The account of the client's address.
    pub fn address(&self) -> Option<&Rc<Address>> {
        self.address.as_ref()
    }

    /// Whether the connections of the address hold as much as they may.
    pub fn is_full(&self) -> bool {
        self.address.as_ref().is_some_and(|address| address.is_full())
    }

    /// A request holds more memory.
    pub fn add(&mut self, n: usize) {
        self.own += n;
        if let Some(address) = &self.address {
            address.held.set(address.held.get() + n);
        }
    }

    /// A request gives memory back.
    pub fn sub(&mut self, n: usize) {
        self.own -= n;
        if let Some(address) = &self.address {
            address.held.set(address.held.get() - n);
        }
    }

    /// So much is held now.
    pub fn set(&mut self, n: usize) {
        match n.checked_sub(self.own) {
            Some(more) => self.add(more),
            None => self.sub(self.own - n),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.sub(self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_go_when_nothing_needs_them() {
        let mut accounts = Accounts::default();
        let ip = |n: u32| IpAddr::from(n.to_be_bytes());
        let kept = accounts.of(ip(0), 1_000);
        for n in 1..1_000 {
            let busy = accounts.of(ip(n), 1_000);
            if n < 10 {
                assert!(busy.waste.borrow_mut().reset(1_000));
            }
        }
        assert!(accounts.all.len() <= ACCOUNTS_MIN.max(2 * 10), "{}", accounts.all.len());
        assert!((0..10).all(|n| accounts.all.contains_key(&ip(n))));
        assert!(Rc::ptr_eq(&kept, &accounts.of(ip(0), 1_000)));
    }

    #[test]
    fn frames_that_come_with_requests_are_not_charged_to_the_address() {
        let mut accounts = Accounts::default();
        let address = accounts.of(IpAddr::from([127, 0, 0, 1]), 1_000);
        let mut account = Account::new(128, Some(address.clone()), false);
        for _ in 0..100_000 {
            account.stream();
            (0..4).for_each(|_| assert!(account.frame(1_000).is_ok()));
        }
        let mut connections = (0..100).map(|_| Account::new(128, Some(address.clone()), false));
        let is_calm = |account: &mut Account| (0..3_000).all(|_| account.frame(1_000).is_ok());
        assert!(!connections.all(|mut account| is_calm(&mut account)), "others are");
    }

    #[test]
    fn an_address_gets_a_few_lines_a_minute() {
        let lines = Lines::default();
        assert_eq!((0..100).filter(|_| lines.another(100_000)).count(), 16);
        assert_eq!((0..100).filter(|_| lines.another(159_999)).count(), 0);
        assert_eq!((0..100).filter(|_| lines.another(160_000)).count(), 16);
    }

    #[test]
    fn memory_of_requests_is_counted_until_they_end() {
        let mut accounts = Accounts::default();
        let address = accounts.of(IpAddr::from([127, 0, 0, 1]), 1_000);
        let mut held = [Held::new(Some(address.clone())), Held::new(Some(address.clone()))];
        held[0].add(HELD_MAX);
        held[1].set(1);
        assert!(address.is_full() && held[0].is_full());
        held[0].sub(1);
        assert!(!address.is_full());
        held[0].set(5);
        assert_eq!(address.held.get(), 6);
        drop(held);
        assert_eq!(address.held.get(), 0);
    }
}
