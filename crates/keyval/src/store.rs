//! The memory of a table.
//!
//! An entry is found by a hash of 128 bits, whose seed no client knows; behind it lie the key and
//! the value. Networks and prefixes are found by their hashes, too: one look for each length that
//! occurs in the table, the longest first.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use net::Cidr;
use shm::{Entry, Fill, KEY_MAX, Locked, Record, Table, ZoneState};

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

/// The time at which an entry goes, milliseconds since 1970; 0 for never.
#[derive(Clone, Copy, Debug)]
struct Expiry(u64);

/// The length of the hash that entries are found by.
const HASH: usize = 16;

impl Record for Expiry {
    const WORDS: usize = 1;
    const KEY_LEN: usize = HASH;

    fn to_words(self) -> [u64; 4] {
        [self.0, 0, 0, 0]
    }

    fn from_words([expiry, ..]: [u64; 4]) -> Expiry {
        Expiry(expiry)
    }
}

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

/// Entries that make room for one.
const EVICTED_MAX: usize = 1024;

/// A table in shared memory.
pub struct Store {
    /// How keys are compared.
    pub kind: Kind,
    table: Table<Expiry>,
    lengths: Lengths,
    hashers: [RandomState; 2],
    /// Where the sweep for expired entries goes on, in this process.
    sweep: Cell<u32>,
    /// The state file of the latest configuration.
    pub(crate) state: RefCell<Option<Rc<StateFile>>>,
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
            table: Table::new(bytes)?,
            lengths: Lengths::new()?,
            hashers: [RandomState::new(), RandomState::new()],
            sweep: Cell::new(0),
            state: RefCell::default(),
        })
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

    fn changed(&self) {
        self.lengths.own(0).fetch_add(1, Ordering::Release);
    }

    /// Takes the lock. If its owner died, the counts of lengths may be wrong.
    fn lock(&self) -> Locked<'_, Expiry> {
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
    fn form<'k>(&self, key: &'k [u8]) -> Option<Cow<'k, [u8]>> {
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

    fn hash(&self, form: &[u8]) -> [u8; HASH] {
        let [a, b] = [0, 1].map(|i: usize| self.hashers[i].hash_one(form).to_le_bytes());
        let mut hash = [0; HASH];
        hash[..8].copy_from_slice(&a);
        hash[8..].copy_from_slice(&b);
        hash
    }

    /// The entry of a key, if it is there and has not expired.
    fn entry(&self, t: &mut Locked<'_, Expiry>, form: &[u8], now_ms: u64) -> Option<(Entry, Pair)> {
        let entry = t.find(self.table.key(&self.hash(form)))?;
        let pair = read(t, entry)?;
        if is_over(pair.expires_ms, now_ms) {
            self.take_out(t, entry, &pair.key);
            return None;
        }
        (self.form(&pair.key)? == form).then_some((entry, pair))
    }

    fn take_out(&self, t: &mut Locked<'_, Expiry>, entry: Entry, key: &[u8]) {
        t.remove(entry);
        if let Some(length) = self.form(key).and_then(|form| self.length(&form)) {
            self.lengths.sub(length);
        }
    }

    /// The pair whose key matches a text.
    pub fn find(&self, text: &[u8]) -> Option<Pair> {
        let now_ms = base::time::unix_ms();
        match self.kind {
            Kind::Text => self.get(text),
            Kind::Prefix => {
                let mut t = self.lock();
                let mut lengths = self.lengths.within(0, text.len());
                let found = lengths.find_map(|length| self.entry(&mut t, &text[..length], now_ms));
                Some(found?.1)
            }
            Kind::Ip => {
                let (network, _) = Cidr::parse(text)?;
                let first = first_of(network.network().is_ipv4());
                let mut t = self.lock();
                let mut lengths = self.lengths.within(first, first + usize::from(network.bits()));
                let found = lengths.find_map(|length| {
                    let around = Cidr::new(network.network(), (length - first) as u8)?;
                    self.entry(&mut t, &form_of(around), now_ms)
                });
                Some(found?.1)
            }
        }
    }

    /// The pair of exactly this key.
    pub fn get(&self, key: &[u8]) -> Option<Pair> {
        let form = self.form(key)?;
        Some(self.entry(&mut self.lock(), &form, base::time::unix_ms())?.1)
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
        let before = self.entry(&mut t, &form, now_ms);
        let pair = change(before.as_ref().map(|(_, pair)| pair))?;
        let bytes = self.bytes(&form, &pair);
        if bytes.len() > KEY_MAX || !self.table.fits(bytes.len()) {
            return Err(Refused::TooLong);
        }
        if let Some((entry, pair)) = &before {
            self.take_out(&mut t, *entry, &pair.key);
        }
        let mut evicted = 0;
        while !self.insert(&mut t, &form, &bytes, pair.expires_ms) {
            if evicted == 0 {
                self.drop_expired(&mut t, SWEEP_FULL, now_ms);
                if self.insert(&mut t, &form, &bytes, pair.expires_ms) {
                    break;
                }
            }
            let oldest = t.oldest().filter(|_| evicts && evicted < EVICTED_MAX);
            let Some(oldest) = oldest else {
                // The old value stays; its room has not been given away.
                if let Some((_, old)) = before {
                    // The same key, maybe written in another way.
                    self.insert(&mut t, &form, &self.bytes(&form, &old), old.expires_ms);
                }
                return Err(Refused::Full);
            };
            evicted += 1;
            let key = read(&t, oldest).map(|pair| pair.key).unwrap_or_default();
            self.take_out(&mut t, oldest, &key);
        }
        self.changed();
        Ok(())
    }

    /// A pair as it stands in the table: the hash, the length of the key, key and value.
    fn bytes(&self, form: &[u8], pair: &Pair) -> Vec<u8> {
        // A key that is cut here is longer than an entry can be, and so refused.
        let key_len = (pair.key.len() as u16).to_le_bytes();
        [&self.hash(form)[..], &key_len, &pair.key, &pair.value].concat()
    }

    /// Adds an entry; false if there is no room.
    fn insert(
        &self,
        t: &mut Locked<'_, Expiry>,
        form: &[u8],
        bytes: &[u8],
        expires_ms: u64,
    ) -> bool {
        if t.insert(self.table.key(bytes), Expiry(expires_ms)).is_err() {
            return false;
        }
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
            if t.value(entry).is_some_and(|expiry| is_over(expiry.0, now_ms))
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
        t.set(entry, Expiry(expires_ms));
        self.changed();
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
        self.take_out(&mut t, entry, &pair.key);
        self.changed();
        Some(pair)
    }

    /// The units of memory in use and in all; see [`Fill`].
    pub fn usage(&self) -> Fill {
        self.table.fill()
    }

    /// Takes entries out, at most `count` of them; false when none is left.
    pub fn clear_some(&self, count: usize) -> bool {
        let mut t = self.lock();
        for _ in 0..count {
            let Some(oldest) = t.oldest() else { break };
            let key = read(&t, oldest).map(|pair| pair.key).unwrap_or_default();
            self.take_out(&mut t, oldest, &key);
        }
        self.changed();
        !t.is_empty()
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
        let expiries = entries.filter_map(|entry| Some(t.value(entry)?.0));
        Some(expiries.filter(|expires_ms| !is_over(*expires_ms, now_ms)).count())
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

fn is_over(expires_ms: u64, now_ms: u64) -> bool {
    expires_ms != 0 && expires_ms <= now_ms
}

fn read(t: &Locked<'_, Expiry>, entry: Entry) -> Option<Pair> {
    let expires_ms = t.value(entry)?.0;
    let mut bytes = t.payload(entry)?;
    let len = usize::from(u16::from_le_bytes(*bytes.first_chunk()?));
    let value = (bytes.len() >= 2 + len).then(|| bytes.split_off(2 + len))?;
    bytes.drain(..2);
    Some(Pair { key: bytes, value, expires_ms })
}

/// A network's form: its length and its address.
fn form_of(network: Cidr) -> Vec<u8> {
    let mut form = vec![network.bits()];
    match network.network() {
        IpAddr::V4(ip) => form.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => form.extend_from_slice(&ip.octets()),
    }
    form
}

/// The length that counts a network with no bits: those of IPv6 follow those of IPv4.
fn first_of(is_ipv4: bool) -> usize {
    if is_ipv4 { 0 } else { 64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(kind: Kind) -> Store {
        Store::new(kind, 256 << 10).unwrap()
    }

    fn set(store: &Store, key: &str, value: &str) -> Result<(), Refused> {
        store.put(Change::Set, false, &Pair::new(key.as_bytes(), value.as_bytes()))
    }

    fn found(store: &Store, text: &str) -> Option<String> {
        store.find(text.as_bytes()).map(|pair| String::from_utf8(pair.value).unwrap())
    }

    #[test]
    fn texts_are_found_exactly() {
        let store = store(Kind::Text);
        assert!(store.is_empty() && found(&store, "a").is_none());
        set(&store, "a", "1").unwrap();
        set(&store, "", "empty").unwrap();
        set(&store, "a", &"long".repeat(1000)).unwrap();
        let add = |key: &[u8]| store.put(Change::Add, false, &Pair::new(key, b"2"));
        assert_eq!((add(b"a"), add(b"b")), (Err(Refused::Exists), Ok(())));
        assert_eq!(found(&store, "a"), Some("long".repeat(1000)));
        assert_eq!(
            (found(&store, ""), found(&store, "b")),
            (Some("empty".into()), Some("2".into()))
        );
        assert_eq!(found(&store, "ab"), None);
        let version = store.version();
        assert!(store.remove(b"a") && !store.remove(b"a"));
        assert!(store.version() > version && found(&store, "a").is_none());
        assert!(!store.is_empty() && store.clear_some(1) && !store.clear_some(9));
        assert!(store.is_empty());
        assert_eq!(set(&store, "k", &"x".repeat(70_000)), Err(Refused::TooLong));
    }

    #[test]
    fn the_longest_network_is_found() {
        let store = store(Kind::Ip);
        for (key, value) in [
            ("10.0.0.0/8", "8"),
            ("10.1.0.0/16", "16"),
            ("10.1.2.3", "host"),
            ("0.0.0.0/0", "any"),
            ("2001:db8::/32", "six"),
            ("2001:db8::1", "one"),
        ] {
            set(&store, key, value).unwrap();
        }
        for (text, value) in [
            ("10.1.2.3", "host"),
            ("10.1.2.4", "16"),
            ("10.2.0.0", "8"),
            ("10.1.0.0/12", "8"),
            ("11.0.0.1", "any"),
            ("2001:db8::1", "one"),
            ("2001:DB8:0::2", "six"),
        ] {
            assert_eq!(found(&store, text).as_deref(), Some(value), "{text}");
        }
        assert_eq!((found(&store, "2001:db9::1"), found(&store, "x")), (None, None));
        assert_eq!(set(&store, "10.0.0.0/33", "x"), Err(Refused::BadKey));
        // Another way to write a network that is there.
        set(&store, "10.1.7.9/16", "new").unwrap();
        assert_eq!(found(&store, "10.1.2.4").as_deref(), Some("new"));
        assert!(store.remove(b"10.1.0.0/255.255.0.0") && store.remove(b"0.0.0.0/0"));
        assert_eq!(found(&store, "10.1.2.4").as_deref(), Some("8"));
        assert_eq!(found(&store, "11.0.0.1"), None);
    }

    #[test]
    fn the_longest_prefix_is_found() {
        let store = store(Kind::Prefix);
        for key in ["/", "/img/", "/img/big"] {
            set(&store, key, key).unwrap();
        }
        for (text, key) in
            [("/img/bigger", "/img/big"), ("/img/x", "/img/"), ("/img", "/"), ("/", "/")]
        {
            assert_eq!(found(&store, text).as_deref(), Some(key), "{text}");
        }
        assert_eq!(found(&store, "img"), None);
        set(&store, "", "all").unwrap();
        assert_eq!(found(&store, "img").as_deref(), Some("all"));
        assert_eq!(set(&store, &"x".repeat(5000), ""), Err(Refused::BadKey));
    }

    #[test]
    fn entries_expire() {
        base::time::pin(1000, 1_000_000);
        base::time::update();
        let store = store(Kind::Prefix);
        let put = |key: &[u8], expires_ms| {
            store.put(Change::Set, false, &Pair { expires_ms, ..Pair::new(key, b"v") }).unwrap();
        };
        put(b"a", 1_000_500);
        put(b"b", 1_000_000);
        assert!(store.get(b"a").is_some() && store.get(b"b").is_none());
        assert!(store.set_expiry(b"a", 1_002_000) && !store.set_expiry(b"b", 1));
        base::time::pin(1000, 1_001_999);
        base::time::update();
        assert!(store.find(b"abc").is_some());
        base::time::pin(1000, 1_002_000);
        base::time::update();
        assert!(store.is_empty() && store.find(b"abc").is_none());
    }

    #[test]
    fn a_full_table_refuses_or_evicts_the_oldest() {
        let store = Store::new(Kind::Text, 64 << 10).unwrap();
        let value = "v".repeat(1000);
        let mut n = 0;
        while set(&store, &format!("k{n}"), &value).is_ok() {
            n += 1;
        }
        assert!(n > 20, "{n}");
        // A value that is replaced by one for which there is no room stays.
        assert_eq!(set(&store, "k0", &"w".repeat(9000)), Err(Refused::Full));
        assert_eq!(found(&store, "k0").as_deref(), Some(&*value));
        let pair = Pair::new(b"new", value.as_bytes());
        assert_eq!(store.put(Change::Set, false, &pair), Err(Refused::Full));
        assert_eq!(store.put(Change::Set, true, &pair), Ok(()));
        assert_eq!(found(&store, "new").as_deref(), Some(&*value));
        assert!(found(&store, "k1").is_none() && found(&store, "k2").is_some());
    }

    #[test]
    fn expired_entries_make_room() {
        base::time::pin(1000, 1_000_000);
        base::time::update();
        let store = Store::new(Kind::Text, 64 << 10).unwrap();
        let value = vec![b'v'; 1000];
        let put = |n: usize, expires_ms| {
            let key = format!("k{n}").into_bytes();
            store.put(Change::Set, false, &Pair { key, value: value.clone(), expires_ms })
        };
        let count = (0..).take_while(|n| put(*n, 1_000_100).is_ok()).count();
        base::time::pin(1000, 1_000_100);
        base::time::update();
        assert!((0..count).all(|n| put(1000 + n, 0).is_ok()));
    }

    #[test]
    fn pages_have_every_pair_once() {
        let store = store(Kind::Text);
        for n in 0..100 {
            set(&store, &format!("k{n}"), &"v".repeat(n)).unwrap();
        }
        let (mut next, mut keys) = (0, Vec::new());
        while let Some(pairs) = store.some(&mut next, 7) {
            keys.extend(pairs.into_iter().map(|pair| pair.key));
        }
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 100);
    }
}
