//! The business of one request with a cache.

use std::rc::Rc;

use bytes::Bytes;
use event::pool::Pool;

use crate::instance::Cache;
use crate::key::{Hash, variant};
use crate::keys::{FAILED, Hold, NOT_STORED};
use crate::location::CacheConf;
use crate::purge_marks::Since;
use crate::rfc9111::Asked;
use crate::store::{Stored, invalidate};

/// A request's business with a cache, from the moment its key is known until its response comes
/// from there, or goes there, or passes it by.
pub struct Ticket {
    /// The cache that the request asks.
    pub cache: Rc<Cache>,
    /// The location's settings.
    pub conf: Rc<CacheConf>,
    /// The key of the request, before hashing.
    pub key: Bytes,
    /// The key's hash.
    pub main: Hash,
    /// The hash that was looked up last: the key's, or that of a variant of it.
    pub hash: Hash,
    /// The state of purges at the lookup.
    pub since: Since,
    /// The response may be kept, as far as is known.
    pub cacheable: bool,
    /// The cache was not asked (`*_cache_bypass`): the response says nothing about those that
    /// others get.
    pub bypass: bool,
    /// The right to fetch the key.
    pub hold: Option<Hold>,
    /// The kept response that is not fresh.
    pub stale: Option<Rc<Stored>>,
    /// The stale response may be served if the upstream fails, whatever the configuration says.
    pub stale_error: bool,
    /// The stale response must not be served, whatever the configuration says.
    pub strict: bool,
    /// The client's wishes, where RFC 9111 holds.
    pub asked: Asked,
    /// The family of the key's first variant, where there is one.
    pub family: Option<u64>,
    /// Fields of responses that are ignored: bits of `*_ignore_headers`.
    pub ignored: u64,
}

/// The name of an entry: its cache, and its key's hash.
#[derive(Clone)]
pub struct CacheEntry {
    cache: Rc<Cache>,
    hash: Hash,
}

impl CacheEntry {
    /// Invalidates the response: when this has ended no request uses it.
    pub async fn invalidate(self, pool: Option<Pool>) {
        invalidate(&self.cache, vec![self.hash], pool).await;
    }
}

impl Ticket {
    /// The entry that was looked up last.
    pub fn entry(&self) -> CacheEntry {
        CacheEntry { cache: self.cache.clone(), hash: self.hash }
    }

    /// Whether a variant of the key was looked up.
    pub fn is_secondary(&self) -> bool {
        self.hash != self.main
    }

    /// The hash of the variant of the key that a request with these fields asks for.
    pub fn variant<'a, I>(&self, vary: &[u8], fields: impl Fn() -> I) -> Hash
    where
        I: Iterator<Item = (&'a [u8], &'a [u8])>,
    {
        variant(&self.main, vary, self.conf.rfc9111, fields)
    }

    /// The response is not stored, and neither will the next ones be until then: requests for the
    /// key do not wait for one another (`*_cache_lock`).
    pub fn leave_unlocked(&mut self, until: i64) {
        if self.conf.lock && self.cacheable && !self.bypass {
            self.leave_error(NOT_STORED, until);
        }
    }

    /// Fetching the stale response anew failed, so that it is served. Until then, or until a fetch
    /// succeeds, it is served at once to all but one request at a time.
    pub fn leave_failed(&mut self, until: i64) {
        self.leave_error(FAILED, until);
    }

    /// The upstream answers again.
    pub fn leave_answered(&mut self) {
        self.leave_error(0, 0);
    }

    /// Leaves a status behind, which is answered instead of asking the upstream for some time.
    pub fn leave_error(&mut self, status: u16, until: i64) {
        match &self.hold {
            Some(hold) if *hold.hash() == self.hash => hold.leave_error(status, until),
            _ => self.cache.keys.leave_error(&self.hash, status, until),
        }
    }
}
