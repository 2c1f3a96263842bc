//! `split_clients`: a variable that divides sessions into shares, the same key always into the
//! same.

use std::rc::Rc;

use conf::shares::Shares;
use conf::table::{Args, Directive, directive};
use conf::{ConfError, Node};
use engine::{Cx, Module, Session};

/// The module's table, for an engine's list.
pub const fn module<S: Session>() -> Module<S> {
    Module { name: "split_clients", directives: const { &directives() }, ..Module::EMPTY }
}

const fn directives<S: Session>() -> [Directive<Cx<S>>; 1] {
    [directive(
        "split_clients",
        S::BLOCK,
        Args::BLOCK.or(Args::T2),
        "",
        "A variable chosen by the hash of a string, according to percentages.",
        split_clients,
    )]
}

fn split_clients<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let key = cx.template(&n.args[0])?;
    cx.vars.define(&n.args[1])?;
    let shares = Shares::parse(n)?;
    let value = Rc::new(move |s: &mut S| Some(shares.find(&s.eval(&key))));
    cx.vars.define_value(&n.args[1], false, value).map(drop)
}
