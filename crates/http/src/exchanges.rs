//! The exchanges of a request with upstreams, and its business with a cache: the data alone, which
//! is a part of every request. [`crate::upstream`] and [`crate::cache`] do the work.

use std::rc::Rc;

use ::upstream::peer::Peer;
use base::log::{Fields, lossy};
use bytes::Bytes;
use cache::rfc9111::Asked;
use cache::{Cache, CacheStatus as Status, Hash, Hold, Since, Stored};
use conf::template::Template;
use engine::metrics::RowId;
use proto::h1::{Method, ResponseHead};

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
    /// The counters of that cache.
    pub(crate) cache_row: Option<RowId>,
    /// The request's claim on a cache, until it is settled.
    pub(crate) cache: Option<Box<Ticket>>,
    /// The time at which the stored response was made, as far as is known, seconds since 1970.
    pub(crate) cached_since: Option<i64>,
    /// The stored responses that become invalid if the upstream carries the request out.
    pub(crate) invalidates: Option<Box<Ticket>>,
}

impl Exchanges {
    /// Forgets all of one request.
    pub(crate) fn clear(&mut self) {
        self.attempts.clear();
        self.begin();
        self.forget_cache();
        self.scheme = "";
        self.host = Bytes::new();
        self.port = Bytes::new();
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
        self.cache_row = None;
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

/// A request's business with a cache, from the moment its key is known until its response comes
/// from there, or goes there, or passes it by.
pub(crate) struct Ticket {
    /// The cache.
    pub cache: Rc<Cache>,
    /// The location's settings.
    pub conf: Rc<CacheConf>,
    /// The key.
    pub key: Bytes,
    /// The key's hash.
    pub main: Hash,
    /// The hash that was looked up last: the key's, or that of a variant of it.
    pub hash: Hash,
    /// The state of purges at the lookup.
    pub since: Since,
    /// The response may be kept, as far as is known.
    pub cacheable: bool,
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

/// The settings of a location with a cache.
pub struct CacheConf {
    pub(crate) chosen: Chosen,
    /// `None`: the protocol's own.
    pub(crate) key: Option<Template>,
    pub(crate) methods: u64,
    pub(crate) min_uses: u16,
    pub(crate) valid: Vec<(u16, u64)>,
    pub(crate) bypass: Vec<Template>,
    pub(crate) no_cache: Vec<Template>,
    pub(crate) purge: Vec<Template>,
    pub(crate) lock: bool,
    pub(crate) lock_timeout: u64,
    pub(crate) lock_age: u64,
    /// Bits of [`next`].
    pub(crate) use_stale: u64,
    pub(crate) background_update: bool,
    /// Stale responses are asked for with their validators.
    pub revalidate: bool,
    pub(crate) convert_head: bool,
    pub(crate) max_range_offset: Option<u64>,
    /// RFC 9111 decides.
    pub(crate) rfc9111: bool,
}

/// The cache of a location.
pub(crate) enum Chosen {
    Fixed(Rc<Cache>),
    Template { name: Template, all: Vec<Rc<Cache>> },
}
