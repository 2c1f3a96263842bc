//! `access`: the addresses that may, and those that may not.

use base::log::Level;
use common_modules::access::AccessRules;
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node};
use http::core_conf::Satisfy;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module, Pipeline, Verdict};
use http::request::Request;

/// The module's table.
pub static MODULE: Module = Module::of::<AccessRules>("access", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    rule(
        "allow",
        "Allows an address, a CIDR range, `unix:` or `all`; the first matching rule decides.",
        |cx, n| cx.loc::<AccessRules>().add(n, true),
    ),
    rule(
        "deny",
        "Denies an address, a CIDR range, `unix:` or `all`; the first matching rule decides.",
        |cx, n| cx.loc::<AccessRules>().add(n, false),
    ),
];

const fn rule(
    name: &'static str,
    doc: &'static str,
    set: fn(&mut Cx, &Node) -> Result<(), ConfError>,
) -> Directive<Cx> {
    directive(name, HSL.or(C::LIMIT_EXCEPT), Args::T1, "", doc, set)
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let rules = l.conf::<AccessRules>();
    if !rules.is_empty() {
        p.access.push(Box::new(move |r: &mut Request| check(r, &rules)));
    }
    Ok(())
}

fn check(r: &mut Request, rules: &AccessRules) -> Verdict {
    match rules.allows(r.peer()) {
        None => Verdict::Next,
        Some(true) => Verdict::Ok,
        Some(false) => {
            if r.loc.core.satisfy == Satisfy::All {
                r.log(Level::Error, format_args!("access forbidden by rule"));
            }
            Verdict::Status(403)
        }
    }
}
