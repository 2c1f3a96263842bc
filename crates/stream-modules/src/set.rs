//! `set`: gives variables values, before a session is served.

use conf::table::directive;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::{Template, VarId};
use conf::{ConfError, Node};
use engine::Client;
use engine::settings::Conf;
use engine::vars;
use stream::{Cx, Module, Pipeline, Verdict, View};

/// The module's table.
pub static MODULE: Module = Module::of::<Program>("set", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] =
    &[directive("set", C::STREAM_SERVER, Args::T2, "", "Sets a variable.", set)];

/// One `set`.
#[derive(Clone)]
struct Assignment {
    var: VarId,
    value: Template,
}

/// The `set`s of a server, in order.
#[derive(Default)]
struct Program(Vec<Assignment>);

impl Conf for Program {}

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let var = cx.vars.define_stored(n.arg(0)?)?;
    let value = cx.template(&n.args[1])?;
    cx.loc::<Program>().0.push(Assignment { var, value });
    Ok(())
}

fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    let program = view.conf::<Program>();
    for a in program.0.iter().cloned() {
        p.set.push(Box::new(move |s| {
            let value = s.eval(&a.value);
            vars::assign(s, a.var, value);
            Verdict::Next
        }));
    }
    Ok(())
}
