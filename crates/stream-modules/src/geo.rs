//! `geo`: a variable whose value is looked up by an address; see [`common_modules::geo`].

use stream::Module;

/// The module's table.
pub static MODULE: Module = common_modules::geo::module();
