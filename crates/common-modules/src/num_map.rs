//! `num_map`: a variable whose value is looked up by a number.

use std::rc::Rc;

use conf::num_map::NumMap;
use conf::table::{Args, Directive, directive};
use conf::{ConfError, Node};
use engine::{Cx, Module, Session};

/// The module's table, for an engine's list.
pub const fn module<S: Session>() -> Module<S> {
    Module { name: "num_map", directives: const { &directives() }, ..Module::EMPTY }
}

const fn directives<S: Session>() -> [Directive<Cx<S>>; 1] {
    [directive(
        "num_map",
        S::BLOCK,
        Args::BLOCK.or(Args::T2),
        "",
        "A variable looked up by a number, in a table of numbers and ranges (80, 1-5, <=9, >9).",
        num_map,
    )]
}

fn num_map<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let key = cx.template(&n.args[0])?;
    cx.vars.define(&n.args[1])?;
    let map = NumMap::parse(n, |word| cx.template(word))?;
    let volatile = map.volatile;
    let value = Rc::new(move |s: &mut S| {
        let key = s.eval(&key);
        map.find(&key).map(|value| s.eval(value))
    });
    cx.vars.define_value(&n.args[1], volatile, value).map(drop)
}
