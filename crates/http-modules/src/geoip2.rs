//! `geoip2`: variables from any value of a MaxMind database; see [`common_modules::geoip2`].

use http::module::Module;

/// The module's table.
pub static MODULE: Module = common_modules::geoip2::module();
