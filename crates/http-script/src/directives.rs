//! The table of directives.

use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Contexts, Directive};
use conf::value::set_once;
use conf::{ConfError, Node};
use engine::settings::{ConfType, Scope};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module, Pipeline};
use http::request::Request;
use script_modules::directives::{self, Scripts, init};
use script_modules::settings::{Main, Periodics};
use script_modules::{Function, Settings};

use crate::handler::Handler;
use crate::settings::{Content, Handlers, PieceType};
use crate::{filters, periodic, variables};

/// The module's table.
pub static MODULE: Module = Module {
    name: "js",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<Settings>(Scope::Location),
        ConfType::of::<Handlers>(Scope::Location),
        ConfType::of::<Content>(Scope::Location),
        ConfType::of::<Periodics>(Scope::Location),
        ConfType::of::<Main>(Scope::Main),
    ],
    init: Some(init),
    install: Some(install),
    start: Some(start),
    status: Some(|main, o| directives::status(&main.metrics, o)),
    ..Module::EMPTY
};

/// Where handlers and filters stand.
const PLACES: Contexts = Contexts::LOCATION.or(Contexts::IF_LOCATION).or(Contexts::LIMIT_EXCEPT);

static DIRECTIVES: &[Directive<Cx>] = conf::join_directives!(COMMON, OWN);

/// Those that `stream` has, too.
const COMMON: &[Directive<Cx>] =
    &directives::directives::<Request, Variables>(HSL, Contexts::LOCATION);

/// The variables of `js_set`.
struct Variables;

impl Scripts<Request> for Variables {
    fn evaluate(r: &mut Request, function: &Function) -> Option<Bytes> {
        variables::evaluate(r, function)
    }
}

const OWN: &[Directive<Cx>] = &[
    directive(
        "js_access",
        PLACES,
        Args::T1,
        "",
        "A function that allows or denies access: MODULE.FUNCTION.",
        |cx, n| Function::set(cx, "js_access", n, |cx| &mut cx.loc::<Handlers>().access),
    ),
    directive(
        "js_content",
        PLACES,
        Args::T1,
        "",
        "A function that answers requests: MODULE.FUNCTION.",
        |cx, n| Function::set(cx, "js_content", n, |cx| &mut cx.loc::<Content>().0),
    ),
    directive(
        "js_header_filter",
        PLACES,
        Args::T1,
        "",
        "A function that changes the headers of responses: MODULE.FUNCTION.",
        |cx, n| {
            Function::set(cx, "js_header_filter", n, |cx| &mut cx.loc::<Handlers>().header_filter)
        },
    ),
    directive(
        "js_body_filter",
        PLACES,
        Args::T12,
        "",
        "A function that changes the bodies of responses: MODULE.FUNCTION \
         [buffer_type=string|buffer].",
        js_body_filter,
    ),
];

fn js_body_filter(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let piece = match n.args.get(1) {
        None => PieceType::Text,
        Some(word) => match word.bytes().strip_prefix(b"buffer_type=") {
            Some(b"string") => PieceType::Text,
            Some(b"buffer") => PieceType::Buffer,
            Some(other) => {
                let other = base::log::lossy(other);
                let m = format!(
                    "invalid buffer_type value \"{other}\", it must be \"string\" or \"buffer\""
                );
                return Err(ConfError::at(word, m));
            }
            None => {
                let m = format!("invalid parameter \"{}\"", word.lossy());
                return Err(ConfError::at(word, m));
            }
        },
    };
    let function = Function::of(cx, "js_body_filter", &n.args[0])?;
    set_once(&mut cx.loc::<Handlers>().body_filter, n, |_| Ok((function, piece)))
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let (settings, handlers) = (l.conf::<Settings>(), l.conf::<Handlers>());
    let content = l.conf::<Content>();
    let content = content.0.as_ref().filter(|_| l.set_here_or_around::<Content>());
    let periodics = l.conf::<Periodics>();
    let periodics = periodics.0.iter().filter(|_| l.set_here::<Periodics>());
    let all = handlers.all().chain(content).chain(periodics.map(|of| &of.function));
    settings.prepare(all)?;
    if let Some(function) = &handlers.access {
        p.access.push(Box::new(Handler::access(function, &settings)));
    }
    if let Some(function) = content {
        p.content_handler = Some(Box::new(Handler::content(function, &settings)));
    }
    if handlers.header_filter.is_some() || handlers.body_filter.is_some() {
        p.header_filters.push(Box::new(filters::Filter::new(handlers.clone(), settings.clone())));
    }
    Ok(())
}

fn start(main: &Rc<http::HttpMain>, seat: &engine::Seat) -> std::io::Result<()> {
    directives::begin(&main.confs.listed::<Main>(), &main.metrics, seat);
    periodic::start(main, seat.index);
    Ok(())
}
