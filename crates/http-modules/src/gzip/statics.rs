//! `gzip_static`: files that lie beside their originals with `.gz` behind the name.

use conf::ConfError;
use conf::table::{Args, Directive};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Scope};

use crate::compress::precompressed::{Mode, set_mode};

/// The module's table.
pub static MODULE: Module = Module {
    name: "gzip_static",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<StaticConf>(Scope::Location)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "gzip_static",
    HSL,
    Args::T1,
    "off",
    "Sends a file's neighbour with `.gz` behind its name: to clients that take gzip, or always.",
    |cx, n| set_mode(&mut cx.loc::<StaticConf>().mode, n),
)];

#[derive(Default)]
struct StaticConf {
    mode: Option<Mode>,
}

impl Conf for StaticConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        self.mode = self.mode.or(prev.mode);
        Ok(())
    }
}

/// The mode of a location.
pub fn mode(l: &LocView<'_>) -> Mode {
    l.conf::<StaticConf>().mode.unwrap_or_default()
}
