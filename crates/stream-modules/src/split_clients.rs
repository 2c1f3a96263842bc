//! `split_clients`: a variable that divides sessions into shares; see
//! [`common_modules::split_clients`].

use stream::Module;

/// The module's table.
pub static MODULE: Module = common_modules::split_clients::module();
