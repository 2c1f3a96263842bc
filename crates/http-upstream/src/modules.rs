//! The modules `upstream` and `resolver`: tables of directives whose setters are in the crate
//! `upstream`.

use std::io;
use std::rc::Rc;

use conf::join_directives;
use conf::table::{Args, Contexts as C, Directive};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{ConfType, Module, Scope};
use http::request::Request;
use http::server::HttpMain;
use upstream::block::Block;
use upstream::directives as set;
use upstream::resolver::{self, Resolving, Statuses};
use upstream::upstreams::Upstreams;

/// The `upstream` module's table: the block, round robin, idle connections, `$upstream_…`.
pub static UPSTREAM: Module = Module {
    name: "upstream",
    directives: BLOCK_DIRECTIVES,
    variables: crate::variables::VARIABLES,
    confs: &[ConfType::of::<Upstreams>(Scope::Main), ConfType::of::<Block>(Scope::Server)],
    init: Some(set::make_groups),
    start: Some(start),
    ..Module::EMPTY
};

/// The `resolver` module's table.
pub static RESOLVER: Module = Module {
    name: "resolver",
    directives: &resolver::directives(HSL),
    confs: &[ConfType::of::<Resolving>(Scope::Location), ConfType::of::<Statuses>(Scope::Main)],
    ..Module::EMPTY
};

static BLOCK_DIRECTIVES: &[Directive<Cx>] = join_directives!(&set::directives::<Request>(), OWN);

/// The directives that only HTTP has.
const OWN: &[Directive<Cx>] = &[
    directive(
        "state",
        C::UPSTREAM,
        Args::T1,
        "",
        "The file that persists servers changed through the API across restarts.",
        set::state,
    ),
    directive(
        "queue",
        C::UPSTREAM,
        Args::T12,
        "",
        "The maximum number of requests that wait for a server below its max_conns, and their \
         timeout.",
        set::queue,
    ),
    directive(
        "ntlm",
        C::UPSTREAM,
        Args::NONE,
        "",
        "Binds a client connection that authenticates by NTLM or Negotiate to one upstream \
         connection.",
        set::ntlm,
    ),
    directive(
        "keepalive",
        C::UPSTREAM,
        Args::T12,
        "32 local",
        "The maximum number of idle upstream connections per worker; `shared`: of all workers.",
        set::keepalive,
    ),
    directive(
        "keepalive_requests",
        C::UPSTREAM,
        Args::T1,
        "1000",
        "The maximum number of requests on one upstream connection.",
        set::keepalive_requests,
    ),
    directive(
        "keepalive_time",
        C::UPSTREAM,
        Args::T1,
        "1h",
        "The maximum age of an upstream keep-alive connection.",
        set::keepalive_time,
    ),
    directive(
        "keepalive_timeout",
        C::UPSTREAM,
        Args::T1,
        "60s",
        "Closes an upstream connection that has been idle for this long.",
        set::keepalive_timeout,
    ),
    directive(
        "keepalive_streams",
        C::UPSTREAM,
        Args::T1,
        "100",
        "The maximum number of concurrent requests on one HTTP/2 upstream connection.",
        set::keepalive_streams,
    ),
];

/// In a worker: starts the background tasks of upstreams.
fn start(main: &Rc<HttpMain>, seat: &engine::Seat) -> io::Result<()> {
    crate::moved::register(main);
    crate::kept::register(main);
    if let Some(all) = main.confs.get::<Upstreams>() {
        all.start(&main.life.gate, seat.slot);
    }
    Ok(())
}
