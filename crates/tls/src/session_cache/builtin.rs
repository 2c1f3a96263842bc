//! Sessions in one worker's own memory (`builtin`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use mem::Lru;
use zeroize::Zeroizing;

use super::{KEY_LEN, SESSION_MAX};

struct Session {
    expires: u64,
    content: Zeroizing<Vec<u8>>,
}

/// A bounded number of sessions; the least recently used makes room.
pub(super) struct BuiltinSessions {
    /// Each process that is forked later has a copy of its own.
    sessions: Mutex<Lru<Session>>,
    max: usize,
}

impl BuiltinSessions {
    pub(super) fn new(max: usize) -> BuiltinSessions {
        BuiltinSessions { sessions: Mutex::default(), max }
    }

    fn lock(&self) -> MutexGuard<'_, Lru<Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, key: &[u8; KEY_LEN], session: &[u8], expires: u64) -> bool {
        if session.len() > SESSION_MAX || self.max == 0 {
            return false;
        }
        let mut sessions = self.lock();
        let content = Zeroizing::new(session.to_vec());
        if sessions.insert(key, Session { expires, content }).is_none() && sessions.len() > self.max
        {
            sessions.pop_oldest();
        }
        true
    }

    pub(super) fn get(&self, key: &[u8; KEY_LEN], now: u64) -> Option<Vec<u8>> {
        let mut sessions = self.lock();
        let session = sessions.get(key)?;
        if session.expires > now {
            return Some(session.content.to_vec());
        }
        sessions.remove(key);
        None
    }

    pub(super) fn take(&self, key: &[u8; KEY_LEN], now: u64) -> Option<Vec<u8>> {
        let session = self.lock().remove(key)?;
        (session.expires > now).then(|| session.content.to_vec())
    }
}
