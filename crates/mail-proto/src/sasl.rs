//! SASL exchanges (RFC 4422), the same in the three protocols but for their prompts.

use crate::common::{Attempt, Fault};
use crate::{Method, Methods, Note};
use bytes::Bytes;

/// An exchange that waits for a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Exchange {
    Plain,
    LoginName,
    LoginPassword(Bytes),
    CramMd5,
    External,
}

/// The challenge that a response answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Challenge {
    Empty,
    /// `Username:`.
    Name,
    Password,
    /// The connection's salt.
    Salt,
}

impl Challenge {
    /// The line, behind the protocol's prefix.
    pub(crate) fn line(self, prefix: &[u8], salt: &[u8]) -> Bytes {
        let mut line = prefix.to_vec();
        match self {
            Challenge::Empty => {}
            Challenge::Name => base::base64::encode(b"Username:", &mut line),
            Challenge::Password => base::base64::encode(b"Password:", &mut line),
            Challenge::Salt => base::base64::encode(salt, &mut line),
        }
        line.extend_from_slice(b"\r\n");
        Bytes::from(line)
    }
}

/// The course of an exchange.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Ask(Exchange, Challenge),
    Done(Attempt),
}

/// Begins the exchange of `AUTH METHOD [RESPONSE]`. PLAIN and LOGIN need not be among the
/// methods: leaving them out hides them from the capabilities alone, as in nginx.
///
/// # Errors
/// Another method, one that is not allowed, arguments too many, or a broken response.
pub(crate) fn begin(args: &[Bytes], methods: Methods) -> Result<Step, Fault> {
    let Some((name, responses)) = args.split_first() else { return Err(Fault::REFUSED) };
    let (exchange, challenge) = match &name.to_ascii_uppercase()[..] {
        b"PLAIN" => (Exchange::Plain, Challenge::Empty),
        b"LOGIN" => (Exchange::LoginName, Challenge::Name),
        b"CRAM-MD5" if methods.has(Methods::CRAM_MD5) => (Exchange::CramMd5, Challenge::Salt),
        // nginx's challenge of EXTERNAL asks for the name, too.
        b"EXTERNAL" if methods.has(Methods::EXTERNAL) => (Exchange::External, Challenge::Name),
        _ => return Err(Fault::REFUSED),
    };
    match responses {
        [] => Ok(Step::Ask(exchange, challenge)),
        [response] if exchange != Exchange::CramMd5 => exchange.answer(response),
        _ => Err(Fault::REFUSED),
    }
}

impl Exchange {
    /// Takes the response to the challenge; `*` cancels (RFC 4954 section 4, RFC 5034 section 4,
    /// RFC 3501 section 6.2.2).
    ///
    /// # Errors
    /// A broken response.
    pub(crate) fn answer(self, response: &[u8]) -> Result<Step, Fault> {
        if response == b"*" {
            return Err(Fault::Cancelled);
        }
        let command = match self {
            Exchange::Plain => "AUTH PLAIN",
            Exchange::LoginName | Exchange::LoginPassword(_) => "AUTH LOGIN",
            Exchange::CramMd5 => "AUTH CRAM-MD5",
            Exchange::External => "AUTH EXTERNAL",
        };
        let mut text = Vec::new();
        if !base::base64::decode(response, &mut text) {
            return Err(Fault::Refused(Some(Note::Base64(command))));
        }
        let text = Bytes::from(text);
        let (method, login, password) = match self {
            Exchange::Plain => plain(&text)?,
            Exchange::LoginName => {
                return Ok(Step::Ask(Exchange::LoginPassword(text), Challenge::Password));
            }
            Exchange::LoginPassword(login) => (Method::Plain, login, text),
            Exchange::CramMd5 => cram_md5(&text)?,
            Exchange::External => (Method::External, text, Bytes::new()),
        };
        Ok(Step::Done(Attempt { method, login, password }))
    }
}

/// `[authzid] NUL authcid NUL passwd` (RFC 4616 section 2). The identity to act as is not used.
fn plain(text: &Bytes) -> Result<(Method, Bytes, Bytes), Fault> {
    let nul = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        memchr::memchr(0, rest).map(|at| from + at)
    };
    let start = nul(0).map(|at| at + 1).filter(|at| *at < text.len());
    let start = start.ok_or(Fault::Refused(Some(Note::Login)))?;
    let end = nul(start).ok_or(Fault::Refused(Some(Note::Password)))?;
    if nul(end + 1).is_some() {
        return Err(Fault::Refused(Some(Note::Password)));
    }
    Ok((Method::Plain, text.slice(start..end), text.slice(end + 1..)))
}

/// A name, a space, and 32 hex digits (RFC 2195 section 2).
fn cram_md5(text: &Bytes) -> Result<(Method, Bytes, Bytes), Fault> {
    let space = memchr::memchr(b' ', text).filter(|at| text.len() - at - 1 == 32);
    let space = space.ok_or(Fault::Refused(Some(Note::CramMd5Hash)))?;
    Ok((Method::CramMd5, text.slice(..space), text.slice(space + 1..)))
}
