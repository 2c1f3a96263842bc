//! `health_check` and `match`: the servers of an upstream are checked at intervals, over TCP by
//! connecting, over UDP by a datagram, and by what they answer.

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

/// The question of a check to servers: a connection, or a datagram.
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
            // A connection is for one check.
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

/// Comes after the proxy: a check that it does not use would never run.
fn refuse_unused(view: &View<'_>, _: &mut Pipeline) -> Result<(), ConfError> {
    view.conf::<HealthConf<Asks>>().refuse_unused("server passes sessions")
}

/// Adds the checks of a server that passes its sessions to a group, if it has a `health_check`.
/// `name` is the servers' under TLS.
///
/// # Errors
/// The upstream has no zone; no such `match`; settings of TLS that depend on a session.
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
    // Sessions over UDP have no TLS; a TCP port beside it is none of theirs either way.
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
