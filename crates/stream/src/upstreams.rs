//! The module `upstream`: the tables of `upstream` blocks, whose setters stand in the crate
//! `upstream`.

use std::rc::Rc;

use conf::table::{Args, Contexts as C, Directive};
use engine::settings::{ConfType, Scope};
use upstream::block::Block;
use upstream::{Upstreams, directives as set};

use crate::module::{Cx, Module};
use crate::proxy::exchanges;
use crate::server::StreamMain;
use conf::table::directive;

/// The module's table.
pub static MODULE: Module = Module {
    name: "upstream",
    directives: DIRECTIVES,
    variables: exchanges::VARIABLES,
    confs: &[ConfType::of::<Upstreams>(Scope::Main), ConfType::of::<Block>(Scope::Server)],
    init: Some(set::make_groups),
    start: Some(start),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "upstream",
        C::STREAM,
        Args::BLOCK.or(Args::T1),
        "",
        "A group of servers that sessions are passed to by its name.",
        |cx, n| set::upstream(cx, n, C::STREAM_UPSTREAM),
    ),
    directive(
        "server",
        C::STREAM_UPSTREAM,
        Args::ONE_MORE,
        "",
        "A server of the group, with its weight and limits.",
        set::server,
    ),
    directive(
        "zone",
        C::STREAM_UPSTREAM,
        Args::T12,
        "",
        "The memory in which all workers share what they know of the group's servers.",
        set::zone,
    ),
    directive(
        "resolver",
        C::STREAM_UPSTREAM,
        Args::ONE_MORE,
        "",
        "The name servers for names of servers that are looked up at run time.",
        set::resolver,
    ),
    directive(
        "resolver_timeout",
        C::STREAM_UPSTREAM,
        Args::T1,
        "30s",
        "The timeout for looking up a name.",
        set::resolver_timeout,
    ),
];

/// In a worker: begins the work beside sessions.
fn start(main: &Rc<StreamMain>, seat: &engine::Seat) {
    if let Some(all) = main.confs.get::<Upstreams>() {
        all.start(&main.life.gate, seat.slot);
    }
}
