//! The directives of a cache at one level, and the settings that hold in a location.

use std::rc::Rc;

use conf::template::Template;
use conf::{ConfError, Word};

use super::directives::{Caches, Caching};
pub use crate::exchanges::CacheConf;
use crate::exchanges::Chosen;
use crate::module::LocView;
use crate::request::Request;
use crate::upstream::conf::{draft, next};
use cache::Cache;
use proto::h1::Method;

/// Methods whose responses may be kept: bits of `*_cache_methods`.
pub(crate) mod methods {
    /// GET
    pub const GET: u64 = 1 << 1;
    /// HEAD
    pub const HEAD: u64 = 1 << 2;
    /// POST
    pub const POST: u64 = 1 << 3;
    /// The words of the directive.
    pub const WORDS: &[(&str, u64)] = &[("GET", GET), ("HEAD", HEAD), ("POST", POST)];
}

/// `*_cache`
#[derive(Clone)]
pub enum Which {
    /// `off`
    Off,
    /// A zone by its name.
    Named(Word),
    /// A zone whose name is known when a request comes.
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
    /// `*_no_cache`
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
    /// Whether this level names a cache.
    pub fn is_on(&self) -> bool {
        matches!(self.which, Some(Which::Named(_) | Which::Template(..)))
    }
}

/// There is no cache of the name that variables gave; it was logged.
pub(crate) struct NoCache;

impl CacheConf {
    /// The settings of a location, once all levels are merged; `None` where nothing is kept.
    ///
    /// # Errors
    /// `"proxy_cache" zone "x" is unknown`.
    pub fn finish<T: Caching>(
        l: &LocView,
        draft: &Draft,
    ) -> Result<Option<Rc<CacheConf>>, ConfError> {
        let caches = l.conf::<Caches>();
        let chosen = match &draft.which {
            None | Some(Which::Off) => return Ok(None),
            Some(Which::Named(word)) => match caches.find(T::PREFIX, word.bytes()) {
                Some(cache) => Chosen::Fixed(cache),
                None => {
                    let (prefix, name) = (T::PREFIX, word.lossy());
                    let m = format!("\"{prefix}_cache\" zone \"{name}\" is unknown");
                    return Err(ConfError::at(word, m));
                }
            },
            Some(Which::Template(name, _)) => {
                Chosen::Template { name: name.clone(), all: caches.of(T::PREFIX) }
            }
        };
        if let (None, false, Some(Which::Named(at) | Which::Template(_, at))) =
            (&draft.key, T::CONVERTS_HEAD, &draft.which)
        {
            let prefix = T::PREFIX;
            conf::warn(at, format!("no \"{prefix}_cache_key\" for \"{prefix}_cache\""));
        }
        let rfc9111 = draft.rfc9111.unwrap_or(false);
        let stale = draft.use_stale.unwrap_or(0);
        let stale = if stale & next::OFF != 0 { 0 } else { stale };
        Ok(Some(Rc::new(CacheConf {
            chosen,
            key: draft.key.clone(),
            methods: draft.methods.unwrap_or(0) | methods::GET | methods::HEAD,
            min_uses: draft.min_uses.unwrap_or(1).min(1023) as u16,
            valid: draft.valid.clone().unwrap_or_default(),
            bypass: draft.bypass.clone().unwrap_or_default(),
            no_cache: draft.no_cache.clone().unwrap_or_default(),
            purge: draft.purge.clone().unwrap_or_default(),
            lock: draft.lock.unwrap_or(false),
            lock_timeout: draft.lock_timeout.unwrap_or(5000),
            lock_age: draft.lock_age.unwrap_or(5000),
            // A location that takes stale responses for a failed connection takes them where no
            // server lives.
            use_stale: if stale & next::ERROR != 0 { stale | next::NO_LIVE } else { stale },
            background_update: draft.background_update.unwrap_or(false),
            // `no-cache` says to ask, not to fetch.
            revalidate: draft.revalidate.unwrap_or(rfc9111),
            convert_head: draft.convert_head.unwrap_or(T::CONVERTS_HEAD),
            max_range_offset: draft.max_range_offset,
            rfc9111,
        })))
    }

    /// The cache for a request; `None` where variables say that there is to be none.
    pub(crate) fn cache(&self, r: &mut Request) -> Result<Option<Rc<Cache>>, NoCache> {
        let (name, all) = match &self.chosen {
            Chosen::Fixed(cache) => return Ok(Some(cache.clone())),
            Chosen::Template { name, all } => (name, all),
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

    /// The lifetime of a response of that status without one in its fields, seconds; 0 is none.
    pub(crate) fn valid_for(&self, status: u16) -> u64 {
        let found = self.valid.iter().find(|(of, _)| *of == 0 || *of == status);
        found.map_or(0, |(_, secs)| *secs)
    }

    /// Whether responses to a method are kept.
    pub(crate) fn keeps(&self, method: Method) -> bool {
        let bit = match method {
            Method::Get => methods::GET,
            Method::Head => methods::HEAD,
            Method::Post => methods::POST,
            _ => 0,
        };
        self.methods & bit != 0
    }
}
