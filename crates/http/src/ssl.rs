//! TLS with clients of HTTP: the handshake of a connection, the server that it is for, and the
//! requests that may not enter.

use std::rc::Rc;

use base::future::rarely;
use base::log::Level;
use common_modules::ssl::handshake::{self, Finish, Greeting, NoHandshake};
use common_modules::ssl::{
    self, Established, Expiries, Known, NoEntry, OcspZones, ServerTls, SslSettings, SslShared,
    settings, variables,
};
use conf::table::{Contexts, Directive};
use event::Deadline;
use http_wire::uri::validate_host;
use upstream::resolver::Resolving;

use crate::channel::conn::{Conn, Secured};
use crate::cx::Cx;
use crate::module::{ConfType, Module, Scope};
use crate::request::Request;
use crate::server::{HttpMain, Server, TlsChallenges};
use crate::vars::VarDef;
use conf::join_directives;

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
    start: Some(|main, seat| Expiries::start(&main.servers, seat, &main.life)),
    status: Some(|main, o| ssl::report(&certificates(main), o)),
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

/// The certificates of all servers, and those that are ordered for them.
pub fn certificates(main: &HttpMain) -> Vec<Known> {
    let ordered = main.tls_ordered.get().map(|ordered| ordered()).unwrap_or_default();
    Expiries::of(&main.servers).known().chain(ordered).collect()
}

/// Answers the client's hello. A client that speaks plain text goes on with that.
///
/// # Errors
/// The connection is to be closed; the reason was logged.
pub(crate) async fn accept(c: &Rc<Conn>, main: &Rc<HttpMain>) -> Result<(), ()> {
    let ms = c.head_timeout();
    let shaken = rarely(main.life.unless_given_up(Box::pin(shake(c, main, ms)).as_mut())).await;
    match shaken {
        Some(Ok(())) => {
            if let Some(tls) = c.tls.get() {
                let resumed = tls.session.info().is_some_and(|info| info.is_resumed);
                main.metrics.handshake(&tls.server.zone, Ok(resumed));
            }
            Ok(())
        }
        Some(Err(NoHandshake::Say(level, m))) => {
            let server = c.tls.get().map_or(&c.listen.default, |tls| &tls.server);
            main.metrics.handshake(&server.zone, Err(()));
            c.log(level, format_args!("{m} while SSL handshaking"));
            Err(())
        }
        Some(Err(NoHandshake::Gone)) | None => Err(()),
    }
}

async fn shake(c: &Rc<Conn>, main: &Rc<HttpMain>, ms: u64) -> Result<(), NoHandshake> {
    let until = Deadline::in_ms(ms);
    let greeting = handshake::greeting(c.sock(), until, main.asks_hello).await?;
    let Greeting::Hello(mut hello) = greeting else { return Ok(()) };
    let server = server_of(c, hello.name.as_deref());
    let mut session = Established::new(tls_of(c, &server).tls.clone());
    (session.server_name, session.hello) = (hello.name.take(), hello.message.take());
    let _ = c.tls.set(Rc::new(Secured { session, server: server.clone() }));
    let Some(Secured { session: established, .. }) = c.tls.get().map(|tls| &**tls) else {
        return Err(NoHandshake::Gone);
    };
    if hello.is_challenge
        && let Some(find) = main.tls_challenges.get()
    {
        return answer_challenge(c, established, find, until).await;
    }
    let of = tls_of(c, &server);
    let names = of.tls.changing.as_ref().map(|changing| {
        let mut r = Request::take(c.clone(), main);
        let names = changing.names_for(&mut *r);
        Request::give_back(r);
        names
    });
    let begun = handshake::begin(&hello, &server.tls, &of.tls, names, until).await;
    let resolving = || of.root.confs.get::<Resolving>().cloned().unwrap_or_default();
    let rest = Finish {
        tls: &of.tls,
        established,
        lookup: || resolving().lookup(),
        log: &of.root.core.error_log,
        connection: c.number,
    };
    handshake::finish(c.sock(), begun, rest, until).await
}

/// Shows the certificate of a challenge. Its validator wants nothing else: the connection ends.
async fn answer_challenge(
    c: &Rc<Conn>,
    established: &Established,
    find: &TlsChallenges,
    until: Deadline,
) -> Result<(), NoHandshake> {
    let found = match established.server_name.as_deref() {
        Some(name) => find(name).await,
        None => None,
    };
    let pair = found.as_ref().map(|(certificate, key)| (&certificate[..], &key[..]));
    let rest = Finish {
        tls: &ServerTls::default(),
        established,
        lookup: || Resolving::default().lookup(),
        log: &c.listen.default.root.core.error_log,
        connection: c.number,
    };
    handshake::finish(c.sock(), handshake::begin_challenge(pair), rest, until).await?;
    // The peer is to see the end of a session that was whole.
    let _ = c.sock().flush(until).await;
    Err(NoHandshake::Gone)
}

/// The server whose TLS a server's clients have: one without certificates has the default's.
pub(crate) fn tls_of<'a>(c: &'a Conn, server: &'a Rc<Server>) -> &'a Rc<Server> {
    if server.tls.has_certificates() { server } else { &c.listen.default }
}

/// The server of the name in the client's hello, else the default one of the address.
pub(crate) fn server_of(c: &Conn, name: Option<&[u8]>) -> Rc<Server> {
    name.and_then(|name| named(c, name)).unwrap_or(&c.listen.default).clone()
}

/// The host that a hello names, which may end in a dot as that of a request may.
fn host_in(name: &[u8]) -> Option<&[u8]> {
    name.get(..validate_host(name)?.name_len)
}

/// The server of this name, if there is one.
fn named<'a>(c: &'a Conn, name: &[u8]) -> Option<&'a Rc<Server>> {
    c.listen.names.as_ref()?.find_early(&host_in(name)?.to_ascii_lowercase())
}

/// Whether a request may enter its server: by TLS, and the client certificate it requires.
///
/// # Errors
/// The status to refuse it with.
pub(crate) fn admit(r: &Request) -> Result<(), u16> {
    let Some(tls) = r.c().tls.get() else {
        if r.is_traced() {
            return Ok(());
        }
        r.log(Level::Info, format_args!("client sent plain HTTP request to HTTPS port"));
        return Err(497);
    };
    match tls.session.admit(r.server.tls.verify.mode) {
        Ok(()) => Ok(()),
        Err(why) => {
            r.log(Level::Info, format_args!("{why}"));
            Err(if matches!(why, NoEntry::Missing) { 496 } else { 495 })
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
    // A name that no server has negotiated nothing.
    let Some(host) = host_in(name).filter(|_| r.server.tls.verify.is_on()) else { return Ok(()) };
    if r.target.host.eq_ignore_ascii_case(host) || named(r.c(), name).is_none() {
        return Ok(());
    }
    let m =
        "client attempted to request the server name different from the one that was negotiated";
    r.log(Level::Info, format_args!("{m}"));
    Err(421)
}
