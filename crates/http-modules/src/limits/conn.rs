//! `limit_conn`: a limit on the requests of one key that are under way at once.

use common_modules::limits::conn::{self, ConnLimits, Count};
use conf::ConfError;
use conf::table::{Args, Contexts, Directive};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module, Pipeline, Verdict};
use http::request::Request;
use http::vars::VarDef;

/// The module's table.
pub static MODULE: Module = Module {
    variables: &[VarDef::new("limit_conn_status", conn::status)],
    ..super::module::<Count, ConnLimits>("limit_conn", DIRECTIVES, install)
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "limit_conn_zone",
        Contexts::HTTP,
        Args::T23,
        "",
        "A shared zone that counts, per key, connections with a request in progress; [sync].",
        conn::set_zone,
    ),
    directive(
        "limit_conn",
        HSL,
        Args::T2,
        "",
        "The maximum number of concurrent connections per key.",
        conn::set_limit,
    ),
    directive(
        "limit_conn_log_level",
        HSL,
        Args::T1,
        "error",
        "The log level of refused requests.",
        |cx, n| cx.loc::<ConnLimits>().refusing.set_log_level(n),
    ),
    directive(
        "limit_conn_status",
        HSL,
        Args::T1,
        "503",
        "The status of refused requests.",
        |cx, n| cx.loc::<ConnLimits>().refusing.set_status(n),
    ),
    directive(
        "limit_conn_dry_run",
        HSL,
        Args::FLAG,
        "off",
        "Only counts and logs; lets all requests through.",
        |cx, n| cx.loc::<ConnLimits>().refusing.set_dry_run(n),
    ),
];

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if let Some(limiter) = l.conf::<ConnLimits>().limiter() {
        let (limiter, resuming) = limiter.shared();
        p.resume.push(Box::new(move |r| resuming.resume(r)));
        p.preaccess.push(Box::new(move |r: &mut Request| match limiter.admit(r) {
            true => Verdict::Next,
            false => super::refused(limiter.refusing()),
        }));
    }
    Ok(())
}
