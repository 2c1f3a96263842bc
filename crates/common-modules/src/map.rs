//! `map`: a variable whose value is looked up by another text.

use std::rc::Rc;

use conf::map::Compiler;
use conf::table::{Args, Directive, directive, no_table};
use conf::template::Template;
use conf::{ConfError, Node, Word};
use engine::regex::Regex;
use engine::{Cx, Module, Session};

/// The module's table, for an engine's list.
pub const fn module<S: Session>() -> Module<S> {
    Module { name: "map", directives: const { &directives() }, ..Module::EMPTY }
}

const fn directives<S: Session>() -> [Directive<Cx<S>>; 3] {
    [
        directive(
            "map",
            S::BLOCK,
            Args::BLOCK.or(Args::T2),
            "",
            "A variable looked up by a string, in a table of strings and regular expressions.",
            map,
        ),
        no_table("map_hash_max_size", S::BLOCK),
        no_table("map_hash_bucket_size", S::BLOCK),
    ]
}

struct Parts<'a, S: Session>(&'a mut Cx<S>);

impl<S: Session> Compiler for Parts<'_, S> {
    type Regex = Regex;

    fn template(&mut self, word: &Word) -> Result<Template, ConfError> {
        self.0.template(word)
    }

    fn regex(&mut self, word: &Word, pattern: &[u8], any_case: bool) -> Result<Regex, ConfError> {
        Regex::for_list(word, pattern, any_case, &mut self.0.vars)
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
