//! The core's directives.

use conf::table::{Args, Contexts as C, Directive, directive, join, no_table};
use conf::value::{set_flag, set_msec, set_size};
use conf::{ConfError, Node};
use engine::names::ServerName;
use engine::settings::{ConfType, Scope};
use upstream::resolver::{self, Resolving, Statuses};

use crate::core_conf::CoreDraft;
use crate::module::{Cx, Module, SS};
use crate::{core_listen, core_vars};

/// The core's table.
pub static MODULE: Module = Module {
    name: "core",
    directives: DIRECTIVES,
    variables: core_vars::VARIABLES,
    confs: &[
        ConfType::of::<CoreDraft>(Scope::Server),
        ConfType::of::<Resolving>(Scope::Server),
        ConfType::of::<Statuses>(Scope::Main),
    ],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &join::<_, { OWN.len() + RESOLVER.len() }>(&[OWN, RESOLVER]);

const RESOLVER: &[Directive<Cx>] = &resolver::directives(SS);

const OWN: &[Directive<Cx>] = &[
    directive(
        "server",
        C::STREAM,
        Args::BLOCK.or(Args::NONE),
        "",
        "A server for TCP connections or UDP datagrams.",
        Cx::server_block,
    ),
    directive(
        "listen",
        C::STREAM_SERVER,
        Args::ONE_MORE,
        "",
        "The address and port, or unix: path, to listen on, with socket options.",
        core_listen::listen,
    ),
    directive(
        "server_name",
        C::STREAM_SERVER,
        Args::ONE_MORE,
        "\"\"",
        "The names of the server, matched against the TLS server name (SNI).",
        server_name,
    ),
    directive(
        "error_log",
        SS,
        Args::ONE_MORE,
        "logs/error.log error",
        "The error log: a file, stderr or syslog, then the level, `json`, `rate=N/s`.",
        |cx, n| {
            let logs = cx.env.logs.clone();
            cx.loc::<CoreDraft>().error_log.add(&logs, n)
        },
    ),
    directive(
        "preread_buffer_size",
        SS,
        Args::T1,
        "16k",
        "The maximum number of bytes to read in the preread phase (see ssl_preread).",
        |cx, n| set_size(&mut cx.loc::<CoreDraft>().preread_buffer_size, n),
    ),
    directive(
        "preread_timeout",
        SS,
        Args::T1,
        "30s",
        "The timeout of the preread phase.",
        |cx, n| set_msec(&mut cx.loc::<CoreDraft>().preread_timeout, n),
    ),
    directive(
        "proxy_protocol_timeout",
        SS,
        Args::T1,
        "30s",
        "The timeout for receiving the PROXY protocol header.",
        |cx, n| set_msec(&mut cx.loc::<CoreDraft>().proxy_protocol_timeout, n),
    ),
    directive(
        "handover",
        SS,
        Args::FLAG,
        "on",
        "Lets open sessions move to the new workers at a reload or upgrade.",
        |cx, n| set_flag(&mut cx.loc::<CoreDraft>().handover, n),
    ),
    directive(
        "tcp_nodelay",
        SS,
        Args::FLAG,
        "on",
        "Sends small packets without delay (TCP_NODELAY), to clients and upstreams.",
        |cx, n| set_flag(&mut cx.loc::<CoreDraft>().tcp_nodelay, n),
    ),
    no_table("server_names_hash_bucket_size", C::STREAM),
    no_table("server_names_hash_max_size", C::STREAM),
    no_table("variables_hash_bucket_size", C::STREAM),
    no_table("variables_hash_max_size", C::STREAM),
];

fn server_name(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    for word in &n.args {
        let name = ServerName::parse(word, &mut cx.vars)?;
        cx.top().block.names.push(name);
    }
    Ok(())
}
