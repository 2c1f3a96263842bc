//! `auth_http`: the question to the authentication server, whether a client may log in and to which
//! mail server it goes.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;

use base::log::{Level, lossy};
use bytes::Bytes;
use common_modules::limits::auth::Attempt;
use conf::table::{Args, Directive, directive, join, named};
use conf::value::{set_flag, set_msec};
use conf::{ConfError, Node};
use engine::Client;
use engine::settings::{ConfSet, ConfType, Scope};
use event::{Deadline, Sock};
use mail_proto::auth::{self, Parsed, ProxyFields, Question, TlsFields, Verdict};
use mail_proto::{Credentials, Method, Protocol};
use mem::{Chain, Page};
use net::Transport;
use os::SockAddr;
use proto::tls_names;
use upstream::resolver::Resolving;
use upstream::ssl::{Fixed, NoSession, SslDraft};
use upstream::ssl_directives::{self, Place};
use upstream::url;

use crate::limit_auth;
use crate::module::{Cx, MS, Module};
use crate::session::MailSession;

/// The module's table.
pub static MODULE: Module = Module {
    name: "auth_http",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<AuthDraft>(Scope::Server)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &join::<_, { OWN.len() + TLS.len() }>(&[OWN, TLS]);

/// The place of `auth_http_ssl_…`.
struct Authentication;

impl Place<MailSession> for Authentication {
    fn draft(cx: &mut Cx) -> &mut SslDraft {
        &mut cx.loc::<AuthDraft>().ssl
    }
}

const TLS: &[Directive<Cx>] = &named::<Cx, { ssl_directives::COUNT }>(
    &upstream::ssl_names!("auth_http"),
    &[&ssl_directives::directives::<MailSession, Authentication>(MS)],
);

const OWN: &[Directive<Cx>] = &[
    directive(
        "auth_http",
        MS,
        Args::T1,
        "",
        "The URL of the authentication server: http[s]://HOST:PORT/URI.",
        set_server,
    ),
    directive(
        "auth_http_header",
        MS,
        Args::T2,
        "",
        "Adds a header field to requests to the authentication server.",
        add_header,
    ),
    directive(
        "auth_http_pass_client_cert",
        MS,
        Args::FLAG,
        "off",
        "Sends the client's certificate (URL-escaped PEM) to the authentication server.",
        |cx, n| set_flag(&mut cx.loc::<AuthDraft>().pass_client_cert, n),
    ),
    directive(
        "auth_http_timeout",
        MS,
        Args::T1,
        "60s",
        "The timeout for the authentication server's response.",
        |cx, n| set_msec(&mut cx.loc::<AuthDraft>().timeout, n),
    ),
];

engine::settings! {
    struct AuthDraft {
        server: Option<Server>,
        headers: Option<Vec<(Bytes, Bytes)>>,
        pass_client_cert: Option<bool>,
        ssl: SslDraft,
        timeout: Option<u64>,
    }
}

/// The argument of `auth_http`.
#[derive(Clone)]
struct Server {
    /// Its addresses; another one is tried where one cannot be reached.
    addrs: Vec<SockAddr>,
    /// The value of `Host`.
    host: Bytes,
    uri: Bytes,
    is_secure: bool,
}

/// The authentication server of a server.
pub(crate) struct AuthHttp {
    server: Server,
    headers: Vec<(Bytes, Bytes)>,
    pass_client_cert: bool,
    /// Milliseconds.
    timeout: u64,
    tls: Option<Fixed>,
}

impl AuthHttp {
    /// The settings that hold; none without `auth_http`.
    ///
    /// # Errors
    /// A file of TLS cannot be used.
    pub(crate) fn new(confs: &ConfSet) -> Result<Option<AuthHttp>, ConfError> {
        let Some(draft) = confs.get::<AuthDraft>() else { return Ok(None) };
        let Some(server) = draft.server.clone() else { return Ok(None) };
        let tls = match server.is_secure {
            true => {
                let tls = Rc::new(draft.ssl.finish("auth_http", &[])?);
                let wrong = |end| ConfError::new(format!("auth_http{end} cannot have variables"));
                Some(Fixed::new(&tls, &server.host).map_err(wrong)?)
            }
            false => None,
        };
        Ok(Some(AuthHttp {
            server,
            tls,
            headers: draft.headers.clone().unwrap_or_default(),
            pass_client_cert: draft.pass_client_cert.unwrap_or(false),
            timeout: draft.timeout.unwrap_or(60_000),
        }))
    }
}

fn set_server(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let text = word.bytes();
    let secure = text.strip_prefix(b"https://");
    let rest = secure.or_else(|| text.strip_prefix(b"http://")).unwrap_or(text);
    let (is_secure, text) = (secure.is_some(), Bytes::copy_from_slice(rest));
    let wrong = |m: &str| ConfError::at(word, format!("{m} in auth_http \"{}\"", lossy(&text)));
    let url = url::parse(&text, if is_secure { 443 } else { 80 }, true).map_err(wrong)?;
    let addrs = match url.addr {
        Some(addr) => vec![addr],
        None => {
            let found = net::addr::resolve(&url.host).map_err(wrong)?;
            found.into_iter().map(|ip| SockAddr::ip(ip, url.port)).collect()
        }
    };
    let is_unix = addrs.iter().any(SockAddr::is_unix);
    let host = if is_unix { Bytes::from_static(b"localhost") } else { url.host };
    let uri = if url.uri.is_empty() { Bytes::from_static(b"/") } else { url.uri };
    cx.loc::<AuthDraft>().server = Some(Server { addrs, host, uri, is_secure });
    Ok(())
}

fn add_header(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (name, value) = (n.arg(0)?, n.arg(1)?);
    for word in [name, value] {
        if word.bytes().iter().any(u8::is_ascii_control) {
            return Err(ConfError::at(word, "control characters cannot stand in a field"));
        }
    }
    let pair = (name.text.clone(), value.text.clone());
    cx.loc::<AuthDraft>().headers.get_or_insert_default().push(pair);
    Ok(())
}

/// The outcome of an attempt to log in.
pub(crate) enum Answer {
    /// The client gets this text, and may try again unless `is_last`.
    Refused { text: Bytes, is_last: bool },
    /// There is no answer, for a reason that the log knows.
    Failed,
    /// The client goes there.
    Go(Box<Destination>),
}

/// The mail server of a client, and the credentials for it.
pub(crate) struct Destination {
    /// Its addresses; another one is tried where one cannot be reached.
    pub addrs: Vec<SockAddr>,
    /// Its name, or its address in text: for TLS.
    pub host: Bytes,
    /// The credentials that the client logs in with there.
    pub credentials: Credentials,
    /// None where the authentication server knows one that is not the client's, and does not tell.
    pub password: Option<Bytes>,
    /// The attempt, which fails where the mail server refuses the client.
    pub attempt: Attempt,
}

/// Asks the authentication server.
pub(crate) async fn ask(s: &mut MailSession, credentials: Credentials) -> Answer {
    s.attempts += 1;
    s.now("in http auth state");
    let Ok(attempt) = limit_auth::begin(s, &credentials) else {
        let protocol = s.server.dialogue.protocol;
        let text = auth::too_many_failures(protocol, &credentials.tag);
        return Answer::Refused { text, is_last: true };
    };
    loop {
        match exchange(s, &credentials).await {
            None => return Answer::Failed,
            Some(Verdict::Wait(secs)) => {
                // A server that says "at once" for ever would keep a processor busy.
                const LEAST_MS: u64 = 100;
                event::sleep(secs.saturating_mul(1000).max(LEAST_MS)).await;
            }
            Some(Verdict::Refused { message, code, wait }) => {
                attempt.failed(s);
                let shown = lossy(&message);
                s.log(Level::Info, format_args!("client login failed: \"{shown}\""));
                let protocol = s.server.dialogue.protocol;
                let code = code.as_deref();
                let text = auth::refusal(protocol, &credentials.tag, &message, code);
                event::sleep(wait.saturating_mul(1000)).await;
                return Answer::Refused { text, is_last: wait == 0 };
            }
            Some(Verdict::MissingServer) => {
                let at = &s.server.auth.server.addrs[0];
                let m = format_args!("auth http server {at} did not send server or port");
                s.log(Level::Error, m);
                return Answer::Failed;
            }
            Some(Verdict::Go { server, port, user, password }) => {
                let mut to = go(s, credentials, (&server, &port), (user, password)).await;
                if let Answer::Go(to) = &mut to {
                    to.attempt = attempt;
                }
                return to;
            }
        }
    }
}

/// The destination that an answer names.
async fn go(
    s: &mut MailSession,
    mut credentials: Credentials,
    (host, port): (&Bytes, &Bytes),
    (user, password): (Option<Bytes>, Option<Bytes>),
) -> Answer {
    let server = s.server.clone();
    let at = &server.auth.server.addrs[0];
    // With the other methods the client gave no password, at most what it made of one.
    let own = (credentials.method == Method::Plain).then(|| credentials.password.clone());
    let password = password.or(own);
    if password.is_none() && server.dialogue.protocol != Protocol::Smtp {
        s.log(Level::Error, format_args!("auth http server {at} did not send password"));
        return Answer::Failed;
    }
    if let Some(user) = user {
        s.login.clone_from(&user);
        credentials.login = user;
    }
    let Some(number) = auth::port_number(port) else {
        let port = lossy(port);
        s.log(
            Level::Error,
            format_args!("auth http server {at} sent invalid server port:\"{port}\""),
        );
        return Answer::Failed;
    };
    let Some(addrs) = addresses(s, host, number).await else {
        let host = lossy(host);
        let m = format_args!("auth http server {at} sent invalid server address:\"{host}\"");
        s.log(Level::Error, m);
        return Answer::Failed;
    };
    let (host, attempt) = (host.clone(), Attempt::default());
    Answer::Go(Box::new(Destination { addrs, host, credentials, password, attempt }))
}

/// The addresses of a mail server. A name is one for the resolver, if there is one.
async fn addresses(s: &MailSession, host: &Bytes, port: u16) -> Option<Vec<SockAddr>> {
    let bracketed;
    let text = match host.contains(&b':') && !host.starts_with(b"[") && !host.starts_with(b"unix:")
    {
        true => {
            bracketed = Bytes::from([b"[", &host[..], b"]"].concat());
            &bracketed
        }
        false => host,
    };
    let url = url::parse(text, port, false).ok().filter(|url| url.no_port)?;
    if let Some(addr) = url.addr {
        return Some(vec![addr]);
    }
    let lookup = s.server.confs.get::<Resolving>().cloned().unwrap_or_default().lookup();
    lookup.resolver.as_ref()?;
    let found = lookup.addresses(s, host, port).await?;
    Some(found.into_iter().map(|spec| spec.addr).collect()).filter(|list: &Vec<_>| !list.is_empty())
}

/// One question, and its answer; none for a reason that the log was told.
async fn exchange(s: &MailSession, credentials: &Credentials) -> Option<Verdict> {
    let until = Deadline::in_ms(s.server.auth.timeout);
    let (sock, at) = connect(s, until).await?;
    let mut chain = Chain::new();
    chain.push_bytes(question(s, credentials).into());
    let failed = |what: &str, e: io::Error| {
        match e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none() {
            true => {
                let m = format_args!("auth http server {at} timed out (110: Connection timed out)");
                s.log(Level::Error, m);
            }
            false => s.log_os(Level::Error, format_args!("{what}"), &e),
        }
        None
    };
    if let Err(e) = sock.send(&mut chain, until).await {
        return failed("send()", e);
    }
    let mut answer = Page::new();
    loop {
        match auth::parse(&answer) {
            Parsed::Whole(verdict) => return Some(verdict),
            Parsed::Bad => {
                s.log(Level::Error, format_args!("auth http server {at} sent invalid response"));
                return None;
            }
            Parsed::Partial => {}
        }
        match sock.recv_into(&mut answer, until).await {
            Ok(0) => {
                let m = format_args!("auth http server {at} closed the connection too early");
                s.log(Level::Error, m);
                return None;
            }
            Ok(_) => {}
            Err(e) => return failed("recv()", e),
        }
    }
}

/// A connection to the authentication server.
async fn connect(s: &MailSession, until: Deadline) -> Option<(Transport, SockAddr)> {
    for addr in &s.server.auth.server.addrs {
        let connected = match os::socket::socket(addr, os::socket::Kind::Stream) {
            Ok(fd) => {
                let sock = Sock::from_fd(fd);
                sock.connect(addr, until).await.map(|()| sock)
            }
            Err(e) => Err(e),
        };
        match connected {
            Ok(sock) => {
                let Some(tls) = &s.server.auth.tls else {
                    return Some((sock.into(), addr.clone()));
                };
                match tls.connect(sock, addr, until).await {
                    Ok(sock) => return Some((sock, addr.clone())),
                    Err(NoSession::TimedOut) => {
                        let m = format_args!("auth http server {addr} timed out in its handshake");
                        s.log(Level::Error, m);
                        return None;
                    }
                    Err(NoSession::Failed(level, m)) => s.log(level, format_args!("{m}")),
                    Err(NoSession::NoCertificate(m)) => s.log(Level::Error, format_args!("{m}")),
                }
            }
            Err(e) => s.log_os(Level::Error, format_args!("connect() to {addr}"), &e),
        }
    }
    None
}

fn question(s: &MailSession, credentials: &Credentials) -> Vec<u8> {
    let auth = &s.server.auth;
    let client_ip = s.address().host().to_string();
    let tls = tls(s);
    let text = |ip: Option<IpAddr>| ip.map_or_else(String::new, |ip| ip.to_string());
    let ends = s.proxy.as_deref().map(|header| {
        let (from, to) = (&header.source, &header.destination);
        ((text(from.ip), from.port), (text(to.ip), to.port))
    });
    let proxy = ends.as_ref().map(|(from, to)| ProxyFields {
        addr: &from.0,
        port: from.1,
        server_addr: &to.0,
        server_port: to.1,
    });
    auth::write(&Question {
        uri: &auth.server.uri,
        host: &auth.server.host,
        protocol: s.server.dialogue.protocol,
        credentials,
        attempt: s.attempts,
        client_ip: &client_ip,
        client_host: s.host.as_ref(),
        proxy,
        tls: tls.as_ref().map(Tls::fields),
        headers: &auth.headers,
    })
}

/// The facts of TLS with a client.
struct Tls {
    protocol: &'static str,
    cipher: &'static str,
    verify: Option<String>,
    /// The result of [`Tls::verify`], if the client showed a certificate.
    certificate: Option<Shown>,
}

/// The facts of a client's certificate.
struct Shown {
    subject: String,
    issuer: String,
    serial: String,
    fingerprint: String,
    pem: Option<Vec<u8>>,
}

fn tls(s: &MailSession) -> Option<Tls> {
    let tls = s.tls()?;
    let info = tls.info()?;
    let verifies = s.server.tls.verify.is_on();
    let certificate = tls.certificate().filter(|_| verifies).map(|certificate| Shown {
        subject: certificate.subject().rfc2253(),
        issuer: certificate.issuer().rfc2253(),
        serial: certificate.serial_text(),
        fingerprint: certificate.fingerprint(),
        pem: s.server.auth.pass_client_cert.then(|| certificate.pem()),
    });
    Some(Tls {
        protocol: info.version_name(),
        cipher: tls_names::cipher_suite(info.suite).unwrap_or_default(),
        verify: verifies.then(|| tls.verdict()),
        certificate,
    })
}

impl Tls {
    fn fields(&self) -> TlsFields<'_> {
        let shown = self.certificate.as_ref();
        TlsFields {
            protocol: self.protocol.as_bytes(),
            cipher: self.cipher.as_bytes(),
            verify: self.verify.as_ref().map(String::as_bytes),
            subject: shown.map(|c| c.subject.as_bytes()),
            issuer: shown.map(|c| c.issuer.as_bytes()),
            serial: shown.map(|c| c.serial.as_bytes()),
            fingerprint: shown.map(|c| c.fingerprint.as_bytes()),
            cert: shown.and_then(|c| c.pem.as_deref()),
        }
    }
}
