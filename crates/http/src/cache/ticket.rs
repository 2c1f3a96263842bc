//! The business of one request with a cache.

use std::rc::Rc;

use bytes::Bytes;

use cache::rfc9111::Asked;
use cache::{Cache, Hash, Hold, Since, Stored, variant};

use super::conf::CacheConf;
use crate::request::Request;

/// A request's business with a cache, from the moment its key is known until its response comes
/// from there, or goes there, or passes it by.
pub(crate) struct Ticket {
    /// The cache.
    pub cache: Rc<Cache>,
    /// The location's settings.
    pub conf: Rc<CacheConf>,
    /// The key.
    pub key: Bytes,
    /// Its hash.
    pub main: Hash,
    /// The hash that was looked up last: the key's, or that of a variant of it.
    pub hash: Hash,
    /// The state of purges when it was looked up.
    pub since: Since,
    /// The response may be kept, as far as is known.
    pub cacheable: bool,
    /// The right to fetch it.
    pub hold: Option<Hold>,
    /// The kept response that is not fresh.
    pub stale: Option<Rc<Stored>>,
    /// That may be served if asking fails, whatever the configuration says.
    pub stale_error: bool,
    /// It may not be, whatever the configuration says.
    pub strict: bool,
    /// The client's wishes, where RFC 9111 holds.
    pub asked: Asked,
    /// The family of the key's first variant, where there is one.
    pub family: Option<u64>,
    /// Fields of responses that are ignored: bits of `*_ignore_headers`.
    pub ignored: u64,
}

impl Ticket {
    /// Whether a variant of the key was looked up.
    pub fn is_secondary(&self) -> bool {
        self.hash != self.main
    }

    /// The hash of the variant of the key that a request asks for.
    pub fn variant(&self, r: &Request, vary: &[u8]) -> Hash {
        variant(&self.main, vary, self.conf.rfc9111, || r.headers())
    }

    /// Leaves a status behind, which is answered instead of asking the upstream for some time.
    pub fn leave_error(&mut self, status: u16, until: i64) {
        match &self.hold {
            Some(hold) if *hold.hash() == self.hash => hold.leave_error(status, until),
            _ => self.cache.keys.leave_error(&self.hash, status, until),
        }
    }
}
