//! `keyval`: variables whose values stand in a table in shared memory; see [`keyval::directives`].

use http::module::Module;

/// The module's table.
pub static MODULE: Module = ::keyval::directives::module();
