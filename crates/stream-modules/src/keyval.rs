//! `keyval`: variables whose values stand in a table in shared memory; see [`keyval::directives`].

use stream::Module;

/// The module's table.
pub static MODULE: Module = ::keyval::directives::module();
