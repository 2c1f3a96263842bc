//! Directives that all modules have which pass requests on, each under its own prefix.
//!
//! A module's configuration keeps a [`Draft`] and says so by [`Shared`]; its table is joined of its
//! own list and of those groups here that it has:
//!
//! ```ignore
//! static DIRECTIVES: &[Directive<Cx>] = http::join_directives!(
//!     OWN,
//!     http::upstream_directives!("proxy", ProxyConf, connecting),
//!     http::upstream_directives!("proxy", ProxyConf, passing),
//! );
//! ```

use ::upstream::socket::{Bind, LocalAddress, local_addr};
use bytes::Bytes;
use conf::table::Directive;
use conf::value::{self, set_bitmask};
use conf::{ConfError, Node};

use super::conf::{Draft, ignore, next};
use super::store::Store;
use crate::cache::Caching;
use crate::cx::Cx;
use crate::module::Conf;

/// A configuration that holds the shared settings.
pub trait Shared: Conf {
    /// The words of `*_next_upstream`.
    const NEXT_UPSTREAM: &[(&str, u64)] = next::GATEWAY_WORDS;
    /// The words of `*_ignore_headers`.
    const IGNORE_HEADERS: &[(&str, u64)] = ignore::WORDS;

    /// Where the shared settings are.
    fn shared(&mut self) -> &mut Draft;
}

/// The shared settings at the level of the directive.
pub fn draft<T: Shared>(cx: &mut Cx) -> &mut Draft {
    cx.loc::<T>().shared()
}

/// Joins lists of directives; `N` is the sum of their lengths.
///
/// # Panics
/// At compile time, where it is not.
pub const fn join<const N: usize>(lists: &[&[Directive<Cx>]]) -> [Directive<Cx>; N] {
    let mut all = [lists[0][0]; N];
    let (mut filled, mut list) = (0, 0);
    while list < lists.len() {
        let mut i = 0;
        while i < lists[list].len() {
            all[filled] = lists[list][i];
            filled += 1;
            i += 1;
        }
        list += 1;
    }
    assert!(filled == N, "the lists have another length");
    all
}

/// Joins constant lists of directives to one.
#[macro_export]
macro_rules! join_directives {
    ($($list:expr),+ $(,)?) => {
        &$crate::upstream::directives::join::<{ 0 $(+ $list.len())+ }>(&[$($list),+])
    };
}

/// The directives of a group, under a prefix: a constant slice of [`Directive`].
///
/// - `connecting`: addresses, times, the first buffer, other servers; every module has it.
/// - `sockets`: buffers of the kernel.
/// - `send_lowat`
/// - `fields`: what of a response's head is passed on or heeded, and `*_intercept_errors`.
/// - `passing`: bodies, buffers, files.
/// - `caching`: the cache, of modules that have one ([`crate::cache::Caching`]).
#[macro_export]
macro_rules! upstream_directives {
    (@one $prefix:literal, $name:literal, $args:expr, $default:expr, $doc:literal, $set:expr) => {
        $crate::core_directives::directive(
            concat!($prefix, $name),
            $crate::core_directives::HSL,
            $args,
            $default,
            $doc,
            $set,
        )
    };
    (@value $prefix:literal, $conf:ty, $name:literal, $args:expr, $default:expr,
     $field:ident = $set:ident, $doc:literal) => {
        $crate::upstream_directives!(@one $prefix, $name, $args, $default, $doc, |cx, n| {
            ::conf::value::$set(
                &mut $crate::upstream::directives::draft::<$conf>(cx).$field,
                n,
            )
        })
    };
    (@call $prefix:literal, $conf:ty, $name:literal, $args:expr, $default:expr,
     $set:ident, $doc:literal) => {
        $crate::upstream_directives!(
            @one $prefix, $name, $args, $default, $doc,
            $crate::upstream::directives::$set::<$conf>
        )
    };
    ($prefix:literal, $conf:ty, connecting) => {{
        use ::conf::table::Args;
        use $crate::upstream_directives as d;
        const LIST: &[::conf::table::Directive<$crate::cx::Cx>] = &[
            d!(@call $prefix, $conf, "_bind", Args::T12, "off", set_bind,
               "The local address of connections to servers."),
            d!(@value $prefix, $conf, "_socket_keepalive", Args::FLAG, "off",
               socket_keepalive = set_flag, "TCP keepalive on connections to servers."),
            d!(@value $prefix, $conf, "_connect_timeout", Args::T1, "60s",
               connect_timeout = set_msec, "How long a connection may take to be made."),
            d!(@value $prefix, $conf, "_send_timeout", Args::T1, "60s",
               send_timeout = set_msec, "How long the server may take nothing of a request."),
            d!(@value $prefix, $conf, "_read_timeout", Args::T1, "60s",
               read_timeout = set_msec, "How long the server may send nothing of a response."),
            d!(@value $prefix, $conf, "_buffer_size", Args::T1, "4k|8k",
               buffer_size = set_size, "How long the head of a response may be."),
            d!(@call $prefix, $conf, "_next_upstream", Args::ONE_MORE, "error timeout",
               set_next_upstream, "When a request is passed to the next server."),
            d!(@value $prefix, $conf, "_next_upstream_tries", Args::T1, "0",
               next_upstream_tries = set_num, "How many servers are tried; 0 is no limit."),
            d!(@value $prefix, $conf, "_next_upstream_timeout", Args::T1, "0",
               next_upstream_timeout = set_msec,
               "How long other servers are tried; 0 is no limit."),
        ];
        LIST
    }};
    ($prefix:literal, $conf:ty, sockets) => {{
        use ::conf::table::Args;
        use $crate::upstream_directives as d;
        const LIST: &[::conf::table::Directive<$crate::cx::Cx>] = &[
            d!(@value $prefix, $conf, "_socket_rcvbuf", Args::T1, "",
               socket_rcvbuf = set_size, "The receive buffer of connections to servers."),
            d!(@value $prefix, $conf, "_socket_sndbuf", Args::T1, "",
               socket_sndbuf = set_size, "The send buffer of connections to servers."),
        ];
        LIST
    }};
    ($prefix:literal, $conf:ty, send_lowat) => {{
        use ::conf::table::Args;
        use $crate::upstream_directives as d;
        const LIST: &[::conf::table::Directive<$crate::cx::Cx>] = &[
            d!(@call $prefix, $conf, "_send_lowat", Args::T1, "0", set_send_lowat,
               "Warned of, as in nginx: Linux has no such setting of sockets."),
        ];
        LIST
    }};
    ($prefix:literal, $conf:ty, fields) => {{
        use ::conf::table::Args;
        use $crate::upstream_directives as d;
        const LIST: &[::conf::table::Directive<$crate::cx::Cx>] = &[
            d!(@call $prefix, $conf, "_hide_header", Args::T1, "", add_hidden,
               "A field of responses that is not passed on."),
            d!(@call $prefix, $conf, "_pass_header", Args::T1, "", add_passed,
               "A field of responses that is passed on although it is usually hidden."),
            d!(@call $prefix, $conf, "_ignore_headers", Args::ONE_MORE, "",
               set_ignore_headers, "Fields of responses that have no effect on us."),
            d!(@value $prefix, $conf, "_intercept_errors", Args::FLAG, "off",
               intercept_errors = set_flag,
               "Whether error_page answers for the server's errors."),
        ];
        LIST
    }};
    ($prefix:literal, $conf:ty, passing) => {{
        use ::conf::table::Args;
        use $crate::upstream_directives as d;
        const LIST: &[::conf::table::Directive<$crate::cx::Cx>] = &[
            d!(@value $prefix, $conf, "_buffering", Args::FLAG, "on",
               buffering = set_flag, "Whether responses are read ahead of a slow client."),
            d!(@value $prefix, $conf, "_request_buffering", Args::FLAG, "on",
               request_buffering = set_flag,
               "Whether a request's body is read before a server is asked."),
            d!(@value $prefix, $conf, "_ignore_client_abort", Args::FLAG, "off",
               ignore_client_abort = set_flag,
               "Whether an exchange goes on when the client is gone."),
            d!(@value $prefix, $conf, "_pass_request_headers", Args::FLAG, "on",
               pass_request_headers = set_flag, "Whether the client's fields are passed on."),
            d!(@value $prefix, $conf, "_pass_request_body", Args::FLAG, "on",
               pass_request_body = set_flag, "Whether the client's body is passed on."),
            d!(@value $prefix, $conf, "_force_ranges", Args::FLAG, "off",
               force_ranges = set_flag,
               "Whether ranges are taken from responses whatever these say of ranges."),
            d!(@value $prefix, $conf, "_buffers", Args::T2, "8 4k|8k", buffers = set_bufs,
               "How much is read ahead of a slow client: number and size of buffers."),
            d!(@value $prefix, $conf, "_busy_buffers_size", Args::T1, "8k|16k",
               busy_buffers_size = set_size,
               "How much of a response is given to the client at once."),
            d!(@value $prefix, $conf, "_max_temp_file_size", Args::T1, "1024m",
               max_temp_file_size = set_size,
               "How much of a response that fits no buffer goes to a file; 0 uses no files."),
            d!(@value $prefix, $conf, "_temp_file_write_size", Args::T1, "8k|16k",
               temp_file_write_size = set_size,
               "How much of a response goes to a file at once."),
            d!(@call $prefix, $conf, "_temp_path", Args::T1234,
               concat!($prefix, "_temp 1 2"), set_temp_path,
               "The folder for responses in files."),
            d!(@call $prefix, $conf, "_store", Args::T1, "off", set_store,
               "Whether responses are kept as files: on, off, or the path of the file."),
            d!(@value $prefix, $conf, "_store_access", Args::T123, "user:rw",
               store_access = set_access, "The permissions of files that responses are kept in."),
            d!(@call $prefix, $conf, "_limit_rate", Args::T1, "0", set_limit_rate,
               "How fast a response is read, bytes a second; 0 is no limit."),
        ];
        LIST
    }};
    (@kept $prefix:literal, $conf:ty, $name:literal, $args:expr, $default:expr,
     $field:ident = $set:ident, $doc:literal) => {
        $crate::upstream_directives!(@one $prefix, $name, $args, $default, $doc, |cx, n| {
            ::conf::value::$set(&mut $crate::cache::directives::draft::<$conf>(cx).$field, n)
        })
    };
    (@cache $prefix:literal, $conf:ty, $name:literal, $args:expr, $default:expr,
     $set:ident, $doc:literal) => {
        $crate::upstream_directives!(
            @one $prefix, $name, $args, $default, $doc,
            $crate::cache::directives::$set::<$conf>
        )
    };
    ($prefix:literal, $conf:ty, caching) => {{
        use ::conf::table::{Args, Contexts};
        use $crate::upstream_directives as d;
        const LIST: &[::conf::table::Directive<$crate::cx::Cx>] = &[
            d!(@cache $prefix, $conf, "_cache", Args::T1, "off", set_cache,
               "The cache that keeps responses, by the name of its zone."),
            $crate::core_directives::directive(
                concat!($prefix, "_cache_path"), Contexts::HTTP, Args::TWO_MORE, "",
                "A cache: its folder, its zone (keys_zone), and its limits.",
                $crate::cache::directives::cache_path::<$conf>,
            ),
            d!(@cache $prefix, $conf, "_cache_key", Args::T1, "", set_key,
               "What responses are kept by."),
            d!(@cache $prefix, $conf, "_cache_methods", Args::ONE_MORE, "GET HEAD",
               set_methods, "Methods whose responses are kept."),
            d!(@kept $prefix, $conf, "_cache_min_uses", Args::T1, "1", min_uses = set_num,
               "How often a response must have been asked for to be kept."),
            d!(@cache $prefix, $conf, "_cache_valid", Args::ONE_MORE, "", set_valid,
               "How long responses are fresh whose fields do not say, by status."),
            d!(@cache $prefix, $conf, "_cache_bypass", Args::ONE_MORE, "", set_bypass,
               "Values of which one, if it is not empty or 0, asks the server anyway."),
            d!(@cache $prefix, $conf, "_no_cache", Args::ONE_MORE, "", set_no_cache,
               "Values of which one, if it is not empty or 0, keeps the response from being kept."),
            d!(@cache $prefix, $conf, "_cache_purge", Args::ONE_MORE, "", set_purge,
               "Values of which one, if it is not empty or 0, makes the request one that purges."),
            d!(@kept $prefix, $conf, "_cache_lock", Args::FLAG, "off", lock = set_flag,
               "Whether one request at a time fetches what is not there, and others wait for it."),
            d!(@kept $prefix, $conf, "_cache_lock_timeout", Args::T1, "5s",
               lock_timeout = set_msec,
               "How long a request waits for another before it asks the server by itself."),
            d!(@kept $prefix, $conf, "_cache_lock_age", Args::T1, "5s", lock_age = set_msec,
               "How long a request may fetch before another may do so, too."),
            d!(@cache $prefix, $conf, "_cache_use_stale", Args::ONE_MORE, "off",
               set_use_stale, "When what is not fresh any more is served all the same."),
            d!(@kept $prefix, $conf, "_cache_background_update", Args::FLAG, "off",
               background_update = set_flag,
               "Whether what is not fresh is fetched anew behind the client's back."),
            d!(@kept $prefix, $conf, "_cache_revalidate", Args::FLAG, "off",
               revalidate = set_flag,
               "Whether the server is asked if what is not fresh has changed (If-None-Match)."),
            d!(@kept $prefix, $conf, "_cache_max_range_offset", Args::T1, "",
               max_range_offset = set_offset,
               "Where a range may begin for which the whole response is fetched and kept."),
            d!(@kept $prefix, $conf, "_cache_rfc9111", Args::FLAG, "off", rfc9111 = set_flag,
               "Whether RFC 9111 says what is kept, served and invalidated, instead of nginx."),
        ];
        LIST
    }};
}

/// `*_next_upstream`
///
/// # Errors
/// `invalid value`.
pub fn set_next_upstream<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_bitmask(&mut draft::<T>(cx).next_upstream, n, T::NEXT_UPSTREAM)
}

/// `*_ignore_headers`
///
/// # Errors
/// `invalid value`.
pub fn set_ignore_headers<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_bitmask(&mut draft::<T>(cx).ignore_headers, n, T::IGNORE_HEADERS)
}

/// `*_hide_header`
///
/// # Errors
/// None of its own.
pub fn add_hidden<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    add_name(&mut draft::<T>(cx).hide_headers, n)
}

/// `*_pass_header`
///
/// # Errors
/// None of its own.
pub fn add_passed<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    add_name(&mut draft::<T>(cx).pass_headers, n)
}

fn add_name(list: &mut Option<Vec<Bytes>>, n: &Node) -> Result<(), ConfError> {
    list.get_or_insert_default().push(n.arg(0)?.text.clone());
    Ok(())
}

/// `*_send_lowat`: Linux has no such option of sockets.
///
/// # Errors
/// `is duplicate`, `invalid value`.
pub fn set_send_lowat<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    value::set_size(&mut draft::<T>(cx).send_lowat, n)?;
    let name = n.name.lossy();
    conf::warn(&n.name, format!("\"{name}\" is not supported, ignored"));
    Ok(())
}

/// `*_temp_path`
///
/// # Errors
/// `is duplicate`, `invalid value`.
pub fn set_temp_path<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let path = crate::core_directives::temp_path(cx, n)?;
    cx.need_folder(&path);
    value::set_once(&mut draft::<T>(cx).temp_path, n, |_| Ok(path))
}

/// `*_bind address [transparent] | off`
///
/// # Errors
/// `is duplicate`, `invalid address`, `invalid parameter`.
pub fn set_bind<T: Shared>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if draft::<T>(cx).bind.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let word = n.arg(0)?;
    let bind = match word.bytes() {
        b"off" if n.args.len() == 1 => Bind::Off,
        _ => {
            let address = local(cx, word)?;
            let transparent = match n.args.get(1) {
                None => false,
                Some(w) if w.bytes() == b"transparent" => true,
                Some(w) => {
                    let m = format!("invalid parameter \"{}\"", w.lossy());
                    return Err(ConfError::at(w, m));
                }
            };
            Bind::To { address, transparent }
        }
    };
    draft::<T>(cx).bind = Some(bind);
    Ok(())
}

fn local(cx: &mut Cx, word: &conf::Word) -> Result<LocalAddress, ConfError> {
    let t = cx.template(word)?;
    let Some(text) = t.as_const() else { return Ok(LocalAddress::Template(t)) };
    local_addr(text)
        .map(LocalAddress::Addr)
        .ok_or_else(|| ConfError::at(word, format!("invalid address \"{}\"", word.lossy())))
}

/// `*_store on | off | PATH`
///
/// # Errors
/// `is duplicate`, `is incompatible with`, and what is wrong with the path.
pub fn set_store<T: Caching>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
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
