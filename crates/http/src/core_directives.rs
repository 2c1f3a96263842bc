//! The core module's directive table: settings that are one value each. Blocks, `listen`, names and
//! pages have files of their own.

pub use conf::table::directive;
use conf::table::{Args, Contexts as C, Directive, no_table};
use conf::value::{
    self, set_enum, set_flag, set_msec, set_num, set_offset, set_sec, set_size, set_str,
};
use conf::{ConfError, Node};
use engine::TempPath;

use crate::core_conf::{
    CoreLocDraft, CoreSrvDraft, IfModifiedSince, InFileOnly, KeepaliveDisable, Lingering, Satisfy,
    ServerTokens,
};
use crate::cx::Cx;
use crate::module::{ConfType, Module, Scope};
use crate::{aio, core_blocks, core_listen, core_pages, core_vars};

/// `http`, `server` and `location`.
pub const HSL: C = C::HTTP.or(C::SERVER).or(C::LOCATION);
/// `http` and `server`.
pub const HS: C = C::HTTP.or(C::SERVER);
/// `http`, `server`, `location` and `if` in a location.
pub const HSLI: C = HSL.or(C::IF_LOCATION);
/// `server`, `location` and `if` in either.
pub const REWRITE: C = C::SERVER.or(C::LOCATION).or(C::IF_SERVER).or(C::IF_LOCATION);

/// One-value settings: which draft, which field, which reader.
macro_rules! simple {
    ($name:ident, $cx:expr, $args:expr, $default:literal,
     loc.$field:ident = $set:ident, $doc:literal) => {
        directive(stringify!($name), $cx, $args, $default, $doc, |cx, n| {
            $set(&mut cx.loc::<CoreLocDraft>().$field, n)
        })
    };
    ($name:ident, $cx:expr, $args:expr, $default:literal,
     srv.$field:ident = $set:ident, $doc:literal) => {
        directive(stringify!($name), $cx, $args, $default, $doc, |cx, n| {
            $set(&mut cx.srv::<CoreSrvDraft>().$field, n)
        })
    };
}

/// The engine's own module: first in every list.
pub static MODULE: Module = Module {
    name: "core",
    directives: DIRECTIVES,
    variables: core_vars::VARIABLES,
    confs: &[
        ConfType::of::<CoreSrvDraft>(Scope::Server),
        ConfType::of::<CoreLocDraft>(Scope::Location),
    ],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    // Blocks and names.
    directive(
        "server",
        C::HTTP,
        Args::BLOCK.or(Args::NONE),
        "",
        "A virtual server, selected by `listen` and `server_name`.",
        core_blocks::server,
    ),
    directive(
        "location",
        C::SERVER.or(C::LOCATION),
        Args::BLOCK.or(Args::T12),
        "",
        "Settings for requests whose URI matches a prefix or a regular expression.",
        core_blocks::location,
    ),
    directive(
        "limit_except",
        C::LOCATION,
        Args::BLOCK.or(Args::ONE_MORE),
        "",
        "Restricts all methods except the named ones (GET includes HEAD).",
        core_blocks::limit_except,
    ),
    directive(
        "listen",
        C::SERVER,
        Args::ONE_MORE,
        "*:80 | *:8000",
        "The address and port, or unix: path, to listen on, with socket options.",
        core_listen::listen,
    ),
    directive(
        "server_name",
        C::SERVER,
        Args::ONE_MORE,
        "\"\"",
        "Names of the virtual server: exact, wildcard or regular expression.",
        core_blocks::server_name,
    ),
    directive(
        "types",
        HSL,
        Args::BLOCK.or(Args::NONE),
        "text/html html; image/gif gif; image/jpeg jpg;",
        "MIME types by file name extension.",
        core_blocks::types,
    ),
    directive(
        "root",
        HSLI,
        Args::T1,
        "html",
        "The document root: the directory to which URIs are relative.",
        core_blocks::root,
    ),
    directive(
        "alias",
        C::LOCATION,
        Args::T1,
        "",
        "The path that replaces the location's prefix in file names.",
        core_blocks::alias,
    ),
    directive(
        "error_page",
        HSLI,
        Args::TWO_MORE,
        "",
        "The URI or named location that answers requests with these error statuses.",
        core_pages::error_page,
    ),
    directive(
        "error_log",
        HSL,
        Args::ONE_MORE,
        "logs/error.log error",
        "The error log: a file, stderr or syslog, then the level, `json`, `rate=N/s`.",
        core_blocks::error_log,
    ),
    directive(
        "internal",
        C::LOCATION,
        Args::NONE,
        "",
        "Allows internal requests only (error_page, rewrite, X-Accel-Redirect); 404 for others.",
        |cx, n| value::set_once(&mut cx.loc::<CoreLocDraft>().internal, n, |_| Ok(true)),
    ),
    // The request.
    simple!(
        client_header_timeout,
        HS,
        Args::T1,
        "60s",
        srv.client_header_timeout = set_msec,
        "The timeout for receiving all request headers."
    ),
    simple!(
        client_header_buffer_size,
        HS,
        Args::T1,
        "1k",
        srv.client_header_buffer_size = set_size,
        "The size of the first buffer for request headers."
    ),
    directive(
        "large_client_header_buffers",
        HS,
        Args::T2,
        "4 8k",
        "The number and size of the additional buffers for large request headers.",
        large_buffers,
    ),
    simple!(
        max_headers,
        HS,
        Args::T1,
        "1000",
        srv.max_headers = set_num_usize,
        "The maximum number of header fields in a request, else 494."
    ),
    simple!(
        ignore_invalid_headers,
        HS,
        Args::FLAG,
        "on",
        srv.ignore_invalid_headers = set_flag,
        "Drops request header fields with invalid names; off accepts them."
    ),
    simple!(
        underscores_in_headers,
        HS,
        Args::FLAG,
        "off",
        srv.underscores_in_headers = set_flag,
        "Accepts underscores in request header names."
    ),
    simple!(
        merge_slashes,
        HS,
        Args::FLAG,
        "on",
        srv.merge_slashes = set_flag,
        "Merges adjacent slashes in a URI into one."
    ),
    simple!(
        client_max_body_size,
        HSL,
        Args::T1,
        "1m",
        loc.client_max_body_size = set_offset,
        "The maximum request body size, else 413; 0 is no limit."
    ),
    simple!(
        client_body_buffer_size,
        HSL,
        Args::T1,
        "16k",
        loc.client_body_buffer_size = set_size,
        "Request bodies up to this size stay in memory, larger ones go to a temporary file."
    ),
    simple!(
        client_body_timeout,
        HSL,
        Args::T1,
        "60s",
        loc.client_body_timeout = set_msec,
        "The timeout between two successive reads of a request body; 408 after it."
    ),
    directive(
        "client_body_in_file_only",
        HSL,
        Args::T1,
        "off",
        "Always writes request bodies to files: `on` keeps them, `clean` removes them at the end.",
        |cx, n| {
            set_enum(&mut cx.loc::<CoreLocDraft>().client_body_in_file_only, n, InFileOnly::WORDS)
        },
    ),
    simple!(
        client_body_in_single_buffer,
        HSL,
        Args::FLAG,
        "off",
        loc.client_body_in_single_buffer = set_flag,
        "Keeps an in-memory request body in a single buffer."
    ),
    directive(
        "client_body_temp_path",
        HSL,
        Args::T1234,
        "client_body_temp",
        "The directory for request bodies in temporary files, with its levels.",
        body_temp_path,
    ),
    // Access.
    directive(
        "satisfy",
        HSL,
        Args::T1,
        "all",
        "Whether all access modules must allow a request, or any one suffices.",
        |cx, n| set_enum(&mut cx.loc::<CoreLocDraft>().satisfy, n, Satisfy::WORDS),
    ),
    simple!(
        auth_delay,
        HSL,
        Args::T1,
        "0s",
        loc.auth_delay = set_msec,
        "Delays responses with status 401 by this time, against timing attacks."
    ),
    // The response.
    directive(
        "default_type",
        HSL,
        Args::T1,
        "text/plain",
        "The MIME type of files whose extension is not in `types`.",
        |cx, n| {
            let mime = &mut cx.loc::<CoreLocDraft>().default_type;
            value::set_str(mime, n)?;
            *mime = mime.take().map(crate::types::static_type);
            Ok(())
        },
    ),
    simple!(
        sendfile,
        HSLI,
        Args::FLAG,
        "off",
        loc.sendfile = set_flag,
        "Sends files with sendfile(), without copying them to user space."
    ),
    simple!(
        sendfile_max_chunk,
        HSL,
        Args::T1,
        "2m",
        loc.sendfile_max_chunk = set_size,
        "The maximum number of bytes per sendfile() call; 0 is no limit."
    ),
    directive(
        "aio",
        HSL,
        Args::T1,
        "auto",
        "File reads: auto, off (blocking), threads[=POOL], or io_uring.",
        aio::aio,
    ),
    simple!(
        aio_write,
        HSL,
        Args::FLAG,
        "on",
        loc.aio_write = set_flag,
        "Also writes temporary files in the thread pool of `aio threads`."
    ),
    directive(
        "directio",
        HSL,
        Args::T1,
        "off",
        "Reads files of at least this size with O_DIRECT, bypassing the page cache.",
        aio::directio,
    ),
    directive(
        "directio_alignment",
        HSL,
        Args::T1,
        "512",
        "The alignment for O_DIRECT reads, in bytes.",
        aio::directio_alignment,
    ),
    directive(
        "output_buffers",
        HSL,
        Args::T2,
        "2 32k",
        "The number and size of the buffers for files that are sent without sendfile().",
        aio::output_buffers,
    ),
    simple!(
        read_ahead,
        HSL,
        Args::T1,
        "0",
        loc.read_ahead = set_size,
        "If not 0, advises the kernel that files are read sequentially (posix_fadvise)."
    ),
    simple!(
        tcp_nopush,
        HSL,
        Args::FLAG,
        "off",
        loc.tcp_nopush = set_flag,
        "With sendfile, sends headers and file in full packets (TCP_CORK)."
    ),
    simple!(
        tcp_nodelay,
        HSL,
        Args::FLAG,
        "on",
        loc.tcp_nodelay = set_flag,
        "Sends small packets without delay (TCP_NODELAY)."
    ),
    simple!(
        send_timeout,
        HSL,
        Args::T1,
        "60s",
        loc.send_timeout = set_msec,
        "The timeout between two successive writes to the client."
    ),
    directive(
        "send_lowat",
        HSL,
        Args::T1,
        "0",
        "Accepted without effect, as in nginx on Linux, which ignores SO_SNDLOWAT.",
        |_, n| value::size(n, 0).map(drop),
    ),
    simple!(
        postpone_output,
        HSL,
        Args::T1,
        "1460",
        loc.postpone_output = set_size,
        "Sends once at least this much output is ready, or at the end of the response."
    ),
    directive(
        "limit_rate",
        HSLI,
        Args::T1,
        "0",
        "The rate limit for one response, in bytes per second; 0 is no limit.",
        core_blocks::limit_rate,
    ),
    directive(
        "limit_rate_after",
        HSLI,
        Args::T1,
        "0",
        "The number of response bytes sent before limit_rate applies.",
        core_blocks::limit_rate_after,
    ),
    simple!(
        keepalive_time,
        HSL,
        Args::T1,
        "1h",
        loc.keepalive_time = set_msec,
        "The maximum age of a keep-alive connection."
    ),
    directive(
        "keepalive_timeout",
        HSL,
        Args::T12,
        "75s",
        "Closes a connection idle for this long; the second value is sent as Keep-Alive: timeout.",
        keepalive_timeout,
    ),
    simple!(
        keepalive_min_timeout,
        HSL,
        Args::T1,
        "0",
        loc.keepalive_min_timeout = set_msec,
        "On shutdown, keeps idle connections open for at least this time."
    ),
    simple!(
        keepalive_requests,
        HSL,
        Args::T1,
        "1000",
        loc.keepalive_requests = set_num,
        "The maximum number of requests on one connection."
    ),
    directive(
        "keepalive_disable",
        HSL,
        Args::T12,
        "msie6",
        "Disables keep-alive for these browsers: msie6, safari or none.",
        keepalive_disable,
    ),
    directive(
        "lingering_close",
        HSL,
        Args::T1,
        "on",
        "After the response, reads and discards the client's remaining data before closing.",
        |cx, n| set_enum(&mut cx.loc::<CoreLocDraft>().lingering_close, n, Lingering::WORDS),
    ),
    simple!(
        lingering_time,
        HSL,
        Args::T1,
        "30s",
        loc.lingering_time = set_msec,
        "The maximum total time of a lingering close."
    ),
    simple!(
        lingering_timeout,
        HSL,
        Args::T1,
        "5s",
        loc.lingering_timeout = set_msec,
        "The maximum wait for more data in a lingering close."
    ),
    simple!(
        reset_timedout_connection,
        HSL,
        Args::FLAG,
        "off",
        loc.reset_timedout_connection = set_flag,
        "Resets (RST) connections that timed out instead of closing them normally."
    ),
    simple!(
        post_action,
        HSLI,
        Args::T1,
        "",
        loc.post_action = set_str,
        "The URI or named location to which a request goes internally after its response."
    ),
    simple!(
        absolute_redirect,
        HSL,
        Args::FLAG,
        "on",
        loc.absolute_redirect = set_flag,
        "Makes the server's own redirects absolute (scheme and host) rather than relative."
    ),
    simple!(
        server_name_in_redirect,
        HSL,
        Args::FLAG,
        "off",
        loc.server_name_in_redirect = set_flag,
        "Uses the first server_name, not the Host field, in the server's own redirects."
    ),
    simple!(
        port_in_redirect,
        HSL,
        Args::FLAG,
        "on",
        loc.port_in_redirect = set_flag,
        "Includes the port in the server's own absolute redirects."
    ),
    simple!(
        msie_padding,
        HSL,
        Args::FLAG,
        "on",
        loc.msie_padding = set_flag,
        "Pads error pages for MSIE and Chrome to 512 bytes, or they show their own."
    ),
    simple!(
        msie_refresh,
        HSL,
        Args::FLAG,
        "off",
        loc.msie_refresh = set_flag,
        "Sends MSIE a refresh page instead of a redirect."
    ),
    simple!(
        log_not_found,
        HSL,
        Args::FLAG,
        "on",
        loc.log_not_found = set_flag,
        "Writes \"file not found\" errors to the error log."
    ),
    simple!(
        log_subrequest,
        HSL,
        Args::FLAG,
        "off",
        loc.log_subrequest = set_flag,
        "Writes subrequests to the access log."
    ),
    simple!(
        recursive_error_pages,
        HSL,
        Args::FLAG,
        "off",
        loc.recursive_error_pages = set_flag,
        "Applies error_page again to errors of an error page."
    ),
    simple!(
        chunked_transfer_encoding,
        HSL,
        Args::FLAG,
        "on",
        loc.chunked_transfer_encoding = set_flag,
        "Sends HTTP/1.1 responses of unknown length with chunked transfer encoding."
    ),
    simple!(etag, HSL, Args::FLAG, "on", loc.etag = set_flag, "Sends an ETag with static files."),
    directive(
        "if_modified_since",
        HSL,
        Args::T1,
        "exact",
        "How If-Modified-Since is compared: exact, before (not newer), or off.",
        |cx, n| {
            set_enum(&mut cx.loc::<CoreLocDraft>().if_modified_since, n, IfModifiedSince::WORDS)
        },
    ),
    simple!(
        max_ranges,
        HSL,
        Args::T1,
        "",
        loc.max_ranges = set_num_usize,
        "The maximum number of byte ranges in a request; 0 disables ranges."
    ),
    directive(
        "server_tokens",
        HSL,
        Args::T1,
        "on",
        "What Server and error pages show: off (name), on (version), or build (also its name).",
        |cx, n| set_enum(&mut cx.loc::<CoreLocDraft>().server_tokens, n, ServerTokens::WORDS),
    ),
    simple!(
        uninitialized_variable_warn,
        REWRITE.or(C::HTTP),
        Args::FLAG,
        "on",
        loc.uninitialized_variable_warn = set_flag,
        "Logs a warning when an uninitialized variable is used."
    ),
    simple!(
        subrequest_output_buffer_size,
        HSL,
        Args::T1,
        "4k|8k",
        loc.subrequest_output_buffer_size = set_size,
        "The maximum size of a subrequest's response that is kept in memory."
    ),
    // Files.
    directive(
        "disable_symlinks",
        HSL,
        Args::T12,
        "off",
        "Refuses file paths with symbolic links: on, or if_not_owner (link and target differ).",
        core_blocks::disable_symlinks,
    ),
    directive(
        "open_file_cache",
        HSL,
        Args::T12,
        "off",
        "Caches open file descriptors, sizes and modification times: max=N [inactive=TIME].",
        core_blocks::open_file_cache,
    ),
    simple!(
        open_file_cache_valid,
        HSL,
        Args::T1,
        "60s",
        loc.open_file_cache_valid = set_sec,
        "Revalidates a cached entry against the file system after this time."
    ),
    simple!(
        open_file_cache_min_uses,
        HSL,
        Args::T1,
        "1",
        loc.open_file_cache_min_uses = set_num,
        "Keeps a descriptor open after this number of uses within `inactive`."
    ),
    simple!(
        open_file_cache_errors,
        HSL,
        Args::FLAG,
        "off",
        loc.open_file_cache_errors = set_flag,
        "Also caches lookup errors, such as files that do not exist."
    ),
    directive(
        "open_file_cache_events",
        HSL,
        Args::FLAG,
        "off",
        "Accepted without effect, as in nginx on Linux, which has no kqueue.",
        |_, n| value::flag(n, 0).map(drop),
    ),
    // Sizes of nginx's own tables and pools, which have no counterpart here.
    no_table("server_names_hash_bucket_size", C::HTTP),
    no_table("server_names_hash_max_size", C::HTTP),
    no_table("variables_hash_bucket_size", C::HTTP),
    no_table("variables_hash_max_size", C::HTTP),
    no_table("types_hash_bucket_size", HSL),
    no_table("types_hash_max_size", HSL),
    no_pool("connection_pool_size"),
    no_pool("request_pool_size"),
];

const fn no_pool(name: &'static str) -> Directive<Cx> {
    let doc = "Accepted without effect: there are no memory pools.";
    directive(name, HS, Args::T1, "", doc, |_, n| match value::size(n, 0)? {
        0..112 => Err(ConfError::at(n.arg(0)?, "the pool size must be no less than 112")),
        size if size % 16 == 0 => Ok(()),
        _ => Err(ConfError::at(n.arg(0)?, "the pool size must be a multiple of 16")),
    })
}

fn set_num_usize(v: &mut Option<usize>, n: &Node) -> Result<(), ConfError> {
    let mut wide = v.map(|v| v as u64);
    set_num(&mut wide, n)?;
    *v = wide.map(|w| w as usize);
    Ok(())
}

fn large_buffers(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let value::Bufs { num: count, size } = value::bufs(n)?;
    let srv = cx.srv::<CoreSrvDraft>();
    if srv.large_header_buffers.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    srv.large_header_buffers = Some(count);
    srv.large_header_buffer_size = Some(size);
    Ok(())
}

fn body_temp_path(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let path = temp_path(cx, n)?;
    value::set_once(&mut cx.loc::<CoreLocDraft>().client_body_temp_path, n, |_| Ok(path))
}

/// A folder for temporary files: its path, and the digits of the folders' names in it.
///
/// # Errors
/// `invalid value` for a level that is not 1, 2 or 3.
pub fn temp_path(cx: &Cx, n: &Node) -> Result<TempPath, ConfError> {
    let path = cx.env.path(n.arg(0)?.bytes());
    let mut levels = [0u8; 3];
    for (level, word) in levels.iter_mut().zip(&n.args[1..]) {
        *level = match word.bytes() {
            [digit @ b'1'..=b'3'] => digit - b'0',
            _ => return Err(ConfError::directive(n, "invalid value")),
        };
    }
    Ok(TempPath::named(path, levels))
}

fn keepalive_timeout(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let timeout = value::msec(n, 0)?;
    let header = if n.args.len() == 2 { value::sec(n, 1)? } else { 0 };
    let loc = cx.loc::<CoreLocDraft>();
    if loc.keepalive_timeout.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    loc.keepalive_timeout = Some(timeout);
    loc.keepalive_header = Some(header);
    Ok(())
}

fn keepalive_disable(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let mut v = KeepaliveDisable::default();
    for w in &n.args {
        match w.bytes() {
            b"none" => v = KeepaliveDisable::default(),
            b"msie6" => v.msie6 = true,
            b"safari" => v.safari = true,
            _ => return Err(ConfError::at(w, format!("invalid value \"{}\"", w.lossy()))),
        }
    }
    let loc = cx.loc::<CoreLocDraft>();
    if loc.keepalive_disable.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    loc.keepalive_disable = Some(v);
    Ok(())
}
