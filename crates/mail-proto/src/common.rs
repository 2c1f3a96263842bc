//! The common part of the dialogues of the three protocols.

use crate::input::Input;
use crate::{Credentials, Method, Note, Settings, StartTls};
use bytes::Bytes;
use std::rc::Rc;

/// The next step of the owner of a [`Dialogue`](crate::Dialogue).
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

/// The parts of one attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Attempt {
    pub(crate) method: Method,
    pub(crate) login: Bytes,
    pub(crate) password: Bytes,
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
    pub(crate) fn new(settings: Rc<Settings>, salt: Bytes) -> Common {
        Common { settings, salt, tls: false, login: Bytes::new(), errors: 0 }
    }

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
