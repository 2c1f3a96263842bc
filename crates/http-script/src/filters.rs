//! `js_header_filter` and `js_body_filter`: functions that change responses, without waiting.

use std::cell::Cell;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use http::module::{HeaderFilter, Verdict, Wait};
use http::output::{Body, BodyFilter, FilterStep, Piece};
use http::request::Request;
use mem::Chain;
use script_modules::text::Failed;
use script_modules::{Function, Settings, share};

use ::script::{Argument, Data, Outcome};

use crate::handler;
use crate::script::{Caller, Script};
use crate::settings::{Handlers, PieceType};

/// Whether the header filter of a request has failed: the error page, whose location is often the
/// same, goes without it.
#[derive(Default)]
struct HasFailed(Cell<bool>);

/// Both filters of a location.
pub(crate) struct Filter {
    conf: Rc<Handlers>,
    /// The settings of their location.
    here: Rc<Settings>,
}

impl Filter {
    pub fn new(conf: Rc<Handlers>, here: Rc<Settings>) -> Filter {
        Filter { conf, here }
    }
}

/// Calls a header filter, unless it has failed before.
fn headers(r: &mut Request, script: &Rc<Script>, function: &Function) -> Result<(), Verdict> {
    let has_failed: Rc<HasFailed> = r.shared();
    if has_failed.0.get() {
        return Ok(());
    }
    let done = called(r, script, (Caller::HeaderFilter, "header"), function, &[Argument::Request]);
    has_failed.0.set(done.is_err());
    done.map_err(|Failed| Verdict::Status(500))
}

/// Calls the function of a filter, which must not wait, unless the script waits anyway: for what
/// its content handler has begun.
fn called(
    r: &mut Request,
    script: &Rc<Script>,
    (caller, what): (Caller, &str),
    function: &Function,
    arguments: &[Argument],
) -> Result<(), Failed> {
    let (before, waits_for) = (script.caller.get(), script.job.ops.len());
    let waited = script.is_waiting();
    let called = script.call(r, caller, function, arguments);
    // The content handler's answer does not count without what its filters wait for.
    let waits = matches!(called, Ok(Outcome::Pending(_))) || script.job.ops.len() > waits_for;
    script.caller.set(if waits { Caller::Other } else { before });
    let outcome = called?;
    if !waited && script.is_waiting() {
        let name = function.lossy();
        r.log(Level::Error, format_args!("async operation inside \"{name}\" {what} filter"));
        return Err(Failed);
    }
    match outcome {
        Outcome::Pending(call) => script.watch(r, call),
        Outcome::Done(_) => Ok(()),
    }
}

impl HeaderFilter for Filter {
    fn wait(&self, r: &Request) -> Option<Wait> {
        (!r.is_traced() && !share::has_time()).then(|| Box::pin(share::time()) as Wait)
    }

    fn run(&self, r: &mut Request) -> Verdict {
        // Explanations run no scripts.
        if r.is_traced() {
            let body_filter = self.conf.body_filter.as_ref().map(|(function, _)| function);
            let functions = self.conf.header_filter.iter().chain(body_filter);
            functions.for_each(|function| handler::explain(r, function));
            return Verdict::Next;
        }
        let script = Script::of_location(r, &self.here);
        let Ok(Some(script)) = script else { return Verdict::Status(500) };
        if r.out.status == 0 {
            r.out.status = 200;
        }
        script.filtering.is_on.set(true);
        if let Some(function) = &self.conf.header_filter
            && let Err(verdict) = headers(r, &script, function)
        {
            return verdict;
        }
        if let Some((function, piece_type)) = &self.conf.body_filter {
            let function = function.clone();
            let may_begin = Rc::default();
            let piece_type = *piece_type;
            let is_of_server = r.upstream().is_some_and(|u| !u.attempts.is_empty());
            let ends_apart = is_of_server || matches!(r.out.body, Body::Stream(_));
            let pieces = Pieces { script, function, piece_type, ends_apart, may_begin };
            r.out.filters.push(Box::new(pieces));
        }
        Verdict::Next
    }

    fn in_subrequests(&self) -> bool {
        true
    }
}

/// The body filter of one response.
struct Pieces {
    script: Rc<Script>,
    function: Function,
    piece_type: PieceType,
    /// The end is a call without bytes, as in nginx for bodies that come piece by piece.
    ends_apart: bool,
    /// It has waited for time.
    may_begin: Rc<Cell<bool>>,
}

impl Pieces {
    fn call(
        &self,
        r: &mut Request,
        bytes: &[u8],
        last: bool,
        out: &mut Chain,
    ) -> Result<(), Failed> {
        let script = &self.script;
        let data = match self.piece_type {
            PieceType::Text => Data::Text(String::from_utf8_lossy(bytes).into_owned()),
            PieceType::Buffer => Data::Bytes(bytes.to_vec()),
        };
        let arguments = [Argument::Request, Argument::Data(data), Argument::Last(last)];
        called(r, script, (Caller::BodyFilter, "body"), &self.function, &arguments)?;
        self.take(out);
        Ok(())
    }

    /// Takes what the filter has sent.
    fn take(&self, out: &mut Chain) {
        let sent = self.script.filtering.sent.take();
        if !sent.is_empty() {
            out.push_bytes(Bytes::from(sent));
        }
    }

    fn has_time(&self) -> bool {
        self.may_begin.take() || share::has_time()
    }

    /// The rest of the input waits until a script may run again.
    fn later(&self) -> FilterStep {
        let may_begin = self.may_begin.clone();
        FilterStep::Wait(Box::pin(async move {
            share::time().await;
            may_begin.set(true);
            Ok(())
        }))
    }
}

impl BodyFilter for Pieces {
    fn filter(&mut self, r: &mut Request, piece: Piece<'_>) -> FilterStep {
        // What it has sent since the last piece, after a wait.
        self.take(piece.out);
        let is_main = !r.is_subrequest();
        let ends_apart = self.ends_apart && piece.last && is_main;
        let mut left = piece.input.iter().count();
        if !self.script.filtering.done.get() && (left > 0 || piece.last) && !self.has_time() {
            return self.later();
        }
        if left == 0 && piece.last && !self.script.filtering.done.get() {
            return match self.call(r, b"", is_main, piece.out) {
                Ok(()) => FilterStep::Go,
                Err(Failed) => FilterStep::Fail,
            };
        }
        while !self.script.filtering.done.get()
            && let Some(buf) = piece.input.pop_front()
        {
            left -= 1;
            let last = piece.last && left == 0 && is_main && !ends_apart;
            let bytes = buf.memory().unwrap_or_default();
            if self.call(r, bytes, last, piece.out).is_err() {
                return FilterStep::Fail;
            }
            if (left > 0 || ends_apart) && !self.has_time() {
                return self.later();
            }
        }
        if ends_apart
            && !self.script.filtering.done.get()
            && self.call(r, b"", true, piece.out).is_err()
        {
            return FilterStep::Fail;
        }
        piece.out.append(piece.input);
        FilterStep::Go
    }
}
