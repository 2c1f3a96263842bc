//! The dialogue with a mail server, from its greeting to the login.
//!
//! ```text
//! POP3  Greeting ─▶ [StartTls ─▶] User ─▶ Password ─▶ done
//! IMAP  Greeting ─▶ [StartTls ─▶] Login ─▶ User ─▶ Password ─▶ done
//! SMTP  Greeting ─▶ Helo ─▶ [StartTls ─▶ Helo ─▶] [XClient ─▶ [ClientHelo]]
//!                ─▶ done, Auth ─▶ done, or From ─▶ To ─▶ done
//! ```
//!
//! A state is the command that was sent last, of which the answer is awaited.

use crate::escape::escape_xtext;
use crate::host::ClientHost;
use crate::input::without_end;
use crate::{Envelope, Protocol};
use bytes::Bytes;
use std::mem;
use std::net::IpAddr;

/// The client whose XCLIENT values are sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XClient {
    /// Its address; none for a Unix socket.
    pub addr: Option<IpAddr>,
    /// The client's name, as the DNS knows it.
    pub name: ClientHost,
}

/// A login at a mail server.
#[derive(Clone)]
pub struct Login {
    /// The protocol.
    pub protocol: Protocol,
    /// The name.
    pub login: Bytes,
    /// The password; SMTP needs it for `smtp_auth` alone.
    pub password: Option<Bytes>,
    /// IMAP: the client's tag, with the space behind it.
    pub tag: Bytes,
    /// SMTP: the envelope of a mail that needs no login.
    pub smtp: Option<Envelope>,
    /// SMTP: the argument of the client's HELO or EHLO, or nothing.
    pub helo: Bytes,
    /// SMTP: the client greeted with EHLO.
    pub esmtp: bool,
    /// The name of this server, for HELO.
    pub server_name: Bytes,
    /// SMTP: who the client is, where the mail server shall be told.
    pub xclient: Option<XClient>,
    /// SMTP: the client's name and password are sent.
    pub smtp_auth: bool,
    /// TLS begins by a command: STARTTLS (RFC 3501 section 6.2.1, RFC 3207) or STLS (RFC 2595
    /// section 4).
    pub starttls: bool,
    /// Refusals are passed to the client.
    pub pass_error_message: bool,
    /// The most bytes of one answer.
    pub buffer: usize,
}

/// The next step of the owner of a [`Backend`].
#[derive(PartialEq, Eq, Debug)]
pub enum Said {
    /// Feed more bytes.
    More,
    /// Send the line, then step again.
    Send {
        /// For the mail server.
        line: Bytes,
        /// The name of the step in log lines: `sending user name to upstream`.
        doing: &'static str,
    },
    /// Begin the handshake, call [`Backend::now_tls`], then step again. Bytes of the mail server
    /// that were not fed were sent in clear and may be anybody's: the connection must be closed
    /// then.
    StartTls,
    /// Bytes came in clear behind the mail server's answer to STARTTLS: the connection must be
    /// closed.
    InClear,
    /// The client is logged in: these bytes go to it, then both are piped.
    Done {
        /// The mail server's last answer and everything behind it; after AUTH of SMTP, the proxy's
        /// own.
        to_client: Vec<u8>,
    },
    /// The mail server refused.
    Failed {
        /// Its answer without the last line end, for the log.
        answer: Vec<u8>,
        /// The answer for the client, with `pass_error_message`.
        to_client: Option<Vec<u8>>,
        /// Name or password were wrong, as far as can be seen.
        is_login: bool,
    },
    /// A password must be sent and there is none.
    NoPassword,
    /// A value holds a line end or NUL, and cannot be sent: which.
    Unsendable(&'static str),
    /// An answer is longer than the buffer: what was fed.
    TooLong(Vec<u8>),
}

/// The answer of SMTP for a client that the authentication server let in.
const AUTH_OK: &[u8] = b"235 2.0.0 OK\r\n";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Greeting,
    StartTls,
    // POP3 and IMAP.
    Login,
    User,
    Password,
    // SMTP.
    Helo,
    XClient,
    ClientHelo,
    Auth,
    From,
    To,
}

/// The meaning of a line of an answer.
enum Line {
    /// The answer goes on.
    Goes,
    /// The answer ends, and allows.
    Ok,
    /// The answer ends, and refuses.
    Refused,
    /// A line between answers, which means nothing here.
    Skip,
}

/// A dialogue.
pub struct Backend {
    login: Login,
    state: State,
    held: Vec<u8>,
    /// Where the first line begins that was not looked at.
    at: usize,
    /// No line ends between `at` and this.
    scanned: usize,
    /// TLS has begun.
    tls: bool,
}

/// The tag of STARTTLS of IMAP; the client's own is for its login.
const STARTTLS_TAG: &[u8] = b"starttls ";

impl Backend {
    /// A dialogue that waits for the greeting.
    pub fn new(login: Login) -> Backend {
        let state = State::Greeting;
        Backend { login, state, held: Vec::new(), at: 0, scanned: 0, tls: false }
    }

    /// TLS has begun, behind [`Said::StartTls`].
    pub fn now_tls(&mut self) {
        self.tls = true;
    }

    /// The bytes that can be fed: what is left for one answer.
    pub fn room(&self) -> usize {
        self.login.buffer.saturating_sub(self.held.len())
    }

    /// Takes bytes of the mail server, at most [`Backend::room`].
    pub fn feed(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Looks at the answer to the last line, and gives the next one.
    pub fn step(&mut self) -> Said {
        if self.state == State::StartTls
            && self.tls
            && let Some(next) = self.next()
        {
            // No greeting comes behind the handshake.
            return self.say(next);
        }
        loop {
            let rest = self.held.get(self.scanned..).unwrap_or_default();
            let Some(found) = memchr::memchr(b'\n', rest) else {
                self.scanned = self.held.len();
                if self.room() > 0 {
                    return Said::More;
                }
                return Said::TooLong(self.held.clone());
            };
            let end = self.scanned + found + 1;
            let line = without_end(self.held.get(self.at..end).unwrap_or_default());
            match self.meaning(line) {
                Line::Goes => (self.at, self.scanned) = (end, end),
                Line::Skip => {
                    self.held.drain(self.at..end);
                    self.scanned = self.at;
                }
                Line::Ok => return self.allowed(end),
                Line::Refused => return self.refused(end),
            }
        }
    }

    fn allowed(&mut self, end: usize) -> Said {
        if self.state == State::StartTls {
            let is_all = end >= self.held.len();
            self.held = Vec::new();
            (self.at, self.scanned) = (0, 0);
            return if is_all { Said::StartTls } else { Said::InClear };
        }
        let Some(next) = self.next() else {
            let mut to_client = mem::take(&mut self.held);
            if self.login.protocol == Protocol::Smtp && self.login.smtp.is_none() {
                to_client.splice(..end.min(to_client.len()), AUTH_OK.iter().copied());
            }
            (self.at, self.scanned) = (0, 0);
            return Said::Done { to_client };
        };
        self.held.drain(..end.min(self.held.len()));
        (self.at, self.scanned) = (0, 0);
        self.say(next)
    }

    /// Gives the line of a command, whose answer comes next.
    fn say(&mut self, next: State) -> Said {
        self.state = next;
        match self.line(next) {
            Ok(line) => Said::Send { line: Bytes::from(line), doing: doing(next) },
            Err(said) => said,
        }
    }

    fn refused(&mut self, end: usize) -> Said {
        let mut whole = mem::take(&mut self.held);
        whole.truncate(end);
        // Of IMAP's answers the last line alone says why.
        let from = if self.login.protocol == Protocol::Imap { self.at } else { 0 };
        (self.at, self.scanned) = (0, 0);
        let answer = without_end(whole.get(from..).unwrap_or_default()).to_vec();
        // The client has asked for no TLS with the mail server.
        let is_passed = self.login.pass_error_message && self.state != State::StartTls;
        let is_login = match self.state {
            State::Password | State::Auth => true,
            State::User => self.login.protocol == Protocol::Pop3,
            _ => false,
        };
        Said::Failed { answer, to_client: is_passed.then_some(whole), is_login }
    }

    fn meaning(&self, line: &[u8]) -> Line {
        match self.login.protocol {
            Protocol::Pop3 => either(line.starts_with(b"+OK")),
            Protocol::Imap => self.imap(line),
            Protocol::Smtp => self.smtp(line),
        }
    }

    fn imap(&self, line: &[u8]) -> Line {
        let starts = |start: &[u8]| {
            line.get(..start.len()).is_some_and(|line| line.eq_ignore_ascii_case(start))
        };
        if self.state == State::Greeting {
            return either(starts(b"* OK"));
        }
        // Untagged responses may come at any time (RFC 3501 section 7); those before the end of
        // LOGIN, as `* CAPABILITY`, are for the client.
        if starts(b"* ") && !starts(b"* BYE") {
            return if self.state == State::Password { Line::Goes } else { Line::Skip };
        }
        let tag = match self.state {
            State::StartTls => STARTTLS_TAG,
            State::Password => &self.login.tag,
            _ => return either(line.starts_with(b"+")),
        };
        let tagged = line.strip_prefix(tag);
        either(
            tagged.is_some_and(|rest| {
                rest.get(..2).is_some_and(|word| word.eq_ignore_ascii_case(b"OK"))
            }),
        )
    }

    fn smtp(&self, line: &[u8]) -> Line {
        let Some((code, rest)) = line.split_first_chunk::<3>() else { return Line::Refused };
        if !code.iter().all(u8::is_ascii_digit) {
            return Line::Refused;
        }
        match rest {
            [b'-', ..] => return Line::Goes,
            [] | [b' ', ..] => {}
            _ => return Line::Refused,
        }
        either(match self.state {
            State::Greeting | State::StartTls => code == b"220",
            // Postfix greets anew.
            State::XClient => code == b"220" || code == b"250",
            State::Auth => code == b"235",
            // Whether it takes the recipient, is the client's to know.
            State::To => true,
            _ => code == b"250",
        })
    }

    /// The command behind the one that was answered; none when that was all.
    fn next(&self) -> Option<State> {
        let login = &self.login;
        match (login.protocol, self.state) {
            (Protocol::Imap | Protocol::Pop3, State::Greeting) | (Protocol::Smtp, State::Helo)
                if login.starttls && !self.tls =>
            {
                Some(State::StartTls)
            }
            (Protocol::Imap, State::Greeting | State::StartTls) => Some(State::Login),
            (Protocol::Pop3, State::Greeting | State::StartTls) => Some(State::User),
            (Protocol::Smtp, State::Greeting | State::StartTls) => Some(State::Helo),
            (_, State::Login) => Some(State::User),
            (_, State::User) => Some(State::Password),
            (_, State::Helo) if login.xclient.is_some() => Some(State::XClient),
            (_, State::XClient) if !login.helo.is_empty() => Some(State::ClientHelo),
            (_, State::Helo | State::XClient | State::ClientHelo) => {
                if login.smtp.is_some() {
                    Some(State::From)
                } else if login.smtp_auth {
                    Some(State::Auth)
                } else {
                    None
                }
            }
            (_, State::From) => Some(State::To),
            (_, State::Password | State::Auth | State::To) => None,
        }
    }

    /// The line of a command.
    fn line(&self, state: State) -> Result<Vec<u8>, Said> {
        let login = &self.login;
        let imap = login.protocol == Protocol::Imap;
        let user = || sendable(&login.login, "login");
        let password = || sendable(login.password.as_ref().ok_or(Said::NoPassword)?, "password");
        let envelope = || login.smtp.as_ref().ok_or(Said::Unsendable("envelope"));
        let ehlo = |esmtp: bool| if esmtp { &b"EHLO "[..] } else { &b"HELO "[..] };
        let mut line = match state {
            State::Greeting => return Ok(Vec::new()),
            State::StartTls => match login.protocol {
                Protocol::Imap => [STARTTLS_TAG, b"STARTTLS"].concat(),
                Protocol::Pop3 => b"STLS".to_vec(),
                Protocol::Smtp => b"STARTTLS".to_vec(),
            },
            State::Login => {
                let len = format!("LOGIN {{{}}}", user()?.len());
                [sendable(&login.tag, "tag")?, len.as_bytes()].concat()
            }
            State::User if imap => {
                let len = format!(" {{{}}}", password()?.len());
                [user()?, len.as_bytes()].concat()
            }
            State::User => [b"USER ", user()?].concat(),
            State::Password if imap => password()?.to_vec(),
            State::Password => [b"PASS ", password()?].concat(),
            State::Helo => {
                let name = sendable(&login.server_name, "server name")?;
                let extends = login.esmtp || login.xclient.is_some() || login.starttls;
                [ehlo(extends), name].concat()
            }
            State::XClient => self.xclient(),
            State::ClientHelo => [ehlo(login.esmtp), sendable(&login.helo, "helo")?].concat(),
            State::Auth => {
                let plain = [b"\0", user()?, b"\0", password()?].concat();
                let mut line = b"AUTH PLAIN ".to_vec();
                base::base64::encode(&plain, &mut line);
                line
            }
            State::From => sendable(&envelope()?.from, "sender")?.to_vec(),
            State::To => sendable(&envelope()?.to, "recipient")?.to_vec(),
        };
        line.extend_from_slice(b"\r\n");
        Ok(line)
    }

    /// <https://www.postfix.org/XCLIENT_README.html>; values in xtext (RFC 1891 section 5).
    fn xclient(&self) -> Vec<u8> {
        let addr = match self.login.xclient.as_ref().and_then(|x| x.addr) {
            Some(IpAddr::V4(v4)) => v4.to_string(),
            Some(IpAddr::V6(v6)) => format!("IPV6:{v6}"),
            None => ClientHost::Unavailable.to_string(),
        };
        let name = self.login.xclient.as_ref().map_or("[UNAVAILABLE]", |x| x.name.as_str());
        let mut line = b"XCLIENT ADDR=".to_vec();
        escape_xtext(addr.as_bytes(), &mut line);
        if !self.login.login.is_empty() && !self.login.smtp_auth {
            line.extend_from_slice(b" LOGIN=");
            escape_xtext(&self.login.login, &mut line);
        }
        line.extend_from_slice(b" NAME=");
        escape_xtext(name.as_bytes(), &mut line);
        line
    }
}

fn either(ok: bool) -> Line {
    if ok { Line::Ok } else { Line::Refused }
}

/// The value, if nothing in it can end a line or a string of C.
fn sendable<'a>(value: &'a Bytes, which: &'static str) -> Result<&'a [u8], Said> {
    match memchr::memchr3(b'\r', b'\n', 0, value) {
        Some(_) => Err(Said::Unsendable(which)),
        None => Ok(value),
    }
}

fn doing(state: State) -> &'static str {
    match state {
        State::Greeting => "reading response from upstream",
        State::StartTls => "sending STARTTLS to upstream",
        State::Login => "sending LOGIN command to upstream",
        State::User => "sending user name to upstream",
        State::Password => "sending password to upstream",
        State::Helo => "sending HELO/EHLO to upstream",
        State::XClient => "sending XCLIENT to upstream",
        State::ClientHelo => "sending client HELO/EHLO to upstream",
        State::Auth => "sending AUTH to upstream",
        State::From => "sending MAIL FROM to upstream",
        State::To => "sending RCPT TO to upstream",
    }
}
