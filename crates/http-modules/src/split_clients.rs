//! `split_clients`: a variable that divides requests into shares, the same key always into the
//! same.

use std::rc::Rc;

use conf::shares::Shares;
use conf::table::{Args, Contexts, Directive};
use conf::{ConfError, Node};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::Module;

/// The module's table.
pub static MODULE: Module =
    Module { name: "split_clients", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "split_clients",
    Contexts::HTTP,
    Args::BLOCK.or(Args::T2),
    "",
    "A variable whose value goes by the hash of a text, in given shares.",
    split_clients,
)];

fn split_clients(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let key = cx.template(&n.args[0])?;
    cx.vars.define(&n.args[1])?;
    let shares = Shares::parse(n)?;
    let value = Rc::new(move |r: &mut http::Request| Some(shares.find(&key.eval(r))));
    cx.vars.define_value(&n.args[1], false, value).map(drop)
}
