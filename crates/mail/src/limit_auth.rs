//! `limit_auth`: clients whose logins fail too often are refused before the authentication server
//! is asked.

use common_modules::limits::auth::{self, Attempt, AuthLimits, Failures, TooMany};
use common_modules::limits::{Zones, map_zones};
use conf::table::{Args, Contexts as C, Directive, directive};
use engine::settings::{ConfType, Scope};
use mail_proto::{Credentials, Method};

use crate::module::{Cx, MS, Module};
use crate::session::MailSession;

/// The module's table.
pub static MODULE: Module = Module {
    name: "limit_auth",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<Zones<Failures>>(Scope::Main),
        ConfType::of::<AuthLimits>(Scope::Server),
    ],
    init: Some(map_zones::<MailSession, Failures>),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "limit_auth_zone",
        C::MAIL,
        Args::T2,
        "",
        "A zone that counts failed logins per client address (IPv6: per /64), and the rate of \
         failures that it allows. Weir's own.",
        auth::set_zone,
    ),
    directive(
        "limit_auth",
        MS,
        Args::T12,
        "off",
        "Refuses logins of clients whose failed logins exceed the zone's rate by more than `burst` \
         (default 5). Weir's own.",
        auth::set_limit,
    ),
    directive(
        "limit_auth_log_level",
        MS,
        Args::T1,
        "error",
        "The log level of refused logins, logged once a minute per client. Weir's own.",
        |cx, n| cx.loc::<AuthLimits>().refusing.set_log_level(n),
    ),
    directive(
        "limit_auth_dry_run",
        MS,
        Args::FLAG,
        "off",
        "Only counts and logs; lets all logins through. Weir's own.",
        |cx, n| cx.loc::<AuthLimits>().refusing.set_dry_run(n),
    ),
];

/// An attempt to log in begins. Senders and recipients, which nobody logs in for, do not count.
///
/// # Errors
/// It is to be refused.
pub(crate) fn begin(s: &MailSession, credentials: &Credentials) -> Result<Attempt, TooMany> {
    match credentials.method {
        Method::None => Ok(Attempt::default()),
        _ => s.conf::<AuthLimits>().begin(s),
    }
}
