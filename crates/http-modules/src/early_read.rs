//! `client_body_early_read`: bodies that are read before anything looks at the request, so that
//! variables and conditions of every phase may ask for them.

use std::rc::Rc;

use conf::ConfError;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http_upstream::conditions;

/// The module's table.
pub static MODULE: Module = Module::of::<EarlyRead>("early_read", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "client_body_early_read",
    C::HTTP.or(C::SERVER),
    Args::ONE_MORE,
    "",
    "Reads the request body before all phases if any value is neither empty nor \"0\".",
    |cx, n| conditions::add(cx, n, |conf: &mut EarlyRead| &mut conf.0),
)];

engine::settings! {
    /// The directive's texts.
    struct EarlyRead(Option<Rc<Vec<Template>>>);
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if let Some(texts) = l.conf::<EarlyRead>().0.clone() {
        p.post_read.push(Box::new(Reader(texts)));
    }
    Ok(())
}

struct Reader(Rc<Vec<Template>>);

impl PhaseHandler for Reader {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if !conditions::any_set(r, &self.0) {
            return Step::Now(Verdict::Next);
        }
        r.debug(format_args!("http client request body early read"));
        if let Err(verdict) = r.refuse_large_body() {
            return Step::Now(verdict);
        }
        Step::Wait(Box::pin(async move {
            match r.read_body().await {
                Ok(()) => Verdict::Next,
                Err(verdict) => verdict,
            }
        }))
    }
}
