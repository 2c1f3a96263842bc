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
        "A virtual server.",
        core_blocks::server,
    ),
    directive(
        "location",
        C::SERVER.or(C::LOCATION),
        Args::BLOCK.or(Args::T12),
        "",
        "Configuration by request URI.",
        core_blocks::location,
    ),
    directive(
        "limit_except",
        C::LOCATION,
        Args::BLOCK.or(Args::ONE_MORE),
        "",
        "Limits all methods but those named.",
        core_blocks::limit_except,
    ),
    directive(
        "listen",
        C::SERVER,
        Args::ONE_MORE,
        "*:80 | *:8000",
        "An address and port, or a socket path, that the server answers on.",
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
        "The folder that URIs are files in.",
        core_blocks::root,
    ),
    directive(
        "alias",
        C::LOCATION,
        Args::T1,
        "",
        "The path that replaces the location's name in a file's path.",
        core_blocks::alias,
    ),
    directive(
        "error_page",
        HSLI,
        Args::TWO_MORE,
        "",
        "The page or location that answers requests that ended with the given statuses.",
        core_pages::error_page,
    ),
    directive(
        "error_log",
        HSL,
        Args::ONE_MORE,
        "logs/error.log error",
        "The log of errors: its file or syslog server, its level, and JSON with `format=json`.",
        core_blocks::error_log,
    ),
    directive(
        "internal",
        C::LOCATION,
        Args::NONE,
        "",
        "The location serves only requests that come from inside the server.",
        |cx, n| value::set_once(&mut cx.loc::<CoreLocDraft>().internal, n, |_| Ok(true)),
    ),
    // The request.
    simple!(
        client_header_timeout,
        HS,
        Args::T1,
        "60s",
        srv.client_header_timeout = set_msec,
        "The timeout for reading a request's head."
    ),
    simple!(
        client_header_buffer_size,
        HS,
        Args::T1,
        "1k",
        srv.client_header_buffer_size = set_size,
        "The first buffer for a request's head."
    ),
    directive(
        "large_client_header_buffers",
        HS,
        Args::T2,
        "4 8k",
        "The number and size of the buffers for a long request head.",
        large_buffers,
    ),
    simple!(
        max_headers,
        HS,
        Args::T1,
        "1000",
        srv.max_headers = set_num_usize,
        "The most header fields of a request."
    ),
    simple!(
        ignore_invalid_headers,
        HS,
        Args::FLAG,
        "on",
        srv.ignore_invalid_headers = set_flag,
        "Drops header fields with invalid names; off refuses the request."
    ),
    simple!(
        underscores_in_headers,
        HS,
        Args::FLAG,
        "off",
        srv.underscores_in_headers = set_flag,
        "Takes underscores in the names of header fields."
    ),
    simple!(
        merge_slashes,
        HS,
        Args::FLAG,
        "on",
        srv.merge_slashes = set_flag,
        "Merges adjacent slashes of a URI into one."
    ),
    simple!(
        client_max_body_size,
        HSL,
        Args::T1,
        "1m",
        loc.client_max_body_size = set_offset,
        "The largest request body; 0 is no limit."
    ),
    simple!(
        client_body_buffer_size,
        HSL,
        Args::T1,
        "16k",
        loc.client_body_buffer_size = set_size,
        "The length up to which a request body is kept in memory."
    ),
    simple!(
        client_body_timeout,
        HSL,
        Args::T1,
        "60s",
        loc.client_body_timeout = set_msec,
        "The longest pause between two reads of a request body."
    ),
    directive(
        "client_body_in_file_only",
        HSL,
        Args::T1,
        "off",
        "Writes request bodies to files always: on, or clean to remove them after the request.",
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
        "Keeps a request body in memory in one piece."
    ),
    directive(
        "client_body_temp_path",
        HSL,
        Args::T1234,
        "client_body_temp",
        "The folder for request bodies in files.",
        body_temp_path,
    ),
    // Access.
    directive(
        "satisfy",
        HSL,
        Args::T1,
        "all",
        "The access modules that must allow a request: all of them, or any one.",
        |cx, n| set_enum(&mut cx.loc::<CoreLocDraft>().satisfy, n, Satisfy::WORDS),
    ),
    simple!(
        auth_delay,
        HSL,
        Args::T1,
        "0s",
        loc.auth_delay = set_msec,
        "The delay of an answer with 401."
    ),
    // The response.
    directive(
        "default_type",
        HSL,
        Args::T1,
        "text/plain",
        "The MIME type of files whose extension tells none.",
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
        "Sends files by sendfile()."
    ),
    simple!(
        sendfile_max_chunk,
        HSL,
        Args::T1,
        "2m",
        loc.sendfile_max_chunk = set_size,
        "The most bytes that one sendfile() call sends; 0 is no limit."
    ),
    directive(
        "aio",
        HSL,
        Args::T1,
        "auto",
        "The waiting for disks: by the worker (off), or by threads or the ring.",
        aio::aio,
    ),
    simple!(
        aio_write,
        HSL,
        Args::FLAG,
        "on",
        loc.aio_write = set_flag,
        "Writes temporary files in the threads of aio's pool."
    ),
    directive(
        "directio",
        HSL,
        Args::T1,
        "off",
        "Files of this size or larger are read past the page cache.",
        aio::directio,
    ),
    directive(
        "directio_alignment",
        HSL,
        Args::T1,
        "512",
        "The alignment that the disk wants for directio.",
        aio::directio_alignment,
    ),
    directive(
        "output_buffers",
        HSL,
        Args::T2,
        "2 32k",
        "The number and size of the buffers for reading files that do not go by sendfile().",
        aio::output_buffers,
    ),
    simple!(
        read_ahead,
        HSL,
        Args::T1,
        "0",
        loc.read_ahead = set_size,
        "Tells the kernel that files are read from front to back, if it is not 0."
    ),
    simple!(
        tcp_nopush,
        HSL,
        Args::FLAG,
        "off",
        loc.tcp_nopush = set_flag,
        "Sends full packets only while a file is sent (TCP_CORK)."
    ),
    simple!(
        tcp_nodelay,
        HSL,
        Args::FLAG,
        "on",
        loc.tcp_nodelay = set_flag,
        "Sends small packets at once on kept connections (TCP_NODELAY)."
    ),
    simple!(
        send_timeout,
        HSL,
        Args::T1,
        "60s",
        loc.send_timeout = set_msec,
        "The longest pause between two writes to a client."
    ),
    directive(
        "send_lowat",
        HSL,
        Args::T1,
        "0",
        "As in nginx, checked and without effect on Linux, whose kernel has no such setting.",
        |_, n| value::size(n, 0).map(drop),
    ),
    simple!(
        postpone_output,
        HSL,
        Args::T1,
        "1460",
        loc.postpone_output = set_size,
        "Output is held back until this much is there or the response ends."
    ),
    directive(
        "limit_rate",
        HSLI,
        Args::T1,
        "0",
        "The rate of a response, bytes a second.",
        core_blocks::limit_rate,
    ),
    directive(
        "limit_rate_after",
        HSLI,
        Args::T1,
        "0",
        "The bytes of a response that limit_rate spares.",
        core_blocks::limit_rate_after,
    ),
    simple!(
        keepalive_time,
        HSL,
        Args::T1,
        "1h",
        loc.keepalive_time = set_msec,
        "The greatest age of a connection that is kept."
    ),
    directive(
        "keepalive_timeout",
        HSL,
        Args::T12,
        "75s",
        "The time that an idle connection is kept, and the time in the Keep-Alive field.",
        keepalive_timeout,
    ),
    simple!(
        keepalive_min_timeout,
        HSL,
        Args::T1,
        "0",
        loc.keepalive_min_timeout = set_msec,
        "The least time that an idle connection is kept when its worker is leaving."
    ),
    simple!(
        keepalive_requests,
        HSL,
        Args::T1,
        "1000",
        loc.keepalive_requests = set_num,
        "The most requests of a connection."
    ),
    directive(
        "keepalive_disable",
        HSL,
        Args::T12,
        "msie6",
        "Browsers whose connections are not kept.",
        keepalive_disable,
    ),
    directive(
        "lingering_close",
        HSL,
        Args::T1,
        "on",
        "Reads on from the client after the answer, before the close.",
        |cx, n| set_enum(&mut cx.loc::<CoreLocDraft>().lingering_close, n, Lingering::WORDS),
    ),
    simple!(
        lingering_time,
        HSL,
        Args::T1,
        "30s",
        loc.lingering_time = set_msec,
        "The longest time of a lingering close."
    ),
    simple!(
        lingering_timeout,
        HSL,
        Args::T1,
        "5s",
        loc.lingering_timeout = set_msec,
        "The longest wait for data in a lingering close."
    ),
    simple!(
        reset_timedout_connection,
        HSL,
        Args::FLAG,
        "off",
        loc.reset_timedout_connection = set_flag,
        "Resets connections that timed out instead of closing them."
    ),
    simple!(
        post_action,
        HSLI,
        Args::T1,
        "",
        loc.post_action = set_str,
        "The URI or named location that an answered request is passed to inside the server."
    ),
    simple!(
        absolute_redirect,
        HSL,
        Args::FLAG,
        "on",
        loc.absolute_redirect = set_flag,
        "Writes the server's own redirects with scheme and host."
    ),
    simple!(
        server_name_in_redirect,
        HSL,
        Args::FLAG,
        "off",
        loc.server_name_in_redirect = set_flag,
        "Writes the first server_name, not the request's host, into the server's own redirects."
    ),
    simple!(
        port_in_redirect,
        HSL,
        Args::FLAG,
        "on",
        loc.port_in_redirect = set_flag,
        "Writes the server's own redirects with the port."
    ),
    simple!(
        msie_padding,
        HSL,
        Args::FLAG,
        "on",
        loc.msie_padding = set_flag,
        "Pads error pages for MSIE and Chrome to 512 bytes."
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
        "Logs files that are not found."
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
        "Answers an error page's own error by error_page again."
    ),
    simple!(
        chunked_transfer_encoding,
        HSL,
        Args::FLAG,
        "on",
        loc.chunked_transfer_encoding = set_flag,
        "Sends responses of unknown length in chunks."
    ),
    simple!(etag, HSL, Args::FLAG, "on", loc.etag = set_flag, "Answers files with an ETag."),
    directive(
        "if_modified_since",
        HSL,
        Args::T1,
        "exact",
        "The comparison of a file's time with If-Modified-Since.",
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
        "The most ranges of a request; 0 turns ranges off."
    ),
    directive(
        "server_tokens",
        HSL,
        Args::T1,
        "on",
        "The version of the server that responses show.",
        |cx, n| set_enum(&mut cx.loc::<CoreLocDraft>().server_tokens, n, ServerTokens::WORDS),
    ),
    simple!(
        uninitialized_variable_warn,
        REWRITE.or(C::HTTP),
        Args::FLAG,
        "on",
        loc.uninitialized_variable_warn = set_flag,
        "Logs the use of variables that nothing was stored in."
    ),
    simple!(
        subrequest_output_buffer_size,
        HSL,
        Args::T1,
        "4k|8k",
        loc.subrequest_output_buffer_size = set_size,
        "The length up to which a subrequest's response is kept in memory."
    ),
    // Files.
    directive(
        "disable_symlinks",
        HSL,
        Args::T12,
        "off",
        "The symbolic links in a file's path that are refused.",
        core_blocks::disable_symlinks,
    ),
    directive(
        "open_file_cache",
        HSL,
        Args::T12,
        "off",
        "Keeps descriptors and facts of files between requests.",
        core_blocks::open_file_cache,
    ),
    simple!(
        open_file_cache_valid,
        HSL,
        Args::T1,
        "60s",
        loc.open_file_cache_valid = set_sec,
        "The time for which an entry is used without a look at the file."
    ),
    simple!(
        open_file_cache_min_uses,
        HSL,
        Args::T1,
        "1",
        loc.open_file_cache_min_uses = set_num,
        "The number of uses within the inactive time that keeps a descriptor open."
    ),
    simple!(
        open_file_cache_errors,
        HSL,
        Args::FLAG,
        "off",
        loc.open_file_cache_errors = set_flag,
        "Caches errors of opening, too."
    ),
    directive(
        "open_file_cache_events",
        HSL,
        Args::FLAG,
        "off",
        "As in nginx, checked and without effect on Linux, which has no kqueue.",
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
    let doc = "The size of a pool of nginx's: checked, and not needed, since there are none here.";
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
