//! `map`: a variable whose value goes by another text.

use std::rc::Rc;

use conf::map::Compiler;
use conf::table::{Args, Contexts, Directive};
use conf::template::Template;
use conf::{ConfError, Node, Word, value};
use engine::regex::Regex;
use http::core_directives::directive;
use http::cx::Cx;
use http::module::Module;

/// The module's table.
pub static MODULE: Module = Module { name: "map", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "map",
        Contexts::HTTP,
        Args::BLOCK.or(Args::T2),
        "",
        "A variable whose value is looked up by a text, in a table of names and expressions.",
        map,
    ),
    table_size("map_hash_max_size"),
    table_size("map_hash_bucket_size"),
];

const fn table_size(name: &'static str) -> Directive<Cx> {
    let doc = "The size of a table of nginx's: checked, and not needed, since tables grow here.";
    directive(name, Contexts::HTTP, Args::T1, "", doc, |_, n| value::number(n, 0).map(drop))
}

struct Parts<'a>(&'a mut Cx);

impl Compiler for Parts<'_> {
    type Regex = Regex;

    fn template(&mut self, word: &Word) -> Result<Template, ConfError> {
        self.0.template(word)
    }

    fn regex(&mut self, word: &Word, pattern: &[u8], any_case: bool) -> Result<Regex, ConfError> {
        Regex::compile(word, pattern, any_case, &mut self.0.vars)
    }
}

fn map(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let key = cx.template(&n.args[0])?;
    // Defined before the block is read: nginx complains of the name first.
    cx.vars.define(&n.args[1])?;
    let map = conf::map::Map::parse(n, &mut Parts(cx))?;
    let volatile = map.volatile;
    let value = Rc::new(move |r: &mut http::Request| {
        let key = key.eval(r);
        let value = map.find(&key, |regex, text| regex.exec(r, text));
        Some(value.eval(r))
    });
    cx.vars.define_value(&n.args[1], volatile, value).map(drop)
}
