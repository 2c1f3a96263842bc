//! Random keys in memory that all workers share, replaced as they age.
//!
//! One key encrypts for as long as a session lasts and decrypts for as long again: no ticket is
//! older than that, so two keys are enough. The worker that first needs a key after its time
//! replaces it; the others see that the version of the shared rows has changed.
//!
//! ```text
//!              period             period
//!  key 1  ├── encrypts ──┼── decrypts ──┤
//!  key 2                 ├── encrypts ──┼── decrypts ──┤
//! ```

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::rand;
use shm::{Rows, ZoneState};
use zeroize::Zeroizing;

use super::key::{NAME_LEN, TicketKey};

/// A key that is from further in the future was made before the clock was set back.
const SKEW_S: u64 = 60;

/// Words of a row: when the key was made (0: there is none), its name, its secret.
const ROW_WORDS: usize = 8;
const NAME_AT: usize = 1;
const SECRET_AT: usize = NAME_AT + NAME_LEN / 8;
const SECRET_LEN: usize = 32;

/// The row whose first word is the number of the current key's row; the keys are in rows 0 and 1.
const STATE_ROW: usize = 2;

/// Random ticket keys of a configuration, in memory that the processes forked later share.
#[derive(Clone)]
pub struct SharedKeys(Arc<Shared>);

struct Shared {
    rows: Arc<Mutex<Rows>>,
    /// The longest timeout among the servers that use the keys, in seconds.
    period_s: AtomicU64,
    /// The keys as this process saw them last.
    seen: Mutex<Option<Arc<Pair>>>,
}

/// The keys at one time.
pub(super) struct Pair {
    version: u64,
    since: u64,
    pub(super) current: TicketKey,
    pub(super) previous: Option<TicketKey>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data is whole at any moment, also where a thread panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedKeys {
    /// Memory for keys, made before the fork; the keys are made when the first ticket is.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new() -> io::Result<SharedKeys> {
        let rows = Rows::shared((STATE_ROW + 1) * ROW_WORDS * 8, ROW_WORDS, 1)?;
        Ok(SharedKeys::over(Arc::new(Mutex::new(rows))))
    }

    /// The same keys for a configuration that takes the place of this one.
    pub fn carried_over(&self) -> SharedKeys {
        SharedKeys::over(self.0.rows.clone())
    }

    fn over(rows: Arc<Mutex<Rows>>) -> SharedKeys {
        let (period_s, seen) = (AtomicU64::new(0), Mutex::new(None));
        SharedKeys(Arc::new(Shared { rows, period_s, seen }))
    }

    /// Notes that a server with this timeout uses the keys.
    pub(super) fn serve(&self, timeout_s: u32) {
        self.0.period_s.fetch_max(timeout_s.into(), Ordering::Relaxed);
    }

    /// The keys at `now`, in seconds since 1970. `None` when the system has no random bytes.
    pub(super) fn at(&self, now: u64) -> Option<Arc<Pair>> {
        let rows = lock(&self.0.rows);
        let mut seen = lock(&self.0.seen);
        if let Some(pair) = &*seen
            && pair.version == rows.version()
            && !self.is_due(pair.since, now)
        {
            return Some(pair.clone());
        }
        *seen = self.renew(&rows, now).map(Arc::new);
        seen.clone()
    }

    fn is_due(&self, since: u64, now: u64) -> bool {
        let period_s = self.0.period_s.load(Ordering::Relaxed).max(1);
        now >= since.saturating_add(period_s) || since > now.saturating_add(SKEW_S)
    }

    /// Reads the keys, and replaces the current one if its time is over.
    #[cold]
    fn renew(&self, rows: &Rows, now: u64) -> Option<Pair> {
        let _lock = rows.lock();
        let state = &rows.row(STATE_ROW)[0];
        let current = (state.load(Ordering::Relaxed) & 1) as usize;
        let since = rows.row(current)[0].load(Ordering::Relaxed);
        if !self.is_due(since, now) {
            return read_pair(rows, current);
        }
        let other = 1 - current;
        write_key(rows, other, now)?;
        let period_s = self.0.period_s.load(Ordering::Relaxed);
        if since == 0 || now >= since.saturating_add(period_s.saturating_mul(2)) {
            // Its tickets have all expired: the secret has no further use.
            wipe(rows, current);
        }
        // Last: a process that dies before leaves the other key as it was to everyone.
        state.store(other as u64, Ordering::Relaxed);
        rows.changed();
        read_pair(rows, other)
    }
}

fn read_pair(rows: &Rows, current: usize) -> Option<Pair> {
    let (since, key) = read_key(rows, current)?;
    let previous = read_key(rows, 1 - current).map(|(_, key)| key);
    Some(Pair { version: rows.version(), since, current: key, previous })
}

fn read_key(rows: &Rows, row: usize) -> Option<(u64, TicketKey)> {
    let words = rows.row(row);
    let since = words[0].load(Ordering::Relaxed);
    if since == 0 {
        return None;
    }
    let mut bytes = Zeroizing::new([0; NAME_LEN + SECRET_LEN]);
    for (to, word) in bytes.chunks_exact_mut(8).zip(&words[NAME_AT..]) {
        to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    let (name, secret) = bytes.split_first_chunk()?;
    Some((since, TicketKey::derive(*name, secret)?))
}

/// Writes a new key. The word that says so is last: a process that dies before leaves no key.
fn write_key(rows: &Rows, row: usize, now: u64) -> Option<()> {
    let mut bytes = Zeroizing::new([0; NAME_LEN + SECRET_LEN]);
    rand::fill(&mut *bytes).ok()?;
    let words = rows.row(row);
    words[0].store(0, Ordering::Release);
    for (word, from) in words[NAME_AT..].iter().zip(bytes.chunks_exact(8)) {
        word.store(u64::from_le_bytes(*from.first_chunk()?), Ordering::Relaxed);
    }
    words[0].store(now.max(1), Ordering::Release);
    Some(())
}

fn wipe(rows: &Rows, row: usize) {
    rows.row(row)[..SECRET_AT + SECRET_LEN / 8].iter().for_each(|w| w.store(0, Ordering::Relaxed));
}

impl ZoneState for SharedKeys {
    fn died(&self, pid: u32, slot: usize) {
        lock(&self.0.rows).died(pid, slot, |_, _| {});
    }
}
