//! `geoip2`: variables from any value of a MaxMind database; see [`common_modules::geoip2`].

use common_modules::geoip2;
use conf::table::Directive;
use engine::settings::{ConfType, Scope};
use stream::{Cx, Module};

/// The module's table.
pub static MODULE: Module = Module {
    name: "geoip2",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<geoip2::GeoIp2Conf>(Scope::Main)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &geoip2::directives();
