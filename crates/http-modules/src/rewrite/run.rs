//! Running a program.

use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use conf::template::Template;
use http::files;
use http::module::{PhaseHandler, Step, Verdict};
use http::request::Request;
use http::server::location::Location;

use super::condition::Answer;
use super::replace::{Outcome, set_location};
use super::{If, Op, Return, RewriteConf};

/// The answer of a program that is one `return` of a text without variables.
pub(super) fn constant(status: u16, text: Bytes) -> impl Fn(&mut Request) -> Verdict {
    move |r| respond(r, status, text.clone())
}

fn respond(r: &mut Request, status: u16, text: Bytes) -> Verdict {
    r.set_content_type();
    let content_type = r.out.content_type.take().unwrap_or_default();
    r.respond(status, content_type, text);
    Verdict::Done
}

pub(super) struct Program {
    pub conf: Rc<RewriteConf>,
}

/// The longest value of `set`, bytes.
const VALUE_MAX: usize = 16 << 20;

/// The longest path, or arguments, that `rewrite` makes, bytes.
pub(super) const URI_MAX: usize = 1 << 20;

/// Whether a text of `len` bytes is not to be kept, which is logged. Each statement may repeat what
/// the one before it made: ten rounds of `rewrite ^(.*)$ $1$1$1$1 last` would make 8 KB of a
/// request line 8 GB, which ends the worker.
pub(super) fn is_too_long(r: &Request, len: usize, most: usize) -> bool {
    let is = len > most;
    if is {
        let m = format_args!("a rewritten text of {len} bytes is longer than {most}");
        r.log(Level::Error, m);
    }
    is
}

/// The state of a program.
struct ProgramState {
    at: usize,
    /// Groups are escaped in values, if the request's path was: so it is until a `rewrite` matched.
    escape: bool,
    log: bool,
    /// The location that `if` blocks belong to, once one was entered.
    outer: Option<Rc<Location>>,
}

/// The reason that a program stopped.
enum StopReason {
    End(Verdict),
    /// At an `if` that needs to know about the file of this path.
    Wait(Bytes),
}

impl PhaseHandler for Program {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let log = self.conf.log == Some(true) || r.logs(Level::Debug);
        let mut state = ProgramState { at: 0, escape: r.was_escaped(), log, outer: None };
        match self.go(r, &mut state) {
            StopReason::End(verdict) => Step::Now(verdict),
            StopReason::Wait(path) => Step::Wait(Box::pin(self.wait(r, state, path))),
        }
    }
}

impl Program {
    /// Runs until the program ends or has to wait.
    fn go(&self, r: &mut Request, state: &mut ProgramState) -> StopReason {
        while let Some(op) = self.conf.program.get(state.at) {
            state.at += 1;
            match op {
                Op::Set { var, value } => {
                    let value = value.eval(r, state.escape);
                    if is_too_long(r, value.len(), VALUE_MAX) {
                        return StopReason::End(Verdict::Status(500));
                    }
                    engine::vars::assign(r, *var, value);
                }
                Op::If(block) => match block.test.ask(r, state.escape, state.log) {
                    Ok(Answer::Known(holds)) => block.branch(r, state, holds),
                    Ok(Answer::Wait(path)) => {
                        state.at -= 1;
                        return StopReason::Wait(path);
                    }
                    Err(_) => return StopReason::End(Verdict::Status(500)),
                },
                Op::Rewrite(rewrite) => match rewrite.run(r, &mut state.escape, state.log) {
                    Outcome::GoOn => {}
                    Outcome::Over => return StopReason::End(Verdict::Next),
                    Outcome::Verdict(verdict) => return StopReason::End(verdict),
                },
                Op::Return(what) => return StopReason::End(what.run(r)),
                Op::Break => {
                    if std::mem::take(&mut r.flags.uri_changed) {
                        r.flags.valid_location = false;
                    }
                    break;
                }
            }
        }
        StopReason::End(Verdict::Next)
    }

    async fn wait(&self, r: &mut Request, mut state: ProgramState, path: Bytes) -> Verdict {
        let mut path = path;
        loop {
            let found = files::stat(r, &path).await;
            if let Some(Op::If(block)) = self.conf.program.get(state.at) {
                let holds = block.test.of_file(r, &path, found);
                state.at += 1;
                block.branch(r, &mut state, holds);
            }
            match self.go(r, &mut state) {
                StopReason::End(verdict) => return verdict,
                StopReason::Wait(next) => path = next,
            }
        }
    }
}

impl If {
    /// Enters the block's settings, or skips its instructions.
    fn branch(&self, r: &mut Request, state: &mut ProgramState, holds: bool) {
        if !holds {
            state.at += self.len;
        } else if let Some(index) = self.settings {
            let outer = state.outer.get_or_insert_with(|| r.loc.clone());
            r.enter_if(outer, index);
        }
    }
}

impl Return {
    fn run(&self, r: &mut Request) -> Verdict {
        match self {
            // As in nginx the connection ends without a response, and the log has the status.
            Return::Status(status @ (408 | 499)) => r.close_with(*status),
            Return::Status(status) => Verdict::Status(*status),
            Return::Redirect(status, to) => {
                let to = to.eval(r);
                set_location(r, to);
                Verdict::Status(*status)
            }
            Return::Text(status, text) => {
                // The text may say it.
                r.out.status = *status;
                let text = Template::eval(text, r);
                respond(r, *status, text)
            }
        }
    }
}
