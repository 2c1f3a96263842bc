//! `health_check` and `match`: the servers of an upstream are checked at intervals, by HTTP
//! requests, by calls of gRPC's health service or by connecting alone.

mod http2;
mod matching;
mod probe;

use std::io;
use std::rc::Rc;

use ::upstream::Group;
use ::upstream::health::conf::{Ask, Check, Checks, HealthConf, set_check, set_match, value_of};
use ::upstream::http_client::{Message, Request};
use ::upstream::ssl;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node, Word};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{ConfType, LocView, Module, Pipeline, Scope};
use http::server::HttpMain;
use http_upstream::conf::Conf as UpConf;

use matching::Matching;
use probe::{HttpProbe, Question};

/// The module's table.
pub static MODULE: Module = Module {
    name: "upstream_hc",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<HealthConf<Asks>>(Scope::Location),
        ConfType::of::<Checks<Matching>>(Scope::Main),
    ],
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
        "Actively checks the health of the servers in the location's upstream group.",
        health_check,
    ),
    directive(
        "match",
        C::HTTP,
        Args::BLOCK.or(Args::T1),
        "",
        "Conditions on a healthy server's response: status, header, body.",
        |cx, n| set_match(cx, n, Matching::parse),
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

/// The question of a check to servers.
struct Asks {
    uri: Bytes,
    kind: Kind,
    /// `grpc_service`
    service: Option<Word>,
    /// `grpc_status`
    status: Option<u64>,
}

impl Default for Asks {
    fn default() -> Asks {
        Asks { uri: Bytes::from_static(b"/"), kind: Kind::Http, service: None, status: None }
    }
}

fn health_check(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let asks = &set_check::<_, Asks>(cx, n)?.asks;
    if asks.kind != Kind::Grpc && (asks.service.is_some() || asks.status.is_some()) {
        let m = "\"grpc_service\" and \"grpc_status\" require \"type=grpc\"";
        return Err(ConfError::directive(n, m));
    }
    Ok(())
}

impl Ask for Asks {
    fn parameter(&mut self, w: &Word) -> Result<bool, ConfError> {
        let text = w.bytes();
        let (name, v) = match memchr::memchr(b'=', text) {
            Some(i) => (&text[..i], Some(&text[i + 1..])),
            None => (text, None),
        };
        match (name, v) {
            (b"uri", Some(v)) if v.first() == Some(&b'/') && is_line(v) => {
                self.uri = w.text.slice_ref(v);
            }
            (b"type", Some(b"http")) => self.kind = Kind::Http,
            (b"type", Some(b"tcp")) => self.kind = Kind::Tcp,
            (b"type", Some(b"grpc")) => self.kind = Kind::Grpc,
            (b"grpc_service", Some(v)) if !v.is_empty() => {
                self.service = Some(value_of(w, v));
            }
            (b"grpc_status", Some(v)) if base::ascii::parse_u64(v).is_some() => {
                self.status = base::ascii::parse_u64(v);
            }
            _ => return Ok(false),
        }
        Ok(true)
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
    if !l.set_here::<HealthConf<Asks>>() {
        return Ok(());
    }
    l.conf::<HealthConf<Asks>>().refuse_unused("location passes requests")
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
    if !l.set_here::<HealthConf<Asks>>() {
        return Ok(());
    }
    let Some(check) = l.conf::<HealthConf<Asks>>().used() else { return Ok(()) };
    let asks = &check.asks;
    let Servers { prefix, name, speak } = servers;
    let missing = match (speak, asks.kind) {
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
    let checks = l.conf::<Checks<Matching>>();
    let matching = checks.matching(&check, group)?;
    let server = http2::Server { name, tls: conf.tls.is_some(), timeout_ms: conf.read_timeout };
    let question = match asks.kind {
        Kind::Tcp => Question::Connect,
        Kind::Http if *speak == Speaks::Http2 => {
            Question::Http2(http2::Question::request(&asks.uri, &server, matching.clone()))
        }
        Kind::Http => Question::Http1(message(&check, name)),
        Kind::Grpc => {
            let service = asks.service.as_ref().map_or(&b""[..], |w| w.bytes());
            Question::Http2(http2::Question::call(service, asks.status, &server))
        }
    };
    let tls = conf.tls.as_ref().map(|tls| ssl::Fixed::new(tls, name)).transpose();
    let tls = tls.map_err(|directive| {
        let m = format!("\"health_check\" requires \"{prefix}{directive}\" without variables");
        ConfError::at(&check.at, m)
    })?;
    checks.add(&check, group, HttpProbe::new(question, matching, tls, conf))
}

/// The request of a check.
fn message(check: &Check<Asks>, host: &[u8]) -> Message {
    let request = Request {
        method: "GET",
        target: &check.asks.uri,
        host,
        fields: &[("User-Agent", b"weir (health check)")],
        body: None,
        keeps_connection: check.settings.keepalive_ms > 0,
    };
    request.to_message()
}

fn start(main: &Rc<HttpMain>, _: &engine::Seat) -> io::Result<()> {
    if let Some(checks) = main.confs.get::<Checks<Matching>>() {
        checks.start(&main.life.gate);
    }
    Ok(())
}
