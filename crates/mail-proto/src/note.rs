//! Faults of clients, as log lines of level info tell of them.

use std::fmt;

/// A fault of a client; its text is nginx's sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// The command did not fit the buffer.
    TooLong(Vec<u8>),
    /// The number of invalid commands reached the limit.
    TooManyErrors,
    /// A SASL response is not base64; the command it belongs to.
    Base64(&'static str),
    /// The response of AUTH PLAIN has no name.
    Login,
    /// The response of AUTH PLAIN has no password.
    Password,
    /// The response of CRAM-MD5 has no digest of 32 characters.
    CramMd5Hash,
    /// SMTP: MAIL from a client that must log in first.
    Rejected(Vec<u8>),
    /// SMTP: bytes from a client that was not greeted yet.
    BeforeGreeting(Vec<u8>),
}

/// Bytes of a client in one line: line ends as `_`, other control characters as `.`.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in String::from_utf8_lossy(self.0).chars() {
            let shown = match c {
                '\r' | '\n' => '_',
                c if c.is_control() => '.',
                c => c,
            };
            fmt::Write::write_char(f, shown)?;
        }
        Ok(())
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::TooLong(bytes) => write!(f, "client sent too long command \"{}\"", Shown(bytes)),
            Note::TooManyErrors => f.write_str("client sent too many invalid commands"),
            Note::Base64(command) => {
                write!(f, "client sent invalid base64 encoding in {command} command")
            }
            Note::Login => f.write_str("client sent invalid login in AUTH PLAIN command"),
            Note::Password => f.write_str("client sent invalid password in AUTH PLAIN command"),
            Note::CramMd5Hash => {
                f.write_str("client sent invalid CRAM-MD5 hash in AUTH CRAM-MD5 command")
            }
            Note::Rejected(line) => write!(f, "client was rejected: \"{}\"", Shown(line)),
            Note::BeforeGreeting(bytes) => {
                write!(f, "client was rejected before greeting: \"{}\"", Shown(bytes))
            }
        }
    }
}
