//! `client_body_min_rate` and `send_min_rate` (Weir's own): their table. What they do is in
//! [`crate::min_rate`].

use conf::table::{Args, Directive, directive};
use conf::value::{self, set_once};
use conf::{ConfError, Node};

use crate::core_conf::CoreLocDraft;
use crate::core_directives::HSL;
use crate::cx::Cx;
use crate::min_rate::MinRate;
use crate::module::Module;

/// The module: its settings are the core's.
pub static MODULE: Module = Module { name: "min_rate", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "client_body_min_rate",
        HSL,
        Args::T12,
        "240 60s",
        "The bytes a second at which a request body must come, and for how long it may rest.",
        |cx, n| set(&mut cx.loc::<CoreLocDraft>().client_body_min_rate, n),
    ),
    directive(
        "send_min_rate",
        HSL,
        Args::T12,
        "240 60s",
        "The bytes a second at which a client must take a response, and for how long it may rest.",
        |cx, n| set(&mut cx.loc::<CoreLocDraft>().send_min_rate, n),
    ),
];

/// `RATE [GRACE]`, or `off`.
fn set(field: &mut Option<MinRate>, n: &Node) -> Result<(), ConfError> {
    set_once(field, n, |n| {
        if n.arg(0)?.bytes() == b"off" {
            return match n.args.get(1) {
                None => Ok(MinRate::OFF),
                Some(w) => Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
            };
        }
        let rate = value::size(n, 0)? as u64;
        let grace_ms = match n.args.get(1) {
            Some(_) => value::msec(n, 1)?,
            None => MinRate::DEFAULT.grace_ms,
        };
        if rate > 0 && grace_ms == 0 {
            let m = "the time that a client may rest must not be 0";
            return Err(ConfError::at(n.arg(1)?, m));
        }
        Ok(MinRate { rate, grace_ms })
    })
}
