//! `gzip_static`: files that lie beside their originals with `.gz` behind the name.

use conf::table::{Args, Directive};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module};

use crate::compress::precompressed::{Mode, set_mode};

/// The module's table.
pub static MODULE: Module = Module::with_conf::<StaticConf>("gzip_static", DIRECTIVES);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "gzip_static",
    HSL,
    Args::T1,
    "off",
    "Serves FILE.gz in place of FILE if it exists: to clients that accept gzip, or always.",
    |cx, n| set_mode(&mut cx.loc::<StaticConf>().mode, n),
)];

engine::settings! {
    struct StaticConf {
        mode: Option<Mode>,
    }
}

/// The mode of a location.
pub fn mode(l: &LocView<'_>) -> Mode {
    l.conf::<StaticConf>().mode.unwrap_or_default()
}
