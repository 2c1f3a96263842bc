//! `geoip`: the place of the client's address; see [`common_modules::geoip`].

use http::module::Module;

/// The module's table.
pub static MODULE: Module = common_modules::geoip::module();
