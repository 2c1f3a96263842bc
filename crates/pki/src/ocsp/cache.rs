//! Statuses of client certificates that all workers share (`ssl_ocsp_cache`).

use std::io;

use shm::{Record, Table};

use super::{Answer, CacheKey, CertStatus};

/// The time for which an answer without an end is kept, seconds. nginx's value.
const KEEP: i64 = 3600;

/// A status and its end, seconds since 1970.
#[derive(Clone, Copy)]
struct Kept {
    status: CertStatus,
    until: i64,
}

/// One word: a process that dies never leaves the status of one answer with the end of another.
impl Record for Kept {
    const WORDS: usize = 1;

    fn to_words(self) -> [u64; 4] {
        let status = match self.status {
            CertStatus::Good => 1,
            CertStatus::Revoked => 2,
            CertStatus::Unknown => 0,
        };
        [(self.until as u64) << 2 | status, 0, 0, 0]
    }

    fn from_words(words: [u64; 4]) -> Kept {
        let status = match words[0] & 3 {
            1 => CertStatus::Good,
            2 => CertStatus::Revoked,
            _ => CertStatus::Unknown,
        };
        Kept { status, until: (words[0] >> 2) as i64 }
    }
}

/// The statuses, by certificate. Made before the workers are forked.
pub struct StatusCache(Table<Kept>);

impl StatusCache {
    /// A cache in shared memory of `bytes`.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(bytes: usize) -> io::Result<StatusCache> {
        Table::new(bytes).map(StatusCache)
    }

    /// Length of the memory in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Takes the lock away from a dead process.
    pub fn free_of(&self, dead: u32) {
        self.0.free_of(dead);
    }

    /// The status, if it is known now.
    pub fn find(&self, key: &CacheKey, now: i64) -> Option<CertStatus> {
        let key = self.0.key(key);
        let mut table = self.0.lock();
        let entry = table.find(key)?;
        let kept = table.value(entry)?;
        if kept.until > now {
            return Some(kept.status);
        }
        table.remove(entry);
        None
    }

    /// Keeps an answer; the one that came first goes where there is no room.
    pub fn keep(&self, key: &CacheKey, answer: &Answer, now: i64) {
        let until = answer.next_update.unwrap_or(now.saturating_add(KEEP));
        if until <= now {
            return;
        }
        let kept = Kept { status: answer.status, until };
        let key = self.0.key(key);
        let mut table = self.0.lock();
        if let Some(entry) = table.find(key) {
            table.set(entry, kept);
            return;
        }
        while table.insert(key, kept).is_err() {
            let Some(oldest) = table.oldest() else { return };
            table.remove(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> CacheKey {
        let mut key = [7; 60];
        key[40..44].copy_from_slice(&n.to_be_bytes());
        key
    }

    fn answer(status: CertStatus, next_update: Option<i64>) -> Answer {
        Answer { status, next_update }
    }

    #[test]
    fn answers_are_kept_until_there_is_a_newer_one() {
        let cache = StatusCache::new(64 << 10).unwrap();
        assert_eq!(cache.find(&key(1), 1_000), None);
        for (n, status) in
            [(1, CertStatus::Good), (2, CertStatus::Revoked), (3, CertStatus::Unknown)]
        {
            cache.keep(&key(n), &answer(status, Some(2_000)), 1_000);
            assert_eq!(cache.find(&key(n), 1_999), Some(status));
        }
        assert_eq!(cache.find(&key(1), 2_000), None);
        assert_eq!(cache.find(&key(1), 1_000), None, "it has been removed");
        cache.keep(&key(2), &answer(CertStatus::Good, None), 1_000);
        assert_eq!(cache.find(&key(2), 4_599), Some(CertStatus::Good));
        assert_eq!(cache.find(&key(2), 4_600), None);
        // An answer of which only the skew of clocks makes one.
        cache.keep(&key(4), &answer(CertStatus::Good, Some(900)), 1_000);
        assert_eq!(cache.find(&key(4), 800), None);
    }

    #[test]
    fn the_oldest_answer_makes_room() {
        let cache = StatusCache::new(4 << 10).unwrap();
        for n in 0..1_000 {
            cache.keep(&key(n), &answer(CertStatus::Good, None), 1_000);
        }
        assert_eq!(cache.find(&key(999), 1_001), Some(CertStatus::Good));
        assert_eq!(cache.find(&key(0), 1_001), None);
        let kept = (0..1_000).filter(|n| cache.find(&key(*n), 1_001).is_some()).count();
        assert!((10..100).contains(&kept), "{kept}");
    }
}
