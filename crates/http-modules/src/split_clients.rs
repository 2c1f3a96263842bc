//! `split_clients`: a variable that divides requests into shares; see
//! [`common_modules::split_clients`].

use http::module::Module;

/// The module's table.
pub static MODULE: Module = common_modules::split_clients::module();
