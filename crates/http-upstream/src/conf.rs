//! Settings that all modules have which pass requests on, under their own prefix (`proxy_…`).

use std::rc::Rc;

use bytes::Bytes;
use cache::CacheConf;
use conf::ConfError;
use conf::template::Template;
use conf::value::Bufs;
use engine::TempPath;
use http::cx::Cx;
use proto::h1::{FieldId, FieldSet};
use upstream::socket::{Bind, SocketConf};
use upstream::ssl::{SslDraft, UpstreamTls};

/// Bytes that are written to a file of a response at a time, where the configuration does not say.
/// To hand a write to a thread costs as much as a dozen kilobytes of it do.
const WRITE_SIZE: usize = 64 << 10;

/// Reasons to ask the next server: the bits of `*_next_upstream`.
pub mod next {
    /// The connection failed before a response.
    pub const ERROR: u64 = 1 << 1;
    /// It did not answer in time.
    pub const TIMEOUT: u64 = 1 << 2;
    /// The bytes that came are no response.
    pub const INVALID_HEADER: u64 = 1 << 3;
    /// Status 500.
    pub const HTTP_500: u64 = 1 << 4;
    /// Status 502.
    pub const HTTP_502: u64 = 1 << 5;
    /// Status 503.
    pub const HTTP_503: u64 = 1 << 6;
    /// Status 504.
    pub const HTTP_504: u64 = 1 << 7;
    /// Status 403.
    pub const HTTP_403: u64 = 1 << 8;
    /// Status 404.
    pub const HTTP_404: u64 = 1 << 9;
    /// Status 429.
    pub const HTTP_429: u64 = 1 << 10;
    /// Also for methods that must not be repeated.
    pub const NON_IDEMPOTENT: u64 = 1 << 11;
    /// No server lives; set by nobody.
    pub const NO_LIVE: u64 = 1 << 12;
    /// A cached response is being fetched anew: matters to caches alone.
    pub const UPDATING: u64 = 1 << 13;
    /// Never.
    pub const OFF: u64 = 1 << 30;

    /// The words of `proxy_next_upstream`.
    pub const WORDS: &[(&str, u64)] = &[
        ("error", ERROR),
        ("timeout", TIMEOUT),
        ("invalid_header", INVALID_HEADER),
        ("non_idempotent", NON_IDEMPOTENT),
        ("http_500", HTTP_500),
        ("http_502", HTTP_502),
        ("http_503", HTTP_503),
        ("http_504", HTTP_504),
        ("http_403", HTTP_403),
        ("http_404", HTTP_404),
        ("http_429", HTTP_429),
        ("updating", UPDATING),
        ("off", OFF),
    ];

    /// The words of gateways' directives: their requests may be repeated to any server.
    pub const GATEWAY_WORDS: &[(&str, u64)] = &[
        ("error", ERROR),
        ("timeout", TIMEOUT),
        ("invalid_header", INVALID_HEADER),
        ("non_idempotent", NON_IDEMPOTENT),
        ("http_500", HTTP_500),
        ("http_503", HTTP_503),
        ("http_403", HTTP_403),
        ("http_404", HTTP_404),
        ("http_429", HTTP_429),
        ("updating", UPDATING),
        ("off", OFF),
    ];

    /// The bit of a status; 0 for one that never leads to another server.
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

/// The settings of a level, each of which may be inherited.
macro_rules! draft {
    ($({ $group:ident : $of:ty })* $($(#[$m:meta])* $name:ident : $type:ty,)*) => {
        /// The settings of one level, its own or inherited.
        #[derive(Default, Clone)]
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
    /// `*_buffering`
    buffering: bool,
    /// `*_request_buffering`
    request_buffering: bool,
    /// `*_ignore_client_abort`
    ignore_client_abort: bool,
    /// `*_intercept_errors`
    intercept_errors: bool,
    /// A 404 is answered by us whatever the upstream says with it.
    intercept_404: bool,
    /// `*_pass_request_headers`
    pass_request_headers: bool,
    /// `*_pass_request_body`
    pass_request_body: bool,
    /// `*_pass_trailers`
    pass_trailers: bool,
    /// `*_force_ranges`
    force_ranges: bool,
    /// `*_socket_keepalive`
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
    /// `*_buffers`
    buffers: Bufs,
    /// `*_busy_buffers_size`, bytes.
    busy_buffers_size: usize,
    /// `*_temp_path`
    temp_path: TempPath,
    /// `*_max_temp_file_size`, bytes; 0 uses no files.
    max_temp_file_size: usize,
    /// `*_temp_file_write_size`, bytes.
    temp_file_write_size: usize,
    /// `*_limit_rate`, bytes a second.
    limit_rate: Template,
    /// `*_next_upstream`
    next_upstream: u64,
    /// `*_next_upstream_tries`
    next_upstream_tries: u64,
    /// `*_next_upstream_timeout`, milliseconds.
    next_upstream_timeout: u64,
    /// `*_ignore_headers`
    ignore_headers: u64,
    /// `*_hide_header`
    hide_headers: Vec<Bytes>,
    /// `*_pass_header`
    pass_headers: Vec<Bytes>,
    /// `*_bind`
    bind: Bind,
    /// `*_store`
    store: Store,
    /// `*_store_access`
    store_access: u32,
}

/// `*_store`
#[derive(Clone)]
pub enum Store {
    /// `off`
    Off,
    /// `on`: where `root` or `alias` has the file.
    Mapped,
    /// A path.
    Path(Template),
}

/// Names of fields that a response's head is stripped of.
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

    /// Whether a field of that id and name is hidden.
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

/// The settings that hold in a location.
pub struct Conf {
    /// See [`Draft`] for all of these.
    pub buffering: bool,
    /// Read the request's body before connecting.
    pub request_buffering: bool,
    /// Go on without the client.
    pub ignore_client_abort: bool,
    /// `error_page` applies to the upstream's errors.
    pub intercept_errors: bool,
    /// A 404 is answered by us in any case.
    pub intercept_404: bool,
    /// The client's fields are passed on.
    pub pass_request_headers: bool,
    /// The client's body is passed on.
    pub pass_request_body: bool,
    /// Trailers are passed on.
    pub pass_trailers: bool,
    /// Ranges are taken from the response whatever it says.
    pub force_ranges: bool,
    /// The sockets of connections.
    pub socket: SocketConf,
    /// Milliseconds.
    pub connect_timeout: u64,
    /// Milliseconds between two writes.
    pub send_timeout: u64,
    /// Milliseconds between two reads.
    pub read_timeout: u64,
    /// The longest head, bytes.
    pub buffer_size: usize,
    /// The most that is read ahead of a slow client, bytes.
    pub read_ahead: usize,
    /// The most that is given to the client at once, bytes.
    pub busy: usize,
    /// The folder for data read ahead beyond the buffers.
    pub temp_path: TempPath,
    /// The most of a response that may be in a file, bytes; 0 uses no files.
    pub max_temp_file: u64,
    /// The size of writes to a file, bytes.
    pub temp_file_write: usize,
    /// Bytes a second.
    pub limit_rate: Option<Template>,
    /// Bits of [`next`].
    pub next_upstream: u64,
    /// 0 is no limit.
    pub next_upstream_tries: u64,
    /// Milliseconds; 0 is no limit.
    pub next_upstream_timeout: u64,
    /// Bits of [`ignore`].
    pub ignore_headers: u64,
    /// Fields that are not passed on.
    pub hidden: Hidden,
    /// The files of `*_store`.
    pub store: Store,
    /// The permissions of these files.
    pub store_access: u32,
    /// The cache.
    pub cache: Option<Rc<CacheConf>>,
    /// TLS, where servers are spoken to under it.
    pub tls: Option<Rc<UpstreamTls>>,
}

impl Conf {
    /// The same with a cache.
    pub fn with_cache(mut self: Rc<Conf>, cache: Option<Rc<CacheConf>>) -> Rc<Conf> {
        if let (Some(conf), true) = (Rc::get_mut(&mut self), cache.is_some()) {
            conf.cache = cache;
        }
        self
    }
}

impl Conf {
    /// The same with TLS.
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

    /// The sizes of buffers and files, which must fit together.
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

    /// The settings that hold, once all levels are merged. `prefix` is the directives' (`proxy`),
    /// `hide` the fields that the module hides by itself, `folder` the place of responses that fit
    /// no buffer.
    ///
    /// # Errors
    /// Sizes that do not fit together.
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
            // A response for a file is read to its end.
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
        }))
    }
}

/// The folder for responses where none is named: `PREFIX_temp` below the server's prefix. Noted as
/// needed.
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
