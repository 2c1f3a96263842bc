//! `geo`: a variable whose value is looked up by an address; see [`common_modules::geo`].

use common_modules::geo;
use conf::table::Directive;
use stream::{Cx, Module};

/// The module's table.
pub static MODULE: Module = Module { name: "geo", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &geo::directives();
