//! `health_check` and `match`: the servers of an upstream are checked at intervals, over TCP by
//! connecting, over UDP by a datagram, and by what they answer.

mod matching;
mod probe;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use base::log::lossy;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive, directive};
use conf::value::set_msec;
use conf::{ConfError, Node, Word};
use engine::settings::{Conf, ConfType, Scope};
use os::socket::Kind;
use upstream::Group;
use upstream::health::{Checker, NotShared, Settings};

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
        ConfType::of::<HealthConf>(Scope::Server),
        ConfType::of::<Timeout>(Scope::Server),
        ConfType::of::<Checks>(Scope::Main),
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
        "Asks the servers of the upstream regularly whether they are well.",
        health_check,
    ),
    directive(
        "health_check_timeout",
        SS,
        Args::T1,
        "5s",
        "The time within which a check must be over.",
        |cx, n| set_msec(&mut cx.loc::<Timeout>().ms, n),
    ),
    directive(
        "match",
        C::STREAM,
        Args::BLOCK.or(Args::T1),
        "",
        "What a check sends to a server, and the answer of a healthy one.",
        |cx, n| {
            let name = n.arg(0)?;
            let matching = Matching::parse(n.children())?;
            let known = &mut cx.main::<Checks>().matches;
            if known.insert(name.text.clone(), Rc::new(matching)).is_some() {
                return Err(ConfError::at(name, format!("duplicate match \"{}\"", name.lossy())));
            }
            Ok(())
        },
    ),
];

/// The parameters of a `health_check`.
struct HealthCheck {
    at: Word,
    settings: Settings,
    matching: Option<Word>,
    kind: Kind,
    /// The server passes its sessions to the upstream that is checked.
    used: Cell<bool>,
}

/// `health_check` of a server; it is not inherited.
#[derive(Default)]
struct HealthConf(Option<Rc<HealthCheck>>);

impl Conf for HealthConf {}

engine::settings! {
    /// `health_check_timeout`
    struct Timeout {
        /// Milliseconds.
        ms: Option<u64>,
    }
}

/// All checks of the configuration, and the `match` blocks.
#[derive(Default)]
struct Checks {
    matches: HashMap<Bytes, Rc<Matching>>,
    list: RefCell<Vec<Rc<Checker>>>,
}

impl Conf for Checks {}

fn health_check(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<HealthConf>().0.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let mut check = HealthCheck {
        at: n.name.clone(),
        settings: Settings::default(),
        matching: None,
        kind: Kind::Stream,
        used: Cell::new(false),
    };
    for w in &n.args {
        let text = w.bytes();
        match text.strip_prefix(b"match=") {
            // A connection is for one check.
            _ if text.starts_with(b"keepalive_time=") => return Err(invalid(w)),
            Some(name) if !name.is_empty() => {
                check.matching = Some(Word { text: w.text.slice_ref(name), ..w.clone() });
            }
            None if text == b"udp" => check.kind = Kind::Datagram,
            None if check.settings.parameter(w)? => {}
            _ => return Err(invalid(w)),
        }
    }
    check.settings.finish(n)?;
    cx.loc::<HealthConf>().0 = Some(Rc::new(check));
    Ok(())
}

fn invalid(w: &Word) -> ConfError {
    ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))
}

/// Comes after the proxy: a check that it does not use would never run.
fn refuse_unused(view: &View<'_>, _: &mut Pipeline) -> Result<(), ConfError> {
    match &view.conf::<HealthConf>().0 {
        Some(check) if !check.used.get() => {
            let m = "\"health_check\" requires that its server passes sessions to an upstream \
                     without variables in its name";
            Err(ConfError::at(&check.at, m.to_owned()))
        }
        _ => Ok(()),
    }
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
    let Some(check) = view.conf::<HealthConf>().0.clone() else { return Ok(()) };
    check.used.set(true);
    let checks = view.conf::<Checks>();
    let matching = match &check.matching {
        None => Rc::default(),
        Some(w) => checks
            .matches
            .get(&w.text)
            .cloned()
            .ok_or_else(|| ConfError::at(w, format!("match \"{}\" not found", w.lossy())))?,
    };
    // Sessions over UDP have no TLS; a TCP port beside it is none of theirs either way.
    let tls = conf.tls.as_ref().filter(|_| check.kind == Kind::Stream);
    let tls = tls.map(|tls| tls.fixed(name)).transpose().map_err(|directive| {
        let m = format!("\"health_check\" requires \"proxy{directive}\" without variables");
        ConfError::at(&check.at, m)
    })?;
    let probe = StreamProbe {
        kind: check.kind,
        matching,
        tls,
        header: conf.protocol.map(|headers| header::of_none(headers.version)).unwrap_or_default(),
        timeout_ms: view.conf::<Timeout>().ms.unwrap_or(5_000),
        answer_max: conf.buffer_size,
    };
    let checker = Checker::new(check.settings.clone(), group, Box::new(probe));
    let checker = checker.map_err(|NotShared| {
        let upstream = lossy(&group.name);
        let m = format!("health_check requires upstream \"{upstream}\" to be in shared memory");
        ConfError::at(&check.at, m)
    })?;
    checks.list.borrow_mut().push(checker);
    Ok(())
}

fn start(main: &Rc<StreamMain>, _: &engine::Seat) {
    let Some(checks) = main.confs.get::<Checks>() else { return };
    checks.list.borrow().iter().for_each(|checker| checker.start(&main.life.gate));
}
