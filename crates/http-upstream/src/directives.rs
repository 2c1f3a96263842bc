//! The directives that all proxying modules share, each under its own prefix.
//!
//! A module's configuration contains a [`Draft`] and returns it by [`Shared`]. Its table joins its
//! own list with the [`Group`]s it supports, under the full names that it writes out:
//!
//! ```ignore
//! static DIRECTIVES: &[Directive<Cx>] = conf::join_directives!(OWN, SHARED);
//!
//! const SHARED: &[Directive<Cx>] =
//!     &named(&["tunnel_bind", …], &[Group::<TunnelConf>::CONNECTING]);
//! ```

use std::marker::PhantomData;
use std::rc::Rc;

use bytes::Bytes;

pub use conf::table::named;
use conf::table::{Args, Contexts as C, Directive};
use conf::value::{
    self, set_access, set_bitmask, set_bufs, set_flag, set_msec, set_num, set_offset, set_size,
};
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::Conf;
use upstream::socket::Bind;

use crate::caching::{Caching, directives as cache};
use crate::conf::{Draft, Store, ignore, next};

/// A module configuration with the shared settings.
pub trait Shared: Conf {
    /// The words of `*_next_upstream`.
    const NEXT_UPSTREAM: &[(&str, u64)] = next::GATEWAY_WORDS;
    /// The words of `*_ignore_headers`.
    const IGNORE_HEADERS: &[(&str, u64)] = ignore::WORDS;

    /// The default of `*_temp_path`; empty if the module has no such directive.
    const TEMP_PATH: &str = "";

    /// The shared settings of this level.
    fn shared(&mut self) -> &mut Draft;
}

/// The shared settings at the level of the directive.
pub fn draft<T: Shared>(cx: &mut Cx) -> &mut Draft {
    cx.loc::<T>().shared()
}

/// Groups of shared directives. The names in them lack the module's prefix; the module passes the
/// full names to [`named`].
pub struct Group<T>(PhantomData<T>);

pub(crate) const fn shared(
    name: &'static str,
    args: Args,
    default: &'static str,
    doc: &'static str,
    set: fn(&mut Cx, &Node) -> Result<(), ConfError>,
) -> Directive<Cx> {
    directive(name, HSL, args, default, doc, set)
}

impl<T: Shared> Group<T> {
    /// Connecting: addresses, timeouts, the header buffer, retries; every module has them.
    pub const CONNECTING: &'static [Directive<Cx>] = &[
        shared(
            "_bind",
            Args::T12,
            "off",
            "The local address for upstream connections; `transparent` uses a client's address.",
            set_bind::<T>,
        ),
        shared(
            "_bind_dynamic",
            Args::FLAG,
            "off",
            "Evaluates the address of the `_bind` directive anew for each server that is tried.",
            |cx, n| set_flag(&mut draft::<T>(cx).bind_dynamic, n),
        ),
        shared(
            "_allow_upstream",
            Args::ONE_MORE,
            "",
            "Asks a server only if none of the values is empty or \"0\", for example of \
             $upstream_last_addr; 403 otherwise.",
            set_allow::<T>,
        ),
        shared(
            "_socket_keepalive",
            Args::FLAG,
            "off",
            "Enables TCP keepalive (SO_KEEPALIVE) on upstream connections.",
            |cx, n| set_flag(&mut draft::<T>(cx).socket_keepalive, n),
        ),
        shared(
            "_connect_timeout",
            Args::T1,
            "60s",
            "The timeout for connecting to an upstream server.",
            |cx, n| set_msec(&mut draft::<T>(cx).connect_timeout, n),
        ),
        shared(
            "_send_timeout",
            Args::T1,
            "60s",
            "The timeout between two successive writes of a request.",
            |cx, n| set_msec(&mut draft::<T>(cx).send_timeout, n),
        ),
        shared(
            "_read_timeout",
            Args::T1,
            "60s",
            "The timeout between two successive reads of a response.",
            |cx, n| set_msec(&mut draft::<T>(cx).read_timeout, n),
        ),
        shared(
            "_buffer_size",
            Args::T1,
            "4k|8k",
            "The size of the buffer for response headers, which must fit into it.",
            |cx, n| set_size(&mut draft::<T>(cx).buffer_size, n),
        ),
        shared(
            "_next_upstream",
            Args::ONE_MORE,
            "error timeout",
            "When a request is retried on the next server; `again`: after all, on each once more.",
            set_next_upstream::<T>,
        ),
        shared(
            "_next_upstream_tries",
            Args::T1,
            "0",
            "The maximum number of servers to try; 0 is no limit.",
            |cx, n| set_num(&mut draft::<T>(cx).next_upstream_tries, n),
        ),
        shared(
            "_next_upstream_timeout",
            Args::T1,
            "0",
            "The time limit for trying further servers; 0 is no limit.",
            |cx, n| set_msec(&mut draft::<T>(cx).next_upstream_timeout, n),
        ),
    ];

    /// Socket options.
    pub const SOCKETS: &'static [Directive<Cx>] = &[
        shared(
            "_socket_rcvbuf",
            Args::T1,
            "",
            "The socket receive buffer of upstream connections (SO_RCVBUF).",
            |cx, n| set_size(&mut draft::<T>(cx).socket_rcvbuf, n),
        ),
        shared(
            "_socket_sndbuf",
            Args::T1,
            "",
            "The socket send buffer of upstream connections (SO_SNDBUF).",
            |cx, n| set_size(&mut draft::<T>(cx).socket_sndbuf, n),
        ),
    ];

    /// `*_request_dynamic`
    pub const REQUESTS: &'static [Directive<Cx>] = &[shared(
        "_request_dynamic",
        Args::FLAG,
        "off",
        "Makes the request anew for each server that is tried, so that it can name the server.",
        |cx, n| set_flag(&mut draft::<T>(cx).request_dynamic, n),
    )];

    /// `*_send_lowat`, which has no effect on Linux.
    pub const SEND_LOWAT: &'static [Directive<Cx>] = &[shared(
        "_send_lowat",
        Args::T1,
        "0",
        "Accepted with a warning, without effect, as in nginx on Linux.",
        set_send_lowat::<T>,
    )];

    /// Response fields: forwarded, hidden or ignored; and `*_intercept_errors`.
    pub const FIELDS: &'static [Directive<Cx>] = &[
        shared(
            "_hide_header",
            Args::T1,
            "",
            "A response header field that is not forwarded to the client.",
            add_hidden::<T>,
        ),
        shared(
            "_pass_header",
            Args::T1,
            "",
            "Forwards a response header field that is hidden by default.",
            add_passed::<T>,
        ),
        shared(
            "_ignore_headers",
            Args::ONE_MORE,
            "",
            "Response header fields that are ignored, such as Cache-Control or X-Accel-Redirect.",
            set_ignore_headers::<T>,
        ),
        shared(
            "_intercept_errors",
            Args::FLAG,
            "off",
            "Handles upstream responses with status 300 and above by error_page.",
            |cx, n| set_flag(&mut draft::<T>(cx).intercept_errors, n),
        ),
    ];
}

impl<T: Caching> Group<T> {
    /// Bodies, buffers, temporary files.
    pub const PASSING: &'static [Directive<Cx>] = &[
        shared(
            "_buffering",
            Args::FLAG,
            "on",
            "Buffers responses, so that a slow client does not occupy the upstream.",
            |cx, n| set_flag(&mut draft::<T>(cx).buffering, n),
        ),
        shared(
            "_request_buffering",
            Args::FLAG,
            "on",
            "Reads the whole request body before connecting to an upstream server.",
            |cx, n| set_flag(&mut draft::<T>(cx).request_buffering, n),
        ),
        shared(
            "_ignore_client_abort",
            Args::FLAG,
            "off",
            "Continues an upstream exchange after the client has disconnected.",
            |cx, n| set_flag(&mut draft::<T>(cx).ignore_client_abort, n),
        ),
        shared(
            "_pass_request_headers",
            Args::FLAG,
            "on",
            "Forwards the client's request header fields.",
            |cx, n| set_flag(&mut draft::<T>(cx).pass_request_headers, n),
        ),
        shared(
            "_pass_request_body",
            Args::FLAG,
            "on",
            "Forwards the client's request body.",
            |cx, n| set_flag(&mut draft::<T>(cx).pass_request_body, n),
        ),
        shared(
            "_force_ranges",
            Args::FLAG,
            "off",
            "Serves byte ranges from responses regardless of their Accept-Ranges.",
            |cx, n| set_flag(&mut draft::<T>(cx).force_ranges, n),
        ),
        shared(
            "_buffers",
            Args::T2,
            "8 4k|8k",
            "The number and size of the buffers for one response.",
            |cx, n| set_bufs(&mut draft::<T>(cx).buffers, n),
        ),
        shared(
            "_busy_buffers_size",
            Args::T1,
            "8k|16k",
            "The maximum number of buffered bytes that are being sent to the client at a time.",
            |cx, n| set_size(&mut draft::<T>(cx).busy_buffers_size, n),
        ),
        shared(
            "_max_temp_file_size",
            Args::T1,
            "1024m",
            "The maximum size of a response's temporary file; 0 uses no files.",
            |cx, n| set_size(&mut draft::<T>(cx).max_temp_file_size, n),
        ),
        shared(
            "_temp_file_write_size",
            Args::T1,
            "64k",
            "The maximum number of bytes per write to a temporary file.",
            |cx, n| set_size(&mut draft::<T>(cx).temp_file_write_size, n),
        ),
        shared(
            "_temp_path",
            Args::T1234,
            T::TEMP_PATH,
            "The directory for temporary files of responses, with its levels.",
            set_temp_path::<T>,
        ),
        shared(
            "_store",
            Args::T1,
            "off",
            "Stores responses as files: on, off, or the path of the file.",
            set_store::<T>,
        ),
        shared(
            "_store_access",
            Args::T123,
            "user:rw",
            "The permissions of files written by the `_store` directive.",
            |cx, n| set_access(&mut draft::<T>(cx).store_access, n),
        ),
        shared(
            "_limit_rate",
            Args::T1,
            "0",
            "The rate limit for reading a response, in bytes per second; 0 is no limit.",
            set_limit_rate::<T>,
        ),
    ];

    /// All groups of modules that forward and cache responses.
    pub const CACHED: &'static [&'static [Directive<Cx>]] = &[
        Self::CONNECTING,
        Self::REQUESTS,
        Self::SOCKETS,
        Self::FIELDS,
        Self::PASSING,
        Self::CACHING,
    ];

    /// The cache, for modules that have one.
    pub const CACHING: &'static [Directive<Cx>] = &[
        shared(
            "_cache",
            Args::T1,
            "off",
            "Caches responses in the zone of this name.",
            cache::set_cache::<T>,
        ),
        directive(
            "_cache_path",
            C::HTTP,
            Args::TWO_MORE,
            "",
            "Defines a cache: its directory, its zone (keys_zone) and its limits.",
            cache::cache_path::<T>,
        ),
        shared("_cache_key", Args::T1, "", "The cache key.", cache::set_key::<T>),
        shared(
            "_cache_methods",
            Args::ONE_MORE,
            "GET HEAD",
            "The request methods whose responses are cached.",
            cache::set_methods::<T>,
        ),
        shared(
            "_cache_min_uses",
            Args::T1,
            "1",
            "Caches a response once it has been requested this number of times.",
            |cx, n| set_num(&mut cache::draft::<T>(cx).min_uses, n),
        ),
        shared(
            "_cache_valid",
            Args::ONE_MORE,
            "",
            "The caching time by status, for responses without their own lifetime.",
            cache::set_valid::<T>,
        ),
        shared(
            "_cache_bypass",
            Args::ONE_MORE,
            "",
            "Skips the cache lookup if any of the values is neither empty nor \"0\".",
            cache::set_bypass::<T>,
        ),
        shared(
            "_no_cache",
            Args::ONE_MORE,
            "",
            "Does not store the response if any of the values is neither empty nor \"0\".",
            cache::set_no_cache::<T>,
        ),
        shared(
            "_cache_purge",
            Args::ONE_MORE,
            "",
            "The request purges its cache entry if any of the values is neither empty nor \"0\".",
            cache::set_purge::<T>,
        ),
        shared(
            "_cache_lock",
            Args::FLAG,
            "off",
            "On a miss, only one request per key goes upstream; the others wait for its response.",
            |cx, n| set_flag(&mut cache::draft::<T>(cx).lock, n),
        ),
        shared(
            "_cache_lock_timeout",
            Args::T1,
            "5s",
            "The maximum wait for another request's fetch; then goes upstream, uncached.",
            |cx, n| set_msec(&mut cache::draft::<T>(cx).lock_timeout, n),
        ),
        shared(
            "_cache_lock_age",
            Args::T1,
            "5s",
            "If the fetch is not complete after this time, one more request may go upstream.",
            |cx, n| set_msec(&mut cache::draft::<T>(cx).lock_age, n),
        ),
        shared(
            "_cache_use_stale",
            Args::ONE_MORE,
            "off",
            "The conditions under which a stale response is served: error, timeout, updating, …",
            cache::set_use_stale::<T>,
        ),
        shared(
            "_cache_background_update",
            Args::FLAG,
            "off",
            "Updates an expired entry in the background while the stale response is served.",
            |cx, n| set_flag(&mut cache::draft::<T>(cx).background_update, n),
        ),
        shared(
            "_cache_revalidate",
            Args::FLAG,
            "off",
            "Revalidates stale responses with conditional requests.",
            |cx, n| set_flag(&mut cache::draft::<T>(cx).revalidate, n),
        ),
        shared(
            "_cache_max_range_offset",
            Args::T1,
            "",
            "Range requests that start at or beyond this offset bypass the cache.",
            |cx, n| set_offset(&mut cache::draft::<T>(cx).max_range_offset, n),
        ),
        shared(
            "_cache_rfc9111",
            Args::FLAG,
            "off",
            "Caches by the rules of RFC 9111 rather than nginx's.",
            |cx, n| set_flag(&mut cache::draft::<T>(cx).rfc9111, n),
        ),
    ];
}

/// `*_next_upstream`
///
/// # Errors
/// `invalid value`.
pub(crate) fn set_next_upstream<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_bitmask(&mut draft::<T>(cx).next_upstream, n, T::NEXT_UPSTREAM)
}

/// `*_ignore_headers`
///
/// # Errors
/// `invalid value`.
pub(crate) fn set_ignore_headers<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_bitmask(&mut draft::<T>(cx).ignore_headers, n, T::IGNORE_HEADERS)
}

/// `*_hide_header`
///
/// # Errors
/// None of its own.
pub(crate) fn add_hidden<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    add_name(&mut draft::<T>(cx).hide_headers, n)
}

/// `*_pass_header`
///
/// # Errors
/// None of its own.
pub(crate) fn add_passed<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    add_name(&mut draft::<T>(cx).pass_headers, n)
}

fn add_name(list: &mut Option<Vec<Bytes>>, n: &Node) -> Result<(), ConfError> {
    list.get_or_insert_default().push(n.arg(0)?.text.clone());
    Ok(())
}

/// `*_send_lowat`: checked, and without effect on Linux, which ignores SO_SNDLOWAT.
///
/// # Errors
/// `is duplicate`, `invalid value`.
pub(crate) fn set_send_lowat<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    value::set_size(&mut draft::<T>(cx).send_lowat, n)?;
    let name = n.name.lossy();
    conf::warn(&n.name, format!("\"{name}\" is not supported, ignored"));
    Ok(())
}

/// `*_temp_path`
///
/// # Errors
/// `is duplicate`, `invalid value`.
pub(crate) fn set_temp_path<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let path = http::core_directives::temp_path(cx, n)?;
    cx.need_folder(&path);
    value::set_once(&mut draft::<T>(cx).temp_path, n, |_| Ok(path))
}

/// `*_bind address [transparent] | off`
///
/// # Errors
/// `is duplicate`, `invalid address`, `invalid parameter`.
pub(crate) fn set_bind<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if draft::<T>(cx).bind.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let bind = Bind::parse(cx, n)?;
    draft::<T>(cx).bind = Some(bind);
    Ok(())
}

/// `*_allow_upstream VALUE …`
///
/// # Errors
/// `is duplicate`, and errors in the values.
pub(crate) fn set_allow<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let values = n.args.iter().map(|word| cx.template(word)).collect::<Result<Rc<[_]>, _>>()?;
    value::set_once(&mut draft::<T>(cx).allow, n, |_| Ok(values))
}

/// `*_store on | off | PATH`
///
/// # Errors
/// `is duplicate`, `is incompatible with`, and errors in the path.
pub(crate) fn set_store<T: Caching>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if draft::<T>(cx).store.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    if n.arg(0)?.bytes() != b"off" && cx.loc::<T>().caching().is_on() {
        let m = format!("is incompatible with \"{}_cache\"", T::PREFIX);
        return Err(ConfError::directive(n, m));
    }
    let word = n.arg(0)?;
    let store = match word.bytes() {
        b"off" => Store::Off,
        b"on" => Store::Mapped,
        _ => Store::Path(cx.template(word)?),
    };
    draft::<T>(cx).store = Some(store);
    Ok(())
}

/// `*_limit_rate`
///
/// # Errors
/// `is duplicate`, `invalid value`.
pub fn set_limit_rate<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if draft::<T>(cx).limit_rate.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let word = n.arg(0)?;
    let t = cx.template(word)?;
    if t.as_const().is_some_and(|c| value::parse_size(c).is_none()) {
        return Err(ConfError::directive(n, "invalid value"));
    }
    draft::<T>(cx).limit_rate = Some(t);
    Ok(())
}
