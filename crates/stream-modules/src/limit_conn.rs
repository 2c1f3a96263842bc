//! `limit_conn`: a limit on the sessions of one key that are under way at once.

use common_modules::limits::conn::{self, ConnLimits, Count};
use common_modules::limits::{Zones, map_zones};
use conf::ConfError;
use conf::table::directive;
use conf::table::{Args, Contexts as C, Directive};
use engine::settings::{ConfType, Scope};
use stream::content::statuses;
use stream::module::SS;
use stream::module::VarDef;
use stream::{Cx, Module, Pipeline, StreamSession, Verdict, View};

/// The module's table.
pub static MODULE: Module = Module {
    name: "limit_conn",
    directives: DIRECTIVES,
    variables: &[VarDef::new("limit_conn_status", conn::status)],
    confs: &[ConfType::of::<Zones<Count>>(Scope::Main), ConfType::of::<ConnLimits>(Scope::Server)],
    init: Some(map_zones::<StreamSession, Count>),
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "limit_conn_zone",
        C::STREAM,
        Args::T23,
        "",
        "A shared zone that counts sessions per key; [sync].",
        conn::set_zone,
    ),
    directive(
        "limit_conn",
        SS,
        Args::T2,
        "",
        "The maximum number of concurrent sessions per key.",
        conn::set_limit,
    ),
    directive(
        "limit_conn_log_level",
        SS,
        Args::T1,
        "error",
        "The log level of refused sessions.",
        |cx, n| cx.loc::<ConnLimits>().refusing.set_log_level(n),
    ),
    directive(
        "limit_conn_dry_run",
        SS,
        Args::FLAG,
        "off",
        "Only counts and logs; lets all sessions through.",
        |cx, n| cx.loc::<ConnLimits>().refusing.set_dry_run(n),
    ),
];

fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    if let Some(limiter) = view.conf::<ConnLimits>().limiter() {
        let (limiter, resuming) = limiter.shared();
        p.resume.push(Box::new(move |s| resuming.resume(s)));
        p.preaccess.push(Box::new(move |s| {
            if limiter.admit(s) || limiter.refusing().dry_run() {
                Verdict::Next
            } else {
                Verdict::Status(statuses::UNAVAILABLE)
            }
        }));
    }
    Ok(())
}
