//! The handshake with a client, step by step: an engine chooses the server between the hello and
//! the session, and says what becomes of clients that speak plain text.
//!
//! ```text
//!  greeting ─▶ (server by name) ─▶ begin ─▶ finish ─▶ established
//!      └─ plain text, nothing          └─ refused: an alert, and the end
//! ```

use std::io;

use base::log::{Level, Log};
use bytes::Bytes;
use event::{Deadline, Either, TaskError};
use mem::{Chain, Page};
use net::Transport;
use net::transport::{First, Overdue};
use proto::tls_hello::{ClientHello, Malformed, extension};
use tls::certified::Certified;
use tls::{ServerConfig, ServerOptions, Session};
use upstream::names::Lookup;

use super::established::Established;
use super::server::ServerTls;

/// The alerts of a handshake that is refused before it begins.
const HANDSHAKE_FAILURE: u8 = 40;
const ILLEGAL_PARAMETER: u8 = 47;
const PROTOCOL_VERSION: u8 = 70;
const INTERNAL_ERROR: u8 = 80;
const INAPPROPRIATE_FALLBACK: u8 = 86;
const MISSING_EXTENSION: u8 = 109;
const UNRECOGNIZED_NAME: u8 = 112;

/// The suite by which a client says that it offers less than it could, because an attempt with more
/// had failed (RFC 7507).
const FALLBACK_SCSV: u16 = 0x5600;
const TLS12: u16 = 0x0303;
const TLS13: u16 = 0x0304;

/// The key shares that are looked up in the list of groups: clients send three at most, and a hello
/// has room for thousands of each.
const SHARES_CHECKED: usize = 8;

/// The longest wait for a client that is to see why its handshake failed.
const LINGER_MS: u64 = 1_000;
/// The most bytes that are dropped meanwhile.
const LINGER_MAX: usize = 256 * 1024;

/// The protocol of challenges by ALPN.
const CHALLENGE: &[u8] = b"acme-tls/1";

/// The outcome of a handshake that is none.
#[derive(Debug)]
pub enum NoHandshake {
    /// The client went away, or the worker wants the connection back.
    Gone,
    /// The connection ends with a message at this level.
    Say(Level, String),
}

/// The first bytes of a client.
pub enum Greeting {
    /// The client has sent its hello.
    Hello(Hello),
    /// Plain text, which is still to be read.
    Plain,
}

/// The facts of a client's hello.
#[derive(Default)]
pub struct Hello {
    /// Its fault, whatever the server.
    fault: Option<(u8, String)>,
    /// It offers TLS 1.3.
    has_13: bool,
    /// It offers a session of TLS 1.3 to resume.
    resumes_13: bool,
    /// It offers no more than TLS 1.2, and says that the client could more.
    is_fallback: bool,
    /// Its fault where TLS 1.3 is negotiated.
    fault_13: Option<(u8, &'static str)>,
    /// The signature schemes, where it offers TLS 1.3 and no session to resume.
    schemes_13: Vec<u16>,
    /// The name of the server.
    pub name: Option<Box<[u8]>>,
    /// It is a validator's, for a challenge by ALPN (RFC 8737).
    pub is_challenge: bool,
    /// The whole message, where variables ask for it.
    pub message: Option<Box<[u8]>>,
}

/// Waits for the client's hello. `keep` keeps its message.
///
/// # Errors
/// The connection is to be closed.
pub async fn greeting(
    sock: &Transport,
    until: Deadline,
    keep: bool,
) -> Result<Greeting, NoHandshake> {
    match sock.first(until).await.map_err(|e| failed(&e))? {
        First::Nothing => return Err(NoHandshake::Gone),
        First::Other => {
            sock.go_clear();
            return Ok(Greeting::Plain);
        }
        First::Hello => {}
    }
    Ok(Greeting::Hello(sock.with_hello(|hello| match hello {
        Some(hello) => Hello::of(hello, keep),
        None => Hello::malformed(sock.hello_fault()),
    })))
}

impl Hello {
    /// The facts of a hello; `keep` keeps its message.
    pub fn of(hello: &ClientHello<'_>, keep: bool) -> Hello {
        let has_13 = hello.supported_versions().any(|version| version == TLS13);
        let resumes = has_13 && hello.extension(extension::PRE_SHARED_KEY).is_some();
        Hello {
            fault: fault(hello).map(|(alert, why)| (alert, why.to_owned())),
            has_13,
            resumes_13: resumes,
            fault_13: if has_13 { fault_13(hello, resumes) } else { None },
            // Without `supported_versions`, a higher number stands for TLS 1.2, too.
            is_fallback: !has_13
                && hello.version_max() >= Some(TLS12)
                && hello.cipher_suites().any(|suite| suite == FALLBACK_SCSV),
            schemes_13: match has_13 && !resumes {
                true => hello.signature_algorithms().collect(),
                false => Vec::new(),
            },
            name: hello.server_name().map(Box::from),
            is_challenge: hello.alpn().any(|name| name == CHALLENGE),
            message: keep.then(|| whole_message(hello)),
        }
    }

    /// One that cannot be read, and why.
    pub fn malformed(why: Option<Malformed>) -> Hello {
        let fault = why.map(|fault| (fault.alert(), fault.to_string()));
        Hello { fault, ..Hello::default() }
    }
}

/// The alert for what the library would let pass, and OpenSSL's reason.
fn fault(hello: &ClientHello<'_>) -> Option<(u8, &'static str)> {
    // RFC 8446 section D.5, whatever else a hello of SSL 3 offers. The library looks for the
    // extensions of TLS 1.2 first where nothing newer than TLS 1.1 is offered.
    if hello.legacy_version() <= 0x0300 || hello.version_max() < Some(TLS12) {
        return Some((PROTOCOL_VERSION, "error:0A000102:SSL routines::unsupported protocol"));
    }
    // RFC 5746 section 3.6: a first handshake has none before it.
    match hello.extension(extension::RENEGOTIATION_INFO) {
        None | Some([0]) => None,
        Some(_) => Some((HANDSHAKE_FAILURE, "error:0A000151:SSL routines::renegotiation mismatch")),
    }
}

/// The alert for what TLS 1.3 does not allow, and OpenSSL's reason. Groups and key shares go
/// together, and where no session is to be resumed, they and signature schemes are needed (RFC 8446
/// section 9.2). A share belongs to a group of the list (section 4.2.8).
fn fault_13(hello: &ClientHello<'_>, resumes: bool) -> Option<(u8, &'static str)> {
    let has = |number| hello.extension(number).is_some();
    let (groups, shares) = (has(extension::SUPPORTED_GROUPS), has(extension::KEY_SHARE));
    if !groups && (shares || !resumes) {
        let why = "error:0A0000D1:SSL routines::missing supported groups extension";
        return Some((MISSING_EXTENSION, why));
    }
    if groups && !shares {
        let why = "error:0A000065:SSL routines::no suitable key share";
        return Some((MISSING_EXTENSION, why));
    }
    if !resumes && !has(extension::SIGNATURE_ALGORITHMS) {
        let why = "error:0A000070:SSL routines::missing sigalgs extension";
        return Some((MISSING_EXTENSION, why));
    }
    let is_listed = |share| hello.groups().any(|group| group == share);
    if !hello.key_share_groups().take(SHARES_CHECKED).all(is_listed) {
        return Some((ILLEGAL_PARAMETER, "error:0A00006C:SSL routines::bad key share"));
    }
    None
}

/// The message with its head of four bytes.
fn whole_message(hello: &ClientHello<'_>) -> Box<[u8]> {
    let message = hello.message();
    let [_, a, b, c] = u32::try_from(message.len()).unwrap_or(0).to_be_bytes();
    [&[1, a, b, c], message].concat().into()
}

/// A session that is refused before it begins, by an alert.
pub struct Refused {
    alert: u8,
    why: NoHandshake,
}

impl Refused {
    fn new(alert: u8, level: Level, why: impl Into<String>) -> Refused {
        Refused { alert, why: NoHandshake::Say(level, why.into()) }
    }

    /// The alert, and what the log says.
    pub fn into_parts(self) -> (u8, NoHandshake) {
        (self.alert, self.why)
    }

    /// The client's fault; `why` is OpenSSL's reason.
    fn client(alert: u8, why: &str) -> Refused {
        Refused::new(alert, Level::Info, format!("SSL_do_handshake() failed (SSL: {why})"))
    }
}

/// The certificates to show are those of these names ([`super::server::Changing::names_for`]).
pub type Names = Vec<(Bytes, Bytes)>;

/// Begins a session of `chosen`, the server that the client named; `tls` is that server's TLS, or
/// that of the default one where it has no certificates.
///
/// # Errors
/// It is refused.
pub async fn begin(
    hello: &Hello,
    chosen: &ServerTls,
    tls: &ServerTls,
    names: Option<Names>,
    until: Deadline,
) -> Result<Session, Refused> {
    let config = config(hello, chosen, tls, names, until).await?;
    let failed = |e: tls::Error| Refused::new(HANDSHAKE_FAILURE, Level::Alert, e.to_string());
    Session::server(&config).map_err(failed)
}

/// The configuration of such a session.
///
/// # Errors
/// It is refused.
pub async fn config(
    hello: &Hello,
    chosen: &ServerTls,
    tls: &ServerTls,
    names: Option<Names>,
    until: Deadline,
) -> Result<ServerConfig, Refused> {
    if let Some((alert, why)) = &hello.fault {
        return Err(Refused::client(*alert, why));
    }
    if chosen.rejects {
        let why = "error:0A0000E2:SSL routines::callback failed";
        return Err(Refused::client(UNRECOGNIZED_NAME, why));
    }
    let failed = |level, m: String| Refused::new(HANDSHAKE_FAILURE, level, m);
    let config = match (&tls.changing, names) {
        (Some(_), Some(names)) if names.iter().any(|(name, _)| name.is_empty()) => {
            let m = "no certificate is there for this server".to_owned();
            return Err(failed(Level::Info, m));
        }
        (Some(changing), Some(names)) => {
            let loading = Box::pin(tls.config_with(changing, &names));
            match event::race(loading, event::sleep_until(until)).await {
                Either::First(config) => {
                    Some(config.map_err(|e| failed(Level::Error, e.to_string()))?)
                }
                Either::Second(()) => {
                    let m = "the certificates were not read in time".to_owned();
                    return Err(failed(Level::Error, m));
                }
            }
        }
        _ => tls.config.clone(),
    };
    let Some(config) = config else {
        let m = "no \"ssl_certificate\" is defined in server listening on SSL port";
        return Err(failed(Level::Error, m.to_owned()));
    };
    agree(hello, &config)?;
    Ok(if hello.has_13 { config.for_13(hello.resumes_13) } else { config })
}

/// Whether a session of TLS 1.3 can come of the hello, where both ends speak that: the library
/// finds out when the key exchange is done, or not at all.
fn agree(hello: &Hello, config: &ServerConfig) -> Result<(), Refused> {
    if !config.has_13() {
        return Ok(());
    }
    if hello.is_fallback {
        let why = "error:0A000175:SSL routines::inappropriate fallback";
        return Err(Refused::client(INAPPROPRIATE_FALLBACK, why));
    }
    if let Some((alert, why)) = hello.fault_13 {
        return Err(Refused::client(alert, why));
    }
    if !hello.schemes_13.is_empty() && !config.can_sign_13(&hello.schemes_13) {
        let why = "error:0A000076:SSL routines::no suitable signature algorithm";
        return Err(Refused::client(HANDSHAKE_FAILURE, why));
    }
    Ok(())
}

/// Begins a session that answers a challenge by ALPN with `certificate`, in PEM, and its key. It
/// ends with the handshake.
///
/// # Errors
/// There is no such challenge.
pub fn begin_challenge(certificate: Option<(&[u8], &[u8])>) -> Result<Session, Refused> {
    let refused = |m: String| Refused::new(HANDSHAKE_FAILURE, Level::Info, m);
    let Some((certificate, key)) = certificate else {
        return Err(refused("no challenge is there for this server name".to_owned()));
    };
    let certified = Certified::from_pem(certificate, key).map_err(|e| refused(e.to_string()))?;
    let options = ServerOptions {
        certificates: vec![certified],
        alpn: vec![CHALLENGE.to_vec()],
        ..ServerOptions::default()
    };
    let config = ServerConfig::new(options).map_err(|e| refused(e.to_string()))?;
    Session::server(&config).map_err(|e| refused(e.to_string()))
}

/// The rest of a handshake.
pub struct Finish<'a, F> {
    /// The TLS of the server.
    pub tls: &'a ServerTls,
    /// Where the facts of the session go.
    pub established: &'a Established,
    /// The means to look names up.
    pub lookup: F,
    /// The log of the server.
    pub log: &'a Log,
    /// The connection's number in it.
    pub connection: u64,
}

/// Runs the handshake of a session that began, or sends the alert of one that is refused.
///
/// # Errors
/// The connection is to be closed.
pub async fn finish<F: Fn() -> Lookup>(
    sock: &Transport,
    begun: Result<Session, Refused>,
    rest: Finish<'_, F>,
    until: Deadline,
) -> Result<(), NoHandshake> {
    let session = match begun {
        Ok(session) => session,
        Err(Refused { alert, why }) => {
            refuse(sock, alert, until).await;
            return Err(why);
        }
    };
    let Finish { tls, established, lookup, log, connection } = rest;
    sock.go_sealed(session);
    tls.update_staples(&lookup);
    if let Err(e) = sock.handshake(until, tls.threads.as_ref()).await {
        if is_refusal(&e) {
            linger(sock).await;
        } else if without_thread(&e).is_some() {
            refuse(sock, INTERNAL_ERROR, until).await;
        }
        return Err(failed(&e));
    }
    if let Some(info) = sock.take_session_info() {
        established.established(info);
        if tls.looks_up_clients() {
            Box::pin(established.look_up(&lookup(), log, connection)).await;
        }
    }
    Ok(())
}

/// Sends an alert in the clear, of a session that did not begin.
async fn refuse(sock: &Transport, alert: u8, until: Deadline) {
    sock.go_clear();
    let mut chain = Chain::new();
    chain.write(&[21, 3, 3, 0, 2, 2, alert]);
    // The client may be gone already.
    if sock.send(&mut chain, until).await.is_ok() {
        linger(sock).await;
    }
}

/// Waits until the client has seen the alert, or a moment has passed, and drops what it had sent
/// meanwhile. Where bytes are unread, or come later, the kernel resets the connection, and clients
/// lose the alert.
async fn linger(sock: &Transport) {
    sock.go_clear();
    if sock.shutdown_write().is_err() {
        return;
    }
    let (until, mut dropped) = (Deadline::in_ms(LINGER_MS), 0);
    let mut page = Page::new();
    while let Ok(n @ 1..) = sock.recv_owed(&mut page, until).await {
        page.clear();
        dropped += n;
        if dropped > LINGER_MAX {
            return;
        }
    }
}

/// Whether the handshake failed by our decision, of which the client was told.
fn is_refusal(e: &io::Error) -> bool {
    let error = e.get_ref().and_then(|e| e.downcast_ref::<tls::Error>());
    error.is_some_and(|error| !error.is_end_by_peer())
}

/// Why no thread of the pool took the step, where that is the fault.
fn without_thread(e: &io::Error) -> Option<(Level, String)> {
    let inner = e.get_ref()?;
    // The pool has said more of it already.
    let task = inner.downcast_ref::<TaskError>().map(|task| (Level::Info, task.to_string()));
    task.or_else(|| inner.downcast_ref::<Overdue>().map(|late| (Level::Error, late.to_string())))
}

fn failed(e: &io::Error) -> NoHandshake {
    if let Some((level, why)) = without_thread(e) {
        return NoHandshake::Say(level, why);
    }
    if let Some(error) = e.get_ref().and_then(|e| e.downcast_ref::<tls::Error>()) {
        let level = if error.is_by_peer() { Level::Info } else { Level::Crit };
        return NoHandshake::Say(level, format!("SSL_do_handshake() failed (SSL: {error})"));
    }
    if e.kind() == io::ErrorKind::ConnectionAborted {
        return NoHandshake::Gone;
    }
    NoHandshake::Say(
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
