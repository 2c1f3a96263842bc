//! `early_hints`: fields of interim responses of upstreams (RFC 8297) that are passed on.

use std::rc::Rc;

use crate::conditions;
use conf::table::{Args, Directive};
use conf::template::Template;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::Module;
use http::request::Request;
use http_wire::h1::Version;

/// The module's table.
pub static MODULE: Module = Module::with_conf::<EarlyHints>("early_hints", DIRECTIVES);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "early_hints",
    HSL,
    Args::ONE_MORE,
    "",
    "Forwards 103 (Early Hints) if any of the values is neither empty nor \"0\".",
    |cx, n| conditions::add(cx, n, |conf: &mut EarlyHints| &mut conf.0),
)];

engine::settings! {
    /// The directive's texts.
    pub(crate) struct EarlyHints(Option<Rc<Vec<Template>>>);
}

/// Whether hints go to the client of this request.
pub fn wanted(r: &mut Request) -> bool {
    let texts = r.loc.confs.get::<EarlyHints>().and_then(|conf| conf.0.clone());
    let Some(texts) = texts else { return false };
    let can = !r.is_subrequest() && !r.flags.post_action && r.head.version >= Version::HTTP_11;
    can && conditions::any_set(r, &texts)
}
