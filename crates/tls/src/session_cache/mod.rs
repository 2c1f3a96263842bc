//! Sessions that the server keeps (`ssl_session_cache`), for clients without tickets and for TLS
//! 1.3 where tickets are off.

mod builtin;
mod setting;
mod shared;

pub use setting::{BadWord, Builtin, CacheSetting, CacheUse, SharedZone};
pub use shared::SharedSessions;

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::{digest, rand};
use rustls::server::{ProducesTickets, StoresServerSessions};

use self::builtin::BuiltinSessions;
use crate::SessionContext;
use crate::tickets::announced;

/// The longest session in bytes that is kept. Client certificates are part of it.
const SESSION_MAX: usize = 16 << 10;

/// Length of the random id of a session of TLS 1.3.
const ID_LEN: usize = 32;

/// Length of a session's key.
const KEY_LEN: usize = 16;

/// The key of a session: a part of a hash over the context and the id. The id is the peer's, of any
/// length; to find another's key, it would have to find the other's id, which is random and secret.
fn key_of(context: &SessionContext, id: &[u8]) -> [u8; KEY_LEN] {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(context.bytes());
    hash.update(id);
    let mut key = [0; KEY_LEN];
    key.copy_from_slice(&hash.finish().as_ref()[..KEY_LEN]);
    key
}

/// The session cache of one server's configuration.
#[derive(Clone)]
pub struct SessionCache(Arc<Inner>);

struct Inner {
    place: Place,
    context: SessionContext,
    timeout_s: u32,
}

enum Place {
    /// `off`: clients learn that there is no cache.
    Off,
    /// `none`: clients get session ids, and nothing is kept.
    None,
    Builtin(BuiltinSessions),
    Shared(SharedSessions),
}

impl SessionCache {
    fn new(place: Place, context: SessionContext, timeout_s: u32) -> SessionCache {
        SessionCache(Arc::new(Inner { place, context, timeout_s }))
    }

    /// `off`: sessions are not kept, and clients are told so.
    pub fn off() -> SessionCache {
        SessionCache::new(Place::Off, SessionContext::new([]), 0)
    }

    /// `none`: sessions are not kept, and clients are not told. Some old clients fail when told.
    pub fn none() -> SessionCache {
        SessionCache::new(Place::None, SessionContext::new([]), 0)
    }

    /// `builtin`: at most `sessions` of one worker's own, each for `timeout_s` seconds
    /// (`ssl_session_timeout`).
    pub fn builtin(sessions: usize, context: SessionContext, timeout_s: u32) -> SessionCache {
        SessionCache::new(Place::Builtin(BuiltinSessions::new(sessions)), context, timeout_s)
    }

    /// `shared`: in a zone, each for `timeout_s` seconds (`ssl_session_timeout`). Servers may share
    /// the zone; they share no session unless their contexts are the same.
    pub fn shared(zone: &SharedSessions, context: SessionContext, timeout_s: u32) -> SessionCache {
        SessionCache::new(Place::Shared(zone.clone()), context, timeout_s)
    }

    /// Keeps a session under an id at `now`, in seconds since 1970. True if it is kept.
    pub fn put(&self, now: u64, id: &[u8], session: &[u8]) -> bool {
        let Inner { place, context, timeout_s } = &*self.0;
        let (key, expires) = (key_of(context, id), now.saturating_add((*timeout_s).into()));
        match place {
            Place::Off | Place::None => false,
            Place::Builtin(sessions) => sessions.put(&key, session, expires),
            Place::Shared(sessions) => sessions.put(&key, session, now, expires),
        }
    }

    /// The session of an id, unless it has expired at `now`, in seconds since 1970.
    pub fn get(&self, now: u64, id: &[u8]) -> Option<Vec<u8>> {
        let key = key_of(&self.0.context, id);
        match &self.0.place {
            Place::Off | Place::None => None,
            Place::Builtin(sessions) => sessions.get(&key, now),
            Place::Shared(sessions) => sessions.get(&key, now),
        }
    }

    /// As [`SessionCache::get`], and removes it: of all workers that ask, one gets it.
    pub fn take(&self, now: u64, id: &[u8]) -> Option<Vec<u8>> {
        let key = key_of(&self.0.context, id);
        match &self.0.place {
            Place::Off | Place::None => None,
            Place::Builtin(sessions) => sessions.take(&key, now),
            Place::Shared(sessions) => sessions.take(&key, now),
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn StoresServerSessions> {
        Arc::new(self.clone())
    }

    /// The same for TLS 1.3, without early data: `None` where nothing is kept.
    pub(crate) fn ids(&self) -> Option<Arc<dyn ProducesTickets>> {
        match self.0.place {
            Place::Off | Place::None => None,
            Place::Builtin(_) | Place::Shared(_) => Some(Arc::new(Ids(self.clone()))),
        }
    }
}

/// Sessions of TLS 1.3 by ids that are tickets to the library: it announces that sessions of its
/// own store last for a day.
#[derive(Debug)]
struct Ids(SessionCache);

impl ProducesTickets for Ids {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        announced(self.0.0.timeout_s)
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        let mut id = [0; ID_LEN];
        rand::fill(&mut id).ok()?;
        self.0.put(crate::unix_secs(), &id, session).then(|| id.to_vec())
    }

    /// Once, as the library takes sessions from its store.
    fn decrypt(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.0.take(crate::unix_secs(), id)
    }
}

impl StoresServerSessions for SessionCache {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let value = zeroize::Zeroizing::new(value);
        self.put(crate::unix_secs(), &key, &value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get(crate::unix_secs(), key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.take(crate::unix_secs(), key)
    }

    fn can_cache(&self) -> bool {
        !matches!(self.0.place, Place::Off)
    }
}

impl fmt::Debug for SessionCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { place, context, timeout_s } = &*self.0;
        let place = match place {
            Place::Off => "off",
            Place::None => "none",
            Place::Builtin(_) => "builtin",
            Place::Shared(_) => "shared",
        };
        write!(f, "SessionCache {{ {place}, {context:?}, timeout_s: {timeout_s} }}")
    }
}

#[cfg(test)]
mod tests;
