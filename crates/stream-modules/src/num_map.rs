//! `num_map`: a variable whose value is looked up by a number; see [`common_modules::num_map`].

use stream::Module;

/// The module's table.
pub static MODULE: Module = common_modules::num_map::module();
