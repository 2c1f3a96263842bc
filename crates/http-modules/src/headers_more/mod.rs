//! `headers_more`: fields of responses and of requests, set and cleared, the server's own included.
//! The directives are those of OpenResty's module of this name.

mod line;
mod output;

use std::rc::Rc;

use conf::table::{Args, Directive};
use conf::{ConfError, Node};
use http::core_directives::{HSLI, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope, Verdict};
use http::request::{FieldEdit, Request};

use self::line::{Kind, Line};

/// The module's table.
pub static MODULE: Module = Module {
    name: "headers_more",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<MoreConf>(Scope::Location), ConfType::of::<Used>(Scope::Main)],
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "more_set_headers",
        HSLI,
        Args::ONE_MORE,
        "",
        "Sets response header fields, for statuses (-s) and types (-t); -a appends.",
        |cx, n| add(cx, n, Kind::Set),
    ),
    directive(
        "more_clear_headers",
        HSLI,
        Args::ONE_MORE,
        "",
        "Removes response header fields, for statuses (-s) and types (-t); X-* matches a prefix.",
        |cx, n| add(cx, n, Kind::Clear),
    ),
    directive(
        "more_set_input_headers",
        HSLI,
        Args::ONE_MORE,
        "",
        "Sets request header fields, for content types (-t); -r only replaces existing ones.",
        |cx, n| add(cx, n, Kind::SetInput),
    ),
    directive(
        "more_clear_input_headers",
        HSLI,
        Args::ONE_MORE,
        "",
        "Removes request header fields, for content types (-t); X-* matches a prefix.",
        |cx, n| add(cx, n, Kind::ClearInput),
    ),
];

/// The directives of a level, behind those of the levels around it.
#[derive(Default)]
struct MoreConf {
    output: Rc<Vec<Rc<Line>>>,
    input: Rc<Vec<Rc<Line>>>,
}

impl Conf for MoreConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        join(&mut self.output, &prev.output);
        join(&mut self.input, &prev.input);
        Ok(())
    }
}

fn join(own: &mut Rc<Vec<Rc<Line>>>, prev: &Rc<Vec<Rc<Line>>>) {
    if own.is_empty() {
        own.clone_from(prev);
    } else if !prev.is_empty() {
        *own = Rc::new(prev.iter().chain(own.iter()).cloned().collect());
    }
}

/// Whether some directive changes requests: a location's own handler runs for the `if` blocks
/// inside it, whose directives it does not know at load.
#[derive(Default)]
struct Used(bool);

impl Conf for Used {}

fn add(cx: &mut Cx, n: &Node, kind: Kind) -> Result<(), ConfError> {
    let line = Rc::new(Line::parse(cx, n, kind)?);
    let is_input = kind.is_input();
    if is_input {
        cx.main::<Used>().0 = true;
    }
    let conf = cx.loc::<MoreConf>();
    let list = if is_input { &mut conf.input } else { &mut conf.output };
    // Nothing else has it before the levels are merged.
    Rc::get_mut(list).map(|list| list.push(line)).ok_or_else(|| ConfError::directive(n, "is late"))
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<MoreConf>();
    if l.conf::<Used>().0 {
        p.rewrite.push(Box::new(change_request));
    }
    if !conf.output.is_empty() {
        let lines = conf.output.clone();
        p.header_filters.push(Box::new(move |r: &mut Request| {
            for line in lines.iter() {
                output::apply(r, line);
            }
            Verdict::Next
        }));
    }
    Ok(())
}

/// Runs behind `rewrite` and its companions, in a location that they have left for another one too.
fn change_request(r: &mut Request) -> Verdict {
    // The location may be an `if` block of the one that began the phase.
    let loc = r.loc.clone();
    let Some(conf) = loc.confs.get::<MoreConf>() else { return Verdict::Next };
    for line in conf.input.iter() {
        let of_type = || r.header_named(b"content-type").is_some_and(|of| line.has_type(of));
        if !line.types.is_empty() && !of_type() {
            continue;
        }
        for field in &line.fields {
            let value = r.eval(&field.value);
            r.edit_header(FieldEdit {
                name: &field.name,
                is_prefix: field.is_prefix,
                value: &value,
                replace_only: line.replace_only,
            });
        }
    }
    Verdict::Next
}
