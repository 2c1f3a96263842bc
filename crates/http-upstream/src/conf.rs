//! The settings that all proxying modules share, each under its own prefix (`proxy_…`).

use std::rc::Rc;

use bytes::Bytes;
use cache::CacheConf;
use conf::ConfError;
use conf::template::Template;
use conf::value::Bufs;
use engine::TempPath;
use http::LocView;
use http::cx::Cx;
use http::server::location::LocKind;
use http_wire::h1::{FieldId, FieldSet};
use upstream::socket::{Bind, SocketConf};
use upstream::ssl::{SslDraft, UpstreamTls};
use upstream::upstreams::Upstreams;

/// The default size of writes to a temporary file, in bytes. Large, because handing a write to a
/// thread costs as much as copying a dozen kilobytes.
const WRITE_SIZE: usize = 64 << 10;

/// Reasons to try the next server: the bits of `*_next_upstream`.
pub mod next {
    /// The connection failed before a response.
    pub const ERROR: u64 = 1 << 1;
    /// The server did not respond in time.
    pub const TIMEOUT: u64 = 1 << 2;
    /// The response is malformed.
    pub const INVALID_HEADER: u64 = 1 << 3;
    /// Status 500.
    pub(crate) const HTTP_500: u64 = 1 << 4;
    /// Status 502.
    pub(crate) const HTTP_502: u64 = 1 << 5;
    /// Status 503.
    pub(crate) const HTTP_503: u64 = 1 << 6;
    /// Status 504.
    pub(crate) const HTTP_504: u64 = 1 << 7;
    /// Status 403.
    pub(crate) const HTTP_403: u64 = 1 << 8;
    /// Status 404.
    pub const HTTP_404: u64 = 1 << 9;
    /// Status 429.
    pub(crate) const HTTP_429: u64 = 1 << 10;
    /// Also retry non-idempotent methods.
    pub(crate) const NON_IDEMPOTENT: u64 = 1 << 11;
    /// `*_allow_upstream` denies the server.
    pub const DENIED: u64 = 1 << 14;
    /// After all servers, ask them once more.
    pub const AGAIN: u64 = 1 << 15;
    /// No server is available; cannot be configured.
    pub(crate) const NO_LIVE: u64 = 1 << 12;
    /// A cached response is being updated; for caches only.
    pub const UPDATING: u64 = 1 << 13;
    /// Never.
    pub const OFF: u64 = 1 << 30;

    /// The words of `proxy_next_upstream`.
    pub const WORDS: &[(&str, u64)] = &[
        ("error", ERROR),
        ("timeout", TIMEOUT),
        ("denied", DENIED),
        ("invalid_header", INVALID_HEADER),
        ("non_idempotent", NON_IDEMPOTENT),
        ("http_500", HTTP_500),
        ("http_502", HTTP_502),
        ("http_503", HTTP_503),
        ("http_504", HTTP_504),
        ("http_403", HTTP_403),
        ("http_404", HTTP_404),
        ("http_429", HTTP_429),
        ("again", AGAIN),
        ("updating", UPDATING),
        ("off", OFF),
    ];

    /// The words of gateways' directives: without `http_502` and `http_504`, as in nginx.
    pub(crate) const GATEWAY_WORDS: &[(&str, u64)] = &[
        ("error", ERROR),
        ("timeout", TIMEOUT),
        ("denied", DENIED),
        ("invalid_header", INVALID_HEADER),
        ("non_idempotent", NON_IDEMPOTENT),
        ("http_500", HTTP_500),
        ("http_503", HTTP_503),
        ("http_403", HTTP_403),
        ("http_404", HTTP_404),
        ("http_429", HTTP_429),
        ("again", AGAIN),
        ("updating", UPDATING),
        ("off", OFF),
    ];

    /// The bit of a status; 0 if the status is never retried.
    pub fn of_status(status: u16) -> u64 {
        match status {
            500 => HTTP_500,
            502 => HTTP_502,
            503 => HTTP_503,
            504 => HTTP_504,
            403 => HTTP_403,
            404 => HTTP_404,
            429 => HTTP_429,
            _ => 0,
        }
    }
}

pub use cache::ignore;

/// Defines the settings of a level, each with inheritance.
macro_rules! draft {
    ($({ $group:ident : $of:ty })* $($(#[$m:meta])* $name:ident : $type:ty,)*) => {
        /// The settings of one level, its own or inherited.
        #[derive(Default, Clone)]
        #[allow(missing_docs, reason = "a field has the name of its directive")]
        pub struct Draft {
            $(
                /// A group of settings.
                pub $group: $of,
            )*
            $($(#[$m])* pub $name: Option<$type>,)*
        }

        impl ::engine::settings::Inherit for Draft {
            fn inherit(&mut self, prev: &Draft) {
                ::engine::inherit!(self, prev: $($group)* $($name)*);
            }
        }
    };
}

pub(crate) use draft;

draft! {
    { ssl: SslDraft }
    buffering: bool,
    request_buffering: bool,
    ignore_client_abort: bool,
    intercept_errors: bool,
    /// A 404 always gets our own error page.
    intercept_404: bool,
    pass_request_headers: bool,
    pass_request_body: bool,
    pass_trailers: bool,
    force_ranges: bool,
    socket_keepalive: bool,
    /// `*_send_lowat`, bytes; without effect.
    send_lowat: usize,
    /// `*_socket_rcvbuf`, bytes.
    socket_rcvbuf: usize,
    /// `*_socket_sndbuf`, bytes.
    socket_sndbuf: usize,
    /// `*_connect_timeout`, milliseconds.
    connect_timeout: u64,
    /// `*_send_timeout`, milliseconds between two writes.
    send_timeout: u64,
    /// `*_read_timeout`, milliseconds between two reads.
    read_timeout: u64,
    /// `*_buffer_size`, bytes.
    buffer_size: usize,
    buffers: Bufs,
    /// `*_busy_buffers_size`, bytes.
    busy_buffers_size: usize,
    temp_path: TempPath,
    /// `*_max_temp_file_size`, bytes; 0 uses no files.
    max_temp_file_size: usize,
    /// `*_temp_file_write_size`, bytes.
    temp_file_write_size: usize,
    /// `*_limit_rate`, bytes a second.
    limit_rate: Template,
    next_upstream: u64,
    next_upstream_tries: u64,
    /// `*_next_upstream_timeout`, milliseconds.
    next_upstream_timeout: u64,
    ignore_headers: u64,
    hide_headers: Vec<Bytes>,
    pass_headers: Vec<Bytes>,
    bind: Bind,
    bind_dynamic: bool,
    allow: Rc<[Template]>,
    request_dynamic: bool,
    store: Store,
    store_access: u32,
}

/// Where `*_store` puts responses.
#[derive(Clone)]
pub enum Store {
    /// `off`
    Off,
    /// `on`: the path from `root` or `alias`.
    Mapped,
    /// Below a path with variables.
    Path(Template),
}

/// The names of response fields that are removed.
#[derive(Default, Clone)]
pub struct Hidden {
    ids: FieldSet,
    others: Vec<Bytes>,
}

impl Hidden {
    fn new(names: impl Iterator<Item = Bytes>) -> Hidden {
        let mut h = Hidden::default();
        for n in names {
            match FieldId::lookup(&n) {
                FieldId::Other => h.others.push(n),
                id => h.ids.insert(id),
            }
        }
        h
    }

    /// Whether the field with this id and name is removed.
    #[inline]
    pub fn has(&self, id: FieldId, name: &[u8]) -> bool {
        match id {
            FieldId::Other => {
                !self.others.is_empty()
                    && self.others.iter().any(|o| base::ascii::eq_ignore_case(o, name))
            }
            id => self.ids.has(id),
        }
    }
}

/// The effective settings of a location.
pub struct Conf {
    /// See [`Draft`] for all of these.
    pub buffering: bool,
    /// Read the whole request body before connecting.
    pub request_buffering: bool,
    /// Continue after the client has disconnected.
    pub ignore_client_abort: bool,
    /// Apply `error_page` to the upstream's errors.
    pub intercept_errors: bool,
    /// A 404 always gets our own error page.
    pub intercept_404: bool,
    /// Forward the client's header fields.
    pub pass_request_headers: bool,
    /// Forward the client's body.
    pub pass_request_body: bool,
    /// Forward response trailers.
    pub pass_trailers: bool,
    /// Serve ranges regardless of Accept-Ranges.
    pub force_ranges: bool,
    /// Socket options of upstream connections.
    pub socket: SocketConf,
    /// Evaluate our own address anew for each server.
    pub bind_dynamic: bool,
    /// Values that must be set before a server is asked.
    pub allow: Rc<[Template]>,
    /// Make the request anew for each server.
    pub request_dynamic: bool,
    /// Milliseconds.
    pub connect_timeout: u64,
    /// The timeout between two writes, in milliseconds.
    pub send_timeout: u64,
    /// The timeout between two reads, in milliseconds.
    pub read_timeout: u64,
    /// The maximum size of response headers, in bytes.
    pub buffer_size: usize,
    /// The maximum of buffered response bytes in memory.
    pub read_ahead: usize,
    /// The maximum of bytes being sent to the client at a time.
    pub busy: usize,
    /// The directory of temporary files.
    pub temp_path: TempPath,
    /// The maximum size of a temporary file, in bytes; 0 uses no files.
    pub max_temp_file: u64,
    /// The size of writes to a temporary file, in bytes.
    pub temp_file_write: usize,
    /// The rate limit for reading the response, in bytes per second.
    pub limit_rate: Option<Template>,
    /// Bits of [`next`].
    pub next_upstream: u64,
    /// 0 is no limit.
    pub next_upstream_tries: u64,
    /// Milliseconds; 0 is no limit.
    pub next_upstream_timeout: u64,
    /// Bits of [`ignore`].
    pub ignore_headers: u64,
    /// The response fields that are not forwarded.
    pub hidden: Hidden,
    /// Whether and where to store responses.
    pub store: Store,
    /// The permissions of these files.
    pub store_access: u32,
    /// The cache settings, if caching is on.
    pub cache: Option<Rc<CacheConf>>,
    /// TLS to the servers, if used.
    pub tls: Option<Rc<UpstreamTls>>,
    /// Identifies the location and the settings of its connections to servers, in other processes,
    /// too ([`Upstreams::place`]); 0 if nothing but the address of this does.
    pub place: u64,
}

impl Conf {
    /// Returns the settings with a cache.
    pub fn with_cache(mut self: Rc<Conf>, cache: Option<Rc<CacheConf>>) -> Rc<Conf> {
        if let (Some(conf), true) = (Rc::get_mut(&mut self), cache.is_some()) {
            conf.cache = cache;
        }
        self
    }
}

impl Conf {
    /// Returns the settings with the identity of their location. `prefix` is that of the
    /// directives: another protocol needs other connections.
    ///
    /// Blocks inside a location are chosen by conditions, which do not identify them.
    pub fn at(mut self: Rc<Conf>, prefix: &str, l: &LocView) -> Rc<Conf> {
        if matches!(l.info.kind, LocKind::If | LocKind::LimitExcept) {
            return self;
        }
        let SocketConf { bind, keepalive, rcvbuf, sndbuf } = &self.socket;
        let settings = (prefix, bind.text(), keepalive, rcvbuf, sndbuf);
        let hash = base::hash::stable(&(l.info.identity, settings));
        let place = l.conf::<Upstreams>().place(hash);
        if let Some(conf) = Rc::get_mut(&mut self) {
            conf.place = place;
        }
        self
    }

    /// Returns the settings with TLS.
    pub fn with_tls(mut self: Rc<Conf>, tls: UpstreamTls) -> Rc<Conf> {
        if let Some(conf) = Rc::get_mut(&mut self) {
            conf.tls = Some(Rc::new(tls));
        }
        self
    }
}

struct Sizes {
    buffer: usize,
    bufs: Bufs,
    busy: usize,
    write: usize,
    max_file: usize,
}

impl Draft {
    /// Whether `*_store` is on.
    pub(crate) fn keeps_files(&self) -> bool {
        !matches!(self.store, None | Some(Store::Off))
    }

    /// Checks and returns the sizes of buffers and files.
    fn sizes(&self, prefix: &str) -> Result<Sizes, ConfError> {
        let page = os::limits::page_size();
        let buffer = self.buffer_size.unwrap_or(page);
        let bufs = self.buffers.unwrap_or(Bufs { num: 8, size: page });
        if bufs.num < 2 {
            return Err(ConfError::new(format!("there must be at least 2 \"{prefix}_buffers\"")));
        }
        let size = buffer.max(bufs.size);
        let busy = self.busy_buffers_size.unwrap_or(2 * size);
        if busy < size {
            return Err(ConfError::new(format!(
                "\"{prefix}_busy_buffers_size\" must be equal to or greater than the maximum of \
                 the value of \"{prefix}_buffer_size\" and one of the \"{prefix}_buffers\""
            )));
        }
        if busy > (bufs.num - 1).saturating_mul(bufs.size) {
            return Err(ConfError::new(format!(
                "\"{prefix}_busy_buffers_size\" must be less than the size of all \
                 \"{prefix}_buffers\" minus one buffer"
            )));
        }
        let write = self.temp_file_write_size.unwrap_or(WRITE_SIZE.max(2 * size));
        if write < size {
            return Err(ConfError::new(format!(
                "\"{prefix}_temp_file_write_size\" must be equal to or greater than the maximum of \
                 the value of \"{prefix}_buffer_size\" and one of the \"{prefix}_buffers\""
            )));
        }
        let max_file = self.max_temp_file_size.unwrap_or(1 << 30);
        if max_file != 0 && max_file < size {
            return Err(ConfError::new(format!(
                "\"{prefix}_max_temp_file_size\" must be equal to zero to disable temporary files \
                 usage or must be equal to or greater than the maximum of the value of \
                 \"{prefix}_buffer_size\" and one of the \"{prefix}_buffers\""
            )));
        }
        Ok(Sizes { buffer, bufs, busy, write, max_file })
    }

    /// The effective settings after merging. `prefix` is the directives' prefix (`proxy`), `hide`
    /// the fields that the module hides by default, `folder` the default directory of temporary
    /// files.
    ///
    /// # Errors
    /// The sizes contradict each other.
    pub fn finish(
        &self,
        prefix: &str,
        hide: &[&'static str],
        folder: &TempPath,
    ) -> Result<Rc<Conf>, ConfError> {
        let Sizes { buffer, bufs, busy, write, max_file } = self.sizes(prefix)?;
        let temp_path = self.temp_path.clone().unwrap_or_else(|| folder.clone());
        let pass = self.pass_headers.as_deref().unwrap_or_default();
        let hide = hide.iter().map(|n| Bytes::from_static(n.as_bytes()));
        let hide = hide.chain(self.hide_headers.iter().flatten().cloned());
        let passed = |n: &Bytes| pass.iter().any(|p| base::ascii::eq_ignore_case(p, n));
        let next = self.next_upstream.unwrap_or(next::ERROR | next::TIMEOUT);
        Ok(Rc::new(Conf {
            buffering: self.buffering.unwrap_or(true),
            request_buffering: self.request_buffering.unwrap_or(true),
            // A response that is stored is read to its end.
            ignore_client_abort: self.ignore_client_abort.unwrap_or(false) || self.keeps_files(),
            intercept_errors: self.intercept_errors.unwrap_or(false),
            intercept_404: self.intercept_404.unwrap_or(false),
            pass_request_headers: self.pass_request_headers.unwrap_or(true),
            pass_request_body: self.pass_request_body.unwrap_or(true),
            pass_trailers: self.pass_trailers.unwrap_or(false),
            force_ranges: self.force_ranges.unwrap_or(false),
            socket: SocketConf {
                bind: self.bind.clone().unwrap_or_default(),
                keepalive: self.socket_keepalive.unwrap_or(false),
                rcvbuf: self.socket_rcvbuf.unwrap_or(0),
                sndbuf: self.socket_sndbuf.unwrap_or(0),
            },
            bind_dynamic: self.bind_dynamic.unwrap_or(false),
            allow: self.allow.clone().unwrap_or_default(),
            request_dynamic: self.request_dynamic.unwrap_or(false),
            connect_timeout: self.connect_timeout.unwrap_or(60_000),
            send_timeout: self.send_timeout.unwrap_or(60_000),
            read_timeout: self.read_timeout.unwrap_or(60_000),
            buffer_size: buffer,
            read_ahead: bufs.num.saturating_mul(bufs.size),
            busy,
            temp_path,
            max_temp_file: max_file as u64,
            temp_file_write: write,
            limit_rate: self.limit_rate.clone(),
            next_upstream: if next & next::OFF != 0 { 0 } else { next },
            next_upstream_tries: self.next_upstream_tries.unwrap_or(0),
            next_upstream_timeout: self.next_upstream_timeout.unwrap_or(0),
            ignore_headers: self.ignore_headers.unwrap_or(0),
            hidden: Hidden::new(hide.filter(|n| !passed(n))),
            store: self.store.clone().unwrap_or(Store::Off),
            store_access: self.store_access.unwrap_or(0o600),
            cache: None,
            tls: None,
            place: 0,
        }))
    }
}

/// The default directory of temporary files, `PREFIX_temp` below the server's prefix; registers it,
/// so that it is created.
pub fn default_folder(cx: &mut Cx, prefix: &str) -> TempPath {
    let path = cx.env.temp_folder(&format!("{prefix}_temp"));
    let folder = TempPath::by_default(path, [1, 2, 0]);
    cx.need_folder(&folder);
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> TempPath {
        TempPath::named("/tmp".into(), [0; 3])
    }

    #[test]
    fn sizes_must_fit_together() {
        let message = |d: Draft| {
            d.finish("proxy", &[], &folder()).err().map(|e| e.message).unwrap_or_default()
        };
        assert_eq!(message(Draft::default()), "");
        let one = Draft { buffers: Some(Bufs { num: 1, size: 4096 }), ..Draft::default() };
        assert_eq!(message(one), "there must be at least 2 \"proxy_buffers\"");
        let low = Draft { busy_buffers_size: Some(1), ..Draft::default() };
        assert!(message(low).contains("must be equal to or greater"));
        let high = Draft { busy_buffers_size: Some(1 << 30), ..Draft::default() };
        assert!(message(high).contains("minus one buffer"));
    }

    #[test]
    fn hidden_and_passed_names() {
        let names = |l: &[&'static str]| {
            Some(l.iter().map(|n| Bytes::from_static(n.as_bytes())).collect::<Vec<_>>())
        };
        let d = Draft {
            hide_headers: names(&["X-Mine", "ETag"]),
            pass_headers: names(&["server"]),
            ..Draft::default()
        };
        let hidden = &d.finish("proxy", &["Date", "Server"], &folder()).unwrap().hidden;
        let has = |name: &str| hidden.has(FieldId::lookup(name.as_bytes()), name.as_bytes());
        assert!(has("date") && has("x-mine") && has("etag"));
        assert!(!has("server") && !has("x-other"));
    }
}
