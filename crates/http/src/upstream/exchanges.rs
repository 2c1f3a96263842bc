//! The exchanges of a request with upstreams, as logs and variables show them.

use std::any::Any;
use std::rc::Rc;

use ::upstream::peer::Peer;
use base::log::{Fields, lossy};
use bytes::Bytes;
use proto::h1::{Method, ResponseHead};

use crate::cache::{Header, Status, Ticket};
use crate::request::{Passed, Request};

/// One exchange, or the attempt at one.
#[derive(Default, Clone)]
pub struct Attempt {
    /// The server's address as text, the upstream's name where none was live; `None` separates the
    /// exchanges of an internal redirect from those before it.
    pub peer: Option<Bytes>,
    /// The status that came, or that stands for the failure; 0 before either.
    pub status: u16,
    /// Its beginning, on the monotonic clock.
    pub start_ms: u64,
    /// Milliseconds until the connection stood.
    pub connect_ms: Option<u64>,
    /// Milliseconds until the response's head was there.
    pub header_ms: Option<u64>,
    /// Milliseconds until the end.
    pub response_ms: Option<u64>,
    /// Bytes of the response's body as it came, framing included.
    pub response_length: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
}

/// All exchanges of a request, and the present one; recycled with the request.
#[derive(Default)]
pub struct Exchanges {
    /// All attempts so far, separators between redirects included.
    pub attempts: Vec<Attempt>,
    /// `http://` and the like, for logs.
    pub scheme: &'static str,
    /// The URI of the request to the upstream.
    pub uri: Vec<u8>,
    /// A server is being asked: logs name it.
    pub asking: bool,
    /// The server asked last.
    pub(crate) last: Option<Rc<Peer>>,
    /// The head of the last response: spans into `text`.
    pub head: ResponseHead,
    /// The bytes of the last response's head.
    pub text: Bytes,
    /// The trailers of the last response.
    pub trailers: Vec<(Bytes, Bytes)>,
    /// The response ended too early after its head had been accepted.
    pub cut_short: bool,
    /// The `Content-Length` of the request to the upstream.
    pub body_length: Option<u64>,
    /// The request's body goes to the upstream in the chunked coding.
    pub body_chunked: bool,
    /// The values of `$proxy_host` and `$proxy_port`, set by the module that passes the request on.
    pub host: Bytes,
    /// See `host`.
    pub port: Bytes,
    /// The method of the request to the upstream, if it is not the client's.
    pub method: Option<Method>,
    /// The result of the lookup in the cache.
    pub(crate) cache_status: Status,
    /// The request's claim on a cache, until it is settled.
    pub(crate) cache: Option<Box<Ticket>>,
    /// The time at which the stored response was made, as far as is known, seconds since 1970.
    pub(crate) cached_since: Option<i64>,
    /// The stored responses that become invalid if the upstream carries the request out.
    pub(crate) invalidates: Option<Box<Ticket>>,
}

impl Passed for Exchanges {
    fn clear(&mut self) {
        self.attempts.clear();
        self.begin();
        self.forget_cache();
        self.scheme = "";
        self.host = Bytes::new();
        self.port = Bytes::new();
        self.last = None;
    }

    fn tell(&self, fields: &mut Fields<'_>) {
        if self.scheme.is_empty() {
            return;
        }
        if let Some(peer) = self.asked() {
            let colon = if peer.starts_with(b"unix:") && !self.uri.is_empty() { ":" } else { "" };
            let (scheme, peer, uri) = (self.scheme, lossy(peer), lossy(&self.uri));
            fields.quoted("upstream", format_args!("{scheme}{peer}{colon}{uri}"));
        }
    }
}

impl Exchanges {
    /// Before an exchange: clears the state of an earlier one but for its attempts.
    pub(crate) fn begin(&mut self) {
        self.uri.clear();
        self.asking = false;
        self.forget_response();
        self.cut_short = false;
        self.body_length = None;
        self.body_chunked = false;
    }

    pub(crate) fn forget_cache(&mut self) {
        self.cache_status = Status::None;
        self.cache = None;
        self.invalidates = None;
        self.cached_since = None;
        self.method = None;
    }

    /// Whether the response may be stored: then the whole is asked for, without conditions or
    /// ranges.
    pub fn is_cacheable(&self) -> bool {
        self.cache.as_ref().is_some_and(|t| t.cacheable)
    }

    pub(crate) fn forget_response(&mut self) {
        self.head.clear();
        self.text = Bytes::new();
        self.trailers.clear();
    }

    /// The server being asked, as logs name it.
    pub(crate) fn asked(&self) -> Option<&Bytes> {
        self.attempts.last().filter(|_| self.asking)?.peer.as_ref()
    }

    /// No server was asked yet in this exchange.
    pub(crate) fn is_first(&self) -> bool {
        self.attempts.last().is_none_or(|a| a.peer.is_none())
    }

    /// The attempt under way.
    pub(crate) fn now(&mut self) -> &mut Attempt {
        if self.attempts.is_empty() {
            self.attempts.push(Attempt::default());
        }
        let last = self.attempts.len() - 1;
        &mut self.attempts[last]
    }
}

impl Request {
    /// The upstream state, made now if the request has none yet.
    pub fn upstream_mut(&mut self) -> &mut Exchanges {
        let slot: &mut dyn Any =
            &mut **self.passed.get_or_insert_with(|| Box::<Exchanges>::default());
        slot.downcast_mut().expect("the slot is filled here alone")
    }

    /// The upstream state of a request that was passed on, or was about to be.
    pub fn upstream(&self) -> Option<&Exchanges> {
        exchanges(self).filter(|u| !u.scheme.is_empty())
    }
}

/// The state, also where it says of a cache alone.
pub(super) fn exchanges(r: &Request) -> Option<&Exchanges> {
    let slot: &dyn Any = &**r.passed.as_ref()?;
    slot.downcast_ref()
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
