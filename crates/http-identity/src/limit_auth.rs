//! `limit_auth`: clients whose passwords or tokens are refused too often get 429 before another one
//! is checked. `auth_basic`, `auth_ldap` and `auth_jwt` ask here.
//!
//! A request is told the result of a check only if the limit allows one more at that time, so that
//! a client learns nothing from many requests at once. Requests without credentials guess nothing
//! and do not count.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use common_modules::limits::auth::{self, AuthLimits, Failures};
use common_modules::limits::{Zones, map_zones};
use conf::table::{Args, Contexts as C, Directive};
use engine::settings::{ConfType, Scope};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Module, Verdict};
use http::request::Request;

/// The module's table.
pub static MODULE: Module = Module {
    confs: &[
        ConfType::of::<Zones<Failures>>(Scope::Main),
        ConfType::of::<AuthLimits>(Scope::Location),
    ],
    init: Some(map_zones::<Request, Failures>),
    ..Module::with_conf::<AuthLimits>("limit_auth", DIRECTIVES)
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "limit_auth_zone",
        C::HTTP,
        Args::T2,
        "",
        "A zone that counts refused passwords and tokens per client address (IPv6: per /64), and \
         the rate of failures that it allows. Weir's own.",
        auth::set_zone,
    ),
    directive(
        "limit_auth",
        HSL,
        Args::T12,
        "off",
        "Responds with 429 to credentials of clients whose failures at `auth_basic`, `auth_ldap` \
         and `auth_jwt` exceed the zone's rate by more than `burst` (default 5). Weir's own.",
        auth::set_limit,
    ),
    directive(
        "limit_auth_log_level",
        HSL,
        Args::T1,
        "error",
        "The log level of clients that are refused, logged once a minute per client. Weir's own.",
        |cx, n| cx.loc::<AuthLimits>().refusing.set_log_level(n),
    ),
    directive(
        "limit_auth_dry_run",
        HSL,
        Args::FLAG,
        "off",
        "Only counts and logs; lets all requests through. Weir's own.",
        |cx, n| cx.loc::<AuthLimits>().refusing.set_dry_run(n),
    ),
];

/// The kind of credentials.
#[derive(Clone, Copy)]
pub(crate) enum Proof {
    Password,
    Token,
}

/// The state of a request. The page of an error may be in a location that checks the credentials
/// again: that is no other attempt.
#[derive(Clone, Copy, Default)]
enum State {
    #[default]
    Open,
    Failed,
    /// It may retry after this number of seconds.
    Refused(u64),
}

/// The states by [`Proof`].
#[derive(Default)]
struct States([Cell<State>; 2]);

/// A request is refused, for so many seconds.
pub(crate) struct Refused(u64);

/// Runs `f` with the limit of the request's location, if it has any and the credentials did not
/// fail before.
fn limited(
    r: &mut Request,
    proof: Proof,
    f: impl FnOnce(&AuthLimits, &Request) -> Result<State, auth::TooMany>,
) -> Result<(), Refused> {
    let loc = r.loc.clone();
    let Some(limits) = loc.confs.get::<AuthLimits>().filter(|limits| limits.is_on()) else {
        return Ok(());
    };
    let states: Rc<States> = r.shared();
    let state = &states.0[proof as usize];
    match state.get() {
        State::Open => {}
        State::Failed => return Ok(()),
        State::Refused(retry_s) => return Err(Refused(retry_s)),
    }
    match f(limits, r) {
        Ok(next) => {
            state.set(next);
            Ok(())
        }
        Err(auth::TooMany { retry_s }) => {
            state.set(State::Refused(retry_s));
            Err(Refused(retry_s))
        }
    }
}

/// Asks whether the request's credentials may be checked.
pub(crate) fn admit(r: &mut Request, proof: Proof) -> Result<(), Refused> {
    limited(r, proof, |limits, r| limits.admit(r).map(|()| State::Open))
}

/// The request's credentials were refused, which counts.
///
/// # Errors
/// The client must not learn that.
pub(crate) fn failed(r: &mut Request, proof: Proof) -> Result<(), Refused> {
    limited(r, proof, |limits, r| limits.settle(r, true).map(|()| State::Failed))
}

/// The request's credentials are good.
///
/// # Errors
/// The client must not learn that.
pub(crate) fn succeeded(r: &mut Request, proof: Proof) -> Result<(), Refused> {
    limited(r, proof, |limits, r| limits.settle(r, false).map(|()| State::Open))
}

/// The response to a request that is refused.
#[cold]
pub(crate) fn respond(r: &mut Request, Refused(retry_s): Refused) -> Verdict {
    // Another module may have asked for credentials before, with `satisfy any`.
    for name in [&b"WWW-Authenticate"[..], b"Proxy-Authenticate", b"Retry-After"] {
        r.out.remove(name);
    }
    r.out.add("Retry-After", Bytes::from(retry_s.to_string()));
    Verdict::Status(429)
}
