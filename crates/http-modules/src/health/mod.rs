//! `health_check` and `match`: the servers of an upstream are checked at intervals, by HTTP
//! requests, by calls of gRPC's health service or by connecting alone.

mod http2;
mod matching;
mod probe;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use ::upstream::Group;
use ::upstream::health::{Checker, NotShared, Settings};
use ::upstream::http_client::{Message, Request};
use ::upstream::ssl;
use base::log::lossy;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node, Word};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope};
use http::server::HttpMain;
use http::upstream::conf::Conf as UpConf;

use matching::Matching;
use probe::{HttpProbe, Question};

/// The module's table.
pub static MODULE: Module = Module {
    name: "upstream_hc",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<HealthConf>(Scope::Location), ConfType::of::<Checks>(Scope::Main)],
    install: Some(refuse_unused),
    start: Some(start),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "health_check",
        C::LOCATION,
        Args::ANY,
        "",
        "Asks the servers of the location's upstream regularly whether they are well.",
        health_check,
    ),
    directive(
        "match",
        C::HTTP,
        Args::BLOCK.or(Args::T1),
        "",
        "The tests of a healthy server's answer: status, header, body.",
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

/// `type`
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Http,
    Tcp,
    Grpc,
}

/// The protocol that servers speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaks {
    /// HTTP/1.
    Http1,
    /// HTTP/2.
    Http2,
    /// gRPC.
    Grpc,
    /// Another one: checks only connect.
    Other,
}

/// The parameters of a `health_check`.
#[derive(Clone)]
struct HealthCheck {
    at: Word,
    settings: Settings,
    uri: Bytes,
    matching: Option<Word>,
    kind: Kind,
    /// `grpc_service`
    service: Option<Word>,
    /// `grpc_status`
    status: Option<u64>,
    /// A location's handler passes requests to the upstream that is checked.
    used: Cell<bool>,
}

#[derive(Default)]
struct HealthConf(Option<Rc<HealthCheck>>);

impl Conf for HealthConf {}

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
        uri: Bytes::from_static(b"/"),
        matching: None,
        kind: Kind::Http,
        service: None,
        status: None,
        used: Cell::new(false),
    };
    for w in &n.args {
        check.parameter(w)?;
    }
    check.settings.finish(n)?;
    if check.kind != Kind::Grpc && (check.service.is_some() || check.status.is_some()) {
        let m = "\"grpc_service\" and \"grpc_status\" require \"type=grpc\"";
        return Err(ConfError::directive(n, m));
    }
    cx.loc::<HealthConf>().0 = Some(Rc::new(check));
    Ok(())
}

impl HealthCheck {
    fn parameter(&mut self, w: &Word) -> Result<(), ConfError> {
        if self.settings.parameter(w)? {
            return Ok(());
        }
        let text = w.bytes();
        let (name, v) = match memchr::memchr(b'=', text) {
            Some(i) => (&text[..i], Some(&text[i + 1..])),
            None => (text, None),
        };
        match (name, v) {
            (b"uri", Some(v)) if v.first() == Some(&b'/') && is_line(v) => {
                self.uri = w.text.slice_ref(v);
            }
            (b"match", Some(v)) if !v.is_empty() => {
                self.matching = Some(Word { text: w.text.slice_ref(v), ..w.clone() });
            }
            (b"type", Some(b"http")) => self.kind = Kind::Http,
            (b"type", Some(b"tcp")) => self.kind = Kind::Tcp,
            (b"type", Some(b"grpc")) => self.kind = Kind::Grpc,
            (b"grpc_service", Some(v)) if !v.is_empty() => {
                self.service = Some(Word { text: w.text.slice_ref(v), ..w.clone() });
            }
            (b"grpc_status", Some(v)) if base::ascii::parse_u64(v).is_some() => {
                self.status = base::ascii::parse_u64(v);
            }
            _ => return Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
        }
        Ok(())
    }
}

/// Nothing in it ends a line or a word of a request.
fn is_line(text: &[u8]) -> bool {
    text.iter().all(|b| b.is_ascii_graphic())
}

/// The servers of a location.
pub struct Servers<'a> {
    /// The prefix of the location's directives.
    pub prefix: &'static str,
    /// The name of the servers: the host of requests, and that of TLS.
    pub name: &'a Bytes,
    /// Their protocol.
    pub speak: Speaks,
}

/// Comes after the modules that pass requests on: a check that none of them used would never run.
fn refuse_unused(l: &LocView, _: &mut Pipeline) -> Result<(), ConfError> {
    if !l.set_here::<HealthConf>() {
        return Ok(());
    }
    match &l.conf::<HealthConf>().0 {
        Some(check) if !check.used.get() => {
            let m = "\"health_check\" requires that its location passes requests to an upstream \
                     without variables in its name";
            Err(ConfError::at(&check.at, m.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Adds the checks of a location that passes requests to a group, if `health_check` stands there.
///
/// # Errors
/// The upstream has no zone; no such `match`; a gateway is to be asked for more than a connection.
pub fn install(
    l: &LocView,
    group: &Rc<Group>,
    conf: &UpConf,
    servers: &Servers<'_>,
) -> Result<(), ConfError> {
    if !l.set_here::<HealthConf>() {
        return Ok(());
    }
    let Some(check) = l.conf::<HealthConf>().0.clone() else { return Ok(()) };
    check.used.set(true);
    let Servers { prefix, name, speak } = servers;
    let missing = match (speak, check.kind) {
        (_, Kind::Tcp) | (Speaks::Http1 | Speaks::Http2, Kind::Http) => None,
        (Speaks::Grpc, Kind::Grpc) => None,
        (Speaks::Http1 | Speaks::Http2, Kind::Grpc) => Some("grpc_pass"),
        (Speaks::Grpc, Kind::Http) => Some("type=grpc"),
        (Speaks::Other, _) => Some("type=tcp"),
    };
    if let Some(missing) = missing {
        let m = format!("\"health_check\" beside \"{prefix}_pass\" requires \"{missing}\"");
        return Err(ConfError::at(&check.at, m));
    }
    let not_shared = || {
        let upstream = lossy(&group.name);
        let m = format!("health_check requires upstream \"{upstream}\" to be in shared memory");
        ConfError::at(&check.at, m)
    };
    if !group.servers.is_shared() {
        return Err(not_shared());
    }
    let checks = l.conf::<Checks>();
    let matching = match &check.matching {
        None => Rc::new(Matching::default()),
        Some(w) => checks
            .matches
            .get(&w.text)
            .cloned()
            .ok_or_else(|| ConfError::at(w, format!("match \"{}\" not found", w.lossy())))?,
    };
    let server = http2::Server { name, tls: conf.tls.is_some(), timeout_ms: conf.read_timeout };
    let question = match check.kind {
        Kind::Tcp => Question::Connect,
        Kind::Http if *speak == Speaks::Http2 => {
            Question::Http2(http2::Question::request(&check.uri, &server, matching.clone()))
        }
        Kind::Http => Question::Http1(message(&check, name)),
        Kind::Grpc => {
            let service = check.service.as_ref().map_or(&b""[..], |w| w.bytes());
            Question::Http2(http2::Question::call(service, check.status, &server))
        }
    };
    let tls = conf.tls.as_ref().map(|tls| ssl::Fixed::new(tls, name)).transpose();
    let tls = tls.map_err(|directive| {
        let m = format!("\"health_check\" requires \"{prefix}{directive}\" without variables");
        ConfError::at(&check.at, m)
    })?;
    let probe = HttpProbe::new(question, matching, tls, conf);
    let checker = Checker::new(check.settings.clone(), group, Box::new(probe));
    checks.list.borrow_mut().push(checker.map_err(|NotShared| not_shared())?);
    Ok(())
}

/// The request of a check.
fn message(check: &HealthCheck, host: &[u8]) -> Message {
    let request = Request {
        method: "GET",
        target: &check.uri,
        host,
        fields: &[("User-Agent", b"weir (health check)")],
        body: None,
        keeps_connection: check.settings.keepalive_ms > 0,
    };
    request.to_message()
}

fn start(main: &Rc<HttpMain>, _: &engine::Seat) {
    let Some(checks) = main.confs.get::<Checks>() else { return };
    checks.list.borrow().iter().for_each(|checker| checker.start(&main.life.gate));
}
