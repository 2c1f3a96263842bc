//! `geoip`: the place of the client's address; see [`common_modules::geoip`].

use common_modules::geoip;
use conf::table::Directive;
use engine::settings::{ConfType, Scope};
use stream::module::VarDef;
use stream::{Cx, Module};

/// The module's table.
pub static MODULE: Module = Module {
    name: "geoip",
    directives: DIRECTIVES,
    variables: VARIABLES,
    confs: &[ConfType::of::<geoip::GeoIpConf>(Scope::Main)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &geoip::directives();

static VARIABLES: &[VarDef] = &geoip::variables();
