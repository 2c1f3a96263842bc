//! The directives and the variable of HTTP/2.

use conf::table::{Args, Contexts as C, Directive};
use conf::value::{set_flag, set_num, set_size};
use conf::{ConfError, Node};

use crate::channel::Channel;
use crate::core_directives::{HS, HSL, directive};
use crate::cx::Cx;
use crate::http2_conf::{CHUNK_MAX, ChunkSize, ServerSettings, WINDOW_MAX};
use crate::module::{ConfType, Module, Scope};
use crate::vars::VarDef;

/// The module's table.
pub static MODULE: Module = Module {
    name: "http2",
    directives: DIRECTIVES,
    variables: VARIABLES,
    confs: &[
        ConfType::of::<ServerSettings>(Scope::Server),
        ConfType::of::<ChunkSize>(Scope::Location),
    ],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive("http2", HS, Args::FLAG, "off", "Enables HTTP/2.", |cx, n| {
        set_flag(&mut cx.srv::<ServerSettings>().enable, n)
    }),
    directive(
        "http2_max_concurrent_streams",
        HS,
        Args::T1,
        "128",
        "The maximum number of concurrent requests (streams) on a connection.",
        |cx, n| set_num(&mut cx.srv::<ServerSettings>().max_streams, n),
    ),
    directive(
        "http2_body_preread_size",
        HS,
        Args::T1,
        "64k",
        "The number of body bytes a client may send before the server reads (initial window).",
        |cx, n| {
            let preread = &mut cx.srv::<ServerSettings>().preread;
            set_size(preread, n)?;
            match preread {
                Some(size) if *size > WINDOW_MAX => {
                    Err(ConfError::at(n.arg(0)?, "the maximum body preread size is 2147483647"))
                }
                _ => Ok(()),
            }
        },
    ),
    directive(
        "http2_chunk_size",
        HSL,
        Args::T1,
        "8k",
        "The maximum size of a DATA frame.",
        |cx, n| {
            let chunk = &mut cx.loc::<ChunkSize>().0;
            set_size(chunk, n)?;
            if *chunk == Some(0) {
                return Err(ConfError::at(n.arg(0)?, "the http2 chunk size cannot be zero"));
            }
            *chunk = chunk.map(|size| size.min(CHUNK_MAX));
            Ok(())
        },
    ),
    directive(
        "http2_recv_buffer_size",
        C::HTTP,
        Args::T1,
        "256k",
        "Accepted without effect: connections share the worker's buffers.",
        check_size,
    ),
    directive(
        "http2_pool_size",
        HS,
        Args::T1,
        "4k",
        "Accepted without effect: there are no memory pools.",
        check_size,
    ),
    directive(
        "http2_streams_index_size",
        HS,
        Args::T1,
        "32",
        "Accepted without effect: there is no such index.",
        |_, n| set_num(&mut None, n),
    ),
    obsolete("http2_max_concurrent_pushes", HS, Args::T1, |_, n| ignored(n, None)),
    obsolete("http2_push", HSL, Args::T1, |_, n| ignored(n, None)),
    obsolete("http2_push_preload", HSL, Args::FLAG, |_, n| ignored(n, None)),
    obsolete("http2_max_requests", HS, Args::T1, |_, n| ignored(n, Some("keepalive_requests"))),
    obsolete("http2_max_field_size", HS, Args::T1, large_buffers),
    obsolete("http2_max_header_size", HS, Args::T1, large_buffers),
    obsolete("http2_recv_timeout", HS, Args::T1, |_, n| ignored(n, Some("client_header_timeout"))),
    obsolete("http2_idle_timeout", HS, Args::T1, |_, n| ignored(n, Some("keepalive_timeout"))),
];

const fn obsolete(
    name: &'static str,
    places: C,
    args: Args,
    set: fn(&mut Cx, &Node) -> Result<(), ConfError>,
) -> Directive<Cx> {
    directive(name, places, args, "", "Obsolete: ignored with a warning.", set)
}

fn large_buffers(_: &mut Cx, n: &Node) -> Result<(), ConfError> {
    ignored(n, Some("large_client_header_buffers"))
}

fn ignored(n: &Node, instead: Option<&str>) -> Result<(), ConfError> {
    let name = n.name.lossy();
    match instead {
        Some(other) => conf::warn(
            &n.name,
            format!("the \"{name}\" directive is obsolete, use the \"{other}\" directive instead"),
        ),
        None => conf::warn(&n.name, format!("the \"{name}\" directive is obsolete, ignored")),
    }
    Ok(())
}

fn check_size(_: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_size(&mut None, n)
}

static VARIABLES: &[VarDef] = &[VarDef::new("http2", |r, out| match &r.client.channel {
    Channel::Http2(stream) => {
        out.extend_from_slice(stream.protocol());
        true
    }
    _ => true,
})];
