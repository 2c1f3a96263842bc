//! Mail: the dialogue with a client of IMAP (RFC 3501), POP3 (RFC 1939) or SMTP (RFC 5321) until it
//! logs in, the question to the authentication server, and the login at the mail server.
//!
//! ```text
//! Dialogue ── Ask(Credentials) ─▶ auth::write, auth::parse ── Go ─▶ Backend ── Done ─▶ a pipe
//! ```
//!
//! Credentials are owned and belong to one attempt; nothing here keeps places of a buffer that is
//! used again. Every value that is sent on is checked or escaped where it is written.
#![forbid(unsafe_code)]

pub mod auth;
pub mod backend;
pub mod client;
mod common;
mod escape;
pub mod host;
mod imap;
mod input;
mod note;
mod pop3;
mod sasl;
mod smtp;
#[cfg(test)]
mod tests;
mod texts;

pub use client::Dialogue;
pub use common::Action;
pub use host::ClientHost;
pub use note::Note;
pub use smtp::IMPROPER_PIPELINING;
pub use texts::Texts;

use bytes::Bytes;
use std::fmt;

/// The protocol that a server speaks with its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// IMAP4rev1 (RFC 3501).
    Imap,
    /// POP3 (RFC 1939).
    Pop3,
    /// SMTP (RFC 5321).
    Smtp,
}

impl Protocol {
    /// The name: in the configuration, in `Auth-Protocol` and for ALPN.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Imap => "imap",
            Protocol::Pop3 => "pop3",
            Protocol::Smtp => "smtp",
        }
    }

    /// The line for a client whose session fails through no fault of its own.
    pub fn internal_error(self) -> &'static [u8] {
        match self {
            Protocol::Imap => b"* BAD internal server error\r\n",
            Protocol::Pop3 => b"-ERR internal server error\r\n",
            Protocol::Smtp => b"451 4.3.2 Internal server error\r\n",
        }
    }

    /// The line for a client whose certificate did not verify.
    pub fn certificate_error(self) -> &'static [u8] {
        match self {
            Protocol::Imap => b"* BYE SSL certificate error\r\n",
            Protocol::Pop3 => b"-ERR SSL certificate error\r\n",
            Protocol::Smtp => b"421 4.7.1 SSL certificate error\r\n",
        }
    }

    /// The line for a client without the certificate that is required.
    pub fn no_certificate(self) -> &'static [u8] {
        match self {
            Protocol::Imap => b"* BYE No required SSL certificate\r\n",
            Protocol::Pop3 => b"-ERR No required SSL certificate\r\n",
            Protocol::Smtp => b"421 4.7.1 No required SSL certificate\r\n",
        }
    }
}

/// A set of authentication methods.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Methods(u8);

impl Methods {
    /// No method.
    pub const EMPTY: Methods = Methods(0);
    /// `PLAIN` (RFC 4616), and the plain login commands of IMAP and POP3.
    pub const PLAIN: Methods = Methods(1);
    /// `LOGIN`, name and password in two steps.
    pub const LOGIN: Methods = Methods(2);
    /// The command `APOP` of POP3 (RFC 1939 section 7).
    pub const APOP: Methods = Methods(4);
    /// `CRAM-MD5` (RFC 2195).
    pub const CRAM_MD5: Methods = Methods(8);
    /// `EXTERNAL` (RFC 4422 appendix A): the client's certificate.
    pub const EXTERNAL: Methods = Methods(16);
    /// None: SMTP's MAIL and RCPT are asked about instead.
    pub const NONE: Methods = Methods(32);

    /// The union of two sets.
    pub const fn or(self, more: Methods) -> Methods {
        Methods(self.0 | more.0)
    }

    /// The set as a number, for tables of the configuration language.
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// The set of such a number; bits without a meaning are left out.
    pub const fn from_bits(bits: u64) -> Methods {
        Methods((bits & 63) as u8)
    }

    /// All of `methods` are in this set.
    pub const fn has(self, methods: Methods) -> bool {
        self.0 & methods.0 == methods.0
    }
}

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(Methods, &str); 6] = [
            (Methods::PLAIN, "plain"),
            (Methods::LOGIN, "login"),
            (Methods::APOP, "apop"),
            (Methods::CRAM_MD5, "cram-md5"),
            (Methods::EXTERNAL, "external"),
            (Methods::NONE, "none"),
        ];
        f.debug_set().entries(NAMES.iter().filter(|n| self.has(n.0)).map(|n| n.1)).finish()
    }
}

/// The use of STARTTLS (RFC 3207, RFC 2595).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StartTls {
    /// Not offered.
    #[default]
    Off,
    /// Offered.
    On,
    /// Offered, and nobody can log in without.
    Only,
}

/// The method of one attempt to log in; `LOGIN` counts as plain, as in nginx.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Name and password in clear.
    Plain,
    /// `APOP`: a digest of salt and password.
    Apop,
    /// `CRAM-MD5`: an HMAC of the salt.
    CramMd5,
    /// The client's certificate and a name.
    External,
    /// Nobody logs in: sender and recipient of a mail.
    None,
}

impl Method {
    /// The name in `Auth-Method`.
    pub fn name(self) -> &'static str {
        match self {
            Method::Plain => "plain",
            Method::Apop => "apop",
            Method::CramMd5 => "cram-md5",
            Method::External => "external",
            Method::None => "none",
        }
    }
}

/// Everything of one attempt to log in, which consumes it: a password never outlives its attempt.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// How the client proves who it is.
    pub method: Method,
    /// The name; empty with [`Method::None`].
    pub login: Bytes,
    /// The password, or the digest that proves it; empty where the method has none.
    pub password: Bytes,
    /// The salt of the digest, with APOP and CRAM-MD5.
    pub salt: Option<Bytes>,
    /// IMAP: the tag of the command, with the space behind it.
    pub tag: Bytes,
    /// The mail's envelope, with [`Method::None`].
    pub smtp: Option<Envelope>,
    /// SMTP: the argument of HELO or EHLO; empty before.
    pub helo: Bytes,
    /// SMTP: the client greeted with EHLO.
    pub esmtp: bool,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("method", &self.method)
            .field("login", &self.login)
            .field("salt", &self.salt)
            .field("tag", &self.tag)
            .field("smtp", &self.smtp)
            .field("helo", &self.helo)
            .field("esmtp", &self.esmtp)
            .finish_non_exhaustive()
    }
}

/// Sender and recipient of a mail: whole commands as the client sent them, without the line's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// `MAIL FROM:<a@example.com> SIZE=1`.
    pub from: Bytes,
    /// `RCPT TO:<b@example.com>`.
    pub to: Bytes,
}

/// The settings of a [`Dialogue`], shared by all of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The protocol.
    pub protocol: Protocol,
    /// The methods that are offered. PLAIN and LOGIN always work, as in nginx.
    pub methods: Methods,
    /// The use of STARTTLS.
    pub starttls: StartTls,
    /// The texts for clients.
    pub texts: Texts,
    /// The most bytes of one command; 128 with POP3.
    pub buffer: usize,
    /// The invalid command with this number closes the connection.
    pub max_errors: usize,
    /// The server's name.
    pub server_name: Bytes,
}
