//! The way to a mail server: the connection, the login there, and then bytes both ways.

use std::io;
use std::net::SocketAddr;

use base::log::{Level, lossy};
use bytes::Bytes;
use conf::ConfError;
use conf::table::{Args, Directive, directive, join, named};
use conf::value::{set_enum, set_flag, set_msec, set_size};
use engine::Client;
use engine::settings::{ConfType, Scope};
use event::{Deadline, Sock};
use mail_proto::backend::{Backend, Login, Said, XClient};
use mail_proto::{ClientHost, Method};
use mem::{Chain, Page};
use net::Transport;
use os::SockAddr;
use proto::proxy_protocol::{write_v1, write_v2};
use upstream::failure;
use upstream::socket::{self, SocketConf};
use upstream::ssl::{Shake, SslDraft, UpstreamTls};
use upstream::ssl_directives::{self, Place};

use crate::auth_http::Destination;
use crate::client::{LoggedIn, Over, internal_error, send};
use crate::module::{Cx, MS, Module};
use crate::session::MailSession;

/// The module's table.
pub static MODULE: Module = Module {
    name: "proxy",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<ProxyDraft>(Scope::Server)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &join::<_, { OWN.len() + TLS.len() }>(&[OWN, TLS]);

/// The place of `proxy_ssl_…`.
struct Servers;

impl Place<MailSession> for Servers {
    fn draft(cx: &mut Cx) -> &mut SslDraft {
        &mut cx.loc::<ProxyDraft>().ssl
    }
}

const TLS: &[Directive<Cx>] = &named::<Cx, { ssl_directives::COUNT }>(
    &upstream::ssl_names!("proxy"),
    &[&ssl_directives::directives::<MailSession, Servers>(MS)],
);

const OWN: &[Directive<Cx>] = &[
    directive(
        "proxy",
        MS,
        Args::FLAG,
        "on",
        "Accepted without effect: a mail server is always a proxy.",
        |cx, n| {
            let on = &mut cx.loc::<ProxyDraft>().on;
            set_flag(on, n)?;
            if *on == Some(false) {
                conf::warn(n.arg(0)?, "\"proxy off\" has no effect: a mail server is a proxy");
            }
            Ok(())
        },
    ),
    directive(
        "proxy_buffer",
        MS,
        Args::T1,
        "4k",
        "The buffer size for a mail server's responses before the client is logged in.",
        |cx, n| set_size(&mut cx.loc::<ProxyDraft>().buffer, n),
    ),
    directive(
        "proxy_pass_error_message",
        MS,
        Args::FLAG,
        "off",
        "Forwards a mail server's error message at login to the client.",
        |cx, n| set_flag(&mut cx.loc::<ProxyDraft>().pass_error_message, n),
    ),
    directive(
        "proxy_protocol",
        MS,
        Args::T1,
        "off",
        "Sends a PROXY protocol header to mail servers: off, on (version 1), v1 or v2.",
        |cx, n| {
            let (v1, v2) = (Some(Version::V1), Some(Version::V2));
            let all = [("off", None), ("on", v1), ("v1", v1), ("v2", v2)];
            set_enum(&mut cx.loc::<ProxyDraft>().protocol, n, &all)
        },
    ),
    directive(
        "proxy_smtp_auth",
        MS,
        Args::FLAG,
        "off",
        "Authenticates to SMTP servers, with AUTH PLAIN.",
        |cx, n| set_flag(&mut cx.loc::<ProxyDraft>().smtp_auth, n),
    ),
    directive(
        "proxy_ssl",
        MS,
        Args::T1,
        "off",
        "TLS to mail servers: off, on (from the first byte), or starttls (by STARTTLS or STLS).",
        |cx, n| {
            let (on, by_command) = (Some(Begins::AtOnce), Some(Begins::ByCommand));
            let all = [("off", None), ("on", on), ("starttls", by_command)];
            set_enum(&mut cx.loc::<ProxyDraft>().ssl_begins, n, &all)
        },
    ),
    directive(
        "proxy_timeout",
        MS,
        Args::T1,
        "24h",
        "Closes a session after this time without data in either direction.",
        |cx, n| set_msec(&mut cx.loc::<ProxyDraft>().timeout, n),
    ),
    directive(
        "xclient",
        MS,
        Args::FLAG,
        "on",
        "Sends the client's address, HELO name and login to SMTP servers with XCLIENT.",
        |cx, n| set_flag(&mut cx.loc::<ProxyDraft>().xclient, n),
    ),
];

/// A version of the PROXY protocol.
#[derive(Clone, Copy)]
enum Version {
    V1,
    V2,
}

/// The beginning of TLS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// The first byte belongs to TLS.
    AtOnce,
    /// STARTTLS or STLS.
    ByCommand,
}

engine::settings! {
    /// The settings of one level.
    pub(crate) struct ProxyDraft {
        on: Option<bool>,
        buffer: Option<usize>,
        pass_error_message: Option<bool>,
        protocol: Option<Option<Version>>,
        smtp_auth: Option<bool>,
        ssl: SslDraft,
        ssl_begins: Option<Option<Begins>>,
        timeout: Option<u64>,
        xclient: Option<bool>,
    }
}

/// The settings of a server.
pub(crate) struct ProxyConf {
    buffer: usize,
    pass_error_message: bool,
    protocol: Option<Version>,
    smtp_auth: bool,
    tls: Option<(Begins, UpstreamTls)>,
    /// Milliseconds.
    pub(crate) timeout: u64,
    xclient: bool,
}

impl ProxyConf {
    /// The settings that hold.
    ///
    /// # Errors
    /// A file of TLS cannot be used.
    pub(crate) fn new(draft: &ProxyDraft) -> Result<ProxyConf, ConfError> {
        const DAY_MS: u64 = 24 * 60 * 60 * 1000;
        let tls = match draft.ssl_begins.flatten() {
            Some(begins) => Some((begins, draft.ssl.finish("proxy", &[])?)),
            None => None,
        };
        Ok(ProxyConf {
            buffer: draft.buffer.unwrap_or(4096),
            pass_error_message: draft.pass_error_message.unwrap_or(false),
            protocol: draft.protocol.flatten(),
            smtp_auth: draft.smtp_auth.unwrap_or(false),
            timeout: draft.timeout.unwrap_or(DAY_MS),
            xclient: draft.xclient.unwrap_or(true),
            tls,
        })
    }
}

/// Logs a client in at its mail server. `pending` came from it behind its command.
///
/// # Errors
/// It failed, which the client was told.
pub(crate) async fn log_in(
    s: &mut MailSession,
    to: Destination,
    pending: Vec<u8>,
) -> Result<LoggedIn, Over> {
    match dialogue(s, to).await {
        Ok((server, first)) => {
            s.now("");
            s.log(Level::Info, format_args!("client logged in"));
            Ok(LoggedIn { server, first, pending })
        }
        Err(Some(text)) => {
            let until = Deadline::in_ms(s.server.core.timeout);
            send(s, text, until).await?;
            Err(Over)
        }
        Err(None) => Err(internal_error(s).await),
    }
}

/// Logs in at the mail server; gives the connection, and what the client is sent first.
///
/// # Errors
/// It failed, for a reason that the log was told; with a text for the client if there is one.
async fn dialogue(
    s: &mut MailSession,
    mut to: Destination,
) -> Result<(Transport, Vec<u8>), Option<Bytes>> {
    let server = s.server.clone();
    let until = Deadline::in_ms(server.core.timeout);
    let (mut sock, addr) = connect(s, &to, until).await.ok_or(None)?;
    let (host, attempt) = (to.host.clone(), std::mem::take(&mut to.attempt));
    let mut backend = Backend::new(login(s, to));
    let mut page = Page::new();
    loop {
        match backend.step() {
            Said::More => {
                s.now("reading response from upstream");
                if page.is_empty() && !receive(s, &sock, &mut page, until).await {
                    return Err(None);
                }
                let n = backend.room().min(page.len());
                backend.feed(&page[..n]);
                page.consume(n);
            }
            Said::Send { line, doing } => {
                s.now(doing);
                put(s, &sock, line, until).await.ok_or(None)?;
            }
            Said::StartTls if page.is_empty() => {
                let Some((_, tls)) = &server.proxy.tls else { return Err(None) };
                sock = secure(s, tls, sock, (&addr, &host), until).await.ok_or(None)?;
                backend.now_tls();
            }
            Said::StartTls | Said::InClear => {
                let m = "upstream sent plaintext behind its answer to the command to begin TLS";
                s.log(Level::Error, format_args!("{m}"));
                return Err(None);
            }
            Said::Done { mut to_client } => {
                to_client.extend_from_slice(&page);
                return Ok((sock, to_client));
            }
            Said::Failed { answer, to_client, is_login } => {
                if is_login {
                    attempt.failed(s);
                }
                let level = if to_client.is_some() { Level::Info } else { Level::Error };
                let answer = lossy(&answer);
                s.log(level, format_args!("upstream sent invalid response: \"{answer}\""));
                return Err(to_client.map(Bytes::from));
            }
            Said::TooLong(answer) => {
                let answer = lossy(&answer);
                let m = format_args!("upstream sent too long response line: \"{answer}\"");
                s.log(Level::Error, m);
                return Err(None);
            }
            Said::NoPassword => {
                s.log(Level::Error, format_args!("no password available"));
                return Err(None);
            }
            Said::Unsendable(what) => {
                s.log(Level::Error, format_args!("{what} has a line's end in it"));
                return Err(None);
            }
        }
    }
}

/// A connection to the first of the addresses that can be reached, with what comes before the
/// dialogue.
async fn connect(
    s: &mut MailSession,
    to: &Destination,
    until: Deadline,
) -> Option<(Transport, SockAddr)> {
    let server = s.server.clone();
    let (sock, addr) = reach(s, &to.addrs, until).await?;
    if let Some(version) = server.proxy.protocol {
        s.now("sending PROXY protocol header to upstream");
        let mut chain = Chain::new();
        chain.push_bytes(header(s, version).into());
        sock.send(&mut chain, until).await.map_err(|e| failed(s, &e, "send()")).ok()?;
    }
    let sock = match &server.proxy.tls {
        Some((Begins::AtOnce, tls)) => {
            secure(s, tls, sock.into(), (&addr, &to.host), until).await?
        }
        _ => sock.into(),
    };
    Some((sock, addr))
}

/// Puts TLS over a connection to a mail server, of which no byte is left unread.
async fn secure(
    s: &mut MailSession,
    tls: &UpstreamTls,
    plain: Transport,
    (addr, host): (&SockAddr, &Bytes),
    until: Deadline,
) -> Option<Transport> {
    s.now("");
    let name = tls.name.as_ref().map_or_else(|| host.clone(), |name| name.eval(s));
    let certificate = tls.changing.as_ref().map(|c| (c.certificate.eval(s), c.key.eval(s)));
    let peer = addr.to_string();
    let (peer, name, counted) = (peer.as_bytes(), &name[..], None);
    let shake = Shake { peer, name, certificate, deadline: until, counted };
    let secured = Box::pin(tls.connect(plain, shake)).await;
    secured.map_err(|fault| failure::no_session(s, &fault)).ok()
}

/// A connection to the first of the addresses that can be reached.
async fn reach(
    s: &mut MailSession,
    addrs: &[SockAddr],
    until: Deadline,
) -> Option<(Sock, SockAddr)> {
    s.now("connecting to upstream");
    for addr in addrs {
        s.upstream = Some(Bytes::from(addr.to_string()));
        let sock = socket::open(s, &SocketConf::default(), addr).ok()?;
        match sock.connect(addr, until).await {
            Ok(()) => {
                if !addr.is_unix() {
                    // The commands of a login are small, and each waits for its answer.
                    let _ = os::socket::set_nodelay(sock.fd(), true);
                }
                return Some((sock, addr.clone()));
            }
            Err(e) => failed(s, &e, "connect()"),
        }
    }
    None
}

async fn put(s: &MailSession, sock: &Transport, line: Bytes, until: Deadline) -> Option<()> {
    let mut chain = Chain::new();
    chain.push_bytes(line);
    sock.send(&mut chain, until).await.map_err(|e| failed(s, &e, "send()")).ok()
}

/// Receives more of the mail server's answer; false at its end.
async fn receive(s: &MailSession, sock: &Transport, page: &mut Page, until: Deadline) -> bool {
    match sock.recv_into(page, until).await {
        Ok(0) => {
            s.log(Level::Error, format_args!("upstream closed the connection too early"));
            false
        }
        Ok(_) => true,
        Err(e) => {
            failed(s, &e, "recv()");
            false
        }
    }
}

fn failed(s: &MailSession, e: &io::Error, what: &str) {
    if e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none() {
        s.log(Level::Error, format_args!("upstream timed out (110: Connection timed out)"));
    } else {
        s.log_os(Level::Error, format_args!("{what}"), e);
    }
}

/// The PROXY protocol header of a session.
fn header(s: &MailSession, version: Version) -> Vec<u8> {
    let socket = |addr: &SockAddr| Some(SocketAddr::new(addr.ip_addr()?, addr.port()));
    let source = socket(s.address());
    let destination = s.local().as_ref().and_then(socket);
    let mut out = Vec::with_capacity(128);
    match version {
        Version::V1 => write_v1(source, destination, &mut out),
        Version::V2 => {
            // Without further fields it fits.
            write_v2(source, destination, false, &[], &mut out);
        }
    }
    out
}

/// The login of a client at its mail server.
fn login(s: &MailSession, to: Destination) -> Login {
    let (proxy, core) = (&s.server.proxy, &s.server.core);
    let Destination { credentials, password, .. } = to;
    let xclient = proxy.xclient.then(|| XClient {
        addr: s.address().ip_addr(),
        name: s.host.clone().unwrap_or(ClientHost::Unavailable),
    });
    Login {
        protocol: s.server.dialogue.protocol,
        login: if credentials.method == Method::None { Bytes::new() } else { credentials.login },
        password,
        tag: credentials.tag,
        smtp: credentials.smtp,
        helo: credentials.helo,
        esmtp: credentials.esmtp,
        server_name: core.server_name.clone(),
        xclient,
        smtp_auth: proxy.smtp_auth,
        starttls: proxy.tls.as_ref().is_some_and(|(begins, _)| *begins == Begins::ByCommand),
        pass_error_message: proxy.pass_error_message,
        buffer: proxy.buffer,
    }
}
