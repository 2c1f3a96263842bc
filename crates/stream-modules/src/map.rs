//! `map`: a variable whose value is looked up by another text; see [`common_modules::map`].

use common_modules::map;
use conf::table::Directive;
use stream::{Cx, Module};

/// The module's table.
pub static MODULE: Module = Module { name: "map", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &map::directives();
