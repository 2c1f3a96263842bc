//! `health_check` and `match`: active health checks of upstream servers: over TCP by connecting,
//! over UDP by a datagram, and by the response.

mod matching;
mod probe;

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive, directive};
use conf::value::set_msec;
use conf::{ConfError, Word};
use engine::settings::{ConfType, Scope};
use os::socket::Kind;
use upstream::Group;
use upstream::health::conf::{Ask, Checks, HealthConf, invalid, set_check, set_match};

use self::matching::Matching;
use self::probe::StreamProbe;
use super::conf::ProxyConf;
use super::header;
use crate::module::{Cx, Module, Pipeline, SS, View};
use crate::server::StreamMain;

/// The module's table.
pub static MODULE: Module = Module {
    name: "upstream_hc",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<HealthConf<Asks>>(Scope::Server),
        ConfType::of::<Timeout>(Scope::Server),
        ConfType::of::<Checks<Matching>>(Scope::Main),
    ],
    install: Some(refuse_unused),
    start: Some(start),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "health_check",
        C::STREAM_SERVER,
        Args::ANY,
        "",
        "Actively checks the health of the servers in the upstream group.",
        |cx, n| set_check::<_, Asks>(cx, n).map(drop),
    ),
    directive(
        "health_check_timeout",
        SS,
        Args::T1,
        "5s",
        "The timeout of a health check.",
        |cx, n| set_msec(&mut cx.loc::<Timeout>().ms, n),
    ),
    directive(
        "match",
        C::STREAM,
        Args::BLOCK.or(Args::T1),
        "",
        "What a health check sends, and the expected response.",
        |cx, n| set_match(cx, n, Matching::parse),
    ),
];

/// The kind of a check: over TCP or UDP, and its `match`.
struct Asks {
    kind: Kind,
}

impl Default for Asks {
    fn default() -> Asks {
        Asks { kind: Kind::Stream }
    }
}

impl Ask for Asks {
    fn parameter(&mut self, w: &Word) -> Result<bool, ConfError> {
        match w.bytes() {
            // Each check has its own connection.
            text if text.starts_with(b"keepalive_time=") => return Err(invalid(w)),
            b"udp" => self.kind = Kind::Datagram,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

engine::settings! {
    /// `health_check_timeout`
    struct Timeout {
        /// Milliseconds.
        ms: Option<u64>,
    }
}

/// Runs after the proxy's installation: rejects a `health_check` that no proxy uses, because it
/// would never run.
fn refuse_unused(view: &View<'_>, _: &mut Pipeline) -> Result<(), ConfError> {
    view.conf::<HealthConf<Asks>>().refuse_unused("server passes sessions")
}

/// Installs the health checks of a server with `proxy_pass` to a group and `health_check`. `name`
/// is the upstream's name under TLS.
///
/// # Errors
/// The upstream has no zone, the `match` block does not exist, or TLS settings depend on a session.
pub(super) fn install(
    view: &View<'_>,
    group: &Rc<Group>,
    name: &Bytes,
    conf: &ProxyConf,
) -> Result<(), ConfError> {
    let Some(check) = view.conf::<HealthConf<Asks>>().used() else { return Ok(()) };
    let kind = check.asks.kind;
    let checks = view.conf::<Checks<Matching>>();
    let matching = checks.matching(&check, group)?;
    // UDP sessions have no TLS, even if the server also listens on a TCP port.
    let tls = conf.tls.as_ref().filter(|_| kind == Kind::Stream);
    let tls = tls.map(|tls| tls.fixed(name)).transpose().map_err(|directive| {
        let m = format!("\"health_check\" requires \"proxy{directive}\" without variables");
        ConfError::at(&check.at, m)
    })?;
    let probe = StreamProbe {
        kind,
        matching,
        tls,
        header: conf.protocol.map(|headers| header::of_none(headers.version)).unwrap_or_default(),
        timeout_ms: view.conf::<Timeout>().ms.unwrap_or(5_000),
        answer_max: conf.buffer_size,
    };
    checks.add(&check, group, probe)
}

fn start(main: &Rc<StreamMain>, _: &engine::Seat) -> io::Result<()> {
    if let Some(checks) = main.confs.get::<Checks<Matching>>() {
        checks.start(&main.life.gate);
    }
    Ok(())
}
