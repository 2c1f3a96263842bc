//! The question to the authentication server (`auth_http`), and its answer.
//!
//! Source: <https://nginx.org/en/docs/mail/ngx_mail_auth_http_module.html#protocol>.

use crate::escape::{escape_percent, push_hex};
use crate::host::ClientHost;
use crate::{Credentials, Method, Protocol};
use bytes::Bytes;

/// The longest head of an answer, bytes.
pub const ANSWER_MAX: usize = 16 * 1024;

/// The code of SMTP for a refusal without one.
const REFUSED_CODE: &[u8] = b"535 5.7.0";

/// The addresses of a PROXY protocol header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProxyFields<'a> {
    /// The client's address.
    pub addr: &'a str,
    /// The client's port.
    pub port: u16,
    /// The address it connected to.
    pub server_addr: &'a str,
    /// The port it connected to.
    pub server_port: u16,
}

/// The client's TLS connection. Empty values are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TlsFields<'a> {
    /// `TLSv1.3`.
    pub protocol: &'a [u8],
    /// The cipher's name.
    pub cipher: &'a [u8],
    /// `SUCCESS`, `FAILED:reason` or `NONE`; none where certificates are not asked for.
    pub verify: Option<&'a [u8]>,
    /// The subject's name.
    pub subject: Option<&'a [u8]>,
    /// The issuer's name.
    pub issuer: Option<&'a [u8]>,
    /// The serial number.
    pub serial: Option<&'a [u8]>,
    /// The SHA-1 fingerprint.
    pub fingerprint: Option<&'a [u8]>,
    /// The certificate in PEM; it is sent escaped.
    pub cert: Option<&'a [u8]>,
}

/// What the authentication server is asked about a login.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The URI of `auth_http`.
    pub uri: &'a [u8],
    /// The value of Host.
    pub host: &'a [u8],
    /// The protocol that the client speaks.
    pub protocol: Protocol,
    /// The attempt.
    pub credentials: &'a Credentials,
    /// The number of the attempt on this connection, from 1.
    pub attempt: u64,
    /// The client's address.
    pub client_ip: &'a str,
    /// SMTP: the client's name.
    pub client_host: Option<&'a ClientHost>,
    /// The addresses of a PROXY protocol header.
    pub proxy: Option<ProxyFields<'a>>,
    /// The client's TLS connection.
    pub tls: Option<TlsFields<'a>>,
    /// The fields of `auth_http_header`.
    pub headers: &'a [(Bytes, Bytes)],
}

/// A head in the making. Values are written by its methods alone, so that no value can end a line.
struct Head(Vec<u8>);

impl Head {
    fn name(&mut self, name: &[u8]) {
        self.text(name);
        self.0.extend_from_slice(b": ");
    }

    /// Bytes as they are, but control characters as spaces.
    fn text(&mut self, text: &[u8]) {
        self.0.extend(text.iter().map(|b| if b.is_ascii_control() { b' ' } else { *b }));
    }

    fn end(&mut self) {
        self.0.extend_from_slice(b"\r\n");
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        self.name(name.as_bytes());
        self.text(value);
        self.end();
    }

    fn escaped(&mut self, name: &str, value: &[u8]) {
        self.name(name.as_bytes());
        escape_percent(value, &mut self.0);
        self.end();
    }

    fn unless_empty(&mut self, name: &str, value: Option<&[u8]>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.field(name, value);
        }
    }
}

/// The request, whole.
///
/// Control characters, spaces and percent signs in `Auth-User`, `Auth-Pass` and `Auth-SSL-Cert` are
/// escaped as `%XX`; in other values, control characters become spaces.
pub fn write(question: &Question<'_>) -> Vec<u8> {
    let credentials = question.credentials;
    let mut head = Head(b"GET ".to_vec());
    for byte in question.uri {
        match byte {
            // They would end the URI.
            0..=b' ' | 0x7f => push_hex(b'%', *byte, &mut head.0),
            byte => head.0.push(*byte),
        }
    }
    head.0.extend_from_slice(b" HTTP/1.0\r\n");
    head.field("Host", question.host);
    head.field("Auth-Method", credentials.method.name().as_bytes());
    head.escaped("Auth-User", &credentials.login);
    head.escaped("Auth-Pass", &credentials.password);
    if matches!(credentials.method, Method::Apop | Method::CramMd5) {
        head.unless_empty("Auth-Salt", credentials.salt.as_deref());
    }
    head.field("Auth-Protocol", question.protocol.name().as_bytes());
    head.field("Auth-Login-Attempt", question.attempt.to_string().as_bytes());
    head.field("Client-IP", question.client_ip.as_bytes());
    if let Some(host) = question.client_host {
        head.field("Client-Host", host.as_str().as_bytes());
    }
    if let Some(proxy) = &question.proxy {
        head.field("Proxy-Protocol-Addr", proxy.addr.as_bytes());
        head.field("Proxy-Protocol-Port", proxy.port.to_string().as_bytes());
        head.field("Proxy-Protocol-Server-Addr", proxy.server_addr.as_bytes());
        head.field("Proxy-Protocol-Server-Port", proxy.server_port.to_string().as_bytes());
    }
    if let Some(envelope) = &credentials.smtp {
        head.field("Auth-SMTP-Helo", &credentials.helo);
        head.field("Auth-SMTP-From", &envelope.from);
        head.field("Auth-SMTP-To", &envelope.to);
    }
    if let Some(tls) = &question.tls {
        write_tls(&mut head, tls);
    }
    for (name, value) in question.headers {
        head.name(name);
        head.text(value);
        head.end();
    }
    head.end();
    head.0
}

fn write_tls(head: &mut Head, tls: &TlsFields<'_>) {
    head.field("Auth-SSL", b"on");
    head.unless_empty("Auth-SSL-Protocol", Some(tls.protocol));
    head.unless_empty("Auth-SSL-Cipher", Some(tls.cipher));
    head.unless_empty("Auth-SSL-Verify", tls.verify);
    head.unless_empty("Auth-SSL-Subject", tls.subject);
    head.unless_empty("Auth-SSL-Issuer", tls.issuer);
    head.unless_empty("Auth-SSL-Serial", tls.serial);
    head.unless_empty("Auth-SSL-Fingerprint", tls.fingerprint);
    if let Some(cert) = tls.cert.filter(|cert| !cert.is_empty()) {
        head.escaped("Auth-SSL-Cert", cert);
    }
}

/// The result of [`parse`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// The head is not complete.
    Partial,
    /// No answer of HTTP, a broken field, or a head longer than [`ANSWER_MAX`].
    Bad,
    /// The head is complete. A body is ignored.
    Whole(Verdict),
}

/// The answer of the authentication server.
#[derive(Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The client may not log in.
    Refused {
        /// The reason, for the client.
        message: Bytes,
        /// SMTP's code.
        code: Option<Bytes>,
        /// Seconds until the client may try again; 0: never on this connection.
        wait: u64,
    },
    /// The question must be asked again after this number of seconds.
    Wait(u64),
    /// The client may log in.
    Go {
        /// The mail server's address, as it came.
        server: Bytes,
        /// Its port, as it came; see [`port_number`].
        port: Bytes,
        /// The name to log in with, if it is another.
        user: Option<Bytes>,
        /// The password to log in with, if it is another.
        password: Option<Bytes>,
    },
    /// No server or no port was sent.
    MissingServer,
}

impl std::fmt::Debug for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Refused { message, code, wait } => {
                f.debug_tuple("Refused").field(message).field(code).field(wait).finish()
            }
            Verdict::Wait(wait) => f.debug_tuple("Wait").field(wait).finish(),
            Verdict::Go { server, port, user, password } => {
                let password = password.as_ref().map(|_| "…");
                f.debug_tuple("Go").field(server).field(port).field(user).field(&password).finish()
            }
            Verdict::MissingServer => f.write_str("MissingServer"),
        }
    }
}

/// The fields of an answer that mean something.
#[derive(Default)]
struct Fields {
    status: bool,
    waits: bool,
    message: Option<Bytes>,
    code: Option<Bytes>,
    wait: u64,
    server: Bytes,
    port: Bytes,
    user: Option<Bytes>,
    password: Option<Bytes>,
}

/// Reads an answer at the start of `bytes`. After `Partial`, call again with more bytes behind the
/// same.
pub fn parse(bytes: &[u8]) -> Parsed {
    let window = bytes.get(..ANSWER_MAX).unwrap_or(bytes);
    let mut rest = window;
    let mut status = None;
    let mut fields = Fields::default();
    loop {
        let Some(end) = memchr::memchr(b'\n', rest) else {
            let broken = status.is_none() && !may_be_http(rest);
            let full = window.len() == ANSWER_MAX;
            return if broken || full { Parsed::Bad } else { Parsed::Partial };
        };
        let (line, behind) = rest.split_at(end + 1);
        rest = behind;
        let line = crate::input::without_end(line);
        if !crate::input::is_clean(line) {
            return Parsed::Bad;
        }
        match status {
            None => match status_class(line) {
                Some(class) => status = Some(class),
                None => return Parsed::Bad,
            },
            Some(class) if line.is_empty() => return Parsed::Whole(fields.verdict(class)),
            Some(_) => {
                if fields.read(line).is_none() {
                    return Parsed::Bad;
                }
            }
        }
    }
}

const HTTP: &[u8] = b"HTTP/";

/// The start of a status line, or a part of it.
fn may_be_http(bytes: &[u8]) -> bool {
    bytes.iter().zip(HTTP).all(|(byte, known)| byte == known)
}

/// The first digit of the status of a status line; 0 where there is none.
fn status_class(line: &[u8]) -> Option<u8> {
    let rest = line.strip_prefix(HTTP)?;
    let space = memchr::memchr(b' ', rest).unwrap_or(rest.len());
    match rest.get(space..)?.trim_ascii_start() {
        [digit, ..] if digit.is_ascii_digit() => Some(digit - b'0'),
        _ => Some(0),
    }
}

impl Fields {
    /// Takes a line; none if it is no field.
    fn read(&mut self, line: &[u8]) -> Option<()> {
        let colon = memchr::memchr(b':', line)?;
        let (name, value) = line.split_at(colon);
        let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
        if name.is_empty() || !name.iter().all(is_token) {
            return None;
        }
        let value = Bytes::copy_from_slice(value.get(1..)?.trim_ascii());
        match &name.to_ascii_lowercase()[..] {
            b"auth-status" => {
                self.status = true;
                match &value[..] {
                    b"OK" => {}
                    b"WAIT" => self.waits = true,
                    _ => self.message = Some(value),
                }
            }
            b"auth-server" => self.server = value,
            b"auth-port" => self.port = value,
            b"auth-user" => self.user = Some(value),
            b"auth-pass" => self.password = Some(value),
            b"auth-wait" => self.wait = number(&value).unwrap_or(self.wait),
            b"auth-error-code" => self.code = Some(value).filter(|code| !code.is_empty()),
            _ => {}
        }
        Some(())
    }

    /// A refusal counts before all. Without `Auth-Status`, only a response of success can allow.
    fn verdict(self, class: u8) -> Verdict {
        if let Some(message) = self.message {
            return Verdict::Refused { message, code: self.code, wait: self.wait };
        }
        if self.waits {
            return Verdict::Wait(self.wait);
        }
        let allowed = self.status || class == 2;
        if !allowed || self.server.is_empty() || self.port.is_empty() {
            return Verdict::MissingServer;
        }
        let Fields { server, port, user, password, .. } = self;
        Verdict::Go { server, port, user, password }
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { n.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// The port of an answer: decimal, from 1 to 65535.
pub fn port_number(port: &[u8]) -> Option<u16> {
    number(port).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

/// The line for a client that was refused: `-ERR message`, `TAG NO message`, or `CODE message`.
/// Control characters become spaces.
pub fn refusal(protocol: Protocol, tag: &[u8], message: &[u8], code: Option<&[u8]>) -> Bytes {
    let mut line = Head(Vec::new());
    match protocol {
        Protocol::Pop3 => line.text(b"-ERR "),
        Protocol::Imap => {
            line.text(if tag.is_empty() { b"* " } else { tag });
            line.text(b"NO ");
        }
        Protocol::Smtp => {
            line.text(code.unwrap_or(REFUSED_CODE));
            line.text(b" ");
        }
    }
    line.text(message);
    line.end();
    Bytes::from(line.0)
}

/// The answer to a login that is not tried, as too many of the client's have failed. The error is a
/// temporary one, upon which clients ask their users for no other password: UNAVAILABLE of RFC 5530
/// section 3, SYS/TEMP of RFC 3206 section 4, and of SMTP 421, as the connection is closed then
/// (RFC 5321 section 3.8).
pub fn too_many_failures(protocol: Protocol, tag: &[u8]) -> Bytes {
    const TEXT: &[u8] = b"Too many failed logins, try again later";
    let (hint, code): (&[u8], _) = match protocol {
        Protocol::Imap => (b"[UNAVAILABLE] ", None),
        Protocol::Pop3 => (b"[SYS/TEMP] ", None),
        Protocol::Smtp => (b"", Some(&b"421 4.7.0"[..])),
    };
    refusal(protocol, tag, &[hint, TEXT].concat(), code)
}
