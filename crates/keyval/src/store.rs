//! The memory of a table.
//!
//! An entry is found by a hash of 128 bits, whose seed no client knows; behind it lie the key and
//! the value. Networks and prefixes are found by their hashes, too: one look for each length that
//! occurs in the table, the longest first.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use net::Cidr;
use shm::{Entry, Fill, KEY_MAX, Locked, Table, ZoneState};

use crate::changes::{Changes, Expiry};
use crate::lengths::{self, Lengths};
use crate::state::StateFile;

/// How keys are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// Keys are equal.
    #[default]
    Text,
    /// Keys are addresses and networks; the longest network that contains the address is found.
    Ip,
    /// The longest key that the text begins with is found.
    Prefix,
}

/// What an entry has besides its key and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    /// When it goes, milliseconds since 1970; 0 for never.
    pub expires_ms: u64,
    /// The number of the change that made it, and [`DIRTY`], [`TOMBSTONE`] and [`OLD`]. Entries are
    /// in the order of these numbers, the greatest one is the newest.
    pub change: u64,
    /// The time of that change, milliseconds of the monotonic clock.
    pub changed_ms: u64,
}

/// Other servers have not heard of the change.
pub(crate) const DIRTY: u64 = 1 << 63;
/// The key was taken out, and other servers have not heard of it.
pub(crate) const TOMBSTONE: u64 = 1 << 62;
/// The pair is of unknown age: others have a newer one, if they have any.
pub(crate) const OLD: u64 = 1 << 61;

/// All of these.
pub(crate) const BITS: u64 = DIRTY | TOMBSTONE | OLD;

impl Meta {
    /// The number of the change; 0 if it is not known, because no server shared the table then.
    pub fn number(self) -> u64 {
        self.change & !BITS
    }

    /// Whether one of these bits is set.
    pub fn has(self, bits: u64) -> bool {
        self.change & bits != 0
    }
}

/// The length of the hash that entries are found by.
pub(crate) const HASH: usize = 16;

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    /// The key as it was given.
    pub key: Vec<u8>,
    /// The value that is stored with the key.
    pub value: Vec<u8>,
    /// When it goes, milliseconds since 1970; 0 for never.
    pub expires_ms: u64,
}

/// Why a pair is not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The key is no address or network, or a prefix is too long.
    BadKey,
    /// Key and value are longer than an entry can be.
    TooLong,
    /// There is no room.
    Full,
    /// The key has a value already.
    Exists,
    /// The key has no value.
    Missing,
}

/// What a change does with a key that is there, or is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Adds the key, which must be new.
    Add,
    /// Adds or replaces it.
    Set,
    /// Replaces the value of a key, which must be there.
    Replace,
}

/// Entries that are looked at for their expiry with each change.
const SWEEP: u32 = 8;

/// The same where there is no room.
const SWEEP_FULL: u32 = 4096;

/// Bytes of a cell of the table.
const CELL: usize = 64;

/// Entries that get a number under one hold of the lock.
const NUMBERED: usize = 1024;

/// Entries that make room for one.
const EVICTED_MAX: usize = 1024;

/// A table in shared memory, as a configuration has it.
pub struct Store {
    /// How keys are compared.
    pub kind: Kind,
    pub(crate) table: Rc<Table<Expiry>>,
    pub(crate) lengths: Rc<Lengths>,
    hashers: [RandomState; 2],
    /// Where the sweep for expired entries goes on, in this process.
    sweep: Cell<u32>,
    /// Other servers share the table.
    synced: Cell<bool>,
    /// The change of each entry, if other servers share the table, or did so in a configuration
    /// before.
    changes: Rc<OnceCell<Changes>>,
    /// The state file.
    pub(crate) state: RefCell<Option<Rc<StateFile>>>,
    /// Room for the bytes of an entry.
    pub(crate) room: RefCell<Vec<u8>>,
}

impl ZoneState for Store {
    fn died(&self, pid: u32, _: usize) {
        self.table.free_of(pid);
    }

    fn fill(&self) -> Option<Fill> {
        Some(self.table.fill())
    }

    fn stopped(&self) {
        if let Some(state) = &*self.state.borrow() {
            state.save_now(self);
        }
    }
}

impl Store {
    /// An empty table of `bytes` bytes.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(kind: Kind, bytes: usize) -> io::Result<Store> {
        Ok(Store {
            kind,
            table: Rc::new(Table::new(bytes)?),
            lengths: Rc::new(Lengths::new()?),
            hashers: [RandomState::new(), RandomState::new()],
            sweep: Cell::new(0),
            synced: Cell::new(false),
            changes: Rc::default(),
            state: RefCell::default(),
            room: RefCell::default(),
        })
    }

    /// The same memory for the next configuration, which may be refused: what it says of the table
    /// leaves the running one alone.
    pub(crate) fn again(&self) -> Store {
        Store {
            kind: self.kind,
            table: self.table.clone(),
            lengths: self.lengths.clone(),
            hashers: self.hashers.clone(),
            sweep: Cell::new(0),
            synced: Cell::new(false),
            changes: self.changes.clone(),
            state: RefCell::default(),
            room: RefCell::default(),
        }
    }

    /// In the master: whether other servers share the table.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub(crate) fn set_synced(&self, synced: bool) -> io::Result<()> {
        self.synced.set(synced);
        if !synced || self.changes.get().is_some() {
            return Ok(());
        }
        let changes = Changes::new(self.table.bytes() / CELL)?;
        // Entries from before have the lowest number: all changes from now on are newer.
        let mut n = 0;
        loop {
            let t = self.lock();
            for _ in 0..NUMBERED {
                let Some(entry) = t.nth(n).filter(|_| n < t.used()) else {
                    let _ = self.changes.set(changes);
                    return Ok(());
                };
                changes.set(entry, 1, 0);
                n += 1;
            }
        }
    }

    /// Under the lock: what is known of an entry.
    pub(crate) fn meta(&self, t: &Locked<'_, Expiry>, entry: Entry) -> Option<Meta> {
        let Expiry(expires_ms) = t.value(entry)?;
        let (change, changed_ms) = self.changes.get().map_or((0, 0), |all| all.get(entry));
        Some(Meta { expires_ms, change, changed_ms })
    }

    /// Under the lock: changes what is known of an entry.
    pub(crate) fn set_meta(&self, t: &mut Locked<'_, Expiry>, entry: Entry, meta: Meta) {
        t.set(entry, Expiry(meta.expires_ms));
        self.set_change(entry, meta);
    }

    fn set_change(&self, entry: Entry, meta: Meta) {
        if let Some(changes) = self.changes.get() {
            changes.set(entry, meta.change, meta.changed_ms);
        }
    }

    /// Counts changes: a table with the same version has the same content.
    pub fn version(&self) -> u64 {
        self.lengths.own(0).load(Ordering::Acquire)
    }

    /// The version that the state file has.
    pub(crate) fn saved(&self) -> u64 {
        self.lengths.own(1).load(Ordering::Acquire)
    }

    pub(crate) fn set_saved(&self, version: u64) {
        self.lengths.own(1).store(version, Ordering::Release);
    }

    /// Counts a change; its number.
    pub(crate) fn changed(&self) -> u64 {
        self.lengths.own(0).fetch_add(1, Ordering::Release) + 1
    }

    /// Changes that were lost before other servers heard of them, for lack of room.
    pub(crate) fn dropped(&self) -> u64 {
        self.lengths.own(2).load(Ordering::Relaxed)
    }

    /// Under the lock: the record of a change that is made here and now.
    fn own_change(&self, expires_ms: u64) -> Meta {
        let bits = if self.synced.get() { DIRTY } else { 0 };
        Meta { expires_ms, change: self.changed() | bits, changed_ms: base::time::now_ms() }
    }

    /// Takes the lock. If its owner died, the counts of lengths may be wrong.
    pub(crate) fn lock(&self) -> Locked<'_, Expiry> {
        let t = self.table.lock();
        if t.recovered() && self.kind != Kind::Text {
            self.lengths.clear();
            for n in 0..t.used() {
                let pair = t.nth(n).and_then(|entry| read(&t, entry));
                if let Some(length) = pair.and_then(|pair| self.length(&self.form(&pair.key)?)) {
                    self.lengths.add(length);
                }
            }
        }
        t
    }

    /// The form in which keys are compared; `None` for what is no key here.
    pub(crate) fn form<'k>(&self, key: &'k [u8]) -> Option<Cow<'k, [u8]>> {
        match self.kind {
            Kind::Text => Some(Cow::Borrowed(key)),
            Kind::Prefix => (key.len() <= lengths::MAX).then_some(Cow::Borrowed(key)),
            Kind::Ip => Cidr::parse(key).map(|(network, _)| Cow::Owned(form_of(network))),
        }
    }

    /// The length that a key counts as.
    fn length(&self, form: &[u8]) -> Option<usize> {
        match self.kind {
            Kind::Text => None,
            Kind::Prefix => Some(form.len()),
            Kind::Ip => Some(usize::from(form[0]) + first_of(form.len() == 5)),
        }
    }

    pub(crate) fn hash(&self, form: &[u8]) -> [u8; HASH] {
        let [a, b] = [0, 1].map(|i: usize| self.hashers[i].hash_one(form).to_le_bytes());
        let mut hash = [0; HASH];
        hash[..8].copy_from_slice(&a);
        hash[8..].copy_from_slice(&b);
        hash
    }

    /// The entry of a key, a tombstone or expired as it may be.
    pub(crate) fn slot(&self, t: &Locked<'_, Expiry>, form: &[u8]) -> Option<(Entry, Pair, Meta)> {
        let entry = t.find(self.table.key(&self.hash(form)))?;
        let (pair, meta) = (read(t, entry)?, self.meta(t, entry)?);
        (self.form(&pair.key)? == form).then_some((entry, pair, meta))
    }

    /// The entry of a key, if it is there and has not expired.
    pub(crate) fn entry(
        &self,
        t: &mut Locked<'_, Expiry>,
        form: &[u8],
        now_ms: u64,
    ) -> Option<(Entry, Pair)> {
        let (entry, pair, meta) = self.slot(t, form)?;
        if meta.has(TOMBSTONE) {
            return None;
        }
        if is_over(pair.expires_ms, now_ms) {
            self.take_out(t, entry, &pair.key);
            return None;
        }
        Some((entry, pair))
    }

    pub(crate) fn take_out(&self, t: &mut Locked<'_, Expiry>, entry: Entry, key: &[u8]) {
        t.remove(entry);
        if let Some(length) = self.form(key).and_then(|form| self.length(&form)) {
            self.lengths.sub(length);
        }
    }

    /// Stores a value.
    ///
    /// # Errors
    /// See [`Refused`]. With `evicts`, entries that were stored longest ago make room.
    pub fn put(&self, change: Change, evicts: bool, pair: &Pair) -> Result<(), Refused> {
        self.update(&pair.key, evicts, |before| match (change, before) {
            (Change::Add, Some(_)) => Err(Refused::Exists),
            (Change::Replace, None) => Err(Refused::Missing),
            _ => Ok(pair.clone()),
        })
    }

    /// Stores the value that `change` makes of the one before, which nobody changes meanwhile.
    ///
    /// # Errors
    /// Those of `change`; see [`Store::put`].
    pub fn update(
        &self,
        key: &[u8],
        evicts: bool,
        change: impl FnOnce(Option<&Pair>) -> Result<Pair, Refused>,
    ) -> Result<(), Refused> {
        let form = self.form(key).ok_or(Refused::BadKey)?;
        let now_ms = base::time::unix_ms();
        let mut t = self.lock();
        self.drop_expired(&mut t, SWEEP, now_ms);
        let old = self.slot(&t, &form);
        let is_live = |(_, pair, meta): &&(Entry, Pair, Meta)| {
            !meta.has(TOMBSTONE) && !is_over(pair.expires_ms, now_ms)
        };
        let pair = change(old.as_ref().filter(is_live).map(|(_, pair, _)| pair))?;
        let bytes = self.bytes(&form, &pair);
        if bytes.len() > KEY_MAX || !self.table.fits(bytes.len()) {
            return Err(Refused::TooLong);
        }
        if let Some((entry, pair, _)) = &old {
            self.take_out(&mut t, *entry, &pair.key);
        }
        let meta = self.own_change(pair.expires_ms);
        if self.make_room(&mut t, evicts, (&form, &bytes, meta)) {
            return Ok(());
        }
        // The old value stays; its room has not been given away.
        if let Some((_, old, meta)) = old.filter(|(_, pair, _)| !is_over(pair.expires_ms, now_ms)) {
            // The same key, maybe written in another way. It is the newest now, and numbered so.
            let change = self.changed() | meta.change & BITS;
            let meta = Meta { change, ..meta };
            self.insert(&mut t, &form, &self.bytes(&form, &old), meta);
        }
        Err(Refused::Full)
    }

    /// Adds an entry. With `evicts`, those that were stored longest ago make room. False if there
    /// is none.
    pub(crate) fn make_room(
        &self,
        t: &mut Locked<'_, Expiry>,
        evicts: bool,
        (form, bytes, meta): (&[u8], &[u8], Meta),
    ) -> bool {
        let mut evicted = 0;
        while !self.insert(t, form, bytes, meta) {
            if evicted == 0 {
                self.drop_expired(t, SWEEP_FULL, base::time::unix_ms());
                if self.insert(t, form, bytes, meta) {
                    break;
                }
            }
            let oldest = t.oldest().filter(|_| evicts && evicted < EVICTED_MAX);
            let Some(oldest) = oldest else { return false };
            evicted += 1;
            if self.meta(t, oldest).is_some_and(|meta| meta.has(DIRTY)) {
                self.lengths.own(2).fetch_add(1, Ordering::Relaxed);
            }
            let key = read(t, oldest).map(|pair| pair.key).unwrap_or_default();
            self.take_out(t, oldest, &key);
        }
        true
    }

    /// A pair as it stands in the table: the hash, the length of the key, key and value.
    pub(crate) fn bytes(&self, form: &[u8], pair: &Pair) -> Vec<u8> {
        // A key that is cut here is longer than an entry can be, and so refused.
        let key_len = (pair.key.len() as u16).to_le_bytes();
        [&self.hash(form)[..], &key_len, &pair.key, &pair.value].concat()
    }

    /// Adds an entry; false if there is no room.
    pub(crate) fn insert(
        &self,
        t: &mut Locked<'_, Expiry>,
        form: &[u8],
        bytes: &[u8],
        meta: Meta,
    ) -> bool {
        let Ok(entry) = t.insert(self.table.key(bytes), Expiry(meta.expires_ms)) else {
            return false;
        };
        self.set_change(entry, meta);
        if let Some(length) = self.length(form) {
            self.lengths.add(length);
        }
        true
    }

    /// Takes expired entries out, of the next ones in the table.
    fn drop_expired(&self, t: &mut Locked<'_, Expiry>, count: u32, now_ms: u64) {
        let used = t.used();
        for _ in 0..count.min(used) {
            let n = self.sweep.get();
            self.sweep.set(if n + 1 >= used { 0 } else { n + 1 });
            let Some(entry) = t.nth(n) else { continue };
            let is_useless = |meta: Meta| {
                is_over(meta.expires_ms, now_ms) || meta.has(TOMBSTONE) && !self.synced.get()
            };
            if self.meta(t, entry).is_some_and(is_useless)
                && let Some(pair) = read(t, entry)
            {
                self.take_out(t, entry, &pair.key);
            }
        }
    }

    /// Gives a key another time to go; false if there is no such key.
    pub fn set_expiry(&self, key: &[u8], expires_ms: u64) -> bool {
        let Some(form) = self.form(key) else { return false };
        let mut t = self.lock();
        let Some((entry, _)) = self.entry(&mut t, &form, base::time::unix_ms()) else {
            return false;
        };
        self.set_meta(&mut t, entry, self.own_change(expires_ms));
        t.touch(entry);
        true
    }

    /// Takes a key out; false if there is none.
    pub fn remove(&self, key: &[u8]) -> bool {
        self.take(key).is_some()
    }

    /// Takes a key out; its pair, if there was one.
    pub fn take(&self, key: &[u8]) -> Option<Pair> {
        let form = self.form(key)?;
        let mut t = self.lock();
        let (entry, pair) = self.entry(&mut t, &form, base::time::unix_ms())?;
        self.bury(&mut t, entry, &pair.key);
        Some(pair)
    }

    /// Takes an entry out, of which other servers are to hear.
    fn bury(&self, t: &mut Locked<'_, Expiry>, entry: Entry, key: &[u8]) {
        self.take_out(t, entry, key);
        let meta = self.own_change(0);
        if self.synced.get()
            && let Some(form) = self.form(key)
        {
            let meta = Meta { change: meta.change | TOMBSTONE, ..meta };
            // It is no longer than the entry that was there.
            self.insert(t, &form, &self.bytes(&form, &Pair::new(key, b"")), meta);
        }
    }

    /// The units of memory in use and in all; see [`Fill`].
    pub fn usage(&self) -> Fill {
        self.table.fill()
    }

    /// Takes entries out, at most `count` of them; false when none is left.
    pub fn clear_some(&self, count: usize) -> bool {
        let mut t = self.lock();
        let is_live = |t: &Locked<'_, Expiry>, entry: Entry| {
            self.meta(t, entry).is_some_and(|meta| !meta.has(TOMBSTONE))
        };
        let (mut next, mut left) = (t.oldest(), count);
        while let Some(entry) = next {
            next = t.newer(entry);
            if !is_live(&t, entry) {
                continue;
            }
            if left == 0 {
                return true;
            }
            left -= 1;
            let key = read(&t, entry).map(|pair| pair.key).unwrap_or_default();
            self.bury(&mut t, entry, &key);
        }
        self.changed();
        false
    }

    /// Whether no pair is left that has not expired.
    pub fn is_empty(&self) -> bool {
        let mut next = 0;
        loop {
            match self.some(&mut next, 256) {
                Some(pairs) if pairs.is_empty() => {}
                Some(_) => return false,
                None => return true,
            }
        }
    }

    /// The pairs in the next `count` places of the table from `next` on; `None` at the end.
    pub fn some(&self, next: &mut u32, count: u32) -> Option<Vec<Pair>> {
        let now_ms = base::time::unix_ms();
        let t = self.lock();
        let from = *next;
        if from >= t.used() {
            return None;
        }
        *next = from.saturating_add(count);
        let entries = (from..t.used().min(*next)).filter_map(|n| t.nth(n));
        let is_live =
            |entry: &Entry| self.meta(&t, *entry).is_some_and(|meta| !meta.has(TOMBSTONE));
        let entries = entries.filter(is_live);
        let pairs = entries.filter_map(|entry| read(&t, entry));
        Some(pairs.filter(|pair| !is_over(pair.expires_ms, now_ms)).collect())
    }

    /// The number of pairs in the next `count` places of the table, as [`Store::some`] has them.
    pub fn count_some(&self, next: &mut u32, count: u32) -> Option<usize> {
        let now_ms = base::time::unix_ms();
        let t = self.lock();
        let from = *next;
        if from >= t.used() {
            return None;
        }
        *next = from.saturating_add(count);
        let entries = (from..t.used().min(*next)).filter_map(|n| t.nth(n));
        let metas = entries.filter_map(|entry| self.meta(&t, entry));
        let is_live = |meta: &Meta| !meta.has(TOMBSTONE) && !is_over(meta.expires_ms, now_ms);
        Some(metas.filter(is_live).count())
    }
}

impl Pair {
    /// A pair that stays.
    pub fn new(key: &[u8], value: &[u8]) -> Pair {
        Pair { key: key.to_vec(), value: value.to_vec(), expires_ms: 0 }
    }

    /// Its value.
    pub fn into_value(self) -> Bytes {
        self.value.into()
    }
}

pub(crate) fn is_over(expires_ms: u64, now_ms: u64) -> bool {
    expires_ms != 0 && expires_ms <= now_ms
}

pub(crate) fn read(t: &Locked<'_, Expiry>, entry: Entry) -> Option<Pair> {
    let Expiry(expires_ms) = t.value(entry)?;
    let payload = t.payload(entry)?;
    let (key, value) = parts(&payload)?;
    Some(Pair { key: key.to_vec(), value: value.to_vec(), expires_ms })
}

/// The key and the value of what stands behind an entry's hash: see [`Store::bytes`].
pub(crate) fn parts(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = payload.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))
}

/// A network's form: its length and its address.
pub(crate) fn form_of(network: Cidr) -> Vec<u8> {
    let mut form = vec![network.bits()];
    match network.network() {
        IpAddr::V4(ip) => form.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => form.extend_from_slice(&ip.octets()),
    }
    form
}

/// The length that counts a network with no bits: those of IPv6 follow those of IPv4.
pub(crate) fn first_of(is_ipv4: bool) -> usize {
    if is_ipv4 { 0 } else { 64 }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
