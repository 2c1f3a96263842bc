//! `map`: a variable whose value is looked up by another text.

use std::rc::Rc;

use conf::map::Compiler;
use conf::table::{Args, Directive, directive};
use conf::template::Template;
use conf::{ConfError, Node, Word, value};
use engine::regex::Regex;
use engine::{Cx, Session};

/// The directives, for an engine's table.
pub const fn directives<S: Session>() -> [Directive<Cx<S>>; 3] {
    [
        directive(
            "map",
            S::BLOCK,
            Args::BLOCK.or(Args::T2),
            "",
            "A variable whose value is looked up by a text, in a table of names and expressions.",
            map,
        ),
        table_size("map_hash_max_size"),
        table_size("map_hash_bucket_size"),
    ]
}

const fn table_size<S: Session>(name: &'static str) -> Directive<Cx<S>> {
    let doc = "The size of a table of nginx's: checked, and not needed, since tables grow here.";
    directive(name, S::BLOCK, Args::T1, "", doc, |_, n| value::number(n, 0).map(drop))
}

struct Parts<'a, S: Session>(&'a mut Cx<S>);

impl<S: Session> Compiler for Parts<'_, S> {
    type Regex = Regex;

    fn template(&mut self, word: &Word) -> Result<Template, ConfError> {
        self.0.template(word)
    }

    fn regex(&mut self, word: &Word, pattern: &[u8], any_case: bool) -> Result<Regex, ConfError> {
        Regex::compile(word, pattern, any_case, &mut self.0.vars)
    }
}

fn map<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let key = cx.template(&n.args[0])?;
    // Defined before the block is read: nginx complains of the name first.
    cx.vars.define(&n.args[1])?;
    let map = conf::map::Map::parse(n, &mut Parts(cx))?;
    let volatile = map.volatile;
    let value = Rc::new(move |s: &mut S| {
        let key = s.eval(&key);
        let value = map.find(&key, |regex, text| regex.exec(s, text));
        Some(s.eval(value))
    });
    cx.vars.define_value(&n.args[1], volatile, value).map(drop)
}
