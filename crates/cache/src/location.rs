//! The settings of a location with a cache.

use std::rc::Rc;

use conf::template::Template;
use http_wire::h1::Method;

use crate::instance::Cache;

/// Methods whose responses may be kept: bits of `*_cache_methods`.
pub mod methods {
    /// Responses to GET are kept.
    pub const GET: u64 = 1 << 1;
    /// Responses to HEAD are kept.
    pub const HEAD: u64 = 1 << 2;
    /// Responses to POST are kept.
    pub const POST: u64 = 1 << 3;
    /// The words of the directive.
    pub const WORDS: &[(&str, u64)] = &[("GET", GET), ("HEAD", HEAD), ("POST", POST)];
}

/// The settings of a location with a cache.
pub struct CacheConf {
    /// The cache that `*_cache` names, or `off`.
    pub chosen: LocationCache,
    /// `*_cache_key`; `None`: the protocol's own.
    pub key: Option<Template>,
    /// `*_cache_methods`: bits of [`methods`].
    pub methods: u64,
    /// `*_cache_min_uses`
    pub min_uses: u16,
    /// `*_cache_valid`: statuses, 0 for any, with seconds.
    pub valid: Vec<(u16, u64)>,
    /// `*_cache_bypass`
    pub bypass: Vec<Template>,
    /// Values of `*_no_cache`: a response is not kept if one is neither empty nor "0".
    pub no_cache: Vec<Template>,
    /// `*_cache_purge`
    pub purge: Vec<Template>,
    /// `*_cache_lock`
    pub lock: bool,
    /// `*_cache_lock_timeout`, milliseconds.
    pub lock_timeout: u64,
    /// `*_cache_lock_age`, milliseconds.
    pub lock_age: u64,
    /// `*_cache_use_stale`: the conditions of `*_next_upstream`, as bits.
    pub use_stale: u64,
    /// `*_cache_background_update`
    pub background_update: bool,
    /// Stale responses are asked for with their validators.
    pub revalidate: bool,
    /// `*_cache_convert_head`
    pub convert_head: bool,
    /// `*_cache_max_range_offset`, bytes.
    pub max_range_offset: Option<u64>,
    /// RFC 9111 decides.
    pub rfc9111: bool,
}

/// The cache of a location.
pub enum LocationCache {
    /// The one that the configuration names.
    Fixed(Rc<Cache>),
    /// The one whose name variables give with each request.
    Template {
        /// The name.
        name: Template,
        /// The caches that it may be.
        all: Vec<Rc<Cache>>,
    },
}

impl CacheConf {
    /// The lifetime of a response of that status without one in its fields, seconds; 0 is none.
    pub fn valid_for(&self, status: u16) -> u64 {
        let found = self.valid.iter().find(|(of, _)| *of == 0 || *of == status);
        found.map_or(0, |(_, secs)| *secs)
    }

    /// Whether responses to a method are kept.
    pub fn keeps(&self, method: Method) -> bool {
        let bit = match method {
            Method::Get => methods::GET,
            Method::Head => methods::HEAD,
            Method::Post => methods::POST,
            _ => 0,
        };
        self.methods & bit != 0
    }
}
