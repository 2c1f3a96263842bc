//! The dialogue of IMAP (RFC 3501): CAPABILITY, NOOP, LOGOUT, STARTTLS, LOGIN and AUTHENTICATE.
//!
//! ```text
//! Start ── line ──▶ Start
//!   │  ╰── line{n} ─▶ Literal(n) ── n bytes ─▶ Rest ── line ──▶ Start, or Literal
//!   ╰── AUTHENTICATE ─▶ Sasl ── line ─▶ Sasl, Start
//! ```

use crate::Method;
use crate::common::{Action, Attempt, Common, Fault};
use crate::input::{Input, is_clean, without_end};
use crate::sasl::{self, Exchange, Step};
use bytes::Bytes;
use std::mem;

/// Longest tag, bytes.
const TAG_MAX: usize = 32;
/// Most arguments of a command.
const ARGS_MAX: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verb {
    Noop,
    Login,
    Logout,
    StartTls,
    Capability,
    Authenticate,
}

/// A command of which not everything is there.
#[derive(Debug)]
struct Command {
    /// The tag, with the space after it.
    tag: Bytes,
    verb: Verb,
    args: Vec<Bytes>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Start,
    /// The literal of this many bytes is awaited.
    Literal(Command, usize),
    /// The line's rest behind a literal is awaited.
    Rest(Command),
    /// A response is awaited; the tag of AUTHENTICATE.
    Sasl(Bytes, Exchange),
}

/// The end of a line of arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Command,
    /// A literal follows, which the client sends when it was asked to, unless `sync` is false (RFC
    /// 7888).
    Literal {
        len: usize,
        sync: bool,
    },
}

/// The state of the dialogue.
#[derive(Debug, Default)]
pub(crate) struct Imap {
    state: State,
}

impl Imap {
    pub(crate) fn go_on(&mut self) {
        self.state = State::Start;
    }

    pub(crate) fn step(&mut self, common: &mut Common, input: &mut Input) -> Action {
        if let State::Literal(_, len) = self.state {
            let Some(literal) = input.exactly(len) else { return self.more(common, input) };
            if let State::Literal(mut command, _) = mem::take(&mut self.state) {
                command.args.push(Bytes::from(literal));
                self.state = State::Rest(command);
            }
        }
        let Some(raw) = input.line() else { return self.more(common, input) };
        let line = without_end(&raw);
        let (command, rest) = match mem::take(&mut self.state) {
            State::Sasl(tag, exchange) => {
                input.command_ends();
                let step = exchange.answer(line);
                return self.sasl(common, tag, step);
            }
            State::Start => match head(line) {
                Ok((tag, verb, rest)) => (Command { tag, verb, args: Vec::new() }, rest),
                Err(tag) => return syntax(common, input, &tag, line),
            },
            State::Literal(command, _) | State::Rest(command) => (command, line),
        };
        self.arguments(common, input, command, rest)
    }

    /// Reads the arguments in `rest`, and handles the command when that was all.
    fn arguments(
        &mut self,
        common: &mut Common,
        input: &mut Input,
        mut command: Command,
        rest: &[u8],
    ) -> Action {
        match arguments(rest, &mut command.args) {
            Ok(End::Command) => {
                input.command_ends();
                let tag = command.tag.clone();
                match self.run(common, command) {
                    Ok(action) => action,
                    Err(fault) => common.fail(invalid(&tag), fault, false),
                }
            }
            Ok(End::Literal { len, sync: true }) if len > input.literal_max() => {
                // Refused before it is sent: the client goes on with another command.
                input.command_ends();
                common.fail(invalid(&command.tag), Fault::Syntax, false)
            }
            Ok(End::Literal { len, sync }) => {
                self.state = State::Literal(command, len);
                if !sync {
                    return self.step(common, input);
                }
                Action::Reply { text: Bytes::from_static(b"+ OK\r\n"), note: None }
            }
            Err(()) => syntax(common, input, &command.tag, rest),
        }
    }

    fn more(&self, common: &Common, input: &Input) -> Action {
        common.more(input, || match &self.state {
            State::Start => invalid(&match head(input.pending()) {
                Ok((tag, ..)) | Err(tag) => tag,
            }),
            State::Literal(command, _) | State::Rest(command) => invalid(&command.tag),
            State::Sasl(tag, _) => invalid(tag),
        })
    }

    fn run(&mut self, common: &mut Common, command: Command) -> Result<Action, Fault> {
        let Command { tag, verb, args } = command;
        let ok = |before: &[u8]| Bytes::from([before, &tag[..], b"OK completed\r\n"].concat());
        Ok(match verb {
            Verb::Noop => Action::Reply { text: ok(b""), note: None },
            Verb::Capability => Action::Reply { text: ok(&common.capability()), note: None },
            Verb::Logout => Action::Quit { text: ok(b"* BYE\r\n"), note: None },
            Verb::StartTls if common.may_start_tls() => Action::StartTls { text: ok(b"") },
            Verb::StartTls => return Err(Fault::REFUSED),
            Verb::Login | Verb::Authenticate if common.needs_tls() => return Err(Fault::REFUSED),
            Verb::Login => {
                let [login, password] = &args[..] else { return Err(Fault::REFUSED) };
                if login.is_empty() {
                    return Err(Fault::REFUSED);
                }
                let (login, password) = (login.clone(), password.clone());
                let attempt = Attempt { method: Method::Plain, login, password };
                Action::Ask(common.credentials(attempt, tag))
            }
            Verb::Authenticate => {
                let step = sasl::begin(&args, common.settings.methods);
                self.sasl(common, tag, step)
            }
        })
    }

    fn sasl(&mut self, common: &mut Common, tag: Bytes, step: Result<Step, Fault>) -> Action {
        match step {
            Ok(Step::Done(attempt)) => Action::Ask(common.credentials(attempt, tag)),
            Ok(Step::Ask(exchange, challenge)) => {
                if let Exchange::LoginPassword(login) = &exchange {
                    common.login = login.clone();
                }
                self.state = State::Sasl(tag, exchange);
                Action::Reply { text: challenge.line(b"+ ", &common.salt), note: None }
            }
            Err(fault) => common.fail(invalid(&tag), fault, false),
        }
    }
}

fn invalid(tag: &[u8]) -> Bytes {
    let tag = if tag.is_empty() { b"* " } else { tag };
    Bytes::from([tag, b"BAD invalid command\r\n"].concat())
}

/// The answer to a line that is no command. A literal that the client sends without being asked
/// would be read as commands: the connection ends.
fn syntax(common: &mut Common, input: &mut Input, tag: &[u8], line: &[u8]) -> Action {
    input.command_ends();
    common.fail(invalid(tag), Fault::Syntax, line.ends_with(b"+}"))
}

/// Tag, with the space behind it, and verb, and what follows.
///
/// # Errors
/// No command; the tag, empty where there is none.
fn head(line: &[u8]) -> Result<(Bytes, Verb, &[u8]), Bytes> {
    let Some(len) = memchr::memchr(b' ', line) else { return Err(Bytes::new()) };
    let (tag, rest) = line.split_at(len);
    let is_tag = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if tag.is_empty() || len > TAG_MAX || !tag.iter().all(is_tag) {
        return Err(Bytes::new());
    }
    let tag = Bytes::from([tag, b" "].concat());
    let rest = rest.trim_ascii_start();
    let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
    let (verb, rest) = rest.split_at(end);
    let verb = match &verb.to_ascii_uppercase()[..] {
        b"NOOP" => Verb::Noop,
        b"LOGIN" => Verb::Login,
        b"LOGOUT" => Verb::Logout,
        b"STARTTLS" => Verb::StartTls,
        b"CAPABILITY" => Verb::Capability,
        b"AUTHENTICATE" => Verb::Authenticate,
        _ => return Err(tag),
    };
    Ok((tag, verb, rest))
}

/// Appends the arguments in `rest`, which is empty or begins with a space.
fn arguments(rest: &[u8], args: &mut Vec<Bytes>) -> Result<End, ()> {
    if !is_clean(rest) {
        return Err(());
    }
    let mut rest = rest;
    loop {
        if !matches!(rest, [] | [b' ', ..]) {
            return Err(());
        }
        let spaces = rest.iter().take_while(|b| **b == b' ').count();
        rest = rest.get(spaces..).unwrap_or_default();
        let arg;
        match rest {
            [] => return Ok(End::Command),
            _ if args.len() >= ARGS_MAX => return Err(()),
            [b'"', inside @ ..] => (arg, rest) = quoted(inside).ok_or(())?,
            [b'{', inside @ ..] => return literal(inside).ok_or(()),
            _ => {
                let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
                let (atom, behind) = rest.split_at(end);
                (arg, rest) = (atom.to_vec(), behind);
            }
        }
        args.push(Bytes::from(arg));
    }
}

/// The value of a quoted string, of which `rest` is what follows the first quote, and what follows
/// the last one.
fn quoted(rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut bytes = rest.iter();
    loop {
        match bytes.next()? {
            b'"' => return Some((value, bytes.as_slice())),
            b'\\' => value.push(*bytes.next()?),
            byte => value.push(*byte),
        }
    }
}

/// `n}` or `n+}` at the end of a line.
fn literal(rest: &[u8]) -> Option<End> {
    let digits = rest.strip_suffix(b"}")?;
    let (digits, sync) = match digits.strip_suffix(b"+") {
        Some(digits) => (digits, false),
        None => (digits, true),
    };
    if digits.is_empty() {
        return None;
    }
    let len = digits.iter().try_fold(0usize, |len, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { len.checked_mul(10)?.checked_add(usize::from(digit)) }
    })?;
    Some(End::Literal { len, sync })
}
