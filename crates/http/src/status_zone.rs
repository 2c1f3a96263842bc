//! `status_zone`, and the zones of servers and locations without one.

use conf::table::{Args, Contexts as C, Directive};
use engine::metrics::Kind;
use engine::metrics::status_zone::{LocationZone, ServerZone, ZoneName, set_location, set_server};
use engine::settings::{ConfSet, ConfType, Scope};

use crate::core_directives::directive;
use crate::cx::Cx;
use crate::module::Module;

/// The module's table.
pub static MODULE: Module = Module {
    name: "status_zone",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<ServerZone>(Scope::Server),
        ConfType::of::<LocationZone>(Scope::Location),
    ],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "status_zone",
    C::SERVER.or(C::LOCATION).or(C::IF_LOCATION),
    Args::T1,
    "",
    "Counts the requests of a server or location in this zone; the name may have variables.",
    |cx, n| match cx.here() == C::SERVER {
        true => set_server(cx, n, Kind::HttpServer),
        false => set_location(cx, n),
    },
)];

/// The zone of a location.
pub(crate) fn zone_of_location(set: &ConfSet) -> ZoneName {
    set.get::<LocationZone>().and_then(|zone| zone.0.clone()).unwrap_or(ZoneName::Off)
}
