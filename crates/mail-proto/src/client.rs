//! The dialogue with a client until it logs in.
//!
//! ```text
//! feed ─▶ step ─▶ More                                    feed again
//!                 Reply, Quit, StartTls                   send the text
//!                 Ask ─▶ refused: go_on, step
//!                     ─▶ allowed: take_pending, which go to the mail server
//! ```

use crate::imap::Imap;
use crate::input::Input;
use crate::pop3::Pop3;
use crate::sasl::Attempt;
use crate::smtp::Smtp;
use crate::{Credentials, Method, Methods, Note, Protocol, Settings, StartTls};
use bytes::Bytes;
use std::rc::Rc;

/// What the owner of a [`Dialogue`] has to do.
#[derive(PartialEq, Eq, Debug)]
pub enum Action {
    /// Feed more bytes.
    More,
    /// Send the text, then step again.
    Reply {
        /// For the client.
        text: Bytes,
        /// For the log.
        note: Option<Note>,
    },
    /// Send the text, then close.
    Quit {
        /// For the client.
        text: Bytes,
        /// For the log.
        note: Option<Note>,
    },
    /// Send the text, then begin the handshake. Bytes that are pending were sent in clear and may
    /// be anybody's: the connection must be closed then.
    StartTls {
        /// For the client.
        text: Bytes,
    },
    /// Ask the authentication server. The client is not read until it has answered.
    Ask(Credentials),
}

/// Why a command fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It is no command. This counts towards `max_errors`.
    Syntax,
    /// A command that may not be given, or not like this. As in nginx, it does not count.
    Refused(Option<Note>),
    /// The client cancelled a SASL exchange.
    Cancelled,
}

impl Fault {
    pub(crate) const REFUSED: Fault = Fault::Refused(None);
}

/// The part of a dialogue that does not depend on the protocol.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) settings: Rc<Settings>,
    pub(crate) salt: Bytes,
    pub(crate) tls: bool,
    pub(crate) login: Bytes,
    errors: usize,
}

impl Common {
    /// The answer to a command that fails. `last`: the connection ends with it anyway.
    pub(crate) fn fail(&mut self, text: Bytes, fault: Fault, last: bool) -> Action {
        let note = match fault {
            Fault::Refused(note) => note,
            Fault::Cancelled => None,
            Fault::Syntax => {
                self.errors += 1;
                if self.errors >= self.settings.max_errors {
                    return Action::Quit { text, note: Some(Note::TooManyErrors) };
                }
                None
            }
        };
        if last { Action::Quit { text, note } } else { Action::Reply { text, note } }
    }

    /// More bytes are needed; where there is no room for them, the command is too long.
    pub(crate) fn more(&self, input: &Input, text: impl FnOnce() -> Bytes) -> Action {
        if input.room() > 0 {
            return Action::More;
        }
        let note = Some(Note::TooLong(input.pending().to_vec()));
        Action::Quit { text: text(), note }
    }

    /// Logging in is refused until TLS is there.
    pub(crate) fn needs_tls(&self) -> bool {
        !self.tls && self.settings.starttls == StartTls::Only
    }

    /// STARTTLS may be given.
    pub(crate) fn may_start_tls(&self) -> bool {
        !self.tls && self.settings.starttls != StartTls::Off
    }

    /// The capabilities for the connection as it is.
    pub(crate) fn capability(&self) -> Bytes {
        let texts = &self.settings.texts;
        match self.settings.starttls {
            StartTls::On if !self.tls => texts.starttls_capability.clone(),
            StartTls::Only if !self.tls => texts.starttls_only_capability.clone(),
            _ => texts.capability.clone(),
        }
    }

    /// The credentials of an attempt; SMTP's parts are empty.
    pub(crate) fn credentials(&mut self, attempt: Attempt, tag: Bytes) -> Credentials {
        self.login = attempt.login.clone();
        let salted = matches!(attempt.method, Method::Apop | Method::CramMd5);
        Credentials {
            method: attempt.method,
            login: attempt.login,
            password: attempt.password,
            salt: salted.then(|| self.salt.clone()),
            tag,
            smtp: None,
            helo: Bytes::new(),
            esmtp: false,
        }
    }
}

#[derive(Debug)]
enum Kind {
    Imap(Imap),
    Pop3(Pop3),
    Smtp(Smtp),
}

/// A dialogue.
#[derive(Debug)]
pub struct Dialogue {
    common: Common,
    input: Input,
    kind: Kind,
}

impl Dialogue {
    /// A dialogue without TLS. `salt` is `<random.time@server_name>`, for APOP and CRAM-MD5.
    pub fn new(settings: Rc<Settings>, salt: Bytes) -> Dialogue {
        let kind = Dialogue::start(settings.protocol);
        let input = Input::new(settings.buffer);
        let common = Common { settings, salt, tls: false, login: Bytes::new(), errors: 0 };
        Dialogue { common, input, kind }
    }

    fn start(protocol: Protocol) -> Kind {
        match protocol {
            Protocol::Imap => Kind::Imap(Imap::default()),
            Protocol::Pop3 => Kind::Pop3(Pop3::default()),
            Protocol::Smtp => Kind::Smtp(Smtp::default()),
        }
    }

    /// TLS was there from the start, or STARTTLS is over: everything that was said in clear is
    /// forgotten (RFC 3207 section 4.2), but for the number of invalid commands.
    pub fn now_tls(&mut self) {
        self.common.tls = true;
        self.common.login = Bytes::new();
        self.input.take_pending();
        self.kind = Dialogue::start(self.common.settings.protocol);
    }

    /// The greeting. With POP3 it ends with the salt where a method uses it.
    pub fn greeting(&self) -> Bytes {
        let settings = &self.common.settings;
        let salted = [Methods::APOP, Methods::CRAM_MD5].iter().any(|m| settings.methods.has(*m));
        let greeting = &settings.texts.greeting;
        if settings.protocol != Protocol::Pop3 || !salted {
            return greeting.clone();
        }
        let start = crate::input::without_end(greeting);
        Bytes::from([start, b" ", &self.common.salt[..], b"\r\n"].concat())
    }

    /// The bytes that can be fed: what is left for one command.
    pub fn room(&self) -> usize {
        self.input.room()
    }

    /// Takes bytes of the client, at most [`Dialogue::room`].
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.feed(bytes);
    }

    /// The bytes that were fed and not used.
    pub fn pending(&self) -> &[u8] {
        self.input.pending()
    }

    /// Takes out the bytes that were fed and not used: commands behind a login, for the mail
    /// server.
    pub fn take_pending(&mut self) -> Vec<u8> {
        self.input.take_pending()
    }

    /// Handles the next command, or the next step of one.
    pub fn step(&mut self) -> Action {
        match &mut self.kind {
            Kind::Imap(imap) => imap.step(&mut self.common, &mut self.input),
            Kind::Pop3(pop3) => pop3.step(&mut self.common, &mut self.input),
            Kind::Smtp(smtp) => smtp.step(&mut self.common, &mut self.input),
        }
    }

    /// The attempt failed, and the client may go on. SMTP keeps HELO and MAIL.
    pub fn go_on(&mut self) {
        match &mut self.kind {
            Kind::Imap(imap) => imap.go_on(),
            Kind::Pop3(pop3) => pop3.go_on(),
            Kind::Smtp(smtp) => smtp.go_on(),
        }
    }

    /// The last name that the client gave, for log lines; empty before.
    pub fn login(&self) -> &[u8] {
        &self.common.login
    }
}
