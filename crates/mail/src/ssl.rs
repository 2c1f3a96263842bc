//! TLS with clients: from the first byte, or behind STARTTLS.

use base::log::Level;
use common_modules::ssl::handshake::{self, Finish, Greeting, NoHandshake};
use common_modules::ssl::{
    self, Established, Expiries, NoEntry, OcspZones, SslSettings, SslShared, settings,
};
use conf::table::{Args, Contexts, Directive, directive, join};
use conf::value::set_enum;
use engine::Client;
use engine::settings::{ConfSet, ConfType, Scope};
use event::Deadline;
use mail_proto::{Protocol, StartTls};
use upstream::resolver::Resolving;

use crate::module::{Cx, MS, Module};
use crate::session::MailSession;

/// The module's table.
pub static MODULE: Module = Module {
    name: "ssl",
    directives: DIRECTIVES,
    confs: &[
        ConfType::of::<SslSettings>(Scope::Server),
        ConfType::of::<Clear>(Scope::Server),
        ConfType::of::<SslShared>(Scope::Main),
        ConfType::of::<OcspZones>(Scope::Main),
    ],
    start: Some(|main, seat| Expiries::start(&main.servers, seat, &main.life)),
    ..Module::EMPTY
};

engine::settings! {
    /// The settings of connections that begin in clear.
    struct Clear {
        starttls: Option<StartTls>,
    }
}

const PLACES: Contexts = MS;

const OWN: [Directive<Cx>; 1] = [directive(
    "starttls",
    MS,
    Args::T1,
    "off",
    "STARTTLS and STLS: on, off, or only (no authentication without TLS).",
    |cx, n| {
        let all = [("off", StartTls::Off), ("on", StartTls::On), ("only", StartTls::Only)];
        set_enum(&mut cx.loc::<Clear>().starttls, n, &all)
    },
)];

static DIRECTIVES: &[Directive<Cx>] = &join::<_, 34>(&[
    &OWN,
    &settings::certificates::<MailSession>(PLACES),
    &settings::algorithms::<MailSession>(PLACES),
    &settings::clients::<MailSession>(PLACES),
    &settings::sessions::<MailSession>(PLACES),
    &settings::further::<MailSession>(PLACES),
    &settings::ocsp::<MailSession>(PLACES),
]);

/// The engine as TLS knows it. Clients that name protocols must name that of the server.
pub(crate) fn engine(protocol: Protocol) -> ssl::Engine {
    let alpn: &[&[u8]] = match protocol {
        Protocol::Imap => &[b"imap"],
        Protocol::Pop3 => &[b"pop3"],
        Protocol::Smtp => &[b"smtp"],
    };
    ssl::Engine { name: "MAIL", alpn }
}

/// `starttls` of a server.
pub(crate) fn starttls(confs: &ConfSet) -> StartTls {
    confs.get::<Clear>().and_then(|clear| clear.starttls).unwrap_or_default()
}

/// The reason why a client is not served.
pub(crate) enum Refused {
    /// There is no session: nothing can be said.
    NoSession,
    /// Its certificate is bad, or missing.
    Certificate(NoEntry),
}

/// Shakes hands with the client, and looks at its certificate.
///
/// # Errors
/// The connection is to be closed, in the second case with a word.
pub(crate) async fn accept(s: &mut MailSession, until: Deadline) -> Result<(), Refused> {
    s.now("SSL handshaking");
    match shake(s, until).await {
        Ok(()) => {}
        Err(NoHandshake::Gone) => return Err(Refused::NoSession),
        Err(NoHandshake::Say(level, m)) => {
            s.log(level, format_args!("{m}"));
            return Err(Refused::NoSession);
        }
    }
    let Some(tls) = s.tls() else { return Ok(()) };
    tls.admit(s.server.tls.verify.mode).map_err(|why| {
        s.log(Level::Info, format_args!("{why}"));
        Refused::Certificate(why)
    })
}

async fn shake(s: &mut MailSession, until: Deadline) -> Result<(), NoHandshake> {
    let server = s.server.clone();
    let Some(sock) = s.sock() else { return Ok(()) };
    let Greeting::Hello(mut hello) = handshake::greeting(sock, until, false).await? else {
        let m =
            "SSL_do_handshake() failed (SSL: error:0A00010B:SSL routines::wrong version number)";
        return Err(NoHandshake::Say(Level::Info, m.to_owned()));
    };
    let mut established = Box::new(Established::new(server.tls.clone()));
    established.server_name = hello.name.take();
    let begun = handshake::begin(&hello, &server.tls, &server.tls, None, until).await;
    let resolving = || server.confs.get::<Resolving>().cloned().unwrap_or_default();
    let rest = Finish {
        tls: &server.tls,
        established: &established,
        lookup: || resolving().lookup(),
        log: &server.core.error_log,
        connection: s.number,
    };
    let done = handshake::finish(sock, begun, rest, until).await;
    s.set_tls(established);
    done
}
