//! TLS with clients: the handshake, and the selection of the server by SNI.

use std::rc::Rc;

use ::upstream::resolver::Resolving;
use base::future::rarely;
use base::log::Level;
use common_modules::ssl::handshake::{self, Finish, Greeting, NoHandshake};
use common_modules::ssl::{
    self, Established, Expiries, OcspZones, SslSettings, SslShared, settings, variables,
};
use conf::table::{Args, Contexts, Directive, join};
use conf::value::set_msec;
use engine::Client;
use engine::settings::{ConfType, Scope};
use event::Deadline;

use crate::module::SS;
use crate::module::{Cx, Module, VarDef};
use crate::phases::status;
use crate::server::Server;
use crate::session::StreamSession;
use conf::table::directive;

/// The module's table.
pub static MODULE: Module = Module {
    name: "ssl",
    directives: DIRECTIVES,
    variables: VARIABLES,
    confs: &[
        ConfType::of::<SslSettings>(Scope::Server),
        ConfType::of::<Handshakes>(Scope::Server),
        ConfType::of::<SslShared>(Scope::Main),
        ConfType::of::<OcspZones>(Scope::Main),
    ],
    start: Some(|main, seat| Expiries::start(&main.servers, seat, &main.life)),
    ..Module::EMPTY
};

engine::settings! {
    /// Handshake settings that are specific to this engine.
    pub(crate) struct Handshakes {
        /// `ssl_handshake_timeout`, milliseconds.
        timeout: Option<u64>,
    }
}

const PLACES: Contexts = SS;

const OWN: [Directive<Cx>; 1] = [directive(
    "ssl_handshake_timeout",
    SS,
    Args::T1,
    "60s",
    "The timeout for the TLS handshake.",
    |cx, n| set_msec(&mut cx.loc::<Handshakes>().timeout, n),
)];

static DIRECTIVES: &[Directive<Cx>] = &join::<_, 35>(&[
    &OWN,
    &settings::alpn::<StreamSession>(PLACES),
    &settings::certificates::<StreamSession>(PLACES),
    &settings::algorithms::<StreamSession>(PLACES),
    &settings::clients::<StreamSession>(PLACES),
    &settings::sessions::<StreamSession>(PLACES),
    &settings::further::<StreamSession>(PLACES),
    &settings::ocsp::<StreamSession>(PLACES),
]);

static VARIABLES: &[VarDef] = &variables::variables::<StreamSession>();

/// The engine's description for the TLS modules.
pub(crate) const ENGINE: ssl::Engine = ssl::Engine { name: "STREAM", alpn: &[] };

/// Completes the TLS handshake with the client and checks its certificate.
///
/// # Errors
/// The session's status.
pub(crate) async fn accept(s: &mut StreamSession) -> Result<(), u16> {
    let ms = s.conf::<Handshakes>().timeout.unwrap_or(60_000);
    let done = rarely(shake(s, Deadline::in_ms(ms))).await;
    match done {
        Ok(()) => {
            let info = s.established().and_then(|tls| tls.info());
            let resumed = info.is_some_and(|info| info.is_resumed);
            s.main.metrics.handshake(&s.server.zone, Ok(resumed));
            admit(s)
        }
        Err(NoHandshake::Gone) => Err(status::INTERNAL),
        Err(NoHandshake::Say(level, m)) => {
            s.main.metrics.handshake(&s.server.zone, Err(()));
            s.log(level, format_args!("{m} while SSL handshaking"));
            Err(status::INTERNAL)
        }
    }
}

async fn shake(s: &mut StreamSession, until: Deadline) -> Result<(), NoHandshake> {
    let Some(sock) = s.take_sock() else { return Ok(()) };
    let main = s.main.clone();
    let greeting = handshake::greeting(&sock, until, main.asks_hello).await?;
    let Greeting::Hello(mut hello) = greeting else {
        let m =
            "SSL_do_handshake() failed (SSL: error:0A00010B:SSL routines::wrong version number)";
        s.put_sock(sock);
        return Err(NoHandshake::Say(Level::Info, m.to_owned()));
    };
    if let Some(name) = &hello.name {
        s.choose_server(name);
    }
    let of = tls_of(s);
    let mut session = Box::new(Established::new(of.tls.clone()));
    (session.server_name, session.hello) = (hello.name.take(), hello.message.take());
    s.set_tls(session);
    let names = of.tls.changing.as_ref().map(|changing| changing.names_for(s));
    let begun = handshake::begin(&hello, &s.server.tls, &of.tls, names, until).await;
    let resolving = || of.confs.get::<Resolving>().cloned().unwrap_or_default();
    let Some(established) = s.established() else { return Err(NoHandshake::Gone) };
    let rest = Finish {
        tls: &of.tls,
        established,
        lookup: || resolving().lookup(),
        log: &of.core.error_log,
        connection: s.number,
    };
    let done = handshake::finish(&sock, begun, rest, until).await;
    s.put_sock(sock);
    done
}

/// The server whose TLS the session's client has: one without certificates has the default's.
pub(crate) fn tls_of(s: &StreamSession) -> Rc<Server> {
    match s.server.tls.has_certificates() {
        true => s.server.clone(),
        false => s.listen.default.clone(),
    }
}

impl StreamSession {
    /// Moves the session to the server with this name at the same address, if there is one.
    pub fn choose_server(&mut self, name: &[u8]) {
        if let Some(server) = named(self, name) {
            self.server = server;
        }
    }
}

/// The server with this name at the session's address, if there is one. Stores the captures of a
/// regular expression.
fn named(s: &mut StreamSession, name: &[u8]) -> Option<Rc<Server>> {
    let host = http_wire::uri::validate_host(name)?;
    let host = name.get(..host.name_len)?.to_ascii_lowercase();
    let listen = s.listen.clone();
    listen.names.as_ref()?.find(&host, s).ok().flatten()
}

/// Checks whether the client presented the certificate that the server requires.
fn admit(s: &StreamSession) -> Result<(), u16> {
    let Some(tls) = s.established() else { return Ok(()) };
    tls.admit(s.server.tls.verify.mode).map_err(|why| {
        s.log(Level::Info, format_args!("{why}"));
        status::INTERNAL
    })
}
