//! The table of directives.

use std::rc::Rc;

use bytes::Bytes;
use conf::ConfError;
use conf::table::{Args, Contexts, Directive, directive};
use engine::settings::{ConfType, Scope};
use script_modules::directives::{self, Scripts, init};
use script_modules::settings::{Main, Periodics};
use script_modules::{Function, Settings};
use stream::module::{BytesFilter, SS};
use stream::{Cx, Module, Pipeline, StreamMain, StreamSession, View};

use crate::filter::Filter;
use crate::handler::Handler;
use crate::{periodic, script, variables};

/// The module's table.
pub static MODULE: Module = Module {
    name: "js",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<Settings>(Scope::Location),
        ConfType::of::<Handlers>(Scope::Location),
        ConfType::of::<Periodics>(Scope::Location),
        ConfType::of::<Main>(Scope::Main),
    ],
    init: Some(init),
    install: Some(install),
    start: Some(start),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = conf::join_directives!(COMMON, OWN);

/// Those that HTTP has, too.
const COMMON: &[Directive<Cx>] =
    &directives::directives::<StreamSession, Variables>(SS, Contexts::STREAM_SERVER);

/// The variables of `js_set`.
struct Variables;

impl Scripts<StreamSession> for Variables {
    fn evaluate(s: &mut StreamSession, function: &Function) -> Option<Bytes> {
        variables::evaluate(s, function)
    }
}

const OWN: &[Directive<Cx>] = &[
    directive(
        "js_access",
        SS,
        Args::T1,
        "",
        "A function that allows or denies access: MODULE.FUNCTION.",
        |cx, n| Function::set(cx, "js_access", n, |cx| &mut cx.loc::<Handlers>().access),
    ),
    directive(
        "js_preread",
        SS,
        Args::T1,
        "",
        "A function that looks at a session's first bytes: MODULE.FUNCTION.",
        |cx, n| Function::set(cx, "js_preread", n, |cx| &mut cx.loc::<Handlers>().preread),
    ),
    directive(
        "js_filter",
        SS,
        Args::T1,
        "",
        "A function that changes the bytes of sessions, both ways: MODULE.FUNCTION.",
        |cx, n| Function::set(cx, "js_filter", n, |cx| &mut cx.loc::<Handlers>().filter),
    ),
];

engine::settings! {
    /// The functions that a server calls.
    struct Handlers {
        access: Option<Function>,
        preread: Option<Function>,
        filter: Option<Function>,
    }
}

fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    let (settings, handlers) = (view.conf::<Settings>(), view.conf::<Handlers>());
    let periodics = view.conf::<Periodics>();
    let periodics = periodics.0.iter().filter(|_| view.set_here::<Periodics>());
    let Handlers { access, preread, filter } = &*handlers;
    let all = access.iter().chain(preread).chain(filter);
    settings.prepare(all.chain(periodics.map(|of| &of.function)))?;
    if let Some(function) = access {
        p.first_access.push(Box::new(Handler::access(function)));
    }
    if let Some(function) = preread {
        p.first_preread.push(Box::new(Handler::preread(function)));
    }
    if let Some(function) = filter {
        if view.info.content == "pass" {
            let m = "\"js_filter\" has no effect on a connection that \"pass\" gives away";
            conf::warn(&function.word, m);
        }
        let function = function.clone();
        let make = move |_: &mut StreamSession| -> Box<dyn BytesFilter> {
            Box::new(Filter::new(&function))
        };
        p.filter = Some(Box::new(make));
    }
    if settings.compiled().is_some() {
        p.log.push(Box::new(script::end));
    }
    Ok(())
}

fn start(main: &Rc<StreamMain>, seat: &engine::Seat) -> std::io::Result<()> {
    directives::begin(&main.confs.listed::<Main>(), &main.metrics, seat);
    periodic::start(main, seat.index);
    Ok(())
}
