//! The dialogue of SMTP (RFC 5321, RFC 4954, RFC 3207): HELO, EHLO, AUTH, STARTTLS, MAIL, RCPT,
//! RSET, NOOP and QUIT.
//!
//! ```text
//! Start ── AUTH ─▶ Sasl ── line ─▶ Sasl, Start
//!   ╰── MAIL ─▶ from is set ── RCPT ─▶ Start: method none
//! ```

use crate::common::{Action, Attempt, Common, Fault};
use crate::input::{Input, is_clean, without_end, words};
use crate::sasl::{self, Exchange, Step};
use crate::{Credentials, Envelope, Method, Methods, Note};
use bytes::Bytes;

/// The answer to a client that speaks before the greeting; the connection ends with it.
pub const IMPROPER_PIPELINING: &[u8] = b"503 5.5.0 Improper use of SMTP command pipelining\r\n";

/// Most arguments of a command.
const ARGS_MAX: usize = 11;

const OK: Bytes = Bytes::from_static(b"250 2.0.0 OK\r\n");
const BYE: Bytes = Bytes::from_static(b"221 2.0.0 Bye\r\n");
const START_TLS: Bytes = Bytes::from_static(b"220 2.0.0 Start TLS\r\n");
const INVALID_COMMAND: Bytes = Bytes::from_static(b"500 5.5.1 Invalid command\r\n");
const INVALID_ARGUMENT: Bytes = Bytes::from_static(b"501 5.5.4 Invalid argument\r\n");
const BAD_SEQUENCE: Bytes = Bytes::from_static(b"503 5.5.1 Bad sequence of commands\r\n");
const AUTH_REQUIRED: Bytes = Bytes::from_static(b"530 5.7.1 Authentication required\r\n");

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Helo,
    Ehlo,
    Auth,
    Quit,
    Noop,
    Mail,
    Rcpt,
    Rset,
    StartTls,
    /// VRFY, EXPN and HELP: known, and refused.
    Refused,
}

/// The state of the dialogue.
#[derive(Debug, Default)]
pub(crate) struct Smtp {
    /// A response is awaited.
    sasl: Option<Exchange>,
    /// The argument of HELO or EHLO.
    helo: Bytes,
    esmtp: bool,
    /// The whole command MAIL; empty before.
    from: Bytes,
}

impl Smtp {
    pub(crate) fn go_on(&mut self) {
        self.sasl = None;
    }

    pub(crate) fn step(&mut self, common: &mut Common, input: &mut Input) -> Action {
        let Some(raw) = input.line() else { return common.more(input, || INVALID_COMMAND) };
        input.command_ends();
        let line = without_end(&raw);
        let done = match self.sasl.take() {
            Some(exchange) => {
                let step = exchange.answer(line);
                self.sasl(common, step)
            }
            None => parse(line).and_then(|(verb, args)| self.run(common, verb, &args, &raw)),
        };
        done.unwrap_or_else(|fault| {
            // RFC 4954 section 4.
            let cancelled = fault == Fault::Cancelled;
            let text = if cancelled { INVALID_ARGUMENT } else { INVALID_COMMAND };
            common.fail(text, fault, false)
        })
    }

    fn run(
        &mut self,
        common: &mut Common,
        verb: Verb,
        args: &[Bytes],
        raw: &[u8],
    ) -> Result<Action, Fault> {
        Ok(match verb {
            Verb::Helo | Verb::Ehlo => reply(self.helo(common, verb == Verb::Ehlo, args)),
            Verb::Auth if common.needs_tls() => return Err(Fault::REFUSED),
            Verb::Auth if args.is_empty() => reply(INVALID_ARGUMENT),
            Verb::Auth => {
                let step = sasl::begin(args, common.settings.methods);
                self.sasl(common, step)?
            }
            Verb::Quit => Action::Quit { text: BYE, note: None },
            Verb::Noop => reply(OK),
            Verb::Mail => self.mail(common, args, raw),
            Verb::Rcpt => self.rcpt(common, args, raw),
            Verb::Rset => {
                self.from = Bytes::new();
                reply(OK)
            }
            Verb::StartTls if common.may_start_tls() => Action::StartTls { text: START_TLS },
            Verb::StartTls | Verb::Refused => return Err(Fault::REFUSED),
        })
    }

    fn helo(&mut self, common: &Common, esmtp: bool, args: &[Bytes]) -> Bytes {
        let [name] = args else { return INVALID_ARGUMENT };
        if !is_text(name) {
            return INVALID_ARGUMENT;
        }
        self.helo = name.clone();
        self.esmtp = esmtp;
        self.from = Bytes::new();
        if esmtp { common.capability() } else { common.settings.texts.helo.clone() }
    }

    fn mail(&mut self, common: &mut Common, args: &[Bytes], raw: &[u8]) -> Action {
        if !common.settings.methods.has(Methods::NONE) {
            let note = Some(Note::Rejected(raw.to_vec()));
            return Action::Reply { text: AUTH_REQUIRED, note };
        }
        if !self.from.is_empty() {
            return reply(BAD_SEQUENCE);
        }
        let Some(command) = whole(args, raw) else { return reply(INVALID_ARGUMENT) };
        self.from = command;
        common.login = Bytes::new();
        reply(OK)
    }

    fn rcpt(&mut self, common: &mut Common, args: &[Bytes], raw: &[u8]) -> Action {
        if self.from.is_empty() {
            return reply(BAD_SEQUENCE);
        }
        let Some(to) = whole(args, raw) else { return reply(INVALID_ARGUMENT) };
        let attempt = Attempt { method: Method::None, login: Bytes::new(), password: Bytes::new() };
        let mut credentials = self.credentials(common, attempt);
        credentials.smtp = Some(Envelope { from: self.from.clone(), to });
        Action::Ask(credentials)
    }

    fn sasl(&mut self, common: &mut Common, step: Result<Step, Fault>) -> Result<Action, Fault> {
        Ok(match step? {
            Step::Done(attempt) => Action::Ask(self.credentials(common, attempt)),
            Step::Ask(exchange, challenge) => {
                if let Exchange::LoginPassword(login) = &exchange {
                    common.login = login.clone();
                }
                self.sasl = Some(exchange);
                reply(challenge.line(b"334 ", &common.salt))
            }
        })
    }

    fn credentials(&self, common: &mut Common, attempt: Attempt) -> Credentials {
        let mut credentials = common.credentials(attempt, Bytes::new());
        credentials.helo = self.helo.clone();
        credentials.esmtp = self.esmtp;
        credentials
    }
}

fn reply(text: Bytes) -> Action {
    Action::Reply { text, note: None }
}

/// No control characters: the value is sent on as it is.
fn is_text(value: &[u8]) -> bool {
    !value.iter().any(u8::is_ascii_control)
}

/// The whole command without spaces at its end, if it has arguments that can be sent on.
fn whole(args: &[Bytes], raw: &[u8]) -> Option<Bytes> {
    let line = without_end(raw);
    let end = line.iter().rposition(|byte| *byte != b' ')? + 1;
    let line = line.get(..end)?;
    (!args.is_empty() && is_text(line)).then(|| Bytes::copy_from_slice(line))
}

fn parse(line: &[u8]) -> Result<(Verb, Vec<Bytes>), Fault> {
    let end = memchr::memchr(b' ', line).unwrap_or(line.len());
    let (verb, rest) = line.split_at(end);
    let verb = match &verb.to_ascii_uppercase()[..] {
        b"HELO" => Verb::Helo,
        b"EHLO" => Verb::Ehlo,
        b"AUTH" => Verb::Auth,
        b"QUIT" => Verb::Quit,
        b"NOOP" => Verb::Noop,
        b"MAIL" => Verb::Mail,
        b"RCPT" => Verb::Rcpt,
        b"RSET" => Verb::Rset,
        b"STARTTLS" => Verb::StartTls,
        b"VRFY" | b"EXPN" | b"HELP" => Verb::Refused,
        _ => return Err(Fault::Syntax),
    };
    let args = words(rest);
    if !is_clean(rest) || args.len() > ARGS_MAX {
        return Err(Fault::Syntax);
    }
    Ok((verb, args))
}
