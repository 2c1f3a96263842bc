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
        Args::T3.or(Args::T4).or(Args::T5).or(Args::T6),
        "",
        "A shared zone that counts requests per key, and the rate that it allows; \
         [sync|sync=strict] [on_error=local|open|deny] [wait=].",
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
        let is_strict = limiter.is_strict();
        p.preaccess.push(Box::new(LimitReq(limiter, is_strict)));
    }
    Ok(())
}

/// The limiter, and whether requests wait for other servers.
struct LimitReq(ReqLimiter, bool);

impl PhaseHandler for LimitReq {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if self.1 {
            return Step::Wait(Box::pin(async move {
                match self.0.admit_strictly(r).await {
                    ReqVerdict::Pass => Verdict::Next,
                    ReqVerdict::Refuse => super::refused(self.0.refusing()),
                    ReqVerdict::Delay(ms) => r.pause(ms).await.err().unwrap_or(Verdict::Next),
                }
            }));
        }
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
