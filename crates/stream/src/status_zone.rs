//! `status_zone`.

use conf::table::{Args, Contexts as C, Directive, directive};
use engine::metrics::Kind;
use engine::metrics::status_zone::{ServerZone, set_server};
use engine::settings::{ConfType, Scope};

use crate::module::{Cx, Module};

/// The module's table.
pub static MODULE: Module = Module {
    name: "status_zone",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<ServerZone>(Scope::Server)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "status_zone",
    C::STREAM_SERVER,
    Args::T1,
    "",
    "Counts the sessions of a server in this zone; the name may have variables.",
    |cx, n| set_server(cx, n, Kind::StreamServer),
)];
