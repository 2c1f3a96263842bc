//! Sessions in shared memory: of several servers, and of all workers (`shared:NAME:SIZE`).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::log::Level;
use shm::{Locked, Record, Table, ZoneState};
use zeroize::Zeroizing;

use super::{KEY_LEN, SESSION_MAX};
use crate::tickets::SharedKeys;

/// When a session expires, in seconds since 1970. The session itself is the entry's payload.
#[derive(Clone, Copy)]
struct Expiry(u64);

impl Record for Expiry {
    const WORDS: usize = 1;
    const KEY_LEN: usize = KEY_LEN;

    fn to_words(self) -> [u64; 4] {
        [self.0, 0, 0, 0]
    }

    fn from_words(words: [u64; 4]) -> Expiry {
        Expiry(words[0])
    }
}

/// A zone of sessions, shared by the processes forked later.
#[derive(Clone)]
pub struct SharedSessions(Arc<Zone>);

struct Zone {
    name: Vec<u8>,
    /// The lock in shared memory knows processes apart, this one threads.
    table: Arc<Mutex<Table<Expiry>>>,
    /// The second, since 1970, in which a failure was logged last.
    logged: AtomicU64,
    ticket_keys: SharedKeys,
}

impl SharedSessions {
    /// An empty zone of that name and size, made before the fork.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(name: &[u8], bytes: usize) -> io::Result<SharedSessions> {
        Ok(SharedSessions(Arc::new(Zone {
            name: name.to_vec(),
            table: Arc::new(Mutex::new(Table::new(bytes)?)),
            logged: AtomicU64::new(0),
            ticket_keys: SharedKeys::new()?,
        })))
    }

    /// The same sessions and keys for a configuration that takes the place of this one.
    pub fn carried_over(&self) -> SharedSessions {
        SharedSessions(Arc::new(Zone {
            name: self.0.name.clone(),
            table: self.0.table.clone(),
            logged: AtomicU64::new(0),
            ticket_keys: self.0.ticket_keys.carried_over(),
        }))
    }

    /// Random keys for the tickets of servers that use the zone; they last as long as it does.
    pub fn ticket_keys(&self) -> &SharedKeys {
        &self.0.ticket_keys
    }

    /// The number of sessions in the zone, expired ones included.
    pub fn len(&self) -> usize {
        self.table().lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn table(&self) -> MutexGuard<'_, Table<Expiry>> {
        // A state that a panic left behind is repaired by the table's own lock.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, key: &[u8; KEY_LEN], session: &[u8], now: u64, expires: u64) -> bool {
        let len = KEY_LEN + session.len();
        let mut entry = Zeroizing::new(Vec::with_capacity(len));
        entry.extend_from_slice(key);
        entry.extend_from_slice(session);
        let table = self.table();
        let fits = session.len() <= SESSION_MAX && table.fits(len);
        let kept = fits && insert(&table, &entry, now, expires);
        drop(table);
        if !kept {
            self.log_failure(now);
        }
        kept
    }

    /// At most once a second, as a client may cause it.
    #[cold]
    fn log_failure(&self, now: u64) {
        if self.0.logged.swap(now, Ordering::Relaxed) != now {
            let (log, name) = (base::log::default(), base::log::lossy(&self.0.name));
            let place = format_args!("in SSL session shared cache \"{name}\"");
            base::log!(log, Level::Warn, None, "could not allocate new session {place}");
        }
    }

    pub(super) fn get(&self, key: &[u8; KEY_LEN], now: u64) -> Option<Vec<u8>> {
        self.find(key, now, false)
    }

    pub(super) fn take(&self, key: &[u8; KEY_LEN], now: u64) -> Option<Vec<u8>> {
        self.find(key, now, true)
    }

    fn find(&self, key: &[u8; KEY_LEN], now: u64, once: bool) -> Option<Vec<u8>> {
        let table = self.table();
        let key = table.key(key);
        let mut t = table.lock();
        let entry = t.find(key)?;
        let Expiry(expires) = t.value(entry)?;
        let session = if expires > now { t.payload(entry) } else { None };
        if once || session.is_none() {
            t.remove(entry);
        } else {
            t.touch(entry);
        }
        session
    }
}

/// Inserts an entry that an empty table has room for.
fn insert(table: &Table<Expiry>, entry: &[u8], now: u64, expires: u64) -> bool {
    let key = table.key(entry);
    let mut t = table.lock();
    if let Some(old) = t.find(key) {
        t.remove(old);
    }
    // Two for one: expired sessions do not pile up, and no insertion takes long.
    (0..2).for_each(|_| remove_oldest_if(&mut t, |Expiry(at)| at <= now));
    while t.insert(key, Expiry(expires)).is_err() {
        if t.is_empty() {
            return false;
        }
        remove_oldest_if(&mut t, |_| true);
    }
    true
}

fn remove_oldest_if(t: &mut Locked<'_, Expiry>, wanted: impl Fn(Expiry) -> bool) {
    if let Some(oldest) = t.oldest()
        && t.value(oldest).is_none_or(wanted)
    {
        t.remove(oldest);
    }
}

impl ZoneState for SharedSessions {
    fn died(&self, pid: u32, slot: usize) {
        self.table().free_of(pid);
        self.0.ticket_keys.died(pid, slot);
    }

    fn fill(&self) -> Option<shm::Fill> {
        Some(self.table().fill())
    }
}
