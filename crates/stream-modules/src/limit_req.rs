//! `limit_req`: a limit on the rate of connections and of datagrams of one key.

use std::rc::Rc;

use common_modules::limits::req::{self, Bucket, ReqLimits, ReqVerdict};
use common_modules::limits::{Zones, map_zones};
use conf::ConfError;
use conf::table::{Args, Contexts as C, Directive, directive};
use engine::settings::{ConfType, Scope};
use stream::content::statuses;
use stream::module::{SS, VarDef};
use stream::{Cx, Module, Pipeline, StreamSession, Verdict, View};

/// The module's table.
pub static MODULE: Module = Module {
    name: "limit_req",
    directives: DIRECTIVES,
    variables: &[VarDef::new("limit_req_status", req::status)],
    confs: &[ConfType::of::<Zones<Bucket>>(Scope::Main), ConfType::of::<ReqLimits>(Scope::Server)],
    init: Some(map_zones::<StreamSession, Bucket>),
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "limit_req_zone",
        C::STREAM,
        Args::T3.or(Args::T4),
        "",
        "A shared zone that counts connections and datagrams per key, and the rate it allows; \
         [sync].",
        req::set_zone,
    ),
    directive(
        "limit_req",
        SS,
        Args::T123,
        "",
        "Limits the connection rate; up to `burst` connections above it wait. Further datagrams of \
         a session above the rate are dropped.",
        req::set_limit,
    ),
    directive(
        "limit_req_log_level",
        SS,
        Args::T1,
        "error",
        "The log level of refused sessions; delayed ones are logged one level lower.",
        |cx, n| cx.loc::<ReqLimits>().refusing.set_log_level(n),
    ),
    directive(
        "limit_req_dry_run",
        SS,
        Args::FLAG,
        "off",
        "Only counts and logs; lets all sessions through.",
        |cx, n| cx.loc::<ReqLimits>().refusing.set_dry_run(n),
    ),
];

fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    let Some(limiter) = view.conf::<ReqLimits>().limiter() else { return Ok(()) };
    let limiter = Rc::new(limiter);
    let of_datagrams = limiter.clone();
    p.preaccess.push(Box::new(move |s| match limiter.admit(s) {
        ReqVerdict::Pass => Verdict::Next,
        ReqVerdict::Delay(ms) => Verdict::Wait(ms),
        ReqVerdict::Refuse if limiter.refusing().dry_run() => Verdict::Next,
        ReqVerdict::Refuse => Verdict::Status(statuses::UNAVAILABLE),
    }));
    p.datagram.push(Box::new(move |s| of_datagrams.admit_another(s)));
    Ok(())
}
