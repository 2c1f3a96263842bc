//! `status_zone`, and the zones of servers without one.

use conf::table::{Args, Contexts as C, Directive, directive};
use engine::Metrics;
use engine::addresses::ListenAddress;
use engine::metrics::Kind;
use engine::metrics::status_zone::{ServerZone, ZoneName, set_server};
use engine::settings::{ConfSet, ConfType, Scope};

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
    "The zone that counts the sessions of a server; its name may have variables.",
    |cx, n| set_server(cx, n, Kind::StreamServer),
)];

/// The zone of a server: one without a name has that of its first address.
pub(crate) fn zone_of(
    metrics: &Metrics,
    set: &ConfSet,
    name: &[u8],
    listens: &[ListenAddress],
) -> ZoneName {
    let address = listens.first().map(|listen| listen.spec.addr.to_string()).unwrap_or_default();
    let name = if name.is_empty() { address.as_bytes() } else { name };
    let unset = ServerZone::default();
    metrics.of_server(set.get::<ServerZone>().unwrap_or(&unset), Kind::StreamServer, name)
}
