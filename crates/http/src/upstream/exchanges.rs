//! The exchanges of a request, as upstream code, caches and variables ask for them.

use bytes::Bytes;

use crate::cache::{Header, Status};
pub use crate::exchanges::{Attempt, Exchanges};
use crate::request::Request;

impl Request {
    /// The upstream state, made now if the request has none yet.
    pub fn upstream_mut(&mut self) -> &mut Exchanges {
        self.exchanges.get_or_insert_default()
    }

    /// The upstream state of a request that was passed on, or was about to be.
    pub fn upstream(&self) -> Option<&Exchanges> {
        exchanges(self).filter(|u| !u.scheme.is_empty())
    }
}

/// The state, also where it says of a cache alone.
pub(super) fn exchanges(r: &Request) -> Option<&Exchanges> {
    r.exchanges.as_deref()
}

impl Request {
    /// The validators of a stored response that is to be revalidated: the time of its last change,
    /// and its `ETag`.
    pub fn cached_validators(&self) -> (Option<i64>, Option<&Bytes>) {
        let Some(header) = revalidated(self) else { return (None, None) };
        let changed = Some(header.last_modified).filter(|t| *t != -1);
        (changed, Some(&header.etag).filter(|etag| !etag.is_empty()))
    }
}

/// The stored response that is stale and is being revalidated.
fn revalidated(r: &Request) -> Option<&Header> {
    let u = exchanges(r).filter(|u| u.cache_status == Status::Expired)?;
    let t = u.cache.as_ref().filter(|t| t.conf.revalidate)?;
    t.stale.as_ref().map(|stored| &stored.header)
}
