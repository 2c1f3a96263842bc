//! What one request has to do with a cache.

use std::rc::Rc;

use bytes::Bytes;

use super::conf::CacheConf;
use super::key::{Hash, variant};
use super::keys::Hold;
use super::marks::Since;
use super::rfc9111::Asked;
use super::store::Stored;
use super::zone::Cache;
use crate::request::Request;

/// `$upstream_cache_status`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(usize)]
pub(crate) enum Status {
    /// No cache is concerned.
    #[default]
    None,
    /// Nothing was kept.
    Miss,
    /// What is kept was not to be used.
    Bypass,
    /// What is kept is not fresh; the upstream is asked.
    Expired,
    /// What is kept is not fresh, and is served as asking for it failed, or will be done later.
    Stale,
    /// The same while another request asks for it.
    Updating,
    /// The upstream says that what is kept is still good.
    Revalidated,
    /// What is kept is fresh.
    Hit,
}

impl Status {
    /// Those that say something.
    pub const ALL: [Status; 7] = [
        Status::Miss,
        Status::Bypass,
        Status::Expired,
        Status::Stale,
        Status::Updating,
        Status::Revalidated,
        Status::Hit,
    ];

    /// The variable's value; `None` where it has none.
    pub fn text(self) -> Option<&'static str> {
        Some(match self {
            Status::None => return None,
            Status::Miss => "MISS",
            Status::Bypass => "BYPASS",
            Status::Expired => "EXPIRED",
            Status::Stale => "STALE",
            Status::Updating => "UPDATING",
            Status::Revalidated => "REVALIDATED",
            Status::Hit => "HIT",
        })
    }
}

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
    /// The hash of what was looked up last: the key's, or that of a variant of it.
    pub hash: Hash,
    /// What had been purged when it was looked up.
    pub since: Since,
    /// The response may be kept, as far as is known.
    pub cacheable: bool,
    /// The right to fetch it.
    pub hold: Option<Hold>,
    /// What is kept and not fresh.
    pub stale: Option<Rc<Stored>>,
    /// That may be served if asking fails, whatever the configuration says.
    pub stale_error: bool,
    /// It may not be, whatever the configuration says.
    pub strict: bool,
    /// What the client wants of a cache, where RFC 9111 holds.
    pub asked: Asked,
    /// The family of the key's first variant, where there is one.
    pub family: Option<u64>,
    /// Fields of responses that are not heeded: bits of `*_ignore_headers`.
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
