//! `addition`: subrequests' bodies before and behind a response's own.

use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::{ConfError, value};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{HeaderFilter, LocView, Module, Pipeline, Verdict};
use http::output::{BodyFilter, FilterStep, Piece};
use http::request::Request;
use http::subrequest::Subrequest;
use http::types::TypeList;

/// The module's table.
pub static MODULE: Module = Module::of::<AdditionConf>("addition", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "add_before_body",
        HSL,
        Args::T1,
        "",
        "The URI of a subrequest whose body is prepended to the response.",
        |cx, n| value::set_str(&mut cx.loc::<AdditionConf>().before, n),
    ),
    directive(
        "add_after_body",
        HSL,
        Args::T1,
        "",
        "The URI of a subrequest whose body is appended to the response.",
        |cx, n| value::set_str(&mut cx.loc::<AdditionConf>().after, n),
    ),
    directive(
        "addition_types",
        HSL,
        Args::ONE_MORE,
        "text/html",
        "MIME types of responses to add to; `*` matches all.",
        |cx, n| TypeList::set(&mut cx.loc::<AdditionConf>().types, n, Some("text/html")),
    ),
];

engine::settings! {
    struct AdditionConf {
        before: Option<Bytes>,
        after: Option<Bytes>,
        types: Option<TypeList>,
    }
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<AdditionConf>();
    let uri = |uri: &Option<Bytes>| uri.clone().filter(|u| !u.is_empty());
    let (before, after) = (uri(&conf.before), uri(&conf.after));
    if before.is_some() || after.is_some() {
        let types = conf.types.clone().unwrap_or_else(|| TypeList::of(&["text/html"]));
        p.header_filters.push(Box::new(Filter { before, after, types }));
    }
    Ok(())
}

struct Filter {
    before: Option<Bytes>,
    after: Option<Bytes>,
    types: TypeList,
}

impl HeaderFilter for Filter {
    fn run(&self, r: &mut Request) -> Verdict {
        if r.status() == 200 && self.types.has(&r.out) {
            r.out.body_changes();
            r.out.weaken_etag();
            let (before, after) = (self.before.clone(), self.after.clone());
            r.out.filters.push(Box::new(Add { before, after }));
        }
        Verdict::Next
    }
}

/// The parts that are still to be added.
struct Add {
    before: Option<Bytes>,
    after: Option<Bytes>,
}

impl BodyFilter for Add {
    fn takes_files(&self) -> bool {
        true
    }

    fn filter(&mut self, r: &mut Request, Piece { input, last, out }: Piece<'_>) -> FilterStep {
        let add = match self.before.take() {
            Some(uri) => Some(uri),
            None => {
                out.append(input);
                if last { self.after.take() } else { None }
            }
        };
        let Some(uri) = add else { return FilterStep::Go };
        match r.subrequest(Subrequest::new(uri, Bytes::new())) {
            Ok(handle) => FilterStep::Include(handle),
            Err(_) => FilterStep::Fail,
        }
    }
}
