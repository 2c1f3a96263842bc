//! The dialogue with a client until it logs in.
//!
//! ```text
//! feed ─▶ step ─▶ More                                    feed again
//!                 Reply, Quit, StartTls                   send the text
//!                 Ask ─▶ refused: go_on, step
//!                     ─▶ allowed: take_pending, which go to the mail server
//! ```

use crate::common::Common;
use crate::imap::Imap;
use crate::input::Input;
use crate::pop3::Pop3;
use crate::smtp::Smtp;
use crate::{Methods, Protocol, Settings};
use bytes::Bytes;
use std::rc::Rc;

pub use crate::common::Action;

#[derive(Debug)]
enum Kind {
    Imap(Imap),
    Pop3(Pop3),
    Smtp(Smtp),
}

/// The dialogue with a client until its login is accepted.
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
        Dialogue { common: Common::new(settings, salt), input, kind }
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
