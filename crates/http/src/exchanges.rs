//! The exchanges of a request with upstreams, and its business with a cache: the data alone, which
//! is a part of every request. The crate `http-upstream` does the work.

use std::rc::Rc;

use base::log::{Fields, lossy};
use bytes::Bytes;
use cache::{CacheEntry, CacheStatus, Ticket};
use engine::metrics::RowId;
use http_wire::h1::{Method, ResponseHead};
use upstream::peer::Peer;

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
    /// The server's counters.
    pub row: Option<RowId>,
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
    pub last: Option<Rc<Peer>>,
    /// The head of the last response: spans into `text`. Code that works on it together with the
    /// request shares it: to move its 250 bytes out and back took four copies for each response.
    pub head: Rc<ResponseHead>,
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
    pub cache_status: CacheStatus,
    /// The entry that the response came from, or goes to.
    pub cache_entry: Option<CacheEntry>,
    /// The counters of that cache.
    pub cache_row: Option<RowId>,
    /// The request's claim on a cache, until it is settled.
    pub cache: Option<Box<Ticket>>,
    /// The time at which the stored response was made, as far as is known, seconds since 1970.
    pub cached_since: Option<i64>,
    /// The stored responses that become invalid if the upstream carries the request out.
    pub invalidates: Option<Box<Ticket>>,
}

impl Exchanges {
    #[cold]
    pub(crate) fn boxed() -> Box<Exchanges> {
        Box::default()
    }

    /// Forgets all of one request.
    pub(crate) fn clear(&mut self) {
        self.attempts.clear();
        self.begin();
        self.forget_cache();
        (self.scheme, self.host, self.port) = ("", Bytes::new(), Bytes::new());
        self.last = None;
    }

    /// Names the server that is being asked, for messages.
    pub(crate) fn tell(&self, fields: &mut Fields<'_>) {
        if self.scheme.is_empty() {
            return;
        }
        if let Some(peer) = self.asked() {
            let colon = if peer.starts_with(b"unix:") && !self.uri.is_empty() { ":" } else { "" };
            let (scheme, peer, uri) = (self.scheme, lossy(peer), lossy(&self.uri));
            fields.quoted("upstream", format_args!("{scheme}{peer}{colon}{uri}"));
        }
    }

    /// Before an exchange: clears the state of an earlier one but for its attempts.
    pub fn begin(&mut self) {
        self.uri.clear();
        self.asking = false;
        self.forget_response();
        self.cut_short = false;
        self.body_length = None;
        self.body_chunked = false;
    }

    /// Forgets the request's business with a cache.
    pub fn forget_cache(&mut self) {
        self.cache_status = CacheStatus::None;
        self.cache_entry = None;
        self.cache_row = None;
        self.cache = None;
        self.invalidates = None;
        self.cached_since = None;
        self.method = None;
    }

    /// Whether the response may be stored: then it is requested without conditions or ranges.
    pub fn is_cacheable(&self) -> bool {
        self.cache.as_ref().is_some_and(|t| t.cacheable)
    }

    /// Forgets the head of the last response, and its trailers.
    pub fn forget_response(&mut self) {
        Rc::make_mut(&mut self.head).clear();
        self.text = Bytes::new();
        self.trailers.clear();
    }

    /// The server being asked, as logs name it.
    pub(crate) fn asked(&self) -> Option<&Bytes> {
        self.attempts.last().filter(|_| self.asking)?.peer.as_ref()
    }

    /// No server was asked yet in this exchange.
    pub fn is_first(&self) -> bool {
        self.attempts.last().is_none_or(|a| a.peer.is_none())
    }

    /// The attempt under way.
    pub fn now(&mut self) -> &mut Attempt {
        if self.attempts.is_empty() {
            self.attempts.push(Attempt::default());
        }
        let last = self.attempts.len() - 1;
        &mut self.attempts[last]
    }
}
