//! `limit_req`: a limit on the rate of requests of one key.

use common_modules::limits::req::{self, Bucket, ReqLimiter, ReqLimits, ReqVerdict};
use conf::ConfError;
use conf::table::{Args, Contexts, Directive};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http::vars::VarDef;

/// The module's table.
pub static MODULE: Module = Module {
    variables: &[VarDef::new("limit_req_status", req::status)],
    ..super::module::<Bucket, ReqLimits>("limit_req", DIRECTIVES, install)
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "limit_req_zone",
        Contexts::HTTP,
        Args::T3,
        "",
        "A shared zone that counts requests per key, and the rate that it allows.",
        req::set_zone,
    ),
    directive(
        "limit_req",
        HSL,
        Args::T123,
        "",
        "Limits the request rate; up to `burst` requests above it wait, except the first `delay`.",
        req::set_limit,
    ),
    directive(
        "limit_req_log_level",
        HSL,
        Args::T1,
        "error",
        "The log level of refused requests; delayed ones are logged one level lower.",
        |cx, n| cx.loc::<ReqLimits>().refusing.set_log_level(n),
    ),
    directive(
        "limit_req_status",
        HSL,
        Args::T1,
        "503",
        "The status of refused requests.",
        |cx, n| cx.loc::<ReqLimits>().refusing.set_status(n),
    ),
    directive(
        "limit_req_dry_run",
        HSL,
        Args::FLAG,
        "off",
        "Only counts and logs; lets all requests through.",
        |cx, n| cx.loc::<ReqLimits>().refusing.set_dry_run(n),
    ),
];

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if let Some(limiter) = l.conf::<ReqLimits>().limiter() {
        p.preaccess.push(Box::new(LimitReq(limiter)));
    }
    Ok(())
}

struct LimitReq(ReqLimiter);

impl PhaseHandler for LimitReq {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        match self.0.admit(r) {
            ReqVerdict::Pass => Step::Now(Verdict::Next),
            ReqVerdict::Refuse => Step::Now(super::refused(self.0.refusing())),
            ReqVerdict::Delay(ms) => {
                Step::Wait(Box::pin(
                    async move { r.pause(ms).await.err().unwrap_or(Verdict::Next) },
                ))
            }
        }
    }
}
