//! The directives and the variable of HTTP/3, and those of QUIC under it.

use conf::ConfError;
use conf::table::{Args, Directive};
use conf::value::{set_flag, set_num, set_size};
use engine::tls_files::Named;

use crate::channel::Channel;
use crate::core_directives::{HS, directive};
use crate::cx::Cx;
use crate::http3_conf::{Retry, ServerSettings};
use crate::module::{ConfType, Module, Scope};
use crate::vars::VarDef;

/// The module's table.
pub static MODULE: Module = Module {
    name: "http3",
    directives: DIRECTIVES,
    variables: VARIABLES,
    confs: &[ConfType::of::<ServerSettings>(Scope::Server)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive("http3", HS, Args::FLAG, "on", "Enables HTTP/3 on `listen … quic`.", {
        |cx, n| set_flag(&mut cx.srv::<ServerSettings>().enable, n)
    }),
    directive(
        "http3_max_concurrent_streams",
        HS,
        Args::T1,
        "128",
        "The maximum number of concurrent requests (streams) on a connection.",
        |cx, n| set_num(&mut cx.srv::<ServerSettings>().max_streams, n),
    ),
    directive(
        "http3_stream_buffer_size",
        HS,
        Args::T1,
        "64k",
        "The number of body bytes a client may send before the server reads (initial window).",
        |cx, n| set_size(&mut cx.srv::<ServerSettings>().stream_buffer, n),
    ),
    directive(
        "quic_active_connection_id_limit",
        HS,
        Args::T1,
        "2",
        "Accepted without effect: up to five connection ids of a client are kept.",
        |cx, n| set_num(&mut cx.srv::<ServerSettings>().active_ids, n),
    ),
    directive("quic_gso", HS, Args::FLAG, "on", "Sends several datagrams per call (UDP GSO).", {
        |cx, n| set_flag(&mut cx.srv::<ServerSettings>().gso, n)
    }),
    directive(
        "quic_host_key",
        HS,
        Args::T1,
        "",
        "The file with the secret for tokens; by default random, and kept across reloads.",
        |cx, n| {
            let named = Named::of(cx, n)?;
            let key = &mut cx.srv::<ServerSettings>().host_key;
            if key.is_some() {
                return Err(ConfError::directive(n, "is duplicate"));
            }
            *key = Some(named);
            Ok(())
        },
    ),
    directive(
        "quic_retry",
        HS,
        Args::T1,
        "auto",
        "Address validation by Retry before the handshake: on, off, or (Weir's own) auto.",
        |cx, n| {
            let word = n.arg(0)?;
            let retry = match &word.bytes().to_ascii_lowercase()[..] {
                b"on" => Retry::On,
                b"off" => Retry::Off,
                b"auto" => Retry::Auto,
                _ => {
                    let m = "it must be \"on\", \"off\" or \"auto\"";
                    let m = format!("invalid value \"{}\" in \"quic_retry\", {m}", word.lossy());
                    return Err(ConfError::at(word, m));
                }
            };
            let set = &mut cx.srv::<ServerSettings>().retry;
            if set.is_some() {
                return Err(ConfError::directive(n, "is duplicate"));
            }
            *set = Some(retry);
            Ok(())
        },
    ),
];

static VARIABLES: &[VarDef] = &[VarDef::new("http3", |r, out| match &r.client.channel {
    Channel::Http3(stream) => {
        out.extend_from_slice(stream.protocol());
        true
    }
    _ => true,
})];
