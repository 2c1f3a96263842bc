//! `client_body_min_rate` and `send_min_rate` (Weir's own): their table, with `overload_refuse`,
//! which also says what clients get in bad times, and `handover`. What rates do is in
//! [`engine::min_rate`].

use conf::table::{Args, Directive, directive};
use conf::value::{self, set_once};
use conf::{ConfError, Node};

use crate::core_conf::{CoreLocDraft, CoreSrvDraft};
use crate::core_directives::{HS, HSL};
use crate::cx::Cx;
use crate::module::Module;
use engine::min_rate::MinRate;

/// The module: its settings are the core's.
pub static MODULE: Module = Module { name: "min_rate", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "client_body_min_rate",
        HSL,
        Args::T12,
        "240 60s",
        "The minimum rate of a request body in bytes per second, and the maximum pause.",
        |cx, n| set(&mut cx.loc::<CoreLocDraft>().client_body_min_rate, n),
    ),
    directive(
        "send_min_rate",
        HSL,
        Args::T12,
        "240 60s",
        "The minimum rate at which a client reads a response in bytes per second, and the maximum \
         pause: below 20 s, slow phones are disconnected.",
        |cx, n| set(&mut cx.loc::<CoreLocDraft>().send_min_rate, n),
    ),
    directive(
        "overload_refuse",
        HSL,
        Args::FLAG,
        "on",
        "Refuses requests with 503 during an overload (see worker_overload); `off` exempts.",
        |cx, n| value::set_flag(&mut cx.loc::<CoreLocDraft>().overload_refuse, n),
    ),
    directive(
        "handover",
        HS,
        Args::FLAG,
        "on",
        "Lets open connections move to the new workers at a reload or upgrade.",
        |cx, n| value::set_flag(&mut cx.loc::<CoreSrvDraft>().handover, n),
    ),
];

fn set(field: &mut Option<MinRate>, n: &Node) -> Result<(), ConfError> {
    set_once(field, n, MinRate::parse)
}
