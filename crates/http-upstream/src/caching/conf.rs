//! The cache settings of one level, and the merged settings of a location.

use std::rc::Rc;

use cache::{Cache, CacheConf, LocationCache, methods};
use conf::template::Template;
use conf::{ConfError, Word};
use http::module::LocView;
use http::request::Request;

use super::directives::{Caches, Caching};
use crate::conf::{draft, next};

/// `*_cache`
#[derive(Clone)]
pub enum Which {
    /// `off`
    Off,
    /// A constant zone name.
    Named(Word),
    /// A zone name with variables.
    Template(Template, Word),
}

draft! {
    /// `*_cache`
    which: Which,
    /// `*_cache_key`
    key: Template,
    /// `*_cache_methods`
    methods: u64,
    /// `*_cache_min_uses`
    min_uses: u64,
    /// `*_cache_valid`: statuses, 0 for any, with seconds.
    valid: Vec<(u16, u64)>,
    /// `*_cache_bypass`
    bypass: Vec<Template>,
    no_cache: Vec<Template>,
    /// `*_cache_purge`
    purge: Vec<Template>,
    /// `*_cache_lock`
    lock: bool,
    /// `*_cache_lock_timeout`, milliseconds.
    lock_timeout: u64,
    /// `*_cache_lock_age`, milliseconds.
    lock_age: u64,
    /// `*_cache_use_stale`
    use_stale: u64,
    /// `*_cache_background_update`
    background_update: bool,
    /// `*_cache_revalidate`
    revalidate: bool,
    /// `*_cache_convert_head`
    convert_head: bool,
    /// `*_cache_max_range_offset`, bytes.
    max_range_offset: u64,
    /// `*_cache_rfc9111`
    rfc9111: bool,
}

impl Draft {
    /// Whether a cache is set at this level.
    pub fn is_on(&self) -> bool {
        matches!(self.which, Some(Which::Named(_) | Which::Template(..)))
    }

    /// The merged settings of a location; `None` if caching is off.
    ///
    /// # Errors
    /// `"proxy_cache" zone "x" is unknown`.
    pub fn finish<T: Caching>(&self, l: &LocView) -> Result<Option<Rc<CacheConf>>, ConfError> {
        let caches = l.conf::<Caches>();
        let chosen = match &self.which {
            None | Some(Which::Off) => return Ok(None),
            Some(Which::Named(word)) => match caches.find(T::PREFIX, word.bytes()) {
                Some(cache) => LocationCache::Fixed(cache),
                None => {
                    let (prefix, name) = (T::PREFIX, word.lossy());
                    let m = format!("\"{prefix}_cache\" zone \"{name}\" is unknown");
                    return Err(ConfError::at(word, m));
                }
            },
            Some(Which::Template(name, _)) => {
                LocationCache::Template { name: name.clone(), all: caches.of(T::PREFIX) }
            }
        };
        if let (None, false, Some(Which::Named(at) | Which::Template(_, at))) =
            (&self.key, T::CONVERTS_HEAD, &self.which)
        {
            let prefix = T::PREFIX;
            conf::warn(at, format!("no \"{prefix}_cache_key\" for \"{prefix}_cache\""));
        }
        let rfc9111 = self.rfc9111.unwrap_or(false);
        let stale = self.use_stale.unwrap_or(0);
        let stale = if stale & next::OFF != 0 { 0 } else { stale };
        Ok(Some(Rc::new(CacheConf {
            chosen,
            key: self.key.clone(),
            methods: self.methods.unwrap_or(0) | methods::GET | methods::HEAD,
            min_uses: self.min_uses.unwrap_or(1).min(1023) as u16,
            valid: self.valid.clone().unwrap_or_default(),
            bypass: self.bypass.clone().unwrap_or_default(),
            no_cache: self.no_cache.clone().unwrap_or_default(),
            purge: self.purge.clone().unwrap_or_default(),
            lock: self.lock.unwrap_or(false),
            lock_timeout: self.lock_timeout.unwrap_or(5000),
            lock_age: self.lock_age.unwrap_or(5000),
            // A location that serves stale responses after connection errors also does so if no
            // server is available.
            use_stale: if stale & next::ERROR != 0 { stale | next::NO_LIVE } else { stale },
            background_update: self.background_update.unwrap_or(false),
            // RFC 9111 needs revalidation, because `no-cache` requires asking the upstream, not
            // fetching anew.
            revalidate: self.revalidate.unwrap_or(rfc9111),
            convert_head: self.convert_head.unwrap_or(T::CONVERTS_HEAD),
            max_range_offset: self.max_range_offset,
            rfc9111,
        })))
    }
}

/// The zone name from variables is unknown; this was logged.
pub(crate) struct NoCache;

/// The cache for a request; `None` if variables turn caching off.
pub(super) fn of_request(conf: &CacheConf, r: &mut Request) -> Result<Option<Rc<Cache>>, NoCache> {
    let (name, all) = match &conf.chosen {
        LocationCache::Fixed(cache) => return Ok(Some(cache.clone())),
        LocationCache::Template { name, all } => (name, all),
    };
    let name = name.eval(r);
    if name.is_empty() || &name[..] == b"off" {
        return Ok(None);
    }
    match all.iter().find(|cache| cache.name == name) {
        Some(cache) => Ok(Some(cache.clone())),
        None => {
            let name = base::log::lossy(&name).into_owned();
            r.log(base::log::Level::Error, format_args!("cache \"{name}\" not found"));
            Err(NoCache)
        }
    }
}
