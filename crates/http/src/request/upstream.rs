//! The exchanges of a request, as upstream code, caches and variables ask for them.

use bytes::Bytes;
use cache::{CacheStatus, Header};

use super::Request;
use crate::exchanges::Exchanges;
use crate::module::Verdict;
use crate::status_line::CLIENT_CLOSED;

impl Request {
    /// The upstream state, made now if the request has none yet.
    #[inline]
    pub fn upstream_mut(&mut self) -> &mut Exchanges {
        self.work.exchanges.get_or_insert_with(Exchanges::boxed)
    }

    /// The upstream state of a request that was passed on, or was about to be.
    pub fn upstream(&self) -> Option<&Exchanges> {
        self.exchanges().filter(|u| !u.scheme.is_empty())
    }

    /// The state, also where it says of a cache alone.
    pub fn exchanges(&self) -> Option<&Exchanges> {
        self.work.exchanges.as_deref()
    }

    /// Ends a request whose client left during an exchange: no answer, and status 499 in the log.
    pub fn abandon(&mut self) -> Verdict {
        self.close_with(CLIENT_CLOSED)
    }

    /// Ends a request without a response, with this status in the log.
    pub fn close_with(&mut self, status: u16) -> Verdict {
        self.flags.err_status = status;
        Verdict::Close
    }

    /// A file that the response was made of could not be read; another response is being made.
    pub fn has_lost_file(&self) -> bool {
        self.flags.unreadable
    }

    /// The validators of a stored response to be revalidated: its last change and its `ETag`.
    pub fn cached_validators(&self) -> (Option<i64>, Option<&Bytes>) {
        let Some(header) = revalidated(self) else { return (None, None) };
        let changed = Some(header.last_modified).filter(|t| *t != -1);
        (changed, Some(&header.etag).filter(|etag| !etag.is_empty()))
    }
}

/// The stored response that is stale and is being revalidated.
fn revalidated(r: &Request) -> Option<&Header> {
    let u = r.exchanges().filter(|u| u.cache_status == CacheStatus::Expired)?;
    let t = u.cache.as_ref().filter(|t| t.conf.revalidate)?;
    t.stale.as_ref().map(|stored| &stored.header)
}
