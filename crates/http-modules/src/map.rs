//! `map`: a variable whose value is looked up by another text; see [`common_modules::map`].

use http::module::Module;

/// The module's table.
pub static MODULE: Module = common_modules::map::module();
