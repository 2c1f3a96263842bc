//! TLS with clients of HTTP: the handshake of a connection, the server that it is for, and the
//! requests that may not enter.

use std::io;
use std::rc::Rc;

use ::upstream::resolver::Resolving;
use base::future::rarely;
use base::log::Level;
use common_modules::ssl::{
    self, Established, Expiries, NoEntry, OcspZones, SslSettings, SslShared, settings, variables,
};
use conf::ConfError;
use conf::table::{Contexts, Directive};
use event::{Deadline, Either, Wake};
use mem::Chain;
use net::transport::First;
use proto::tls_hello::ClientHello;
use proto::uri::validate_host;
use tls::Session;

use crate::build::Built;
use crate::channel::conn::{Conn, Secured};
use crate::cx::Cx;
use crate::join_directives;
use crate::module::{ConfType, Module, Scope};
use crate::request::Request;
use crate::server::{HttpMain, Listen, Server};
use crate::vars::VarDef;

/// The module's table.
pub static MODULE: Module = Module {
    name: "ssl",
    directives: DIRECTIVES,
    variables: VARIABLES,
    confs: &[
        ConfType::of::<SslSettings>(Scope::Server),
        ConfType::of::<SslShared>(Scope::Main),
        ConfType::of::<OcspZones>(Scope::Main),
    ],
    start: Some(start),
    status: Some(|main, o| expiries(&main.servers).report(o)),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = join_directives!(
    &settings::certificates::<Request>(PLACES),
    &settings::algorithms::<Request>(PLACES),
    &settings::clients::<Request>(PLACES),
    &settings::sessions::<Request>(PLACES),
    &settings::further::<Request>(PLACES),
    &settings::ocsp::<Request>(PLACES),
);

const PLACES: Contexts = Contexts::HTTP.or(Contexts::SERVER);

static VARIABLES: &[VarDef] = &variables::variables::<Request>();

/// The engine as TLS knows it.
pub(crate) const fn engine(http2: bool) -> ssl::Engine {
    let alpn: &[&[u8]] = match http2 {
        true => &[b"h2", b"http/1.1", b"http/1.0", b"http/0.9"],
        false => &[b"http/1.1", b"http/1.0", b"http/0.9"],
    };
    ssl::Engine { name: "HTTP", alpn }
}

/// The ends of the certificates of servers.
fn expiries<'a>(servers: impl IntoIterator<Item = &'a Rc<Server>>) -> Expiries {
    Expiries::of(servers.into_iter().map(|server| (&server.name, &*server.tls)))
}

/// One worker writes for all that certificates end.
fn start(main: &Rc<HttpMain>, seat: &engine::Seat) {
    if seat.index == 0 {
        event::spawn(expiries(&main.servers).watch(seat.log.clone(), main.life.gate.clone()));
    }
}

/// Checks that the servers of addresses with TLS have certificates, and warns of those that end
/// soon.
///
/// # Errors
/// One has none, and does not refuse handshakes.
pub(crate) fn check(servers: &[Built], listens: &[Listen]) -> Result<(), ConfError> {
    expiries(servers.iter().map(|built| &built.server)).warn_at_load();
    for address in listens.iter().flat_map(|listen| &listen.addresses).filter(|a| a.ssl) {
        let default = &address.default;
        if default.tls.has_certificates() {
            continue;
        }
        for server in servers {
            let is_here = |l: &&engine::addresses::ListenAddress| l.spec.addr == address.addr;
            let Some(listen) = server.listens.iter().find(is_here) else { continue };
            let is_default = Rc::ptr_eq(&server.server, default);
            let tls = &server.server.tls;
            // With a default server that refuses, the others must be able to answer.
            let lacks = !tls.has_certificates() && !tls.rejects;
            if lacks && (is_default || default.tls.rejects) {
                let (file, line) = (listen.at.pos.file.display(), listen.at.pos.line);
                let m = "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in";
                return Err(ConfError::at(&listen.at, format!("{m} {file}:{line}")));
            }
        }
    }
    Ok(())
}

/// An alert in plain text: a handshake that is refused before it begins.
const UNRECOGNIZED_NAME: &[u8] = &[21, 3, 3, 0, 2, 2, 112];
const PROTOCOL_VERSION: &[u8] = &[21, 3, 3, 0, 2, 2, 70];
const HANDSHAKE_FAILURE: &[u8] = &[21, 3, 3, 0, 2, 2, 40];

/// The outcome of a handshake that is none.
enum Fail {
    /// The client went away, or the worker wants the connection back.
    Gone,
    /// With a message at this level.
    Say(Level, String),
}

/// Answers the client's hello. A client that speaks plain text goes on with that.
///
/// # Errors
/// The connection is to be closed; the reason was logged.
pub(crate) async fn accept(c: &Rc<Conn>, main: &Rc<HttpMain>) -> Result<(), ()> {
    let ms = c.listen.default.core.client_header_timeout;
    let shaken = rarely(main.life.unless_given_up(Box::pin(shake(c, main, ms)).as_mut())).await;
    match shaken {
        Some(Ok(())) => Ok(()),
        Some(Err(Fail::Say(level, m))) => {
            let log = &c.server().root.core.error_log;
            if c.log_enabled(log, level) {
                c.log_write(log, level, format_args!("{m} while SSL handshaking"), &**c);
            }
            Err(())
        }
        Some(Err(Fail::Gone)) | None => Err(()),
    }
}

async fn shake(c: &Rc<Conn>, main: &Rc<HttpMain>, ms: u64) -> Result<(), Fail> {
    let until = Deadline::in_ms(ms);
    match c.sock.readable_or(&main.life.gate, until).await.map_err(|e| failed(&e))? {
        Wake::Ready => {}
        // The worker is leaving. The client has just connected, and its hello is on its way.
        Wake::Gate => c.sock.readable(until).await.map_err(|e| failed(&e))?,
        Wake::Reclaim => return Err(Fail::Gone),
    }
    match c.sock.first(until).await.map_err(|e| failed(&e))? {
        First::Nothing => return Err(Fail::Gone),
        First::Other => {
            c.sock.go_clear();
            return Ok(());
        }
        First::Hello => {}
    }
    let (server, is_old, name, hello) = c.sock.with_hello(|hello| {
        // RFC 8446 section D.5, whatever else such a hello offers.
        let is_old = hello.is_some_and(|hello| hello.legacy_version() <= 0x0300);
        let name = hello.and_then(ClientHello::server_name).map(Box::<[u8]>::from);
        let kept = hello.filter(|_| main.asks_hello).map(whole_message);
        (server_of(c, name.as_deref()), is_old, name, kept)
    });
    let mut session = Established::new(tls_of(c, &server).tls.clone());
    (session.server_name, session.hello) = (name, hello);
    let _ = c.tls.set(Box::new(Secured { session, server: server.clone() }));
    let begun = match is_old {
        false => begin(c, main, &server, until).await,
        true => {
            let why = "error:0A000102:SSL routines::unsupported protocol";
            let m = format!("SSL_do_handshake() failed (SSL: {why})");
            Err((PROTOCOL_VERSION, Fail::Say(Level::Info, m)))
        }
    };
    let session = match begun {
        Ok(session) => session,
        Err((alert, fail)) => {
            c.sock.go_clear();
            let mut chain = Chain::new();
            chain.write(alert);
            // The client may be gone already.
            let _ = c.sock.send(&mut chain, until).await;
            return Err(fail);
        }
    };
    c.sock.go_sealed(session);
    let server = tls_of(c, &server);
    let resolving = || server.root.confs.get::<Resolving>().cloned().unwrap_or_default();
    server.tls.update_staples(|| resolving().lookup());
    c.sock.handshake(until).await.map_err(|e| failed(&e))?;
    if let (Some(tls), Some(info)) = (c.tls.get(), c.sock.take_session_info()) {
        tls.session.established(info);
        if server.tls.looks_up_clients() {
            let (log, lookup) = (&server.root.core.error_log, resolving().lookup());
            Box::pin(tls.session.look_up(&lookup, log, c.number)).await;
        }
    }
    Ok(())
}

/// The server whose TLS a server's clients have: one without certificates has the default's.
fn tls_of<'a>(c: &'a Conn, server: &'a Rc<Server>) -> &'a Rc<Server> {
    if server.tls.has_certificates() { server } else { &c.listen.default }
}

/// The message with its head of four bytes.
fn whole_message(hello: &ClientHello<'_>) -> Box<[u8]> {
    let message = hello.message();
    let [_, a, b, c] = u32::try_from(message.len()).unwrap_or(0).to_be_bytes();
    [&[1, a, b, c], message].concat().into()
}

/// The server of the name in the client's hello, else the default one of the address.
fn server_of(c: &Conn, name: Option<&[u8]>) -> Rc<Server> {
    name.and_then(|name| named(c, name)).unwrap_or(&c.listen.default).clone()
}

/// The server of this name, if there is one.
fn named<'a>(c: &'a Conn, name: &[u8]) -> Option<&'a Rc<Server>> {
    let host = name.get(..validate_host(name)?.name_len)?.to_ascii_lowercase();
    c.listen.names.as_ref()?.find_early(&host)
}

async fn begin(
    c: &Rc<Conn>,
    main: &Rc<HttpMain>,
    server: &Rc<Server>,
    until: Deadline,
) -> Result<Session, (&'static [u8], Fail)> {
    if server.tls.rejects {
        let m = "SSL_do_handshake() failed (SSL: error:0A0000E2:SSL routines::callback failed)";
        return Err((UNRECOGNIZED_NAME, Fail::Say(Level::Info, m.to_owned())));
    }
    let tls = &tls_of(c, server).tls;
    let failed = |level, m: String| (HANDSHAKE_FAILURE, Fail::Say(level, m));
    let config = match &tls.changing {
        None => tls.config.clone(),
        Some(changing) => {
            let mut r = Request::take(c.clone(), main);
            let names = changing.names_for(&mut *r);
            Request::give_back(r);
            let loading = Box::pin(tls.config_with(changing, &names));
            match event::race(loading, event::sleep_until(until)).await {
                Either::First(config) => Some(config.map_err(|m| failed(Level::Error, m))?),
                Either::Second(()) => {
                    let m = "the certificates were not read in time".to_owned();
                    return Err(failed(Level::Error, m));
                }
            }
        }
    };
    let Some(config) = config else {
        let m = "no \"ssl_certificate\" is defined in server listening on SSL port";
        return Err(failed(Level::Error, m.to_owned()));
    };
    Session::server(&config).map_err(|e| failed(Level::Alert, e.to_string()))
}

fn failed(e: &io::Error) -> Fail {
    if let Some(error) = e.get_ref().and_then(|e| e.downcast_ref::<tls::Error>()) {
        let level = if error.is_by_peer() { Level::Info } else { Level::Crit };
        return Fail::Say(level, format!("SSL_do_handshake() failed (SSL: {error})"));
    }
    Fail::Say(
        Level::Info,
        match e.kind() {
            io::ErrorKind::TimedOut => "client timed out (110: Connection timed out)".to_owned(),
            io::ErrorKind::UnexpectedEof => "peer closed connection in SSL handshake".to_owned(),
            _ => {
                format!("peer closed connection in SSL handshake {}", base::log::os_error(e))
            }
        },
    )
}

/// Whether a request may enter its server: it came under TLS, with the certificate that the server
/// wants.
///
/// # Errors
/// The status to refuse it with.
pub(crate) fn admit(r: &Request) -> Result<(), u16> {
    let Some(tls) = r.c().tls.get() else {
        r.log(Level::Info, format_args!("client sent plain HTTP request to HTTPS port"));
        return Err(497);
    };
    match tls.session.admit(r.server.tls.verify.mode) {
        Ok(()) => Ok(()),
        Err(NoEntry::Bad(number, text)) => {
            let m = format_args!("client SSL certificate verify error: ({number}:{text})");
            r.log(Level::Info, m);
            Err(495)
        }
        Err(NoEntry::Status(text)) => {
            r.log(Level::Info, format_args!("client SSL certificate verify error: {text}"));
            Err(495)
        }
        Err(NoEntry::Missing) => {
            r.log(Level::Info, format_args!("client sent no required SSL certificate"));
            Err(496)
        }
    }
}

/// A server that verifies clients is not to be had by another name than that of the handshake,
/// which another server's rules were for.
///
/// # Errors
/// The status to refuse the request with.
pub(crate) fn check_name(r: &Request) -> Result<(), u16> {
    let Some(name) = r.c().tls.get().and_then(|tls| tls.session.server_name.as_deref()) else {
        return Ok(());
    };
    let is_same = r.host.eq_ignore_ascii_case(name);
    if is_same || r.head.host.is_none() || !r.server.tls.verify.is_on() {
        return Ok(());
    }
    // A name that no server has negotiated nothing.
    if named(r.c(), name).is_none() {
        return Ok(());
    }
    let m =
        "client attempted to request the server name different from the one that was negotiated";
    r.log(Level::Info, format_args!("{m}"));
    Err(421)
}
