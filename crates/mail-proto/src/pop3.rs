//! The dialogue of POP3 (RFC 1939, RFC 2449, RFC 2595, RFC 5034): CAPA, NOOP, QUIT, STLS, USER and
//! PASS, APOP and AUTH.
//!
//! ```text
//! Start ── USER ─▶ User ── PASS ─▶ Start
//!   ╰───── AUTH ─▶ Sasl ── line ─▶ Sasl, Start
//! ```

use crate::common::{Action, Attempt, Common, Fault};
use crate::input::{Input, is_clean, without_end};
use crate::sasl::{self, Exchange, Step};
use crate::{Method, Methods};
use bytes::Bytes;
use std::mem;

/// Most arguments of a command.
const ARGS_MAX: usize = 3;

const OK: Bytes = Bytes::from_static(b"+OK\r\n");
const INVALID: Bytes = Bytes::from_static(b"-ERR invalid command\r\n");

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    User,
    Pass,
    Apop,
    Quit,
    Capa,
    Auth,
    Noop,
    Stls,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Start,
    /// USER named this one.
    User(Bytes),
    /// A response is awaited.
    Sasl(Exchange),
}

/// The state of the dialogue.
#[derive(Debug, Default)]
pub(crate) struct Pop3 {
    state: State,
}

impl Pop3 {
    pub(crate) fn go_on(&mut self) {
        self.state = State::Start;
    }

    pub(crate) fn step(&mut self, common: &mut Common, input: &mut Input) -> Action {
        let Some(raw) = input.line() else { return common.more(input, || INVALID) };
        input.command_ends();
        let line = without_end(&raw);
        let done = match mem::take(&mut self.state) {
            State::Sasl(exchange) => {
                let step = exchange.answer(line);
                self.sasl(common, step)
            }
            State::Start => parse(line).and_then(|(verb, args)| self.start(common, verb, &args)),
            State::User(login) => {
                parse(line).and_then(|(verb, args)| self.user(common, login, verb, &args))
            }
        };
        done.unwrap_or_else(|fault| common.fail(INVALID, fault, false))
    }

    fn start(&mut self, common: &mut Common, verb: Verb, args: &[Bytes]) -> Result<Action, Fault> {
        let logs_in = matches!(verb, Verb::User | Verb::Apop | Verb::Auth);
        if logs_in && common.needs_tls() {
            return Err(Fault::REFUSED);
        }
        Ok(match (verb, args) {
            (Verb::User, [login]) => {
                common.login = login.clone();
                self.state = State::User(login.clone());
                reply(OK)
            }
            (Verb::Apop, [login, digest]) if common.settings.methods.has(Methods::APOP) => {
                let (login, password) = (login.clone(), digest.clone());
                let attempt = Attempt { method: Method::Apop, login, password };
                Action::Ask(common.credentials(attempt, Bytes::new()))
            }
            (Verb::Auth, []) => reply(common.settings.texts.auth_capability.clone()),
            (Verb::Auth, args) => {
                let step = sasl::begin(args, common.settings.methods);
                self.sasl(common, step)?
            }
            (Verb::Capa, _) => reply(common.capability()),
            (Verb::Quit, _) => Action::Quit { text: OK, note: None },
            (Verb::Noop, _) => reply(OK),
            (Verb::Stls, _) if common.may_start_tls() => Action::StartTls { text: OK },
            _ => return Err(Fault::REFUSED),
        })
    }

    /// Behind USER. A command that is refused ends this state.
    fn user(
        &mut self,
        common: &mut Common,
        login: Bytes,
        verb: Verb,
        args: &[Bytes],
    ) -> Result<Action, Fault> {
        let action = match (verb, args) {
            (Verb::Pass, [password]) => {
                let attempt = Attempt { method: Method::Plain, login, password: password.clone() };
                return Ok(Action::Ask(common.credentials(attempt, Bytes::new())));
            }
            // STLS cannot be given here.
            (Verb::Capa, _) => reply(common.settings.texts.capability.clone()),
            (Verb::Quit, _) => Action::Quit { text: OK, note: None },
            (Verb::Noop, _) => reply(OK),
            _ => return Err(Fault::REFUSED),
        };
        self.state = State::User(login);
        Ok(action)
    }

    fn sasl(&mut self, common: &mut Common, step: Result<Step, Fault>) -> Result<Action, Fault> {
        Ok(match step? {
            Step::Done(attempt) => Action::Ask(common.credentials(attempt, Bytes::new())),
            Step::Ask(exchange, challenge) => {
                if let Exchange::LoginPassword(login) = &exchange {
                    common.login = login.clone();
                }
                self.state = State::Sasl(exchange);
                reply(challenge.line(b"+ ", &common.salt))
            }
        })
    }
}

fn reply(text: Bytes) -> Action {
    Action::Reply { text, note: None }
}

/// Verb and arguments. Spaces belong to the argument of USER and PASS.
fn parse(line: &[u8]) -> Result<(Verb, Vec<Bytes>), Fault> {
    let end = memchr::memchr(b' ', line).unwrap_or(line.len());
    let (verb, rest) = line.split_at(end);
    let verb = match &verb.to_ascii_uppercase()[..] {
        b"USER" => Verb::User,
        b"PASS" => Verb::Pass,
        b"APOP" => Verb::Apop,
        b"QUIT" => Verb::Quit,
        b"CAPA" => Verb::Capa,
        b"AUTH" => Verb::Auth,
        b"NOOP" => Verb::Noop,
        b"STLS" => Verb::Stls,
        _ => return Err(Fault::Syntax),
    };
    if !is_clean(rest) {
        return Err(Fault::Syntax);
    }
    let spaces = rest.iter().take_while(|b| **b == b' ').count();
    let rest = rest.get(spaces..).unwrap_or_default();
    let args: Vec<Bytes> = match verb {
        Verb::User | Verb::Pass if rest.is_empty() => Vec::new(),
        Verb::User | Verb::Pass => vec![Bytes::copy_from_slice(rest)],
        _ => crate::input::words(rest),
    };
    if args.len() > ARGS_MAX { Err(Fault::Syntax) } else { Ok((verb, args)) }
}
