//! The core's settings at location and server level: as written (drafts with options) and in effect
//! (plain values, made once at load).

use std::path::PathBuf;
use std::rc::Rc;

use base::log::Log;
use bytes::Bytes;
use conf::template::Template;

use crate::types::Types;
use engine::TempPath;
use engine::logs::ErrorLog;
use engine::min_rate::MinRate;
use engine::settings::Inherit;
use files::{Aio, OpenFileCache};
use http_wire::h1::Limits;

/// Declares a draft of optional values with its inheritance, and the plain values made from it.
macro_rules! settings {
    ($(#[$dm:meta])* $draft:ident, $(#[$fm:meta])* $plain:ident {
        $($(#[$m:meta])* $name:ident : $type:ty = $default:expr,)*
    }) => {
        $(#[$dm])*
        #[derive(Default, Clone)]
        #[allow(missing_docs, reason = "a field has the name of its directive")]
        pub struct $draft { $($(#[$m])* pub $name: Option<$type>,)* }

        impl Inherit for $draft {
            fn inherit(&mut self, prev: &Self) {
                engine::inherit!(self, prev: $($name)*);
            }
        }

        $(#[$fm])*
        #[allow(missing_docs, reason = "a field has the name of its directive")]
        pub struct $plain { $($(#[$m])* pub $name: $type,)* }

        impl From<&$draft> for $plain {
            fn from(d: &$draft) -> Self {
                $plain { $($name: d.$name.clone().unwrap_or_else(|| $default),)* }
            }
        }
    };
}

/// `root` or `alias`: where a URI's file lies.
#[derive(Clone)]
pub struct Root {
    /// The path, made absolute with the prefix where it is constant.
    pub path: Template,
    /// `alias`: the location's name is cut off the URI first.
    pub alias: bool,
    /// The length of the location's name, for `alias` in a prefix location.
    pub name_len: usize,
    /// `alias` in a regex location: the path alone is the file.
    pub whole: bool,
}

/// `satisfy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Satisfy {
    /// Every access module must allow.
    All,
    /// One is enough.
    Any,
}

impl Satisfy {
    /// The words of the directive.
    pub(crate) const WORDS: &[(&str, Satisfy)] = &[("all", Satisfy::All), ("any", Satisfy::Any)];
}

/// `server_tokens`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerTokens {
    /// The name alone.
    Off,
    /// Name and version.
    On,
    /// Name, version and the build's name.
    Build,
}

impl ServerTokens {
    /// The words of the directive.
    pub(crate) const WORDS: &[(&str, ServerTokens)] =
        &[("off", ServerTokens::Off), ("on", ServerTokens::On), ("build", ServerTokens::Build)];
}

/// `if_modified_since`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfModifiedSince {
    /// The header is ignored.
    Off,
    /// Equal times only.
    Exact,
    /// Not newer than the header says.
    Before,
}

impl IfModifiedSince {
    /// The words of the directive.
    pub(crate) const WORDS: &[(&str, IfModifiedSince)] = &[
        ("off", IfModifiedSince::Off),
        ("exact", IfModifiedSince::Exact),
        ("before", IfModifiedSince::Before),
    ];
}

/// `lingering_close`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lingering {
    /// Close at once.
    Off,
    /// If data may still be coming.
    On,
    /// Always.
    Always,
}

impl Lingering {
    /// The words of the directive.
    pub(crate) const WORDS: &[(&str, Lingering)] =
        &[("off", Lingering::Off), ("on", Lingering::On), ("always", Lingering::Always)];
}

/// `client_body_in_file_only`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InFileOnly {
    /// Bodies are in memory while they fit.
    Off,
    /// Always in a file, which stays.
    On,
    /// Always in a file, removed after the request.
    Clean,
}

impl InFileOnly {
    /// The words of the directive.
    pub(crate) const WORDS: &[(&str, InFileOnly)] =
        &[("off", InFileOnly::Off), ("on", InFileOnly::On), ("clean", InFileOnly::Clean)];
}

/// `disable_symlinks`.
#[derive(Clone)]
pub struct DisableSymlinks {
    /// Only links whose owner differs from their target's are refused.
    pub if_not_owner: bool,
    /// Path components before this (a prefix of the path) are not checked.
    pub from: Option<Template>,
}

/// One line of `error_page`.
#[derive(Clone)]
pub struct ErrorPage {
    /// The status that it answers.
    pub status: u16,
    /// `=CODE`: the status sent instead; `Some(0)` is `=`: the one of the page's own response.
    pub overwrite: Option<u16>,
    /// The URI, address or `@name`.
    pub target: Template,
    /// Arguments written behind the URI, if it is constant.
    pub args: Bytes,
}

/// `keepalive_timeout`'s and `keepalive_disable`'s browsers.
#[derive(Clone, Copy, Default, Debug)]
pub struct KeepaliveDisable {
    /// Old versions of MSIE, once a POST request was received.
    pub msie6: bool,
    /// Safari and browsers like it on macOS.
    pub safari: bool,
}

settings! {
    /// The core's settings as written in a location, or inherited.
    CoreLocDraft,
    /// The core's settings in a location.
    CoreLoc {
        /// `root` and `alias`; `None` stands for the default `html`.
        root: Option<Root> = None,
        types: Rc<Types> = Types::default_table(),
        default_type: Bytes = Bytes::from_static(b"text/plain"),
        /// `client_max_body_size`, bytes; 0 is no limit.
        client_max_body_size: u64 = 1 << 20,
        /// `client_body_buffer_size`, bytes.
        client_body_buffer_size: usize = 16 << 10,
        /// `client_body_timeout`, milliseconds between two reads.
        client_body_timeout: u64 = 60_000,
        client_body_min_rate: MinRate = MinRate::DEFAULT,
        client_body_in_file_only: InFileOnly = InFileOnly::Off,
        client_body_in_single_buffer: bool = false,
        /// `client_body_temp_path`; the default's path is known once all is merged.
        client_body_temp_path: TempPath = TempPath::by_default(PathBuf::new(), [0; 3]),
        satisfy: Satisfy = Satisfy::All,
        /// `auth_delay`, milliseconds.
        auth_delay: u64 = 0,
        internal: bool = false,
        sendfile: bool = false,
        /// `sendfile_max_chunk`, bytes; 0 is no limit.
        sendfile_max_chunk: usize = 2 << 20,
        aio: Aio = Aio::Auto,
        aio_write: bool = true,
        /// `directio`: from which size on files are read past the page cache.
        directio: Option<u64> = None,
        /// `directio_alignment`, bytes.
        directio_alignment: u64 = 512,
        /// `output_buffers`: how many for one response, and bytes of each.
        output_buffers: (usize, usize) = (2, 32 << 10),
        /// `read_ahead`, bytes; 0 leaves it to the kernel.
        read_ahead: usize = 0,
        tcp_nopush: bool = false,
        tcp_nodelay: bool = true,
        /// `send_timeout`, milliseconds between two writes.
        send_timeout: u64 = 60_000,
        /// `slow_request_time`, microseconds; the greatest number is off.
        slow_request_us: u64 = 1_000_000,
        send_min_rate: MinRate = MinRate::DEFAULT,
        /// `postpone_output`, bytes.
        postpone_output: usize = 1460,
        /// `limit_rate`, bytes a second; empty or 0 is no limit.
        limit_rate: Option<Template> = None,
        /// `limit_rate_after`, bytes.
        limit_rate_after: Option<Template> = None,
        /// `keepalive_time`, milliseconds.
        keepalive_time: u64 = 3_600_000,
        /// `keepalive_timeout`, milliseconds.
        keepalive_timeout: u64 = 75_000,
        /// The second argument of `keepalive_timeout`, seconds; 0 sends no header.
        keepalive_header: u64 = 0,
        /// `keepalive_min_timeout`, milliseconds.
        keepalive_min_timeout: u64 = 0,
        keepalive_requests: u64 = 1000,
        keepalive_disable: KeepaliveDisable = KeepaliveDisable { msie6: true, safari: false },
        lingering_close: Lingering = Lingering::On,
        /// `lingering_time`, milliseconds.
        lingering_time: u64 = 30_000,
        /// `lingering_timeout`, milliseconds.
        lingering_timeout: u64 = 5_000,
        overload_refuse: bool = true,
        reset_timedout_connection: bool = false,
        /// `post_action`; empty is none.
        post_action: bytes::Bytes = bytes::Bytes::new(),
        absolute_redirect: bool = true,
        server_name_in_redirect: bool = false,
        port_in_redirect: bool = true,
        msie_padding: bool = true,
        msie_refresh: bool = false,
        log_not_found: bool = true,
        log_subrequest: bool = false,
        recursive_error_pages: bool = false,
        chunked_transfer_encoding: bool = true,
        etag: bool = true,
        if_modified_since: IfModifiedSince = IfModifiedSince::Exact,
        /// `max_ranges`; 0 turns ranges off.
        max_ranges: usize = usize::MAX,
        server_tokens: ServerTokens = ServerTokens::On,
        /// `error_page`, in order.
        error_page: Rc<Vec<ErrorPage>> = Rc::default(),
        disable_symlinks: Option<Rc<DisableSymlinks>> = None,
        open_file_cache: Option<OpenFileCache> = None,
        /// `open_file_cache_valid`, seconds.
        open_file_cache_valid: u64 = 60,
        open_file_cache_min_uses: u64 = 1,
        open_file_cache_errors: bool = false,
        uninitialized_variable_warn: bool = true,
        /// `subrequest_output_buffer_size`, bytes.
        subrequest_output_buffer_size: usize = 4096,
        error_log: Log = base::log::default(),
        /// It as the directives of the level make it.
        error_log_written: ErrorLog = ErrorLog::default(),
    }
}

settings! {
    /// The core's settings as written in a server, or inherited.
    CoreSrvDraft,
    /// The core's settings of a server.
    CoreSrv {
        /// `client_header_timeout`, milliseconds for the whole head.
        client_header_timeout: u64 = 60_000,
        /// `client_header_buffer_size`, bytes.
        client_header_buffer_size: usize = 1024,
        /// `large_client_header_buffers`: how many.
        large_header_buffers: usize = 4,
        /// `large_client_header_buffers`: bytes of each.
        large_header_buffer_size: usize = 8192,
        /// `max_headers`: fields of a request at most.
        max_headers: usize = 1000,
        ignore_invalid_headers: bool = true,
        underscores_in_headers: bool = false,
        merge_slashes: bool = true,
        /// `handover`: connections move to new workers.
        handover: bool = true,
        /// CONNECT is not refused: some location of the server passes it on.
        allow_connect: bool = false,
    }
}

impl CoreSrv {
    /// The limits of requests' heads.
    pub(crate) fn head_limits(&self) -> Limits {
        Limits {
            header_buffer: self.client_header_buffer_size as u32,
            large_size: self.large_header_buffer_size as u32,
            large_number: self.large_header_buffers as u32,
            max_headers: self.max_headers as u32,
            ignore_invalid: self.ignore_invalid_headers,
            underscores: self.underscores_in_headers,
        }
    }

    /// Bytes of all `large_client_header_buffers`.
    pub(crate) fn large_headers(&self) -> usize {
        self.large_header_buffer_size * self.large_header_buffers
    }
}
