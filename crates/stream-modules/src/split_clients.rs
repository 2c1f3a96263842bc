//! `split_clients`: a variable that divides sessions into shares; see
//! [`common_modules::split_clients`].

use common_modules::split_clients;
use conf::table::Directive;
use stream::{Cx, Module};

/// The module's table.
pub static MODULE: Module =
    Module { name: "split_clients", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &split_clients::directives();
