//! `access`: the addresses that may, and those that may not.

use base::log::Level;
use common_modules::access::AccessRules;
use conf::ConfError;
use conf::table::directive;
use conf::table::{Args, Directive};
use engine::Client;
use stream::content::statuses;
use stream::module::SS;
use stream::{Cx, Module, Pipeline, Verdict, View};

/// The module's table.
pub static MODULE: Module = Module::of::<AccessRules>("access", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "allow",
        SS,
        Args::T1,
        "",
        "Allows an address, a CIDR range, `unix:` or `all`; the first matching rule decides.",
        |cx, n| cx.loc::<AccessRules>().add(n, true),
    ),
    directive(
        "deny",
        SS,
        Args::T1,
        "",
        "Denies an address, a CIDR range, `unix:` or `all`; the first matching rule decides.",
        |cx, n| cx.loc::<AccessRules>().add(n, false),
    ),
];

fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    let rules = view.conf::<AccessRules>();
    if !rules.is_empty() {
        p.access.push(Box::new(move |s| match rules.allows(s.address()) {
            Some(false) => {
                s.log(Level::Error, format_args!("access forbidden by rule"));
                Verdict::Status(statuses::FORBIDDEN)
            }
            Some(true) => Verdict::Done,
            None => Verdict::Next,
        }));
    }
    Ok(())
}
