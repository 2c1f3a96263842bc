//! `rewrite`: a regular expression, and what becomes of the URI that it matches.

use base::log::Level;
use bytes::Bytes;
use conf::{ConfError, Node};
use engine::regex::Regex;
use http::cx::Cx;
use http::module::Verdict;
use http::request::Request;
use http_wire::uri::{Unescape, unescape};

use super::condition::log_match;
use super::is_address;
use super::run::{URI_MAX, is_too_long};
use super::value::Value;

/// One `rewrite`.
pub(super) struct Rewrite {
    regex: Regex,
    /// The new path, or the whole address to redirect to.
    path: Value,
    /// The arguments behind a `?` in the replacement of a path.
    args: Option<Value>,
    /// The replacement has arguments of its own, which the request's are added to by `&`.
    has_args: bool,
    /// The request's arguments are kept: the replacement does not end in `?`.
    keep_args: bool,
    then: AfterMatch,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AfterMatch {
    /// The program goes on; after it, the location is found anew.
    GoOn,
    /// `last`: the location is found anew at once.
    Last,
    /// `break`: the location stays.
    Break,
    Redirect(u16),
}

/// The decision of a rewrite for the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The next instruction.
    GoOn,
    /// The program is over.
    Over,
    Verdict(Verdict),
}

impl Rewrite {
    pub fn parse(cx: &mut Cx, n: &Node) -> Result<Rewrite, ConfError> {
        let (pattern, to) = (&n.args[0], &n.args[1]);
        if to.bytes().is_empty() {
            return Err(ConfError::at(to, "empty replacement"));
        }
        let regex = Regex::compile(pattern, pattern.bytes(), false, &mut cx.vars)?;
        let then = match n.args.get(2) {
            Some(flag) => match flag.bytes() {
                b"redirect" => AfterMatch::Redirect(302),
                b"permanent" => AfterMatch::Redirect(301),
                // An address is redirected to whatever the flag says.
                b"last" | b"break" if is_address(to.bytes()) => AfterMatch::Redirect(302),
                b"last" => AfterMatch::Last,
                b"break" => AfterMatch::Break,
                _ => {
                    let m = format!("invalid parameter \"{}\"", flag.lossy());
                    return Err(ConfError::at(flag, m));
                }
            },
            None if is_address(to.bytes()) => AfterMatch::Redirect(302),
            None => AfterMatch::GoOn,
        };
        let text = match to.bytes().strip_suffix(b"?") {
            Some(kept) => to.text.slice(..kept.len()),
            None => to.text.clone(),
        };
        let keep_args = text.len() == to.text.len();
        let question = memchr::memchr(b'?', &text);
        let (path, args) = match (question, then) {
            (Some(at), AfterMatch::GoOn | AfterMatch::Last | AfterMatch::Break) => {
                let args = Value::parse_slice(cx, &text.slice(at + 1..), to, at + 1)?;
                (text.slice(..at), Some(args))
            }
            _ => (text, None),
        };
        let path = Value::parse_slice(cx, &path, to, 0)?;
        Ok(Rewrite { regex, path, args, has_args: question.is_some(), keep_args, then })
    }

    /// Whether the program, and what its location does, is over here for every request.
    pub(crate) fn always_ends(&self) -> bool {
        let any: [&[u8]; 7] = [b"^", b".*", b"^.*$", b"^(.*)$", b"(.*)", b"^/", b"^/(.*)$"];
        matches!(self.then, AfterMatch::Last | AfterMatch::Redirect(_))
            && any.contains(&&self.regex.text()[..])
    }

    /// The same, and the request goes on in another location.
    pub(crate) fn always_leaves(&self) -> bool {
        self.then == AfterMatch::Last && self.always_ends()
    }

    /// Runs on the request. `escape`: whether groups are escaped in what follows a match, until the
    /// program's next one.
    pub fn run(&self, r: &mut Request, escape: &mut bool, log: bool) -> Outcome {
        let uri = std::mem::take(&mut r.target.uri);
        let found = self.regex.exec(r, &uri);
        r.target.uri = uri;
        let Ok(found) = found else { return Outcome::Verdict(Verdict::Status(500)) };
        if log {
            log_match(r, &self.regex, &r.target.uri, found);
        }
        if !found {
            r.state.captures.clear();
            return Outcome::GoOn;
        }
        *escape = false;
        r.flags.internal = true;
        r.flags.valid_unparsed_uri = false;
        r.flags.uri_changed = self.then != AfterMatch::Break;
        if self.then == AfterMatch::Break {
            r.flags.valid_location = false;
        }
        match self.then {
            AfterMatch::Redirect(status) => {
                self.redirect(r, log);
                Outcome::Verdict(Verdict::Status(status))
            }
            then => match self.replace(r, log) {
                Ok(()) if then == AfterMatch::GoOn => Outcome::GoOn,
                Ok(()) => Outcome::Over,
                Err(verdict) => Outcome::Verdict(verdict),
            },
        }
    }

    fn redirect(&self, r: &mut Request, log: bool) {
        let escape = r.was_escaped();
        let mut text = Vec::with_capacity(128);
        self.path.eval_into(r, escape, &mut text);
        let mut to = Vec::with_capacity(text.len() + r.target.args.len() + 1);
        let taken = unescape(&text, Unescape::Redirect, &mut to);
        to.extend_from_slice(&text[taken..]);
        if self.keep_args && !r.target.args.is_empty() {
            to.push(if self.has_args { b'&' } else { b'?' });
            to.extend_from_slice(&r.target.args);
        }
        if log {
            let to = base::log::lossy(&to);
            r.log(Level::Notice, format_args!("rewritten redirect: \"{to}\""));
        }
        set_location(r, to.into());
    }

    fn replace(&self, r: &mut Request, log: bool) -> Result<(), Verdict> {
        let mut uri = Vec::with_capacity(128);
        self.path.eval_into(r, false, &mut uri);
        if is_too_long(r, uri.len(), URI_MAX) {
            return Err(Verdict::Status(500));
        }
        match &self.args {
            Some(args) => {
                let escape = r.was_escaped();
                let mut new = Vec::with_capacity(128);
                args.eval_into(r, escape, &mut new);
                if self.keep_args && !r.target.args.is_empty() {
                    new.push(b'&');
                    new.extend_from_slice(&r.target.args);
                }
                if is_too_long(r, new.len(), URI_MAX) {
                    return Err(Verdict::Status(500));
                }
                r.target.args = new;
            }
            None if !self.keep_args => r.target.args.clear(),
            None => {}
        }
        r.target.uri = uri;
        if log {
            let (uri, args) = (base::log::lossy(&r.target.uri), base::log::lossy(&r.target.args));
            r.log(Level::Notice, format_args!("rewritten data: \"{uri}\", args: \"{args}\""));
        }
        if r.target.uri.is_empty() {
            r.log(Level::Error, format_args!("the rewritten URI has a zero length"));
            return Err(Verdict::Status(500));
        }
        Ok(())
    }
}

/// Sets `Location`. Control characters, which only a decoded part of the request can have brought,
/// are escaped again: a line feed would end the field.
pub(super) fn set_location(r: &mut Request, to: Bytes) {
    let control = |b: &u8| *b < 0x20 || *b == 0x7f;
    if !to.iter().any(control) {
        r.out.location = Some(to);
        return;
    }
    let mut clean = Vec::with_capacity(to.len() + 16);
    for byte in to {
        if control(&byte) {
            clean.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            clean.push(byte);
        }
    }
    r.out.location = Some(clean.into());
}
