//! `early_hints`: fields of interim responses of upstreams (RFC 8297) that are passed on.

use std::rc::Rc;

use conf::ConfError;
use conf::table::{Args, Directive};
use conf::template::Template;
use proto::h1::Version;

use crate::core_directives::{HSL, directive};
use crate::cx::Cx;
use crate::module::{ConfType, Module, Scope};
use crate::request::Request;

/// The module's table.
pub static MODULE: Module = Module {
    name: "early_hints",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<EarlyHints>(Scope::Location)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "early_hints",
    HSL,
    Args::ONE_MORE,
    "",
    "Early hints are passed on where one of these texts is neither empty nor 0.",
    |cx, n| {
        let texts = n.args.iter().map(|w| cx.template(w)).collect::<Result<Vec<_>, ConfError>>()?;
        let list = cx.loc::<EarlyHints>().0.get_or_insert_default();
        Rc::make_mut(list).extend(texts);
        Ok(())
    },
)];

engine::settings! {
    /// The directive's texts.
    pub struct EarlyHints(Option<Rc<Vec<Template>>>);
}

/// Whether hints go to the client of this request.
pub(crate) fn wanted(r: &mut Request) -> bool {
    let texts = r.loc.confs.get::<EarlyHints>().and_then(|conf| conf.0.clone());
    let Some(texts) = texts else { return false };
    let can = !r.is_subrequest() && !r.flags.post_action && r.head.version >= Version::HTTP_11;
    can && texts.iter().any(|t| {
        let value = t.eval(r);
        !value.is_empty() && &value[..] != b"0"
    })
}
